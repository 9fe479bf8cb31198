// Parser errors of every kind, value sets, lookahead past the end, advance, and what they leave.
#include <core.p4>
#include <v1model.p4>

error { Unlucky }
header base_t { bit<8> op; bit<8> value; }
header item_t { bit<8> kind; bit<8> value; }
header note_t { bit<16> error_code; bit<16> seen; bit<8> which; }
struct headers_t { base_t base; item_t[3] items; note_t note; }
struct metadata_t { bit<16> seen; bit<8> which; bit<4> four; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) known;
    state start {
        p.extract(h.base);
        m.which = 1;
        transition select(h.base.op) { 0: items; 1: ahead; 2: skip; 3: lucky; 4: by_set; 5: by_pair; 6: by_port; 7: odd; default: accept; }
    }
    state items { p.extract(h.items.next); transition select(h.items.last.kind) { 0: items; 1: accept; default: items; } }
    state ahead { m.seen = p.lookahead<bit<16>>(); transition select(m.seen[3:0], m.seen[15:12]) { (1, 2): items; (3 &&& 3, _): skip; default: accept; } }
    state skip { p.advance((bit<32>)h.base.value); m.which = 2; transition accept; }
    state lucky { verify(h.base.value != 13, error.Unlucky); m.which = 3; transition items; }
    state by_set { transition select(h.base.value) { known: set_hit; default: accept; } }
    state set_hit { m.which = 4; transition accept; }
    state by_pair { m.four = h.base.value[3:0]; transition select(m.four, h.base.value) { (5, 0x15): set_hit; (0xf, 0x0f &&& 0x0f): items; (_, 0x80 .. 0x9f): skip; default: accept; } }
    state by_port { transition select(s.ingress_port) { 1: port_one; 2 .. 5: port_more; } }
    state port_one { m.which = 5; transition accept; }
    state port_more { m.which = 6; transition items; }
    state odd { m.seen = (bit<16>)p.lookahead<bit<11>>(); transition select(p.lookahead<bit<3>>()) { 5: set_hit; 6: items; default: accept; } }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.note.setValid();
        h.note.seen = m.seen;
        h.note.which = m.which;
        if (s.parser_error == error.NoError) { h.note.error_code = 0; }
        else if (s.parser_error == error.PacketTooShort) { h.note.error_code = 1; }
        else if (s.parser_error == error.StackOutOfBounds) { h.note.error_code = 2; }
        else if (s.parser_error == error.ParserInvalidArgument) { h.note.error_code = 3; }
        else if (s.parser_error == error.Unlucky) { h.note.error_code = 4; }
        else { h.note.error_code = 5; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.note); p.emit(h.base); p.emit(h.items); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
