// What a queue with a rate does to each packet: IPv4 packets leave by the port that the last byte of their destination
// names, in the queue of their precedence, and carry what egress saw of it. A copy of each leaves by port 9, whose queue
// has no rate, so that also those that are dropped say when they came.
#include <core.p4>
#include <v1model.p4>

const bit<9> COPIES = 9;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header ipv4_t {
    bit<8>  version_words;
    bit<3>  precedence;
    bit<3>  service;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification; // the packet's number
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<24> network;
    bit<8>  port;
}

header seen_t {
    bit<48> ingress_global_timestamp;
    bit<32> enq_timestamp;
    bit<32> deq_timedelta;
    bit<24> enq_qdepth;
    bit<24> deq_qdepth;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    seen_t     seen;
}

struct metadata_t {
    @field_list(1)
    bit<48> came;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.seen);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = (bit<9>)hdr.ipv4.port;
        standard.priority = hdr.ipv4.precedence;
        meta.came = standard.ingress_global_timestamp;
        clone_preserving_field_list(CloneType.I2E, 1, 1);
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<19>>(1) threshold; // packets in the queue

    apply {
        hdr.seen.ingress_global_timestamp = meta.came;
        if (standard.egress_port != COPIES) {
            bit<19> depth;
            threshold.read(depth, 0);
            hdr.seen.enq_timestamp = standard.enq_timestamp;
            hdr.seen.deq_timedelta = standard.deq_timedelta;
            hdr.seen.enq_qdepth = (bit<24>)standard.enq_qdepth;
            hdr.seen.deq_qdepth = (bit<24>)standard.deq_qdepth;
            if (standard.enq_qdepth >= depth && hdr.ipv4.ecn != 0) {
                hdr.ipv4.ecn = 3; // congestion experienced (RFC 3168)
            }
        }
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.seen);
    }
}

V1Switch(P(), V(), I(), E(), V(), D()) main;
