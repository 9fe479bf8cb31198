// What each pass through an egress queue shows: every egress adds a record of the queue to the packet. The first byte
// chooses how packets are copied and come by again, the third one their priority.
#include <core.p4>
#include <v1model.p4>

const bit<19> ENQ_DEPTH = 3; // so many packets in the queue before it set bit 0 of a record's marks
const bit<19> DEQ_DEPTH = 2; // so many behind it bit 1
const bit<8> RECORDS = 6;

header request_t {
    bit<8> op;
    bit<8> port;     // of op MULTICAST, the group
    bit<8> priority;
    bit<8> passes;   // of op RECIRCULATE: how many more
    bit<16> number;  // of the packet
    bit<8> records;
}

header record_t {
    bit<8> instance_type;
    bit<16> rid;
    bit<8> qid;
    bit<8> marks;
    bit<24> enq_qdepth;
    bit<24> deq_qdepth;
    bit<32> enq_timestamp;
    bit<32> deq_timedelta;
    bit<48> ingress_global_timestamp;
    bit<48> egress_global_timestamp;
}

struct headers_t {
    request_t request;
    record_t[RECORDS] records;
}

struct metadata_t {
    bit<8> left; // records to parse
    bit<8> qid;  // v1model has none: record_queues.py makes this one queueing_metadata.qid, for simple_switch to fill in
    @field_list(1)
    bit<8> again;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        meta.left = hdr.request.records;
        transition next;
    }
    state next {
        transition select(meta.left) {
            0: accept;
            default: more;
        }
    }
    state more {
        packet.extract(hdr.records.next);
        meta.left = meta.left - 1;
        transition next;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (!hdr.request.isValid()) {
            mark_to_drop(standard);
        } else {
            standard.egress_spec = (bit<9>)hdr.request.port;
            standard.priority = (bit<3>)hdr.request.priority;
            if (hdr.request.op == 1) { // MULTICAST
                standard.mcast_grp = (bit<16>)hdr.request.port;
            } else if (hdr.request.op == 2) { // CLONE_INGRESS
                clone(CloneType.I2E, 1);
            } else if (hdr.request.op == 5 && meta.again == 0) { // RESUBMIT
                meta.again = 1;
                resubmit_preserving_field_list(1);
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.request.records < RECORDS) {
            hdr.request.records = hdr.request.records + 1;
            hdr.records.push_front(1);
            hdr.records[0].setValid();
            hdr.records[0].instance_type = (bit<8>)standard.instance_type;
            hdr.records[0].rid = standard.egress_rid;
            hdr.records[0].qid = meta.qid;
            hdr.records[0].marks = 0;
            if (standard.enq_qdepth >= ENQ_DEPTH) {
                hdr.records[0].marks = hdr.records[0].marks | 1;
            }
            if (standard.deq_qdepth >= DEQ_DEPTH) {
                hdr.records[0].marks = hdr.records[0].marks | 2;
            }
            hdr.records[0].enq_qdepth = (bit<24>)standard.enq_qdepth;
            hdr.records[0].deq_qdepth = (bit<24>)standard.deq_qdepth;
            hdr.records[0].enq_timestamp = standard.enq_timestamp;
            hdr.records[0].deq_timedelta = standard.deq_timedelta;
            hdr.records[0].ingress_global_timestamp = standard.ingress_global_timestamp;
            hdr.records[0].egress_global_timestamp = standard.egress_global_timestamp;
        }
        if (hdr.request.op == 3 && standard.instance_type == 0) { // CLONE_EGRESS
            clone(CloneType.E2E, 1);
        } else if (hdr.request.op == 4 && hdr.request.passes > 0) { // RECIRCULATE
            hdr.request.passes = hdr.request.passes - 1;
            recirculate_preserving_field_list(1);
        }
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.records);
    }
}

V1Switch(P(), V(), I(), E(), V(), D()) main;
