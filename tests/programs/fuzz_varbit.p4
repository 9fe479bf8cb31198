// Headers of variable length, after the manner of IPv4's options, with checksums over them.
#include <core.p4>
#include <v1model.p4>

header ip_t {
    bit<4> version; bit<4> words; bit<8> kind; bit<16> length; bit<16> check; bit<32> source;
    varbit<320> options;
}
header next_t { bit<8> size; varbit<64> data; bit<16> check; }
header third_t { bit<16> sum; }
struct headers_t { ip_t ip; next_t next; third_t third; }
struct metadata_t { bit<16> failed; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        bit<8> first = p.lookahead<bit<8>>();
        verify(first[3:0] > 2, error.HeaderTooShort);
        p.extract(h.ip, ((bit<32>)first[3:0] - 3) * 32);
        transition select(h.ip.kind) {
            17: next;
            default: accept;
        }
    }
    state next {
        p.extract(h.next, (bit<32>)(bit<16>)(p.lookahead<bit<8>>()));
        transition accept;
    }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.ip.isValid() && h.ip.version == 4,
            { h.ip.version, h.ip.words, h.ip.kind, h.ip.length, h.ip.source, h.ip.options },
            h.ip.check, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.ip.isValid()) {
            h.third.setValid();
            h.third.sum = s.checksum_error == 1 ? 16w0xbad : 16w0;
            s.egress_spec = 1;
            if (h.ip.kind & 3 == 1) { h.ip.source = h.ip.source + 1; }
            if (h.ip.length & 3 == 2 && h.next.isValid()) { h.next.setInvalid(); }
            if (h.ip.kind == 17 && h.ip.length & 7 == 7) { h.ip.setInvalid(); }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ip.isValid() && h.ip.version & 4 == 4,
            { h.ip.version, h.ip.words, h.ip.kind, h.ip.length, h.ip.source, h.ip.options },
            h.ip.check, HashAlgorithm.csum16);
        update_checksum_with_payload(h.next.isValid(),
            { h.next.size, h.next.data }, h.next.check, HashAlgorithm.csum16);
        update_checksum_with_payload(h.third.isValid() && h.ip.isValid(), { h.ip.check, h.ip.source }, h.third.sum, HashAlgorithm.crc16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.ip); p.emit(h.next); p.emit(h.third); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
