// The slot pool: streaming aggregation as in SwitchML (Sapio et al., NSDI 2021), for several jobs.
//
// Workers stream chunks of a vector through a pool of slots. A slot combines the chunk of all
// workers (SUM, OR or MAX, by the packet's operation field) and multicasts the result when the last
// one is in. Each slot has two shadow copies, so that a worker who lost a result can still ask for
// it while the others are one chunk ahead.
//
// Compile-time parameters: VALUES (32, 64, 256 or 1024 per packet), SLOTS (of the whole pool),
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
    bit<32> worker_bit;
    bit<32> everybody; // the bits that make a slot complete
    bit<16> group;
    bit<16> outside;
    bit<32> index;  // of the slot and version, in every register array
    bit<32> said;   // what all packets of a chunk have to agree on
    bit<1>  closes; // asks for what is there
    bit<32> newest; // chunk of the slot, this packet's included
    bit<1>  fresh;  // this packet's chunk is newer than what the slot held
    bit<1>  open;   // agrees with the chunk's others, and the slot is not closed
    bit<1>  closed; // agrees, and the slot was closed before this packet
    bit<1>  seen;
    bit<1>  reads;  // seen, or late: adds nothing
    bit<1>  left0;  // a sum has left int32, in the first quarter of the values
    bit<1>  left1;
    bit<1>  left2;
    bit<1>  left3;
    bit<8>  told;   // flags that make it a result
}

#include "include/refusals.p4"
#include "include/parser.p4"
#include "include/admission.p4"
#include "include/pool.p4"
#include "include/values.p4"
#include "include/marks.p4"

#define EGRESS SlotsEgress
#define TOLD meta.told // which the slot's marks do not hold
#include "include/egress.p4"

control SlotsIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) refused;
    Admission() admission;
    Pool() pool;
    Values() values;
    Marks() marks;

    action refuse() {
        refused.count((bit<32>)meta.refusal);
        mark_to_drop(standard_metadata);
    }

    // To all workers: this packet made the result.
    action publish() {
        standard_metadata.mcast_grp = meta.group;
    }

    // To the one who asks for it once more, or too late.
    action repeat() {
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    apply {
        admission.apply(hdr, meta, standard_metadata);
        if (meta.refusal == REFUSED_NOT) {
            if (meta.outside != 0) {
                meta.refusal = REFUSED_SLOT;
            } else {
                pool.apply(hdr, meta);
            }
        }
        if (meta.open == 0 && meta.closed == 0) {
            refuse();
        } else {
            values.apply(hdr, meta);
            marks.apply(hdr, meta);
            if (meta.closed == 1 && meta.seen == 0) {
                refused.count((bit<32>)REFUSED_LATE);
            }
            // The flags of a result are set on the way out, where those that stay with a slot are known.
            if (hdr.innet.bitmap == meta.everybody) {
                meta.told = FLAG_RESULT;
                if (meta.reads == 1) {
                    repeat();
                } else {
                    publish();
                }
            } else if (meta.closed == 1) {
                meta.told = FLAG_RESULT | FLAG_PARTIAL;
                repeat();
            } else if (meta.closes == 1) {
                meta.told = FLAG_RESULT | FLAG_PARTIAL;
                publish();
            } else {
                mark_to_drop(standard_metadata); // the slot waits for others
            }
        }
    }
}

V1Switch(InnetParser(), VerifyChecksums(), SlotsIngress(), SlotsEgress(), UpdateChecksums(),
         InnetDeparser()) main;
