// A switch that forwards by destination address and counts: a program to begin with.
//
//     innet p4 compile p4/examples/forward.p4 -o forward.json
//     sudo innet net program forward.json --commands p4/examples/forward.commands
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

struct headers_t {
    ethernet_t ethernet;
}

struct metadata_t {}

parser ForwardParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control ForwardIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    counter(16, CounterType.packets_and_bytes) forwarded; // by port
    counter(1, CounterType.packets) unknown;

    action drop() {
        unknown.count(0);
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        forwarded.count((bit<32>)port);
        standard.egress_spec = port;
    }

    table addresses {
        key = { hdr.ethernet.destination : exact; }
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        addresses.apply();
    }
}

control ForwardEgress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {}
}

control ForwardChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ForwardDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(ForwardParser(), ForwardChecksum(), ForwardIngress(), ForwardEgress(), ForwardChecksum(),
         ForwardDeparser()) main;
