// The slot pool of slots.p4 with 64 values per packet in the form that hardware needs: 32 register
// pairs, and a second pass of every result through the switch.
//
// The first pass does everything that slots.p4 does, except for sending the result: a stateful ALU
// updates both words of a pair and returns one. If there is a result, the packet is recirculated, and
// the second pass reads the other words.
//
// Between the two passes other packets may arrive. The second pass changes no register, so they do not
// depend on it. And a slot that is complete or closed keeps its values until a newer chunk replaces
// them. By then all workers have the older result; the second pass checks the chunk again and drops
// the packet.
//
// Tables and registers have the names of slots.p4, so that a job's commands are the same.
//
// Compile-time parameters: as in slots.p4; VALUES is 64.

#include <core.p4>
#include <v1model.p4>

#define TWO_PASSES

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

const bit<8> BETWEEN_PASSES = 1; // the field list that recirculation preserves

// All fields are 0 when a packet arrives; recirculation preserves those of the field list.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap; // the bitmap of a complete slot
    @field_list(BETWEEN_PASSES)
    bit<16> group;       // multicast group of the job
    bit<16> slot_excess; // bits of the slot number outside the job's part of the pool
    @field_list(BETWEEN_PASSES)
    bit<32> index;           // of the slot and version, in every register array
    bit<32> chunk_signature; // operation, elements, all-reduce: equal in all packets of a chunk
    bit<1>  request_partial; // the packet asks for a partial result
    bit<32> newest_sequence; // the newest chunk of the slot, with this packet's
    bit<1>  new_chunk;       // this packet's chunk is newer than the slot's
    bit<1>  slot_open;       // the signature matches, and the slot is not closed
    bit<1>  slot_closed;     // the signature matches, and the slot was closed before this packet
    bit<1>  worker_seen;     // this worker is in already
    @field_list(BETWEEN_PASSES)
    bit<1>  read_only; // seen or late: adds nothing
    bit<1>  overflow0; // a sum has overflowed, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    @field_list(BETWEEN_PASSES)
    bit<9>  reply_port; // the sender's port
    @field_list(BETWEEN_PASSES)
    bit<1>  second_pass; // this is the second pass
    @field_list(BETWEEN_PASSES)
    bit<8>  result_flags; // FLAG_RESULT, FLAG_PARTIAL
}

#include "include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/pairs.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define RESULT_FLAGS meta.result_flags // added at egress, since the slot's marks do not hold them
#include "include/egress.p4"

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    counter(11, CounterType.packets_and_bytes) dropped;
    Admission() admission;
    Pool() pool;
    Pairs() values;
    Marks() marks;

    action count_and_drop() {
        dropped.count((bit<32>)meta.drop_reason);
        mark_to_drop(standard_metadata);
    }

    // A packet that only reads has the high words by now; the low words start from 0.
    action clear() { PAIRS(PAIR_CLEAR) }

    // To all workers, by the packet that completes the slot.
    action multicast_result() {
        standard_metadata.mcast_grp = meta.group;
    }

    // To one worker, which asks again or came too late; in the first pass, to be recirculated.
    action resend_result() {
        standard_metadata.egress_spec = meta.reply_port;
    }

    apply {
        if (meta.second_pass == 1) {
            meta.drop_reason = DROP_OVERTAKEN; // unless the slot still holds the chunk
            if (meta.read_only == 1) {
                clear();
            }
            pool.apply(hdr, meta);
        } else {
            meta.reply_port = standard_metadata.ingress_port;
            admission.apply(hdr, meta, standard_metadata);
            if (meta.drop_reason == NOT_DROPPED) {
                if (meta.slot_excess != 0) {
                    meta.drop_reason = DROP_SLOT_RANGE;
                } else {
                    pool.apply(hdr, meta);
                }
            }
        }
        if (meta.slot_open == 0 && meta.slot_closed == 0) {
            count_and_drop();
        } else {
            values.apply(hdr, meta);
            if (meta.second_pass == 1) {
                if (meta.read_only == 1) {
                    resend_result();
                } else {
                    multicast_result();
                }
            } else {
                marks.apply(hdr, meta);
                if (meta.slot_closed == 1 && meta.worker_seen == 0) {
                    dropped.count((bit<32>)DROP_LATE);
                }
                if (hdr.innet.bitmap == meta.full_bitmap) {
                    meta.result_flags = FLAG_RESULT;
                    resend_result();
                } else if (meta.slot_closed == 1 || meta.request_partial == 1) {
                    meta.result_flags = FLAG_RESULT | FLAG_PARTIAL;
                    resend_result();
                } else {
                    mark_to_drop(standard_metadata); // the slot waits for others
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
