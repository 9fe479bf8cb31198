// Every hash that v1model names, over whole bytes, over parts of bytes, and over absent headers.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  kind;
    bit<3>  small;
    bit<13> odd;
    bit<32> word;
    bit<64> long;
    bit<48> address;
}
header more_t { bit<4> high; bit<12> low; bit<8> tail; }
header result_t {
    bit<32> crc32;
    bit<32> crc32_custom;
    bit<16> crc16;
    bit<16> crc16_custom;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<32> odd_crc32;
    bit<16> odd_crc16;
    bit<16> odd_csum16;
    bit<16> odd_xor16;
    bit<64> odd_identity;
    bit<32> limited;
    bit<16> whole;
    bit<16> absent;
    bit<16> payload;
}

struct headers_t { data_t data; more_t more; result_t result; }
struct metadata_t { bit<9> loose; bit<4> high; bit<12> low; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.data);
        transition select(h.data.kind) { 1 &&& 1: take_more; default: accept; }
    }
    state take_more { p.extract(h.more); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        if (h.data.isValid()) {
            h.result.setValid();
            m.loose = h.data.address[8:0];
            if (h.more.isValid()) {
                m.high = h.more.high;
                m.low = h.more.low;
                hash(h.result.whole, HashAlgorithm.crc16, 16w0,
                     { h.more, h.data.word }, 32w0x10000);
            }
            tuple<bit<32>, bit<64>, bit<48>, bit<8>> even =
                { h.data.word, h.data.long, h.data.address, h.data.kind };
            hash(h.result.crc32, HashAlgorithm.crc32, 32w0, even, 64w0x100000000);
            hash(h.result.crc32_custom, HashAlgorithm.crc32_custom, 32w0, even, 64w0x100000000);
            hash(h.result.crc16, HashAlgorithm.crc16, 16w0, even, 32w0x10000);
            hash(h.result.crc16_custom, HashAlgorithm.crc16_custom, 16w0, even, 32w0x10000);
            hash(h.result.csum16, HashAlgorithm.csum16, 16w0, even, 32w0x10000);
            hash(h.result.xor16, HashAlgorithm.xor16, 16w0, even, 32w0x10000);
            hash(h.result.identity, HashAlgorithm.identity, 64w0,
                 { h.data.long, h.data.word }, 64w0xffffffffffffffff);
            tuple<bit<3>, bit<4>, bit<64>, bit<9>, bit<12>, bit<13>> odd =
                { h.data.small, m.high, h.data.long, m.loose, m.low, h.data.odd };
            hash(h.result.odd_crc32, HashAlgorithm.crc32, 32w0, odd, 64w0x100000000);
            hash(h.result.odd_crc16, HashAlgorithm.crc16_custom, 16w0, odd, 32w0x10000);
            hash(h.result.odd_csum16, HashAlgorithm.csum16, 16w0, odd, 32w0x10000);
            hash(h.result.odd_xor16, HashAlgorithm.xor16, 16w0, odd, 32w0x10000);
            hash(h.result.odd_identity, HashAlgorithm.identity, 64w0, odd, 64w0xffffffffffffffff);
            hash(h.result.limited, HashAlgorithm.crc32_custom, 32w100,
                 { h.data.odd, h.data.small, 8w7, m.low }, (bit<32>)h.data.kind);
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.result.isValid(),
            { h.data.small, h.more.low, h.data.odd, h.more.tail, h.data.word },
            h.result.absent, HashAlgorithm.csum16);
        update_checksum_with_payload(h.result.isValid(),
            { h.data.odd, h.data.small, h.more.high }, h.result.payload, HashAlgorithm.crc16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
