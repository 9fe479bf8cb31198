// Meters over packets and bytes, indexed and direct. The control plane gives them rates of 0, so that
// bursts alone decide and time does not matter.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> flow; bit<8> index; bit<8> op; }
header colours_t { bit<8> packets; bit<8> bytes; bit<8> direct; bit<8> other; }
struct headers_t { base_t base; colours_t colours; }
struct metadata_t { bit<2> direct; bit<8> wide; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.base); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    meter(8, MeterType.packets) by_packets;
    meter(8, MeterType.bytes) by_bytes;
    direct_meter<bit<2>>(MeterType.packets) flows;
    direct_meter<bit<8>>(MeterType.bytes) others;

    action drop() { mark_to_drop(s); }
    action flow(bit<9> port) { flows.read(m.direct); s.egress_spec = port; }
    table metered {
        key = { h.base.flow: exact; }
        actions = { flow; NoAction; }
        default_action = NoAction();
        meters = flows;
        size = 16;
    }
    action other(bit<8> add) { others.read(m.wide); h.base.op = h.base.op + add; }
    table second {
        key = { h.base.index: ternary; }
        actions = { other; NoAction; }
        default_action = NoAction();
        meters = others;
        size = 16;
    }
    table last {
        key = { m.direct: exact; }
        actions = { drop; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (h.base.isValid()) {
            h.colours.setValid();
            h.colours = { 9, 9, 9, 9 };
            bit<8> colour = 5;
            by_packets.execute_meter((bit<32>)h.base.index, h.colours.packets);
            by_bytes.execute_meter((bit<32>)(h.base.index & 7), colour);
            h.colours.bytes = colour;
            metered.apply();
            second.apply();
            h.colours.direct = (bit<8>)m.direct;
            h.colours.other = m.wide;
            last.apply();
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.base); p.emit(h.colours); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
