// What ../slots.p4 does, in a form that p4c's compiler for a Tofino 1 takes (architecture TNA). It was
// compiled, and has not run on hardware: docs/tofino.md.
//
// Other than slots.p4: raw Ethernet only; no checksum, since the compiler verifies none under a condition;
// sums that would leave int32 stay at the end that they have reached.
//
// Compile-time parameters: PER_PASS (1, 2, 4, 8, 16, 24 or 32 values a packet), SLOT_BITS (2**SLOT_BITS slots),
// FLOATS: values are float32, see fpisa.p4.

#include <core.p4>
#include <tna.p4>

#include "include/header.p4"

#ifdef FLOATS
#define FLOAT_METADATA(i) \
    bit<32> exponent##i;   /* of the value that has arrived */ \
    int<32> mantissa##i;   /* likewise, as the sum's exponent needs it */ \
    bit<32> scale##i;      /* exponent of the sum, one below when it is normalized, with its sign above */ \
    bit<32> difference##i; /* of these */ \
    bit<1>  overwrite##i; \
    bit<1>  negative##i;   /* the sum */ \
    bit<1>  zero##i; \
    bit<1>  special##i;    /* it is no number */
#endif

// All fields are 0 when a packet arrives: the compiler promises that only if it is asked to.
@pa_auto_init_metadata
struct metadata_t {
    bit<1>  wellformed;
    bit<1>  admitted;
    bit<16> outside;          // bits of the slot that are not the job's
    bit<16> slot;             // in the whole pool
    bit<32> add;              // this worker's bit
    bit<5>  child;            // its number
    bit<1>  open;             // to this packet, before it
    bit<16> weight;           // how many workers the packet stands for
    bit<32> full_bitmap;
    bit<16> group;
    bit<1>  newer;            // the packet's chunk is newer than what the slot held
    bit<1>  fresh;            // that, as it is asked for after the members
    bit<32> newest;           // chunk of the slot, this packet's included
    bit<1>  stale;
    bit<1>  ends;             // asks for what is there
    bit<32> chunk_signature;  // what all of a chunk have to agree on
    bit<32> before;           // bitmap
    bit<32> before_signature;
    bit<32> difference;       // of the signatures: 0, or what is closed
    bit<1>  complete;
    bit<8>  marks;
    bit<3>  operation;        // of the values
    bit<32> keep;             // of their old words
#ifdef FLOATS
    REPEAT(FLOAT_METADATA)
#endif
}

#include "../include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/chunk.p4"
#include "include/slot_members.p4"
#ifdef FLOATS
#define FIRST_OPERATION VALUES_START
#include "include/slot.p4"
#include "include/floats.p4"
#else
#include "include/slot.p4"
#include "include/values.p4"
#endif

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     in ingress_intrinsic_metadata_t intrinsic,
                     in ingress_intrinsic_metadata_from_parser_t from_parser,
                     inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                     inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Chunk() chunk;
    Members() members;
    Slot() slot;
    Values() values;
    Counter<bit<32>, bit<8>>(16, CounterType_t.PACKETS_AND_BYTES) refused;

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) signature;

    action admit(bit<32> worker_bit, bit<5> worker_number, bit<32> full_bitmap, bit<16> group,
                 bit<16> slot_base, bit<16> outside_mask) {
        meta.admitted = 1;
        meta.add = worker_bit;
        meta.child = worker_number;
        meta.weight = 1;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot = slot_base | hdr.innet.slot;
        meta.outside = hdr.innet.slot & outside_mask;
        // By the hash unit, so that it is one word and no view of several fields.
        meta.chunk_signature = signature.get({
            hdr.innet.message, hdr.innet.operation, hdr.innet.elements[6:0], 1w0});
    }

    table admission {
        key = {
            intrinsic.ingress_port: exact;
            hdr.innet.owner: exact;
            hdr.innet.worker: exact;
        }
        actions = { admit; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    action sign() {
        meta.ends = hdr.innet.flags[5:5];
        meta.marks = hdr.innet.flags & MARKS;
    }

    action publish(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        for_tm.mcast_grp_a = meta.group;
    }
    action answer(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        for_tm.ucast_egress_port = intrinsic.ingress_port;
    }
    action drop() {
        for_deparser.drop_ctl = 1;
    }
    action refuse(bit<8> reason) {
        refused.count(reason);
        for_deparser.drop_ctl = 1;
    }
    table route {
        key = {
            meta.wellformed: ternary;
            meta.admitted: ternary;
            meta.outside: ternary;
            meta.stale: ternary;
            meta.fresh: ternary;
            meta.difference: ternary;
            meta.complete: ternary;
            meta.operation: ternary;
            meta.ends: ternary;
        }
        actions = { publish; answer; drop; refuse; }
        const entries = {
            (0, _, _, _, _, _, _, _, _): refuse(DROP_MALFORMED);
            (1, 0, _, _, _, _, _, _, _): refuse(DROP_NOT_ADMITTED);
            (1, 1, 0, 1, _, _, _, _, _): refuse(DROP_STALE);
            (1, 1, 0, 0, 1, _, 1, _, _): publish(FLAG_RESULT);
            (1, 1, 0, 0, 1, _, 0, _, 1): publish(FLAG_RESULT | FLAG_PARTIAL);
            (1, 1, 0, 0, 1, _, 0, _, 0): drop();
            (1, 1, 0, 0, 0, 0, 1, VALUES_READ, _): answer(FLAG_RESULT);
            (1, 1, 0, 0, 0, 0, 1, _, _): publish(FLAG_RESULT);
            (1, 1, 0, 0, 0, 0, 0, _, 1): publish(FLAG_RESULT | FLAG_PARTIAL);
            (1, 1, 0, 0, 0, 0, 0, _, 0): drop();
            (1, 1, 0, 0, 0, CLOSED, 1, _, _): answer(FLAG_RESULT);
            (1, 1, 0, 0, 0, CLOSED, 0, _, _): answer(FLAG_RESULT | FLAG_PARTIAL);
            (1, 1, 0, 0, 0, _, _, _, _): refuse(DROP_MISMATCH);
        }
        const default_action = refuse(DROP_SLOT_RANGE);
    }

    apply {
        admission.apply();
        sign();
        if (meta.wellformed == 1 && meta.admitted == 1 && meta.outside == 0) {
            chunk.apply(hdr, meta);
            if (meta.newest == hdr.innet.sequence) {
                meta.fresh = meta.newer;
                members.apply(hdr, meta);
                slot.apply(hdr, meta);
                if (hdr.innet.bitmap == meta.full_bitmap) {
                    meta.complete = 1;
                }
                values.apply(hdr, meta);
            } else {
                meta.stale = 1;
            }
        }
        route.apply();
    }
}

Pipeline(IngressParser(), SlotsIngress(), IngressDeparser(), EgressParser(), Egress(),
         EgressDeparser()) pipe;

Switch(pipe) main;
