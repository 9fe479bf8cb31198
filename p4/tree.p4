// Hierarchical aggregation: leaf switches sum their workers, switches above sum switches, and the root
// sends the result back down. There may be any number of levels; all switches run this program. A
// switch's tables say which children it has and whether there is a switch above.
//
// A slot of a switch below the root first holds the sum of the workers below, then the result. The
// nearest switch that has the result answers a worker that asks again; a switch that has the sum but
// no result sends the sum up again.
//
// A worker may request a partial result: first of its leaf, then, while no result comes, of one more
// level each time. So racks that are complete have time to answer.
//
// Where a job has several trees over the same leaves, each slot belongs to one of them, by its low bits.
// A switch with several switches above it looks up which of them is the slot's.
//
// With MOVING (program `adaptive-tree`) a slot leaves a tree where it meets congestion. A sum that waits in
// a long queue on its way up is marked. So is the next sum of a leaf whose last result waited on its way
// down. If a sum of a chunk is marked, the root says so in the result. All switches below get the same
// result, and send the slot's next chunk up another tree.
//
// Compile-time parameters: VALUES (32, 64 or 256 per packet), SLOTS (of the whole pool),
// ECN_DEPTH (packets in the egress queue from which on packets are marked), COLLECTIVES (the operations
// reduce, broadcast and barrier, whose packets carry values on some of the links only), MOVING, and then
// MOVE_DEPTH (packets in the egress queue from which on a slot is to change its tree).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

// All fields are 0 when a packet arrives.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> child_bit;       // of the sender; of a result, the children that it adds
    bit<16> sender_count;    // the workers in the packet's sum
    bit<8>  partial_request; // FLAG_PARTIAL and its level
    bit<1>  request_here;    // the request is for this switch, too
    bit<32> full_bitmap;     // the children of this switch
    bit<16> job_workers;     // of the root: the workers of the job
    bit<1>  allow_partial;   // of the job
    bit<16> group;           // multicast group of all children
    bit<16> slot_base;
    bit<16> slot_excess;     // bits of the slot number outside the job's part of the pool
    bit<1>  from_parent;     // a result from above
    bit<1>  lacks;           // the result lacks workers
    bit<1>  inside;          // this switch is in the result
    bit<1>  keeps_bitmap;    // both: the register says with which children
    bit<1>  has_parent;      // there is a switch above
    bit<9>  up_port;
    bit<16> sender_above;    // this switch's index in packets to the switch above
    bit<32> index;           // of the slot and version, in every register array
    bit<1>  lost;            // the registers were lost since the epoch began
    bit<32> age;             // how far the packet's chunk is ahead of the slot's, serial arithmetic
    bit<1>  owner_changed;
    bit<1>  new_chunk;
    bit<1>  mismatch;
    bit<1>  was_closed;      // the slot was closed before this packet: nothing is added
    bit<1>  slot_closed;     // it is closed now
    bit<1>  holds_result;    // the slot holds the result
    bit<1>  result_lacks;    // the result lacks workers
    bit<1>  child_seen;      // this child is in already
    bit<1>  read_only;       // adds nothing
    bit<1>  overflow0;       // a sum has overflowed, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
#ifdef MOVING
    bit<1>  moves;           // the packet's mark; in a result: the slot's next chunk takes another tree
    bit<1>  waited;          // the slot's last result waited on its way down
    bit<1>  follows;         // a result from the slot's tree, which says where the slot moves
    bit<1>  several_above;   // there are several switches above
    bit<16> tree;            // the slot's number and how far it has moved, from which its tree follows
#endif
#ifdef COLLECTIVES
    bit<1>  without_values;  // the packet ends with innet's header
    bit<1>  other_owner;     // the chunk's first packet named another owner
    bit<1>  owner_below;     // the owner is below this switch
    bit<16> owner_child;     // then: the child that it is or that it is below, by its index
    bit<1>  child_alone;     // the job has no other worker there
    bit<1>  alone;           // nor anywhere else below this switch
#endif
}

#include "include/drop_reasons.p4"

const bit<8> DROP_NOT_BELOW  = 9;  // counts more workers than are below the sender, or none
const bit<8> DROP_LATE       = 10; // the slot was closed without this child; it gets the result
const bit<8> DROP_LOST_STATE = 11; // this switch has lost its registers: what it says might be false

const bit<9> BY_SLOT = 511; // no port: the table `trees` has that to the switch above

#ifdef COLLECTIVES
#define VALUES_MISPLACED false // admission checks it, which knows whom a sender speaks for
// A packet on a link, of a chunk with an owner. `owner`: the owner is at the link's lower end or below
// it. `alone`: and no other worker of the job is.
#define CARRIES_VALUES(owner, alone) \
    (hdr.innet.operation & 0x7F != OPERATION_BARRIER \
     && ((hdr.innet.operation & 0x7F == OPERATION_REDUCE) == (hdr.innet.flags & FLAG_RESULT != 0) \
         ? owner : !(owner && alone)))
#define LEAVES_BARE \
    !CARRIES_VALUES((meta.owner_below == 1 && hdr.innet.worker == meta.owner_child), \
                    meta.child_alone == 1)
#endif

#ifdef MOVING
#define TREE meta.tree
#define MOVES_SLOTS meta.several_above == 1
#else
#define TREE hdr.innet.slot
#define MOVES_SLOTS false
#endif

#include "include/moves.p4"

#include "include/parser.p4"
#include "include/header_check.p4"
#include "include/tree_pool.p4"
#include "include/values.p4"
#include "include/marks.p4"
#include "include/egress.p4"

// Admission: which senders are accepted, and how many workers they may count.
control Admission(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    action drop_not_admitted() {
        meta.drop_reason = DROP_NOT_ADMITTED;
    }

    action admit_worker(bit<32> child_bit) {
        meta.child_bit = child_bit;
        meta.sender_count = 1;
        meta.drop_reason = hdr.innet.bitmap != 0 ? DROP_NOT_BELOW : NOT_DROPPED;
        meta.drop_reason = hdr.innet.flags & FLAG_RESULT != 0 ? DROP_MALFORMED : meta.drop_reason;
    }

    // A child switch, with a sum of at most `size` workers: fewer if its slot was closed.
    action admit_switch(bit<32> child_bit, bit<16> size) {
        meta.child_bit = child_bit;
        meta.sender_count = hdr.innet.count;
        meta.drop_reason = hdr.innet.count == 0 || hdr.innet.count > size
            ? DROP_NOT_BELOW : NOT_DROPPED;
        meta.drop_reason = hdr.innet.flags & FLAG_RESULT != 0 ? DROP_MALFORMED : meta.drop_reason;
    }

    // The parent switch: it sends results and nothing else. own_bit: this switch's bit in the
    // parent's bitmap.
    action admit_parent(bit<32> own_bit) {
        meta.from_parent = 1;
        meta.sender_count = hdr.innet.count;
        meta.inside = (bit<1>)(hdr.innet.bitmap & own_bit != 0);
        meta.lacks = hdr.innet.flags[5:5]; // FLAG_PARTIAL
        meta.drop_reason = hdr.innet.flags & FLAG_RESULT == 0 ? DROP_MALFORMED : NOT_DROPPED;
    }

    table admission {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { admit_worker; admit_switch; admit_parent; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 1024;
    }

    // full_bitmap: the children that take part in this epoch.
    // slot_base, slot_mask: the job's part of the pool, a power of two of slots, so that a mask and
    // no comparison keeps a job inside it.
    // height: levels of switches below, at most 3; requests of this level and above are for it.
    // allow_partial: whether the job's workers may request partial results.
    action set_root(bit<32> full_bitmap, bit<16> group, bit<16> slot_base, bit<16> slot_mask,
                    bit<2> height, bit<1> allow_partial, bit<16> job_workers) {
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot_base = slot_base;
        meta.slot_excess = hdr.innet.slot & ~slot_mask;
        meta.allow_partial = allow_partial;
        meta.partial_request = allow_partial == 1 ? meta.partial_request : 0;
        meta.request_here = meta.partial_request[5:5]
            & (bit<1>)(meta.partial_request[7:6] >= height);
        meta.job_workers = job_workers;
    }

    action set_inner(bit<32> full_bitmap, bit<16> group, bit<16> slot_base, bit<16> slot_mask,
                     bit<2> height, bit<1> allow_partial, bit<9> up_port, bit<16> sender_above) {
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot_base = slot_base;
        meta.slot_excess = hdr.innet.slot & ~slot_mask;
        meta.allow_partial = allow_partial;
        meta.partial_request = allow_partial == 1 ? meta.partial_request : 0;
        meta.request_here = meta.partial_request[5:5]
            & (bit<1>)(meta.partial_request[7:6] >= height);
        meta.has_parent = 1;
        meta.up_port = up_port;
        meta.sender_above = sender_above;
    }

    table position {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { set_root; set_inner; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 256;
    }

    // The port to the switch above in the tree of this slot, where set_inner says BY_SLOT.
    action set_up_port(bit<9> up_port) {
        meta.up_port = up_port;
    }

    table trees {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            TREE: ternary;
        }
        actions = { set_up_port; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 1024;
    }

    // A result comes down the tree that the sum went up.
    action check_tree() {
        meta.drop_reason = meta.from_parent == 1 && standard_metadata.ingress_port != meta.up_port
            ? DROP_NOT_ADMITTED : meta.drop_reason;
    }

    // Which children of this switch are in a result.
    action name_children() {
        meta.child_bit = meta.inside == 1 && meta.lacks == 0 ? meta.full_bitmap : 0;
        meta.keeps_bitmap = meta.inside & meta.lacks;
    }

#ifdef COLLECTIVES
    // Where the owner of the chunk is; by default not below this switch.
    action owner_below(bit<16> child, bit<1> child_alone, bit<1> alone) {
        meta.owner_below = 1;
        meta.owner_child = child;
        meta.child_alone = child_alone;
        meta.alone = alone;
    }

    table owners {
        key = {
            hdr.innet.job: exact;
            hdr.innet.exponent: range;
        }
        actions = { owner_below; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    // Nobody speaks for the owner, and the owner for nobody else.
    action check_values() {
        bool owner = meta.owner_below == 1
            && (meta.from_parent == 1 || hdr.innet.worker == meta.owner_child);
        bool alone = (meta.from_parent == 1 ? meta.alone : meta.child_alone) == 1;
        meta.drop_reason = (meta.without_values == 1) == CARRIES_VALUES(owner, alone)
            ? DROP_MALFORMED : NOT_DROPPED;
    }
#endif

#ifdef MOVING
    Ways() ways;
#endif

    apply {
        admission.apply();
        if (meta.drop_reason == NOT_DROPPED) {
            if (meta.from_parent == 0 && hdr.innet.flags & FLAG_PARTIAL != 0) {
                meta.partial_request = hdr.innet.flags & FLAGS_REQUEST;
            }
            position.apply();
            if (meta.drop_reason == NOT_DROPPED && meta.slot_excess != 0) {
                meta.drop_reason = DROP_SLOT_RANGE;
            }
            if (meta.drop_reason == NOT_DROPPED && meta.up_port == BY_SLOT) {
#ifdef MOVING
                ways.apply(hdr, meta);
#endif
                trees.apply();
                check_tree();
#ifdef MOVING
                if (meta.from_parent == 1 && meta.drop_reason == NOT_DROPPED) {
                    meta.follows = 1;
                    ways.apply(hdr, meta);
                }
#endif
            }
            if (meta.from_parent == 1) {
                name_children();
            }
#ifdef COLLECTIVES
            if (meta.drop_reason == NOT_DROPPED
                    && hdr.innet.operation & 0x7F >= OPERATION_REDUCE) {
                owners.apply();
                check_values();
            }
#endif
        }
    }
}

control TreeIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    counter(12, CounterType.packets_and_bytes) dropped;
    HeaderCheck() header_check;
    Admission() admission;
    Pool() pool;
    Values() values;
    Marks() marks;
#ifdef MOVING
    Moves() moves;
#endif

    action count_and_drop() {
        dropped.count((bit<32>)meta.drop_reason);
        mark_to_drop(standard_metadata);
    }

    // The result, to all children.
    action multicast_result() {
        hdr.innet.flags = hdr.innet.flags | FLAG_RESULT;
        standard_metadata.mcast_grp = meta.group;
    }

    // The result, to the child that asks again.
    action resend_result() {
        hdr.innet.flags = hdr.innet.flags | FLAG_RESULT;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    // The sum of what is below, to the switch above.
    action send_up() {
        hdr.innet.worker = meta.sender_above;
        hdr.innet.flags = hdr.innet.flags | meta.partial_request;
        standard_metadata.egress_spec = meta.up_port;
#ifdef COLLECTIVES
        meta.owner_child = meta.sender_above; // for the switch above, all below here is one child
        meta.child_alone = meta.alone;
#endif
    }

    action mark_partial() {
        hdr.innet.flags = hdr.innet.flags | FLAG_PARTIAL;
    }

    apply {
        header_check.apply(hdr, meta, standard_metadata);
        if (meta.drop_reason == NOT_DROPPED) {
            admission.apply(hdr, meta, standard_metadata);
        }
        if (meta.drop_reason == NOT_DROPPED) {
            meta.index = (bit<32>)(meta.slot_base | hdr.innet.slot) << 1
                | (bit<32>)hdr.innet.slot_version;
#ifdef MOVING
            meta.moves = hdr.innet.flags[1:1]; // FLAG_MOVE
#endif
            pool.apply(hdr, meta);
        }
        if (meta.drop_reason != NOT_DROPPED) {
            count_and_drop();
        } else {
#ifdef COLLECTIVES
            // Without values a packet begins a chunk, or makes the switch answer, or leaves them alone.
            if (meta.without_values == 0) {
                values.apply(hdr, meta);
            } else if (meta.new_chunk == 1 || meta.slot_closed == 1
                       || hdr.innet.bitmap == meta.full_bitmap) {
                hdr.values.setValid();
                values.apply(hdr, meta);
            }
#else
            values.apply(hdr, meta);
#endif
            marks.apply(hdr, meta);
#ifdef MOVING
            moves.apply(hdr, meta);
#endif
            if (meta.was_closed == 1 && meta.child_seen == 0) {
                dropped.count((bit<32>)DROP_LATE);
            }
            bit<1> missing = (bit<1>)(hdr.innet.bitmap != meta.full_bitmap);
            bit<1> lacks = meta.has_parent == 1
                ? meta.result_lacks : (bit<1>)(hdr.innet.count != meta.job_workers);
            if (meta.from_parent == 0 && meta.slot_closed == 0 && missing == 1) {
                mark_to_drop(standard_metadata); // the slot waits for others
            } else if (meta.has_parent == 1 && meta.holds_result == 0) {
                send_up();
            } else {
                if (lacks == 1) {
                    mark_partial();
                }
                // The packet that completes or brings the result makes it multicast.
                if (meta.read_only == 0
                        || (meta.has_parent == 0 && missing == 1 && meta.was_closed == 0)) {
                    multicast_result();
                } else {
                    resend_result();
                }
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), TreeIngress(), NetworkEgress(), UpdateChecksums(),
         InnetDeparser()) main;
