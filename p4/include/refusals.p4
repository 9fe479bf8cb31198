// Why the slot pool refuses packets.

#ifndef INNET_REFUSALS_P4
#define INNET_REFUSALS_P4

// Why a packet was refused: the index of the counter `refused`.
const bit<8> REFUSED_NOT       = 0; // never counted
const bit<8> REFUSED_FOREIGN   = 1; // no innet packet, or another version of the format
const bit<8> REFUSED_TRUNCATED = 2; // shorter than its headers say
const bit<8> REFUSED_CHECKSUM  = 3; // damaged: the checksum of IPv4's header or of innet's packet
const bit<8> REFUSED_MALFORMED = 4; // a field that no worker would send
const bit<8> REFUSED_STRANGER  = 5; // not admitted: port, job, epoch and worker do not belong together
const bit<8> REFUSED_SLOT      = 6; // outside the job's part of the pool
const bit<8> REFUSED_STALE     = 7; // an older chunk than the slot holds
const bit<8> REFUSED_DISAGREES = 8; // another operation, length or all-reduce than the first
const bit<8> REFUSED_LATE      = 9; // the slot was closed without it; the answer is its result
#if defined(TWO_PASSES) || PARTS > 1
const bit<8> REFUSED_OVERTAKEN = 10; // between two passes of a result the slot changed
#endif

#endif
