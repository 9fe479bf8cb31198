// The slot pool of slots.p4 with 64 values per packet, the way that hardware takes them: 32 register
// pairs, and a second pass of every result through the switch.
//
// The first pass of a packet does all that slots.p4 does, but for sending the result: a stateful ALU
// updates both words of a pair and gives one. Where there is a result, the packet goes round once
// more, and the second pass takes out the other words.
//
// Between the two passes other packets may come in. What they find does not depend on whether the
// second pass was there, since it changes no register. And it finds what the first one left: a slot
// that is complete or closed keeps its values until a newer chunk takes it over. Then all workers
// have the older result already, and the second pass, which looks at the chunk again, gives up.
//
// Control plane and registers are called as in slots.p4, so that a job's commands are the same.
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

const bit<8> BETWEEN_PASSES = 1; // the list of what a packet keeps on its way round

// All of it is 0 when a packet comes in; what is listed is kept between the passes.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> worker_bit;
    bit<32> full_bitmap; // the bits that make a slot complete
    @field_list(BETWEEN_PASSES)
    bit<16> group;
    bit<16> slot_excess;
    @field_list(BETWEEN_PASSES)
    bit<32> index;           // of the slot and version, in every register array
    bit<32> chunk_signature; // what all packets of a chunk have to agree on
    bit<1>  request_partial; // asks for what is there
    bit<32> newest_sequence; // chunk of the slot, this packet's included
    bit<1>  new_chunk;       // this packet's chunk is newer than what the slot held
    bit<1>  slot_open;       // agrees with the chunk's others, and the slot is not closed
    bit<1>  slot_closed;     // agrees, and the slot was closed before this packet
    bit<1>  worker_seen;
    @field_list(BETWEEN_PASSES)
    bit<1>  read_only; // seen, or late: adds nothing
    bit<1>  overflow0; // a sum has left int32, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
    @field_list(BETWEEN_PASSES)
    bit<9>  reply_port; // port of who sent the packet
    @field_list(BETWEEN_PASSES)
    bit<1>  second_pass; // this is the second pass
    @field_list(BETWEEN_PASSES)
    bit<8>  result_flags; // flags that make it a result
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

    // What asks for a result has the high words by now, and makes room for the low ones.
    action clear() { PAIRS(PAIR_CLEAR) }

    // To all workers: this packet made the result.
    action multicast_result() {
        standard_metadata.mcast_grp = meta.group;
    }

    // To the one who asks for it once more, or too late; in the first pass, to go round.
    action resend_result() {
        standard_metadata.egress_spec = meta.reply_port;
    }

    apply {
        if (meta.second_pass == 1) {
            meta.drop_reason = DROP_OVERTAKEN; // unless the slot is what it was
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
