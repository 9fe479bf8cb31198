// Multicast groups with many replicas, replication ids, and what the egress sees of each copy.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> group; bit<8> op; bit<16> note; }
header copy_t { bit<16> rid; bit<16> port; bit<16> length; bit<8> type; bit<8> seen; }
struct headers_t { base_t base; copy_t copy; }
struct metadata_t { bit<8> seen; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action to_group(bit<16> group) { s.mcast_grp = group; m.seen = 7; }
    action to_port(bit<9> port) { s.egress_spec = port; }
    action both(bit<16> group, bit<9> port) { s.mcast_grp = group; s.egress_spec = port; h.base.note = 0xbeef; }
    action drop() { mark_to_drop(s); }
    action drop_then_group(bit<16> group) { mark_to_drop(s); s.mcast_grp = group; }
    action group_then_drop(bit<16> group) { s.mcast_grp = group; mark_to_drop(s); }
    table chosen {
        key = { h.base.group: exact; }
        actions = { to_group; to_port; both; drop; drop_then_group; group_then_drop; }
        size = 64;
    }
    apply {
        if (h.base.isValid() && !chosen.apply().hit) {
            s.mcast_grp = (bit<16>)(h.base.group & 7);
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action stamp() {
        h.copy.setValid();
        h.copy.rid = s.egress_rid;
        h.copy.port = (bit<16>)s.egress_port;
        h.copy.length = (bit<16>)s.packet_length;
        h.copy.type = (bit<8>)s.instance_type;
        h.copy.seen = m.seen;
    }
    action drop() { mark_to_drop(s); }
    action shorten(bit<16> note) { h.base.note = note; truncate((bit<32>)h.base.op); }
    action bare() { h.base.setInvalid(); }
    table per_copy {
        key = { s.egress_rid: ternary; s.egress_port: ternary; }
        actions = { stamp; drop; shorten; bare; NoAction; }
        default_action = stamp();
        size = 16;
    }
    apply { if (h.base.isValid()) { per_copy.apply(); } }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.copy); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
