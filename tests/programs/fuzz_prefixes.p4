// Longest prefixes over fields of 13, 32 and 128 bits, alone and beside exact keys; exact keys of
// several fields; tables too small for their entries; actions as control flow.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<32> a; bit<128> b; bit<13> c; bit<3> d; bit<8> e; }
header marks_t { bit<16> short; bit<16> long; bit<16> odd; bit<16> exactly; bit<16> run; }
struct headers_t { base_t base; marks_t marks; }
struct metadata_t { bit<16> mark; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action set(bit<16> value) { m.mark = value; }
    action set_two(bit<8> first, bit<8> second) { m.mark = first ++ second; }
    action stop() { h.marks.run = 0xffff; exit; }
    table short {
        key = { h.base.a: lpm; }
        actions = { set; set_two; }
        default_action = set(1);
        size = 32;
    }
    table long {
        key = { h.base.d: exact; h.base.b: lpm; h.base.e: exact; }
        actions = { set; set_two; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table odd {
        key = { h.base.c: lpm; }
        actions = { set; set_two; }
        default_action = set_two(2, 3);
        size = 6;
    }
    table exactly {
        key = { h.base.e: exact; h.base.c: exact; h.base.b[64:1]: exact; }
        actions = { set; NoAction; }
        default_action = NoAction();
        size = 6;
    }
    table run {
        key = { h.base.d: exact; }
        actions = { set; set_two; stop; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (h.base.isValid()) {
            h.marks.setValid();
            h.marks = { 0, 0, 0, 0, 0 };
            s.egress_spec = 1;
            short.apply();
            h.marks.short = m.mark;
            if (long.apply().hit) { h.marks.long = m.mark; }
            if (odd.apply().miss) { h.base.e = h.base.e + 1; }
            h.marks.odd = m.mark;
            exactly.apply();
            h.marks.exactly = m.mark;
            switch (run.apply().action_run) {
                set: { h.marks.run = m.mark; }
                set_two: { h.marks.run = ~m.mark; }
                default: { h.marks.run = 7; }
            }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.marks); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
