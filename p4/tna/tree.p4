// What ../tree.p4 does, in a form that p4c's compiler for a Tofino 1 takes (architecture TNA). It was
// compiled, and has not run on hardware: docs/tofino.md.
//
// Other than ../tree.p4: the fence is a cell of the job's entry in `position`, so that it costs no stage; raw
// Ethernet only; no checksum; sums that would leave int32 stay at the end that they have reached; late
// packets are not counted; a job has one tree.
//
// Compile-time parameters: PER_PASS (8, 16, 24 or 32 values a packet), SLOT_BITS (2**SLOT_BITS slots).

#include <core.p4>
#include <tna.p4>

#include "include/header.p4"

// All fields are 0 when a packet arrives: the compiler promises that only if it is asked to.
@pa_auto_init_metadata
struct metadata_t {
    bit<1>  wellformed;
    bit<1>  has_bitmap;       // as sums and results have, and no worker's packets
    bit<1>  child_admitted;   // comes from below
    bit<1>  descends;         // a result from above
    bit<1>  inside;           // which has this switch in it
    bit<1>  keeps;            // and lacks workers: who of those below is in stands in the slot
    bit<1>  placed;           // the job and epoch are known here
    bit<16> outside;          // bits of the slot that are not the job's
    bit<16> slot;             // in the whole pool
    bit<16> excess;           // 0xffff: speaks for more than are below the sender
    bit<32> child_bit;
    bit<32> add;              // to the bitmap
    bit<5>  child;            // number of the child's bit
    bit<16> weight;           // how many workers the packet stands for
    bit<32> full_bitmap;      // the children of this switch in this epoch
    bit<16> workers;          // of the job in this epoch
    bit<16> group;
    bit<1>  inner;            // there is a switch above
    bit<9>  up_port;
    bit<16> identity;         // what this switch is called above
    bit<1>  allow_partial;
    bit<1>  kept;             // the registers, since the epoch began: the fence stands
    bit<8>  request;          // what is asked for: what is there, here and so many levels above
    bit<8>  levels_missing;   // until it asks this level
    bit<1>  newer;            // the packet's chunk is newer than what the slot held
    bit<1>  fresh;            // that, or a result from above
    bit<32> newest;           // chunk of the slot, this packet's included
    bit<1>  stale;
    bit<1>  lost;
    bit<1>  accepted;
    bit<1>  ends;             // asks this level for what is there
    bit<32> chunk_signature;  // what all of a chunk have to agree on
    bit<32> first_signature;  // as a slot gets it that starts with this packet
    bit<32> before;           // bitmap
    bit<32> before_signature;
    bit<32> difference;       // of the signatures: 0, or what is closed
    bit<1>  open;             // to this packet, before it
    bit<1>  missing;          // somebody below
    bit<1>  lacking;          // some worker of the job
    bit<8>  marks;
    bit<3>  operation;        // of the values
    bit<32> keep;             // of their old words
}

#include "../include/drop_reasons.p4"

const bit<8> DROP_NOT_BELOW = 9;  // for workers that are not below the sender, or for nobody
const bit<8> DROP_LOST_STATE   = 11; // the switch has lost its registers

#define TAKES_RESULTS // from the switch above
#include "include/parser.p4"
#include "include/chunk.p4"
#include "include/members.p4"
#include "include/slot.p4"
#include "include/values.p4"

control TreeIngress(inout headers_t hdr, inout metadata_t meta,
                    in ingress_intrinsic_metadata_t intrinsic,
                    in ingress_intrinsic_metadata_from_parser_t from_parser,
                    inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                    inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Chunk() chunk;
    Members() members;
    Slot() slot;
    Values() values;
    Counter<bit<32>, bit<8>>(16, CounterType_t.PACKETS_AND_BYTES) refused;
    DirectRegister<bit<8>>() fence;

    action worker(bit<32> child_bit, bit<5> child) {
        meta.child_admitted = 1;
        meta.child_bit = child_bit;
        meta.child = child;
        meta.weight = 1;
    }

    // A switch that speaks for up to 0xfffe - `headroom` workers: with more, the sum saturates.
    action below(bit<32> child_bit, bit<5> child, bit<16> headroom) {
        meta.child_admitted = 1;
        meta.child_bit = child_bit;
        meta.child = child;
        meta.weight = hdr.innet.count;
        meta.excess = hdr.innet.count |+| headroom;
    }

    table admission {
        key = {
            intrinsic.ingress_port: exact;
            hdr.innet.owner: exact;
            hdr.innet.worker: exact;
            hdr.innet.flags[4:4]: exact @name("is_result"); // 0
            meta.has_bitmap: exact; // of a worker 0; a switch has two entries
        }
        actions = { worker; below; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    // The switch above. Two entries: with this switch's bit in the bitmap, and any bitmap.
    action parent(bit<1> inside) {
        meta.descends = 1;
        meta.inside = inside;
        meta.weight = hdr.innet.count;
    }

    table above {
        key = {
            intrinsic.ingress_port: exact;
            hdr.innet.owner: exact;
            hdr.innet.worker: exact; // this switch
            hdr.innet.flags[4:4]: exact @name("is_result"); // 1
            hdr.innet.bitmap: ternary;
        }
        actions = { parent; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    DirectRegisterAction<bit<8>, bit<1>>(fence) look = {
        void apply(inout bit<8> held, out bit<1> kept) {
            kept = 0;
            if (held != 0) {
                kept = 1;
            }
        }
    };

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) signature;

    // height: levels of switches below, times 64, by which a request is measured.
    action root(bit<32> full_bitmap, bit<16> group, bit<16> slot_base, bit<16> outside_mask,
                bit<8> height, bit<1> allow_partial, bit<16> workers) {
        meta.placed = 1;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot = slot_base | hdr.innet.slot;
        meta.outside = hdr.innet.slot & outside_mask;
        meta.levels_missing = height |-| hdr.innet.flags;
        // By the hash unit, so that it is one word and no view of several fields.
        meta.chunk_signature = signature.get({
            hdr.innet.message, hdr.innet.operation[3:0], hdr.innet.elements[8:0], 3w0});
        meta.allow_partial = allow_partial;
        meta.workers = workers;
        meta.kept = look.execute();
    }

    action inner(bit<32> full_bitmap, bit<16> group, bit<16> slot_base, bit<16> outside_mask,
                 bit<8> height, bit<1> allow_partial, bit<9> up_port, bit<16> identity) {
        meta.placed = 1;
        meta.inner = 1;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot = slot_base | hdr.innet.slot;
        meta.outside = hdr.innet.slot & outside_mask;
        meta.levels_missing = height |-| hdr.innet.flags;
        // By the hash unit, so that it is one word and no view of several fields.
        meta.chunk_signature = signature.get({
            hdr.innet.message, hdr.innet.operation[3:0], hdr.innet.elements[8:0], 3w0});
        meta.allow_partial = allow_partial;
        meta.up_port = up_port;
        meta.identity = identity;
        meta.kept = look.execute();
    }

    table position {
        key = {
            hdr.innet.owner: exact;
        }
        actions = { root; inner; @defaultonly NoAction; }
        const default_action = NoAction();
        registers = fence;
        size = 256;
    }

    action sign() {
        meta.marks = hdr.innet.flags & MARKS;
        meta.request = hdr.innet.flags & 0xE0;
    }

    action begin() {
        meta.first_signature = meta.chunk_signature;
        meta.add = meta.child_bit;
    }
    action begin_closed() {
        meta.first_signature = meta.chunk_signature | CLOSED;
        meta.add = meta.child_bit;
        meta.ends = 1;
    }
    action settle_complete() {
        meta.first_signature = meta.chunk_signature | CLOSED | SETTLED;
        meta.add = meta.full_bitmap;
    }
    action settle_without() {
        meta.first_signature = meta.chunk_signature | CLOSED | SETTLED;
    }
    action settle_lacking() {
        meta.first_signature = meta.chunk_signature | CLOSED | SETTLED | LACKS;
        meta.lacking = 1;
    }
    action settle_lacking_inside() {
        meta.first_signature = meta.chunk_signature | CLOSED | SETTLED | LACKS;
        meta.lacking = 1;
        meta.keeps = 1;
    }
    table prepare {
        key = {
            meta.descends: ternary;
            meta.inside: ternary;
            hdr.innet.flags: ternary;
            meta.allow_partial: ternary;
            meta.levels_missing: ternary;
        }
        actions = {
            begin; begin_closed; settle_complete; settle_without; settle_lacking; settle_lacking_inside;
        }
        const entries = {
            (1, 1, FLAG_PARTIAL &&& FLAG_PARTIAL, _, _): settle_lacking_inside();
            (1, 0, FLAG_PARTIAL &&& FLAG_PARTIAL, _, _): settle_lacking();
            (1, 1, 0 &&& FLAG_PARTIAL, _, _): settle_complete();
            (1, 0, 0 &&& FLAG_PARTIAL, _, _): settle_without();
            (0, _, FLAG_PARTIAL &&& FLAG_PARTIAL, 1, 0): begin_closed();
        }
        const default_action = begin();
    }

    // A newer chunk, or a result, is what the slot holds from now on.
    action replace() {
        meta.fresh = 1;
        meta.chunk_signature = meta.first_signature;
    }
    table freshen {
        key = { meta.newer: ternary; meta.descends: ternary; }
        actions = { replace; NoAction; }
        const entries = {
            (1, _): replace();
            (0, 1): replace();
        }
        const default_action = NoAction();
    }

    // The result, to all children.
    action publish(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        for_tm.mcast_grp_a = meta.group;
    }
    // The result, to the child that asks again.
    action answer(bit<8> flags) {
        hdr.innet.flags = hdr.innet.flags | flags;
        for_tm.ucast_egress_port = intrinsic.ingress_port;
    }
    // The sum of what is below, to the switch above.
    action climb() {
        hdr.innet.worker = meta.identity;
        hdr.innet.flags = hdr.innet.flags | meta.request;
        for_tm.ucast_egress_port = meta.up_port;
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
            meta.descends: ternary;
            meta.inner: ternary;
            meta.fresh: ternary;
            meta.difference: ternary;
            meta.ends: ternary;
            meta.missing: ternary;
            meta.lacking: ternary;
            meta.operation: ternary;
        }
        actions = { publish; answer; climb; drop; refuse; }
        const entries = {
            (1, _, _, _, _, _, 1, _): publish(FLAG_RESULT | FLAG_PARTIAL);
            (1, _, _, _, _, _, 0, _): publish(FLAG_RESULT);
            // Nothing is closed yet, and somebody is missing.
            (0, _, 1, _, 0, 1, _, _): drop();
            (0, _, 0, 0, 0, 1, _, _): drop();
            // Below the root.
            (0, 1, 1, _, _, _, _, _): climb();
            (0, 1, 0, 0, _, _, _, _): climb();
            (0, 1, 0, CLOSED, _, _, _, _): climb();
            (0, 1, 0, CLOSED | SETTLED, _, _, _, _): answer(FLAG_RESULT);
            (0, 1, 0, CLOSED | SETTLED | LACKS, _, _, _, _): answer(FLAG_RESULT | FLAG_PARTIAL);
            // The root.
            (0, 0, 1, _, _, _, 1, _): publish(FLAG_RESULT | FLAG_PARTIAL);
            (0, 0, 1, _, _, _, 0, _): publish(FLAG_RESULT);
            (0, 0, 0, 0, _, 1, _, _): publish(FLAG_RESULT | FLAG_PARTIAL);
            (0, 0, 0, 0, _, 0, 1, VALUES_READ): answer(FLAG_RESULT | FLAG_PARTIAL);
            (0, 0, 0, 0, _, 0, 0, VALUES_READ): answer(FLAG_RESULT);
            (0, 0, 0, 0, _, 0, 1, _): publish(FLAG_RESULT | FLAG_PARTIAL);
            (0, 0, 0, 0, _, 0, 0, _): publish(FLAG_RESULT);
            (0, 0, 0, CLOSED, _, _, 1, _): answer(FLAG_RESULT | FLAG_PARTIAL);
            (0, 0, 0, CLOSED, _, _, 0, _): answer(FLAG_RESULT);
        }
        const default_action = refuse(DROP_MISMATCH);
    }

    table account {
        key = {
            meta.wellformed: ternary;
            meta.child_admitted: ternary;
            meta.descends: ternary;
            meta.placed: ternary;
            meta.outside: ternary;
            meta.excess: ternary;
            meta.stale: ternary;
            meta.lost: ternary;
        }
        actions = { refuse; }
        const entries = {
            (0, _, _, _, _, _, _, _): refuse(DROP_MALFORMED);
            (1, 0, 0, _, _, _, _, _): refuse(DROP_NOT_ADMITTED);
            (1, _, _, 0, _, _, _, _): refuse(DROP_NOT_ADMITTED);
            (1, _, _, 1, 0, 0xffff, _, _): refuse(DROP_NOT_BELOW);
            (1, _, _, 1, 0, _, 1, _): refuse(DROP_STALE);
            (1, _, _, 1, 0, _, _, 1): refuse(DROP_LOST_STATE);
            (1, _, _, 1, 0, _, _, _): refuse(DROP_NOT_BELOW);
        }
        const default_action = refuse(DROP_SLOT_RANGE);
    }

    apply {
        above.apply();
        admission.apply();
        position.apply();
        sign();
        prepare.apply();
        if (meta.wellformed == 1 && (meta.child_admitted == 1 || meta.descends == 1) && meta.placed == 1
            && meta.outside == 0 && meta.excess != 0xffff && meta.weight != 0) {
            // A root that has lost its registers refuses everything; a switch below it, what it would have
            // to know from them.
            if (meta.allow_partial == 1 && meta.kept == 0
                && (meta.inner == 0 || meta.inside == 1 && hdr.innet.flags & FLAG_PARTIAL != 0)) {
                meta.lost = 1;
            } else {
                chunk.apply(hdr, meta);
                if (meta.newest == hdr.innet.sequence) {
                    freshen.apply();
                    members.apply(hdr, meta);
                    slot.apply(hdr, meta);
                    if (hdr.innet.bitmap != meta.full_bitmap) {
                        meta.missing = 1;
                    }
                    if (meta.inner == 0 && hdr.innet.count != meta.workers) {
                        meta.lacking = 1;
                    }
                    values.apply(hdr, meta);
                    meta.accepted = 1;
                } else {
                    meta.stale = 1;
                }
            }
        }
        if (meta.accepted == 1) {
            route.apply();
        } else {
            account.apply();
        }
    }
}

Pipeline(IngressParser(), TreeIngress(), IngressDeparser(), EgressParser(), Egress(),
         EgressDeparser()) pipe;

Switch(pipe) main;
