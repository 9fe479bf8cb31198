// The bookkeeping of the hashed aggregators: which chunk an aggregator holds, which workers are in, how
// many they are. Any chunk of any job may use any aggregator; a hash of the chunk chooses it.
//
// Every register array is accessed once per packet, at one index, as a switch ASIC's stateful ALU
// does: read, decide, write.

#ifndef INNET_AGGREGATORS_P4
#define INNET_AGGREGATORS_P4

control Aggregators(inout headers_t hdr, inout metadata_t meta) {
    register<bit<64>>(2 * SLOTS) key; // job, epoch and sequence of the chunk; 0: free
    register<bit<32>>(2 * SLOTS) chunk_signature;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<16>>(2 * SLOTS) count;
    register<bit<16>>(2 * SLOTS) exponent;

    // A contribution takes a free aggregator. One that is sent again takes none; it frees the
    // aggregator of its chunk and takes the content along. A result frees the aggregator as well.
    action update_key() {
        bit<64> mine = hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence;
        bit<64> held;
        key.read(held, meta.index);
        // A late copy has brought a chunk that is two windows older or more. If instead it waits for a
        // lost packet, as slots advance on their own, its workers send again, and the server adds it.
        // No worker asks any more for a chunk of another epoch of the same job.
        bit<32> ahead = hdr.innet.sequence - held[31:0];
        bit<1> expired = (bit<1>)(held[63:48] == mine[63:48]
                                  && (held[47:32] != mine[47:32]
                                      || (ahead >= meta.double_window && ahead < 0x80000000)));
        meta.is_chunk = (bit<1>)(held == mine);
        meta.new_chunk = (bit<1>)(held == 0) | expired;
        meta.new_chunk = meta.new_chunk & ~(meta.is_chunk | meta.resent | meta.from_parent);
        bit<1> free = meta.is_chunk & (meta.resent | meta.from_parent);
        key.write(meta.index, free == 1 ? 0 : (meta.new_chunk == 1 ? mine : held));
    }

    // All packets of a chunk must agree, as in the slot pool.
    action check_signature() {
        bit<32> signature = hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        chunk_signature.read(held, meta.index);
        held = meta.new_chunk == 1 ? signature : held;
        meta.mismatch = (bit<1>)(held != signature);
        chunk_signature.write(meta.index, held);
    }

    action update_bitmap() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        meta.read_only = (bit<1>)(before & meta.sender_bitmap != 0);
        hdr.innet.bitmap = meta.read_only == 1 ? before : before | meta.sender_bitmap;
        bitmap.write(meta.index, hdr.innet.bitmap);
    }

    action update_count() {
        bit<16> before;
        count.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.count = meta.read_only == 1 ? before : before + meta.sender_count;
        count.write(meta.index, hdr.innet.count);
    }

    action update_exponent() {
        bit<16> before;
        exponent.read(before, meta.index);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.exponent = meta.read_only == 1 || before > hdr.innet.exponent
            ? before : hdr.innet.exponent;
        exponent.write(meta.index, hdr.innet.exponent);
    }

    apply {
        update_key();
        if (meta.from_parent == 0 && (meta.is_chunk == 1 || meta.new_chunk == 1)) {
            check_signature();
            if (meta.mismatch == 1) {
                meta.drop_reason = DROP_MISMATCH;
            } else {
                update_bitmap();
                update_count();
                update_exponent();
            }
        }
    }
}

#endif
