// The values in pairs: two words to a cell, and four register actions, as many as a stateful ALU of a Tofino 1
// has. It gives one word. So a packet that needs both comes again: ../harvest.p4.
//
// Value k is the low word of pair k, value k + 32 the high one.
//
// A sum that would leave int32 stops at its end, and comes back from there with a later value of the other
// sign: a cell of two words has no comparisons left to hold it.

#ifndef INNET_TNA_PAIRS_P4
#define INNET_TNA_PAIRS_P4

#define PAIRS_0(M) M(0, 32) M(1, 33) M(2, 34) M(3, 35) M(4, 36) M(5, 37) M(6, 38) M(7, 39)
#define PAIRS_1(M) M(8, 40) M(9, 41) M(10, 42) M(11, 43) M(12, 44) M(13, 45) M(14, 46) M(15, 47)
#define PAIRS_2(M) M(16, 48) M(17, 49) M(18, 50) M(19, 51) M(20, 52) M(21, 53) M(22, 54) M(23, 55)
#define PAIRS_3(M) M(24, 56) M(25, 57) M(26, 58) M(27, 59) M(28, 60) M(29, 61) M(30, 62) M(31, 63)
#define PAIRS(M) PAIRS_0(M) PAIRS_1(M) PAIRS_2(M) PAIRS_3(M)

struct pair_t {
    int<32> low;
    int<32> high;
}

// Sum and maximum give the high word, OR the low one. With values of 0 a sum reads the high word; with 0 and
// the high word itself an OR reads the low one.
#define PAIR_REGISTER(i, j) \
    Register<pair_t, index_t>(CELLS) pair##i; \
    RegisterAction<pair_t, index_t, int<32>>(pair##i) start##i = { \
        void apply(inout pair_t held, out int<32> result) { \
            held.low = (int<32>)hdr.values.v##i; \
            held.high = (int<32>)hdr.values.v##j; \
            result = held.high; \
        } \
    }; \
    RegisterAction<pair_t, index_t, int<32>>(pair##i) sum##i = { \
        void apply(inout pair_t held, out int<32> result) { \
            held.low = held.low |+| (int<32>)hdr.values.v##i; \
            held.high = held.high |+| (int<32>)hdr.values.v##j; \
            result = held.high; \
        } \
    }; \
    RegisterAction<pair_t, index_t, int<32>>(pair##i) or##i = { \
        void apply(inout pair_t held, out int<32> result) { \
            held.low = held.low | (int<32>)hdr.values.v##i; \
            held.high = held.high | (int<32>)hdr.values.v##j; \
            result = held.low; \
        } \
    }; \
    RegisterAction<pair_t, index_t, int<32>>(pair##i) max##i = { \
        void apply(inout pair_t held, out int<32> result) { \
            held.low = max(held.low, (int<32>)hdr.values.v##i); \
            held.high = max(held.high, (int<32>)hdr.values.v##j); \
            result = held.high; \
        } \
    }; \
    action do_start##i() { hdr.values.v##j = (bit<32>)start##i.execute(INDEX); } \
    action do_sum##i() { hdr.values.v##j = (bit<32>)sum##i.execute(INDEX); } \
    action do_or##i() { hdr.values.v##i = (bit<32>)or##i.execute(INDEX); } \
    action do_max##i() { hdr.values.v##j = (bit<32>)max##i.execute(INDEX); } \
    table combine##i { \
        key = { meta.operation: exact; } \
        actions = { do_start##i; do_sum##i; do_or##i; do_max##i; @defaultonly NoAction; } \
        const entries = { \
            VALUES_START: do_start##i(); \
            VALUES_SUM: do_sum##i(); \
            VALUES_OR: do_or##i(); \
            VALUES_MAX: do_max##i(); \
        } \
        const default_action = NoAction(); \
    }

#define PAIR_APPLY(i, j) combine##i.apply();
#define PAIR_CLEAR_LOW(i, j) hdr.values.v##i = 0;
#define PAIR_CLEAR_HIGH(i, j) hdr.values.v##j = 0;

control Pairs(inout headers_t hdr, in metadata_t meta) {
    PAIRS(PAIR_REGISTER)

    apply {
        PAIRS(PAIR_APPLY)
    }
}

#endif
