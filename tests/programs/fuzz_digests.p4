// Digests of several lists, together with whatever else may happen to a packet.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> a; int<16> b; bit<72> c; }
struct headers_t { base_t base; }
struct learn_t { bit<8> a; int<16> b; bit<9> port; }
struct wide_t { bit<72> c; bit<32> sum; }
struct metadata_t { learn_t learn; bit<32> sum; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(1) total;
    action learn(bit<8> extra) {
        m.learn.a = h.base.a + extra;
        m.learn.b = h.base.b;
        m.learn.port = s.ingress_port;
        digest<learn_t>(1, m.learn);
        s.egress_spec = 3;
    }
    action learn_wide() { digest<wide_t>(2, { h.base.c, m.sum }); s.egress_spec = 4; }
    action learn_and_drop() { digest<wide_t>(7, { h.base.c + 1, 5 }); mark_to_drop(s); }
    table known {
        key = { h.base.a: exact; s.ingress_port: ternary; }
        actions = { learn; learn_wide; learn_and_drop; NoAction; }
        default_action = learn(1);
        size = 64;
    }
    apply {
        if (h.base.isValid()) {
            total.read(m.sum, 0);
            m.sum = m.sum + (bit<32>)h.base.op;
            total.write(0, m.sum);
            known.apply();
            h.base.a = m.learn.a;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
