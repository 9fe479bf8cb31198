// Clones at both ends with several field lists and sessions: ports, groups, both, none.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> session; bit<16> note; }
header tag_t { bit<8> type; bit<8> port; bit<16> length; bit<8> first; bit<8> second; bit<16> third; bit<16> rid; }
struct headers_t { base_t base; tag_t tag; }
struct metadata_t {
    @field_list(1, 3) bit<8> first;
    @field_list(2, 3) bit<8> second;
    bit<16> third;
}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    table where {
        key = { h.base.op: ternary; }
        actions = { forward; NoAction; }
        default_action = forward(2);
        size = 8;
    }
    apply {
        if (h.base.isValid()) {
            m.first = h.base.op;
            m.second = h.base.session + 1;
            m.third = h.base.note;
            where.apply();
            if (h.base.op & 7 == 1) { clone(CloneType.I2E, (bit<32>)h.base.session); h.base.note = 0x1111; }
            else if (h.base.op & 7 == 2) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.base.session, 1); }
            else if (h.base.op & 7 == 3) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.base.session, 3); mark_to_drop(s); }
            else if (h.base.op & 7 == 4) { clone_preserving_field_list(CloneType.I2E, 32w1, 1); clone_preserving_field_list(CloneType.I2E, 32w2, 2); }
            else if (h.base.op & 7 == 5) { clone_preserving_field_list(CloneType.I2E, 32w3, 2); s.mcast_grp = 1; }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.base.isValid()) {
            h.tag.setValid();
            h.tag.type = (bit<8>)s.instance_type;
            h.tag.port = (bit<8>)s.egress_port;
            h.tag.length = (bit<16>)s.packet_length;
            h.tag.first = m.first;
            h.tag.second = m.second;
            h.tag.third = m.third;
            h.tag.rid = s.egress_rid;
            if (s.instance_type == 0 || s.instance_type == 5) {
                if (h.base.op & 0x38 == 0x08) { clone(CloneType.E2E, (bit<32>)h.base.session); h.base.note = 0x2222; }
                else if (h.base.op & 0x38 == 0x10) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.base.session, 2); mark_to_drop(s); }
                else if (h.base.op & 0x38 == 0x18) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.base.session, 3); h.tag.setInvalid(); }
            }
        }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.tag); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
