// The values: one register array for each value of the packet, with one stateful operation each.

#ifndef INNET_VALUES_P4
#define INNET_VALUES_P4

#define VALUE_REGISTER(i) register<bit<32>>(2 * SLOTS) value##i;

#define VALUE_READ(i) \
    value##i.read(hdr.values.v##i, meta.index);
#ifdef SATURATING // a sum that would overflow stays at the limit of int32
#define VALUE_TOTAL(i) (bit<32>)((int<32>)held |+| (int<32>)hdr.values.v##i)
#else
#define VALUE_TOTAL(i) total
#endif
// A sum has overflowed where its sign differs from the signs of both summands.
#define VALUE_SUM(i, quarter) \
    value##i.read(held, meta.index); \
    total = held + hdr.values.v##i; \
    meta.overflow##quarter = meta.overflow##quarter | ((held ^ total) & (hdr.values.v##i ^ total))[31:31]; \
    hdr.values.v##i = VALUE_TOTAL(i); \
    value##i.write(meta.index, hdr.values.v##i);
// Overflow is detected in four chains, one for each quarter of the values: a switch that sums a value
// of each quarter in every stage carries all four from stage to stage. More than 32 values do not fit
// one pass of such a switch; then one chain costs less than four.
#define VALUE_SUM_0(i) VALUE_SUM(i, 0)
#if VALUES == 32
#define VALUE_SUM_1(i) VALUE_SUM(i, 1)
#define VALUE_SUM_2(i) VALUE_SUM(i, 2)
#define VALUE_SUM_3(i) VALUE_SUM(i, 3)
#else
#define VALUE_SUM_1(i) VALUE_SUM(i, 0)
#define VALUE_SUM_2(i) VALUE_SUM(i, 0)
#define VALUE_SUM_3(i) VALUE_SUM(i, 0)
#endif
#define VALUE_OR(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = (meta.new_chunk == 1 ? 0 : held) | hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);
#define VALUE_MAX(i) \
    value##i.read(held, meta.index); \
    hdr.values.v##i = (int<32>)held > (int<32>)hdr.values.v##i ? held : hdr.values.v##i; \
    value##i.write(meta.index, hdr.values.v##i);

#define VALUE_CLEAR(i) \
    hdr.values.v##i = 0; \
    value##i.write(meta.index, 0);

control Values(inout headers_t hdr, inout metadata_t meta) {
    REPEAT(VALUE_REGISTER)

    action read() { REPEAT(VALUE_READ) }
    action sum() {
        bit<32> held;
        bit<32> total;
        QUARTER_0(VALUE_SUM_0)
        QUARTER_1(VALUE_SUM_1)
        QUARTER_2(VALUE_SUM_2)
        QUARTER_3(VALUE_SUM_3)
    }
    // Also replaces the content of another chunk: a stateful ALU of a Tofino 1 has four instructions.
    action or()  { bit<32> held; REPEAT(VALUE_OR) }
    action max() { bit<32> held; REPEAT(VALUE_MAX) }
#ifdef COLLECTIVES
    action clear() { REPEAT(VALUE_CLEAR) }
#endif

    // One table chooses the operation of all value registers.
    table combine {
        key = {
            meta.new_chunk: exact;
            meta.read_only: exact;
            hdr.innet.operation: exact;
        }
#ifdef COLLECTIVES
        actions = { read; sum; or; max; clear; NoAction; }
#else
        actions = { read; sum; or; max; NoAction; }
#endif
        const entries = {
            // The first packet of a chunk replaces the slot's content: no clearing pass is needed.
            (1, 0, OPERATION_SUM): or();
            (1, 0, OPERATION_OR):  or();
            (1, 0, OPERATION_MAX): or();
            (0, 0, OPERATION_SUM): sum();
            (0, 0, OPERATION_OR):  or();
            (0, 0, OPERATION_MAX): max();
            // A repeated contribution counts once, a late one not at all: both read the result.
            (0, 1, OPERATION_SUM): read();
            (0, 1, OPERATION_OR):  read();
            (0, 1, OPERATION_MAX): read();
#ifdef COLLECTIVES
            (1, 0, OPERATION_REDUCE): or();
            (0, 0, OPERATION_REDUCE): sum();
            (0, 1, OPERATION_REDUCE): read();
            (1, 0, OPERATION_BROADCAST): or();
            (0, 0, OPERATION_BROADCAST): or(); // what the others have left is 0
            (0, 1, OPERATION_BROADCAST): read();
            // Without values: what another chunk has left is cleared, and a result is read.
            (1, 0, OPERATION_REDUCE | WITHOUT_VALUES): clear();
            (0, 0, OPERATION_REDUCE | WITHOUT_VALUES): read();
            (0, 1, OPERATION_REDUCE | WITHOUT_VALUES): read();
            (1, 0, OPERATION_BROADCAST | WITHOUT_VALUES): clear();
            (0, 0, OPERATION_BROADCAST | WITHOUT_VALUES): read();
            (0, 1, OPERATION_BROADCAST | WITHOUT_VALUES): read();
#endif
        }
        const default_action = NoAction();
    }

    apply {
        combine.apply();
    }
}

#endif
