// Header stacks: parsed in a loop, pushed, popped, indexed at run time where an element is valid.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> index; }
header label_t { bit<15> value; bit<1> last; bit<8> ttl; }
struct headers_t { op_t op; label_t[5] labels; label_t[3] others; }
struct metadata_t { bit<8> depth; bit<32> sum; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.op);
        transition select(h.op.op) {
            0xff: accept;
            0x80 &&& 0xc0: others;
            default: labels;
        }
    }
    state labels {
        p.extract(h.labels.next);
        m.depth = m.depth + 1;
        transition select(h.labels.last.last) {
            0: labels;
            default: sum;
        }
    }
    state sum {
        m.sum = m.sum + (bit<32>)h.labels.last.value + h.labels.lastIndex;
        transition accept;
    }
    state others {
        p.extract(h.others.next);
        p.extract(h.others.next);
        transition select(h.others.last.ttl, h.others.last.last) {
            (0, _): accept;
            (1 &&& 1, 1): others_more;
            default: labels;
        }
    }
    state others_more { p.extract(h.others.next); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action push_one() {
        h.labels.push_front(1);
        h.labels[0].setValid();
        h.labels[0] = { 0x1234, 0, 9 };
    }
    action push_three() {
        h.labels.push_front(3);
        h.labels[0].setValid();
        h.labels[0] = { 1, 0, 1 };
        h.labels[2].setValid();
        h.labels[2] = { 2, 1, 2 };
    }
    action push_all() { h.labels.push_front(5); }
    action pop_one() { h.labels.pop_front(1); }
    action pop_two() { h.labels.pop_front(2); h.others.pop_front(1); }
    action at_index() {
        h.labels[h.op.index].ttl = h.labels[h.op.index].ttl - 1;
        h.op.index = h.labels[h.op.index].ttl;
    }
    action exchange() { h.others[1] = h.labels[0]; h.others[2] = h.labels[4]; h.labels[1] = h.others[0]; }
    action whole() { h.others[0].setInvalid(); h.labels[3].setInvalid(); }
    table per_index {
        key = { h.op.index: exact; h.labels[0].isValid(): exact; }
        actions = { push_one; push_three; pop_one; whole; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        if (h.op.isValid()) {
            s.egress_spec = 1;
            if (h.op.op & 7 == 0) { push_one(); }
            else if (h.op.op & 7 == 1) { push_three(); }
            else if (h.op.op & 7 == 2) { pop_one(); }
            else if (h.op.op & 7 == 3) { pop_two(); }
            else if (h.op.op & 7 == 4) { if (h.op.index < m.depth) { at_index(); } }
            else if (h.op.op & 7 == 5) { exchange(); }
            else if (h.op.op & 7 == 6) { whole(); push_one(); push_all(); push_one(); }
            per_index.apply();
            if (h.labels[0].isValid() && h.labels[0] == h.labels[1]) { h.op.index = 0xee; }
            h.op.op = m.depth + (bit<8>)m.sum;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.op); p.emit(h.labels); p.emit(h.others); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
