// Which chunk a slot holds. A stateful ALU of a Tofino 1 gives one word, or what its comparisons came to,
// and both are asked for. So the register stands there twice, updated alike: one says whether the packet's
// chunk is newer than what the slot held, the other which chunk it holds now.

#ifndef INNET_TNA_CHUNK_P4
#define INNET_TNA_CHUNK_P4

struct chunk_t {
    int<32> owner; // job and epoch; of the same type as the other word, as the compiler asks
    int<32> sequence; // signed, so that the difference of two is told as in serial arithmetic
}

control Chunk(in headers_t hdr, inout metadata_t meta) {
    Register<chunk_t, index_t>(CELLS) chunk;
    Register<chunk_t, index_t>(CELLS) chunk_newest;

    RegisterAction<chunk_t, index_t, bit<1>>(chunk) claim = {
        void apply(inout chunk_t held, out bit<1> newer) {
            newer = 0;
            if (held.owner != (int<32>)hdr.innet.owner
                || (int<32>)hdr.innet.sequence - held.sequence > 0) {
                held.owner = (int<32>)hdr.innet.owner;
                held.sequence = (int<32>)hdr.innet.sequence;
                newer = 1;
            }
        }
    };
    RegisterAction<chunk_t, index_t, bit<32>>(chunk_newest) claim_newest = {
        void apply(inout chunk_t held, out bit<32> newest) {
            if (held.owner != (int<32>)hdr.innet.owner
                || (int<32>)hdr.innet.sequence - held.sequence > 0) {
                held.owner = (int<32>)hdr.innet.owner;
                held.sequence = (int<32>)hdr.innet.sequence;
            }
            newest = (bit<32>)held.sequence;
        }
    };

#ifdef SEVERAL_PASSES
    // A pass that only finds: is it still the chunk of a pass before?
    RegisterAction<chunk_t, index_t, bit<1>>(chunk) find = {
        void apply(inout chunk_t held, out bit<1> other) {
            other = 0;
            if (held.owner != (int<32>)hdr.innet.owner
                || held.sequence != (int<32>)hdr.innet.sequence) {
                other = 1;
            }
        }
    };
    action do_claim() { meta.newer = claim.execute(INDEX); }
    action do_find() { meta.other = find.execute(INDEX); }
    table claim_or_find {
        key = { meta.finds: exact; }
        actions = { do_claim; do_find; @defaultonly NoAction; }
        const entries = { 0: do_claim(); 1: do_find(); }
        const default_action = NoAction();
    }

    apply {
        claim_or_find.apply();
        if (meta.finds == 0) {
            meta.newest = claim_newest.execute(INDEX);
        }
    }
#else
    apply {
        meta.newer = claim.execute(INDEX);
        meta.newest = claim_newest.execute(INDEX);
    }
#endif
}

#endif
