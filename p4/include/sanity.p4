// Is it a whole, undamaged packet with fields that somebody of innet would send?

#ifndef INNET_SANITY_P4
#define INNET_SANITY_P4

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
        } else if (hdr.innet.width != 32 || hdr.innet.elements == 0
                   || hdr.innet.elements > VALUES || hdr.innet.slot_version > 1
                   || hdr.innet.operation == 0 || hdr.innet.operation > OPERATION_MAX
                   || (hdr.udp.isValid() && (hdr.udp.length != UDP_LENGTH
                                             || hdr.ipv4.total_length != UDP_LENGTH + 20))) {
            meta.refusal = REFUSED_MALFORMED;
        }
    }
}

#endif
