// The values of a switch that adds floats, after FPISA (Yuan et al., NSDI 2022).
//
// A slot holds each sum as an exponent and a signed mantissa, in two registers. It stands for
// mantissa * 2**(exponent - 152): the 24 bits of a float32 lie above two guard bits, and 32 of them fit
// 31 bits, so no sum of 32 workers overflows. Adding moves the mantissa with the smaller exponent to the
// right, as far as the exponents differ; what falls out is cut off, towards minus infinity. Nothing is
// normalized in the slot. A result is normalized as it leaves, and rounded once, half to even or by chance.
//
// bf16 and fp16: a word has two values, the first in its low half. Both are added as float32 numbers
// are, each in a mantissa of its own. See docs/fpisa.md.

#ifndef INNET_FLOATS_P4
#define INNET_FLOATS_P4

#include "values.p4" // the operations on integers, by which codecs agree

// What was added to a sum besides numbers, above its exponent. Both infinities make no number.
#define EXPONENT_BITS     32w0xFF
#define POSITIVE_INFINITY 32w0x100
#define NEGATIVE_INFINITY 32w0x200
#define NOT_A_NUMBER      32w0x300

// Mantissas of the low halves, or of whole words, are where integers are.
#define SCALE_REGISTER(i)       register<bit<32>>(2 * SLOTS) scale##i; // exponent, and what is above it
#define UPPER_REGISTER(i)       register<bit<32>>(2 * SLOTS) upper##i;
#define UPPER_SCALE_REGISTER(i) register<bit<32>>(2 * SLOTS) upper_scale##i;

// BMv2 takes a number of bits from 8 bits. Where it is below 64, 6 bits say so.
#define LEFT(word, by)  ((word) << (bit<6>)(by))
#define RIGHT(word, by) ((word) >> (bit<6>)(by))
#define SHIFTED(mantissa, by) ((bit<32>)((int<32>)(mantissa) >> (bit<8>)(by))) // with copies of the sign

// Add the number in `field` to the sum with the mantissa `total`; `held` has the sum's exponent and what is
// above it. Once something was added that is no number, the mantissa means nothing.
//
// Of a choice that is a whole right side, p4c makes a branch; everything else it puts in place wherever it
// is used. So choices are kept short, and shifts out of them: then all values are added at once.
#define FLOAT_ADD \
    special = field & meta.sign_bit != 0 ? NEGATIVE_INFINITY : POSITIVE_INFINITY; \
    special = field & meta.fraction_mask != 0 ? NOT_A_NUMBER : special; \
    special = field & meta.infinity != meta.infinity ? 0 : special; \
    mantissa = field & meta.infinity == 0 ? field & meta.fraction_mask \
        : field & meta.fraction_mask | meta.leading_bit; \
    mantissa = field & meta.sign_bit != 0 ? -mantissa : mantissa; \
    exponent = (field & meta.infinity) >> meta.fraction; \
    exponent = exponent + meta.bias + (bit<32>)(bit<1>)(exponent == 0); \
    total = meta.new_chunk == 1 ? 0 : total; \
    held = meta.new_chunk == 1 ? 0 : held; \
    largest = held & EXPONENT_BITS; \
    total = SHIFTED(total, exponent |-| largest) + SHIFTED(mantissa << meta.widening, largest |-| exponent); \
    held = (largest + (exponent |-| largest)) | held & NOT_A_NUMBER | special;

#define LOWER_READ(i) \
    value##i.read(hdr.values.v##i, meta.index); \
    scale##i.read(meta.scale##i, meta.index);
#define UPPER_READ(i) \
    upper##i.read(meta.upper##i, meta.index); \
    upper_scale##i.read(meta.upper_scale##i, meta.index);
#define LOWER_ADD(i) \
    field = hdr.values.v##i & meta.number_mask; \
    value##i.read(total, meta.index); \
    scale##i.read(held, meta.index); \
    FLOAT_ADD \
    hdr.values.v##i = total; \
    meta.scale##i = held; \
    value##i.write(meta.index, hdr.values.v##i); \
    scale##i.write(meta.index, meta.scale##i);
#define UPPER_ADD(i) \
    field = hdr.values.v##i >> 16; \
    upper##i.read(total, meta.index); \
    upper_scale##i.read(held, meta.index); \
    FLOAT_ADD \
    meta.upper##i = total; \
    meta.upper_scale##i = held; \
    upper##i.write(meta.index, meta.upper##i); \
    upper_scale##i.write(meta.index, meta.upper_scale##i);

// What is added to a sum before its last bits, `right` of them, are cut off. Half to even: half of what is
// cut off, less the smallest bit of it if the rest is even.
#define HALF_TO_EVEN (LEFT(32w1, right) - 1 + (RIGHT(size, right) & 1) >> 1)

// By chance: a random number of so many bits, so that the mean is right. A result that leaves again must be
// rounded alike. So the number follows from the chunk and the number's place in the packet, by a hash of
// multiplications (after Wellons' lowbias32), of which the high bits are taken.
#define BY_CHANCE(place) \
    noise = hdr.innet.sequence * 32w0x9E3779B9 + (place); \
    noise = (noise ^ noise >> 16) * 32w0x7FEB352D; \
    noise = (noise ^ noise >> 15) * 32w0x846CA68B;
#define NOISE RIGHT(noise, 32 - right)

// Make a number of the sum. Its highest bit says how far it moves: to where the format has its leading bit,
// or to where its smallest numbers end. Beyond the largest number is infinity, by a sum that stays at its end.
#define FLOAT_ROUND(addend) \
    size = total >> 31 == 1 ? -total : total; \
    top = size > 0xFFFF ? 32w16 : 0; \
    top = RIGHT(size, top) > 0xFF ? top + 8 : top; \
    top = RIGHT(size, top) > 0xF ? top + 4 : top; \
    top = RIGHT(size, top) > 3 ? top + 2 : top; \
    top = RIGHT(size, top) > 1 ? top + 1 : top; \
    top = size == 0 ? 0 : top + (held & EXPONENT_BITS); \
    exponent = top > meta.least_normal ? top - meta.least_normal : 0; \
    by = exponent + meta.least_exponent - (held & EXPONENT_BITS); \
    right = exponent + meta.least_exponent > held & EXPONENT_BITS ? by : 0; \
    left = exponent + meta.least_exponent > held & EXPONENT_BITS ? 0 : -by; \
    field = RIGHT(size + addend, right); \
    field = LEFT(field, left) + (exponent << meta.fraction); \
    field = (field |+| ~meta.infinity) - ~meta.infinity; \
    finite = held < POSITIVE_INFINITY ? 32w0xFFFFFFFF : 0; \
    special = held >= NEGATIVE_INFINITY ? meta.sign_bit : 0; \
    special = held >= NOT_A_NUMBER ? meta.quiet_bit : special; \
    sign = total >> 31 == 1 ? meta.sign_bit : 0; \
    field = (field | sign) & finite | (meta.infinity | special) & ~finite; \
    meta.overflow0 = meta.overflow0 | (bit<1>)(field & meta.infinity == meta.infinity);

#define LOWER_ROUND_BY(i, addend) \
    total = hdr.values.v##i; \
    held = meta.scale##i; \
    FLOAT_ROUND(addend) \
    hdr.values.v##i = field;
#define UPPER_ROUND_BY(i, addend) \
    total = meta.upper##i; \
    held = meta.upper_scale##i; \
    FLOAT_ROUND(addend) \
    hdr.values.v##i = hdr.values.v##i | field << 16;
#define LOWER_ROUND(i) LOWER_ROUND_BY(i, HALF_TO_EVEN)
#define UPPER_ROUND(i) UPPER_ROUND_BY(i, HALF_TO_EVEN)
#define LOWER_ROUND_STOCHASTIC(i) BY_CHANCE(2 * i + 1) LOWER_ROUND_BY(i, NOISE)
#define UPPER_ROUND_STOCHASTIC(i) BY_CHANCE(2 * i + 2) UPPER_ROUND_BY(i, NOISE)

control FloatValues(inout headers_t hdr, inout metadata_t meta) {
    REPEAT(VALUE_REGISTER)
    REPEAT(SCALE_REGISTER)
    REPEAT(UPPER_REGISTER)
    REPEAT(UPPER_SCALE_REGISTER)

    // bits: behind the leading one. last_exponent: that of infinities. bias: from its exponents to those of
    // float32. least_exponent: of a sum whose last bit is that of the format's smallest number.
    action set_format(bit<5> sign_place, bit<5> bits, bit<32> last_exponent, bit<32> bias,
                      bit<32> least_exponent) {
        meta.sign_bit = 32w1 << sign_place;
        meta.number_mask = (32w2 << sign_place) - 1;
        meta.fraction = bits;
        meta.leading_bit = 32w1 << bits;
        meta.quiet_bit = 32w1 << bits - 1;
        meta.fraction_mask = (32w1 << bits) - 1;
        meta.infinity = last_exponent << bits;
        meta.widening = 25 - bits;
        meta.bias = bias;
        meta.least_exponent = least_exponent;
        meta.least_normal = least_exponent + (bit<32>)bits;
    }
    table format {
        key = { hdr.innet.operation: exact; }
        actions = { set_format; NoAction; }
        const entries = {
            OPERATION_SUM_FLOAT32: set_format(31, 23, 255, 0, 3);
            OPERATION_SUM_BF16: set_format(15, 7, 255, 0, 19);
            OPERATION_SUM_FP16: set_format(15, 10, 31, 112, 128);
            OPERATION_SUM_BF16_STOCHASTIC: set_format(15, 7, 255, 0, 19);
            OPERATION_SUM_FP16_STOCHASTIC: set_format(15, 10, 31, 112, 128);
        }
        const default_action = NoAction();
    }

    action read() { REPEAT(VALUE_READ) }
    action sum() {
        bit<32> held;
        bit<32> total;
        QUARTER_0(VALUE_SUM_0)
        QUARTER_1(VALUE_SUM_1)
        QUARTER_2(VALUE_SUM_2)
        QUARTER_3(VALUE_SUM_3)
    }
    action or()  { bit<32> held; REPEAT(VALUE_OR) }
    action max() { bit<32> held; REPEAT(VALUE_MAX) }
    action read_floats() { REPEAT(LOWER_READ) }
    action add_floats() {
        bit<32> field; bit<32> special; bit<32> mantissa; bit<32> exponent;
        bit<32> total; bit<32> held; bit<32> largest;
        REPEAT(LOWER_ADD)
    }

    // One table chooses the operation of all value registers.
    table combine {
        key = {
            meta.new_chunk: exact;
            meta.read_only: exact;
            hdr.innet.operation: exact;
        }
        actions = { read; sum; or; max; read_floats; add_floats; NoAction; }
        const entries = {
            (1, 0, OPERATION_SUM): or();
            (1, 0, OPERATION_OR):  or();
            (1, 0, OPERATION_MAX): or();
            (0, 0, OPERATION_SUM): sum();
            (0, 0, OPERATION_OR):  or();
            (0, 0, OPERATION_MAX): max();
            (0, 1, OPERATION_SUM): read();
            (0, 1, OPERATION_OR):  read();
            (0, 1, OPERATION_MAX): read();
            (1, 0, OPERATION_SUM_FLOAT32): add_floats();
            (0, 0, OPERATION_SUM_FLOAT32): add_floats();
            (0, 1, OPERATION_SUM_FLOAT32): read_floats();
            (1, 0, OPERATION_SUM_BF16): add_floats();
            (0, 0, OPERATION_SUM_BF16): add_floats();
            (0, 1, OPERATION_SUM_BF16): read_floats();
            (1, 0, OPERATION_SUM_FP16): add_floats();
            (0, 0, OPERATION_SUM_FP16): add_floats();
            (0, 1, OPERATION_SUM_FP16): read_floats();
            (1, 0, OPERATION_SUM_BF16_STOCHASTIC): add_floats();
            (0, 0, OPERATION_SUM_BF16_STOCHASTIC): add_floats();
            (0, 1, OPERATION_SUM_BF16_STOCHASTIC): read_floats();
            (1, 0, OPERATION_SUM_FP16_STOCHASTIC): add_floats();
            (0, 0, OPERATION_SUM_FP16_STOCHASTIC): add_floats();
            (0, 1, OPERATION_SUM_FP16_STOCHASTIC): read_floats();
        }
        const default_action = NoAction();
    }

    action read_upper() { REPEAT(UPPER_READ) }
    action add_upper() {
        bit<32> field; bit<32> special; bit<32> mantissa; bit<32> exponent;
        bit<32> total; bit<32> held; bit<32> largest;
        REPEAT(UPPER_ADD)
    }

    action round_floats() {
        bit<32> total; bit<32> held; bit<32> size; bit<32> top; bit<32> exponent; bit<32> by;
        bit<32> right; bit<32> left; bit<32> field; bit<32> finite; bit<32> special; bit<32> sign;
        REPEAT(LOWER_ROUND)
    }
    action round_upper() {
        bit<32> total; bit<32> held; bit<32> size; bit<32> top; bit<32> exponent; bit<32> by;
        bit<32> right; bit<32> left; bit<32> field; bit<32> finite; bit<32> special; bit<32> sign;
        REPEAT(UPPER_ROUND)
    }
    action round_floats_stochastically() {
        bit<32> total; bit<32> held; bit<32> size; bit<32> top; bit<32> exponent; bit<32> by; bit<32> noise;
        bit<32> right; bit<32> left; bit<32> field; bit<32> finite; bit<32> special; bit<32> sign;
        REPEAT(LOWER_ROUND_STOCHASTIC)
    }
    action round_upper_stochastically() {
        bit<32> total; bit<32> held; bit<32> size; bit<32> top; bit<32> exponent; bit<32> by; bit<32> noise;
        bit<32> right; bit<32> left; bit<32> field; bit<32> finite; bit<32> special; bit<32> sign;
        REPEAT(UPPER_ROUND_STOCHASTIC)
    }

    apply {
        format.apply();
        // The high halves first, as the mantissas of the low ones take the place of the words.
        if (hdr.innet.operation > OPERATION_SUM_FLOAT32) {
            if (meta.read_only == 1) {
                read_upper();
            } else {
                add_upper();
            }
        }
        combine.apply();
        if (meta.result_flags != 0 && hdr.innet.operation > OPERATION_SUM_FP16) {
            round_floats_stochastically();
            round_upper_stochastically();
        } else if (meta.result_flags != 0 && hdr.innet.operation >= OPERATION_SUM_FLOAT32) {
            round_floats();
            if (hdr.innet.operation > OPERATION_SUM_FLOAT32) {
                round_upper();
            }
        }
    }
}

#endif
