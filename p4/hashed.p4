// Hashed aggregators with a parameter server behind them, as in ATP (Lao et al., NSDI 2021): the
// switch sums what it has room for, the server sums the rest and sends the results.
//
// A hash of job, epoch and sequence chooses the aggregator of a chunk. If another chunk holds it, the
// packet goes to the server unchanged. The sum of all workers below goes up to the next switch or to
// the server; the result comes back down and frees the aggregators on its way. A contribution that is
// sent again takes the aggregator's content along to the server, which knows from the bitmap which
// workers it has counted. There may be any number of levels; all switches run this program.
//
// Compile-time parameters: VALUES (32, 64 or 256 per packet), SLOTS (half the number of aggregators),
// ECN_DEPTH (packets in the egress queue from which on packets are marked),
// SATURATING (if defined, sums stay at the limits of int32, as in ATP; otherwise they wrap around).

#include <core.p4>
#include <v1model.p4>

#ifndef SLOTS
#define SLOTS 1024
#endif

#ifndef ECN_DEPTH
#define ECN_DEPTH 32
#endif

#include "include/headers.p4"

const bit<16> ALL_WORKERS = 0xFFFF; // the addressee of a result for all workers

// All fields are 0 when a packet arrives.
struct metadata_t {
    bit<8>  drop_reason;
    bit<32> sender_bitmap;   // the workers in the packet's sum
    bit<16> sender_count;    // how many they are
    bit<32> full_bitmap;     // the workers below this switch
    bit<16> group;           // multicast group of all children
    bit<9>  up_port;         // to the next switch or the server
    bit<32> double_window;   // twice the window
    bit<1>  from_parent;     // a result from above
    bit<1>  resent;          // sent again
    bit<8>  partial_request; // FLAG_PARTIAL and its level, which the server reads
    bit<32> index;           // of the aggregator, in every register array
    bit<1>  is_chunk;        // the aggregator holds this packet's chunk
    bit<1>  new_chunk;       // this packet takes the aggregator
    bit<1>  mismatch;        // with the chunk's first packet
    bit<1>  read_only;       // adds nothing: the worker is in already
    bit<1>  overflow0;       // a sum has overflowed, in the first quarter of the values
    bit<1>  overflow1;
    bit<1>  overflow2;
    bit<1>  overflow3;
}

#include "include/drop_reasons.p4"

const bit<8> DROP_NOT_BELOW = 9; // names workers that are not below the sender, or none

#include "include/parser.p4"
#include "include/header_check.p4"
#include "include/aggregators.p4"
#include "include/values.p4"
#include "include/marks.p4"
#include "include/egress.p4"

// Admission: which senders are accepted, and which workers they may name.
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

    // A child switch, with a sum of any of the workers below it.
    action admit_switch(bit<32> mask) {
        meta.sender_bitmap = hdr.innet.bitmap;
        meta.sender_count = hdr.innet.count;
        meta.drop_reason = hdr.innet.bitmap == 0 || hdr.innet.bitmap & ~mask != 0
            ? DROP_NOT_BELOW : NOT_DROPPED;
    }

    // The parent switch or the server: it sends results and nothing else.
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

// Forwards results to all children, or to the one worker that they are addressed to.
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

    // Unchanged, except that bitmap and count name the workers in it.
    action forward_up() {
        hdr.innet.bitmap = meta.sender_bitmap;
        hdr.innet.count = meta.sender_count;
        send_up();
    }

    // An aggregator keeps this mark for its sum; a packet without aggregator must carry it (RFC 3168).
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
                mark_to_drop(standard_metadata); // the aggregator waits for others, or had it already
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), HashedIngress(), NetworkEgress(), UpdateChecksums(),
         InnetDeparser()) main;
