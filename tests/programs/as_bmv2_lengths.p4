// Variable fields whose length is odd, too long, or forgotten; checksums whose payload is not
// aligned; mirror sessions of more than 16 bits.
#include <core.p4>
#include <v1model.p4>

header ask_t { bit<32> length; bit<4> kind; bit<12> odd; bit<16> sum; }
header options_t { bit<8> first; varbit<64> rest; }
header said_t { bit<16> code; }
struct headers_t { said_t said; ask_t ask; options_t options; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ask); p.extract(h.options, h.ask.length); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.said.setValid();
        if (s.parser_error == error.NoError) h.said.code = 0;
        else if (s.parser_error == error.PacketTooShort) h.said.code = 1;
        else if (s.parser_error == error.HeaderTooShort) h.said.code = 2;
        else if (s.parser_error == error.ParserInvalidArgument) h.said.code = 3;
        else h.said.code = 0xffff;
        s.egress_spec = 2;
        if (h.ask.kind > 1) { h.options.setInvalid(); }
        if (h.ask.kind == 3) { s.mcast_grp = 1; }
        if (h.ask.kind == 4) { clone(CloneType.I2E, h.ask.length); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.ask.kind == 2 || h.ask.kind == 3) {
            h.options.setValid();
            h.options.first = (bit<8>)s.packet_length;
        }
    }
}
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.ask.kind == 1, { h.ask.odd }, h.ask.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
