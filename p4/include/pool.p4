// The bookkeeping of the slot pool: which chunk a slot holds, who is in, how many are in.
//
// Every register array is touched once per packet, at one index, as a switch ASIC's stateful ALU
// would: read, decide, write.

#ifndef INNET_POOL_P4
#define INNET_POOL_P4

control Pool(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(2 * SLOTS) owner;
    register<bit<32>>(2 * SLOTS) sequence;
    register<bit<32>>(2 * SLOTS) agreement;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<8>>(2 * SLOTS)  closed;
    register<bit<8>>(2 * SLOTS)  count;
    register<bit<16>>(2 * SLOTS) exponent;

    // What another job, or an earlier epoch of this one, left in the slot means nothing. Admission has
    // made sure that the packet is of the job and epoch that the slot now belongs to.
    action own() {
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        bit<32> held;
        owner.read(held, meta.index);
        meta.inherited = (bit<1>)(held != mine);
        owner.write(meta.index, mine);
    }

    // A newer chunk takes the slot over, and whatever is older than what the slot holds is refused,
    // however late it comes. SwitchML tells a new chunk by a bitmap that the other version's
    // packets have cleared, which a delayed duplicate can fool.
    action claim() {
        bit<32> held;
        sequence.read(held, meta.index);
        meta.age = meta.inherited == 1 ? 1 : hdr.innet.sequence - held;
        meta.fresh = (bit<1>)(meta.age != 0 && meta.age < 0x80000000);
        sequence.write(meta.index, meta.fresh == 1 ? hdr.innet.sequence : held);
    }

    // All of a chunk must mean the same: whoever differs from the first in operation, number of
    // elements or all-reduce is refused, and shows up as missing, where a sum would be wrong.
    action agree() {
        bit<32> said = hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        agreement.read(held, meta.index);
        held = meta.fresh == 1 ? said : held;
        meta.disagrees = (bit<1>)(held != said);
        agreement.write(meta.index, held);
    }

    // Whoever asks for what is there closes the slot: its result is then what all have been told,
    // and a contribution that comes later is too late.
    action close() {
        bit<8> held;
        closed.read(held, meta.index);
        held = meta.fresh == 1 ? 0 : held;
        meta.closed = held[0:0];
        meta.partial = held[0:0] | hdr.innet.flags[5:5]; // FLAG_PARTIAL
        closed.write(meta.index, (bit<8>)meta.partial);
    }

    action join() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        meta.seen = (bit<1>)(before & meta.worker_bit != 0);
        meta.reads = meta.seen | meta.closed;
        hdr.innet.bitmap = meta.reads == 1 ? before : before | meta.worker_bit;
        bitmap.write(meta.index, hdr.innet.bitmap);
    }

    action number() {
        bit<8> before;
        count.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        hdr.innet.count = meta.reads == 1 ? before : before + 1;
        count.write(meta.index, hdr.innet.count);
    }

    action raise_exponent() {
        bit<16> before;
        exponent.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        hdr.innet.exponent = meta.reads == 1 || before > hdr.innet.exponent
            ? before : hdr.innet.exponent;
        exponent.write(meta.index, hdr.innet.exponent);
    }

    apply {
        own();
        claim();
        // A stale packet must not leave a trace in the other registers.
        if (meta.age >= 0x80000000) {
            meta.refusal = REFUSED_STALE;
        } else {
            agree();
            if (meta.disagrees == 1) {
                meta.refusal = REFUSED_DISAGREES;
            } else {
                close();
                join();
                number();
                raise_exponent();
            }
        }
    }
}

#endif
