// The switch of the lab: it sums the workers' vectors, chunk by chunk. README.md has the protocol.
// This compiles as it is, and drops all packets.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CHUNK = 0x88b5; // level 1: a chunk follows Ethernet's header
const bit<16> TYPE_IPV4 = 0x0800;  // level 2: IPv4 and UDP are between them
const bit<8>  PROTOCOL_UDP = 17;
const bit<16> CHUNK_PORT = 4242;   // of UDP, at the switch and at the workers
const bit<48> SWITCH_MAC = 0x0200000000fe;
const bit<32> SWITCH_IP = 0x0a0000fe; // 10.0.0.254
const bit<32> SLOTS = 8;
const bit<16> ALL_WORKERS = 1;     // the multicast group of all workers' ports

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

header chunk_t {
    bit<8>  worker;  // who sends it, from 0 on
    bit<8>  version; // 0 or 1; you need it from level 3 on
    bit<16> slot;    // 0 to SLOTS - 1
    bit<32> offset;  // of the chunk's first element in the vector
}

header values_t {
    bit<32> v0;
    bit<32> v1;
    bit<32> v2;
    bit<32> v3;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    chunk_t    chunk;
    values_t   values;
}

struct metadata_t {
    bit<32> workers; // how many take part; the table job sets it
}

parser LabParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_CHUNK: parse_chunk;
            // TODO, level 2: IPv4, then UDP, then the chunk, if the destination port is CHUNK_PORT.
            default:    accept;
        }
    }

    state parse_chunk {
        packet.extract(hdr.chunk);
        packet.extract(hdr.values);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control LabIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    // TODO, level 1: registers, of SLOTS cells each: the sums, and how many workers were summed.
    // TODO, level 3: registers for both versions, for whose chunks were summed, and for the offset.

    action set_workers(bit<32> workers) {
        meta.workers = workers;
    }

    // Given: the lab's control plane sets its default action.
    table job {
        actions = { set_workers; }
        default_action = set_workers(0);
    }

    apply {
        job.apply();
        if (!hdr.values.isValid()) {
            mark_to_drop(standard_metadata); // it is no chunk
            return;
        }
        // TODO, level 1: add the values to the slot's sums. If the chunk is the last one that was
        // missing, its packet becomes the result: put the sums into it, and send it to ALL_WORKERS
        // (standard_metadata.mcast_grp). If not, drop it.
        // TODO, level 3: a chunk that was summed before, and one that is late.
        mark_to_drop(standard_metadata);
    }
}

control LabEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    action set_addresses(bit<48> mac, bit<32> ip) {
        // TODO, level 2: they are the result's destination.
    }

    // Given: the lab's control plane adds an entry for each worker's port.
    table addresses {
        key = { standard_metadata.egress_port: exact; }
        actions = { set_addresses; NoAction; }
        default_action = NoAction;
    }

    apply {
        addresses.apply();
        // TODO, level 2: the result is the switch's, not the worker's. Which other fields change?
    }
}

control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // TODO, level 2: update_checksum for IPv4's header.
    }
}

control LabDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        // TODO, level 2: the headers between Ethernet and the chunk.
        packet.emit(hdr.chunk);
        packet.emit(hdr.values);
    }
}

V1Switch(LabParser(), VerifyNothing(), LabIngress(), LabEgress(), UpdateChecksums(),
         LabDeparser()) main;
