// The slot pool: streaming aggregation as in SwitchML (Sapio et al., NSDI 2021), for several jobs.
//
// Workers stream chunks of a vector through a pool of slots. A slot combines the chunk of all
// workers (SUM, OR or MAX, by the packet's operation field) and multicasts the result when the last
// one is in. Each slot has two shadow copies, so that a worker who lost a result can still ask for
// it while the others are one chunk ahead.
//
// Compile-time parameters: VALUES (32, 64, 256 or 1024 per packet), SLOTS (of the whole pool),
// ECN_DEPTH (packets that wait on the way out of the switch, from which on results are marked).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

// All of it is 0 when a packet comes in.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap;     // the bits that make a slot complete
    bit<16> group;
    bit<16> slot_excess;
    bit<32> index;           // of the slot and version, in every register array
    bit<32> chunk_signature; // what all packets of a chunk have to agree on
    bit<1>  request_partial; // asks for what is there
    bit<32> newest_sequence; // chunk of the slot, this packet's included
    bit<1>  new_chunk;       // this packet's chunk is newer than what the slot held
    bit<1>  slot_open;       // agrees with the chunk's others, and the slot is not closed
    bit<1>  slot_closed;     // agrees, and the slot was closed before this packet
    bit<1>  worker_seen;
    bit<1>  read_only;       // seen, or late: adds nothing
    bit<1>  overflow0;       // a sum has left int32, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    bit<8>  result_flags;    // flags that make it a result
}

#include "include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/values.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define RESULT_FLAGS meta.result_flags // which the slot's marks do not hold
#include "include/egress.p4"

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) dropped;
    Admission() admission;
    Pool() pool;
    Values() values;
    Marks() marks;

    action count_and_drop() {
        dropped.count((bit<32>)meta.drop_reason);
        mark_to_drop(standard_metadata);
    }

    // To all workers: this packet made the result.
    action multicast_result() {
        standard_metadata.mcast_grp = meta.group;
    }

    // To the one who asks for it once more, or too late.
    action resend_result() {
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    apply {
        admission.apply(hdr, meta, standard_metadata);
        if (meta.drop_reason == NOT_DROPPED) {
            if (meta.slot_excess != 0) {
                meta.drop_reason = DROP_SLOT_RANGE;
            } else {
                pool.apply(hdr, meta);
            }
        }
        if (meta.slot_open == 0 && meta.slot_closed == 0) {
            count_and_drop();
        } else {
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.slot_closed == 1 && meta.worker_seen == 0) {
                dropped.count((bit<32>)DROP_LATE);
            }
            // The flags of a result are set on the way out, where those that stay with a slot are known.
            if (hdr.innet.bitmap == meta.full_bitmap) {
                meta.result_flags = FLAG_RESULT;
                if (meta.read_only == 1) {
                    resend_result();
                } else {
                    multicast_result();
                }
            } else if (meta.slot_closed == 1) {
                meta.result_flags = FLAG_RESULT | FLAG_PARTIAL;
                resend_result();
            } else if (meta.request_partial == 1) {
                meta.result_flags = FLAG_RESULT | FLAG_PARTIAL;
                multicast_result();
            } else {
                mark_to_drop(standard_metadata); // the slot waits for others
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
