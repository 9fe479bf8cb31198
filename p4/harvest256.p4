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
    bit<8>  refusal;
    bit<32> worker_bit;
    bit<32> everybody; // the bits that make a slot complete
    bit<16> group;
    bit<16> outside;
    bit<32> whole;  // index of the slot and version
    bit<32> index;  // and of the quarter, in the register arrays that have one
    bit<32> said;   // what all packets of a chunk have to agree on
    bit<1>  closes; // asks for what is there
    bit<32> newest; // chunk of the slot, this packet's included
    bit<1>  fresh;  // this packet's chunk is newer than what the slot held
    bit<1>  open;   // agrees with the chunk's others, and the slot is not closed
    bit<1>  closed; // agrees, and the slot was closed before this packet
    bit<1>  seen;
    bit<1>  left0;  // a sum has left int32, in the first quarter of the pass's values
    bit<1>  left1;
    bit<1>  left2;
    bit<1>  left3;
    bit<16> summed; // of all words of the result that earlier passes have added
    bit<1>  sums;   // the words of a quarter are there
    bit<1>  leaves; // this is the last pass
    @field_list(BETWEEN_PASSES)
    bit<9>  asker;  // port of who sent the packet
    @field_list(BETWEEN_PASSES)
    bit<1>  inside; // this is not the first pass
    @field_list(BETWEEN_PASSES)
    bit<32> offset; // of the quarter's cells
    @field_list(BETWEEN_PASSES)
    bit<1>  last;   // this is the last quarter
    @field_list(BETWEEN_PASSES)
    bit<1>  reads;  // seen, or late: adds nothing
    @field_list(BETWEEN_PASSES)
    bit<1>  late;   // came when the first quarter was closed
    @field_list(BETWEEN_PASSES)
    bit<1>  closer; // closed the first quarter
    @field_list(BETWEEN_PASSES)
    bit<32> target; // who is in the result
    @field_list(BETWEEN_PASSES)
    bit<8>  told;   // flags that make it a result
    @field_list(BETWEEN_PASSES)
    bit<1>  to_all; // it made the result
    @field_list(BETWEEN_PASSES)
    bit<1>  answers; // is on its way back
    @field_list(BETWEEN_PASSES)
    bit<1>  adds;   // and puts another quarter in front, of which it takes the high words now
    @field_list(BETWEEN_PASSES)
    bit<1>  second; // or has half of the quarter's words, and takes the others
}

#include "include/refusals.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/pairs.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define TOLD meta.told // which the slot's marks do not hold
#include "include/egress.p4"

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    counter(11, CounterType.packets_and_bytes) refused;
    Admission() admission;
    Pool() pool;
    Pairs() values;
    Marks() marks;

    action refuse() {
        refused.count((bit<32>)meta.refusal);
        mark_to_drop(standard_metadata);
    }

    // Makes room for low words, where the high ones are taken first.
    action clear() { PAIRS(PAIR_CLEAR) }

    // Who the result will be of: those who are in once somebody asks for what is there, or all.
    action wait_for_all() {
        meta.target = meta.everybody;
        meta.told = FLAG_RESULT;
    }
    action take_what_is_there() {
        meta.late = meta.closed & ~meta.seen;
        meta.closer = ~meta.closed;
        meta.target = hdr.innet.bitmap;
        meta.told = FLAG_RESULT | FLAG_PARTIAL;
    }

    action go_on() {
        hdr.values.setInvalid();
        meta.inside = 1;
        meta.last = (bit<1>)(meta.offset == 2 * PART);
        meta.offset = meta.offset + PART;
    }
    action turn_round() {
        hdr.innet.bitmap = meta.target;
        hdr.innet.checksum = 0xFFFF; // of no words
        meta.to_all = ~meta.reads | meta.closer;
        meta.answers = 1;
        meta.second = 1;
    }
    action add_quarter() {
        meta.last = 0;
        meta.offset = meta.offset - PART;
        meta.reads = 1;
        meta.adds = 1;
        meta.second = 0;
    }
    action take_others() {
        meta.adds = 0;
        meta.second = 1;
    }

    apply {
        meta.summed = ~hdr.innet.checksum;
        admission.apply(hdr, meta, standard_metadata);
        if (meta.adds == 1) {
            hdr.values.setValid();
        }
        if (meta.answers == 1 && meta.reads == 1) {
            clear();
        }
        if (meta.refusal == REFUSED_NOT) {
            if (meta.outside != 0) {
                meta.refusal = REFUSED_SLOT;
            } else {
                pool.apply(hdr, meta);
            }
        }
        if (meta.open == 0 && meta.closed == 0) {
            refuse();
        } else {
            // To go round, or to the one who asks once more, or too late.
            standard_metadata.egress_spec = meta.asker;
            values.apply(hdr, meta);
            if (meta.answers == 0) {
                marks.apply(hdr, meta);
                if (meta.inside == 0) {
                    if ((meta.closed == 1 || meta.closes == 1)
                            && hdr.innet.bitmap != meta.everybody) {
                        take_what_is_there();
                    } else {
                        wait_for_all();
                    }
                    if (meta.closed == 1 && meta.seen == 0) {
                        refused.count((bit<32>)REFUSED_LATE);
                    }
                }
                if (meta.last == 0) {
                    go_on();
                } else if (meta.late == 1 || hdr.innet.bitmap == meta.target) {
                    turn_round();
                } else {
                    mark_to_drop(standard_metadata); // the slot waits for others
                }
            } else if (meta.second == 0) {
                take_others();
            } else {
                meta.sums = 1;
                if (meta.offset != 0) {
                    add_quarter();
                } else {
                    meta.leaves = 1;
                    if (meta.to_all == 1) {
                        standard_metadata.mcast_grp = meta.group; // this packet made the result
                    }
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
