// Stacks: next, last, run-time index on both sides, push and pop, copies, comparisons, headers in parsers.
#include <core.p4>
#include <v1model.p4>

error { TooDeep }
header base_t { bit<8> op; bit<8> index; bit<8> other; bit<8> amount; bit<32> wide; }
header item_t { bit<7> value; bit<1> last; int<16> n; bit<64> big; }
header mark_t { bit<16> x; int<8> y; }
struct headers_t { base_t base; item_t[3] items; item_t[3] spare; mark_t[2] marks; mark_t mark; }
struct metadata_t { item_t kept; bit<32> i; bit<16> sum; bit<8> found; }

register<bit<32>>(16) cells;

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.op) { 0xf0 &&& 0xf0: marks; 0xe0 &&& 0xf0: twice; default: items; }
    }
    state items {
        p.extract(h.items.next);
        m.sum = m.sum + (bit<16>)h.items.last.value;
        transition select(h.items.last.last, h.items.last.n) { (0, 0x7fff): accept; (0, 0x1fff): spare; (0, _): items; default: accept; }
    }
    state spare {
        p.extract(h.spare.next);
        m.i = h.items.lastIndex + (h.spare.lastIndex << 8);
        verify(h.spare.lastIndex < 2, error.TooDeep);
        transition select(h.spare.last.last) { 0: items; 1: accept; }
    }
    state marks {
        h.marks[0].setValid();
        h.marks[0].x = 7;
        p.extract(h.mark);
        h.marks[1] = h.mark;
        transition select(h.mark.y) { 0x7f: again; default: accept; }
    }
    state again { h.mark.setInvalid(); transition items; }
    state twice { p.extract(h.marks[0]); p.extract(h.marks.next); p.extract(h.marks.next); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    bit<8> i = h.base.index & 3;
    bit<8> j = h.base.other & 3;
    action move() { h.items[i].n = h.items[j].n + 1; h.items[j].value = h.items[i].value |-| 3; h.items[i].big = h.items[j].big << 3; }
    action whole() { h.items[1] = h.items[2]; h.spare[0] = h.items[1]; m.kept = h.items[1]; h.items[0] = m.kept; }
    action come() { h.items[i].setValid(); h.items[i].big = 0x1122334455667788; h.spare[j].setInvalid(); }
    action read() { cells.read(h.base.wide, (bit<32>)h.items[j].value); cells.write((bit<32>)i, (bit<32>)(bit<16>)h.items[i].n); }
    action where() { h.items[h.items[j].value[1:0]].n = (int<16>)(bit<16>)h.base.index; }
    action checked() { assume(h.items[j].value != 9); h.base.wide = 1; assert(h.base.amount < 200); h.base.wide = 2; }
    action leave() { assert(h.base.amount < 250); h.items[i].value = h.base.op > 4 ? h.items[j].value : 7w3; h.base.wide = 3; exit; }
    action drawn() { hash(h.items[i].value, HashAlgorithm.crc16, 7w1, { h.items[j].n, h.base.wide }, 7w100); }
    table t { key = { h.items[0].value: exact; h.items[1].isValid(): exact; } actions = { move; whole; come; read; where; checked; leave; drawn; NoAction; } }
    apply {
        s.egress_spec = 1;
        if (h.base.op == 1) { h.items.push_front(1); h.items[0].setValid(); h.items[0].value = 5; }
        else if (h.base.op == 2) { h.items.push_front(2); }
        else if (h.base.op == 3) { h.items.pop_front(1); h.items[2].big = h.items[2].big + 1; }
        else if (h.base.op == 4) { h.items.pop_front(2); h.spare.pop_front(3); h.spare[1].setValid(); }
        else if (h.base.op == 5) { h.spare = h.items; h.items.push_front(2); }
        else if (h.base.op == 6 && h.items[1] == h.items[2]) { h.base.amount = 1; }
        else if (h.base.op == 7 && h.items[0] != h.spare[1]) { h.base.amount = 2; }
        else if (h.base.op == 8 && h.items[i].value > 3) { h.base.amount = h.base.amount + (bit<8>)h.items[i].value; }
        t.apply();
        m.found = h.items[j].value[0:0] == 1 ? 8w1 : (bit<8>)m.i[15:8];
        if (s.parser_error == error.StackOutOfBounds) { h.base.amount = 0xfd; }
        else if (s.parser_error != error.NoError) { h.base.amount = 0xff; }
        if (h.base.index > 200) { s.mcast_grp = (bit<16>)h.base.other; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (s.egress_rid == 1) { h.items.push_front(1); }
        if (s.egress_rid == 2) { h.items[m.i[2:0]].value = 7; h.items.pop_front(1); assert(h.base.amount != 77); }
        h.base.other = h.base.other ^ (bit<8>)s.packet_length ^ m.found;
        h.base.wide = h.base.wide ^ (bit<32>)m.sum;
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
