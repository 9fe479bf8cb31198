// A complete solution of `innet lab`, and with one of the definitions below a wrong one. README.md
// beside it says which is which.

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
    bit<1>  is_first;
}

parser LabParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_CHUNK: parse_chunk;
            TYPE_IPV4:  parse_ipv4;
            default:    accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol) {
            (0x45, PROTOCOL_UDP): parse_udp;
            default:              accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            CHUNK_PORT: parse_chunk;
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
    // Of each slot, a cell for either version.
    register<bit<32>>(SLOTS * 2) offsets; // of the chunk that is summed, or was last
    register<bit<32>>(SLOTS * 2) seen;    // whose chunks were summed, a bit for each worker
    register<bit<32>>(SLOTS * 2) counts;  // and how many
    register<bit<32>>(SLOTS * 2) sum0;
    register<bit<32>>(SLOTS * 2) sum1;
    register<bit<32>>(SLOTS * 2) sum2;
    register<bit<32>>(SLOTS * 2) sum3;

    action set_workers(bit<32> workers) {
        meta.workers = workers;
    }

    // Given: the lab's control plane sets its default action.
    table job {
        actions = { set_workers; }
        default_action = set_workers(0);
    }

#ifdef KEPT
#define BEGIN(BEFORE)
#else
#define BEGIN(BEFORE) if (meta.is_first == 1) { BEFORE = 0; }
#endif
#define ADD(REGISTER, VALUE)                 \
        {                                    \
            bit<32> before;                  \
            REGISTER.read(before, cell);     \
            BEGIN(before)                    \
            VALUE = VALUE + before;          \
            REGISTER.write(cell, VALUE);     \
        }
#define ADD_ALL                              \
        ADD(sum0, hdr.values.v0)             \
        ADD(sum1, hdr.values.v1)             \
        ADD(sum2, hdr.values.v2)             \
        ADD(sum3, hdr.values.v3)

    apply {
        job.apply();
        if (!hdr.values.isValid() || (bit<32>)hdr.chunk.slot >= SLOTS || hdr.chunk.version > 1 ||
            hdr.chunk.worker >= 32) {
            mark_to_drop(standard_metadata);
            return;
        }
        bit<32> cell = ((bit<32>)hdr.chunk.slot << 1) + (bit<32>)hdr.chunk.version;
        bit<32> worker = 32w1 << hdr.chunk.worker;
        bit<32> offset;
        bit<32> who;
        bit<32> count;
        offsets.read(offset, cell);
        seen.read(who, cell);
        counts.read(count, cell);
#ifndef STALE
        if (hdr.chunk.offset < offset) {
            mark_to_drop(standard_metadata); // all have its result, so it was late
            return;
        }
#endif
        if (hdr.chunk.offset != offset) {
            // Whoever begins with a chunk of this version has the result of the other version, so
            // all workers have that of the chunk which was here.
            who = 0;
            count = 0;
            offsets.write(cell, hdr.chunk.offset);
        }
#ifndef BITMAP
        if (who & worker != 0) {
            if (count == meta.workers) {
                // The result was lost: it goes to the one who asks.
#ifdef VERSION
                cell = cell ^ 1;
#endif
                sum0.read(hdr.values.v0, cell);
                sum1.read(hdr.values.v1, cell);
                sum2.read(hdr.values.v2, cell);
                sum3.read(hdr.values.v3, cell);
                standard_metadata.egress_spec = standard_metadata.ingress_port;
            } else {
#ifdef TWICE
                meta.is_first = 0;
                ADD_ALL
#endif
                mark_to_drop(standard_metadata);
            }
            return;
        }
#endif
#ifdef BITMAP
        if (count == meta.workers) { count = 0; }
#endif
        meta.is_first = (bit<1>)(count == 0);
        ADD_ALL
        count = count + 1;
        seen.write(cell, who | worker);
        counts.write(cell, count);
#ifdef EARLY
        if (count + 1 >= meta.workers) {
#else
        if (count == meta.workers) {
#endif
#ifdef UNICAST
            standard_metadata.egress_spec = standard_metadata.ingress_port;
#else
            standard_metadata.mcast_grp = ALL_WORKERS;
#endif
#ifdef OFFSET
            hdr.chunk.offset = 0;
#endif
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

control LabEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    action set_addresses(bit<48> mac, bit<32> ip) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = ip;
    }

    // Given: the lab's control plane adds an entry for each worker's port.
    table addresses {
        key = { standard_metadata.egress_port: exact; }
        actions = { set_addresses; NoAction; }
        default_action = NoAction;
    }

    apply {
        addresses.apply();
        hdr.ethernet.source = SWITCH_MAC;
        if (hdr.udp.isValid()) {
            hdr.ipv4.source = SWITCH_IP;
            hdr.udp.source = CHUNK_PORT;
            hdr.udp.destination = CHUNK_PORT;
#ifdef LENGTH
            hdr.udp.length = 24; // of the payload
#endif
#ifndef UDP_CHECKSUM
            hdr.udp.checksum = 0; // there is none
#endif
        }
    }
}

control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
#ifndef IPV4_CHECKSUM
        update_checksum(hdr.ipv4.isValid(),
                        { hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification, hdr.ipv4.fragment, hdr.ipv4.ttl,
                          hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
#endif
    }
}

control LabDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.chunk);
        packet.emit(hdr.values);
    }
}

V1Switch(LabParser(), VerifyNothing(), LabIngress(), LabEgress(), UpdateChecksums(),
         LabDeparser()) main;
