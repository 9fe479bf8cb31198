// Header unions and stacks of them: one member at a time is valid.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> kind; }
header small_t { bit<8> a; }
header middle_t { bit<16> b; }
header large_t { bit<24> c; bit<8> d; }
header_union some_t { small_t small; middle_t middle; large_t large; }
header kind_t { bit<8> kind; }
struct headers_t { op_t op; some_t one; some_t two; kind_t kinds; some_t[3] many; }
struct metadata_t { bit<8> count; bit<8> kind; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.op);
        transition select(h.op.kind) {
            0: small;
            1: middle;
            2: large;
            3: many;
            default: accept;
        }
    }
    state small { p.extract(h.one.small); transition many; }
    state middle { p.extract(h.one.middle); transition many; }
    state large { p.extract(h.one.large); transition many; }
    state many {
        m.count = m.count + 1;
        // Assigned, so that the end of the packet is an error: a key would be read beyond it.
        m.kind = p.lookahead<bit<8>>();
        transition select(m.kind) {
            1: many_small;
            2: many_middle;
            3: many_large;
            default: accept;
        }
    }
    state many_small { p.extract(h.many.next.small); transition many; }
    state many_middle { p.extract(h.many.next.middle); transition many; }
    state many_large { p.extract(h.many.next.large); transition many; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action make_small() { h.one.small.setValid(); h.one.small = { 0x77 }; }
    action make_large() { h.one.large.setValid(); h.one.large = { 0x112233, 0x44 }; }
    action drop_all() { h.one.small.setInvalid(); h.one.middle.setInvalid(); h.one.large.setInvalid(); }
    action change() { h.one.middle.b = h.one.middle.b + 1; }
    action second() { h.two.middle.setValid(); h.two.middle = { 0xabcd }; }
    apply {
        if (h.op.isValid()) {
            s.egress_spec = 1;
            if (h.op.op & 7 == 0) { make_small(); }
            else if (h.op.op & 7 == 1) { make_large(); }
            else if (h.op.op & 7 == 2) { drop_all(); }
            else if (h.op.op & 7 == 3) { if (h.one.middle.isValid()) { change(); } }
            else if (h.op.op & 7 == 4) { second(); make_small(); }
            else if (h.op.op & 7 == 5) { h.two = h.one; }
            else if (h.op.op & 7 == 6) { h.many[0].small.setValid(); h.many[0].small = { 0x99 }; }
            h.kinds.setValid();
            h.kinds.kind = m.count;
            if (h.one.isValid()) { h.kinds.kind = h.kinds.kind | 0x80; }
            if (h.many[1].large.isValid()) { h.many[1].large.d = 0x55; }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.op); p.emit(h.one); p.emit(h.two); p.emit(h.kinds); p.emit(h.many); }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
