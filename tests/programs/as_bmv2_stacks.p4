// lastIndex of a stack that is empty.
#include <core.p4>
#include <v1model.p4>

header ask_t { bit<8> count; bit<32> last; bit<8> large; }
header item_t { bit<8> value; }
struct headers_t { ask_t ask; item_t[3] items; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.ask);
        transition select(h.ask.count) { 0: finish; default: item; }
    }
    state item {
        p.extract(h.items.next);
        transition select(h.ask.count) { 1: finish; default: more; }
    }
    state more { p.extract(h.items.next); transition finish; }
    state finish {
        h.ask.last = h.items.lastIndex;
        h.ask.large = (h.items.lastIndex > 32w0xfffffffe) ? (h.items.lastIndex == 0xffffffff ? 8w1 : 8w2) : 8w3;
        transition accept;
    }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { s.egress_spec = 2; } }
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
