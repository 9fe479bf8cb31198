// Packet formats: Ethernet, IPv4, UDP and the innet header, version 3.
//
// The same layout is written once for workers in innet/wire/; a test compares the two.

#ifndef INNET_HEADERS_P4
#define INNET_HEADERS_P4

#ifndef VALUES
#define VALUES 64
#endif

#ifndef PER_PASS // values that one pass through the switch adds or reads
#define PER_PASS VALUES
#endif

#define PARTS (VALUES / PER_PASS)
#define CELLS (2 * SLOTS * PARTS) // two versions of each slot, part by part

#include "repeat.p4"

const bit<16> ETHERTYPE_IPV4  = 0x0800;
const bit<16> ETHERTYPE_INNET = 0x88B5; // IEEE 802 local experimental, for raw framing
const bit<8>  PROTOCOL_UDP    = 17;
const bit<16> UDP_PORT_INNET  = 48879;

const bit<16> INNET_MAGIC   = 0x494E; // "IN"
const bit<8>  INNET_VERSION = 3;

const bit<8> OPERATION_SUM = 1;
const bit<8> OPERATION_OR  = 2;
const bit<8> OPERATION_MAX = 3;
#ifdef COLLECTIVES
// Sums and values of one worker, the owner of the chunk. See docs/collectives.md.
const bit<8> OPERATION_REDUCE    = 4; // the others' values, summed for the owner
const bit<8> OPERATION_BROADCAST = 5; // the owner's values, for the others
const bit<8> OPERATION_BARRIER   = 6; // no values
const bit<8> WITHOUT_VALUES = 0x80;   // added to the operation of a packet that ends with the header
#endif

const bit<8> FLAG_OVERFLOW  = 1;  // a sum has overflowed int32
const bit<8> FLAG_COLLISION = 2;  // the aggregator held another chunk
const bit<8> FLAG_RESEND    = 4;  // sent again
const bit<8> FLAG_ECN       = 8;  // the packet met congestion on its way
const bit<8> FLAG_RESULT    = 16;
const bit<8> FLAG_PARTIAL   = 32; // request for a partial result; in a result: it is partial
const bit<8> FLAGS_REQUEST  = 0xE0; // with two bits: how many levels above the leaves it is for

const bit<8> MARKS = FLAG_OVERFLOW | FLAG_ECN; // the flags that a slot keeps for its result

const bit<16> UDP_LENGTH = 8 + 32 + 4 * VALUES; // UDP header, innet header and values
const bit<16> BARE_UDP_LENGTH = 8 + 32;         // without values

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  dscp_ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> length;
    bit<16> checksum;
}

header innet_t {
    bit<16> magic;
    bit<8>  version;
    bit<8>  operation;
    bit<16> job;
    bit<16> epoch;
    bit<32> sequence;     // chunk number, serial arithmetic
    bit<16> slot;         // within the job
    bit<8>  slot_version; // which of the two shadow copies
    bit<8>  flags;
    bit<32> bitmap;       // in a result: the switch's children that are in it; see each program
    bit<16> worker;       // the sender; in a result, the addressee
    bit<16> count;        // in a sum or a result: how many workers are in it
    bit<16> elements;     // how many of the values are used
    bit<16> exponent;     // block exponent, aggregated by MAX; with an owner, the owner's index
    bit<16> message;      // the number of the all-reduce that the chunk belongs to
    bit<16> checksum;     // RFC 1071, over the header and the values
}

#define VALUE_FIELD(i) bit<32> v##i;

header values_t { // those of one pass
    REPEAT(VALUE_FIELD)
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    innet_t    innet;
    values_t   values;
}

#endif
