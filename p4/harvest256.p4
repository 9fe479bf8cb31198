// The slot pool of slots.p4 with 256 values per packet, the way that hardware takes them: a quarter of
// them in every pass through the switch.
//
// Way out. A switch's header vector and its stateful ALUs have room for 64 values, in 32 register
// pairs. So a pass takes the first 64 values off the packet and adds them, and the packet goes round
// with the rest, four times. Each quarter has its own bookkeeping, that of slots.p4: a packet that
// comes again adds to the quarters that it had not come to, and to no other. Workers join the last
// quarter last, so that when all are in it, all are in all of them.
//
// Way back. The packet that completes the last quarter, or finds it complete, has no values left.
// Two passes for each quarter, as in harvest.p4, put the sums in front of it, last quarter first, and
// add them up for the checksum. Then it leaves.
//
// Between two passes other packets may come in, in any order, and any packet may be lost. On its way
// back a packet looks into each quarter whether the chunk is still the same, and whether exactly those
// are in who are in the result; otherwise it gives up, and a worker will ask again. Who may still
// join is decided in the first quarter alone: it is the one that is closed when somebody asks for
// what is there. Then the result is complete once all who are in the first quarter are in the last.
//
// What a packet keeps between passes travels in front of it, where only the switch itself can put it.
//
// Control plane and registers are called as in slots.p4; the cells of the second quarter follow those
// of the first, and so on, so that slot and version have the same index as there.
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

const bit<8> BETWEEN_PASSES = 1; // the list of what a packet keeps on its way round

const bit<32> PART = 2 * SLOTS; // from the cells of one quarter to those of the next

// All of it is 0 when a packet comes in; what is listed is kept between the passes.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap;      // the bits that make a slot complete
    bit<16> group;
    bit<16> slot_excess;
    bit<32> slot_index;       // index of the slot and version
    bit<32> index;            // and of the quarter, in the register arrays that have one
    bit<32> chunk_signature;  // what all packets of a chunk have to agree on
    bit<1>  request_partial;  // asks for what is there
    bit<32> newest_sequence;  // chunk of the slot, this packet's included
    bit<1>  new_chunk;        // this packet's chunk is newer than what the slot held
    bit<1>  slot_open;        // agrees with the chunk's others, and the slot is not closed
    bit<1>  slot_closed;      // agrees, and the slot was closed before this packet
    bit<1>  worker_seen;
    bit<1>  overflow0;        // a sum has left int32, in the first quarter of the pass's values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    bit<16> checksum_so_far;  // of all words of the result that earlier passes have added
    bit<1>  adds_to_checksum; // the words of a quarter are there
    bit<1>  last_pass;        // this is the last pass
    @field_list(BETWEEN_PASSES)
    bit<9>  reply_port; // port of who sent the packet
    @field_list(BETWEEN_PASSES)
    bit<1>  recirculated; // this is not the first pass
    @field_list(BETWEEN_PASSES)
    bit<32> part_offset; // of the quarter's cells
    @field_list(BETWEEN_PASSES)
    bit<1>  last_part; // this is the last quarter
    @field_list(BETWEEN_PASSES)
    bit<1>  read_only; // seen, or late: adds nothing
    @field_list(BETWEEN_PASSES)
    bit<1>  late; // came when the first quarter was closed
    @field_list(BETWEEN_PASSES)
    bit<1>  closed_slot; // closed the first quarter
    @field_list(BETWEEN_PASSES)
    bit<32> result_bitmap; // who is in the result
    @field_list(BETWEEN_PASSES)
    bit<8>  result_flags; // flags that make it a result
    @field_list(BETWEEN_PASSES)
    bit<1>  multicast; // it made the result
    @field_list(BETWEEN_PASSES)
    bit<1>  returning; // is on its way back
    @field_list(BETWEEN_PASSES)
    bit<1>  prepends_part; // and puts another quarter in front, of which it takes the high words now
    @field_list(BETWEEN_PASSES)
    bit<1>  second_pass; // or has half of the quarter's words, and takes the others
}

#include "include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/pairs.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define RESULT_FLAGS meta.result_flags // which the slot's marks do not hold
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

    // Makes room for low words, where the high ones are taken first.
    action clear() { PAIRS(PAIR_CLEAR) }

    // Who the result will be of: those who are in once somebody asks for what is there, or all.
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
            // To go round, or to the one who asks once more, or too late.
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
                        standard_metadata.mcast_grp = meta.group; // this packet made the result
                    }
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
