// Every kind of variable that a packet carries, from ingress to the copies that wait for egress:
// stacks, unions, variable fields, wide fields, runs of fields; and assertions on the way.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> op; bit<8> round; bit<8> length; bit<8> session; }
header label_t { bit<15> value; bit<1> last; }
header options_t { bit<8> kind; varbit<64> data; bit<8> end; }
header wide_t { bit<200> w; int<100> s; bit<4> nibble; }
header small_t { bit<8> x; }
header large_t { bit<24> y; }
header_union either_t { small_t small; large_t large; }
header run_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; bit<8> e; bit<8> f; bit<8> g; bit<8> h; bit<8> i; }
struct headers_t {
    base_t base; label_t[4] labels; options_t options; options_t spare; wide_t wide; either_t either;
    run_t run;
}
struct metadata_t {
    @field_list(1) bit<200> wide;
    @field_list(1, 2) int<100> signed;
    @field_list(2) bit<8> rounds;
    bit<8> lost;
}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        transition select(h.base.op) {
            0 .. 63: with_labels;
            64 .. 127: with_options;
            128 .. 159: with_wide;
            160 .. 191: with_small;
            192 .. 223: with_large;
            default: with_run;
        }
    }
    state with_labels {
        p.extract(h.labels.next);
        transition select(h.labels.last.last) { 1: accept; default: with_labels; }
    }
    state with_options {
        p.extract(h.options, (bit<32>)(h.base.length & 7) << 3);
        transition select(h.base.length) { 0x80 &&& 0x80: with_spare; default: accept; }
    }
    state with_spare {
        p.extract(h.spare, (bit<32>)(h.base.length >> 4 & 7) << 3);
        transition accept;
    }
    state with_wide { p.extract(h.wide); transition accept; }
    state with_small { p.extract(h.either.small); transition with_run; }
    state with_large { p.extract(h.either.large); transition accept; }
    state with_run { p.extract(h.run); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (!h.base.isValid()) { exit; }
        assert(h.base.op != 77);
        s.egress_spec = (bit<9>)h.base.session & 3;
        m.rounds = m.rounds + 1;
        m.lost = 9;
        m.wide = (m.wide << 8) + (bit<200>)h.base.round;
        m.signed = m.signed - (int<100>)(int<8>)h.base.session;
        bit<8> todo = h.base.round & 7;
        if (todo == 0) { s.mcast_grp = (bit<16>)h.base.session & 3; }
        else if (todo == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.base.session & 7, 1); }
        else if (todo == 2) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.base.session & 7, 2); h.options.setInvalid(); }
        else if (todo == 3 && m.rounds < 3) { resubmit_preserving_field_list(2); }
        else if (todo == 4) { h.spare = h.options; h.options.setInvalid(); s.mcast_grp = 1; }
        else if (todo == 5) { h.labels.push_front(1); h.labels[0].setValid(); h.labels[0].value = 0x1234; s.mcast_grp = 2; }
        else if (todo == 6) { h.either.large.setValid(); h.either.large.y = 24w0xabcdef; s.mcast_grp = 3; }
        if (h.base.round & 0x80 != 0) { h.base.setInvalid(); }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.base.isValid()) {
            assert(h.base.op != 79 || s.egress_port != 2);
            bit<8> todo = h.base.round >> 3 & 7;
            h.base.length = (bit<8>)s.packet_length;
            if (todo == 0) { h.labels.pop_front(1); }
            else if (todo == 1) { h.options.setValid(); h.options.kind = (bit<8>)s.egress_rid; }
            else if (todo == 2) { h.wide.w = h.wide.w + m.wide; h.wide.s = h.wide.s + m.signed; }
            else if (todo == 3) {
                if (h.either.large.isValid()) { h.either.small.setValid(); h.either.small.x = 8w0x77; }
                h.run.c = h.run.c + (bit<8>)s.egress_port;
            }
            else if (todo == 4 && m.rounds < 3 && s.instance_type != 1) { recirculate_preserving_field_list(2); h.base.session = h.base.session + 1; }
            else if (todo == 5 && m.rounds < 3 && s.instance_type != 2) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.base.session & 7, 1); h.labels.push_front(2); }
            else if (todo == 6) { h.spare.setInvalid(); h.options.setInvalid(); if (s.instance_type == 0) { clone(CloneType.E2E, 1); } h.spare.setValid(); }
            else { h.labels.push_front(1); h.labels[0].setValid(); }
            h.base.op = h.base.op + (bit<8>)m.wide[15:0] + (bit<8>)(bit<100>)m.signed + m.lost;
        }
    }
}
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) {
    apply {
        p.emit(h.base); p.emit(h.labels); p.emit(h.options); p.emit(h.spare); p.emit(h.wide);
        p.emit(h.either); p.emit(h.run);
    }
}
V1Switch(P(), V(), I(), E(), U(), D()) main;
