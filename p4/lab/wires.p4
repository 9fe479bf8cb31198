// Wires between each worker of the lab (ports 1, 2, ...) and the lab itself (port 0), where the
// student's program runs. What the lab gets and sends begins with the port of the worker.

#include <core.p4>
#include <v1model.p4>

header tag_t {
    bit<16> port;
}

struct headers_t {
    tag_t tag;
}

struct metadata_t { }

parser WiresParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            0:       parse_tag;
            default: accept;
        }
    }

    state parse_tag {
        packet.extract(hdr.tag);
        transition accept;
    }
}

control VerifyNothing(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Wires(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.tag.isValid()) {
            standard_metadata.egress_spec = (bit<9>)hdr.tag.port;
            hdr.tag.setInvalid();
        } else {
            hdr.tag.setValid();
            hdr.tag.port = (bit<16>)standard_metadata.ingress_port;
            standard_metadata.egress_spec = 0;
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

control WiresDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.tag);
    }
}

V1Switch(WiresParser(), VerifyNothing(), Wires(), EgressNothing(), UpdateNothing(),
         WiresDeparser()) main;
