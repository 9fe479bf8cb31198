// Headers that come, go and are copied; checksums, hashes, truncate, multicast with changes in egress.
#include <core.p4>
#include <v1model.p4>

header kind_t { bit<8> kind; bit<8> flags; bit<16> group; }
header ip_t { bit<4> version; bit<4> ihl; bit<8> tos; bit<16> total; bit<32> source; bit<32> target; bit<16> sum; bit<3> x; bit<13> y; }
header tail_t { bit<16> sum; bit<8> p; bit<24> q; bit<48> r; }
header hash_t { bit<16> a; bit<32> b; bit<32> c; bit<16> d; bit<32> same; bit<8> e; }

struct headers_t { kind_t kind; ip_t outer; ip_t inner; tail_t tail; hash_t hash; ip_t[2] stack; }
struct metadata_t { ip_t kept; bit<32> word; bit<16> half; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.kind);
        transition select(h.kind.kind) { 0: take_outer; 1: take_both; 2: take_tail; 3: take_stack; default: accept; }
    }
    state take_outer { p.extract(h.outer); transition take_tail; }
    state take_both { p.extract(h.outer); p.extract(h.inner); transition take_tail; }
    state take_tail { p.extract(h.tail); transition accept; }
    state take_stack { p.extract(h.stack[0]); p.extract(h.stack[1]); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.outer.isValid(),
            { h.outer.version, h.outer.ihl, h.outer.tos, h.outer.total, h.outer.source, h.outer.target, h.outer.x, h.outer.y },
            h.outer.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(h.tail.isValid() && h.kind.flags[0:0] == 1, { h.tail.p, h.tail.q, h.inner.source },
            h.tail.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = s.ingress_port;
        s.mcast_grp = h.kind.group;
        h.hash.setValid();
        hash(h.hash.a, HashAlgorithm.crc16, 16w3, { h.kind.kind, h.outer.source, h.inner.tos }, 32w1000);
        hash(h.hash.b, HashAlgorithm.crc32, 32w0, { h.outer.source, h.tail.r }, 64w0x100000000);
        hash(h.hash.c, HashAlgorithm.identity, 32w0, { h.kind.group, h.kind.flags }, 32w0xffffffff);
        hash(h.hash.d, HashAlgorithm.xor16, 16w0, { h.tail.p, h.tail.q, h.tail.r }, 32w0x10000);
        h.hash.e = (bit<8>)s.checksum_error;
        if (h.outer == h.inner) { h.hash.same = 1; }
        if (h.kind.flags[1:1] == 1) { h.inner = h.outer; }
        if (h.kind.flags[2:2] == 1) { h.outer.setInvalid(); }
        if (h.kind.flags[3:3] == 1) { h.inner.setValid(); h.inner.tos = 9; }
        if (h.kind.flags[4:4] == 1) { truncate((bit<32>)h.kind.flags[7:5] * 8); }
        if (h.stack[1].isValid()) { h.stack[0] = h.stack[1]; h.stack[1].setInvalid(); }
        if (h.inner != h.outer) { h.hash.same = h.hash.same + 2; }
        m.word = h.inner.source + 1;
        m.half = (bit<16>)s.packet_length;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(4) last;
    apply {
        if (s.egress_rid == 1) { h.outer.setInvalid(); h.hash.c = m.word; }
        else if (s.egress_rid == 2) { h.outer.setValid(); h.outer.total = (bit<16>)s.packet_length; }
        else if (s.egress_rid == 3) { h.kind.flags = 0; truncate(20); m.word = 4; }
        else if (s.egress_rid == 4) { mark_to_drop(s); }
        if (h.tail.isValid()) { h.tail.r = (bit<48>)m.word; h.hash.d = m.half; }
        bit<32> previous;
        last.read(previous, (bit<32>)s.egress_rid);
        last.write((bit<32>)s.egress_rid, previous + h.hash.b);
        if (previous[31:31] == 1) { h.hash.e = 0x80; }
    }
}
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.outer.isValid(),
            { h.outer.version, h.outer.ihl, h.outer.tos, h.outer.total, h.outer.source, h.outer.target, h.outer.x, h.outer.y },
            h.outer.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.tail.isValid(), { h.tail.p, h.tail.q, h.outer.sum, h.inner.target, 8w3 },
            h.tail.sum, HashAlgorithm.csum16);
        update_checksum(true, { h.hash.a, h.hash.b, h.hash.c }, h.hash.same, HashAlgorithm.crc32);
    }
}
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.kind); p.emit(h.outer); p.emit(h.inner); p.emit(h.tail); p.emit(h.hash); p.emit(h.stack); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
