// Slots that change their tree where it is congested.

#ifndef INNET_MOVES_P4
#define INNET_MOVES_P4
#ifdef MOVING

#ifndef MOVE_DEPTH
#define MOVE_DEPTH 16
#endif

const bit<8> FLAG_MOVE   = 2; // in a sum: it waited in a queue; in a result: a sum of the chunk did
const bit<8> FLAG_WAITED = 4; // in a result: it waited itself

// What every packet is marked with in egress.
#define RESULT_FLAGS \
    (standard_metadata.deq_qdepth < MOVE_DEPTH ? 8w0 \
     : (hdr.innet.flags & FLAG_RESULT == 0 ? FLAG_MOVE : FLAG_WAITED))

// Which tree a slot has moved to. All switches of a level know the same, as all have the same results.
control Ways(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(SLOTS) way_owner; // job and epoch
    register<bit<64>>(SLOTS) way;       // the newest result's chunk; whether it waited; how far

    apply {
        bit<32> index = (bit<32>)(meta.slot_base | hdr.innet.slot);
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        bit<32> owner;
        bit<64> held;
        way_owner.read(owner, index);
        way.read(held, index);
        if (meta.follows == 0) {
            // In a new epoch all slots are where they belong by their number.
            held = owner == mine ? held : (hdr.innet.sequence - 1) ++ 32w0;
            way_owner.write(index, mine);
            way.write(index, held);
            meta.several_above = 1;
            meta.waited = held[16:16];
            meta.tree = hdr.innet.slot + held[15:0];
        } else {
            // A result from the slot's tree; a copy of it moves the slot no second time. Odd steps
            // lead to all trees, and slots that leave one together go to several.
            bit<32> ahead = hdr.innet.sequence - held[63:32];
            bool moves = hdr.innet.flags & FLAG_MOVE != 0;
            bit<16> step = moves ? hdr.innet.sequence[19:4] | 1 : 0;
            bit<1> waited = moves ? 0 : hdr.innet.flags[2:2]; // FLAG_WAITED
            if (ahead != 0 && ahead < 0x80000000) {
                way.write(index, hdr.innet.sequence ++ 15w0 ++ waited ++ (held[15:0] + step));
            }
        }
    }
}

// Whether any sum of the chunk is marked. Once the result is there it does not change.
control Moves(inout headers_t hdr, inout metadata_t meta) {
    register<bit<1>>(2 * SLOTS) moves;

    action update_moves() {
        bit<1> held;
        moves.read(held, meta.index);
        held = meta.new_chunk == 1 ? 0 : held;
        held = held | (meta.moves & ~meta.read_only);
        moves.write(meta.index, held);
        // The next sum says that the last result waited.
        hdr.innet.flags = hdr.innet.flags | (bit<8>)(held | (meta.waited & ~meta.holds_result)) << 1;
    }

    apply {
        update_moves();
    }
}

#endif
#endif
