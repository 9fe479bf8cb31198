// Stacks and unions where simple_switch does what one might not expect.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> seen; bit<16> length; }
header item_t { bit<7> x; bit<1> last; }
header short_t { bit<8> kind; }
header long_t { bit<8> kind; bit<16> y; }
header_union either_t { short_t s; long_t l; }
struct headers_t { base_t base; item_t[3] items; either_t one; either_t two; either_t[3] many; }
struct metadata_t { bit<8> seen; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition select(h.base.op) { 0: empty; 1 .. 15: items; 16 .. 31: both; default: many; } }
    state empty { m.seen = h.items.lastIndex < 3 ? 8w1 : 8w2; verify(h.items.lastIndex < 3, error.NoMatch); transition accept; }
    state items { p.extract(h.items.next); transition select(h.items.last.last) { 0: items; 1: accept; } }
    state both { p.extract(h.one.s); p.extract(h.one.l); transition select(h.base.op) { 16: accept; default: two; } }
    state two { p.extract(h.two.s); transition accept; }
    state many { transition select(p.lookahead<bit<2>>()) { 0: accept; 1: short; default: long; } }
    state short { p.extract(h.many.next.s); transition many; }
    state long { p.extract(h.many.next.l); transition many; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        h.base.seen = m.seen;
        if (s.parser_error == error.NoMatch) { h.base.seen = h.base.seen + 0x10; }
        if (s.parser_error == error.StackOutOfBounds) { h.base.seen = 0xfd; }
        if (h.base.op == 1) { h.items.push_front(1); }
        else if (h.base.op == 2) { h.items.push_front(2); h.items[0].setValid(); }
        else if (h.base.op == 3) { h.items.pop_front(1); }
        else if (h.base.op == 4) { h.items.pop_front(2); h.items.push_front(1); }
        else if (h.base.op == 5) { if (h.items[1] == h.items[2]) { h.base.seen = 1; } else { h.base.seen = 2; } }
        else if (h.base.op == 6) { h.items[0] = h.items[2]; }
        else if (h.base.op == 17) { h.two.l.setValid(); h.two.l.y = 0xabcd; }
        else if (h.base.op == 18) { h.two = h.one; }
        else if (h.base.op == 19) { h.one.s.setInvalid(); h.two.s.setInvalid(); }
        else if (h.base.op == 20) { h.one.l.setValid(); h.one.s.setValid(); h.one.s.kind = 7; }
        else if (h.base.op == 21) { if (h.one == h.two) { h.base.seen = 1; } else { h.base.seen = 2; } }
        else if (h.base.op == 22) { h.two.s.setInvalid(); h.one.l.setInvalid(); if (h.one == h.two) { h.base.seen = 1; } else { h.base.seen = 2; } }
        else if (h.base.op == 32) { h.many.push_front(1); }
        else if (h.base.op == 33) { h.many.pop_front(1); }
        else if (h.base.op == 34) { h.many.push_front(2); h.many[0].s.setValid(); h.many[0].s.kind = 0x3f; }
        else if (h.base.op == 35) { h.many.pop_front(3); }
        else if (h.base.op == 36) { h.many[0] = h.many[1]; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { h.base.length = (bit<16>)s.packet_length; } }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
