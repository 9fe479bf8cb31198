// In-band network telemetry (INT, embedded data): each switch adds to a packet what it met there,
// the last one first. The host at the end takes it off again.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_TELEMETRY = 0x88b9;
#define MOST_HOPS 6

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header telemetry_t {
    bit<16> type; // of what follows
    bit<8>  hops;
}

header hop_t {
    bit<32> switch_number;
    bit<32> queue_depth;  // packets, when it was taken out of the queue
    bit<32> waited;       // microseconds in the queue
    bit<48> left;         // when it was taken out
}

struct headers_t {
    ethernet_t       ethernet;
    telemetry_t      telemetry;
    hop_t[MOST_HOPS] hops;
}

struct metadata_t {
    bit<8>  hops_left;
    bit<32> switch_number;
}

parser TelemetryParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_TELEMETRY: parse_telemetry;
            default:        accept;
        }
    }

    state parse_telemetry {
        packet.extract(hdr.telemetry);
        meta.hops_left = hdr.telemetry.hops;
        transition parse_hops;
    }

    state parse_hops {
        transition select(meta.hops_left) {
            0:       accept;
            default: parse_hop;
        }
    }

    state parse_hop {
        packet.extract(hdr.hops.next);
        meta.hops_left = meta.hops_left - 1;
        transition parse_hops;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Forward(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    action drop() {
        mark_to_drop(standard_metadata);
    }

    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    table hosts {
        key = { hdr.ethernet.destination: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 256;
    }

    apply {
        hosts.apply();
    }
}

control Embed(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    action number(bit<32> switch_number) {
        meta.switch_number = switch_number;
    }

    table identity {
        actions = { number; }
        default_action = number(0);
    }

    action add_hop() {
        hdr.hops.push_front(1);
        hdr.hops[0].setValid();
        hdr.hops[0].switch_number = meta.switch_number;
        hdr.hops[0].queue_depth = (bit<32>)standard_metadata.deq_qdepth;
        hdr.hops[0].waited = standard_metadata.deq_timedelta;
        hdr.hops[0].left = standard_metadata.egress_global_timestamp;
        hdr.telemetry.hops = hdr.telemetry.hops + 1;
    }

    action begin() {
        hdr.telemetry.setValid();
        hdr.telemetry.type = hdr.ethernet.type;
        hdr.telemetry.hops = 0;
        hdr.ethernet.type = TYPE_TELEMETRY;
    }

    apply {
        identity.apply();
        if (!hdr.telemetry.isValid()) {
            begin();
        }
        if (hdr.telemetry.hops < MOST_HOPS) {
            add_hop();
        }
    }
}

control UpdateNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control TelemetryDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.telemetry);
        packet.emit(hdr.hops);
    }
}

V1Switch(TelemetryParser(), VerifyNothing(), Forward(), Embed(), UpdateNothing(),
         TelemetryDeparser()) main;
