// Fields of no bits, such as a macro's width of 0 makes: between others, in sums, as arguments.
// Keys of no bits are not here: simple_switch reads where there is no byte when it is told an entry.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<0> none; bit<8> a; bit<3> b; bit<5> c; bit<0> pad; bit<64> d; bit<0> end; }
header seen_t { bit<0> begin; bit<16> hash; bit<8> sum; }
struct headers_t { data_t data; seen_t seen; }
struct metadata_t { bit<0> nothing; bit<16> hash; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.data);
        transition select(h.data.op) { 0: accept; default: seen; }
    }
    state seen { p.extract(h.seen); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action set(bit<0> none, bit<8> a) {
        h.data.none = none;
        h.data.a = a;
    }
    action add() {
        m.nothing = h.data.pad + h.data.end;
        h.data.a = h.data.a + (bit<8>)m.nothing;
        h.data.d = h.data.d + 1;
    }
    table stated { key = { h.data.a: exact; } actions = { set; add; } default_action = add; }
    apply {
        s.egress_spec = s.ingress_port;
        stated.apply();
        if (h.data.none == h.data.end) { h.data.c = h.data.c + 1; }
        if (h.seen.isValid()) {
            hash(m.hash, HashAlgorithm.crc16, 16w0, { h.data.a, h.data.none, h.data.d, m.nothing }, 32w65536);
            h.seen.hash = m.hash;
            h.seen.sum = h.data.a ++ h.data.pad;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
