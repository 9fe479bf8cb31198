// What becomes of a packet at both ends: drops, ports, truncation, exit, headers removed and added.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> late; bit<16> amount; }
header extra_t { bit<32> x; }
header seen_t { bit<16> port; bit<16> length; }
struct headers_t { base_t base; extra_t extra; seen_t seen; }
struct metadata_t {}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.op) { 0x40 &&& 0x40: extra; default: accept; }
    }
    state extra { p.extract(h.extra); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    action drop_then_forward(bit<9> port) { mark_to_drop(s); s.egress_spec = port; }
    action forward_then_drop(bit<9> port) { s.egress_spec = port; mark_to_drop(s); }
    action leave(bit<9> port) { s.egress_spec = port; exit; }
    action cut(bit<9> port) { s.egress_spec = port; truncate((bit<32>)h.base.amount); }
    action cut_twice() { truncate((bit<32>)h.base.amount); truncate(32w9); s.egress_spec = 2; }
    table chosen {
        key = { h.base.op: ternary; }
        actions = { forward; drop; drop_then_forward; forward_then_drop; leave; cut; cut_twice; NoAction; }
        default_action = forward(1);
        size = 32;
    }
    apply {
        if (h.base.isValid()) {
            chosen.apply();
            if (h.base.op & 7 == 1) { s.egress_spec = 3; truncate((bit<32>)h.base.amount); }
            else if (h.base.op & 7 == 2) { h.extra.setInvalid(); }
            else if (h.base.op & 7 == 3 && !h.extra.isValid()) { h.extra.setValid(); h.extra.x = 0x01020304; }
            else if (h.base.op & 7 == 4) { return; }
            else if (h.base.op & 7 == 5) { s.egress_spec = 511; }
            h.base.amount = h.base.amount + 1;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.seen.setValid();
        h.seen.port = (bit<16>)s.egress_port;
        h.seen.length = (bit<16>)s.packet_length;
        if (!h.base.isValid()) { exit; }
        if (h.base.late & 7 == 1) { mark_to_drop(s); }
        else if (h.base.late & 7 == 2) { s.egress_spec = 3; }
        else if (h.base.late & 7 == 3) { truncate((bit<32>)h.base.amount & 63); }
        else if (h.base.late & 7 == 4) { mark_to_drop(s); s.egress_spec = 0; }
        else if (h.base.late & 7 == 5) { h.base.setInvalid(); h.seen.setInvalid(); }
        else if (h.base.late & 7 == 6) { s.egress_spec = 511; }
        else if (h.base.late & 7 == 7) { h.extra.setInvalid(); exit; }
        if (h.base.isValid()) { h.base.late = 0xff; }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.extra); p.emit(h.seen); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
