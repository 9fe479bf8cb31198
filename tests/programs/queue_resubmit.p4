// Each pass of a packet through ingress makes a clone, and as many passes follow as it says.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<16> passes; }
struct headers_t { base_t base; }
struct metadata_t { @field_list(1) bit<16> done; }

parser P(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { packet.extract(h.base); transition accept; }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        clone(CloneType.I2E, 1);
        if (m.done != h.base.passes) {
            m.done = m.done + 1;
            resubmit_preserving_field_list(1);
        }
        s.egress_spec = 2;
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out packet, in headers_t h) { apply { packet.emit(h.base); } }

V1Switch(P(), C(), I(), E(), C(), D()) main;
