// Signed, saturating and odd-width arithmetic, casts between widths and signs, shifts, comparisons.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> by; }
header data_t { int<7> a; bit<9> b; int<13> c; bit<3> d; int<33> e; bit<31> f; int<64> g; bit<63> h; bit<1> i; int<16> j; bit<48> k; }
struct headers_t { op_t op; data_t data; }
struct metadata_t { int<17> wide; bit<5> few; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); p.extract(h.data); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action saturate() {
        h.data.a = h.data.a |+| (int<7>)h.data.c;
        h.data.b = h.data.b |-| (bit<9>)h.data.d;
        h.data.c = h.data.c |-| 13s100;
        h.data.d = h.data.d |+| 3w2;
        h.data.e = h.data.e |-| (int<33>)h.data.j;
        h.data.g = h.data.g |+| (int<64>)h.data.e;
        h.data.h = h.data.h |-| (bit<63>)h.data.f;
    }
    action casts() {
        m.wide = (int<17>)h.data.a;
        h.data.g = (int<64>)m.wide;
        h.data.c = (int<13>)(bit<13>)h.data.b;
        h.data.f = (bit<31>)(int<31>)h.data.e;
        h.data.b = (bit<9>)(int<9>)h.data.a;
        h.data.k = (bit<48>)(int<48>)h.data.j;
        h.data.d = (bit<3>)h.data.k;
    }
    action arithmetic() {
        h.data.a = h.data.a * -3;
        h.data.c = -h.data.c + (int<13>)h.data.a;
        h.data.e = h.data.e - (int<33>)h.data.c;
        h.data.g = h.data.g * (int<64>)h.data.e;
        h.data.f = (h.data.f + 7) * 5 - 1;
        h.data.h = ~h.data.h;
        h.data.k = h.data.k * (bit<48>)h.data.f;
        h.data.j = h.data.j - (int<16>)h.data.a;
    }
    action shifts() {
        h.data.a = h.data.a >> h.op.by[3:0];
        h.data.c = h.data.c << h.op.by[4:0];
        h.data.e = h.data.e >> h.op.by;
        h.data.g = h.data.g >> h.op.by;
        h.data.h = h.data.h << h.op.by;
        h.data.k = h.data.k >> h.op.by[5:0];
        h.data.j = (h.data.j << 3) >> 2;
    }
    action compare() {
        h.data.d = (h.data.a < (int<7>)h.data.j ? 1w1 : 1w0) ++ (h.data.e >= (int<33>)h.data.c ? 1w1 : 1w0)
            ++ (h.data.g != (int<64>)h.data.e ? 1w1 : 1w0);
        h.data.i = h.data.h > (bit<63>)h.data.k ? 1w1 : 1w0;
        h.data.b = h.data.g < 0 ? 9w1 : (h.data.a <= -1 ? 9w2 : 9w3);
    }
    action pieces() {
        h.data.f = h.data.k[40:10];
        h.data.k[20:5] = h.data.h[33:18];
        h.data.b[7:1] = (bit<7>)h.data.a;
        m.few = h.data.d ++ h.data.i ++ 1w1;
        h.data.h = m.few ++ h.data.k ++ h.data.b ++ h.data.i;
        h.data.j = (int<16>)(h.op.by ++ h.op.op);
    }
    apply {
        if (h.data.isValid()) {
            s.egress_spec = h.data.a < 0 ? 9w2 : 9w1;
            if (h.op.op & 7 == 0) { saturate(); }
            else if (h.op.op & 7 == 1) { casts(); }
            else if (h.op.op & 7 == 2) { arithmetic(); }
            else if (h.op.op & 7 == 3) { shifts(); }
            else if (h.op.op & 7 == 4) { compare(); }
            else if (h.op.op & 7 == 5) { pieces(); }
            else if (h.op.op & 7 == 6) { saturate(); arithmetic(); }
            else { shifts(); saturate(); casts(); compare(); }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.op); p.emit(h.data); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
