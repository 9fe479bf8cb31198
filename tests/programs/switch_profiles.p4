// Tables whose actions live in action profiles, alone and in groups that a hash chooses from.
#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> kind;
    bit<16> flow;
    bit<32> address;
    bit<3> part;
    bit<13> odd;
    bit<8> more;
}
header inner_t { bit<4> high; bit<4> low; }
header marks_t {
    bit<8> plain;
    bit<8> group;
    bit<8> masked;
    bit<8> prefix;
    bit<8> way;
    bit<8> colour;
    bit<16> wide;
}

struct headers_t { probe_t probe; inner_t inner; marks_t marks; }
struct metadata_t { bit<8> colour; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.probe);
        transition select(h.probe.more) { 1: take_inner; default: accept; }
    }
    state take_inner { p.extract(h.inner); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action_profile(32) members;
    action_selector(HashAlgorithm.crc16, 64, 14) ways;
    action_selector(HashAlgorithm.identity, 16, 16) odd_ways;
    direct_counter(CounterType.packets_and_bytes) plain_hits;
    direct_counter(CounterType.packets_and_bytes) way_hits;
    direct_meter<bit<8>>(MeterType.packets) way_meter;

    action plain(bit<8> v) { h.marks.plain = v; plain_hits.count(); }
    action both(bit<8> v, bit<16> w) {
        h.marks.plain = v;
        h.marks.wide = w;
        plain_hits.count();
    }
    action refuse() { mark_to_drop(s); plain_hits.count(); }
    action go(bit<9> port, bit<8> v) {
        s.egress_spec = port;
        h.marks.group = v;
        way_hits.count();
        way_meter.read(m.colour);
    }
    action stay() { h.marks.way = 1; way_hits.count(); way_meter.read(m.colour); }
    action masked(bit<8> v) { h.marks.masked = v; }
    action prefixed(bit<8> v) { h.marks.prefix = v; }
    action leave(bit<8> v) { h.marks.masked = v; exit; }

    table plain_table {
        key = { h.probe.kind: exact; }
        actions = { plain; both; refuse; NoAction; }
        implementation = members;
        counters = plain_hits;
        size = 64;
    }
    table way_table {
        key = {
            h.probe.flow: exact;
            h.probe.address: selector;
            h.probe.part: selector;
            s.ingress_port: selector;
            h.inner.low: selector;
        }
        actions = { go; stay; NoAction; }
        implementation = ways;
        counters = way_hits;
        meters = way_meter;
        size = 64;
    }
    table masked_table {
        key = { h.probe.address: ternary; h.probe.odd: ternary; h.probe.odd: selector; }
        actions = { masked; prefixed; leave; NoAction; }
        implementation = odd_ways;
        size = 64;
    }
    table prefix_table {
        key = { h.probe.address: lpm; h.probe.odd: selector; }
        actions = { masked; prefixed; leave; NoAction; }
        implementation = odd_ways;
        size = 64;
    }
    apply {
        s.egress_spec = 1;
        if (h.probe.isValid()) {
            h.marks.setValid();
            m.colour = 5;
            if (plain_table.apply().hit) { h.marks.way = 2; } else { h.marks.way = 3; }
            switch (way_table.apply().action_run) {
                go: { h.marks.way = h.marks.way + 16; }
                stay: { h.marks.way = h.marks.way + 32; }
                NoAction: { h.marks.way = h.marks.way + 64; }
            }
            h.marks.colour = m.colour;
            // simple_switch runs a profile that tables share only where hit and miss decide.
            if (prefix_table.apply().hit) { h.marks.wide = h.marks.wide + 1; }
            if (!masked_table.apply().hit) { h.marks.wide = h.marks.wide + 2; }
            h.marks.wide = h.marks.wide + 4;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
