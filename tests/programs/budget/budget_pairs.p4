// 64 values in 32 register pairs. BOTH: a packet gets both words of a pair at once. Otherwise it
// gets the first ones, and the others after a recirculation.

#include <core.p4>
#include <v1model.p4>

#define R4(M, n) M(n##0) M(n##1) M(n##2) M(n##3)
#define R16(M, n) R4(M, n##0) R4(M, n##1) R4(M, n##2) R4(M, n##3)
#define REPEAT(M) R16(M, 0) R16(M, 1)

#define FIELD(i) bit<32> a##i; bit<32> b##i;
#define ARRAY(i) register<bit<64>>(1024) pair##i;
#ifdef BOTH
#define ADD(i) pair##i.read(held, meta.index); \
    held = (held[63:32] + hdr.values.a##i) ++ (held[31:0] + hdr.values.b##i); \
    pair##i.write(meta.index, held); \
    hdr.values.a##i = held[63:32]; \
    hdr.values.b##i = held[31:0];
#else
#define ADD(i) pair##i.read(held, meta.index); \
    held = (held[63:32] + hdr.values.a##i) ++ (held[31:0] + hdr.values.b##i); \
    pair##i.write(meta.index, held); \
    hdr.values.a##i = held[63:32];
#endif
#define HARVEST(i) pair##i.read(held, meta.index); hdr.values.b##i = held[31:0];

header pool_t { bit<16> slot; bit<16> again; }
header values_t { REPEAT(FIELD) }
struct headers_t { pool_t pool; values_t values; }
struct metadata_t { bit<32> index; }

parser PairsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.pool);
        packet.extract(hdr.values);
        transition accept;
    }
}

control PairsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    REPEAT(ARRAY)
    action add() { bit<64> held; REPEAT(ADD) }
    action harvest() { bit<64> held; REPEAT(HARVEST) }

    apply {
        meta.index = (bit<32>)hdr.pool.slot;
        if (hdr.pool.again == 0) {
            add();
        } else {
            harvest();
        }
        standard_metadata.egress_spec = 1;
    }
}

control PairsEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    apply {
#ifndef BOTH
        if (hdr.pool.again == 0) {
            hdr.pool.again = 1;
            recirculate_preserving_field_list(0);
        }
#endif
    }
}
control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }
control PairsDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.pool); packet.emit(hdr.values); }
}

V1Switch(PairsParser(), NoChecksum(), PairsIngress(), PairsEgress(), NoChecksum(),
         PairsDeparser()) main;
