// Tables of every kind, direct counters, hit and miss, action_run, exit, keys of invalid headers.
#include <core.p4>
#include <v1model.p4>

header first_t { bit<8> next; bit<8> a; bit<16> b; bit<32> address; bit<12> vlan; bit<4> priority; }
header second_t { bit<64> key; bit<32> c; }
header mark_t { bit<8> exact; bit<8> wide; bit<8> lpm; bit<8> ternary; bit<8> range; bit<8> egress; bit<16> more; }

struct headers_t { first_t first; second_t second; mark_t mark; }
struct metadata_t { bit<9> port; bit<8> note; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.first);
        transition select(h.first.next) { 0: accept; 1: take_second; default: take_second; }
    }
    state take_second { p.extract(h.second); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) exact_hits;
    direct_counter(CounterType.packets_and_bytes) lpm_hits;
    counter(16, CounterType.packets_and_bytes) seen;

    action exact_mark(bit<8> v, bit<9> port) { h.mark.exact = v; s.egress_spec = port; exact_hits.count(); }
    action exact_note(bit<8> v) { m.note = v; exact_hits.count(); }
    action wide_mark(bit<8> v) { h.mark.wide = v; }
    action lpm_mark(bit<8> v, bit<9> port) { h.mark.lpm = v; s.egress_spec = port; lpm_hits.count(); }
    action lpm_drop() { mark_to_drop(s); lpm_hits.count(); }
    action ternary_mark(bit<8> v) { h.mark.ternary = v; }
    action ternary_group(bit<16> g) { s.mcast_grp = g; }
    action range_mark(bit<8> v) { h.mark.range = v; }
    action leave() { h.mark.more = 0xdead; exit; }

    table exact_table {
        key = { h.first.a: exact; h.first.b: exact; s.ingress_port: exact; }
        actions = { exact_mark; exact_note; NoAction; }
        default_action = NoAction(); counters = exact_hits; size = 64;
    }
    table wide_table {
        key = { h.second.key: exact; h.second.c: exact; h.second.isValid(): exact; h.first.vlan: exact; }
        actions = { wide_mark; leave; NoAction; }
        default_action = wide_mark(3); size = 32;
    }
    table lpm_table {
        key = { h.first.address: lpm; }
        actions = { lpm_mark; lpm_drop; NoAction; }
        default_action = NoAction(); counters = lpm_hits; size = 256;
    }
    table lpm_wide {
        key = { h.second.key: lpm; h.first.priority: exact; }
        actions = { wide_mark; NoAction; }
        default_action = NoAction(); size = 64;
    }
    table ternary_table {
        key = { h.first.address: ternary; h.first.b: ternary; h.second.c: ternary; h.first.a: exact; }
        actions = { ternary_mark; ternary_group; leave; NoAction; }
        default_action = NoAction(); size = 64;
    }
    table range_table {
        key = { h.first.b: range; h.first.vlan: ternary; h.first.address: lpm; h.first.a: range; }
        actions = { range_mark; NoAction; }
        default_action = range_mark(9); size = 64;
    }
    apply {
        h.mark.setValid();
        seen.count((bit<32>)h.first.next);
        if (exact_table.apply().hit) { h.mark.more = 1; } else { h.mark.more = 2; }
        switch (wide_table.apply().action_run) {
            wide_mark: { h.mark.more = h.mark.more + 16; lpm_wide.apply(); }
            NoAction: { h.mark.more = h.mark.more + 32; }
        }
        lpm_table.apply();
        if (m.note != 7) { ternary_table.apply(); range_table.apply(); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action egress_mark(bit<8> v) { h.mark.egress = v; }
    action egress_drop() { mark_to_drop(s); }
    action rewrite(bit<64> k, bit<32> c) { h.second.setValid(); h.second.key = k; h.second.c = c; }
    action strip() { h.second.setInvalid(); }
    table out_table {
        key = { s.egress_port: exact; s.egress_rid: exact; }
        actions = { egress_mark; egress_drop; rewrite; strip; NoAction; }
        default_action = NoAction(); size = 64;
    }
    apply {
        out_table.apply();
        if (s.instance_type == 5) { h.mark.range = h.mark.range + (bit<8>)s.egress_rid; }
        h.first.b = (bit<16>)s.packet_length;
    }
}
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.first); p.emit(h.second); p.emit(h.mark); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
