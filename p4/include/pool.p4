// The bookkeeping of the slot pool: which chunk a slot holds, which workers are in, how many they are.
//
// Every register array is accessed once per packet, at one index, as a switch ASIC's stateful ALU
// does: read, decide, write. A cell is one word of 32 bits or a pair of them, as such an ALU has. The
// values depend on two of these accesses, one after the other: `chunk` and `worker_bitmap`.

#ifndef INNET_POOL_P4
#define INNET_POOL_P4

const bit<8> DROP_LATE      = 9; // the slot was closed without this worker; it gets the partial result
#if defined(TWO_PASSES) || PARTS > 1
const bit<8> DROP_OVERTAKEN = 10; // the slot changed between two passes of a result
#endif

const bit<32> CLOSED = 0x10000; // set in the chunk signature of a closed slot, 0 in all others

#if PARTS > 1
#define SLOT_INDEX meta.slot_index
#else
#define SLOT_INDEX meta.index
#endif

control Pool(inout headers_t hdr, inout metadata_t meta) {
    register<bit<64>>(CELLS)     chunk;         // job, epoch; sequence
    register<bit<64>>(CELLS)     worker_bitmap; // closed, chunk signature; bitmap
    register<bit<16>>(2 * SLOTS) count;
    register<bit<16>>(2 * SLOTS) exponent;

    // The content of another job, or of an earlier epoch of this job, is ignored. Admission has made
    // sure that the packet belongs to the job and epoch that own the slot now.
    //
    // A newer chunk replaces the slot's content. A packet of an older chunk is dropped, however late it
    // comes. SwitchML recognizes a new chunk by the bitmap, which packets of the other version have
    // cleared; a delayed duplicate can defeat that.
    action update_chunk() {
        bit<64> held;
        chunk.read(held, meta.index);
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        meta.new_chunk = (bit<1>)(held[63:32] != mine
                                  || (int<32>)(hdr.innet.sequence - held[31:0]) > 0);
        meta.newest_sequence = meta.new_chunk == 1 ? hdr.innet.sequence : held[31:0];
        chunk.write(meta.index, mine ++ meta.newest_sequence);
    }

    // All packets of a chunk must agree. A packet that differs from the first in operation, number of
    // elements or all-reduce is dropped; its worker is missing, and no sum is wrong.
    //
    // A request for a partial result closes the slot: its result is multicast, and a contribution
    // that comes later is not added.
    action update_bitmap() {
        bit<64> held;
        worker_bitmap.read(held, meta.index);
        held = meta.new_chunk == 1 ? meta.chunk_signature ++ 32w0 : held;
        meta.slot_open = (bit<1>)(held[63:32] == meta.chunk_signature);
        meta.slot_closed = (bit<1>)(held[63:32] ^ CLOSED == meta.chunk_signature);
        meta.worker_seen = (bit<1>)(held[31:0] & meta.worker_bit != 0);
        meta.read_only = meta.worker_seen | meta.slot_closed;
        hdr.innet.bitmap = held[31:0] | (meta.slot_open == 1 ? meta.worker_bit : 0);
        worker_bitmap.write(
            meta.index, (held[63:32] | (meta.slot_open == 1 && meta.request_partial == 1 ? CLOSED : 0))
                        ++ hdr.innet.bitmap);
    }

    action update_count() {
        bit<16> before;
        count.read(before, SLOT_INDEX);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.count = meta.read_only == 1 ? before : before + 1;
        count.write(SLOT_INDEX, hdr.innet.count);
    }

    action update_exponent() {
        bit<16> before;
        exponent.read(before, SLOT_INDEX);
        before = meta.new_chunk == 1 ? 0 : before;
        hdr.innet.exponent = meta.read_only == 1 || before > hdr.innet.exponent
            ? before : hdr.innet.exponent;
        exponent.write(SLOT_INDEX, hdr.innet.exponent);
    }

#ifdef COLLECTIVES
    // All packets of a chunk name the same owner, if it has one.
    register<bit<16>>(2 * SLOTS) owner;

    action check_owner() {
        bit<16> held;
        owner.read(held, meta.index);
        held = meta.new_chunk == 1 ? hdr.innet.exponent : held;
        meta.other_owner = (bit<1>)(held != hdr.innet.exponent);
        owner.write(meta.index, held);
    }
#endif

#ifdef TWO_PASSES
    // The second pass reads the slot that the first one left, unless a newer chunk came in between.
    action check() {
        bit<64> held;
        chunk.read(held, meta.index);
        meta.slot_open = (bit<1>)(held == hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence);
    }
#endif
#if PARTS > 1
    // Does this part hold the same chunk, and are exactly those workers in it who are in the result?
    action find_chunk() {
        bit<64> held;
        chunk.read(held, meta.index);
        meta.new_chunk = (bit<1>)(held != hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence);
    }

    action find_bitmap() {
        bit<64> held;
        worker_bitmap.read(held, meta.index);
        meta.slot_open = (bit<1>)(held[31:0] == meta.result_bitmap);
    }
#endif

    apply {
#ifdef TWO_PASSES
        if (meta.second_pass == 1) {
            check();
            return;
        }
#elif PARTS > 1
        if (meta.late == 1 || meta.returning == 1) {
            meta.drop_reason = DROP_OVERTAKEN; // unless the slot is what it has to be
            find_chunk();
            if (meta.new_chunk == 0) {
                find_bitmap();
                if (meta.slot_open == 1 && meta.last_part == 1 && meta.returning == 0) {
                    update_count();
                    update_exponent();
                }
            }
            return;
        }
#endif
        update_chunk();
#ifdef COLLECTIVES
        if (meta.newest_sequence == hdr.innet.sequence
                && hdr.innet.operation & 0x7F >= OPERATION_REDUCE) {
            check_owner();
        }
#endif
        // A stale packet must not leave a trace in the other registers.
        if (meta.newest_sequence != hdr.innet.sequence) {
            meta.drop_reason = DROP_STALE;
#ifdef COLLECTIVES
        } else if (meta.other_owner == 1) {
            meta.drop_reason = DROP_MISMATCH;
#endif
        } else {
            update_bitmap();
            if (meta.slot_open == 0 && meta.slot_closed == 0) {
                meta.drop_reason = DROP_MISMATCH;
#if PARTS > 1
            } else if (meta.last_part == 1) {
#else
            } else {
#endif
                update_count();
                update_exponent();
            }
        }
    }
}

#endif
