// Operations of 64 bits that overflow, whose results are then looked at as a whole.
#include <core.p4>
#include <v1model.p4>

header ask_t { int<64> negated; bit<64> product; bit<64> sum; bit<8> less; }
struct headers_t { ask_t ask; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ask); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        h.ask.negated = -h.ask.negated;
        h.ask.negated = h.ask.negated |-| 64s5;
        h.ask.product = h.ask.product * 64w3;
        h.ask.product = h.ask.product |+| 64w1;
        if (h.ask.sum + 64w2 < h.ask.sum) { h.ask.less = 1; }
        h.ask.sum = (h.ask.sum + h.ask.sum) >> 1;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
