// Why all programs refuse packets: the index of the counter `refused`. From 9 on, each has its own.

#ifndef INNET_REFUSALS_P4
#define INNET_REFUSALS_P4

const bit<8> REFUSED_NOT       = 0; // never counted
const bit<8> REFUSED_FOREIGN   = 1; // no innet packet, or another version of the format
const bit<8> REFUSED_TRUNCATED = 2; // shorter than its headers say
const bit<8> REFUSED_CHECKSUM  = 3; // damaged: the checksum of IPv4's header or of innet's packet
const bit<8> REFUSED_MALFORMED = 4; // a field that nobody would send
const bit<8> REFUSED_STRANGER  = 5; // not admitted: port, job, epoch and worker do not belong together
const bit<8> REFUSED_SLOT      = 6; // outside the job's part of the pool
const bit<8> REFUSED_STALE     = 7; // an older chunk than the slot holds
const bit<8> REFUSED_DISAGREES = 8; // another operation, length or all-reduce than the first

#endif
