// Why programs drop packets: the indices of the counter `dropped`. From 9 on, each program has its own
// reasons.

#ifndef INNET_DROP_REASONS_P4
#define INNET_DROP_REASONS_P4

const bit<8> NOT_DROPPED       = 0; // never counted
const bit<8> DROP_NOT_INNET    = 1; // not an innet packet, or another version of the format
const bit<8> DROP_TRUNCATED    = 2; // shorter than its headers
const bit<8> DROP_CHECKSUM     = 3; // wrong checksum: of the IPv4 header or of the innet packet
const bit<8> DROP_MALFORMED    = 4; // a field has a value that no worker and no switch sends
const bit<8> DROP_NOT_ADMITTED = 5; // port, job, epoch and worker are not admitted
const bit<8> DROP_SLOT_RANGE   = 6; // the slot is outside the job's part of the pool
const bit<8> DROP_STALE        = 7; // the chunk is older than the one that the slot holds
const bit<8> DROP_MISMATCH     = 8; // operation, length or all-reduce differ from the first packet's

#endif
