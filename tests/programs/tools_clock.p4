// Leaves by the port that the first byte names, stamped with the time of its arrival; 0xff is dropped.
#include <core.p4>
#include <v1model.p4>

header way_t { bit<8> port; }
header stamp_t { bit<48> arrived; bit<48> left; }
struct headers_t { way_t way; stamp_t stamp; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.way); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = (bit<9>)h.way.port;
        if (!h.way.isValid() || h.way.port == 0xff) { mark_to_drop(s); }
        if (h.way.port == 9) { s.mcast_grp = 1; }
        h.stamp.setValid();
        h.stamp.arrived = s.ingress_global_timestamp;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { h.stamp.left = s.egress_global_timestamp; }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
