// Each round puts the number of the rounds that are left before the payload.
#include <core.p4>
#include <v1model.p4>

header left_t { bit<16> rounds; }
struct headers_t { left_t left; left_t done; }
struct metadata_t { bit<8> unused; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.left); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { s.egress_spec = 1; }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.left.rounds != 0) {
            h.done.setValid();
            h.done.rounds = h.left.rounds;
            h.left.rounds = h.left.rounds - 1;
            recirculate_preserving_field_list(0);
        }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.left); p.emit(h.done); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
