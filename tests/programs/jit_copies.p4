// Every way in which one packet becomes several or comes by again, in any combination: what a packet
// asks for stands in its first header.
#include <core.p4>
#include <v1model.p4>

header base_t {
    bit<8> ingress_op;
    bit<8> egress_op;
    bit<8> session;
    bit<8> hops;
    bit<16> note;
    bit<16> sum;
}
header lanes_t {
    bit<16> a; bit<16> b; bit<16> c; bit<16> d; bit<16> e; bit<16> f; bit<16> g; bit<16> h;
    int<8> signed;
}
header extra_t { bit<24> x; }
header stamp_t {
    bit<8> kind; bit<16> port; bit<32> length; bit<16> rid; bit<8> kept; bit<8> lost; bit<8> other;
    bit<16> ingress; bit<32> qdepth; bit<40> times; bit<8> wrong;
}
struct headers_t { base_t base; lanes_t lanes; extra_t extra; stamp_t stamp; }
struct metadata_t {
    @field_list(1, 2) bit<8> kept;
    @field_list(2, 3) bit<8> other;
    @field_list(3) bit<72> wide;
    @field_list(2) int<8> signed;
    bit<8> lost;
}
struct seen_t { bit<16> note; bit<72> wide; bit<9> port; }
struct gone_t { int<8> signed; bit<16> a; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.session, s.instance_type) {
            (0x80 &&& 0x80, 0): with_lanes;
            (0x40 &&& 0x40, 4): with_lanes;
            default: accept;
        }
    }
    state with_lanes { p.extract(h.lanes); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) hit;
    register<bit<8>>(8) rounds;

    action go(bit<9> port) { s.egress_spec = port; }
    action copy(bit<16> group) { s.mcast_grp = group; }
    action drop() { mark_to_drop(s); }
    table forward {
        key = { h.base.note: ternary; }
        actions = { go; copy; drop; }
        counters = hit;
        size = 64;
        default_action = go(1);
    }

    action again_with_state() {
        bit<8> done;
        rounds.read(done, (bit<32>)h.base.session & 7);
        rounds.write((bit<32>)h.base.session & 7, done + 1);
        m.other = done;
    }

    apply {
        if (!h.base.isValid()) { exit; }
        seen.count((bit<32>)h.base.session & 7);
        m.lost = 0x55;
        m.kept = m.kept + 1;
        m.wide = (h.base.note ++ 56w0) | m.wide;
        m.signed = (int<8>)h.base.hops;
        forward.apply();
        bit<32> session = (bit<32>)h.base.session & 7;
        bit<8> op = h.base.ingress_op & 15;
        if (op == 1) { clone(CloneType.I2E, session); h.base.note = 0xaaaa; }
        else if (op == 2) { clone_preserving_field_list(CloneType.I2E, session, 1); }
        else if (op == 3) { m.other = 9; clone_preserving_field_list(CloneType.I2E, session, 2); }
        else if (op == 4) {
            clone_preserving_field_list(CloneType.I2E, 1, 1);
            clone_preserving_field_list(CloneType.I2E, session, 3);
            m.other = 7;
        }
        else if (op == 5 && m.kept < 3) { m.lost = 1; h.base.note = 1; resubmit_preserving_field_list(1); }
        else if (op == 6) {
            again_with_state();
            if (m.other & 3 != 0) { resubmit_preserving_field_list(3); }
        }
        else if (op == 7 && m.kept < 3) {
            clone_preserving_field_list(CloneType.I2E, session, 2);
            resubmit_preserving_field_list(2);
            truncate(3);
        }
        else if (op == 8) { truncate((bit<32>)h.base.hops); }
        else if (op == 9) { truncate((bit<32>)h.base.hops); clone(CloneType.I2E, session); }
        else if (op == 10) { h.extra.setValid(); h.extra.x = 0xabcdef; s.mcast_grp = 2; }
        else if (op == 11) { h.lanes.setInvalid(); }
        else if (op == 12) { digest<seen_t>(1, { h.base.note, m.wide, s.ingress_port }); }
        else if (op == 13) { digest<gone_t>(2, { h.lanes.signed, h.lanes.a }); mark_to_drop(s); }
        else if (op == 14) { random(h.base.note, 16w100, 16w200); clone(CloneType.I2E, session); }
        else if (op == 15) { s.egress_spec = 511; clone_preserving_field_list(CloneType.I2E, session, 1); }
        if (h.base.ingress_op & 0x80 != 0) { h.lanes.c = h.lanes.c + 1; h.lanes.h = (bit<16>)m.kept; }
        if (h.base.ingress_op & 0x40 != 0) { s.priority = 1; }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.bytes) left;
    register<bit<16>>(8) notes;

    apply {
        if (!h.base.isValid()) { exit; }
        left.count((bit<32>)h.base.session & 7);
        notes.write((bit<32>)h.base.session & 7, h.base.note);
        h.stamp.setValid();
        h.stamp.kind = (bit<8>)s.instance_type;
        h.stamp.port = (bit<16>)s.egress_port;
        h.stamp.length = s.packet_length;
        h.stamp.rid = s.egress_rid;
        h.stamp.kept = m.kept;
        h.stamp.lost = m.lost;
        h.stamp.other = m.other + (bit<8>)m.wide[71:56] + (bit<8>)m.signed;
        h.stamp.ingress = (bit<16>)s.ingress_port;
        h.stamp.qdepth = (bit<32>)s.enq_qdepth + (bit<32>)s.deq_qdepth;
        h.stamp.times = (bit<40>)s.enq_timestamp - (bit<40>)s.egress_global_timestamp[31:0];
        h.stamp.wrong = (bit<8>)(bit<1>)(s.parser_error != error.NoError) + (bit<8>)s.checksum_error;
        m.kept = m.kept + 0x10;
        h.lanes.d = h.lanes.d + s.egress_rid;
        h.lanes.signed = h.lanes.signed |-| (int<8>)(bit<8>)s.egress_rid;
        bit<32> session = (bit<32>)h.base.session >> 3 & 7;
        bit<8> op = h.base.egress_op & 15;
        if (h.base.hops > 3) { h.base.hops = 2; }
        if (op == 1 && m.kept < 0x30) { clone_preserving_field_list(CloneType.E2E, session, 1); h.base.note = 0xbbbb; }
        else if (op == 2 && m.kept < 0x30) { m.other = 0x44; clone_preserving_field_list(CloneType.E2E, session, 2); m.other = 0x45; }
        else if (op == 3 && s.instance_type != 2) { clone(CloneType.E2E, session); mark_to_drop(s); }
        else if (op == 4 && h.base.hops > 0) { h.base.hops = h.base.hops - 1; recirculate_preserving_field_list(1); }
        else if (op == 5 && h.base.hops > 0) {
            h.base.hops = h.base.hops - 1;
            h.extra.setValid();
            h.extra.x = 24w7 + (bit<24>)h.base.note;
            h.stamp.setInvalid();
            m.wide = m.wide + 72w0x010000000000000000;
            recirculate_preserving_field_list(3);
        }
        else if (op == 6 && h.base.hops > 0) {
            h.base.hops = h.base.hops - 1;
            clone_preserving_field_list(CloneType.E2E, session, 3);
            truncate(9);
            recirculate_preserving_field_list(2);
        }
        else if (op == 7) {
            truncate((bit<32>)h.base.note & 15);
            if (s.instance_type != 2) { clone(CloneType.E2E, session & 1); }
        }
        else if (op == 8) { s.egress_spec = 9; }
        else if (op == 9 && h.base.hops > 0) { h.base.hops = 0; recirculate_preserving_field_list(2); mark_to_drop(s); }
        else if (op == 10) { h.stamp.setInvalid(); }
    }
}

control U(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.base.isValid() && h.base.egress_op & 0x80 != 0,
            { h.base.ingress_op, h.base.egress_op, h.base.note, h.stamp.length }, h.base.sum,
            HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.base); p.emit(h.lanes); p.emit(h.extra); p.emit(h.stamp); }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
