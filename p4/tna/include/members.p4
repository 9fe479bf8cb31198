// Who is in a slot, what all of a chunk have to agree on, and whether more may come: one register, two
// words to a cell, since a child is added only while the signature is the packet's and nothing is closed.
// It stands there three times, updated alike, because three things are asked for: the bitmap before, the
// signature before, and whether the slot was open to this packet.
//
// Low bits of the signature: CLOSED, nothing is added any more; SETTLED, the slot holds the result; LACKS,
// which lacks workers.

#ifndef INNET_TNA_MEMBERS_P4
#define INNET_TNA_MEMBERS_P4

const bit<32> CLOSED  = 1;
const bit<32> SETTLED = 2;
const bit<32> LACKS   = 4;

struct members_t {
    bit<32> signature;
    bit<32> bitmap;
}

// start: a newer chunk, or a result from above. close: a contribution that asks for what is there.
// keep: a result that lacks workers, but has this switch in it: who of those below is in stands there.
#define MEMBERS(copy, width, field, what) \
    Register<members_t, index_t>(CELLS) copy; \
    RegisterAction<members_t, index_t, bit<width>>(copy) copy##_start = { \
        void apply(inout members_t held, out bit<width> result) { \
            result = 0; \
            held.signature = meta.chunk_signature; \
            held.bitmap = meta.add; \
        } \
    }; \
    RegisterAction<members_t, index_t, bit<width>>(copy) copy##_join = { \
        void apply(inout members_t held, out bit<width> result) { \
            what(held, result) \
            if (held.signature == meta.chunk_signature) { \
                held.bitmap = held.bitmap | meta.add; \
            } \
        } \
    }; \
    RegisterAction<members_t, index_t, bit<width>>(copy) copy##_close = { \
        void apply(inout members_t held, out bit<width> result) { \
            what(held, result) \
            if (held.signature == meta.chunk_signature) { \
                held.bitmap = held.bitmap | meta.add; \
                held.signature = held.signature | CLOSED; \
            } \
        } \
    }; \
    RegisterAction<members_t, index_t, bit<width>>(copy) copy##_keep = { \
        void apply(inout members_t held, out bit<width> result) { \
            what(held, result) \
            held.signature = meta.chunk_signature; \
        } \
    }; \
    action copy##_do_start() { meta.field = copy##_start.execute(INDEX); } \
    action copy##_do_join() { meta.field = copy##_join.execute(INDEX); } \
    action copy##_do_close() { meta.field = copy##_close.execute(INDEX); } \
    action copy##_do_keep() { meta.field = copy##_keep.execute(INDEX); } \
    table copy##_update { \
        key = { meta.newer: ternary; meta.ends: ternary; meta.descends: ternary; meta.keeps: ternary; } \
        actions = { \
            copy##_do_start; copy##_do_join; copy##_do_close; copy##_do_keep; @defaultonly NoAction; \
        } \
        const entries = { \
            (_, _, 1, 1): copy##_do_keep(); \
            (_, _, 1, 0): copy##_do_start(); \
            (1, _, 0, _): copy##_do_start(); \
            (0, 1, 0, _): copy##_do_close(); \
            (0, 0, 0, _): copy##_do_join(); \
        } \
        const default_action = NoAction(); \
    }

#define GIVE_BITMAP(held, result) result = held.bitmap;
#define GIVE_SIGNATURE(held, result) result = held.signature;
#define GIVE_OPEN(held, result) \
    result = 0; \
    if (held.signature == meta.chunk_signature) { \
        result = 1; \
    }

control Members(in headers_t hdr, inout metadata_t meta) {
    MEMBERS(members, 32, before, GIVE_BITMAP)
    MEMBERS(members_signature, 32, before_signature, GIVE_SIGNATURE)
    MEMBERS(members_open, 1, open, GIVE_OPEN)

    apply {
        members_update.apply();
        members_signature_update.apply();
        members_open_update.apply();
    }
}

#endif
