// Checksums verified and updated, with conditions, constants, odd widths and the payload.
#include <core.p4>
#include <v1model.p4>

header first_t { bit<8> kind; bit<4> x; bit<12> y; bit<16> sum; }
header second_t { bit<16> source; bit<32> data; bit<16> sum; bit<16> check; }
struct headers_t { first_t first; second_t second; }
struct metadata_t { bit<8> unused; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.first); transition select(h.first.kind) { 0: accept; default: second; } }
    state second { p.extract(h.second); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.first.isValid() && h.first.kind != 9, { h.first.kind, h.first.x, h.first.y }, h.first.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(h.second.isValid(), { h.second.source, h.second.data }, h.second.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (s.checksum_error == 1) { s.egress_spec = 2; }
        if (h.first.isValid() && h.first.kind == 3) { h.second.setInvalid(); }
        if (h.first.isValid() && h.first.kind == 4) { h.first.y = 0xfff; h.first.x = 0xf; h.first.kind = 0xff; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.first.isValid() && h.first.kind != 5, { h.first.kind, h.first.x, h.first.y }, h.first.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.second.isValid(), { h.first.sum, h.second.source, 4w5, h.second.data, 12w0 }, h.second.sum, HashAlgorithm.csum16);
        update_checksum(h.second.isValid(), { h.second.source, h.second.data, h.second.sum, 3w1 }, h.second.check, HashAlgorithm.crc16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h.first); p.emit(h.second); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
