// Registers of several widths, signed ones too; counters; hashes of all algorithms; direct counters.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  index;
    bit<8>  kind;
    bit<32> a;
    int<32> b;
    bit<3>  c;
    bit<13> d;
    bit<48> e;
}
header result_t { bit<32> x; bit<32> y; bit<64> z; bit<16> w; int<32> s; bit<8> flags; }

struct headers_t { data_t data; result_t result; }
struct metadata_t { bit<16> h; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.data); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(256) words;
    register<int<32>>(256) signed_words;
    register<bit<48>>(256) wide;
    register<bit<100>>(4) widest;
    register<bit<7>>(256) narrow;
    counter(256, CounterType.packets_and_bytes) kinds;
    direct_counter(CounterType.packets_and_bytes) hits;

    action count_it() { hits.count(); }
    table counted {
        key = { h.data.kind: exact; }
        actions = { count_it; NoAction; }
        default_action = NoAction();
        counters = hits;
    }
    apply {
        // Fields of invalid headers are not read: simple_switch leaves earlier packets' values there.
        if (h.data.isValid()) {
            bit<32> index = (bit<32>)h.data.index;
            h.result.setValid();
            kinds.count((bit<32>)h.data.kind);
            counted.apply();

            words.read(h.result.x, index);
            words.write(index, h.result.x + h.data.a);

            int<32> held;
            signed_words.read(held, index);
            if (held < h.data.b) {
                h.result.flags = 1;
                signed_words.write(index, h.data.b);
            }
            h.result.s = held;
            if ((int<32>)h.data.a > h.data.b) { h.result.flags = h.result.flags | 2; }

            bit<48> before;
            wide.read(before, index);
            wide.write(index, before ^ h.data.e);
            bit<100> much;
            widest.read(much, index & 3);
            widest.write(index & 3, much * 3 + (bit<100>)h.data.e);
            bit<7> few;
            narrow.read(few, index);
            narrow.write(index, few + (bit<7>)h.data.c);
            h.result.y = few == 0 ? (bit<32>)much[99:68] : (bit<32>)few;

            if (h.data.kind == 0) {
                hash(h.result.z, HashAlgorithm.crc32, (bit<32>)0, { h.data.a, h.data.c }, (bit<64>)0x100000000);
            } else if (h.data.kind == 1) {
                hash(h.result.z, HashAlgorithm.crc16, (bit<16>)7, { h.data.a, h.data.b, h.data.d }, (bit<32>)1000);
            } else if (h.data.kind == 2) {
                hash(h.result.z, HashAlgorithm.csum16, (bit<16>)0, { h.data.c, h.data.d, h.data.e }, (bit<32>)65536);
            } else if (h.data.kind == 3) {
                hash(h.result.z, HashAlgorithm.xor16, (bit<16>)0, { h.data.e, h.data.index }, (bit<32>)65536);
            } else if (h.data.kind == 4) {
                hash(h.result.z, HashAlgorithm.identity, (bit<32>)1, { h.data.a, h.data.index }, (bit<64>)0);
            } else if (h.data.kind == 5) {
                hash(h.result.z, HashAlgorithm.crc32_custom, (bit<32>)0, { h.data.a }, (bit<64>)0x100000000);
            } else {
                hash(h.result.z, HashAlgorithm.crc16_custom, (bit<32>)0, { h.data.a, h.data.e }, (bit<64>)0x10000);
            }
            h.result.w = (bit<16>)s.packet_length;
        }
        s.egress_spec = 1;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (h.result.isValid()) { h.result.w = h.result.w + (bit<16>)s.packet_length; } }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.data); p.emit(h.result); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
