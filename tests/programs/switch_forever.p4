// Programs that simple_switch would run forever: everything that can go round without end.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; }
struct headers_t { base_t base; }
struct metadata_t { bit<8> unused; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition select(h.base.op) { 4: around; default: accept; } }
    state around { transition select(h.base.op) { 4: around; default: accept; } }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (h.base.op == 0) { resubmit_preserving_field_list(1); }
        if (h.base.op == 2) { assert(s.ingress_port == 5); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.base.op == 1) { recirculate_preserving_field_list(1); }
        if (h.base.op == 3) { clone(CloneType.E2E, 1); }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
