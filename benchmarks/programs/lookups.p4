// One table of each kind of match, with the same key; the packet says which of them is looked up.

#include <core.p4>
#include <v1model.p4>

#ifndef ENTRIES
#define ENTRIES 131072
#endif

header request_t {
    bit<8>  kind; // 1: exact, 2: longest prefix, 3: ternary, 4: range; else none
    bit<32> key;
}

struct headers_t {
    request_t request;
}

struct metadata_t {}

parser LookupsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.request);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control LookupsIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

#define TABLE(name, match) \
    table name { \
        key = { hdr.request.key: match; } \
        actions = { forward; drop; } \
        const default_action = drop(); \
        size = ENTRIES; \
    }

    TABLE(exact_match, exact)
    TABLE(longest_prefix, lpm)
    TABLE(ternary_match, ternary)
    TABLE(range_match, range)

    apply {
        if (hdr.request.kind == 1) {
            exact_match.apply();
        } else if (hdr.request.kind == 2) {
            longest_prefix.apply();
        } else if (hdr.request.kind == 3) {
            ternary_match.apply();
        } else if (hdr.request.kind == 4) {
            range_match.apply();
        } else {
            forward(1);
        }
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    apply {}
}

control NoUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control LookupsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
    }
}

V1Switch(LookupsParser(), NoVerify(), LookupsIngress(), NoEgress(), NoUpdate(),
         LookupsDeparser()) main;
