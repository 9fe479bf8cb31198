// A little of everything that a trace tells: states, tables of all fates, registers, counters, copies.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> kind; bit<8> value; }
header tag_t { bit<7> mark; bit<1> last; }
header extra_t { bit<16> sum; bit<8> round; }
struct headers_t { base_t base; tag_t[2] tags; extra_t extra; }
struct metadata_t { @field_list(1) bit<8> round; bit<16> hash; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.kind) { 1: tags; default: accept; }
    }
    state tags {
        p.extract(h.tags.next);
        transition select(h.tags.last.last) { 0: tags; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(16) seen;
    counter(16, CounterType.packets_and_bytes) kinds;
    direct_counter(CounterType.packets) hits;
    action send(bit<9> port, bit<8> value) { s.egress_spec = port; h.base.value = value; hits.count(); }
    action drop() { mark_to_drop(s); hits.count(); }
    action copy(bit<9> port) { s.egress_spec = port; clone_preserving_field_list(CloneType.I2E, 5, 1); hits.count(); }
    action again() { resubmit_preserving_field_list(1); hits.count(); }
    action spread() { s.mcast_grp = 1; hits.count(); }
    table choose {
        key = { h.base.value: ternary; h.base.kind: exact; m.round: ternary; }
        actions = { send; drop; copy; again; spread; }
        default_action = drop();
        counters = hits;
        size = 16;
    }
    apply {
        m.round = m.round + 1;
        kinds.count((bit<32>)h.base.kind);
        bit<32> before;
        seen.read(before, (bit<32>)h.base.kind);
        seen.write((bit<32>)h.base.kind, before + 1);
        choose.apply();
        if (m.round == 1) {
            hash(m.hash, HashAlgorithm.crc16, 16w0, { h.base.kind, h.base.value }, 32w65536);
            h.extra.setValid();
            h.extra.sum = m.hash;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.extra.round = m.round;
        if (h.base.kind == 7) { h.base.kind = 0; recirculate_preserving_field_list(1); }
        if (h.base.kind == 8) { truncate(3); }
        if (h.base.kind == 9) { mark_to_drop(s); }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
