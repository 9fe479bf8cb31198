// Admission: a packet is accepted only if the control plane has bound its ingress port, job, epoch
// and worker index to a part of the slot pool. Every dropped packet is counted by its reason.

#ifndef INNET_ADMISSION_P4
#define INNET_ADMISSION_P4

#include "malformed.p4"

// The header is checked when a packet arrives. The sender is checked in every pass, since a job may
// start another epoch between two passes.
#if PARTS > 1
#define FIRST_PASS meta.recirculated == 0
#define SENDER_PORT meta.reply_port
// A switch that does not know the length of a packet yet learns it while it computes the checksum.
#define TOO_SHORT (hdr.values.isValid() \
                   && standard_metadata.packet_length < (hdr.udp.isValid() ? 32w34 : 32w6) \
                                                        + (bit<32>)UDP_LENGTH)
#else
#define FIRST_PASS true
#define SENDER_PORT standard_metadata.ingress_port
#define TOO_SHORT false
#endif

control Admission(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    // worker_bit: this worker's bit in the bitmap; full_bitmap: the bits that make a slot complete;
    // group: the multicast group of the job; slot_base, slot_mask: the job's part of the pool, a
    // power of two of slots, so that a mask and no comparison keeps a job inside it.
    action admit(bit<32> worker_bit, bit<32> full_bitmap, bit<16> group, bit<16> slot_base,
                 bit<16> slot_mask) {
        meta.worker_bit = worker_bit;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.slot_excess = hdr.innet.slot & ~slot_mask;
#if PARTS > 1
        meta.slot_index = (bit<32>)(slot_base | hdr.innet.slot) << 1 | (bit<32>)hdr.innet.slot_version;
        meta.index = meta.part_offset
            + ((bit<32>)(slot_base | hdr.innet.slot) << 1 | (bit<32>)hdr.innet.slot_version);
#else
        meta.index = (bit<32>)(slot_base | hdr.innet.slot) << 1 | (bit<32>)hdr.innet.slot_version;
#endif
        meta.drop_reason = NOT_DROPPED;
    }

    action drop_not_admitted() {
        meta.drop_reason = DROP_NOT_ADMITTED;
    }

    table admission {
        key = {
            SENDER_PORT: exact;
            hdr.innet.job: exact;
            hdr.innet.epoch: exact;
            hdr.innet.worker: exact;
        }
        actions = { admit; drop_not_admitted; }
        const default_action = drop_not_admitted();
        size = 1024;
    }

    apply {
        if (FIRST_PASS && (standard_metadata.parser_error != error.NoError || TOO_SHORT)) {
            meta.drop_reason = DROP_TRUNCATED;
        } else if (FIRST_PASS && standard_metadata.checksum_error == 1) {
            meta.drop_reason = DROP_CHECKSUM;
        } else if (FIRST_PASS && HAS_NO_FORMAT) {
            meta.drop_reason = DROP_NOT_INNET;
        } else if (FIRST_PASS && (FIELDS_MALFORMED || hdr.innet.flags & FLAG_RESULT != 0
                                  || LENGTHS_MALFORMED)) {
            meta.drop_reason = DROP_MALFORMED;
        } else {
            // The first bit is 0: simple_switch's control plane reads 63 bits of a register at most.
            meta.chunk_signature = 1w0 ++ hdr.innet.operation[2:0] ++ hdr.innet.elements[10:0] ++ 1w0
                ++ hdr.innet.message;
            meta.request_partial = hdr.innet.flags[5:5]; // FLAG_PARTIAL
            admission.apply();
        }
    }
}

#endif
