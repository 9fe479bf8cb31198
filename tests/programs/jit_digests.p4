// Digests of several learn lists, random numbers, and what ingress and egress do after them.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> low; bit<8> high; int<16> signed; bit<64> word; }
struct headers_t { base_t base; }
struct metadata_t { bit<64> drawn; bit<7> small; }
struct seen_t { bit<9> port; bit<64> word; int<16> signed; }
struct drawn_t { bit<64> drawn; bit<7> small; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<64>>(256) drawn;
    apply {
        s.egress_spec = (bit<9>)(h.base.op & 3);
        random(m.small, 7w0, 7w127);
        if (h.base.op & 4 != 0) { random(h.base.word, (bit<64>)h.base.low, (bit<64>)h.base.high); }
        if (h.base.op & 8 != 0) { random(m.drawn, 64w0, 64w0xffffffffffffffff); }
        if (h.base.op & 16 != 0) { random(m.drawn, 64w5, 64w5); }
        if (h.base.op & 32 != 0) {
            bit<64> unused;
            random(unused, 64w0, 64w1);
        }
        drawn.write((bit<32>)h.base.op, m.drawn);
        if (h.base.op & 64 != 0) { digest<seen_t>(1, { s.ingress_port, h.base.word, h.base.signed }); }
        if (h.base.op & 128 != 0) { digest<drawn_t>(2, { m.drawn, m.small }); mark_to_drop(s); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { random(h.base.low, 8w3, 8w9); }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
