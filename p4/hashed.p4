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

const bit<16> ALL_WORKERS = 0xFFFF; // the addressee of a result that is for all workers

// All of it is 0 when a packet comes in.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> sender_bitmap;   // the workers that the packet speaks for
    bit<16> sender_count;    // how many they are
    bit<32> full_bitmap;     // the workers below this switch
    bit<16> group;           // to all that is below
    bit<9>  up_port;         // to the next switch or the server
    bit<32> double_window;   // twice the window
    bit<1>  from_parent;     // a result
    bit<1>  resent;          // sent again
    bit<8>  partial_request; // what it asks the server for
    bit<32> index;           // of the aggregator, in every register array
    bit<1>  is_chunk;        // the aggregator is this chunk's
    bit<1>  new_chunk;       // this packet takes it
    bit<1>  mismatch;
    bit<1>  read_only;       // adds nothing: the worker is in
    bit<1>  overflow0;       // a sum has left int32, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
}

#include "include/drop_reasons.p4"

const bit<8> DROP_NOT_BELOW    = 9; // for workers that are not below the sender, or for nobody

#include "include/parser.p4"
#include "include/header_check.p4"
#include "include/aggregators.p4"
#include "include/values.p4"
#include "include/marks.p4"
#include "include/egress.p4"

// Who may speak, and for whom.
control Admission(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    action drop_not_admitted() {
        meta.drop_reason = DROP_NOT_ADMITTED;
    }

    action admit_worker(bit<32> worker_bit) {
        meta.sender_bitmap = worker_bit;
        meta.sender_count = 1;
        meta.drop_reason = hdr.innet.bitmap != 0 ? DROP_NOT_BELOW : NOT_DROPPED;
    }

    // A switch below, which speaks for any of the workers below it.
    action admit_switch(bit<32> mask) {
        meta.sender_bitmap = hdr.innet.bitmap;
        meta.sender_count = hdr.innet.count;
        meta.drop_reason = hdr.innet.bitmap == 0 || hdr.innet.bitmap & ~mask != 0
            ? DROP_NOT_BELOW : NOT_DROPPED;
    }

    // The switch above or the server: results come from there, and nothing else.
    action admit_parent() {
        meta.from_parent = 1;
    }

    table worker_admission {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { admit_worker; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    table switch_admission {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { admit_switch; admit_parent; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 256;
    }

    action set_position(bit<32> full_bitmap, bit<16> group, bit<9> up_port, bit<32> double_window) {
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.up_port = up_port;
        meta.double_window = double_window;
    }

    table position {
        key = {
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
        }
        actions = { set_position; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 256;
    }

    apply {
        if (!worker_admission.apply().hit) {
            switch_admission.apply();
        }
        if (meta.drop_reason == NOT_DROPPED) {
            if (hdr.innet.flags[4:4] != meta.from_parent) { // FLAG_RESULT
                meta.drop_reason = DROP_MALFORMED;
            } else {
                position.apply();
            }
        }
    }
}

// Results, to those they are for.
control ResultForwarding(inout headers_t hdr, inout metadata_t meta,
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
        if (hdr.innet.worker == ALL_WORKERS) {
            standard_metadata.mcast_grp = meta.group;
        } else {
            route.apply();
        }
    }
}

control HashedIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) dropped;
    counter(1, CounterType.packets) collided;
    HeaderCheck() header_check;
    Admission() admission;
    Aggregators() aggregators;
    Values() values;
    Marks() marks;
    ResultForwarding() result_forwarding;

    action count_and_drop() {
        dropped.count((bit<32>)meta.drop_reason);
        mark_to_drop(standard_metadata);
    }

    action find_aggregator() {
        hash(meta.index, HashAlgorithm.crc32, (bit<32>)0,
             { hdr.innet.job, hdr.innet.epoch, hdr.innet.sequence }, (bit<32>)(2 * SLOTS));
        meta.resent = hdr.innet.flags[2:2]; // FLAG_RESEND
        meta.partial_request = hdr.innet.flags & FLAGS_REQUEST;
    }

    action send_up() {
        standard_metadata.egress_spec = meta.up_port;
    }

    // As it came, but that it says for whom it speaks.
    action forward_up() {
        hdr.innet.bitmap = meta.sender_bitmap;
        hdr.innet.count = meta.sender_count;
        send_up();
    }

    // What an aggregator remembers by itself, a packet on its own must carry (RFC 3168).
    action mark_ecn() {
        hdr.innet.flags = hdr.innet.flags | FLAG_ECN;
    }

    action mark_collision() {
        hdr.innet.flags = hdr.innet.flags | FLAG_COLLISION;
        collided.count(0);
    }

    apply {
        header_check.apply(hdr, meta, standard_metadata);
        if (meta.drop_reason == NOT_DROPPED) {
            admission.apply(hdr, meta, standard_metadata);
        }
        if (meta.drop_reason == NOT_DROPPED) {
            find_aggregator();
            aggregators.apply(hdr, meta);
        }
        if (meta.drop_reason != NOT_DROPPED) {
            count_and_drop();
        } else if (meta.from_parent == 1) {
            result_forwarding.apply(hdr, meta, standard_metadata);
        } else if (meta.is_chunk == 0 && meta.new_chunk == 0) {
            if (meta.resent == 0) {
                mark_collision();
            }
            if (hdr.ipv4.isValid() && hdr.ipv4.dscp_ecn & 3 == 3) {
                mark_ecn();
            }
            forward_up();
        } else {
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.resent == 1) {
                hdr.innet.flags = hdr.innet.flags | FLAG_RESEND | meta.partial_request;
                send_up();
            } else if (meta.read_only == 0 && hdr.innet.bitmap == meta.full_bitmap) {
                send_up();
            } else {
                mark_to_drop(standard_metadata); // waits for others, or was there before
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), HashedIngress(), NetworkEgress(), UpdateChecksums(),
         InnetDeparser()) main;
