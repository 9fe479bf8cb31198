// Tables of every match kind, priorities, constant entries, hit and miss, action_run, exit.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<16> exact_key;
    bit<32> prefix;
    bit<12> odd_prefix;
    bit<4>  small;
    bit<24> masked;
    bit<16> range_low;
    bit<8>  maybe;
}
header extra_t { bit<8> value; }
header trace_t { bit<8> exact_hit; bit<8> lpm; bit<8> odd; bit<8> ternary; bit<8> range; bit<8> constant; bit<8> optional; bit<8> run; }

struct headers_t { key_t key; extra_t extra; trace_t trace; }
struct metadata_t { bit<8> unused; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.key);
        transition select(h.key.small) { 0: accept; default: extra; }
    }
    state extra { p.extract(h.extra); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action exactly(bit<8> v) { h.trace.exact_hit = v; }
    action lpm(bit<8> v) { h.trace.lpm = v; }
    action odd(bit<8> v) { h.trace.odd = v; }
    action ternary_(bit<8> v) { h.trace.ternary = v; }
    action range_(bit<8> v) { h.trace.range = v; }
    action constant(bit<8> v) { h.trace.constant = v; }
    action optional_(bit<8> v) { h.trace.optional = v; }
    action one() { h.trace.run = 1; }
    action two(bit<9> port) { h.trace.run = 2; s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    action leave() { h.trace.run = 9; exit; }

    // A field of an invalid header matches as 0.
    table exact_table { key = { h.key.exact_key: exact; h.extra.value: exact; } actions = { exactly; drop; } default_action = exactly(0xee); size = 8; }
    table lpm_table { key = { h.key.small: exact; h.key.prefix: lpm; } actions = { lpm; } default_action = lpm(0xee); size = 16; }
    table odd_table { key = { h.key.odd_prefix: lpm; } actions = { odd; } default_action = odd(0xee); size = 16; }
    table ternary_table { key = { h.key.masked: ternary; h.key.small: exact; h.extra.isValid(): ternary; } actions = { ternary_; } default_action = ternary_(0xee); size = 16; }
    table range_table { key = { h.key.range_low: range; h.key.masked: ternary; } actions = { range_; } default_action = range_(0xee); size = 16; }
    table constant_table {
        key = { h.key.masked: ternary; h.key.range_low: range; }
        actions = { constant; drop; }
        const default_action = constant(0xee);
        const entries = {
            (0x123456, 5 .. 9): constant(1);
            (0x120000 &&& 0xff0000, 0 .. 0xff): constant(2);
            (0x120000 &&& 0xff0000, _): constant(3);
            (_, 7 .. 7): constant(4);
        }
    }
    table optional_table { key = { h.key.maybe: optional; h.key.small: optional; } actions = { optional_; } default_action = optional_(0xee); size = 16; }
    table run_table { key = { h.key.maybe: exact; } actions = { one; two; drop; leave; } default_action = one(); size = 16; }
    apply {
        h.trace.setValid();
        s.egress_spec = 1;
        if (exact_table.apply().hit) { h.trace.exact_hit = h.trace.exact_hit + 0x40; }
        lpm_table.apply();
        if (odd_table.apply().miss) { h.trace.odd = 0xdd; }
        ternary_table.apply();
        range_table.apply();
        constant_table.apply();
        optional_table.apply();
        switch (run_table.apply().action_run) {
            one: { h.trace.run = h.trace.run + 0x10; }
            two: { h.trace.run = h.trace.run + 0x20; }
            default: { h.trace.run = h.trace.run + 0x30; }
        }
        h.trace.run = h.trace.run + 0x40;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.key); p.emit(h.extra); p.emit(h.trace); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
