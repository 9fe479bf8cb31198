// Hashed aggregators with a parameter server behind them, as in ATP (Lao et al., NSDI 2021): the
// switch sums what it has room for, the server sums the rest and sends the results.
//
// A chunk's aggregator is the one that a hash of job, epoch and sequence names. Is it taken by
// another chunk, the packet goes on to the server as it came. The sum of all workers below goes up
// to the next switch or to the server; the result comes back down and frees the aggregators on its
// way. A contribution that is sent again takes what the aggregator holds along to the server, which
// knows by the bitmap what it has counted. Any number of levels, all running this program.
//
// Compile-time parameters: VALUES (32, 64 or 256 per packet), SLOTS (half the number of aggregators),
// ECN_DEPTH (packets that wait on the way out of the switch, from which on they are marked),
// SATURATING (if defined, sums stay at the ends of int32, as ATP's do, where they wrap otherwise).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

const bit<16> EVERYBODY = 0xFFFF; // the addressee of a result that is for all workers

// All of it is 0 when a packet comes in.
struct metadata_t {
    bit<8>  refusal;
    bit<32> bits;     // the workers that the packet speaks for
    bit<8>  weight;   // how many they are
    bit<32> members;  // the workers below this switch
    bit<16> group;    // to all that is below
    bit<9>  up_port;  // to the next switch or the server
    bit<32> span;     // twice the window
    bit<1>  descends; // a result
    bit<1>  again;    // sent again
    bit<8>  request;  // what it asks the server for
    bit<32> index;    // of the aggregator, in every register array
    bit<1>  matches;  // the aggregator is this chunk's
    bit<1>  fresh;    // this packet takes it
    bit<1>  disagrees;
    bit<1>  reads;    // adds nothing: the worker is in
    bit<1>  left0;    // a sum has left int32, in the first quarter of the values
    bit<1>  left1;
    bit<1>  left2;
    bit<1>  left3;
}

#include "include/refusals.p4"

const bit<8> REFUSED_SPEAKS    = 9; // for workers that are not below the sender, or for nobody

#include "include/parser.p4"
#include "include/sanity.p4"
#include "include/aggregators.p4"
#include "include/values.p4"
#include "include/marks.p4"
#include "include/egress.p4"

// Who may speak, and for whom.
control Neighbours(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    action refuse_stranger() {
        meta.refusal = REFUSED_STRANGER;
    }

    action worker(bit<32> bit_) {
        meta.bits = bit_;
        meta.weight = 1;
        meta.refusal = hdr.innet.bitmap != 0 ? REFUSED_SPEAKS : REFUSED_NOT;
    }

    // A switch below, which speaks for any of the workers below it.
    action below(bit<32> mask) {
        meta.bits = hdr.innet.bitmap;
        meta.weight = hdr.innet.count;
        meta.refusal = hdr.innet.bitmap == 0 || hdr.innet.bitmap & ~mask != 0
            ? REFUSED_SPEAKS : REFUSED_NOT;
    }

    // The switch above or the server: results come from there, and nothing else.
    action above() {
        meta.descends = 1;
    }

    table workers {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { worker; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    table trunks {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { below; above; refuse_stranger; }
        const default_action = refuse_stranger();
        size = 256;
    }

    action place(bit<32> members, bit<16> group, bit<9> up_port, bit<32> span) {
        meta.members = members;
        meta.group = group;
        meta.up_port = up_port;
        meta.span = span;
    }

    table position {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { place; refuse_stranger; }
        const default_action = refuse_stranger();
        size = 256;
    }

    apply {
        if (!workers.apply().hit) {
            trunks.apply();
        }
        if (meta.refusal == REFUSED_NOT) {
            if (hdr.innet.flags[4:4] != meta.descends) { // FLAG_RESULT
                meta.refusal = REFUSED_MALFORMED;
            } else {
                position.apply();
            }
        }
    }
}

// Results, to those they are for.
control Downward(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table route {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { forward; drop; }
        const default_action = drop();
        size = 1024;
    }

    apply {
        if (hdr.innet.worker == EVERYBODY) {
            standard_metadata.mcast_grp = meta.group;
        } else {
            route.apply();
        }
    }
}

control HashedIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) refused;
    counter(1, CounterType.packets) collided;
    Sanity() sanity;
    Neighbours() neighbours;
    Aggregators() aggregators;
    Values() values;
    Marks() marks;
    Downward() downward;

    action refuse() {
        refused.count((bit<32>)meta.refusal);
        mark_to_drop(standard_metadata);
    }

    action find() {
        hash(meta.index, HashAlgorithm.crc32, (bit<32>)0,
             { hdr.innet.job, hdr.innet.epoch, hdr.innet.sequence }, (bit<32>)(2 * SLOTS));
        meta.again = hdr.innet.flags[2:2]; // FLAG_RESEND
        meta.request = hdr.innet.flags & FLAGS_REQUEST;
    }

    action climb() {
        standard_metadata.egress_spec = meta.up_port;
    }

    // As it came, but that it says for whom it speaks.
    action pass_on() {
        hdr.innet.bitmap = meta.bits;
        hdr.innet.count = meta.weight;
        climb();
    }

    // What an aggregator remembers by itself, a packet on its own must carry (RFC 3168).
    action congested() {
        hdr.innet.flags = hdr.innet.flags | FLAG_ECN;
    }

    action collide() {
        hdr.innet.flags = hdr.innet.flags | FLAG_COLLISION;
        collided.count(0);
    }

    apply {
        sanity.apply(hdr, meta, standard_metadata);
        if (meta.refusal == REFUSED_NOT) {
            neighbours.apply(hdr, meta, standard_metadata);
        }
        if (meta.refusal == REFUSED_NOT) {
            find();
            aggregators.apply(hdr, meta);
        }
        if (meta.refusal != REFUSED_NOT) {
            refuse();
        } else if (meta.descends == 1) {
            downward.apply(hdr, meta, standard_metadata);
        } else if (meta.matches == 0 && meta.fresh == 0) {
            if (meta.again == 0) {
                collide();
            }
            if (hdr.ipv4.isValid() && hdr.ipv4.dscp_ecn & 3 == 3) {
                congested();
            }
            pass_on();
        } else {
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.again == 1) {
                hdr.innet.flags = hdr.innet.flags | FLAG_RESEND | meta.request;
                climb();
            } else if (meta.reads == 0 && hdr.innet.bitmap == meta.members) {
                climb();
            } else {
                mark_to_drop(standard_metadata); // waits for others, or was there before
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), HashedIngress(), NetworkEgress(), UpdateChecksums(),
         InnetDeparser()) main;
