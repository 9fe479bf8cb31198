// Fields and lengths that no worker and no switch sends: parts of a condition.

#ifndef INNET_MALFORMED_P4
#define INNET_MALFORMED_P4

// A packet of a thin build carries fewer values than it stands for. THIN is how many that may be.
#ifdef THIN
#define MOST_ELEMENTS THIN
#else
#define MOST_ELEMENTS VALUES
#endif

#define FIELDS_MALFORMED \
    hdr.innet.elements == 0 || hdr.innet.elements > MOST_ELEMENTS \
    || hdr.innet.slot_version > 1 \
    || hdr.innet.operation == 0 || hdr.innet.operation > OPERATION_MAX
#define LENGTHS_MALFORMED \
    (hdr.udp.isValid() \
     && (hdr.udp.length != UDP_LENGTH || hdr.ipv4.total_length != UDP_LENGTH + 20))

#endif
