// Paxos in switches, as P4xos does (IEEE/ACM ToN 2020): a coordinator numbers the requests of
// clients, acceptors vote, learners count votes. Which role a switch has is its table's matter.
//
// A coordinator that takes over first asks acceptors for what they accepted (phase 1), with a round
// that is higher than all before. Acceptors ignore lower rounds from then on.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CONSENSUS = 0x88b7;
const bit<32> INSTANCES = 1024;
const bit<16> ACCEPTORS = 1; // multicast groups
const bit<16> LEARNERS = 2;

const bit<8> REQUEST = 0;
const bit<8> PREPARE = 1; // phase 1a
const bit<8> PROMISE = 2; // phase 1b
const bit<8> ACCEPT = 3;  // phase 2a
const bit<8> ACCEPTED = 4; // phase 2b

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header paxos_t {
    bit<8>  message;
    bit<8>  acceptor;   // who votes
    bit<16> round;
    bit<16> voted;      // in a promise: the round of the value; 0: it has voted for none
    bit<32> instance;
    bit<64> value;
}

struct headers_t {
    ethernet_t ethernet;
    paxos_t    paxos;
}

struct metadata_t {
    bit<1> coordinates;
}

parser ConsensusParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_CONSENSUS: parse_paxos;
            default:        accept;
        }
    }

    state parse_paxos {
        packet.extract(hdr.paxos);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Consensus(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1) next_instance; // of a coordinator
    register<bit<16>>(INSTANCES) rounds; // of an acceptor: the highest that it has seen,
    register<bit<16>>(INSTANCES) votes;  // that of its vote,
    register<bit<64>>(INSTANCES) values; // and the value
    bit<16> my_round = 0;
    bit<8> my_number = 0;

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action coordinate(bit<16> round) {
        my_round = round;
        meta.coordinates = 1;
    }

    action accept_as(bit<8> number) {
        my_number = number;
        meta.coordinates = 0;
    }

    table role {
        actions = { coordinate; accept_as; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.paxos.isValid() || hdr.paxos.instance >= INSTANCES) {
            drop();
            return;
        }
        role.apply();
        bit<32> instance = hdr.paxos.instance;
        if (meta.coordinates == 1) {
            if (hdr.paxos.message == REQUEST) {
                next_instance.read(instance, 0);
                if (instance >= INSTANCES) {
                    drop();
                    return;
                }
                next_instance.write(0, instance + 1);
                hdr.paxos.message = ACCEPT;
                hdr.paxos.instance = instance;
                hdr.paxos.round = my_round;
                standard_metadata.mcast_grp = ACCEPTORS;
            } else if (hdr.paxos.message == PREPARE || hdr.paxos.message == ACCEPT) {
                // From who takes over, with this coordinator's round.
                hdr.paxos.round = my_round;
                standard_metadata.mcast_grp = ACCEPTORS;
            } else {
                standard_metadata.mcast_grp = LEARNERS;
            }
        } else {
            bit<16> highest;
            rounds.read(highest, instance);
            if (hdr.paxos.round < highest ||
                (hdr.paxos.message != PREPARE && hdr.paxos.message != ACCEPT)) {
                drop();
                return;
            }
            rounds.write(instance, hdr.paxos.round);
            if (hdr.paxos.message == PREPARE) {
                hdr.paxos.message = PROMISE;
                votes.read(hdr.paxos.voted, instance);
                values.read(hdr.paxos.value, instance);
            } else {
                votes.write(instance, hdr.paxos.round);
                values.write(instance, hdr.paxos.value);
                hdr.paxos.message = ACCEPTED;
            }
            hdr.paxos.acceptor = my_number;
            standard_metadata.egress_spec = standard_metadata.ingress_port;
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

control ConsensusDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.paxos);
    }
}

V1Switch(ConsensusParser(), VerifyNothing(), Consensus(), EgressNothing(), UpdateNothing(),
         ConsensusDeparser()) main;
