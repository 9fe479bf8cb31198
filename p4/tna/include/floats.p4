// The values as float32, added as FPISA's approximate form does it, FPISA-A (Yuan et al., NSDI 2022): a
// register has the exponent of a sum, another one its mantissa. A stateful ALU of a Tofino 1 cannot shift what
// it holds. So what arrives is moved instead: to the right if its exponent is smaller, and to the left, into
// the mantissa's headroom of 7 bits, if it is larger by up to 7. If it is larger by more, it overwrites the sum.
//
// A mantissa that reaches an end of int32 stays there, and so does one of an infinity or NaN, which is put
// there: such a sum is NaN. Results are normalized and cut off towards zero; what would be subnormal is 0.
//
// Exponents stay where a float32 has them: 1 is EXPONENT_ONE.

#ifndef INNET_TNA_FLOATS_P4
#define INNET_TNA_FLOATS_P4

const int<32> MOST  = 0x7fffffff;
const int<32> LEAST = -0x80000000;

const bit<32> SIGN          = 0x80000000;
const bit<32> EXPONENT      = 0x7f800000;
const bit<32> EXPONENT_ONE  = 0x00800000;
const bit<32> FRACTION      = 0x007fffff;
const bit<32> QUIET         = 0x7fc00000; // what is no number
const int<32> LEADING       = 0x00800000; // the bit that numbers do not show
const int<32> HEADROOM      = 0x03800000; // 7 exponents

#define LEFT_SHIFTS(M, i) M(i, 1) M(i, 2) M(i, 3) M(i, 4) M(i, 5) M(i, 6) M(i, 7)
#define RIGHT_SHIFTS(M, i) \
    LEFT_SHIFTS(M, i) M(i, 8) M(i, 9) M(i, 10) M(i, 11) M(i, 12) M(i, 13) M(i, 14) M(i, 15) M(i, 16) \
    M(i, 17) M(i, 18) M(i, 19) M(i, 20) M(i, 21) M(i, 22) M(i, 23) M(i, 24)
// The highest bit of a sum lies above a mantissa's, or below.
#define TOPS_ABOVE(M, i) M(i, 1, 24) M(i, 2, 25) M(i, 3, 26) M(i, 4, 27) M(i, 5, 28) M(i, 6, 29) M(i, 7, 30)
#define TOPS_BELOW(M, i) \
    M(i, 1, 22) M(i, 2, 21) M(i, 3, 20) M(i, 4, 19) M(i, 5, 18) M(i, 6, 17) M(i, 7, 16) M(i, 8, 15) \
    M(i, 9, 14) M(i, 10, 13) M(i, 11, 12) M(i, 12, 11) M(i, 13, 10) M(i, 14, 9) M(i, 15, 8) M(i, 16, 7) \
    M(i, 17, 6) M(i, 18, 5) M(i, 19, 4) M(i, 20, 3) M(i, 21, 2) M(i, 22, 1) M(i, 23, 0)

#define LEFT_ACTION(i, by) action left##by##_##i() { meta.mantissa##i = meta.mantissa##i << by; }
#define RIGHT_ACTION(i, by) action right##by##_##i() { meta.mantissa##i = meta.mantissa##i >> by; }
#define LEFT_NAME(i, by) left##by##_##i;
#define RIGHT_NAME(i, by) right##by##_##i;
#define LEFT_ENTRY(i, by) (VALUES_SUM, _, by * EXPONENT_ONE): left##by##_##i();
#define RIGHT_ENTRY(i, by) (VALUES_SUM, _, 0 - by * EXPONENT_ONE): right##by##_##i();

#define ABOVE_ACTION(i, by, top) action above##by##_##i() { \
    hdr.values.v##i = hdr.values.v##i >> by; \
    meta.scale##i = meta.scale##i + (by - 1) * EXPONENT_ONE; }
#define BELOW_ACTION(i, by, top) action below##by##_##i() { \
    hdr.values.v##i = hdr.values.v##i << by; \
    meta.scale##i = meta.scale##i - (by + 1) * EXPONENT_ONE; }
#define ABOVE_NAME(i, by, top) above##by##_##i;
#define BELOW_NAME(i, by, top) below##by##_##i;
#define ABOVE_ENTRY(i, by, top) 32w1 << top &&& 32w0xffffffff << top: above##by##_##i();
#define BELOW_ENTRY(i, by, top) 32w1 << top &&& 32w0xffffffff << top: below##by##_##i();

#define FLOAT_REGISTERS(i) \
    Register<int<32>, index_t>(CELLS) exponent##i; \
    RegisterAction<int<32>, index_t, int<32>>(exponent##i) exponent_start##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            held = (int<32>)meta.exponent##i; \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(exponent##i) exponent_raise##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            result = held; \
            if ((int<32>)meta.exponent##i - held > HEADROOM) { \
                held = (int<32>)meta.exponent##i; \
            } \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(exponent##i) exponent_read##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            result = held; \
        } \
    }; \
    Register<int<32>, index_t>(CELLS) value##i; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) start##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            held = meta.mantissa##i; \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) sum##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            if (held != MOST && held != LEAST) { \
                held = held |+| meta.mantissa##i; \
            } \
            result = held; \
        } \
    }; \
    RegisterAction<int<32>, index_t, int<32>>(value##i) read##i = { \
        void apply(inout int<32> held, out int<32> result) { \
            result = held; \
        } \
    };

#define FLOAT_TABLES(i) \
    action unpack##i() { \
        meta.exponent##i = hdr.values.v##i & EXPONENT; \
        meta.mantissa##i = (int<32>)(hdr.values.v##i & FRACTION); \
    } \
    action unpack_subnormal##i() { \
        meta.exponent##i = EXPONENT_ONE; \
        meta.mantissa##i = (int<32>)(hdr.values.v##i & FRACTION); \
    } \
    action unpack_special##i() { \
        meta.exponent##i = EXPONENT; \
        meta.mantissa##i = MOST; \
    } \
    table take_apart##i { \
        key = { hdr.values.v##i: ternary; } \
        actions = { unpack##i; unpack_subnormal##i; unpack_special##i; } \
        const entries = { \
            EXPONENT &&& EXPONENT: unpack_special##i(); \
            0 &&& EXPONENT: unpack_subnormal##i(); \
        } \
        const default_action = unpack##i(); \
    } \
    action lead##i() { meta.mantissa##i = meta.mantissa##i + LEADING; } \
    action lead_negative##i() { meta.mantissa##i = -LEADING - meta.mantissa##i; } \
    action negate##i() { meta.mantissa##i = 0 - meta.mantissa##i; } \
    table give_sign##i { \
        key = { hdr.values.v##i: ternary; } \
        actions = { lead##i; lead_negative##i; negate##i; NoAction; } \
        const entries = { \
            EXPONENT &&& EXPONENT: NoAction(); \
            0 &&& (SIGN | EXPONENT): NoAction(); \
            SIGN &&& (SIGN | EXPONENT): negate##i(); \
            SIGN &&& SIGN: lead_negative##i(); \
        } \
        const default_action = lead##i(); \
    } \
    action do_exponent_start##i() { meta.scale##i = (bit<32>)exponent_start##i.execute(INDEX); } \
    action do_exponent_raise##i() { meta.scale##i = (bit<32>)exponent_raise##i.execute(INDEX); } \
    action do_exponent_read##i() { meta.scale##i = (bit<32>)exponent_read##i.execute(INDEX); } \
    table raise##i { \
        key = { meta.operation: exact; } \
        actions = { do_exponent_start##i; do_exponent_raise##i; do_exponent_read##i; @defaultonly NoAction; } \
        const entries = { \
            VALUES_START: do_exponent_start##i(); \
            VALUES_SUM: do_exponent_raise##i(); \
            VALUES_READ: do_exponent_read##i(); \
        } \
        const default_action = NoAction(); \
    } \
    action measure##i() { meta.difference##i = meta.exponent##i - meta.scale##i; } \
    LEFT_SHIFTS(LEFT_ACTION, i) \
    RIGHT_SHIFTS(RIGHT_ACTION, i) \
    action right_out##i() { meta.mantissa##i = meta.mantissa##i >> 31; } \
    action overwrite##i() { \
        meta.overwrite##i = 1; \
        meta.scale##i = meta.exponent##i; \
    } \
    table align##i { \
        key = { \
            meta.operation: ternary; \
            hdr.values.v##i: ternary; \
            meta.difference##i: ternary; \
        } \
        actions = { \
            LEFT_SHIFTS(LEFT_NAME, i) RIGHT_SHIFTS(RIGHT_NAME, i) right_out##i; overwrite##i; NoAction; \
        } \
        const entries = { \
            (VALUES_SUM, EXPONENT &&& EXPONENT, _): overwrite##i(); \
            (VALUES_SUM, _, 0): NoAction(); \
            LEFT_SHIFTS(LEFT_ENTRY, i) \
            RIGHT_SHIFTS(RIGHT_ENTRY, i) \
            (VALUES_SUM, _, 0 &&& SIGN): overwrite##i(); \
            (VALUES_SUM, _, _): right_out##i(); \
        } \
        const default_action = NoAction(); \
    } \
    action do_start##i() { hdr.values.v##i = (bit<32>)start##i.execute(INDEX); } \
    action do_sum##i() { hdr.values.v##i = (bit<32>)sum##i.execute(INDEX); } \
    action do_read##i() { hdr.values.v##i = (bit<32>)read##i.execute(INDEX); } \
    table combine##i { \
        key = { meta.operation: ternary; meta.overwrite##i: ternary; } \
        actions = { do_start##i; do_sum##i; do_read##i; @defaultonly NoAction; } \
        const entries = { \
            (VALUES_START, _): do_start##i(); \
            (VALUES_SUM, 1): do_start##i(); \
            (VALUES_SUM, 0): do_sum##i(); \
            (VALUES_READ, _): do_read##i(); \
        } \
        const default_action = NoAction(); \
    } \
    action is_negative##i() { \
        hdr.values.v##i = 0 - hdr.values.v##i; \
        meta.scale##i = meta.scale##i ^ SIGN; \
        meta.negative##i = 1; \
    } \
    action is_special##i() { meta.special##i = 1; } \
    table take_sign##i { \
        key = { hdr.values.v##i: ternary; } \
        actions = { is_negative##i; is_special##i; NoAction; } \
        const entries = { \
            0x7fffffff: is_special##i(); \
            0x80000000: is_special##i(); \
            SIGN &&& SIGN: is_negative##i(); \
        } \
        const default_action = NoAction(); \
    } \
    TOPS_ABOVE(ABOVE_ACTION, i) \
    TOPS_BELOW(BELOW_ACTION, i) \
    action in_place##i() { meta.scale##i = meta.scale##i - EXPONENT_ONE; } \
    action is_zero##i() { meta.zero##i = 1; } \
    table normalize##i { \
        key = { hdr.values.v##i: ternary; } \
        actions = { \
            TOPS_ABOVE(ABOVE_NAME, i) TOPS_BELOW(BELOW_NAME, i) in_place##i; is_zero##i; \
        } \
        const entries = { \
            TOPS_ABOVE(ABOVE_ENTRY, i) \
            32w1 << 23 &&& 32w0xffffffff << 23: in_place##i(); \
            TOPS_BELOW(BELOW_ENTRY, i) \
        } \
        const default_action = is_zero##i(); \
    } \
    action put_number##i() { hdr.values.v##i = hdr.values.v##i + meta.scale##i; } \
    action put_zero##i() { hdr.values.v##i = 0; } \
    action put_infinity##i(bit<32> infinity) { \
        hdr.values.v##i = infinity; \
        hdr.innet.flags = hdr.innet.flags | FLAG_OVERFLOW; \
    } \
    table put_together##i { \
        key = { \
            meta.special##i: ternary; \
            meta.negative##i: ternary; \
            meta.zero##i: ternary; \
            meta.scale##i: ternary; \
        } \
        actions = { put_number##i; put_zero##i; put_infinity##i; } \
        const entries = { \
            (1, _, _, _): put_infinity##i(QUIET); \
            (0, _, 1, _): put_zero##i(); \
            (0, 0, 0, 0x7f000000 &&& 0xff000000): put_infinity##i(EXPONENT); \
            (0, 0, 0, 0x80000000 &&& 0xf8000000): put_infinity##i(EXPONENT); \
            (0, 0, 0, SIGN &&& SIGN): put_zero##i(); \
            (0, 1, 0, 0xff000000 &&& 0xff000000): put_infinity##i(SIGN | EXPONENT); \
            (0, 1, 0, 0 &&& 0xf8000000): put_infinity##i(SIGN | EXPONENT); \
            (0, 1, 0, 0 &&& SIGN): put_zero##i(); \
        } \
        const default_action = put_number##i(); \
    }

#define FLOAT_UNPACK(i) take_apart##i.apply(); give_sign##i.apply();
#define FLOAT_RAISE(i) raise##i.apply();
#define FLOAT_ALIGN(i) measure##i(); align##i.apply();
#define FLOAT_COMBINE(i) combine##i.apply();
#define FLOAT_NORMALIZE(i) take_sign##i.apply(); normalize##i.apply();
#define FLOAT_PUT(i) put_together##i.apply();

control Values(inout headers_t hdr, inout metadata_t meta) {
    REPEAT(FLOAT_REGISTERS)
    REPEAT(FLOAT_TABLES)

    apply {
        REPEAT(FLOAT_UNPACK)
        REPEAT(FLOAT_RAISE)
        REPEAT(FLOAT_ALIGN)
        REPEAT(FLOAT_COMBINE)
        REPEAT(FLOAT_NORMALIZE)
        REPEAT(FLOAT_PUT)
    }
}

#endif
