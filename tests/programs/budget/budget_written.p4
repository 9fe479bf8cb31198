// What p4c's Tofino compiler refuses of a program for v1model as it is written, all at once (BROKEN), or
// the same in forms that it takes.

#include <core.p4>
#include <v1model.p4>

#ifdef BROKEN
#define BODY 1200
#define VERIFIED (hdr.data.a != 0)
#define WIDTH 24
#define RANGE 32w1000
#define OFFSET 32w5
#define SECOND other.count(0);
#define CHOSEN (hdr.data.b == 0 ? hdr.data.a : by)
#define SECOND_READ second.read(meta.z, hdr.data.a);
#define ON_MISS count_by_field
#else
#define BODY 600
#define VERIFIED hdr.data.isValid()
#define WIDTH 32
#define RANGE 32w1024
#define OFFSET 32w0
#define SECOND
#define CHOSEN by
#define SECOND_READ
#define ON_MISS count_nothing
#endif

header data_t { bit<32> a; bit<32> b; bit<32> c; bit<16> sum; bit<16> d; }
header body_t { bit<BODY> body; }
struct headers_t { data_t data; body_t body; }
struct metadata_t { bit<32> x; bit<32> y; bit<32> z; }

parser WrittenParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.data);
        packet.extract(hdr.body);
        transition accept;
    }
}

control WrittenVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(VERIFIED, { hdr.data.a, hdr.data.b }, hdr.data.sum, HashAlgorithm.csum16);
    }
}

control WrittenIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    register<bit<WIDTH>>(1024) unused;
    register<bit<32>>(1024) first;
    register<bit<32>>(1024) second;
    counter(16, CounterType.packets) one;
    counter(16, CounterType.packets) other;

    action count_one() { one.count(1); }
    action count_two() { one.count(2); SECOND }
    action count_by_field() { one.count(hdr.data.a); }
    action count_nothing() { }
    table counted {
        key = { hdr.data.d: exact; }
        actions = { count_one; count_two; ON_MISS; NoAction; }
        default_action = ON_MISS();
    }
    action choose(bit<32> by) { hdr.data.c = CHOSEN; }
    table chosen {
        key = { hdr.data.d: exact; }
        actions = { choose; NoAction; }
    }
    action read_first() { first.read(meta.x, hdr.data.a); SECOND_READ }
    action read_second() { second.read(meta.z, hdr.data.a); }

    apply {
        unused.write(0, 0);
        hash(meta.y, HashAlgorithm.crc32, OFFSET, { hdr.data.a }, RANGE);
        hdr.data.b = meta.y;
        counted.apply();
        chosen.apply();
        read_first();
#ifndef BROKEN
        read_second();
#endif
        hdr.data.a = meta.x;
        hdr.data.d = (bit<16>)meta.z;
    }
}

control WrittenEgress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }
control WrittenDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(WrittenParser(), WrittenVerify(), WrittenIngress(), WrittenEgress(), NoUpdate(),
         WrittenDeparser()) main;
