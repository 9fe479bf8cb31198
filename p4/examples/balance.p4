// Chooses the least loaded way for each flowlet, as HULA does (SOSR 2016). Leaves send probes,
// which collect the load of the links that they cross, in the direction of the data; a switch
// keeps, for each leaf, the port of the best way. A way that no probe comes by any more is given
// up: its link has failed.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_PROBE = 0x88b8;
const bit<16> TYPE_IPV4 = 0x0800;
const bit<32> LEAVES = 16;
const bit<32> FLOWLETS = 1024;
const bit<32> PORTS = 32;
const bit<48> FLOWLET_GAP = 100; // microseconds without a packet, after which a flow may change its way
const bit<48> STALE = 400;       // microseconds without a probe, after which a way counts no more
const bit<8>  LOG_TAU = 8;       // 256 microseconds: time constant of a link's load

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header probe_t {
    bit<32> leaf; // to which the way leads
    bit<32> load; // of the most loaded link on it
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  dscp_ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
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

struct headers_t {
    ethernet_t ethernet;
    probe_t    probe;
    ipv4_t     ipv4;
    udp_t      udp;
}

struct metadata_t {
    bit<32> leaf;
}

parser BalanceParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_PROBE: parse_probe;
            TYPE_IPV4:  parse_ipv4;
            default:    accept;
        }
    }

    state parse_probe {
        packet.extract(hdr.probe);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            17:      parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Balance(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    register<bit<32>>(PORTS)   loads;  // of the links behind ports: bytes, decaying
    register<bit<48>>(PORTS)   sent;   // when the last packet was
    register<bit<32>>(LEAVES)  best_load;
    register<bit<9>>(LEAVES)   best_port;
    register<bit<48>>(LEAVES)  updated;
    register<bit<9>>(FLOWLETS) ways;
    register<bit<48>>(FLOWLETS) seen;

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action to_host(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action to_leaf(bit<32> leaf) {
        meta.leaf = leaf;
    }

    table hosts {
        key = { hdr.ipv4.destination: lpm; }
        actions = { to_host; to_leaf; drop; }
        default_action = drop();
        size = 64;
    }

    action replicate(bit<16> group) {
        standard_metadata.mcast_grp = group;
    }

    // Where probes that came by a port go on: a group, or nowhere.
    table probes {
        key = { standard_metadata.ingress_port: exact; }
        actions = { replicate; drop; }
        default_action = drop();
        size = 32;
    }

// What is left of a load after some microseconds.
#define DECAY(LOAD, SINCE)                                                \
        if ((SINCE) >= (48w1 << LOG_TAU)) {                               \
            LOAD = 0;                                                     \
        } else {                                                          \
            LOAD = LOAD - (bit<32>)((bit<48>)LOAD * (SINCE) >> LOG_TAU);  \
        }

    apply {
        bit<48> now = standard_metadata.ingress_global_timestamp;
        if (hdr.probe.isValid()) {
            if (hdr.probe.leaf >= LEAVES) {
                drop();
                return;
            }
            // Data to the leaf would leave by the port that the probe came by. Its load is that
            // of the link in this direction, as this switch knows it.
            bit<32> load;
            bit<48> before;
            bit<32> port = (bit<32>)standard_metadata.ingress_port;
            loads.read(load, port);
            sent.read(before, port);
            DECAY(load, now - before)
            if (load > hdr.probe.load) {
                hdr.probe.load = load;
            }
            bit<32> known_load;
            bit<9> known_port;
            bit<48> known_since;
            best_load.read(known_load, hdr.probe.leaf);
            best_port.read(known_port, hdr.probe.leaf);
            updated.read(known_since, hdr.probe.leaf);
            if (hdr.probe.load < known_load || known_port == standard_metadata.ingress_port ||
                known_since == 0 || now - known_since > STALE) {
                best_load.write(hdr.probe.leaf, hdr.probe.load);
                best_port.write(hdr.probe.leaf, standard_metadata.ingress_port);
                updated.write(hdr.probe.leaf, now);
            }
            probes.apply();
        } else if (hdr.ipv4.isValid()) {
            switch (hosts.apply().action_run) {
                to_leaf: {
                    bit<32> flowlet;
                    bit<48> last;
                    bit<9> way;
                    hash(flowlet, HashAlgorithm.crc32, 32w0,
                         { hdr.ipv4.source, hdr.ipv4.destination, hdr.udp.source,
                           hdr.udp.destination }, FLOWLETS);
                    seen.read(last, flowlet);
                    ways.read(way, flowlet);
                    if (last == 0 || now - last > FLOWLET_GAP) {
                        best_port.read(way, meta.leaf);
                        ways.write(flowlet, way);
                    }
                    seen.write(flowlet, now);
                    standard_metadata.egress_spec = way;
                }
            }
            // What leaves adds to the load of its link.
            bit<32> out_port = (bit<32>)standard_metadata.egress_spec;
            if (out_port < PORTS) {
                bit<32> load_there;
                bit<48> last_there;
                loads.read(load_there, out_port);
                sent.read(last_there, out_port);
                DECAY(load_there, now - last_there)
                loads.write(out_port, load_there + standard_metadata.packet_length);
                sent.write(out_port, now);
            }
        } else {
            drop();
        }
    }
}

control EgressNothing(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    apply { }
}

control UpdateNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control BalanceDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.probe);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(BalanceParser(), VerifyNothing(), Balance(), EgressNothing(), UpdateNothing(),
         BalanceDeparser()) main;
