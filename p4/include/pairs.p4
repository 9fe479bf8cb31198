// The values, two in each register cell: the hardware form of 64 values per pass.
//
// A stateful ALU of a Tofino 1 updates a pair of 32-bit words at once, and returns one of them. So the
// first pass of a packet updates both words and returns the low ones. A second pass, by recirculation,
// harvests the high words, as in SwitchML (NSDI 2021). Value k is the low word of pair k, value k + 32
// the high one.

#ifndef INNET_PAIRS_P4
#define INNET_PAIRS_P4

#if PER_PASS == 2 // a thin build
#define PAIRS_0(M) M(0, 1)
#define PAIRS_1(M)
#define PAIRS_2(M)
#define PAIRS_3(M)
#elif PER_PASS == 64
#define PAIRS_0(M) M(0, 32) M(1, 33) M(2, 34) M(3, 35) M(4, 36) M(5, 37) M(6, 38) M(7, 39)
#define PAIRS_1(M) M(8, 40) M(9, 41) M(10, 42) M(11, 43) M(12, 44) M(13, 45) M(14, 46) M(15, 47)
#define PAIRS_2(M) M(16, 48) M(17, 49) M(18, 50) M(19, 51) M(20, 52) M(21, 53) M(22, 54) M(23, 55)
#define PAIRS_3(M) M(24, 56) M(25, 57) M(26, 58) M(27, 59) M(28, 60) M(29, 61) M(30, 62) M(31, 63)
#else
#error "there are 32 pairs, so a pass takes 64 values, or 2 in a thin build"
#endif
#define PAIRS(M) PAIRS_0(M) PAIRS_1(M) PAIRS_2(M) PAIRS_3(M)

#define PAIR_REGISTER(i, j) register<bit<64>>(CELLS) pair##i;

#define PAIR_HARVEST(i, j) \
    pair##i.read(held, meta.index); \
    hdr.values.v##j = held[63:32];
// A sum has overflowed where its sign differs from the signs of both summands.
#define PAIR_SUM(i, j, quarter) \
    pair##i.read(held, meta.index); \
    low = held[31:0] + hdr.values.v##i; \
    high = held[63:32] + hdr.values.v##j; \
    meta.overflow##quarter = meta.overflow##quarter \
        | ((held[31:0] ^ low) & (hdr.values.v##i ^ low) \
           | (held[63:32] ^ high) & (hdr.values.v##j ^ high))[31:31]; \
    pair##i.write(meta.index, high ++ low); \
    hdr.values.v##i = low;
#define PAIR_SUM_0(i, j) PAIR_SUM(i, j, 0)
#define PAIR_SUM_1(i, j) PAIR_SUM(i, j, 1)
#define PAIR_SUM_2(i, j) PAIR_SUM(i, j, 2)
#define PAIR_SUM_3(i, j) PAIR_SUM(i, j, 3)
#define PAIR_OR(i, j) \
    pair##i.read(held, meta.index); \
    held = (meta.new_chunk == 1 ? 0 : held) | hdr.values.v##j ++ hdr.values.v##i; \
    pair##i.write(meta.index, held); \
    hdr.values.v##i = held[31:0];
#define PAIR_MAX(i, j) \
    pair##i.read(held, meta.index); \
    low = (int<32>)held[31:0] > (int<32>)hdr.values.v##i ? held[31:0] : hdr.values.v##i; \
    high = (int<32>)held[63:32] > (int<32>)hdr.values.v##j ? held[63:32] : hdr.values.v##j; \
    pair##i.write(meta.index, high ++ low); \
    hdr.values.v##i = low;
#define PAIR_CLEAR(i, j) hdr.values.v##i = 0;

control Pairs(inout headers_t hdr, inout metadata_t meta) {
    PAIRS(PAIR_REGISTER)

    action harvest() { bit<64> held; PAIRS(PAIR_HARVEST) }
    action sum() {
        bit<64> held;
        bit<32> low;
        bit<32> high;
        PAIRS_0(PAIR_SUM_0)
        PAIRS_1(PAIR_SUM_1)
        PAIRS_2(PAIR_SUM_2)
        PAIRS_3(PAIR_SUM_3)
    }
    action or()  { bit<64> held; PAIRS(PAIR_OR) }
    action max() { bit<64> held; bit<32> low; bit<32> high; PAIRS(PAIR_MAX) }

    // One table chooses the operation of all pairs; there are four. A packet that only reads takes the
    // high words first, then the low words with an OR of 0.
    table combine {
        key = {
            meta.second_pass: exact;
            meta.new_chunk: exact;
            meta.read_only: exact;
            hdr.innet.operation: exact;
        }
        actions = { harvest; sum; or; max; NoAction; }
        const entries = {
            (0, 1, 0, OPERATION_SUM): or();
            (0, 1, 0, OPERATION_OR):  or();
            (0, 1, 0, OPERATION_MAX): or();
            (0, 0, 0, OPERATION_SUM): sum();
            (0, 0, 0, OPERATION_OR):  or();
            (0, 0, 0, OPERATION_MAX): max();
            (0, 0, 1, OPERATION_SUM): harvest();
            (0, 0, 1, OPERATION_OR):  harvest();
            (0, 0, 1, OPERATION_MAX): harvest();
            (1, 0, 0, OPERATION_SUM): harvest();
            (1, 0, 0, OPERATION_OR):  harvest();
            (1, 0, 0, OPERATION_MAX): harvest();
            (1, 0, 1, OPERATION_SUM): or();
            (1, 0, 1, OPERATION_OR):  or();
            (1, 0, 1, OPERATION_MAX): or();
        }
        const default_action = NoAction();
    }

    apply {
        combine.apply();
    }
}

#endif
