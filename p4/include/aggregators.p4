// Hashed aggregators: any chunk of any job may use any of them, whichever its hash names. Which chunk
// has one, who is in, how many are in.
//
// Every register array is touched once per packet, at one index, as a switch ASIC's stateful ALU
// would: read, decide, write.

#ifndef INNET_AGGREGATORS_P4
#define INNET_AGGREGATORS_P4

control Aggregators(inout headers_t hdr, inout metadata_t meta) {
    register<bit<64>>(2 * SLOTS) key; // job, epoch and sequence of the chunk; 0: free
    register<bit<32>>(2 * SLOTS) agreement;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<8>>(2 * SLOTS)  count;
    register<bit<16>>(2 * SLOTS) exponent;

    // A contribution takes a free aggregator. One that is sent again takes none, and gives back the
    // one of its chunk, whose content goes with it; so does a result.
    action look() {
        bit<64> mine = hdr.innet.job ++ hdr.innet.epoch ++ hdr.innet.sequence;
        bit<64> held;
        key.read(held, meta.index);
        // A worker sends a chunk after it had the results of all that are `span` older: what an
        // aggregator still holds of those, a late copy has brought. And what it holds of another
        // epoch of the same job, nobody asks for any more.
        bit<32> ahead = hdr.innet.sequence - held[31:0];
        bit<1> over = (bit<1>)(held[63:48] == mine[63:48]
                               && (held[47:32] != mine[47:32]
                                   || (ahead >= meta.span && ahead < 0x80000000)));
        meta.matches = (bit<1>)(held == mine);
        meta.fresh = (bit<1>)(held == 0) | over;
        meta.fresh = meta.fresh & ~(meta.matches | meta.again | meta.descends);
        bit<1> gives = meta.matches & (meta.again | meta.descends);
        key.write(meta.index, gives == 1 ? 0 : (meta.fresh == 1 ? mine : held));
    }

    // All of a chunk must mean the same, as in the slot pool.
    action agree() {
        bit<32> said = hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        agreement.read(held, meta.index);
        held = meta.fresh == 1 ? said : held;
        meta.disagrees = (bit<1>)(held != said);
        agreement.write(meta.index, held);
    }

    action join() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.fresh == 1 ? 0 : before;
        meta.reads = (bit<1>)(before & meta.bits != 0);
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
        look();
        if (meta.descends == 0 && (meta.matches == 1 || meta.fresh == 1)) {
            agree();
            if (meta.disagrees == 1) {
                meta.refusal = REFUSED_DISAGREES;
            } else {
                join();
                number();
                raise_exponent();
            }
        }
    }
}

#endif
