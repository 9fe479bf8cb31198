// Tables whose entries age (support_timeout): exact, with prefixes, with masks, of members; in ingress and egress.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> small; bit<16> exact_key; bit<32> address; bit<8> port; }
struct headers_t { key_t key; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.key); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) counted;
    action mark(bit<8> v) { h.key.port = h.key.port ^ v; }
    action tally(bit<8> v) { counted.count(); h.key.port = h.key.port ^ v; }
    action member(bit<8> v) { h.key.port = h.key.port ^ v; }
    table small_table {
        key = { h.key.small: exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }
    table exact_table {
        key = { h.key.exact_key: exact; h.key.small: exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
    }
    table lpm_table {
        key = { h.key.address: lpm; }
        actions = { tally; NoAction; }
        default_action = NoAction();
        counters = counted;
        support_timeout = true;
    }
    table steady_table {
        key = { h.key.exact_key: exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
    }
    @name("members") action_profile(64) members;
    table member_table {
        key = { h.key.exact_key: exact; }
        actions = { member; NoAction; }
        implementation = members;
        support_timeout = true;
    }
    table constant_table {
        key = { h.key.small: exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        const entries = { 1: mark(0x10); 2: mark(0x20); }
    }
    apply {
        s.egress_spec = 1;
        small_table.apply();
        exact_table.apply();
        lpm_table.apply();
        steady_table.apply();
        member_table.apply();
        constant_table.apply();
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action mark(bit<8> v) { h.key.port = h.key.port ^ v; }
    table ternary_table {
        key = { h.key.exact_key: ternary; h.key.small: ternary; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
    }
    table range_table {
        key = { h.key.small: range; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
    }
    apply { ternary_table.apply(); range_table.apply(); }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
