// Actions that a test gives other bodies to: operations on whole headers, unions and stacks.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> index; bit<8> a; bit<8> b; }
header item_t { bit<8> x; }
header long_t { bit<8> x; bit<16> y; }
header_union either_t { item_t s; long_t l; }
struct headers_t { base_t base; item_t i; item_t j; item_t[2] few; item_t[2] more; either_t one; either_t two; either_t[2] many; either_t[2] others; }
struct metadata_t {}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition next; }
    state next { // a byte that does not stay says what comes
        transition select(p.lookahead<bit<8>>()) { 1: i; 2: j; 3: few; 4: more; 5: one_s; 6: one_l; 7: two_s; 8: two_l; 9: many_s; 10: many_l; 11: others_s; 12: others_l; default: accept; }
    }
    state i { p.advance(8); p.extract(h.i); transition next; }
    state j { p.advance(8); p.extract(h.j); transition next; }
    state few { p.advance(8); p.extract(h.few.next); transition next; }
    state more { p.advance(8); p.extract(h.more.next); transition next; }
    state one_s { p.advance(8); p.extract(h.one.s); transition next; }
    state one_l { p.advance(8); p.extract(h.one.l); transition next; }
    state two_s { p.advance(8); p.extract(h.two.s); transition next; }
    state two_l { p.advance(8); p.extract(h.two.l); transition next; }
    state many_s { p.advance(8); p.extract(h.many.next.s); transition next; }
    state many_l { p.advance(8); p.extract(h.many.next.l); transition next; }
    state others_s { p.advance(8); p.extract(h.others.next.s); transition next; }
    state others_l { p.advance(8); p.extract(h.others.next.l); transition next; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action op0() { h.base.a = 0; } action op1() { h.base.a = 1; } action op2() { h.base.a = 2; } action op3() { h.base.a = 3; }
    action op4() { h.base.a = 4; } action op5() { h.base.a = 5; } action op6() { h.base.a = 6; } action op7() { h.base.a = 7; }
    action op8() { h.base.a = 8; } action op9() { h.base.a = 9; } action op10() { h.base.a = 10; }
    action computed() { // simple_switch keeps the integers of these fields up to date only where a program computes with them
        h.one.s.x = h.one.s.x + 1; h.one.l.x = h.one.l.x + 1; h.one.l.y = h.one.l.y + 1;
        h.two.s.x = h.two.s.x + 1; h.two.l.x = h.two.l.x + 1; h.two.l.y = h.two.l.y + 1;
    }
    table t {
        key = { h.base.op: exact; }
        actions = { op0; op1; op2; op3; op4; op5; op6; op7; op8; op9; op10; computed; NoAction; }
        const entries = { 0: op0(); 1: op1(); 2: op2(); 3: op3(); 4: op4(); 5: op5(); 6: op6(); 7: op7(); 8: op8(); 9: op9(); 10: op10(); 255: computed(); }
    }
    apply { s.egress_spec = 2; t.apply(); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
