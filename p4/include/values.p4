// The values: one register array per value of the packet, one stateful operation each.

#ifndef INNET_VALUES_P4
#define INNET_VALUES_P4

#define VALUE_REGISTER(i) register<bit<32>>(2 * SLOTS) value##i;

#define VALUE_OVERWRITE(i) \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_READ(i) \
    value##i.read(hdr.values.v##i, meta.index);
#ifdef SATURATING // a sum that would leave int32 stays at the end that it has reached
#define VALUE_SUM(i) \
    value##i.read(held, meta.index); \
    total = held + hdr.values.v##i; \
    meta.signs = meta.signs | (held ^ total) & (hdr.values.v##i ^ total); \
    hdr.values.v##i = (bit<32>)((int<32>)held |+| (int<32>)hdr.values.v##i); \
    value##i.write(meta.index, hdr.values.v##i);
#else
#define VALUE_SUM(i) \
    value##i.read(held, meta.index); \
    total = held + hdr.values.v##i; \
    meta.signs = meta.signs | (held ^ total) & (hdr.values.v##i ^ total); \
    hdr.values.v##i = total; \
    value##i.write(meta.index, total);
#endif
#define VALUE_OR(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = held | hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_MAX(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = (int<32>)held > (int<32>)hdr.values.v##i ? held : hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);

control Values(inout headers_t hdr, inout metadata_t meta) {
    REPEAT(VALUE_REGISTER)

    action overwrite() { REPEAT(VALUE_OVERWRITE) }
    action read()      { REPEAT(VALUE_READ) }
    // A sum has left int32 where its sign is neither that of the one summand nor of the other.
    action sum()       { bit<32> held; bit<32> total; REPEAT(VALUE_SUM) }
    action or()        { bit<32> held; REPEAT(VALUE_OR) }
    action max()       { bit<32> held; REPEAT(VALUE_MAX) }

    // One table chooses the one operation that all value registers carry out.
    table combine {
        key = {
            meta.fresh: exact;
            meta.reads: exact;
            hdr.innet.operation: exact;
        }
        actions = { overwrite; read; sum; or; max; NoAction; }
        const entries = {
            // The first of a chunk overwrites what the slot held: no clearing pass is needed.
            (1, 0, OPERATION_SUM): overwrite();
            (1, 0, OPERATION_OR):  overwrite();
            (1, 0, OPERATION_MAX): overwrite();
            (0, 0, OPERATION_SUM): sum();
            (0, 0, OPERATION_OR):  or();
            (0, 0, OPERATION_MAX): max();
            // A repeated contribution counts once, a late one not at all: both ask for the result.
            (0, 1, OPERATION_SUM): read();
            (0, 1, OPERATION_OR):  read();
            (0, 1, OPERATION_MAX): read();
        }
        const default_action = NoAction();
    }

    apply {
        meta.signs = 0;
        combine.apply();
    }
}

#endif
