// Parsers and deparsers. What nobody of innet would send is found by the parser: `wellformed` stays 0.
// TAKES_RESULTS: switches may send sums and results, so that the control looks at these flags and bitmaps.

#ifndef INNET_TNA_PARSER_P4
#define INNET_TNA_PARSER_P4

#ifdef SEVERAL_PASSES
const bit<9> RECIRCULATION = 68; // the port of pipe 0 that leads back into it
#endif

parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
#ifdef SEVERAL_PASSES
        transition select(intrinsic.ingress_port) {
            RECIRCULATION: parse_harvest;
#if PARTS > 1
            default: arrive;
#else
            default: parse_ethernet;
#endif
        }
    }

#if PARTS > 1
    // What a pass before has let in is not looked at again.
    state parse_harvest {
        packet.extract(hdr.harvest);
        meta.wellformed = 1;
        transition select(hdr.harvest.step, hdr.harvest.part) {
            (STEP_ADD, PARTS - 1): last_part;
            (STEP_ADD, _): parse_all;
            (STEP_SKIP, PARTS - 1): skip_last_part;
            (STEP_SKIP, _): skip;
            (STEP_HIGH, _): read_high;
            (STEP_LOW, _): read_low;
            default: prepend;
        }
    }

    state last_part {
        meta.last_part = 1;
        transition parse_all;
    }

    state skip_last_part {
        meta.last_part = 1;
        transition skip;
    }

    state skip {
        meta.finds = 1;
        transition parse_all;
    }

    state read_high {
        meta.finds = 1;
        meta.operation = VALUES_SUM;
        transition parse_all;
    }

    state read_low {
        meta.finds = 1;
        meta.operation = VALUES_OR;
        transition parse_all;
    }

    state parse_all {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.innet);
        packet.extract(hdr.values);
        transition accept;
    }

    // Another part is put in front of the values, which are payload.
    state prepend {
        meta.finds = 1;
        meta.operation = VALUES_SUM;
        packet.extract(hdr.ethernet);
        packet.extract(hdr.innet);
        transition accept;
    }

    state arrive {
        hdr.harvest.setValid();
        hdr.harvest.port = intrinsic.ingress_port;
        hdr.harvest.step = STEP_ARRIVE;
        hdr.harvest.part = 0;
        transition parse_ethernet;
    }
#else
    state parse_harvest {
        packet.extract(hdr.harvest);
        transition parse_ethernet;
    }
#endif

    state parse_ethernet {
#endif
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_INNET: parse_innet;
            default: reject;
        }
    }

    state parse_innet {
        packet.extract(hdr.innet);
        transition select(hdr.innet.magic, hdr.innet.version) {
            (INNET_MAGIC, INNET_VERSION): check_innet;
            default: reject;
        }
    }

    state check_innet {
        transition select(hdr.innet.operation, hdr.innet.slot_version, hdr.innet.elements) {
            (0, _, _): parse_values;
            (_, _, 0): parse_values;
#if PER_PASS >= 8
            (OPERATIONS, 0 &&& 0xfe, 0 &&& 0xfff8): check_flags; // up to 7 elements
#endif
#if PER_PASS == 2 || PER_PASS == 4
            (OPERATIONS, 0 &&& 0xfe, 1): check_flags;
#endif
#if PER_PASS == 4
            (OPERATIONS, 0 &&& 0xfe, 2 &&& 0xfffe): check_flags;
#endif
            (OPERATIONS, 0 &&& 0xfe, VALUES): check_flags;
#if PER_PASS >= 16
            (OPERATIONS, 0 &&& 0xfe, 8 &&& 0xfff8): check_flags;
#endif
#if PER_PASS >= 24
            (OPERATIONS, 0 &&& 0xfe, 16 &&& 0xfff8): check_flags;
#endif
#if PER_PASS >= 32
            (OPERATIONS, 0 &&& 0xfe, 24 &&& 0xfff8): check_flags;
#endif
#if PER_PASS >= 64
            (OPERATIONS, 0 &&& 0xfe, 32 &&& 0xffe0): check_flags;
#endif
#if PARTS > 1
            (OPERATIONS, 0 &&& 0xfe, 64 &&& 0xffc0): check_flags;
            (OPERATIONS, 0 &&& 0xfe, 128 &&& 0xff80): check_flags;
#endif
            default: parse_values;
        }
    }

    state check_flags {
#ifdef TAKES_RESULTS
        transition select(hdr.innet.bitmap) {
            0: wellformed;
            default: with_bitmap;
        }
    }

    state with_bitmap {
        meta.has_bitmap = 1;
        transition wellformed;
    }
#else
        transition select(hdr.innet.flags) {
#if PARTS > 1
            FLAG_PARTIAL &&& (FLAG_RESULT | FLAG_PARTIAL): ask;
#endif
            0 &&& FLAG_RESULT: wellformed;
            default: parse_values;
        }
    }
#if PARTS > 1

    state ask {
        meta.ends = 1;
        transition wellformed;
    }
#endif
#endif

    state wellformed {
        meta.wellformed = 1;
        transition parse_values;
    }

    // Last: asking about fields in front of the values, after them, ended in an internal error of the compiler.
    state parse_values {
        packet.extract(hdr.values);
        transition accept;
    }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply {
        packet.emit(hdr);
    }
}

struct egress_headers_t {
    ethernet_t ethernet;
    innet_t    innet;
}

struct egress_metadata_t {}

parser EgressParser(packet_in packet, out egress_headers_t hdr, out egress_metadata_t meta,
                    out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.innet);
        transition accept;
    }
}

// Addresses of the next hop. The replication id of a multicast copy is one more than the index of the worker
// that it goes to, since that of other packets is 0.
control Egress(inout egress_headers_t hdr, inout egress_metadata_t meta,
               in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    action address(bit<48> mac) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
    }

    table deliver {
        key = { intrinsic.egress_port: exact; }
        actions = { address; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        deliver.apply();
        if (intrinsic.egress_rid != 0) {
            hdr.innet.worker = intrinsic.egress_rid - 1;
        }
    }
}

control EgressDeparser(packet_out packet, inout egress_headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply {
        packet.emit(hdr);
    }
}

#endif
