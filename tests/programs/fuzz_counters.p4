// Counters of all types, indexed and direct, over tables of all kinds.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> index; bit<16> key; bit<8> op; }
struct headers_t { base_t base; }
struct metadata_t {}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(16, CounterType.packets) packets;
    counter(16, CounterType.bytes) bytes;
    counter(5, CounterType.packets_and_bytes) both;
    direct_counter(CounterType.packets) exact_hits;
    direct_counter(CounterType.bytes) lpm_hits;
    direct_counter(CounterType.packets_and_bytes) ternary_hits;

    action port(bit<9> number) { exact_hits.count(); s.egress_spec = number; }
    action drop() { exact_hits.count(); mark_to_drop(s); }
    table exactly {
        key = { h.base.op: exact; }
        actions = { port; drop; }
        counters = exact_hits;
        size = 32;
    }
    action note(bit<8> add) { lpm_hits.count(); h.base.op = h.base.op + add; }
    action quiet() { lpm_hits.count(); }
    table prefixes {
        key = { h.base.key: lpm; }
        actions = { note; quiet; }
        counters = lpm_hits;
        default_action = quiet();
        size = 32;
    }
    action tally(bit<8> value) { ternary_hits.count(); h.base.index = value; }
    table masks {
        key = { h.base.key: ternary; h.base.index: range; }
        actions = { tally; NoAction; }
        counters = ternary_hits;
        size = 32;
        default_action = NoAction();
    }
    apply {
        if (h.base.isValid()) {
            packets.count((bit<32>)h.base.index);
            bytes.count((bit<32>)(h.base.index & 15));
            prefixes.apply();
            masks.apply();
            both.count((bit<32>)h.base.index);
            both.count((bit<32>)(h.base.index & 3));
            exactly.apply();
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets_and_bytes) leaving;
    apply {
        if (h.base.isValid()) {
            leaving.count((bit<32>)s.egress_port);
            if (h.base.op & 15 == 3) { h.base.setInvalid(); leaving.count(6); }
        }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
