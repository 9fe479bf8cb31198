// Arithmetic on 128 and 256 bits: sums, products, shifts, slices, concatenation, comparison.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<16> by; }
header pair_t { bit<128> a; bit<128> b; }
header long_t { bit<256> c; bit<65> d; bit<7> e; }
struct headers_t { op_t op; pair_t pair; long_t long; }
struct metadata_t { bit<256> scratch; bit<100> odd; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); p.extract(h.pair); p.extract(h.long); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<128>>(4) kept;
    action sums() {
        h.pair.a = h.pair.a + h.pair.b;
        h.long.c = h.long.c - (bit<256>)h.pair.a;
        h.long.d = h.long.d + 0x1ffffffffffffffff;
    }
    action products() {
        h.long.c = (bit<256>)h.pair.a * (bit<256>)h.pair.b;
        h.pair.b = h.pair.b * h.pair.a;
        h.long.d = h.long.d * 3;
    }
    action logic() {
        m.scratch = h.pair.a ++ h.pair.b;
        h.long.c = (h.long.c & m.scratch) | (h.long.c ^ ~m.scratch);
        h.pair.a = h.pair.a ^ h.long.c[200:73];
    }
    action shifts() {
        h.pair.a = h.pair.a << h.op.by[7:0];
        h.pair.b = h.pair.b >> h.op.by[7:0];
        h.long.c = (h.long.c << h.op.by[15:8]) >> 3;
        h.long.d = h.long.d >> 64;
    }
    action slices() {
        h.pair.a[90:30] = h.pair.b[127:67];
        h.long.c = h.long.c[127:0] ++ h.long.c[255:128];
        h.long.d = h.pair.a[64:0];
        m.odd = h.pair.b[99:0] + 1;
        h.pair.b = 28w5 ++ m.odd;
    }
    action saturated() {
        h.pair.a = h.pair.a |+| h.pair.b;
        h.pair.b = h.pair.b |-| 0xffffffffffffffffffffffffffff;
        h.long.d = h.long.d |+| 0xffffffffffffffff;
        h.long.c = h.long.c |-| (bit<256>)h.pair.a;
    }
    action compared() {
        int<128> x = (int<128>)h.pair.a;
        int<128> y = (int<128>)h.pair.b;
        h.long.e = (h.pair.a < h.pair.b ? 1w1 : 1w0) ++ (x < y ? 1w1 : 1w0) ++ (x == y ? 1w1 : 1w0)
            ++ (h.long.c >= m.scratch ? 1w1 : 1w0) ++ (x > 0 ? 1w1 : 1w0) ++ 2w0;
        h.pair.a = (bit<128>)(x >> h.op.by[7:0]);
        h.pair.b = (bit<128>)-y;
        h.long.c = (bit<256>)(int<256>)x;
    }
    action stored() {
        kept.read(m.scratch[127:0], (bit<32>)h.op.by & 3);
        kept.write((bit<32>)h.op.by & 3, m.scratch[127:0] + h.pair.a);
        h.pair.b = m.scratch[127:0];
    }
    table by_wide {
        key = { h.pair.a: ternary; h.long.d: exact; }
        actions = { sums; shifts; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        if (h.long.isValid()) {
            s.egress_spec = 1;
            by_wide.apply();
            if (h.op.op & 7 == 0) { sums(); }
            else if (h.op.op & 7 == 1) { products(); }
            else if (h.op.op & 7 == 2) { logic(); }
            else if (h.op.op & 7 == 3) { shifts(); }
            else if (h.op.op & 7 == 4) { slices(); }
            else if (h.op.op & 7 == 5) { saturated(); }
            else if (h.op.op & 7 == 6) { compared(); }
            else { stored(); }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.op); p.emit(h.pair); p.emit(h.long); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
