// Parser errors of all kinds, verify, lookahead, advance, value sets, masks and several keys.
#include <core.p4>
#include <v1model.p4>

error { OddKind, TooLarge }

header head_t { bit<8> kind; bit<4> high; bit<4> low; bit<1> flag; bit<9> nine; bit<6> pad; bit<16> word; }
header item_t { bit<8> kind; bit<24> value; }
header long_t { bit<64> a; bit<64> b; }
header report_t { bit<8> error_code; bit<16> trace; bit<16> peek; }
struct headers_t { head_t head; item_t[3] items; long_t long; report_t report; }
struct metadata_t { bit<16> trace; bit<16> peek; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    // Widths for which simple_switch_CLI encodes the values as simple_switch compares them.
    value_set<bit<9>>(4) nines;
    value_set<tuple<bit<1>, bit<16>>>(4) pairs;
    state start {
        p.extract(h.head);
        m.trace = 1;
        transition select(h.head.kind) {
            0: items;
            1: looking;
            2: skipping;
            3: verifying;
            4: several;
            5: valued;
            0x80 &&& 0xf0: long;
            default: accept;
        }
    }
    state items {
        p.extract(h.items.next);
        m.trace = m.trace << 1;
        transition select(h.items.last.kind) { 0: items; 1: long; default: accept; }
    }
    state looking {
        m.peek = p.lookahead<bit<16>>();
        transition select(p.lookahead<bit<8>>()) { 1: items; 2: skipping; default: long; }
    }
    state skipping {
        p.advance((bit<32>)h.head.low << 2);
        m.trace = m.trace + 100;
        transition select(h.head.high) { 0: items; default: accept; }
    }
    state verifying {
        verify(h.head.high != 3, error.OddKind);
        m.trace = m.trace + 1000;
        verify(h.head.word < 0x8000, error.TooLarge);
        transition items;
    }
    state several {
        transition select(h.head.high, h.head.low, h.head.word) {
            (1, _, _): items;
            (2 &&& 6, 3, 0x1000..0x1fff): long;
            (_, 4..9, 7): skipping;
        }
    }
    state valued {
        transition select(h.head.nine) { 3: long; nines: known; 0x100 &&& 0x180: items; default: accept; }
    }
    state known {
        m.trace = m.trace + 0x4000;
        transition select(h.head.flag, h.head.word) { pairs: long; default: accept; }
    }
    state long { p.extract(h.long); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(16, CounterType.packets) errors;
    apply {
        h.report.setValid();
        h.report.trace = m.trace;
        h.report.peek = m.peek;
        s.egress_spec = 1;
        if (s.parser_error == error.NoError) { h.report.error_code = 0; errors.count(0); }
        else if (s.parser_error == error.PacketTooShort) { h.report.error_code = 1; errors.count(1); }
        else if (s.parser_error == error.NoMatch) { h.report.error_code = 2; errors.count(2); }
        else if (s.parser_error == error.StackOutOfBounds) { h.report.error_code = 3; errors.count(3); }
        else if (s.parser_error == error.OddKind) { h.report.error_code = 4; errors.count(4); }
        else if (s.parser_error == error.TooLarge) { h.report.error_code = 5; errors.count(5); }
        else if (s.parser_error == error.ParserInvalidArgument) { h.report.error_code = 6; errors.count(6); }
        else { h.report.error_code = 99; errors.count(7); }
        if (h.long.isValid()) { h.long.a = h.long.a ^ h.long.b; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.report); p.emit(h.head); p.emit(h.items); p.emit(h.long); }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
