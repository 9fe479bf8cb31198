// Is it a whole, undamaged packet with fields that somebody of innet would send?

#ifndef INNET_SANITY_P4
#define INNET_SANITY_P4

#include "malformed.p4"

control Sanity(in headers_t hdr, inout metadata_t meta,
               in standard_metadata_t standard_metadata) {
    apply {
        meta.refusal = REFUSED_NOT;
        if (standard_metadata.parser_error != error.NoError) {
            meta.refusal = REFUSED_TRUNCATED;
        } else if (standard_metadata.checksum_error == 1) {
            meta.refusal = REFUSED_CHECKSUM;
        } else if (!hdr.values.isValid()) {
            meta.refusal = REFUSED_FOREIGN;
        } else if (FIELDS_MALFORMED || LENGTHS_MALFORMED) {
            meta.refusal = REFUSED_MALFORMED;
        }
    }
}

#endif
