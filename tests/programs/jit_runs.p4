// Runs: like statements over consecutive fields and registers, and near-runs that are none.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> index; bit<16> seed; }
header values_t { bit<32> v0; bit<32> v1; bit<32> v2; bit<32> v3; bit<32> v4; bit<32> v5; bit<32> v6; bit<32> v7; bit<32> v8; bit<32> v9; bit<32> v10; bit<32> v11; }
header pairs_t { bit<16> m0; bit<16> e0; bit<16> m1; bit<16> e1; bit<16> m2; bit<16> e2; bit<16> m3; bit<16> e3; bit<16> m4; bit<16> e4; bit<16> m5; bit<16> e5; bit<16> m6; bit<16> e6; bit<16> m7; bit<16> e7; bit<16> m8; bit<16> e8; bit<16> m9; bit<16> e9; bit<16> m10; bit<16> e10; bit<16> m11; bit<16> e11; }
header bytes_t { bit<8> b0; bit<8> b1; bit<8> b2; bit<8> b3; bit<8> b4; bit<8> b5; bit<8> b6; bit<8> b7; bit<8> b8; bit<8> b9; bit<8> b10; bit<8> b11; bit<8> b12; bit<8> b13; bit<8> b14; bit<8> b15; }
header longs_t { bit<64> q0; bit<64> q1; bit<64> q2; bit<64> q3; bit<64> q4; bit<64> q5; bit<64> q6; bit<64> q7; }
header half_t { bit<32> h0; bit<32> h1; bit<32> h2; bit<32> h3; bit<32> h4; bit<32> h5; bit<32> h6; bit<32> h7; bit<32> h8; bit<32> h9; bit<32> h10; bit<32> h11; bit<32> h12; bit<32> h13; bit<32> h14; bit<32> h15; bit<32> h16; bit<32> h17; bit<32> h18; bit<32> h19; bit<4> low; bit<12> high; bit<8> mark; bit<16> free; }
struct headers_t { op_t op; half_t half; values_t v; pairs_t p; bytes_t b; longs_t q; values_t w; }
struct metadata_t { bit<32> index; bit<32> total; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); p.extract(h.half); p.extract(h.v); p.extract(h.p); p.extract(h.b); p.extract(h.q); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(16) r0;
    register<bit<32>>(16) r1;
    register<bit<32>>(16) r2;
    register<bit<32>>(16) r3;
    register<bit<32>>(16) r4;
    register<bit<32>>(16) r5;
    register<bit<32>>(16) r6;
    register<bit<32>>(16) r7;
    register<bit<32>>(16) r8;
    register<bit<32>>(16) r9;
    register<bit<32>>(16) r10;
    register<bit<32>>(16) r11;
    register<bit<8>>(8) s0;
    register<bit<8>>(8) s1;
    register<bit<8>>(8) s2;
    register<bit<8>>(8) s3;
    register<bit<8>>(8) s4;
    register<bit<8>>(8) s5;
    register<bit<8>>(8) s6;
    register<bit<8>>(8) s7;
    register<bit<8>>(8) s8;
    register<bit<8>>(8) s9;
    register<bit<8>>(8) s10;
    register<bit<8>>(8) s11;
    register<bit<8>>(8) s12;
    register<bit<8>>(8) s13;
    register<bit<8>>(8) s14;
    register<bit<8>>(8) s15;
    register<bit<32>>(100) flat;
    register<bit<64>>(16) long;
    action sum() {
        { bit<32> old; r0.read(old, m.index); h.v.v0 = h.v.v0 + old; r0.write(m.index, h.v.v0); }
        { bit<32> old; r1.read(old, m.index); h.v.v1 = h.v.v1 + old; r1.write(m.index, h.v.v1); }
        { bit<32> old; r2.read(old, m.index); h.v.v2 = h.v.v2 + old; r2.write(m.index, h.v.v2); }
        { bit<32> old; r3.read(old, m.index); h.v.v3 = h.v.v3 + old; r3.write(m.index, h.v.v3); }
        { bit<32> old; r4.read(old, m.index); h.v.v4 = h.v.v4 + old; r4.write(m.index, h.v.v4); }
        { bit<32> old; r5.read(old, m.index); h.v.v5 = h.v.v5 + old; r5.write(m.index, h.v.v5); }
        { bit<32> old; r6.read(old, m.index); h.v.v6 = h.v.v6 + old; r6.write(m.index, h.v.v6); }
        { bit<32> old; r7.read(old, m.index); h.v.v7 = h.v.v7 + old; r7.write(m.index, h.v.v7); }
        { bit<32> old; r8.read(old, m.index); h.v.v8 = h.v.v8 + old; r8.write(m.index, h.v.v8); }
        { bit<32> old; r9.read(old, m.index); h.v.v9 = h.v.v9 + old; r9.write(m.index, h.v.v9); }
        { bit<32> old; r10.read(old, m.index); h.v.v10 = h.v.v10 + old; r10.write(m.index, h.v.v10); }
        { bit<32> old; r11.read(old, m.index); h.v.v11 = h.v.v11 + old; r11.write(m.index, h.v.v11); }
    }
    action shared() {
        bit<32> old;
        r0.read(old, m.index); h.v.v0 = old ^ h.v.v0; r0.write(m.index, h.v.v0 | 1);
        r1.read(old, m.index); h.v.v1 = old ^ h.v.v1; r1.write(m.index, h.v.v1 | 1);
        r2.read(old, m.index); h.v.v2 = old ^ h.v.v2; r2.write(m.index, h.v.v2 | 1);
        r3.read(old, m.index); h.v.v3 = old ^ h.v.v3; r3.write(m.index, h.v.v3 | 1);
        r4.read(old, m.index); h.v.v4 = old ^ h.v.v4; r4.write(m.index, h.v.v4 | 1);
        r5.read(old, m.index); h.v.v5 = old ^ h.v.v5; r5.write(m.index, h.v.v5 | 1);
        r6.read(old, m.index); h.v.v6 = old ^ h.v.v6; r6.write(m.index, h.v.v6 | 1);
        r7.read(old, m.index); h.v.v7 = old ^ h.v.v7; r7.write(m.index, h.v.v7 | 1);
        r8.read(old, m.index); h.v.v8 = old ^ h.v.v8; r8.write(m.index, h.v.v8 | 1);
        r9.read(old, m.index); h.v.v9 = old ^ h.v.v9; r9.write(m.index, h.v.v9 | 1);
        r10.read(old, m.index); h.v.v10 = old ^ h.v.v10; r10.write(m.index, h.v.v10 | 1);
        r11.read(old, m.index); h.v.v11 = old ^ h.v.v11; r11.write(m.index, h.v.v11 | 1);
        m.total = old;
    }
    action carried() {
        bit<32> sum = 0;
        sum = sum + h.v.v0; h.v.v0 = sum;
        sum = sum + h.v.v1; h.v.v1 = sum;
        sum = sum + h.v.v2; h.v.v2 = sum;
        sum = sum + h.v.v3; h.v.v3 = sum;
        sum = sum + h.v.v4; h.v.v4 = sum;
        sum = sum + h.v.v5; h.v.v5 = sum;
        sum = sum + h.v.v6; h.v.v6 = sum;
        sum = sum + h.v.v7; h.v.v7 = sum;
        sum = sum + h.v.v8; h.v.v8 = sum;
        sum = sum + h.v.v9; h.v.v9 = sum;
        sum = sum + h.v.v10; h.v.v10 = sum;
        sum = sum + h.v.v11; h.v.v11 = sum;
        m.total = sum;
    }
    action reversed() {
        r11.write(m.index, h.v.v0);
        r10.write(m.index, h.v.v1);
        r9.write(m.index, h.v.v2);
        r8.write(m.index, h.v.v3);
        r7.write(m.index, h.v.v4);
        r6.write(m.index, h.v.v5);
        r5.write(m.index, h.v.v6);
        r4.write(m.index, h.v.v7);
        r3.write(m.index, h.v.v8);
        r2.write(m.index, h.v.v9);
        r1.write(m.index, h.v.v10);
        r0.write(m.index, h.v.v11);
    }
    action pairs() {
        h.p.e0 = h.p.e0 + h.p.m0; h.p.m0 = (bit<16>)h.v.v0 + 0;
        h.p.e1 = h.p.e1 + h.p.m1; h.p.m1 = (bit<16>)h.v.v1 + 3;
        h.p.e2 = h.p.e2 + h.p.m2; h.p.m2 = (bit<16>)h.v.v2 + 6;
        h.p.e3 = h.p.e3 + h.p.m3; h.p.m3 = (bit<16>)h.v.v3 + 9;
        h.p.e4 = h.p.e4 + h.p.m4; h.p.m4 = (bit<16>)h.v.v4 + 12;
        h.p.e5 = h.p.e5 + h.p.m5; h.p.m5 = (bit<16>)h.v.v5 + 15;
        h.p.e6 = h.p.e6 + h.p.m6; h.p.m6 = (bit<16>)h.v.v6 + 18;
        h.p.e7 = h.p.e7 + h.p.m7; h.p.m7 = (bit<16>)h.v.v7 + 21;
        h.p.e8 = h.p.e8 + h.p.m8; h.p.m8 = (bit<16>)h.v.v8 + 24;
        h.p.e9 = h.p.e9 + h.p.m9; h.p.m9 = (bit<16>)h.v.v9 + 27;
        h.p.e10 = h.p.e10 + h.p.m10; h.p.m10 = (bit<16>)h.v.v10 + 30;
        h.p.e11 = h.p.e11 + h.p.m11; h.p.m11 = (bit<16>)h.v.v11 + 33;
    }
    action pipeline() {
        flat.read(h.v.v0, m.index + 0);
        flat.read(h.v.v1, m.index + 3);
        flat.read(h.v.v2, m.index + 6);
        flat.read(h.v.v3, m.index + 9);
        flat.read(h.v.v4, m.index + 12);
        flat.read(h.v.v5, m.index + 15);
        flat.read(h.v.v6, m.index + 18);
        flat.read(h.v.v7, m.index + 21);
        flat.read(h.v.v8, m.index + 24);
        flat.read(h.v.v9, m.index + 27);
        flat.read(h.v.v10, m.index + 30);
        flat.read(h.v.v11, m.index + 33);
        flat.write(m.index + 0, h.v.v0 + 0);
        flat.write(m.index + 3, h.v.v1 + 1);
        flat.write(m.index + 6, h.v.v2 + 2);
        flat.write(m.index + 9, h.v.v3 + 3);
        flat.write(m.index + 12, h.v.v4 + 4);
        flat.write(m.index + 15, h.v.v5 + 5);
        flat.write(m.index + 18, h.v.v6 + 6);
        flat.write(m.index + 21, h.v.v7 + 7);
        flat.write(m.index + 24, h.v.v8 + 8);
        flat.write(m.index + 27, h.v.v9 + 9);
        flat.write(m.index + 30, h.v.v10 + 10);
        flat.write(m.index + 33, h.v.v11 + 11);
    }
    action small() {
        { bit<8> t; s0.read(t, (bit<32>)h.op.index); h.b.b0 = t |+| h.b.b0; s0.write((bit<32>)h.op.index, h.b.b0); }
        { bit<8> t; s1.read(t, (bit<32>)h.op.index); h.b.b1 = t |+| h.b.b1; s1.write((bit<32>)h.op.index, h.b.b1); }
        { bit<8> t; s2.read(t, (bit<32>)h.op.index); h.b.b2 = t |+| h.b.b2; s2.write((bit<32>)h.op.index, h.b.b2); }
        { bit<8> t; s3.read(t, (bit<32>)h.op.index); h.b.b3 = t |+| h.b.b3; s3.write((bit<32>)h.op.index, h.b.b3); }
        { bit<8> t; s4.read(t, (bit<32>)h.op.index); h.b.b4 = t |+| h.b.b4; s4.write((bit<32>)h.op.index, h.b.b4); }
        { bit<8> t; s5.read(t, (bit<32>)h.op.index); h.b.b5 = t |+| h.b.b5; s5.write((bit<32>)h.op.index, h.b.b5); }
        { bit<8> t; s6.read(t, (bit<32>)h.op.index); h.b.b6 = t |+| h.b.b6; s6.write((bit<32>)h.op.index, h.b.b6); }
        { bit<8> t; s7.read(t, (bit<32>)h.op.index); h.b.b7 = t |+| h.b.b7; s7.write((bit<32>)h.op.index, h.b.b7); }
        { bit<8> t; s8.read(t, (bit<32>)h.op.index); h.b.b8 = t |+| h.b.b8; s8.write((bit<32>)h.op.index, h.b.b8); }
        { bit<8> t; s9.read(t, (bit<32>)h.op.index); h.b.b9 = t |+| h.b.b9; s9.write((bit<32>)h.op.index, h.b.b9); }
        { bit<8> t; s10.read(t, (bit<32>)h.op.index); h.b.b10 = t |+| h.b.b10; s10.write((bit<32>)h.op.index, h.b.b10); }
        { bit<8> t; s11.read(t, (bit<32>)h.op.index); h.b.b11 = t |+| h.b.b11; s11.write((bit<32>)h.op.index, h.b.b11); }
        { bit<8> t; s12.read(t, (bit<32>)h.op.index); h.b.b12 = t |+| h.b.b12; s12.write((bit<32>)h.op.index, h.b.b12); }
        { bit<8> t; s13.read(t, (bit<32>)h.op.index); h.b.b13 = t |+| h.b.b13; s13.write((bit<32>)h.op.index, h.b.b13); }
        { bit<8> t; s14.read(t, (bit<32>)h.op.index); h.b.b14 = t |+| h.b.b14; s14.write((bit<32>)h.op.index, h.b.b14); }
        { bit<8> t; s15.read(t, (bit<32>)h.op.index); h.b.b15 = t |+| h.b.b15; s15.write((bit<32>)h.op.index, h.b.b15); }
    }
    action longs() {
        h.q.q0 = h.q.q0 + 0x8000000000000001;
        h.q.q1 = h.q.q1 + 0x8000000000000001;
        h.q.q2 = h.q.q2 + 0x8000000000000001;
        h.q.q3 = h.q.q3 + 0x8000000000000001;
        h.q.q4 = h.q.q4 + 0x8000000000000001;
        h.q.q5 = h.q.q5 + 0x8000000000000001;
        h.q.q6 = h.q.q6 + 0x8000000000000001;
        h.q.q7 = h.q.q7 + 0x8000000000000001;
        bit<64> t;
        long.read(t, 0); long.write(0, t + h.q.q0); h.q.q0 = t;
        long.read(t, 1); long.write(1, t + h.q.q1); h.q.q1 = t;
        long.read(t, 2); long.write(2, t + h.q.q2); h.q.q2 = t;
        long.read(t, 3); long.write(3, t + h.q.q3); h.q.q3 = t;
        long.read(t, 4); long.write(4, t + h.q.q4); h.q.q4 = t;
        long.read(t, 5); long.write(5, t + h.q.q5); h.q.q5 = t;
        long.read(t, 6); long.write(6, t + h.q.q6); h.q.q6 = t;
        long.read(t, 7); long.write(7, t + h.q.q7); h.q.q7 = t;
    }
    action choose() {
        h.v.v0 = h.v.v0 > 0x80000000 ? h.v.v0 - 1 : m.index;
        h.v.v1 = h.v.v1 > 0x80000000 ? h.v.v1 - 1 : m.index;
        h.v.v2 = h.v.v2 > 0x80000000 ? h.v.v2 - 1 : m.index;
        h.v.v3 = h.v.v3 > 0x80000000 ? h.v.v3 - 1 : m.index;
        h.v.v4 = h.v.v4 > 0x80000000 ? h.v.v4 - 1 : m.index;
        h.v.v5 = h.v.v5 > 0x80000000 ? h.v.v5 - 1 : m.index;
        h.v.v6 = h.v.v6 > 0x80000000 ? h.v.v6 - 1 : m.index;
        h.v.v7 = h.v.v7 > 0x80000000 ? h.v.v7 - 1 : m.index;
        h.v.v8 = h.v.v8 > 0x80000000 ? h.v.v8 - 1 : m.index;
        h.v.v9 = h.v.v9 > 0x80000000 ? h.v.v9 - 1 : m.index;
        h.v.v10 = h.v.v10 > 0x80000000 ? h.v.v10 - 1 : m.index;
        h.v.v11 = h.v.v11 > 0x80000000 ? h.v.v11 - 1 : m.index;
    }
    action half() {
        h.half.h4 = h.half.h4 + h.half.h12;
        h.half.h5 = h.half.h5 + h.half.h13;
        h.half.h6 = h.half.h6 + h.half.h14;
        h.half.h7 = h.half.h7 + h.half.h15;
        h.half.h8 = h.half.h8 + h.half.h16;
        h.half.h9 = h.half.h9 + h.half.h17;
        h.half.h10 = h.half.h10 + h.half.h18;
        h.half.h11 = h.half.h11 + h.half.h19;
        h.half.mark = h.half.mark + 1;
    }
    action broken() {
        h.v.v0 = h.v.v0 + 1;
        h.v.v1 = h.v.v1 + 1;
        h.v.v2 = h.v.v2 + 1;
        h.v.v3 = h.v.v3 + 1;
        h.v.v4 = h.v.v4 + 1;
        h.v.v5 = h.v.v5 + 1;
        h.v.v6 = h.v.v6 + 1;
        h.v.v7 = h.v.v7 + 1;
        h.v.v8 = h.v.v8 + 1;
        h.v.v9 = h.v.v9 + 1;
        h.v.v10 = h.v.v10 + 1;
        h.v.v11 = h.v.v11 + 1;
        h.v.v3 = h.v.v4; h.v.v0 = h.v.v11; h.v.v11 = 5;
        h.v.v0 = h.v.v0 + h.v.v5;
        h.v.v1 = h.v.v1 + h.v.v5;
        h.v.v2 = h.v.v2 + h.v.v5;
        h.v.v3 = h.v.v3 + h.v.v5;
        h.v.v4 = h.v.v4 + h.v.v5;
        h.v.v5 = h.v.v5 + h.v.v5;
        h.v.v6 = h.v.v6 + h.v.v5;
        h.v.v7 = h.v.v7 + h.v.v5;
        h.v.v8 = h.v.v8 + h.v.v5;
        h.v.v9 = h.v.v9 + h.v.v5;
        h.v.v10 = h.v.v10 + h.v.v5;
        h.v.v11 = h.v.v11 + h.v.v5;
    }
    action neighbours() {
        h.w = h.v;
        h.w.setValid();
        h.w.v0 = h.w.v0 << 1;
        h.w.v1 = h.w.v1 << 1;
        h.w.v2 = h.w.v2 << 1;
        h.w.v3 = h.w.v3 << 1;
        h.w.v4 = h.w.v4 << 1;
        h.w.v5 = h.w.v5 << 1;
        h.w.v6 = h.w.v6 << 1;
        h.w.v7 = h.w.v7 << 1;
        h.w.v8 = h.w.v8 << 1;
        h.w.v9 = h.w.v9 << 1;
        h.w.v10 = h.w.v10 << 1;
        h.w.v11 = h.w.v11 << 1;
    }
    apply {
        s.egress_spec = 1;
        m.index = (bit<32>)h.op.index;
        if (h.op.op == 0) { sum(); } else if (h.op.op == 1) { shared(); }
        else if (h.op.op == 2) { carried(); } else if (h.op.op == 3) { reversed(); }
        else if (h.op.op == 4) { pairs(); } else if (h.op.op == 5) { pipeline(); }
        else if (h.op.op == 6) { small(); } else if (h.op.op == 7) { longs(); }
        else if (h.op.op == 8) { choose(); } else if (h.op.op == 9) { broken(); }
        else if (h.op.op == 10) { neighbours(); } else if (h.op.op == 11) { s.mcast_grp = 1; }
        if (h.op.op == 14) {
        if (h.v.v0 > 0x80000000) { r0.write(m.index, h.v.v0); } else { r0.read(h.v.v0, m.index); }
        if (h.v.v1 > 0x80000000) { r1.write(m.index, h.v.v1); } else { r1.read(h.v.v1, m.index); }
        if (h.v.v2 > 0x80000000) { r2.write(m.index, h.v.v2); } else { r2.read(h.v.v2, m.index); }
        if (h.v.v3 > 0x80000000) { r3.write(m.index, h.v.v3); } else { r3.read(h.v.v3, m.index); }
        if (h.v.v4 > 0x80000000) { r4.write(m.index, h.v.v4); } else { r4.read(h.v.v4, m.index); }
        if (h.v.v5 > 0x80000000) { r5.write(m.index, h.v.v5); } else { r5.read(h.v.v5, m.index); }
        if (h.v.v6 > 0x80000000) { r6.write(m.index, h.v.v6); } else { r6.read(h.v.v6, m.index); }
        if (h.v.v7 > 0x80000000) { r7.write(m.index, h.v.v7); } else { r7.read(h.v.v7, m.index); }
        if (h.v.v8 > 0x80000000) { r8.write(m.index, h.v.v8); } else { r8.read(h.v.v8, m.index); }
        if (h.v.v9 > 0x80000000) { r9.write(m.index, h.v.v9); } else { r9.read(h.v.v9, m.index); }
        if (h.v.v10 > 0x80000000) { r10.write(m.index, h.v.v10); } else { r10.read(h.v.v10, m.index); }
        if (h.v.v11 > 0x80000000) { r11.write(m.index, h.v.v11); } else { r11.read(h.v.v11, m.index); }
        }
        if (h.op.op == 15) { half(); }
        if (h.op.op == 12) { h.v.setInvalid(); }
        h.op.seed = (bit<16>)m.total;
        if (h.op.op == 13) { h.v.v7 = m.total + (bit<32>)h.op.index; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action bump() {
        h.v.v0 = h.v.v0 + 1;
        h.v.v1 = h.v.v1 + 1;
        h.v.v2 = h.v.v2 + 1;
        h.v.v3 = h.v.v3 + 1;
        h.v.v4 = h.v.v4 + 1;
        h.v.v5 = h.v.v5 + 1;
        h.v.v6 = h.v.v6 + 1;
        h.v.v7 = h.v.v7 + 1;
        h.v.v8 = h.v.v8 + 1;
        h.v.v9 = h.v.v9 + 1;
        h.v.v10 = h.v.v10 + 1;
        h.v.v11 = h.v.v11 + 1;
    }
    apply { if (s.egress_rid > 0) { bump(); } }
}
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.half); p.emit(h.op); p.emit(h.v); p.emit(h.p); p.emit(h.b); p.emit(h.q); p.emit(h.w); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
