// Packets to and from controllers, translated types, a digest, and a value set of two fields.
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("p4.org/psa/v1/PortId_t", 32)
type bit<9> port_id_t;
@p4runtime_translation("", string)
type bit<10> vrf_id_t;
type bit<16> plain_t;

enum bit<8> color_t { RED = 1, BLUE = 2 }

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> flags; }
header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
header probe_t { bit<8> kind; bit<8> color; }

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    probe_t probe;
}
struct metadata_t { vrf_id_t vrf; }
struct learn_t { bit<48> source; bit<9> port; bool is_probe; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<16>>(4) probes;
    state start {
        m.vrf = (vrf_id_t)0;
        transition select(s.ingress_port) { 255: from_controller; default: ethernet; }
    }
    state from_controller { p.extract(h.packet_out); transition ethernet; }
    state ethernet {
        p.extract(h.ethernet);
        transition select(h.ethernet.ethertype) { probes: probe; default: accept; }
    }
    state probe { p.extract(h.probe); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(8) seen;
    register<int<16>>(4) signed;
    counter(8, CounterType.packets) by_kind;
    direct_counter(CounterType.packets_and_bytes) routed;
    action drop() { mark_to_drop(s); }
    action forward(port_id_t port) { s.egress_spec = (bit<9>)port; routed.count(); }
    action to_controller(bit<7> reason) {
        h.packet_in.setValid();
        h.packet_in.ingress_port = s.ingress_port;
        h.packet_in.reason = reason;
        s.egress_spec = 255;
        routed.count();
    }
    action learn() { digest<learn_t>(1, { h.ethernet.source, s.ingress_port, h.probe.isValid() }); }
    action set_vrf(vrf_id_t vrf) { m.vrf = vrf; }
    action flood(bit<16> group) { s.mcast_grp = group; }
    table vrfs {
        key = { (port_id_t)s.ingress_port: exact @name("in_port"); }
        actions = { set_vrf; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table routes {
        key = { m.vrf: exact; h.ethernet.destination: lpm; }
        actions = { forward; to_controller; flood; @defaultonly drop; }
        default_action = drop();
        counters = routed;
        size = 8;
    }
    table sources {
        key = { h.ethernet.source: exact; }
        actions = { @defaultonly learn; @tableonly NoAction; }
        const default_action = learn();
        support_timeout = true;
        size = 64;
    }
    apply {
        if (h.packet_out.isValid()) {
            s.egress_spec = h.packet_out.egress_port;
            h.packet_out.setInvalid();
        } else {
            if (h.probe.isValid()) {
                bit<32> n;
                seen.read(n, 1);
                seen.write(1, n + 1);
                signed.write(0, -3);
                by_kind.count((bit<32>)h.probe.kind & 7);
            }
            sources.apply();
            vrfs.apply();
            routes.apply();
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (s.instance_type == 5 && s.egress_rid == 7) { h.ethernet.ethertype = 0x7777; } }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.packet_in); p.emit(h.ethernet); p.emit(h.probe); }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
