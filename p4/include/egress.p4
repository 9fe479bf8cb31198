// Egress: the addresses of the next hop, the flags of a result, the congestion mark, and the addressee
// of a multicast copy.

#ifndef INNET_EGRESS_P4
#define INNET_EGRESS_P4

#ifndef EGRESS
#define EGRESS NetworkEgress // in a network of switches
#endif

control EGRESS(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    // The source of a packet is the address that the incoming packet was sent to.
    action address(bit<48> mac, bit<32> ip, bit<16> udp_port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = ip;
        hdr.udp.source_port = UDP_PORT_INNET;
        hdr.udp.destination_port = udp_port;
        hdr.udp.checksum = 0; // none, as RFC 768 allows: innet's own covers the values
    }

#ifdef COLLECTIVES
    // A result carries values for its owner alone, or for all others.
    action end_with_header() {
        hdr.values.setInvalid();
        hdr.innet.operation = hdr.innet.operation | WITHOUT_VALUES;
        hdr.udp.length = BARE_UDP_LENGTH;
        hdr.ipv4.total_length = BARE_UDP_LENGTH + 20;
    }

    action carry_values() {
        hdr.innet.operation = hdr.innet.operation & 0x7F;
        hdr.udp.length = UDP_LENGTH;
        hdr.ipv4.total_length = UDP_LENGTH + 20;
    }
#endif

    table deliver {
        key = { standard_metadata.egress_port: exact; }
        actions = { address; NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
#ifdef TWO_PASSES
        if (meta.second_pass == 0) {
            meta.second_pass = 1;
            recirculate_preserving_field_list(BETWEEN_PASSES);
            return;
        }
#elif PARTS > 1
        if (meta.last_pass == 0) {
            recirculate_preserving_field_list(BETWEEN_PASSES);
            return;
        }
#endif
        deliver.apply();
#ifdef RESULT_FLAGS
        hdr.innet.flags = hdr.innet.flags | RESULT_FLAGS;
#endif
        // The length of the egress queue when the packet entered it. Only packets whose senders
        // support ECN are marked (RFC 3168).
        if (hdr.ipv4.isValid() && hdr.ipv4.dscp_ecn & 3 != 0
            && standard_metadata.deq_qdepth >= ECN_DEPTH) {
            hdr.innet.flags = hdr.innet.flags | FLAG_ECN;
        }
        // The replication id of a multicast copy is the index of the worker that it goes to.
        if (standard_metadata.instance_type == 5) {
            hdr.innet.worker = standard_metadata.egress_rid;
        }
#ifdef COLLECTIVES
        if (hdr.innet.operation & 0x7F >= OPERATION_REDUCE) {
            if (LEAVES_BARE) {
                // Whatever the packet that is answered came with.
                end_with_header();
            } else {
                carry_values();
            }
        }
#endif
    }
}

#endif
