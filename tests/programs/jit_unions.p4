// Unions: members made valid by extraction, setValid and copies; stacks of unions; value sets of several parts.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> index; bit<16> a; bit<32> b; bit<48> c; }
header short_t { bit<16> x; }
header long_t { bit<32> x; int<8> y; }
header kind_t { bit<8> kind; }
header_union either_t { short_t s; long_t l; kind_t k; }
struct headers_t { base_t base; either_t one; either_t two; either_t[3] many; }
struct metadata_t { bit<8> seen; bit<32> x; }
struct wide_t { bit<16> a; bit<32> b; bit<48> c; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) some;
    value_set<wide_t>(4) far;
    value_set<tuple<bit<8>, bit<16>>>(4) masked;
    state start {
        p.extract(h.base);
        transition select(h.base.op) { some: one; 1: two; 2: many; 3: both; default: by_parts; }
    }
    state by_parts { transition select(h.base.a, h.base.b, h.base.c) { far: one; default: by_pair; } }
    state by_pair { transition select(h.base.index, h.base.a) { masked: two; (1, _): many; default: accept; } }
    state one { p.extract(h.one.s); m.seen = 1; transition select(h.one.s.x) { 0 &&& 1: accept; default: over; } }
    state over { p.extract(h.one.l); transition select(p.lookahead<bit<8>>()) { some: two; default: accept; } }
    state two { p.extract(h.two.l); transition accept; }
    state both { p.extract(h.two.k); h.one.k.setValid(); h.one.k.kind = h.two.k.kind; h.two.s.setValid(); transition many; }
    state many {
        transition select(p.lookahead<bit<2>>()) { 0: accept; 1: many_short; 2: many_long; default: many_kind; }
    }
    state many_short { p.extract(h.many.next.s); transition many; }
    state many_long { p.extract(h.many.next.l); transition many; }
    state many_kind { p.extract(h.many.next.k); transition many; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action grow() { h.many[1].s.setValid(); h.many[1].s.x = 0x0102; }
    action shrink() { h.many[1].l.setInvalid(); }
    action write() { h.many[1].l.x = h.many[1].l.x + 1; h.one.l.y = h.many[1].l.y; }
    table t { key = { h.one.isValid(): exact; h.two.l.isValid(): exact; h.base.index: ternary; h.many[1].l.isValid(): exact; } actions = { grow; shrink; write; NoAction; } }
    apply {
        s.egress_spec = 1;
        if (h.base.op == 0) { h.one.l.setValid(); h.one.l.x = 0x01020304; }
        else if (h.base.op == 1) { h.one.k.setInvalid(); h.one.k.setValid(); }
        else if (h.base.op == 2) { h.one = h.two; }
        else if (h.base.op == 3) { h.many.push_front(1); }
        else if (h.base.op == 4) { h.many.pop_front(2); h.many[0] = h.one; }
        else if (h.base.op == 5) { if (h.one == h.two) { h.base.a = 1; } else { h.base.a = 2; } }
        else if (h.base.op == 6) { h.two = h.many[1]; }
        else if (h.base.op == 7) { h.many[2] = h.two; }
        else if (h.base.op == 8) { h.two.s = h.one.s; h.two.l = h.one.l; }
        else if (h.base.op == 9) { h.many.push_front(4); h.many[2].k.setValid(); }
        else if (h.base.op == 10) { if (h.two.isValid()) { h.base.a = 3; } }
        else if (h.base.op == 11) { if (h.many[1] != h.one) { h.base.a = 4; } if (h.many[0].l == h.many[1].l) { h.base.a = 5; } }
        t.apply();
        if (s.parser_error == error.StackOutOfBounds) { h.base.c = 0xfd; }
        else if (s.parser_error != error.NoError) { h.base.c = 0xff; }
        h.base.b[7:0] = m.seen;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { h.base.index = (bit<8>)s.packet_length; } }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
