// Hierarchical aggregation: leaf switches sum their workers, switches above sum switches, the root
// sends the result back down. Any number of levels, all running this program: a switch knows from
// its tables what is below it and whether there is one above.
//
// A slot of a switch below the root holds first the sum of what is under it, then the result. A
// worker that asks again is answered by the nearest switch that has the result; one that has the
// sum but no result sends the sum up again.
//
// A worker may ask for what is there: first its leaf, and while no result comes, one level more and
// one level more, so that racks which wait for nobody have time to answer.
//
// Compile-time parameters: VALUES (32, 64 or 256 per packet), SLOTS (of the whole pool),
// ECN_DEPTH (packets that wait on the way out of the switch, from which on results are marked).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

// All of it is 0 when a packet comes in.
struct metadata_t {
    bit<8>  refusal;
    bit<32> bits;     // the workers that the packet speaks for
    bit<8>  weight;   // how many they are
    bit<8>  request;  // what it asks for: what is there, here and so many levels above
    bit<1>  ends;     // here
    bit<32> members;  // the workers below this switch
    bit<16> group;    // to all that is below
    bit<16> slot_base;
    bit<16> outside;
    bit<1>  descends; // a result from above
    bit<1>  inner;    // there is a switch above
    bit<9>  up_port;
    bit<16> identity; // what this switch is called above
    bit<32> index;    // of the slot and version, in every register array
    bit<32> age;      // how far the packet's chunk is ahead of the slot's, serial arithmetic
    bit<1>  inherited;
    bit<1>  fresh;
    bit<1>  disagrees;
    bit<1>  shut;     // before this packet: nothing is added any more
    bit<1>  closed;   // by now
    bit<1>  settled;  // the slot holds the result
    bit<1>  lacks;    // the result lacks workers
    bit<1>  seen;
    bit<1>  reads;    // adds nothing
    bit<1>  left0;    // a sum has left int32, in the first quarter of the values
    bit<1>  left1;
    bit<1>  left2;
    bit<1>  left3;
}

#include "include/refusals.p4"

const bit<8> REFUSED_SPEAKS    = 9; // for workers that are not below the sender, or for nobody
const bit<8> REFUSED_LATE      = 10; // the slot was closed without it; it is told the result

#include "include/parser.p4"
#include "include/sanity.p4"
#include "include/subtree.p4"
#include "include/values.p4"
#include "include/marks.p4"
#include "include/egress.p4"

// Who may speak, and for whom.
control Family(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    action refuse_stranger() {
        meta.refusal = REFUSED_STRANGER;
    }

    action worker(bit<32> bit_) {
        meta.bits = bit_;
        meta.weight = 1;
        meta.refusal = hdr.innet.bitmap != 0 ? REFUSED_SPEAKS : REFUSED_NOT;
        meta.refusal = hdr.innet.flags & FLAG_RESULT != 0 ? REFUSED_MALFORMED : meta.refusal;
    }

    // A switch with the sum of the workers below it: of all, unless it was closed before.
    action below(bit<32> mask) {
        meta.bits = hdr.innet.bitmap;
        meta.weight = hdr.innet.count;
        meta.refusal = hdr.innet.bitmap == 0 || hdr.innet.bitmap & ~mask != 0
            ? REFUSED_SPEAKS : REFUSED_NOT;
        meta.refusal = hdr.innet.flags & FLAG_RESULT != 0 ? REFUSED_MALFORMED : meta.refusal;
    }

    // The switch above: results come from there, and nothing else.
    action parent() {
        meta.descends = 1;
        meta.bits = hdr.innet.bitmap;
        meta.weight = hdr.innet.count;
        meta.refusal = hdr.innet.flags & FLAG_RESULT == 0 ? REFUSED_MALFORMED : REFUSED_NOT;
    }

    table admission {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { worker; below; parent; refuse_stranger; }
        const default_action = refuse_stranger();
        size = 1024;
    }

    // slot_base, slot_mask: the job's part of the pool, a power of two of slots, so that a mask and
    // no comparison keeps a job inside it.
    // height: levels of switches below, at most 3, by which a request is measured.
    action root(bit<32> members, bit<16> group, bit<16> slot_base, bit<16> slot_mask,
                bit<2> height) {
        meta.members = members;
        meta.group = group;
        meta.slot_base = slot_base;
        meta.outside = hdr.innet.slot & ~slot_mask;
        meta.ends = meta.request[5:5] & (bit<1>)(meta.request[7:6] >= height);
    }

    action inner(bit<32> members, bit<16> group, bit<16> slot_base, bit<16> slot_mask,
                 bit<2> height, bit<9> up_port, bit<16> identity) {
        meta.members = members;
        meta.group = group;
        meta.slot_base = slot_base;
        meta.outside = hdr.innet.slot & ~slot_mask;
        meta.ends = meta.request[5:5] & (bit<1>)(meta.request[7:6] >= height);
        meta.inner = 1;
        meta.up_port = up_port;
        meta.identity = identity;
    }

    table position {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { root; inner; refuse_stranger; }
        const default_action = refuse_stranger();
        size = 256;
    }

    apply {
        if (hdr.innet.flags & FLAG_PARTIAL != 0) {
            meta.request = hdr.innet.flags & FLAGS_REQUEST;
        }
        admission.apply();
        if (meta.refusal == REFUSED_NOT) {
            position.apply();
            if (meta.refusal == REFUSED_NOT && meta.outside != 0) {
                meta.refusal = REFUSED_SLOT;
            }
        }
    }
}

control TreeIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    counter(11, CounterType.packets_and_bytes) refused;
    Sanity() sanity;
    Family() family;
    Subtree() subtree;
    Values() values;
    Marks() marks;

    action refuse() {
        refused.count((bit<32>)meta.refusal);
        mark_to_drop(standard_metadata);
    }

    // The result, to all children.
    action publish() {
        hdr.innet.flags = hdr.innet.flags | FLAG_RESULT;
        standard_metadata.mcast_grp = meta.group;
    }

    // The result, to the child that asks again.
    action repeat() {
        hdr.innet.flags = hdr.innet.flags | FLAG_RESULT;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    // The sum of what is below, to the switch above.
    action climb() {
        hdr.innet.worker = meta.identity;
        hdr.innet.flags = hdr.innet.flags | meta.request;
        standard_metadata.egress_spec = meta.up_port;
    }

    action lack() {
        hdr.innet.flags = hdr.innet.flags | FLAG_PARTIAL;
    }

    apply {
        sanity.apply(hdr, meta, standard_metadata);
        if (meta.refusal == REFUSED_NOT) {
            family.apply(hdr, meta, standard_metadata);
        }
        if (meta.refusal == REFUSED_NOT) {
            meta.index = (bit<32>)(meta.slot_base | hdr.innet.slot) << 1
                | (bit<32>)hdr.innet.slot_version;
            subtree.apply(hdr, meta);
        }
        if (meta.refusal != REFUSED_NOT) {
            refuse();
        } else {
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.shut == 1 && meta.seen == 0) {
                refused.count((bit<32>)REFUSED_LATE);
            }
            bit<1> missing = (bit<1>)(hdr.innet.bitmap & meta.members != meta.members);
            if (meta.descends == 0 && meta.closed == 0 && missing == 1) {
                mark_to_drop(standard_metadata); // the slot waits for others
            } else if (meta.inner == 1 && meta.settled == 0) {
                climb();
            } else {
                if (meta.lacks == 1 || (meta.inner == 0 && missing == 1)) {
                    lack();
                }
                // All are told by the packet that makes the result, or brings it.
                if (meta.reads == 0 || (meta.inner == 0 && missing == 1 && meta.shut == 0)) {
                    publish();
                } else {
                    repeat();
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), TreeIngress(), NetworkEgress(), UpdateChecksums(),
         InnetDeparser()) main;
