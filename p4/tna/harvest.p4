// What ../harvest.p4 does, in a form for p4c's compiler for a Tofino 1 (architecture TNA). It has not run on
// hardware: docs/tofino.md.
//
// 64 values in 32 register pairs. The first pass of a packet does everything that slots.p4 does, except for
// sending the result. If there is a result, the packet is recirculated. A second pass reads the other words;
// where the first one has read none (of a packet that adds nothing) or the low ones (of an OR), there are two.
// Later passes change no register: what they add is neutral, or stands there already. They find out whether the
// slot still holds the chunk, and drop the packet otherwise.
//
// Other than ../harvest.p4: raw Ethernet only; no checksum; sums that would leave int32 stop at its end.
//
// Compile-time parameter: SLOT_BITS (2**SLOT_BITS slots).

#include <core.p4>
#include <tna.p4>

#define SEVERAL_PASSES
#define PER_PASS 64
#define FIRST_OPERATION VALUES_START

#include "include/header.p4"

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
    bit<32> keep;             // not for pairs
    bit<1>  finds;            // a later pass, which only finds what the first one left
    bit<1>  other;            // it finds another chunk
    bit<1>  last_pass;
}

#include "../include/drop_reasons.p4"
#include "include/parser.p4"
#include "include/chunk.p4"
#include "include/slot_members.p4"
#include "include/slot.p4"
#include "include/pairs.p4"

const bit<8> DROP_OVERTAKEN = 10; // the slot changed between two passes of a result

control HarvestIngress(inout headers_t hdr, inout metadata_t meta,
                     in ingress_intrinsic_metadata_t intrinsic,
                     in ingress_intrinsic_metadata_from_parser_t from_parser,
                     inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                     inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Chunk() chunk;
    Members() members;
    Slot() slot;
    Pairs() values;
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

    // The result, to be completed by the next pass, for all workers or for the one that asks again.
    action publish(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        hdr.harvest.setValid();
        hdr.harvest.slot = meta.slot;
        hdr.harvest.group = meta.group;
        hdr.harvest.padding = 0;
        hdr.harvest.port = 0;
        hdr.harvest.padding_too = 0;
        hdr.harvest.operation = meta.operation;
        for_tm.ucast_egress_port = RECIRCULATION;
        for_tm.bypass_egress = 1;
    }
    action answer(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        hdr.harvest.setValid();
        hdr.harvest.slot = meta.slot;
        hdr.harvest.group = 0;
        hdr.harvest.padding = 0;
        hdr.harvest.port = intrinsic.ingress_port;
        hdr.harvest.padding_too = 0;
        hdr.harvest.operation = meta.operation;
        for_tm.ucast_egress_port = RECIRCULATION;
        for_tm.bypass_egress = 1;
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

    // A later pass: which words are missing.
    action read_high() {
        meta.slot = hdr.harvest.slot;
        meta.operation = VALUES_SUM;
        hdr.harvest.operation = VALUES_SUM;
        PAIRS(PAIR_CLEAR_LOW)
        PAIRS(PAIR_CLEAR_HIGH)
    }
    action read_low() {
        meta.slot = hdr.harvest.slot;
        meta.operation = VALUES_OR;
        meta.last_pass = 1;
        PAIRS(PAIR_CLEAR_LOW)
    }
    table resume {
        key = { hdr.harvest.operation: exact; }
        actions = { read_high; read_low; @defaultonly NoAction; }
        const entries = {
            VALUES_READ: read_high();
            VALUES_OR: read_high();
            VALUES_START: read_low();
            VALUES_SUM: read_low();
            VALUES_MAX: read_low();
        }
        const default_action = NoAction();
    }

    action once_more() {
        for_tm.ucast_egress_port = RECIRCULATION;
        for_tm.bypass_egress = 1;
    }
    action send_to_all() {
        for_tm.mcast_grp_a = hdr.harvest.group;
        hdr.harvest.setInvalid();
    }
    action send_to_one() {
        for_tm.ucast_egress_port = hdr.harvest.port;
        hdr.harvest.setInvalid();
    }
    table leave {
        key = { meta.other: ternary; meta.last_pass: ternary; hdr.harvest.group: ternary; }
        actions = { refuse; once_more; send_to_all; send_to_one; }
        const entries = {
            (1, _, _): refuse(DROP_OVERTAKEN);
            (0, 0, _): once_more();
            (0, 1, 0): send_to_one();
        }
        const default_action = send_to_all();
    }

    apply {
        if (hdr.harvest.isValid()) {
            meta.finds = 1;
            resume.apply();
        } else {
            admission.apply();
            sign();
        }
        if (meta.finds == 1 || meta.wellformed == 1 && meta.admitted == 1 && meta.outside == 0) {
            chunk.apply(hdr, meta);
            if (meta.finds == 0) {
                if (meta.newest == hdr.innet.sequence) {
                    meta.fresh = meta.newer;
                    members.apply(hdr, meta);
                    slot.apply(hdr, meta);
                    if (hdr.innet.bitmap == meta.full_bitmap) {
                        meta.complete = 1;
                    }
                } else {
                    meta.stale = 1;
                }
            }
            if (meta.stale == 0 && meta.other == 0) {
                values.apply(hdr, meta);
            }
        }
        if (meta.finds == 1) {
            leave.apply();
        } else {
            route.apply();
        }
    }
}

Pipeline(IngressParser(), HarvestIngress(), IngressDeparser(), EgressParser(), Egress(),
         EgressDeparser()) pipe;

Switch(pipe) main;
