// A table that no packet reaches: p4c's P4Info has it, and its JSON does not.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { bit<16> kind; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ethernet); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets) seen;
    action_profile(8) ways;
    action drop() { mark_to_drop(s); }
    action forward(bit<9> port) { s.egress_spec = port; }
    action count(bit<9> port) { s.egress_spec = port; seen.count(); }
    table forwarding {
        key = { h.ethernet.destination: exact; }
        actions = { forward; drop; }
        default_action = drop;
    }
    table counted {
        key = { h.ethernet.source: ternary; }
        actions = { count; NoAction; }
        counters = seen;
        default_action = NoAction;
    }
    table shared {
        key = { h.ethernet.ethertype: exact; }
        actions = { forward; drop; NoAction; }
        implementation = ways;
        default_action = NoAction;
    }
    apply {
        m.kind = 2;
        forwarding.apply();
        if (m.kind == 3) {
            counted.apply();
            shared.apply();
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
