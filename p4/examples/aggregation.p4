// Sums vectors of workers in the switch, as SwitchML does (NSDI 2021, algorithm 3), with a header
// of its own over Ethernet. A slot has two versions: that of the chunk which is summed now, and the
// shadow of the last one, from which lost results are sent again.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_AGGREGATION = 0x88b5;
const bit<32> SLOTS = 128; // of each version
const bit<16> EVERYBODY = 1; // multicast group

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header chunk_t {
    bit<8>  worker;
    bit<8>  version; // 0 or 1
    bit<16> slot;
    bit<32> offset; // of the chunk's first element; workers know by it which chunk came
}

header values_t {
    bit<32> v0;
    bit<32> v1;
    bit<32> v2;
    bit<32> v3;
    bit<32> v4;
    bit<32> v5;
    bit<32> v6;
    bit<32> v7;
}

struct headers_t {
    ethernet_t ethernet;
    chunk_t    chunk;
    values_t   values;
}

struct metadata_t {
    bit<32> workers; // that take part
    bit<1>  is_first;
}

parser AggregationParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_AGGREGATION: parse_chunk;
            default:          accept;
        }
    }

    state parse_chunk {
        packet.extract(hdr.chunk);
        packet.extract(hdr.values);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    register<bit<32>>(SLOTS * 2) counts; // of each slot and version: chunks summed
    register<bit<32>>(SLOTS * 2) seen;   // and whose
    register<bit<32>>(SLOTS * 2) sum0;
    register<bit<32>>(SLOTS * 2) sum1;
    register<bit<32>>(SLOTS * 2) sum2;
    register<bit<32>>(SLOTS * 2) sum3;
    register<bit<32>>(SLOTS * 2) sum4;
    register<bit<32>>(SLOTS * 2) sum5;
    register<bit<32>>(SLOTS * 2) sum6;
    register<bit<32>>(SLOTS * 2) sum7;

    action set_workers(bit<32> workers) {
        meta.workers = workers;
    }

    // Its default action says how many workers there are.
    table job {
        actions = { set_workers; }
        default_action = set_workers(2);
    }

#define ADD(REGISTER, VALUE)                          \
        {                                             \
            bit<32> before;                           \
            REGISTER.read(before, cell);              \
            if (meta.is_first == 1) { before = 0; }   \
            VALUE = VALUE + before;                   \
            REGISTER.write(cell, VALUE);              \
        }

    apply {
        if (!hdr.values.isValid() || (bit<32>)hdr.chunk.slot >= SLOTS || hdr.chunk.version > 1 ||
            hdr.chunk.worker >= 32) {
            mark_to_drop(standard_metadata);
            return;
        }
        job.apply();
        bit<32> slot = (bit<32>)hdr.chunk.slot;
        bit<32> cell = slot + (hdr.chunk.version == 1 ? SLOTS : 0);
        bit<32> shadow = slot + (hdr.chunk.version == 1 ? 0 : SLOTS);
        bit<32> bit_of_worker = 32w1 << hdr.chunk.worker;

        bit<32> who;
        bit<32> count;
        seen.read(who, cell);
        counts.read(count, cell);
        if (who & bit_of_worker == 0) {
            // A chunk that was not summed yet. Its worker has the result of the shadow's chunk.
            bit<32> who_of_shadow;
            seen.write(cell, who | bit_of_worker);
            seen.read(who_of_shadow, shadow);
            seen.write(shadow, who_of_shadow & ~bit_of_worker);
            meta.is_first = (bit<1>)(count == 0);
            ADD(sum0, hdr.values.v0)
            ADD(sum1, hdr.values.v1)
            ADD(sum2, hdr.values.v2)
            ADD(sum3, hdr.values.v3)
            ADD(sum4, hdr.values.v4)
            ADD(sum5, hdr.values.v5)
            ADD(sum6, hdr.values.v6)
            ADD(sum7, hdr.values.v7)
            count = count + 1;
            if (count == meta.workers) {
                count = 0;
                standard_metadata.mcast_grp = EVERYBODY;
            } else {
                mark_to_drop(standard_metadata);
            }
            counts.write(cell, count);
        } else if (count == 0) {
            // It was sent again, and the sum is complete: the result was lost, and goes to its
            // worker alone.
            sum0.read(hdr.values.v0, cell);
            sum1.read(hdr.values.v1, cell);
            sum2.read(hdr.values.v2, cell);
            sum3.read(hdr.values.v3, cell);
            sum4.read(hdr.values.v4, cell);
            sum5.read(hdr.values.v5, cell);
            sum6.read(hdr.values.v6, cell);
            sum7.read(hdr.values.v7, cell);
            standard_metadata.egress_spec = standard_metadata.ingress_port;
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

control EgressNothing(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control UpdateNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control AggregationDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.chunk);
        packet.emit(hdr.values);
    }
}

V1Switch(AggregationParser(), VerifyNothing(), Aggregation(), EgressNothing(), UpdateNothing(),
         AggregationDeparser()) main;
