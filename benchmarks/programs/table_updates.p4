/* One table of each match kind; a packet's first byte says which one it asks. */
#include <core.p4>
#include <v1model.p4>

header Probe {
    bit<8> kind;
    bit<32> address;
    bit<16> port;
    bit<8> class;
}

struct Headers {
    Probe probe;
}

struct Metadata {}

parser ProbeParser(packet_in packet, out Headers headers, inout Metadata metadata,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(headers.probe);
        transition accept;
    }
}

control Verify(inout Headers headers, inout Metadata metadata) {
    apply {}
}

control ProbeIngress(inout Headers headers, inout Metadata metadata,
                     inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    table exact_table {
        key = { headers.probe.address : exact; headers.probe.port : exact; }
        actions = { forward; }
        default_action = forward(1);
        size = 131072;
    }
    table lpm_table {
        key = { headers.probe.address : lpm; }
        actions = { forward; }
        default_action = forward(1);
        size = 131072;
    }
    table ternary_table {
        key = { headers.probe.address : ternary; headers.probe.port : ternary;
                headers.probe.class : ternary; }
        actions = { forward; }
        default_action = forward(1);
        size = 131072;
    }
    table range_table {
        key = { headers.probe.address : ternary; headers.probe.port : range; }
        actions = { forward; }
        default_action = forward(1);
        size = 131072;
    }
    apply {
        if (headers.probe.kind == 0) {
            exact_table.apply();
        } else if (headers.probe.kind == 1) {
            lpm_table.apply();
        } else if (headers.probe.kind == 2) {
            ternary_table.apply();
        } else {
            range_table.apply();
        }
    }
}

control ProbeEgress(inout Headers headers, inout Metadata metadata,
                    inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout Headers headers, inout Metadata metadata) {
    apply {}
}

control ProbeDeparser(packet_out packet, in Headers headers) {
    apply {
        packet.emit(headers.probe);
    }
}

V1Switch(ProbeParser(), Verify(), ProbeIngress(), ProbeEgress(), Compute(), ProbeDeparser()) main;
