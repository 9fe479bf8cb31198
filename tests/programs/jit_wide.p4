// Fields, keys, arguments and registers of more than 64 bits, and arithmetic that needs more.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8>   op;
    bit<3>   before;
    bit<128> a;
    bit<128> b;
    bit<5>   between;
    bit<65>  c;
    int<100> s;
    bit<3>   after;
    bit<200> d;
    bit<8>   shift;
    bit<64>  x;
    bit<64>  y;
    int<64>  i;
    int<64>  j;
    int<128> t;
}

header long_t {
    bit<1024> data;
    bit<8>    shift;
}

header results_t {
    bit<128> a;
    bit<65>  c;
    bit<7>   small;
    int<100> s;
    bit<4>   flags;
    bit<200> d;
    bit<64>  x;
    int<64>  i;
    int<128> t;
    bit<16>  sum;
    bit<32>  hashed;
}

struct headers_t { operands_t x; results_t r; long_t l; }
struct metadata_t {
    bit<96> ahead; bit<128> wide; int<100> signed_wide; int<64> signed_word; bit<300> widest;
}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        m.ahead = p.lookahead<bit<96>>();
        p.extract(h.x);
        transition select(h.x.a, h.x.c) {
            (0, 0): accept;
            (128w0xffff &&& 128w0xffff000000000000000000000000ffff, 65w1 &&& 65w0x10000000000000001): long;
            default: peek;
        }
    }
    state peek {
        transition select(p.lookahead<bit<80>>()) {
            80w0 &&& 80w0xff000000000000000000: accept;
            default: results;
        }
    }
    state results { p.extract(h.r); transition accept; }
    state long { p.extract(h.r); p.extract(h.l); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.r.isValid(), { h.r.a, h.r.c, h.r.small, h.r.d }, h.r.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<128>>(8) wide;
    register<bit<128>>(8) wide_too;
    register<bit<200>>(4) wider;
    register<int<100>>(4) signed_wide;
    register<int<64>>(4) signed_words;
    counter(8, CounterType.packets) counts;

    action add() {
        h.r.a = h.x.a + h.x.b; h.r.c = h.x.c - (bit<65>)h.x.x; h.r.s = h.x.s + 1000;
        h.r.d = h.x.d * (bit<200>)h.x.a; h.r.x = h.x.x * h.x.y; h.r.t = -h.x.t; h.r.i = h.x.i - h.x.j;
        h.r.small = (bit<7>)((h.x.a + h.x.b) >> 121);
    }
    action saturate() {
        h.r.x = h.x.x |+| h.x.y; h.r.i = h.x.i |+| h.x.j; h.r.a = h.x.a |-| h.x.b;
        h.r.c = h.x.c |+| (bit<65>)h.x.x; h.r.t = h.x.t |-| (int<128>)h.x.i; h.r.s = h.x.s |+| h.x.s;
    }
    action shift() {
        h.r.a = h.x.a << h.x.shift; h.r.d = h.x.d >> h.x.shift; h.r.s = h.x.s >> h.x.shift;
        h.r.t = h.x.t << h.x.shift; h.r.x = h.x.x << h.x.shift; h.r.c = h.x.c >> 60;
        h.r.i = h.x.i >> h.x.shift; h.r.small = (bit<7>)(h.x.d >> h.x.shift);
        h.l.data = h.l.data << h.l.shift;
    }
    action bits() {
        h.r.a = ~h.x.a & h.x.b; h.r.c = h.x.c ^ 65w0x1aaaaaaaaaaaaaaaa; h.r.d = h.x.d | (200w0xff << 190);
        h.r.s = h.x.s & h.x.s - 1; h.r.x = h.x.a[100:37]; h.r.a[71:60] = h.x.between ++ h.x.op[6:0];
    }
    action compare() {
        h.r.flags = (h.x.a < h.x.b ? 4w1 : 0) | (h.x.s < 0 ? 4w2 : 0)
            | (h.x.d == (bit<200>)h.x.a ? 4w4 : 0) | (h.x.c >= 65w0x10000000000000000 ? 4w8 : 0);
        h.r.small = (h.x.t >= (int<128>)h.x.s ? 7w1 : 0) | (h.x.i > h.x.j ? 7w2 : 0)
            | (m.signed_word < h.x.i ? 7w4 : 0) | (h.x.x + h.x.y < h.x.x ? 7w8 : 0)
            | (h.x.a != h.x.b ? 7w16 : 0) | (m.signed_wide <= h.x.s ? 7w32 : 0) | (h.x.d > 7 ? 7w64 : 0);
    }
    action cast() {
        h.r.a = (bit<128>)(int<128>)h.x.i; h.r.t = (int<128>)h.x.s; h.r.s = (int<100>)h.x.t;
        h.r.d = (bit<200>)(int<200>)h.x.t; h.r.x = (bit<64>)h.x.d; h.r.i = (int<64>)h.x.s;
        h.r.c = h.x.x ++ h.x.shift[0:0]; m.widest = h.x.d ++ h.x.c ++ h.x.before ++ h.x.a[127:96];
    }
    action stateful() {
        bit<32> index = (bit<32>)h.x.before;
        bit<128> old;
        wide.read(old, index); wide.write(index, old + h.x.a); h.r.a = old;
        wide_too.read(m.wide, index); wide_too.write(index, m.wide ^ h.x.b);
        bit<200> older;
        wider.read(older, index); wider.write(index, older + h.x.d); h.r.d = older;
        signed_wide.read(m.signed_wide, index); signed_wide.write(index, m.signed_wide - h.x.s);
        h.r.s = m.signed_wide;
        signed_words.read(m.signed_word, index); signed_words.write(index, h.x.i);
        h.r.i = m.signed_word >> 1;
        counts.count((bit<32>)h.x.between);
    }
    action hashes() {
        hash(h.r.hashed, HashAlgorithm.crc32, h.x.d, { h.x.s, h.x.before, h.x.a }, h.x.x);
        hash(h.r.small, HashAlgorithm.crc16, 7w0, { h.x.c, h.x.t, 70w0x155555555555555555 }, 8w100);
    }
    table compute {
        key = { h.x.op: exact; }
        actions = { add; saturate; shift; bits; compare; cast; stateful; hashes; NoAction; }
        const default_action = NoAction();
        const entries = {
            0: add(); 1: saturate(); 2: shift(); 3: bits(); 4: compare(); 5: cast(); 6: stateful(); 7: hashes();
        }
    }
    action set_a(bit<128> value, bit<65> other, bit<9> port) {
        h.r.a = value; h.r.c = other; s.egress_spec = port;
    }
    action set_d(bit<7> small, bit<200> value) { h.r.d = h.r.d + value; h.r.small = small; }
    table exactly { key = { h.x.a: exact; h.x.c: exact; } actions = { set_a; set_d; } default_action = set_d(1, 5); size = 64; }
    table prefixed { key = { h.x.between: exact; h.x.b: lpm; } actions = { set_a; set_d; } default_action = set_d(2, 3); size = 64; }
    table masked { key = { h.x.d: ternary; h.r.c: ternary; h.x.op: ternary; } actions = { set_a; set_d; NoAction; } default_action = NoAction(); size = 64; }
    table ranged { key = { h.x.a: range; h.x.shift: range; h.x.c: range; h.x.before: exact; } actions = { set_a; set_d; NoAction; } default_action = NoAction(); size = 64; }
    apply {
        s.egress_spec = s.ingress_port;
        compute.apply();
        if (exactly.apply().hit) { prefixed.apply(); } else { masked.apply(); ranged.apply(); }
        if (m.widest[299:200] == (bit<100>)m.ahead || m.wide == 0) { h.r.flags = h.r.flags ^ 1; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.r.isValid(), { h.r.a, h.r.c, h.r.small, h.r.d }, h.r.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.x); p.emit(h.r); p.emit(h.l); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
