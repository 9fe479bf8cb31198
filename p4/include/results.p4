// The way out of the slot pool: addresses of the workers, flags of a result, marks of congestion, the
// addressee of a multicast copy.

#ifndef INNET_RESULTS_P4
#define INNET_RESULTS_P4

control SlotsEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    // The answer comes from the address that the worker spoke to.
    action address(bit<48> mac, bit<32> ip, bit<16> udp_port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = ip;
        hdr.udp.source_port = UDP_PORT_INNET;
        hdr.udp.destination_port = udp_port;
        hdr.udp.checksum = 0; // none, as RFC 768 allows: innet's own covers the values
    }

    table deliver {
        key = { standard_metadata.egress_port: exact; }
        actions = { address; NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
#ifdef TWO_PASSES
        if (meta.second == 0) {
            meta.second = 1;
            recirculate_preserving_field_list(BETWEEN_PASSES);
            return;
        }
#elif PARTS > 1
        if (meta.leaves == 0) {
            recirculate_preserving_field_list(BETWEEN_PASSES);
            return;
        }
#endif
        deliver.apply();
        hdr.innet.flags = hdr.innet.flags | meta.told;
        // The queue of the way out (simple_switch measures it; the built-in switch has none).
        // Only those who say that they listen are told (RFC 3168).
        if (hdr.ipv4.isValid() && hdr.ipv4.dscp_ecn & 3 != 0
            && standard_metadata.deq_qdepth >= ECN_DEPTH) {
            hdr.innet.flags = hdr.innet.flags | FLAG_ECN;
        }
        // The replication id of a multicast copy is the index of the worker it is for.
        if (standard_metadata.instance_type == 5) {
            hdr.innet.worker = standard_metadata.egress_rid;
        }
    }
}

#endif
