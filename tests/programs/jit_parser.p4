// Parser: lookahead, advance, verify, masks and ranges in select, a loop, states that meet again.
#include <core.p4>
#include <v1model.p4>

error { BadVersion, BadLength }

header base_t { bit<4> version; bit<4> kind; bit<8> length; bit<16> tag; }
header small_t { bit<8> value; }
header odd_t { bit<3> a; bit<19> b; bit<33> c; bit<1> d; }
header wide_t { bit<64> a; bit<5> b; bit<59> c; bit<24> d; bit<40> e; }
header option_t { bit<8> code; bit<8> value; }

struct headers_t { base_t base; small_t small; odd_t odd; wide_t wide; option_t option; }
struct metadata_t { bit<16> ahead; bit<8> count; bit<11> bits; bit<16> error_code; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        m.ahead = p.lookahead<bit<16>>();
        p.extract(h.base);
        verify(h.base.version == 4 || h.base.version == 6, error.BadVersion);
        transition select(h.base.kind, h.base.tag) {
            (0, 0x8000 &&& 0x8000): take_small;
            (0, _): take_odd;
            (1, 5 .. 9): take_wide;
            (1, _): skip;
            (2, _): options;
            (3, 0x00ff &&& 0x00ff): take_odd;
            (4, _): skip_by_field;
            (5, _): accept;
            default: peek;
        }
    }
    state take_small { p.extract(h.small); transition select(h.small.value) { 0: take_odd; 1: take_wide; default: accept; } }
    state take_odd { p.extract(h.odd); transition select(h.odd.b, h.odd.d) { (7, 1): take_wide; default: accept; } }
    state take_wide { p.extract(h.wide); transition accept; }
    state skip { p.advance(24); transition take_odd; }
    state skip_by_field { p.advance((bit<32>)h.base.length); transition take_small; }
    state options {
        p.extract(h.option);
        m.count = m.count + 1;
        transition select(h.option.code) { 0: accept; 1: options; 2: take_small; default: options; }
    }
    state peek {
        m.bits = p.lookahead<bit<11>>();
        transition select(p.lookahead<bit<3>>()) { 1: take_odd; 2: take_wide; 5: take_small; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets_and_bytes) errors;
    apply {
        s.egress_spec = 1;
        h.base.setValid();
        h.base.tag = m.ahead;
        if (s.parser_error == error.NoError) { h.base.length = m.count; }
        else if (s.parser_error == error.PacketTooShort) { h.base.length = 0xe1; errors.count(1); }
        else if (s.parser_error == error.BadVersion) { h.base.length = 0xe2; errors.count(2); }
        else { h.base.length = 0xe3; errors.count(3); }
        if (h.odd.isValid()) { h.odd.a = h.odd.a + 1; h.odd.c = h.odd.c ^ 0x155555555; }
        if (h.wide.isValid()) { h.wide.c = h.wide.c - 1; h.wide.e = h.wide.a[39:0]; h.wide.b = h.wide.b + 3; }
        if (m.bits[3:3] == 1) { s.egress_spec = 3; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.wide); p.emit(h.base); p.emit(h.small); p.emit(h.odd); p.emit(h.option); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
