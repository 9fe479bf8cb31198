// Fields and lengths that no worker and no switch sends: parts of a condition.

#ifndef INNET_MALFORMED_P4
#define INNET_MALFORMED_P4

// A packet of a thin build carries fewer values than it stands for. THIN is how many that may be.
#ifdef THIN
#define MOST_ELEMENTS THIN
#else
#define MOST_ELEMENTS VALUES
#endif

// Where a chunk has an owner, either the owner's packets carry values or those of all others. So
// nobody speaks for the owner: admission has bound the worker's index to its port.
#ifdef COLLECTIVES
#define IS_OWNER (hdr.innet.worker == hdr.innet.exponent)
#ifndef VALUES_MISPLACED // the sender is one worker
#define VALUES_MISPLACED \
    (hdr.innet.operation == OPERATION_REDUCE && IS_OWNER) \
    || (hdr.innet.operation == (OPERATION_REDUCE | WITHOUT_VALUES) && !IS_OWNER) \
    || (hdr.innet.operation == OPERATION_BROADCAST && !IS_OWNER) \
    || (hdr.innet.operation == (OPERATION_BROADCAST | WITHOUT_VALUES) && IS_OWNER)
#endif
#ifndef LEAVES_BARE // the addressee is one worker
#define LEAVES_BARE \
    hdr.innet.operation & 0x7F == OPERATION_BARRIER \
    || (hdr.innet.operation & 0x7F == OPERATION_REDUCE) != IS_OWNER
#endif
#define OPERATION_MALFORMED \
    hdr.innet.operation & 0x7F == 0 || hdr.innet.operation & 0x7F > OPERATION_BARRIER \
    || (meta.without_values == 1 && hdr.innet.operation & 0x7F < OPERATION_REDUCE) \
    || hdr.innet.operation == OPERATION_BARRIER \
    || VALUES_MISPLACED
#define RIGHT_UDP_LENGTH (meta.without_values == 1 ? BARE_UDP_LENGTH : UDP_LENGTH)
#define HAS_NO_FORMAT (!hdr.values.isValid() && meta.without_values == 0)
#else
#define OPERATION_MALFORMED hdr.innet.operation == 0 || hdr.innet.operation > OPERATION_MAX
#define RIGHT_UDP_LENGTH UDP_LENGTH
#define HAS_NO_FORMAT (!hdr.values.isValid())
#endif

#define FIELDS_MALFORMED \
    hdr.innet.elements == 0 || hdr.innet.elements > MOST_ELEMENTS \
    || hdr.innet.slot_version > 1 \
    || OPERATION_MALFORMED
#define LENGTHS_MALFORMED \
    (hdr.udp.isValid() \
     && (hdr.udp.length != RIGHT_UDP_LENGTH || hdr.ipv4.total_length != RIGHT_UDP_LENGTH + 20))

#endif
