// The bookkeeping of the slot pool: which chunk a slot holds, who is in, how many are in.
//
// Every register array is touched once per packet, at one index, as a switch ASIC's stateful ALU
// would: read, decide, write. Cells are one word of 32 bits or a pair of them, as such an ALU has
// them, and what the values have to wait for takes two accesses, one after the other.

#ifndef INNET_POOL_P4
#define INNET_POOL_P4

const bit<8> REFUSED_LATE      = 9; // the slot was closed without it; the answer is its result
#if defined(TWO_PASSES) || PARTS > 1
const bit<8> REFUSED_OVERTAKEN = 10; // between two passes of a result the slot changed
#endif

const bit<32> CLOSED = 0x10000; // a bit of `said` that is 0

#if PARTS > 1
#define WHOLE meta.whole
#else
#define WHOLE meta.index
#endif

control Pool(inout headers_t hdr, inout metadata_t meta) {
    register<bit<64>>(CELLS)     chunk;   // job, epoch; sequence
    register<bit<64>>(CELLS)     members; // closed, what all have to agree on; bitmap
    register<bit<8>>(2 * SLOTS)  count;
    register<bit<16>>(2 * SLOTS) exponent;

    // What another job, or an earlier epoch of this one, left in the slot means nothing. Admission has
    // made sure that the packet is of the job and epoch that the slot now belongs to.
    //
    // A newer chunk takes the slot over, and whatever is older than what the slot holds is refused,
    // however late it comes. SwitchML tells a new chunk by a bitmap that the other version's
    // packets have cleared, which a delayed duplicate can fool.
    action claim() {
        bit<64> held;
        chunk.read(held, meta.index);
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        meta.fresh = (bit<1>)(held[63:32] != mine
                              || (int<32>)(hdr.innet.sequence - held[31:0]) > 0);
        meta.newest = meta.fresh == 1 ? hdr.innet.sequence : held[31:0];
        chunk.write(meta.index, mine ++ meta.newest);
    }

    // All of a chunk must mean the same: whoever differs from the first in operation, number of
    // elements or all-reduce is refused, and shows up as missing, where a sum would be wrong.
    //
    // Whoever asks for what is there closes the slot: its result is then what all have been told,
    // and a contribution that comes later is too late.
    action join() {
        bit<64> held;
        members.read(held, meta.index);
        held = meta.fresh == 1 ? meta.said ++ 32w0 : held;
        meta.open = (bit<1>)(held[63:32] == meta.said);
        meta.closed = (bit<1>)(held[63:32] ^ CLOSED == meta.said);
        meta.seen = (bit<1>)(held[31:0] & meta.worker_bit != 0);
        meta.reads = meta.seen | meta.closed;
        hdr.innet.bitmap = held[31:0] | (meta.open == 1 ? meta.worker_bit : 0);
        members.write(meta.index,
                      (held[63:32] | (meta.open == 1 && meta.closes == 1 ? CLOSED : 0))
                      ++ hdr.innet.bitmap);
    }

    action number() {
        bit<8> before;
        count.read(before, WHOLE);
        before = meta.fresh == 1 ? 0 : before;
        hdr.innet.count = meta.reads == 1 ? before : before + 1;
        count.write(WHOLE, hdr.innet.count);
    }

    action raise_exponent() {
        bit<16> before;
        exponent.read(before, WHOLE);
        before = meta.fresh == 1 ? 0 : before;
        hdr.innet.exponent = meta.reads == 1 || before > hdr.innet.exponent
            ? before : hdr.innet.exponent;
        exponent.write(WHOLE, hdr.innet.exponent);
    }

#ifdef TWO_PASSES
    // The second pass reads what the first one has left, unless another chunk came in between.
    action check() {
        bit<64> held;
        chunk.read(held, meta.index);
        meta.open = (bit<1>)(held == hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence);
    }
#endif
#if PARTS > 1
    // Whoever has joined this part is who makes up the result, and the part is of the same chunk.
    action find_chunk() {
        bit<64> held;
        chunk.read(held, meta.index);
        meta.fresh = (bit<1>)(held != hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence);
    }

    action find_members() {
        bit<64> held;
        members.read(held, meta.index);
        meta.open = (bit<1>)(held[31:0] == meta.target);
    }
#endif

    apply {
#ifdef TWO_PASSES
        if (meta.second == 1) {
            check();
            return;
        }
#elif PARTS > 1
        if (meta.late == 1 || meta.answers == 1) {
            meta.refusal = REFUSED_OVERTAKEN; // unless the slot is what it has to be
            find_chunk();
            if (meta.fresh == 0) {
                find_members();
                if (meta.open == 1 && meta.last == 1 && meta.answers == 0) {
                    number();
                    raise_exponent();
                }
            }
            return;
        }
#endif
        claim();
        // A stale packet must not leave a trace in the other registers.
        if (meta.newest != hdr.innet.sequence) {
            meta.refusal = REFUSED_STALE;
        } else {
            join();
            if (meta.open == 0 && meta.closed == 0) {
                meta.refusal = REFUSED_DISAGREES;
#if PARTS > 1
            } else if (meta.last == 1) {
#else
            } else {
#endif
                number();
                raise_exponent();
            }
        }
    }
}

#endif
