// Indices wider than the 32 bits that BMv2 converts them to.
#include <core.p4>
#include <v1model.p4>

header ask_t { bit<64> index; bit<32> old; }
struct headers_t { ask_t ask; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ask); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>, bit<64>>(8) cells;
    counter<bit<64>>(8, CounterType.packets) asked;
    apply {
        bit<32> old = 0;
        cells.read(old, h.ask.index);
        cells.write(h.ask.index, old + 100);
        asked.count(h.ask.index);
        h.ask.old = old;
        s.egress_spec = 2;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
