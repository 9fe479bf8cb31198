// A pool as small as it can be: who is in, how many, and VALUES values (4, 32 or 64) per packet, each
// in a register array of its own.

#include <core.p4>
#include <v1model.p4>

#define R4(M, n) M(n##0) M(n##1) M(n##2) M(n##3)
#define R16(M, n) R4(M, n##0) R4(M, n##1) R4(M, n##2) R4(M, n##3)
#if VALUES == 4
#define REPEAT(M) R4(M, 0)
#elif VALUES == 32
#define REPEAT(M) R16(M, 0) R16(M, 1)
#else
#define REPEAT(M) R16(M, 0) R16(M, 1) R16(M, 2) R16(M, 3)
#endif

#define FIELD(i) bit<32> v##i;
#define ARRAY(i) register<bit<32>>(1024) value##i;
#define WRITE(i) value##i.write(meta.index, hdr.values.v##i);
#define ADD(i) value##i.read(held, meta.index); \
    hdr.values.v##i = held + hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);

header pool_t { bit<16> slot; bit<16> workers; bit<32> bit_of_worker; }
header values_t { REPEAT(FIELD) }
struct headers_t { pool_t pool; values_t values; }
struct metadata_t { bit<32> index; bit<32> bitmap; bit<16> count; bit<1> fresh; }

parser PoolParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.pool);
        packet.extract(hdr.values);
        transition accept;
    }
}

control PoolIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1024) bitmap;
    register<bit<16>>(1024) count;
    REPEAT(ARRAY)

    action join() {
        bitmap.read(meta.bitmap, meta.index);
        bitmap.write(meta.index, meta.bitmap | hdr.pool.bit_of_worker);
    }
    action number() {
        count.read(meta.count, meta.index);
        meta.count = meta.count == hdr.pool.workers ? 1 : meta.count + 1;
        count.write(meta.index, meta.count);
    }
    action overwrite() { REPEAT(WRITE) }
    action add() { bit<32> held; REPEAT(ADD) }
    table combine {
        key = { meta.bitmap: exact; }
        actions = { overwrite; add; }
        const default_action = add();
        const entries = { 0: overwrite(); }
    }

    apply {
        meta.index = (bit<32>)hdr.pool.slot;
        join();
        number();
        combine.apply();
        standard_metadata.egress_spec = 1;
    }
}

control PoolEgress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) { apply { } }
control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }
control PoolDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.pool); packet.emit(hdr.values); }
}

V1Switch(PoolParser(), NoChecksum(), PoolIngress(), PoolEgress(), NoChecksum(),
         PoolDeparser()) main;
