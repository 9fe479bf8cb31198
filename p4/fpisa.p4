// The slot pool of slots.p4, which also adds floats: float32, bf16 and fp16, without a scale that workers
// agree on, as in FPISA (Yuan et al., NSDI 2022).
//
// Which chunk a slot holds, who is in and when its result leaves is as in slots.p4. Tables and registers
// have its names, so that a job's commands are the same. include/floats.p4 says how floats are added.
//
// Compile-time parameters: as in slots.p4; FLOATS is 1.

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

// After those of integers and of chunks with an owner.
const bit<8> OPERATION_SUM_FLOAT32 = 7;
const bit<8> OPERATION_SUM_BF16    = 8; // two in a word
const bit<8> OPERATION_SUM_FP16    = 9; // likewise
const bit<8> OPERATION_SUM_BF16_STOCHASTIC = 10; // rounded by chance
const bit<8> OPERATION_SUM_FP16_STOCHASTIC = 11;

#define SCALE_FIELD(i) bit<32> scale##i;
#define UPPER_FIELD(i) bit<32> upper##i;
#define UPPER_SCALE_FIELD(i) bit<32> upper_scale##i;

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
    // The format of floats, see FloatValues.
    bit<5>  fraction; // bits of it
    bit<5>  widening; // to the bits of a slot's mantissa
    bit<32> number_mask;
    bit<32> sign_bit;
    bit<32> leading_bit; // that numbers do not show
    bit<32> quiet_bit;   // of what is no number
    bit<32> fraction_mask;
    bit<32> infinity;
    bit<32> bias;
    bit<32> least_exponent;
    bit<32> least_normal; // highest bit of a sum that is the largest subnormal number, with the exponent
    // The sums, until they are rounded. Mantissas of low halves are in the place of the values.
    REPEAT(SCALE_FIELD)
    REPEAT(UPPER_FIELD)
    REPEAT(UPPER_SCALE_FIELD)
}

#include "include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/malformed.p4"

#undef OPERATION_MALFORMED
#define OPERATION_MALFORMED \
    hdr.innet.operation == 0 || hdr.innet.operation > OPERATION_SUM_FP16_STOCHASTIC \
    || (hdr.innet.operation > OPERATION_MAX && hdr.innet.operation < OPERATION_SUM_FLOAT32)

#include "include/admission.p4"
#include "include/pool.p4"
#include "include/floats.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define RESULT_FLAGS meta.result_flags // added at egress, since the slot's marks do not hold them
#include "include/egress.p4"

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) dropped;
    Admission() admission;
    Pool() pool;
    FloatValues() values;
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
            // The fourth bit of the operation, in the place of a bit of `elements` that is 0.
            meta.chunk_signature = meta.chunk_signature | (bit<32>)hdr.innet.operation[3:3] << 27;
            if (meta.slot_excess != 0) {
                meta.drop_reason = DROP_SLOT_RANGE;
            } else {
                pool.apply(hdr, meta);
            }
        }
        if (meta.slot_open == 0 && meta.slot_closed == 0) {
            count_and_drop();
        } else {
            // Egress adds these flags, so that the slot does not keep them.
            if (hdr.innet.bitmap == meta.full_bitmap) {
                meta.result_flags = FLAG_RESULT;
            } else if (meta.slot_closed == 1 || meta.request_partial == 1) {
                meta.result_flags = FLAG_RESULT | FLAG_PARTIAL;
            }
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.slot_closed == 1 && meta.worker_seen == 0) {
                dropped.count((bit<32>)DROP_LATE);
            }
            if (meta.result_flags == 0) {
                mark_to_drop(standard_metadata); // the slot waits for others
            } else if (meta.slot_closed == 1
                       || (meta.read_only == 1 && hdr.innet.bitmap == meta.full_bitmap)) {
                resend_result();
            } else {
                multicast_result();
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
