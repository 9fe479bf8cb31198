// Meters: of packets and bytes, indexed and direct, in ingress and in egress.
#include <core.p4>
#include <v1model.p4>

header probe_t { bit<8> index; bit<8> kind; bit<16> key; bit<8> next; }
header colours_t {
    bit<8> packets;
    bit<8> bytes;
    bit<8> direct;
    bit<8> masked;
    bit<8> mark;
    bit<8> egress;
}

struct headers_t { probe_t probe; colours_t colours; }
struct metadata_t { bit<2> direct; bit<8> masked; bit<32> held; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.probe); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    meter(200, MeterType.packets) by_packets;
    meter(256, MeterType.bytes) by_bytes;
    direct_meter<bit<2>>(MeterType.packets) exact_meter;
    direct_meter<bit<8>>(MeterType.bytes) masked_meter;
    direct_counter(CounterType.packets_and_bytes) exact_hits;

    action metered(bit<8> mark) {
        exact_meter.read(m.direct);
        exact_hits.count();
        h.colours.mark = mark;
    }
    action silent() { exact_hits.count(); }
    action limited() { masked_meter.read(m.masked); }
    action dropped() { masked_meter.read(m.masked); mark_to_drop(s); }

    // The entry's meter runs on a hit, before the action, whether the action reads it or not.
    table exact_table {
        key = { h.probe.kind: exact; }
        actions = { metered; silent; NoAction; }
        default_action = NoAction();
        meters = exact_meter;
        counters = exact_hits;
        size = 64;
    }
    table masked_table {
        key = { h.probe.key: ternary; h.probe.kind: ternary; }
        actions = { limited; dropped; NoAction; }
        default_action = NoAction();
        meters = masked_meter;
        size = 64;
    }
    apply {
        if (h.probe.isValid()) {
            s.egress_spec = (bit<9>)h.probe.next & 7;
            h.colours.setValid();
            m.direct = 3;
            m.masked = 9;
            by_packets.execute_meter((bit<32>)h.probe.index, m.held);
            h.colours.packets = (bit<8>)m.held;
            if (h.probe.index > 3) {
                by_bytes.execute_meter((bit<32>)h.probe.index, h.colours.bytes);
            }
            exact_table.apply();
            h.colours.direct = (bit<8>)m.direct;
            masked_table.apply();
            h.colours.masked = m.masked;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    meter(8, MeterType.packets) by_port;
    apply {
        bit<8> colour = 8;
        by_port.execute_meter((bit<32>)s.egress_port, colour);
        h.colours.egress = colour;
        if (colour == 2) { mark_to_drop(s); }
    }
}
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
