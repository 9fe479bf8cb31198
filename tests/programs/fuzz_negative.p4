// Negative arguments that the program itself states, of defaults and of entries, in every width.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; int<8> a; int<11> b; bit<5> rest; int<64> c; int<65> d; bit<7> more; }
header seen_t { bit<16> order; bit<64> quotient; bit<32> shifted; bit<64> sum; bit<72> wide; }
struct headers_t { data_t data; seen_t seen; }
struct metadata_t { int<11> key; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.data); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action use(int<8> few, int<11> some, int<64> word, int<65> wide) {
        h.seen.order = (few < h.data.a ? 16w1 : 16w2) + (some < 0 ? 16w4 : 16w8) + (word > h.data.c ? 16w16 : 16w32)
            + (wide == h.data.d ? 16w64 : 16w128) + (wide <= -7 ? 16w256 : 16w512) + (few == -128 ? 16w1024 : 16w2048);
        h.seen.quotient = (bit<64>)(word >> 3);
        h.seen.shifted = (bit<32>)(bit<11>)(some >> 2);
        h.seen.sum = (bit<64>)(word |+| h.data.c);
        h.seen.wide = (bit<72>)(bit<65>)(wide |-| h.data.d);
        m.key = some |-| h.data.b;
    }
    action keep(int<11> some) {
        m.key = ~some;
        h.seen.sum = (bit<64>)(int<64>)some;
    }
    table stated {
        key = { h.data.op: exact; }
        actions = { use; keep; }
        default_action = use(-1, -5, -7, -128);
        const entries = {
            0: use(-128, -1024, -0x8000000000000000, -0x10000000000000000);
            1: use(127, 1023, -1, 0xffffffffffffffff);
            2: keep(-1);
            3: keep(-1024);
            128: keep(1023);
            255: use(1, -2, 0x7fffffffffffffff, -7);
        }
    }
    table changed {
        key = { m.key: range; h.data.c: ternary; }
        actions = { use; keep; NoAction; }
        default_action = keep(-3);
        size = 8;
    }
    apply {
        if (h.data.isValid()) {
            s.egress_spec = 1;
            h.seen.setValid();
            h.seen = { 0, 0, 0, 0, 0 };
            stated.apply();
            changed.apply();
            h.seen.order = h.seen.order ^ ((bit<16>)(bit<11>)m.key << 5) ^ (m.key > -5 && m.key <= 600 ? 16w0x8000 : 16w0);
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.data); p.emit(h.seen); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
