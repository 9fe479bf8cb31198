// A switch that marks congestion: IPv4 packets go by their destination into one queue for each precedence (the upper three
// bits of DSCP), and those that say ECT leave with "congestion experienced" (RFC 3168) when they found too many in the queue.
//
//     innet p4 compile p4/examples/ecn.p4 -o ecn.json
//     innet switch stf ecn.json p4/examples/ecn.stf --priority-queues 8
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {}

parser EcnParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control EcnIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        standard.egress_spec = port;
        standard.priority = hdr.ipv4.dscp[5:3];
    }

    table routes {
        key = { hdr.ipv4.destination : lpm; }
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        if (hdr.ipv4.isValid()) {
            routes.apply();
        } else {
            drop();
        }
    }
}

control EcnEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    register<bit<19>>(1) threshold; // packets; 0 until the control plane writes it: never marks
    counter(512, CounterType.packets) marked; // by port

    apply {
        bit<19> depth;
        threshold.read(depth, 0);
        if (depth > 0 && standard.enq_qdepth >= depth && hdr.ipv4.ecn != 0) {
            hdr.ipv4.ecn = 3;
            marked.count((bit<32>)standard.egress_port);
        }
    }
}

control EcnVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control EcnChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.dscp, hdr.ipv4.ecn,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source,
              hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control EcnDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(EcnParser(), EcnVerify(), EcnIngress(), EcnEgress(), EcnChecksum(), EcnDeparser()) main;
