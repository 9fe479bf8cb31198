// Every deterministic HashAlgorithm of v1model, over inputs of odd widths, with many bases and bounds.
#include <core.p4>
#include <v1model.p4>

header in_t { bit<8> op; bit<3> a; bit<13> b; bit<32> c; int<16> d; bit<48> e; bit<128> f; bit<64> most; }
header out_t { bit<16> x; bit<32> y; bit<64> z; bit<7> w; bit<9> v; }
struct headers_t { in_t data; out_t result; }
struct metadata_t { bit<32> base; bit<10> path; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.data); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action crc() {
        hash(h.result.y, HashAlgorithm.crc32, 32w0, { h.data.a, h.data.b, h.data.c }, 64w0x100000000);
        hash(h.result.x, HashAlgorithm.crc16, 16w7, { h.data.e, h.data.d }, h.data.c);
        hash(h.result.w, HashAlgorithm.crc32, 7w1, { h.data.f }, 32w126);
    }
    action custom() {
        hash(h.result.y, HashAlgorithm.crc32_custom, 32w0, { h.data.c, h.data.f }, 64w0x100000000);
        hash(h.result.x, HashAlgorithm.crc16_custom, 16w0, { h.data.c, h.data.a, 5w17 }, 32w0x10000);
        hash(h.result.z, HashAlgorithm.crc32_custom, m.base, { h.data.d }, h.data.most);
    }
    action plain() {
        hash(h.result.x, HashAlgorithm.csum16, 16w0, { h.data.b, h.data.c, h.data.a }, 32w0x10000);
        hash(h.result.y, HashAlgorithm.xor16, 32w100, { h.data.e, h.data.a }, 32w65535);
        hash(h.result.z, HashAlgorithm.identity, 64w0, { h.data.c, h.data.a, h.data.b }, 64w0);
        hash(h.result.v, HashAlgorithm.identity, 9w0, { h.data.f }, 32w512);
    }
    action longest() {
        hash(h.result.z, HashAlgorithm.identity, 64w0, { h.data.e, h.data.d }, 64w0xffffffffffffffff);
        hash(h.result.y, HashAlgorithm.csum16, 32w3, { h.data.f, h.data.e, h.data.op }, 32w1000);
        hash(h.result.x, HashAlgorithm.xor16, 16w0, { h.data.f, h.data.op }, 32w0x20000);
    }
    apply {
        if (h.data.isValid()) {
            h.result.setValid();
            h.result = { 0, 0, 0, 0, 0 };
            m.base = (bit<32>)h.data.b;
            s.egress_spec = (bit<9>)(h.data.op >> 6);
            if (h.data.op & 3 == 0) { crc(); }
            else if (h.data.op & 3 == 1) { custom(); }
            else if (h.data.op & 3 == 2) { plain(); }
            else { longest(); }
            hash(m.path, HashAlgorithm.crc16, 10w0, { h.data.c, h.data.e }, 10w4);
            h.data.a = m.path[2:0];
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.data); p.emit(h.result); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
