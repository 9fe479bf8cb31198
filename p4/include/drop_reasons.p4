// Why programs drop packets: the index of the counter `dropped`. From 9 on, each has its own.

#ifndef INNET_DROP_REASONS_P4
#define INNET_DROP_REASONS_P4

const bit<8> NOT_DROPPED       = 0; // never counted
const bit<8> DROP_NOT_INNET    = 1; // no innet packet, or another version of the format
const bit<8> DROP_TRUNCATED    = 2; // shorter than its headers say
const bit<8> DROP_CHECKSUM     = 3; // damaged: the checksum of IPv4's header or of innet's packet
const bit<8> DROP_MALFORMED    = 4; // a field that nobody would send
const bit<8> DROP_NOT_ADMITTED = 5; // not admitted: port, job, epoch and worker do not belong together
const bit<8> DROP_SLOT_RANGE   = 6; // outside the job's part of the pool
const bit<8> DROP_STALE        = 7; // an older chunk than the slot holds
const bit<8> DROP_MISMATCH     = 8; // another operation, length or all-reduce than the first

#endif
