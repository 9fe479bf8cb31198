// Answers reads of hot keys in the switch, as NetCache does (SOSP 2017), with a header of its own
// over Ethernet. A controller learns from digests which keys are hot and gives them a place here.
//
// A place is filled by what the server answers, and only while no write of the key is under way:
// else an old answer that comes late could hide a newer value.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_KEY_VALUE = 0x88b6;
const bit<32> PLACES = 64;
const bit<32> SKETCH = 1024; // cells of a row of the count-min sketch
const bit<32> HOT = 8;       // reads of a key after which the controller is told

const bit<8> GET = 1;
const bit<8> PUT = 2;
const bit<8> GOT = 3; // answers
const bit<8> DID = 4;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header key_value_t {
    bit<8>  operation;
    bit<8>  from_cache; // 1 if the switch answered
    bit<32> request;    // of the client; comes back
    bit<64> key;
    bit<64> value;
}

struct hot_key_t {
    bit<64> key;
}

struct headers_t {
    ethernet_t  ethernet;
    key_value_t kv;
}

struct metadata_t {
    bit<32>   place;
    hot_key_t hot;
}

parser CacheParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_KEY_VALUE: parse_key_value;
            default:        accept;
        }
    }

    state parse_key_value {
        packet.extract(hdr.kv);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Cache(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    register<bit<64>>(PLACES) values;
    register<bit<1>>(PLACES)  filled;
    register<bit<32>>(PLACES) writes; // of the key that are under way
    register<bit<32>>(SKETCH) reads0;
    register<bit<32>>(SKETCH) reads1;
    counter(PLACES, CounterType.packets) hits;

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

    action cached(bit<32> place) {
        meta.place = place;
    }

    table cache {
        key = { hdr.kv.key: exact; }
        actions = { cached; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    // The switch answers in the place of the server.
    action answer(bit<64> value) {
        bit<48> client = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = client;
        hdr.kv.operation = GOT;
        hdr.kv.from_cache = 1;
        hdr.kv.value = value;
    }

    apply {
        if (hdr.kv.isValid()) {
            bool has_place = cache.apply().hit;
            bit<1> is_filled = 0;
            bit<32> under_way = 0;
            if (has_place) {
                filled.read(is_filled, meta.place);
                writes.read(under_way, meta.place);
            }
            if (hdr.kv.operation == GET) {
                if (has_place && is_filled == 1) {
                    bit<64> value;
                    values.read(value, meta.place);
                    hits.count(meta.place);
                    answer(value);
                } else if (!has_place) {
                    bit<32> cell0;
                    bit<32> cell1;
                    bit<32> count0;
                    bit<32> count1;
                    hash(cell0, HashAlgorithm.crc32, 32w0, { hdr.kv.key }, SKETCH);
                    hash(cell1, HashAlgorithm.crc16, 32w0, { hdr.kv.key }, SKETCH);
                    reads0.read(count0, cell0);
                    reads1.read(count1, cell1);
                    count0 = count0 + 1;
                    count1 = count1 + 1;
                    reads0.write(cell0, count0);
                    reads1.write(cell1, count1);
                    if ((count0 < count1 ? count0 : count1) == HOT) {
                        meta.hot.key = hdr.kv.key;
                        digest<hot_key_t>(1, meta.hot);
                    }
                }
            } else if (has_place) {
                if (hdr.kv.operation == PUT) {
                    filled.write(meta.place, 0);
                    writes.write(meta.place, under_way + 1);
                } else {
                    if (hdr.kv.operation == DID && under_way > 0) {
                        under_way = under_way - 1;
                        writes.write(meta.place, under_way);
                    }
                    if (under_way == 0) {
                        values.write(meta.place, hdr.kv.value);
                        filled.write(meta.place, 1);
                    }
                }
            }
        }
        hosts.apply();
    }
}

control EgressNothing(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control UpdateNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control CacheDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.kv);
    }
}

V1Switch(CacheParser(), VerifyNothing(), Cache(), EgressNothing(), UpdateNothing(),
         CacheDeparser()) main;
