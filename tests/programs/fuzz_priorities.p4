// Ternary, range and optional keys whose entries overlap; entries of the program with priorities.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<16> a; bit<8> b; bit<12> c; bit<4> d; int<8> e; bit<72> f; }
header marks_t { bit<16> ternaries; bit<16> ranges; bit<16> optionals; bit<16> fixed; bit<16> mixed; }
struct headers_t { base_t base; marks_t marks; }
struct metadata_t { bit<16> mark; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action set(bit<16> value) { m.mark = value; }
    action add(bit<16> value) { m.mark = m.mark + value; }
    action clear() { m.mark = 0; }
    table ternaries {
        key = { h.base.a: ternary; h.base.b: exact; }
        actions = { set; add; clear; }
        default_action = clear();
        size = 64;
    }
    table ranges {
        key = { h.base.c: range; h.base.d: range; h.base.a: ternary; }
        actions = { set; add; clear; }
        size = 64;
    }
    table optionals {
        key = { h.base.b: optional; h.base.d: optional; h.base.isValid(): exact; }
        actions = { set; add; NoAction; }
        default_action = set(0x77);
        size = 64;
    }
    table mixed {
        key = { h.base.f: ternary; h.base.a: lpm; h.base.e: exact; }
        actions = { set; add; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table fixed {
        key = { h.base.a: ternary; h.base.c: range; }
        actions = { set; add; clear; }
        entries = {
            priority = 10: (0x1200 &&& 0xff00, 0..0x7ff): set(1);
            priority = 5: (0x1234 &&& 0xfff0, 0x100..0x2ff): set(2);
            priority = 20: (_, 0x200): add(0x100);
            priority = 20: (0xff, _): add(3);
        }
        default_action = clear();
    }
    apply {
        if (h.base.isValid()) {
            h.marks.setValid();
            ternaries.apply();
            h.marks.ternaries = m.mark;
            ranges.apply();
            h.marks.ranges = m.mark;
            optionals.apply();
            h.marks.optionals = m.mark;
            mixed.apply();
            h.marks.mixed = m.mark;
            fixed.apply();
            h.marks.fixed = m.mark;
            s.egress_spec = 1;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.marks); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
