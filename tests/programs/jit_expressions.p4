// Arithmetic of every kind on fields of many widths, signed and unsigned.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8>  op;
    bit<3>  a3;
    bit<13> b13;
    bit<64> a64;
    bit<64> b64;
    bit<32> a32;
    bit<32> b32;
    int<8>  i8;
    int<16> i16;
    int<32> i32;
    int<64> i64;
    bit<48> a48;
    bit<7>  a7;
    bit<1>  f1;
    bit<8>  shift;
}

header results_t {
    bit<64> r64;
    bit<32> r32;
    bit<16> r16;
    int<8>  s8;
    int<32> s32;
    bit<5>  r5;
    bit<3>  flags;
    int<64> s64;
}

struct headers_t { operands_t x; results_t y; }
struct metadata_t { bit<32> scratch; int<16> signed_scratch; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.x); p.extract(h.y); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action add() {
        h.y.r64 = h.x.a64 + h.x.b64; h.y.r32 = h.x.a32 + h.x.b32; h.y.r5 = (bit<5>)(h.x.a3 ++ h.x.f1);
        h.y.s8 = h.x.i8 + 100; h.y.s32 = h.x.i32 + 5; h.y.s64 = h.x.i64 + h.x.i64;
        h.y.r16 = (bit<16>)h.x.b13 + 0x1fff;
    }
    action subtract() {
        h.y.r64 = h.x.a64 - h.x.b64; h.y.r32 = h.x.a32 - h.x.b32; h.y.s8 = h.x.i8 - 100;
        h.y.s32 = -h.x.i32; h.y.s64 = h.x.i64 - 1; h.y.r16 = (bit<16>)h.x.a3 - (bit<16>)h.x.b13;
    }
    action multiply() {
        h.y.r64 = h.x.a64 * h.x.b64; h.y.r32 = h.x.a32 * h.x.b32; h.y.s8 = h.x.i8 * h.x.i8;
        h.y.s32 = h.x.i32 * (int<32>)h.x.i16; h.y.r16 = (bit<16>)h.x.a7 * (bit<16>)h.x.a3;
    }
    action saturate() {
        h.y.r32 = h.x.a32 |+| h.x.b32; h.y.r16 = (bit<16>)h.x.b13 |-| (bit<16>)h.x.a7;
        h.y.s8 = h.x.i8 |+| 100; h.y.s32 = h.x.i32 |-| (int<32>)h.x.i16; h.y.r5 = h.y.r5 |+| 20;
    }
    action shift() {
        h.y.r64 = h.x.a64 << h.x.shift; h.y.r32 = h.x.a32 >> h.x.shift;
        h.y.s32 = h.x.i32 >> h.x.shift; h.y.r16 = (bit<16>)(h.x.a48 >> 33);
        h.y.s8 = h.x.i8 << 3; h.y.s64 = h.x.i64 >> 7; h.y.r5 = (bit<5>)(h.x.a64 >> 60);
    }
    action bits() {
        h.y.r64 = ~h.x.a64 ^ (h.x.b64 & 0xff00ff00ff00ff00); h.y.r32 = h.x.a32 | ~h.x.b32;
        h.y.r16 = h.x.a64[47:32]; h.y.r5 = h.x.a48[46:42]; h.y.r64[15:8] = h.x.op;
        h.y.s32 = h.x.i32 & 0x0ff0; h.y.flags = h.x.a3 ^ 5;
    }
    action compare() {
        h.y.r32 = (h.x.a32 < h.x.b32 ? 32w1 : 0) | (h.x.a64 < h.x.b64 ? 32w2 : 0)
            | (h.x.i32 < (int<32>)h.x.i16 ? 32w4 : 0) | (h.x.i8 >= 0 ? 32w8 : 0)
            | (h.x.a64 >= 0x8000000000000000 ? 32w16 : 0) | (h.x.i64 < 0 ? 32w32 : 0)
            | (h.x.a48 == (bit<48>)h.x.a64 ? 32w64 : 0) | (h.x.a3 != 3 ? 32w128 : 0)
            | (h.x.b64 > h.x.a64 && h.x.f1 == 1 ? 32w256 : 0) | (h.x.b64 <= 7 || h.x.a7 > 9 ? 32w512 : 0);
    }
    action cast() {
        h.y.r64 = (bit<64>)(bit<32>)h.x.i32; h.y.s32 = (int<32>)h.x.i8; h.y.s64 = (int<64>)h.x.i16;
        h.y.r16 = (bit<16>)(h.x.a64 + 1); h.y.s8 = (int<8>)(h.x.a7 ++ 1w1);
        h.y.r32 = (bit<32>)(int<32>)h.x.i16; h.y.r5 = (bit<5>)h.x.f1;
    }
    action divide() {
        h.y.r32 = h.x.a32 / 8; h.y.r16 = (bit<16>)(h.x.a48 % 1024); h.y.r64 = h.x.a64 / 16;
        h.y.r5 = (bit<5>)(h.x.b13 % 32);
    }
    action jumps() {
        if (h.x.a3 == 1) {
            h.y.r32 = 1;
            if (h.x.f1 == 1) { h.y.r16 = 7; } else { h.y.r16 = 8; h.y.r5 = 3; }
            h.y.r64 = 9;
        } else if (h.x.a3 == 2) {
            m.scratch = h.x.a32; h.y.r32 = m.scratch ^ 0x55;
        } else {
            h.y.s8 = 8s3;
        }
        h.y.flags = 2;
    }
    action unknown() { mark_to_drop(s); }
    table operation {
        key = { h.x.op : exact; }
        actions = { add; subtract; multiply; saturate; shift; bits; compare; cast; divide; jumps; unknown; }
        const default_action = unknown();
        const entries = {
            0: add(); 1: subtract(); 2: multiply(); 3: saturate(); 4: shift(); 5: bits();
            6: compare(); 7: cast(); 8: divide(); 9: jumps();
        }
    }
    apply {
        s.egress_spec = 2;
        m.signed_scratch = h.x.i16;
        operation.apply();
        if (m.signed_scratch < -100 && h.x.f1 == 0) { h.y.flags = 7; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.x); p.emit(h.y); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
