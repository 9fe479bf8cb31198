// Resubmission and recirculation, each alone and one after the other, with what they keep.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> turns; bit<16> note; }
header trail_t { bit<8> kept; bit<8> lost; bit<8> type; bit<8> port; bit<16> length; }
struct headers_t { base_t base; trail_t trail; }
struct metadata_t {
    @field_list(1, 2) bit<8> kept;
    @field_list(2) bit<8> rounds;
    bit<8> lost;
}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets_and_bytes) types;
    register<bit<32>>(4) total;
    apply {
        if (h.base.isValid()) {
            types.count(s.instance_type);
            bit<32> sum;
            total.read(sum, 0);
            total.write(0, sum + (bit<32>)s.packet_length);
            m.lost = m.lost + 1;
            m.kept = m.kept + 3;
            s.egress_spec = (bit<9>)(h.base.op >> 5);
            if (h.base.op & 3 == 1 && m.rounds < (h.base.turns & 7)) {
                m.rounds = m.rounds + 1;
                h.base.note = 0xdead;
                resubmit_preserving_field_list(2);
            } else if (h.base.op & 3 == 2 && s.instance_type == 0) {
                resubmit_preserving_field_list(1);
                mark_to_drop(s);
            }
            h.base.note = h.base.note + (bit<16>)m.rounds;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.base.isValid()) {
            h.trail.setValid();
            h.trail.kept = m.kept;
            h.trail.lost = m.lost;
            h.trail.type = (bit<8>)s.instance_type;
            h.trail.port = (bit<8>)s.ingress_port;
            h.trail.length = (bit<16>)s.packet_length;
            if (h.base.op & 0x0c == 0x04 && h.base.turns & 0x0f < 5) {
                h.base.turns = h.base.turns + 1;
                recirculate_preserving_field_list(1);
            } else if (h.base.op & 0x0c == 0x08 && h.base.turns & 0x0f < 3) {
                h.base.turns = h.base.turns + 1;
                h.base.op = h.base.op ^ 3;
                recirculate_preserving_field_list(2);
                h.trail.setInvalid();
            }
        }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.trail); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
