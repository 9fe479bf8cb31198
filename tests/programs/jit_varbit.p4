// Headers of variable length: extraction, copies, comparison, stacks, checksums, lengths.
#include <core.p4>
#include <v1model.p4>

header start_t { bit<8> op; bit<8> length; bit<16> sum; }
header options_t { bit<16> kind; varbit<320> bytes; bit<24> behind; }
header ragged_t { bit<4> high; varbit<96> bits; bit<4> low; bit<80> more; bit<16> sum; }
header plain_t { varbit<64> all; }

struct headers_t {
    start_t s; options_t a; options_t b; options_t c; ragged_t r; ragged_t q; plain_t[3] p;
}
struct metadata_t { bit<32> sent; }

error { TooMuch }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.s);
        p.extract(h.a, (bit<32>)(h.s.length & 0x3f) << 3);
        transition select(h.s.op[7:6]) {
            0: accept;
            1: ragged;
            2: second;
            default: plain;
        }
    }
    state second { p.extract(h.b, (bit<32>)h.a.behind[7:0]); transition ragged; }
    state ragged {
        verify(h.a.behind != 7, error.TooMuch);
        p.extract(h.r, (bit<32>)h.s.length & 0x68);
        transition plain;
    }
    state plain {
        p.extract(h.p.next, (bit<32>)p.lookahead<bit<8>>() & 0x78);
        transition select(p.lookahead<bit<8>>()) { 0: plain; 1 &&& 0x81: plain; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.a.isValid(), { h.s.op, h.a.kind, h.a.bytes, h.a.behind }, h.s.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action copy() { h.b = h.a; h.q = h.r; }
    action swap() { h.c = h.a; h.a = h.b; h.b = h.c; h.c.setInvalid(); }
    action fresh() { h.q.setValid(); h.b.setValid(); h.b.kind = 0x1234; }
    action remove() { h.a.setInvalid(); h.p[0].setInvalid(); }
    action again() { h.a.setInvalid(); h.a.setValid(); h.a.behind = 1; h.r.setInvalid(); h.r.setValid(); }
    action push() { h.p.push_front(1); h.p[0] = h.p[1]; }
    action pop() { h.p.pop_front(1); h.r.more = 5; h.r.low = h.s.op[3:0]; }
    action compare() {
        h.s.length = (h.a == h.b ? 8w1 : 0) | (h.r == h.q ? 8w2 : 0) | (h.p[0] == h.p[1] ? 8w4 : 0)
            | (h.p[1] != h.p[2] ? 8w8 : 0);
        h.b = h.a; h.q = h.r;
        h.s.length = h.s.length | (h.a == h.b ? 8w16 : 0) | (h.r == h.q ? 8w32 : 0);
    }
    table run {
        key = { h.s.op: ternary; }
        actions = { copy; swap; fresh; remove; again; push; pop; compare; NoAction; }
        const default_action = NoAction();
        const entries = {
            0 &&& 15: copy(); 1 &&& 15: swap(); 2 &&& 15: fresh(); 3 &&& 15: remove(); 4 &&& 15: again();
            5 &&& 15: push(); 6 &&& 15: pop(); 7 &&& 15: compare();
        }
    }
    apply {
        s.egress_spec = s.ingress_port;
        if (h.s.isValid()) {
            run.apply();
            if (h.s.op[4:4] == 1) { s.mcast_grp = 1; }
        }
        if (s.parser_error != error.NoError) { h.s.op = 8w0xe0 | (bit<8>)(s.parser_error == error.HeaderTooShort ? 8w1 : 0); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.s.length = h.s.length + (bit<8>)s.packet_length;
        if (s.egress_rid == 1) { h.a = h.c; h.b = h.a; } else if (s.egress_rid == 2) { h.q = h.r; h.c = h.a; }
    }
}
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.r.isValid(), { h.r.high, h.r.bits, h.r.low }, h.r.sum, HashAlgorithm.csum16);
        update_checksum(h.a.isValid(), { h.s.op, h.a.kind, h.a.bytes, h.a.behind }, h.s.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.s); p.emit(h.a); p.emit(h.b); p.emit(h.c); p.emit(h.r); p.emit(h.q); p.emit(h.p); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
