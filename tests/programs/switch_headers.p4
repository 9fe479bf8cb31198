// Stacks with run-time index, push and pop; unions; varbit; copies of headers; wide and signed fields.
#include <core.p4>
#include <v1model.p4>

error { TooDeep }
header base_t { bit<8> op; bit<8> index; bit<8> amount; int<8> s; }
header label_t { bit<7> value; bit<1> last; int<16> n; }
header wide_t { bit<128> a; bit<65> b; bit<7> c; int<72> d; }
header short_t { bit<16> x; }
header long_t { bit<32> x; }
header_union either_t { short_t s; long_t l; }
header var_t { bit<8> length; varbit<64> bytes; bit<8> tail; }
struct headers_t { base_t base; label_t[4] labels; wide_t wide; wide_t other; either_t either; var_t v; var_t w; }
struct metadata_t { bit<8> sum; int<16> n; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.op) { 0 .. 9: label; 10 .. 19: wide; 20 .. 24: union_short; 25 .. 29: union_long; default: variable; }
    }
    state label { p.extract(h.labels.next); transition select(h.labels.last.last) { 0: label; 1: accept; } }
    state wide { p.extract(h.wide); transition accept; }
    state union_short { p.extract(h.either.s); transition accept; }
    state union_long { p.extract(h.either.l); transition accept; }
    state variable {
        bit<8> length = p.lookahead<bit<8>>();
        verify(length < 12, error.TooDeep);
        p.extract(h.v, (bit<32>)length << 3);
        transition accept;
    }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        // Fields of invalid headers are not read: simple_switch leaves earlier packets' values there.
        if (!h.base.isValid()) { exit; }
        bit<8> i = h.base.index & 3;
        int<8> wrapped = h.base.s + 100;
        if (h.base.op == 0) { h.labels.push_front(1); h.labels[0].setValid(); h.labels[0].value = 5; }
        else if (h.base.op == 1) { h.labels.push_front(2); }
        else if (h.base.op == 2) { h.labels.pop_front(1); }
        else if (h.base.op == 3) { h.labels.pop_front(3); }
        else if (h.base.op == 4 && h.labels[0].isValid() && h.labels[1].isValid() && h.labels[2].isValid() && h.labels[3].isValid()) { h.labels[i].value = h.labels[i].value + 3; h.labels[i].n = h.labels[i].n - 0x7000; }
        else if (h.base.op == 5) { h.labels[i].setInvalid(); h.labels[3] = h.labels[0]; }
        else if (h.base.op == 6) { if (h.labels[0] == h.labels[1]) { h.base.amount = 1; } else { h.base.amount = 2; } }
        else if (h.base.op == 7 && h.labels[1].isValid()) { h.labels[0].n = h.labels[0].n |+| h.labels[1].n; h.labels[1].value = h.labels[1].value |-| 9; }
        else if (h.base.op == 8 && h.labels[1].isValid()) { if (h.labels[0].n > h.labels[1].n) { h.base.amount = 1; } h.labels[0].n = h.labels[0].n >> (bit<8>)(h.base.index & 15); }
        else if (h.base.op == 10 && h.wide.isValid()) { h.other = h.wide; h.other.a = ~h.wide.a + 1; h.wide.b = h.wide.b * 3; }
        else if (h.base.op == 11 && h.wide.isValid()) { h.wide.a = h.wide.a << h.base.amount; h.wide.b = h.wide.b >> h.base.amount; }
        else if (h.base.op == 12 && h.wide.isValid()) { h.wide.d = h.wide.d - 1; if (h.wide.d < 0) { h.base.amount = 7; } h.wide.c = h.wide.a[100:94]; }
        else if (h.base.op == 13 && h.wide.isValid()) { h.wide.a[71:8] = h.wide.b[63:0]; h.wide.d = h.wide.d >> h.base.amount; }
        else if (h.base.op == 14) { h.wide.setInvalid(); h.other.setValid(); h.other.c = 1; h.other.d = -5; }
        else if (h.base.op == 20) { h.either.l.setValid(); h.either.l.x = 0x01020304; }
        else if (h.base.op == 25) { h.either.s.setValid(); h.either.s.x = 0x0a0b; }
        else if (h.base.op == 26) { h.either.l.setInvalid(); }
        else if (h.base.op == 30) { h.w = h.v; h.w.tail = 9; }
        else if (h.base.op == 31) { h.v.setInvalid(); }
        if (wrapped < 0) { h.base.s = -wrapped; } else { h.base.s = wrapped |+| 100; }
        m.n = (int<16>)(bit<16>)h.base.index;
        if (s.parser_error == error.TooDeep) { h.base.amount = 0xfd; }
        else if (s.parser_error != error.NoError) { h.base.amount = 0xff; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (h.base.isValid()) { h.base.index = (bit<8>)s.packet_length; } }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.base); p.emit(h.labels); p.emit(h.wide); p.emit(h.other); p.emit(h.either); p.emit(h.v); p.emit(h.w); }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
