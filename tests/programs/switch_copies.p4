// Clones both ways, resubmission, recirculation, multicast, truncation, drops, and what each keeps.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> hops; bit<16> note; }
header added_t { bit<16> x; }
header stamp_t { bit<8> kind; bit<8> port; bit<16> length; bit<16> rid; bit<8> kept; bit<8> lost; bit<8> ingress; }
struct headers_t { base_t base; added_t added; stamp_t stamp; }
struct metadata_t { @field_list(1, 2) bit<8> kept; bit<8> lost; @field_list(2) bit<8> again; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (!h.base.isValid()) { exit; }
        m.kept = m.kept + h.base.op + 1;
        m.lost = 0x55;
        s.egress_spec = 1;
        if (h.base.op == 0) { clone(CloneType.I2E, 5); h.base.note = 0xaaaa; }
        else if (h.base.op == 1) { clone_preserving_field_list(CloneType.I2E, 5, 1); s.egress_spec = 511; }
        else if (h.base.op == 2) { clone_preserving_field_list(CloneType.I2E, 6, 1); clone_preserving_field_list(CloneType.I2E, 7, 2); }
        else if (h.base.op == 3) {
            if (s.instance_type == 0) { m.again = 3; h.base.hops = 77; resubmit_preserving_field_list(2); }
            else { h.base.note = (bit<16>)m.again; s.egress_spec = 2; }
        }
        else if (h.base.op == 4) { s.mcast_grp = 3; h.added.setValid(); h.added.x = 0x1234; }
        else if (h.base.op == 5) { s.mcast_grp = 3; mark_to_drop(s); }
        else if (h.base.op == 6) { mark_to_drop(s); s.mcast_grp = 4; }
        else if (h.base.op == 7) { s.mcast_grp = 99; }
        else if (h.base.op == 8) { truncate((bit<32>)h.base.hops); }
        else if (h.base.op == 9) { if (s.instance_type != 0) { s.egress_spec = 3; } }
        else if (h.base.op == 10) { truncate((bit<32>)h.base.hops); clone(CloneType.I2E, 5); }
        else if (h.base.op == 11) { truncate((bit<32>)h.base.hops); s.mcast_grp = 3; }
        else if (h.base.op == 12) { s.mcast_grp = 3; clone(CloneType.I2E, 8); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (!h.base.isValid()) { exit; }
        h.stamp.setValid();
        h.stamp.kind = (bit<8>)s.instance_type;
        h.stamp.port = (bit<8>)s.egress_port;
        h.stamp.length = (bit<16>)s.packet_length;
        h.stamp.rid = s.egress_rid;
        h.stamp.kept = m.kept;
        h.stamp.lost = m.lost;
        h.stamp.ingress = (bit<8>)s.ingress_port;
        if (h.base.op == 9 && h.base.hops < 3) {
            h.base.hops = h.base.hops + 1;
            recirculate_preserving_field_list(1);
        }
        else if (h.base.op == 13 && s.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 5, 1); h.base.note = 0xbbbb; }
        else if (h.base.op == 14 && s.instance_type == 0) { clone(CloneType.E2E, 7); mark_to_drop(s); }
        else if (h.base.op == 15) { s.egress_spec = 9; truncate((bit<32>)h.base.hops); }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.added); p.emit(h.stamp); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
