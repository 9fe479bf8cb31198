// The slot pool of slots.p4 with 256 values per packet in the form that hardware needs: each pass
// through the switch takes a quarter of them.
//
// Adding. A switch's header vector and its stateful ALUs have room for 64 values, in 32 register
// pairs. So a pass removes the first 64 values from the packet and adds them, and the packet is
// recirculated with the rest, four passes in all. Each quarter has its own bookkeeping, that of
// slots.p4: a packet that is sent again adds only to the quarters that it has not reached before.
// Workers join the last quarter last, so that all workers are in all quarters once they are in it.
//
// Returning. The packet that completes the last quarter, or finds it complete, has no values left. Two
// passes for each quarter, as in harvest.p4, put the sums in front of it, last quarter first, and add
// them to the checksum. Then it leaves.
//
// Between two passes other packets may arrive, in any order, and any packet may be lost. In each
// quarter, a returning packet checks that the chunk is still the same, and that exactly the workers of
// the result are in; otherwise it is dropped, and a worker will ask again. The first quarter alone
// decides who may still join: a request for a partial result closes it. The result is complete once
// all workers of the first quarter are in the last one.
//
// What a packet keeps between two passes is metadata, which only the switch itself can set.
//
// Tables and registers have the names of slots.p4. The cells of the second quarter follow those of the
// first, and so on, so that slot and version have the same index as there.
//
// Compile-time parameters: as in slots.p4; VALUES is 256.

#include <core.p4>
#include <v1model.p4>

#define PER_PASS 64

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

const bit<8> BETWEEN_PASSES = 1; // the field list that recirculation preserves

const bit<32> PART = 2 * SLOTS; // the distance from the cells of one quarter to those of the next

// All fields are 0 when a packet arrives; recirculation preserves those of the field list.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap;      // the bitmap of a complete slot
    bit<16> group;            // multicast group of the job
    bit<16> slot_excess;      // bits of the slot number outside the job's part of the pool
    bit<32> slot_index;       // of the slot and version
    bit<32> index;            // of the slot, version and quarter
    bit<32> chunk_signature;  // operation, elements, all-reduce: equal in all packets of a chunk
    bit<1>  request_partial;  // the packet asks for a partial result
    bit<32> newest_sequence;  // the newest chunk of the slot, with this packet's
    bit<1>  new_chunk;        // this packet's chunk is newer than the slot's
    bit<1>  slot_open;        // the signature matches, and the slot is not closed
    bit<1>  slot_closed;      // the signature matches, and the slot was closed before this packet
    bit<1>  worker_seen;      // this worker is in already
    bit<1>  overflow0;        // a sum has overflowed, in the first quarter of the pass's values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    bit<16> checksum_so_far;  // of the words of the result that earlier passes have put in front
    bit<1>  adds_to_checksum; // both passes of a quarter are done
    bit<1>  last_pass;        // this is the last pass
    @field_list(BETWEEN_PASSES)
    bit<9>  reply_port; // the sender's port
    @field_list(BETWEEN_PASSES)
    bit<1>  recirculated; // this is not the first pass
    @field_list(BETWEEN_PASSES)
    bit<32> part_offset; // of the quarter's cells
    @field_list(BETWEEN_PASSES)
    bit<1>  last_part; // this is the last quarter
    @field_list(BETWEEN_PASSES)
    bit<1>  read_only; // seen or late: adds nothing
    @field_list(BETWEEN_PASSES)
    bit<1>  late; // arrived after the first quarter was closed
    @field_list(BETWEEN_PASSES)
    bit<1>  closed_slot; // closed the first quarter
    @field_list(BETWEEN_PASSES)
    bit<32> result_bitmap; // the workers in the result
    @field_list(BETWEEN_PASSES)
    bit<8>  result_flags; // FLAG_RESULT, FLAG_PARTIAL
    @field_list(BETWEEN_PASSES)
    bit<1>  multicast; // this packet completed the slot, or closed it
    @field_list(BETWEEN_PASSES)
    bit<1>  returning; // collects the result
    @field_list(BETWEEN_PASSES)
    bit<1>  prepends_part; // puts another quarter in front, and reads its high words now
    @field_list(BETWEEN_PASSES)
    bit<1>  second_pass; // has the high words of the quarter, and reads the low ones now
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

    // The low words start from 0 where the high words are read first.
    action clear() { PAIRS(PAIR_CLEAR) }

    // The workers of the result: all, or those that are in when a partial result is requested.
    action wait_for_all() {
        meta.result_bitmap = meta.full_bitmap;
        meta.result_flags = FLAG_RESULT;
    }
    action close_with_those_present() {
        meta.late = meta.slot_closed & ~meta.worker_seen;
        meta.closed_slot = ~meta.slot_closed;
        meta.result_bitmap = hdr.innet.bitmap;
        meta.result_flags = FLAG_RESULT | FLAG_PARTIAL;
    }

    action next_part() {
        hdr.values.setInvalid();
        meta.recirculated = 1;
        meta.last_part = (bit<1>)(meta.part_offset == 2 * PART);
        meta.part_offset = meta.part_offset + PART;
    }
    action start_return() {
        hdr.innet.bitmap = meta.result_bitmap;
        hdr.innet.checksum = 0xFFFF; // of no words
        meta.multicast = ~meta.read_only | meta.closed_slot;
        meta.returning = 1;
        meta.second_pass = 1;
    }
    action prepend_part() {
        meta.last_part = 0;
        meta.part_offset = meta.part_offset - PART;
        meta.read_only = 1;
        meta.prepends_part = 1;
        meta.second_pass = 0;
    }
    action take_low_words() {
        meta.prepends_part = 0;
        meta.second_pass = 1;
    }

    apply {
        meta.checksum_so_far = ~hdr.innet.checksum;
        admission.apply(hdr, meta, standard_metadata);
        if (meta.prepends_part == 1) {
            hdr.values.setValid();
        }
        if (meta.returning == 1 && meta.read_only == 1) {
            clear();
        }
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
            // To be recirculated, or to the one worker that asks again or came too late.
            standard_metadata.egress_spec = meta.reply_port;
            values.apply(hdr, meta);
            if (meta.returning == 0) {
                marks.apply(hdr, meta);
                if (meta.recirculated == 0) {
                    if ((meta.slot_closed == 1 || meta.request_partial == 1)
                            && hdr.innet.bitmap != meta.full_bitmap) {
                        close_with_those_present();
                    } else {
                        wait_for_all();
                    }
                    if (meta.slot_closed == 1 && meta.worker_seen == 0) {
                        dropped.count((bit<32>)DROP_LATE);
                    }
                }
                if (meta.last_part == 0) {
                    next_part();
                } else if (meta.late == 1 || hdr.innet.bitmap == meta.result_bitmap) {
                    start_return();
                } else {
                    mark_to_drop(standard_metadata); // the slot waits for others
                }
            } else if (meta.second_pass == 0) {
                take_low_words();
            } else {
                meta.adds_to_checksum = 1;
                if (meta.part_offset != 0) {
                    prepend_part();
                } else {
                    meta.last_pass = 1;
                    if (meta.multicast == 1) {
                        standard_metadata.mcast_grp = meta.group; // this packet completed the slot
                    }
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
