// The slot pool: streaming aggregation as in SwitchML (Sapio et al., NSDI 2021), for several jobs.
//
// Workers stream the chunks of a vector through a pool of slots. A slot combines the contributions of
// all workers (SUM, OR or MAX, by the packet's operation field) and multicasts the result when the last
// one is in. Each slot has two shadow copies, so that a worker that lost a result can still ask for it
// while the others are one chunk ahead.
//
// Compile-time parameters: VALUES (32, 64, 256 or 1024 per packet), SLOTS (of the whole pool),
// ECN_DEPTH (packets in the egress queue from which on results are marked), COLLECTIVES (the operations
// reduce, broadcast and barrier, whose packets carry values for some of the workers only).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

// All fields are 0 when a packet arrives.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap;     // the bitmap of a complete slot
    bit<16> group;           // multicast group of the job
    bit<16> slot_excess;     // bits of the slot number outside the job's part of the pool
    bit<32> index;           // of the slot and version, in every register array
    bit<32> chunk_signature; // operation, elements, all-reduce: equal in all packets of a chunk
    bit<1>  request_partial; // the packet asks for a partial result
    bit<32> newest_sequence; // the newest chunk of the slot, with this packet's
    bit<1>  new_chunk;       // this packet's chunk is newer than the slot's
    bit<1>  slot_open;       // the signature matches, and the slot is not closed
    bit<1>  slot_closed;     // the signature matches, and the slot was closed before this packet
    bit<1>  worker_seen;     // this worker is in already
    bit<1>  read_only;       // seen or late: adds nothing
    bit<1>  overflow0;       // a sum has overflowed, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    bit<8>  result_flags;    // FLAG_RESULT, FLAG_PARTIAL
#ifdef COLLECTIVES
    bit<1>  without_values;  // the packet ends with innet's header
    bit<1>  other_owner;     // the chunk's first packet named another owner
#endif
}

#include "include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/values.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define RESULT_FLAGS meta.result_flags // added at egress, since the slot's marks do not hold them
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

    // To all workers, by the packet that completes the slot.
    action multicast_result() {
        standard_metadata.mcast_grp = meta.group;
    }

    // To one worker, which asks again or came too late.
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
#ifdef COLLECTIVES
            // Without values a packet begins a chunk, or becomes its result, or leaves them alone.
            if (meta.without_values == 0) {
                values.apply(hdr, meta);
            } else if (meta.new_chunk == 1 || meta.slot_closed == 1 || meta.request_partial == 1
                       || hdr.innet.bitmap == meta.full_bitmap) {
                hdr.values.setValid();
                values.apply(hdr, meta);
            }
#else
            values.apply(hdr, meta);
#endif
            marks.apply(hdr, meta);
            if (meta.slot_closed == 1 && meta.worker_seen == 0) {
                dropped.count((bit<32>)DROP_LATE);
            }
            // Egress adds these flags, so that the slot does not keep them.
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
