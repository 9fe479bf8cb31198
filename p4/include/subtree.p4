// The bookkeeping of a slot in a tree: which chunk it holds, which workers are in, whether more may
// come, and whether it holds their sum or already the result that came down from the root.
//
// Every register array is touched once per packet, at one index, as a switch ASIC's stateful ALU
// would: read, decide, write.

#ifndef INNET_SUBTREE_P4
#define INNET_SUBTREE_P4

control Subtree(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(2 * SLOTS) owner;
    register<bit<32>>(2 * SLOTS) sequence;
    register<bit<32>>(2 * SLOTS) agreement;
    register<bit<8>>(2 * SLOTS)  settled;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<8>>(2 * SLOTS)  count;
    register<bit<16>>(2 * SLOTS) exponent;

    // As in the slot pool: what another job or epoch left in the slot means nothing.
    action own() {
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        bit<32> held;
        owner.read(held, meta.index);
        meta.inherited = (bit<1>)(held != mine);
        owner.write(meta.index, mine);
    }

    // As in the slot pool: a newer chunk takes the slot over. A result does so too: it replaces what
    // the slot holds of its own chunk, and a switch that lost its registers learns from it.
    action claim() {
        bit<32> held;
        sequence.read(held, meta.index);
        meta.age = meta.inherited == 1 ? 1 : hdr.innet.sequence - held;
        meta.fresh = (bit<1>)(meta.age != 0 && meta.age < 0x80000000);
        sequence.write(meta.index, meta.fresh == 1 ? hdr.innet.sequence : held);
        meta.fresh = meta.fresh | meta.descends;
    }

    action agree() {
        bit<32> said = hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        agreement.read(held, meta.index);
        held = meta.fresh == 1 ? said : held;
        meta.disagrees = (bit<1>)(held != said);
        agreement.write(meta.index, held);
    }

    // Bit 0: closed, nothing is added any more. Bit 1: it is the result. Bit 2: that lacks workers.
    action settle() {
        bit<8> held;
        settled.read(held, meta.index);
        held = meta.fresh == 1 ? 0 : held;
        meta.shut = held[0:0];
        held = held | (bit<8>)meta.ends;
        held = meta.descends == 1 ? 0b011 | (bit<8>)meta.request[5:5] << 2 : held;
        meta.closed = held[0:0];
        meta.settled = held[1:1];
        meta.lacks = held[2:2];
        settled.write(meta.index, held);
    }

    action join() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        meta.seen = (bit<1>)(before & meta.bits != 0);
        meta.reads = meta.seen | meta.shut;
        hdr.innet.bitmap = meta.reads == 1 ? before : before | meta.bits;
        bitmap.write(meta.index, hdr.innet.bitmap);
    }

    action number() {
        bit<8> before;
        count.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        hdr.innet.count = meta.reads == 1 ? before : before + meta.weight;
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
                settle();
                join();
                number();
                raise_exponent();
            }
        }
    }
}

#endif
