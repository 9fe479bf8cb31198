// The bookkeeping of a slot in a tree: which chunk it holds, which children are in, whether it is
// closed, and whether it holds their sum or the result that came down from the root.
//
// Every register array is accessed once per packet, at one index, as a switch ASIC's stateful ALU
// does: read, decide, write.

#ifndef INNET_TREE_POOL_P4
#define INNET_TREE_POOL_P4

control Pool(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(SLOTS)     fence; // of each job, at its slot_base: ~(job ++ epoch)
    register<bit<32>>(2 * SLOTS) owner;
    register<bit<32>>(2 * SLOTS) sequence;
    register<bit<32>>(2 * SLOTS) chunk_signature;
    register<bit<8>>(2 * SLOTS)  state;
    register<bit<32>>(2 * SLOTS) bitmap;
    register<bit<16>>(2 * SLOTS) count;
    register<bit<16>>(2 * SLOTS) exponent;

    // Only the control plane writes the fence, once in an epoch, before it admits any worker. A switch
    // that has lost its registers since then has lost this word, too. It does not know any more which
    // of its children are in a partial result.
    action check_fence() {
        bit<32> held;
        fence.read(held, (bit<32>)meta.slot_base);
        meta.lost = (bit<1>)(held != ~(hdr.innet.job ++ hdr.innet.epoch));
    }

    // As in the slot pool, the content of another job or epoch is ignored.
    action update_owner() {
        bit<32> mine = hdr.innet.job ++ hdr.innet.epoch;
        bit<32> held;
        owner.read(held, meta.index);
        meta.owner_changed = (bit<1>)(held != mine);
        owner.write(meta.index, mine);
    }

    // As in the slot pool, a newer chunk replaces the slot's content. So does a result: it replaces the
    // sum of its chunk, and a switch that has lost its registers gets it back.
    action update_chunk() {
        bit<32> held;
        sequence.read(held, meta.index);
        meta.age = meta.owner_changed == 1 ? 1 : hdr.innet.sequence - held;
        meta.new_chunk = (bit<1>)(meta.age != 0 && meta.age < 0x80000000);
        sequence.write(meta.index, meta.new_chunk == 1 ? hdr.innet.sequence : held);
        meta.new_chunk = meta.new_chunk | meta.from_parent;
    }

    action check_signature() {
        bit<32> signature =
            hdr.innet.message ++ hdr.innet.operation[3:0] ++ hdr.innet.elements[11:0];
        bit<32> held;
        chunk_signature.read(held, meta.index);
        held = meta.new_chunk == 1 ? signature : held;
        meta.mismatch = (bit<1>)(held != signature);
        chunk_signature.write(meta.index, held);
    }

#ifdef COLLECTIVES
    // As in the slot pool, all packets of a chunk name the same owner, if it has one.
    register<bit<16>>(2 * SLOTS) chunk_owner;

    action check_owner() {
        bit<16> held;
        chunk_owner.read(held, meta.index);
        held = meta.new_chunk == 1 ? hdr.innet.exponent : held;
        meta.other_owner = (bit<1>)(held != hdr.innet.exponent);
        chunk_owner.write(meta.index, held);
    }
#endif

    // Bit 0: closed, nothing is added any more. Bit 1: it holds the result. Bit 2: which is partial.
    action update_state() {
        bit<8> held;
        state.read(held, meta.index);
        held = meta.new_chunk == 1 ? 0 : held;
        meta.was_closed = held[0:0];
        held = held | (bit<8>)meta.request_here;
        held = meta.from_parent == 1 ? 0b011 | (bit<8>)meta.lacks << 2 : held;
        meta.slot_closed = held[0:0];
        meta.holds_result = held[1:1];
        meta.result_lacks = held[2:2];
        state.write(meta.index, held);
    }

    // A child joins. Of a result, the children that are in it: all, if it is complete; none, if this
    // switch is not in; otherwise those that the switch has sent up.
    action update_bitmap() {
        bit<32> before;
        bitmap.read(before, meta.index);
        before = meta.new_chunk & ~meta.keeps_bitmap == 1 ? 0 : before;
        meta.child_seen = (bit<1>)(before & meta.child_bit != 0) & ~meta.from_parent;
        meta.read_only = meta.child_seen | meta.was_closed;
        hdr.innet.bitmap = meta.was_closed == 1 ? before : before | meta.child_bit;
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
        check_fence();
        // Only a switch that has kept its registers may close a chunk at the root, tell its children
        // which of them are in a partial result, or say which tree a slot has moved to.
        if (meta.lost == 1
                && (meta.keeps_bitmap == 1 || MOVES_SLOTS
                    || (meta.has_parent == 0 && meta.allow_partial == 1))) {
            meta.drop_reason = DROP_LOST_STATE;
            return;
        }
        update_owner();
        update_chunk();
        // A stale packet must not leave a trace in the other registers.
        if (meta.age >= 0x80000000) {
            meta.drop_reason = DROP_STALE;
        } else {
            check_signature();
#ifdef COLLECTIVES
            if (meta.mismatch == 0 && hdr.innet.operation & 0x7F >= OPERATION_REDUCE) {
                check_owner();
            }
            meta.mismatch = meta.mismatch | meta.other_owner;
#endif
            if (meta.mismatch == 1) {
                meta.drop_reason = DROP_MISMATCH;
            } else {
                update_state();
                update_bitmap();
                update_count();
                update_exponent();
            }
        }
    }
}

#endif
