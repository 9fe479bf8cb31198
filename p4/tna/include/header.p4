// Packet formats: raw Ethernet framing and the innet header, version 3, as in ../../include/headers.p4. The
// numbers of job and epoch, which stand side by side, are read as one word.

#ifndef INNET_TNA_HEADER_P4
#define INNET_TNA_HEADER_P4

#ifndef PER_PASS
#define PER_PASS 32
#endif
#ifndef SLOT_BITS
#define SLOT_BITS 10
#endif

#ifndef PARTS
#define PARTS 1
#endif

#define SLOTS (1 << SLOT_BITS)
#define VALUES (PARTS * PER_PASS)
#define CELLS (2 * SLOTS * PARTS) // two versions of each slot, part by part
#define SLOT_INDEX (meta.slot[SLOT_BITS - 1:0] ++ hdr.innet.slot_version[0:0])

typedef bit<(SLOT_BITS + 1)> slot_index_t; // of slot and version
#if PARTS == 1
#define INDEX SLOT_INDEX
typedef slot_index_t index_t; // of slot, version and part
#elif PARTS == 4
#define INDEX (hdr.harvest.part[1:0] ++ meta.slot[SLOT_BITS - 1:0] ++ hdr.innet.slot_version[0:0])
typedef bit<(SLOT_BITS + 3)> index_t;
#else
#error "the values of a packet are one part, or four"
#endif

#define REPEAT_0_7(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define REPEAT_8_15(M) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define REPEAT_16_23(M) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23)
#define REPEAT_24_31(M) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)
#define REPEAT_32_47(M) M(32) M(33) M(34) M(35) M(36) M(37) M(38) M(39) M(40) M(41) M(42) M(43) M(44) M(45) M(46) M(47)
#define REPEAT_48_63(M) M(48) M(49) M(50) M(51) M(52) M(53) M(54) M(55) M(56) M(57) M(58) M(59) M(60) M(61) M(62) M(63)
#if PER_PASS == 1
#define REPEAT(M) M(0)
#elif PER_PASS == 2
#define REPEAT(M) M(0) M(1)
#elif PER_PASS == 4
#define REPEAT(M) M(0) M(1) M(2) M(3)
#elif PER_PASS == 8
#define REPEAT(M) REPEAT_0_7(M)
#elif PER_PASS == 16
#define REPEAT(M) REPEAT_0_7(M) REPEAT_8_15(M)
#elif PER_PASS == 24
#define REPEAT(M) REPEAT_0_7(M) REPEAT_8_15(M) REPEAT_16_23(M)
#elif PER_PASS == 32
#define REPEAT(M) REPEAT_0_7(M) REPEAT_8_15(M) REPEAT_16_23(M) REPEAT_24_31(M)
#elif PER_PASS == 64
#define REPEAT(M) REPEAT_0_7(M) REPEAT_8_15(M) REPEAT_16_23(M) REPEAT_24_31(M) REPEAT_32_47(M) REPEAT_48_63(M)
#else
#error "a pass takes 1, 2, 4, 8, 16, 24 or 32 values, or 64 in pairs"
#endif

const bit<16> ETHERTYPE_INNET = 0x88B5; // IEEE 802 local experimental

const bit<16> INNET_MAGIC   = 0x494E; // "IN"
const bit<8>  INNET_VERSION = 3;

const bit<8> OPERATION_SUM = 1;
const bit<8> OPERATION_OR  = 2;
const bit<8> OPERATION_MAX = 3;
const bit<8> OPERATION_SUM_FLOAT32 = 7;
#ifdef FLOATS
#define OPERATIONS OPERATION_SUM_FLOAT32
#else
#define OPERATIONS 0 &&& 0xfc
#endif

const bit<8> FLAG_OVERFLOW = 1;
const bit<8> FLAG_ECN      = 8;
const bit<8> FLAG_RESULT   = 16;
const bit<8> FLAG_PARTIAL  = 32;

const bit<8> MARKS = FLAG_OVERFLOW | FLAG_ECN; // the flags that a slot keeps for its result

// What the register actions of the values do.
const bit<3> VALUES_UNTOUCHED = 0;
const bit<3> VALUES_OR        = 1; // overwrites, if the chunk is new
const bit<3> VALUES_SUM       = 2;
const bit<3> VALUES_MAX       = 3;
const bit<3> VALUES_READ      = 4;
const bit<3> VALUES_START     = 5; // of pairs and floats, whose OR cannot overwrite

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header innet_t {
    bit<16> magic;
    bit<8>  version;
    bit<8>  operation;
    bit<32> owner;        // job and epoch, as one number
    bit<32> sequence;     // chunk number, serial arithmetic
    bit<16> slot;         // within the job
    bit<8>  slot_version; // which of the two shadow copies
    bit<8>  flags;
    bit<32> bitmap;       // in a result: which children are in
    bit<16> worker;       // sender, or addressee of a result
    bit<16> count;        // in a result: how many workers are in
    bit<16> elements;     // how many of the values carry meaning
    bit<16> exponent;     // block exponent, aggregated by MAX
    bit<16> message;      // which all-reduce the sender takes this chunk for
    bit<16> checksum;     // neither verified nor updated
}

#define VALUE_FIELD(i) bit<32> v##i;

header values_t {
    REPEAT(VALUE_FIELD)
}

// What a packet carries from one pass to the next, in front of everything.
#if PARTS > 1
const bit<3> STEP_ARRIVE  = 0; // add the first part
const bit<3> STEP_ADD     = 1; // add the next
const bit<3> STEP_SKIP    = 2; // too late: add nothing
const bit<3> STEP_HIGH    = 3; // read the high words of a part
const bit<3> STEP_LOW     = 4; // read its low words
const bit<3> STEP_PREPEND = 5; // put a part in front, and read its high words

header harvest_t {
    bit<32> bitmap;      // of the result
    bit<7>  padding;
    bit<9>  port;        // of the sender
    bit<8>  part;        // whose cells this pass uses
    bit<8>  flags;       // of the result
    bit<8>  to_all;      // not only to the sender
    bit<5>  padding_too;
    bit<3>  step;        // what this pass does
}
#elif defined(SEVERAL_PASSES)
header harvest_t {
    bit<16> slot;      // in the whole pool
    bit<16> group;     // that gets the result; 0: one worker
    bit<7>  padding;
    bit<9>  port;      // of this worker
    bit<5>  padding_too;
    bit<3>  operation; // what the pass before did with the values
}
#endif

struct headers_t {
#ifdef SEVERAL_PASSES
    harvest_t  harvest;
#endif
    ethernet_t ethernet;
    innet_t    innet;
    values_t   values;
}

#endif
