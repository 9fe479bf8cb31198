// Parser and deparser for both framings: UDP over IPv4, and raw Ethernet.

#ifndef INNET_PARSER_P4
#define INNET_PARSER_P4

parser InnetParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
#if PARTS > 1
        transition select(meta.recirculated) {
            0: arrive;
            default: parse_ethernet;
        }
    }

    state arrive {
        meta.reply_port = standard_metadata.ingress_port;
        transition parse_ethernet;
    }

    state parse_ethernet {
#endif
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4:  parse_ipv4;
            ETHERTYPE_INNET: parse_innet;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        // Workers send no IPv4 options and no fragments.
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0 &&& 1, 0, PROTOCOL_UDP): parse_udp; // flag 1: more fragments follow
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination_port) {
            UDP_PORT_INNET: parse_innet;
            default: accept;
        }
    }

    state parse_innet {
        packet.extract(hdr.innet);
#if PARTS > 1
        transition select(hdr.innet.magic, hdr.innet.version, meta.prepends_part) {
            (INNET_MAGIC, INNET_VERSION, 0): parse_values;
            default: accept; // the rest is a part of the result; another part is put before it
        }
#elif defined(COLLECTIVES)
        transition select(hdr.innet.magic, hdr.innet.version, hdr.innet.operation) {
            (INNET_MAGIC, INNET_VERSION, 0 &&& WITHOUT_VALUES): parse_values;
            (INNET_MAGIC, INNET_VERSION, _): parse_no_values;
            default: accept;
        }
#else
        transition select(hdr.innet.magic, hdr.innet.version) {
            (INNET_MAGIC, INNET_VERSION): parse_values;
            default: accept;
        }
#endif
    }

#ifdef COLLECTIVES
    state parse_no_values {
        meta.without_values = 1;
        transition accept;
    }
#endif

    state parse_values {
        packet.extract(hdr.values);
        transition accept;
    }
}

control InnetDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.innet);
        packet.emit(hdr.values);
    }
}

#define VALUE_LISTED(i) , hdr.values.v##i
#define IPV4_LISTED \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.total_length, \
    hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, \
    hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
#define INNET_HEADER_LISTED \
    hdr.innet.magic, hdr.innet.version, hdr.innet.operation, hdr.innet.job, hdr.innet.epoch, \
    hdr.innet.sequence, hdr.innet.slot, hdr.innet.slot_version, hdr.innet.flags, \
    hdr.innet.bitmap, hdr.innet.worker, hdr.innet.count, hdr.innet.elements, hdr.innet.exponent, \
    hdr.innet.message
#define INNET_LISTED INNET_HEADER_LISTED REPEAT(VALUE_LISTED)

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { IPV4_LISTED }, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
#if PARTS > 1
        // A packet is accepted as a whole or not at all. So the checksum covers all of its values when
        // it arrives, also those that later passes take.
        verify_checksum_with_payload(meta.recirculated == 0 && hdr.values.isValid(), { INNET_LISTED },
                                     hdr.innet.checksum, HashAlgorithm.csum16);
#else
        verify_checksum(hdr.values.isValid(), { INNET_LISTED }, hdr.innet.checksum,
                        HashAlgorithm.csum16);
#endif
#ifdef COLLECTIVES
        verify_checksum(meta.without_values == 1, { INNET_HEADER_LISTED }, hdr.innet.checksum,
                        HashAlgorithm.csum16);
#endif
    }
}

// A result leaves with other addresses and values than the contribution came with.
control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { IPV4_LISTED }, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
#if PARTS > 1
        // Part by part: between the passes the field holds the checksum of the parts so far.
        update_checksum(meta.adds_to_checksum == 1 && meta.last_pass == 0,
                        { meta.checksum_so_far REPEAT(VALUE_LISTED) },
                        hdr.innet.checksum, HashAlgorithm.csum16);
        update_checksum(meta.last_pass == 1, { meta.checksum_so_far, INNET_LISTED },
                        hdr.innet.checksum, HashAlgorithm.csum16);
#else
        update_checksum(hdr.values.isValid(), { INNET_LISTED }, hdr.innet.checksum,
                        HashAlgorithm.csum16);
#endif
#ifdef COLLECTIVES
        update_checksum(!hdr.values.isValid(), { INNET_HEADER_LISTED }, hdr.innet.checksum,
                        HashAlgorithm.csum16);
#endif
    }
}

#endif
