// Action profiles and selectors: members, groups, hashes of several kinds.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> a; bit<16> b; bit<32> c; bit<8> d; }
header marks_t { bit<16> profile; bit<16> selector; bit<16> other; }
struct headers_t { base_t base; marks_t marks; }
struct metadata_t { bit<16> mark; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    // One for each table: what simple_switch does after a member of a profile that tables share is
    // what its last table does.
    action_profile(16) plain;
    action_profile(12) plain_too;
    action_selector(HashAlgorithm.crc16, 16, 14) spread;
    action_selector(HashAlgorithm.crc32, 16, 16) spread_too;

    action set(bit<16> value) { m.mark = value; }
    action port(bit<9> number) { s.egress_spec = number; m.mark = (bit<16>)number; }
    action clear() { m.mark = 0xaaaa; }
    table first {
        key = { h.base.a: exact; }
        actions = { set; port; clear; }
        implementation = plain;
        size = 16;
    }
    table second {
        key = { h.base.b: ternary; }
        actions = { set; port; clear; }
        implementation = plain_too;
        size = 16;
    }
    table chosen {
        key = { h.base.d: exact; h.base.c: selector; h.base.b: selector; }
        actions = { set; port; clear; }
        implementation = spread;
        size = 16;
    }
    table chosen_too {
        key = { h.base.c: lpm; h.base.a: selector; h.base.d: selector; }
        actions = { set; clear; }
        implementation = spread_too;
        size = 16;
    }
    apply {
        if (h.base.isValid()) {
            h.marks.setValid();
            s.egress_spec = 1;
            first.apply();
            h.marks.profile = m.mark;
            second.apply();
            h.marks.profile = h.marks.profile + m.mark;
            chosen.apply();
            h.marks.selector = m.mark;
            chosen_too.apply();
            h.marks.other = m.mark;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.marks); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
