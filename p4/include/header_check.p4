// Header checks: is the packet complete and undamaged, and do its fields have values that are sent?

#ifndef INNET_HEADER_CHECK_P4
#define INNET_HEADER_CHECK_P4

#include "malformed.p4"

control HeaderCheck(in headers_t hdr, inout metadata_t meta,
                    in standard_metadata_t standard_metadata) {
    apply {
        meta.drop_reason = NOT_DROPPED;
        if (standard_metadata.parser_error != error.NoError) {
            meta.drop_reason = DROP_TRUNCATED;
        } else if (standard_metadata.checksum_error == 1) {
            meta.drop_reason = DROP_CHECKSUM;
        } else if (HAS_NO_FORMAT) {
            meta.drop_reason = DROP_NOT_INNET;
        } else if (FIELDS_MALFORMED || LENGTHS_MALFORMED) {
            meta.drop_reason = DROP_MALFORMED;
        }
    }
}

#endif
