// What ../harvest256.p4 does, in a form for p4c's compiler for a Tofino 1 (architecture TNA). It has not run on
// hardware: docs/tofino.md.
//
// 256 values in four parts of 64, each in 32 register pairs. A pass takes the first 64 values off the packet and adds
// them to their part of the slot; the rest is payload. So four passes add a packet. The one that completes the
// last part, or finds it complete, goes back: two passes for each part put the sums in front of it, last part
// first. They change no register, and look in every part whether it still holds the chunk, and exactly the
// workers of the result; otherwise the packet is dropped.
//
// The first part alone decides who may still join. Each pass asks for admission.
//
// Other than ../harvest256.p4: raw Ethernet only; no checksum, and no look at the packet's length; sums that would
// leave int32 stop at its end; marks are in the last part alone, where all workers come by.
//
// Compile-time parameter: SLOT_BITS (2**SLOT_BITS slots).

#include <core.p4>
#include <tna.p4>

#define SEVERAL_PASSES
#define PARTS 4
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
    bit<1>  newer;            // the packet's chunk is newer than what the part held
    bit<1>  fresh;            // that, as it is asked for after the members
    bit<32> newest;           // chunk of the part, this packet's included
    bit<1>  stale;
    bit<1>  ends;             // asks for what is there
    bit<32> chunk_signature;  // what all of a chunk have to agree on
    bit<32> before;           // bitmap
    bit<32> before_signature;
    bit<32> difference;       // of the signatures: 0, or what is closed
    bit<32> joined;           // bitmap, if it were open
    bit<1>  complete;
    bit<1>  late;             // closed, without this worker
    bit<8>  marks;
    bit<3>  operation;        // of the values
    bit<32> keep;             // not for pairs
    bit<1>  last_part;        // the last one, on the way there: count, exponent and marks
    bit<1>  finds;            // adds nothing: looks for the result's chunk and workers
    bit<1>  other;            // it finds another chunk
    bit<1>  overtaken;        // or other workers
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
            hdr.innet.message, hdr.innet.operation[5:0], hdr.innet.elements[8:0], 1w0});
    }

    table admission {
        key = {
            hdr.harvest.port: exact;
            hdr.innet.owner: exact;
            hdr.innet.worker: exact;
        }
        actions = { admit; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    action sign() { meta.marks = hdr.innet.flags & MARKS; }

    // A pass that reads starts from 0. The parser has told what else it does.
    action clear() {
        PAIRS(PAIR_CLEAR_LOW)
        PAIRS(PAIR_CLEAR_HIGH)
    }
    action clear_low() { PAIRS(PAIR_CLEAR_LOW) }
    action prepend() {
        hdr.values.setValid();
        PAIRS(PAIR_CLEAR_LOW)
        PAIRS(PAIR_CLEAR_HIGH)
    }
    table prepare {
        key = { hdr.harvest.step: exact; }
        actions = { clear; clear_low; prepend; @defaultonly NoAction; }
        const entries = {
            STEP_HIGH: clear();
            STEP_LOW: clear_low();
            STEP_PREPEND: prepend();
        }
        const default_action = NoAction();
    }

    // Where the packet goes.
    action once_more() {
        for_tm.ucast_egress_port = RECIRCULATION;
        for_tm.bypass_egress = 1;
    }
    action next_part(bit<3> step) { // of a complete result, or as the first part has decided
        hdr.values.setInvalid();
        hdr.harvest.step = step;
        hdr.harvest.part = hdr.harvest.part + 1;
        once_more();
    }
    action wait_for_all() {
        hdr.values.setInvalid();
        hdr.harvest.flags = FLAG_RESULT;
        hdr.harvest.to_all = 0;
        hdr.harvest.step = STEP_ADD;
        hdr.harvest.part = 1;
        once_more();
    }
    action go_with_those_present(bit<3> step, bit<8> to_all) {
        hdr.values.setInvalid();
        hdr.harvest.bitmap = hdr.innet.bitmap;
        hdr.harvest.flags = FLAG_RESULT | FLAG_PARTIAL;
        hdr.harvest.to_all = to_all;
        hdr.harvest.step = step;
        hdr.harvest.part = 1;
        once_more();
    }
    action publish(bit<3> step) {
        hdr.innet.flags = hdr.innet.flags | hdr.harvest.flags;
        hdr.harvest.to_all = 1;
        hdr.harvest.step = step;
        once_more();
    }
    action answer() {
        hdr.innet.flags = hdr.innet.flags | hdr.harvest.flags;
        hdr.innet.bitmap = hdr.harvest.bitmap;
        hdr.harvest.step = STEP_HIGH;
        once_more();
    }
    action high_is_read() {
        hdr.harvest.step = STEP_LOW;
        once_more();
    }
    action part_is_read() {
        hdr.harvest.step = STEP_PREPEND;
        hdr.harvest.part = hdr.harvest.part - 1;
        once_more();
    }
    action send_to_all() {
        for_tm.mcast_grp_a = meta.group;
        hdr.harvest.setInvalid();
    }
    action send_to_one() {
        for_tm.ucast_egress_port = hdr.harvest.port;
        hdr.harvest.setInvalid();
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
            meta.overtaken: ternary;
            hdr.harvest.step: ternary;
            hdr.harvest.part: ternary;
            hdr.harvest.to_all: ternary;
            meta.fresh: ternary;
            meta.difference: ternary;
            meta.complete: ternary;
            meta.late: ternary;
            meta.operation: ternary;
            meta.ends: ternary;
        }
        actions = {
            next_part; wait_for_all; go_with_those_present; publish; answer; high_is_read; part_is_read;
            send_to_all; send_to_one; drop; refuse;
        }
        const entries = {
            (0, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(DROP_MALFORMED);
            (1, 0, _, _, _, _, _, _, _, _, _, _, _, _): refuse(DROP_NOT_ADMITTED);
            (1, 1, 0, 1, _, _, _, _, _, _, _, _, _, _): refuse(DROP_STALE);
            (1, 1, 0, 0, 1, _, _, _, _, _, _, _, _, _): refuse(DROP_OVERTAKEN);

            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 1, _, 0, _, _, 1): go_with_those_present(STEP_ADD, 1);
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 1, _, _, _, _, _): wait_for_all();
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 0, 0, 0, _, _, 1): go_with_those_present(STEP_ADD, 1);
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 0, 0, _, _, _, _): wait_for_all();
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 0, CLOSED, 1, _, _, _): wait_for_all();
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 0, CLOSED, 0, 1, _, _): go_with_those_present(STEP_SKIP, 0);
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, 0, CLOSED, 0, 0, _, _): go_with_those_present(STEP_ADD, 0);
            (1, 1, 0, 0, 0, STEP_ARRIVE, _, _, _, _, _, _, _, _): refuse(DROP_MISMATCH);

            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 1, _, 1, _, _, _): publish(STEP_LOW);
            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 1, _, 0, _, _, _): drop();
            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 0, 0, 1, _, VALUES_READ, _): answer();
            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 0, 0, 1, _, VALUES_OR, _): publish(STEP_HIGH);
            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 0, 0, 1, _, _, _): publish(STEP_LOW);
            (1, 1, 0, 0, 0, STEP_ADD, PARTS - 1, _, 0, 0, 0, _, _, _): drop();
            (1, 1, 0, 0, 0, STEP_ADD, _, _, 1, _, _, _, _, _): next_part(STEP_ADD);
            (1, 1, 0, 0, 0, STEP_ADD, _, _, 0, 0, _, _, _, _): next_part(STEP_ADD);
            (1, 1, 0, 0, 0, STEP_ADD, _, _, _, _, _, _, _, _): refuse(DROP_MISMATCH);

            (1, 1, 0, 0, 0, STEP_SKIP, PARTS - 1, _, _, _, _, _, _, _): answer();
            (1, 1, 0, 0, 0, STEP_SKIP, _, _, _, _, _, _, _, _): next_part(STEP_SKIP);

            (1, 1, 0, 0, 0, STEP_LOW, 0, 0, _, _, _, _, _, _): send_to_one();
            (1, 1, 0, 0, 0, STEP_LOW, 0, _, _, _, _, _, _, _): send_to_all();
            (1, 1, 0, 0, 0, STEP_LOW, _, _, _, _, _, _, _, _): part_is_read();
            (1, 1, 0, 0, 0, _, _, _, _, _, _, _, _, _): high_is_read();
        }
        const default_action = refuse(DROP_SLOT_RANGE);
    }

    action as_if_open() { meta.joined = meta.before | meta.add; }

    apply {
        admission.apply();
        sign();
        prepare.apply();
        if (meta.wellformed == 1 && meta.admitted == 1 && meta.outside == 0) {
            if (meta.finds == 1) {
                meta.add = 0;
            }
            if (hdr.harvest.step == STEP_ARRIVE) {
                hdr.harvest.bitmap = meta.full_bitmap;
            }
            chunk.apply(hdr, meta);
            if (meta.finds == 1 || meta.newest == hdr.innet.sequence) {
                meta.fresh = meta.newer;
                members.apply(hdr, meta);
                slot.apply(hdr, meta);
                as_if_open();
                if (hdr.innet.bitmap == hdr.harvest.bitmap) {
                    meta.complete = 1;
                }
                if (hdr.innet.bitmap != meta.joined) {
                    meta.late = 1;
                }
                values.apply(hdr, meta);
            } else {
                meta.stale = 1;
            }
        }
        route.apply();
    }
}

Pipeline(IngressParser(), HarvestIngress(), IngressDeparser(), EgressParser(), Egress(),
         EgressDeparser()) pipe;

Switch(pipe) main;
