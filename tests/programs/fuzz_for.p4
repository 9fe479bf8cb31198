// Loops in actions, left by break, continue, return and exit, over registers, stacks and hashes.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> n; bit<8> m; bit<32> x; bit<32> sum; int<16> level; bit<72> wide; }
header item_t { bit<8> more; bit<8> key; bit<16> value; }
struct headers_t { op_t op; item_t[4] items; }
struct metadata_t { bit<8> found; bit<32> word; bit<8> count; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); transition select(h.op.op[7:7]) { 1: item; default: accept; } }
    state item {
        p.extract(h.items.next);
        m.count = m.count + 1;
        transition select(h.items.last.more) { 0: accept; default: item; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<32>>(16) cells;
    register<bit<16>>(8) bins;
    counter(8, CounterType.packets) turns;

    action sum() {
        for (bit<8> i = 0; i < h.op.n; i = i + 1) { h.op.sum = h.op.sum + h.op.x + (bit<32>)i; }
    }
    // Two levels, with break and continue in each.
    action square() {
        for (bit<8> i = 0; i < (h.op.n & 31); i = i + 1) {
            if (i == h.op.m) { continue; }
            for (bit<8> j = i; j < 20; j = j + 3) {
                if (j == h.op.op) { continue; }
                if (h.op.sum[7:0] == h.op.m) { break; }
                h.op.sum = h.op.sum + (bit<32>)(i ^ j);
                h.op.level = h.op.level - 7;
            }
            if (h.op.x[3:0] == i[3:0]) { break; }
        }
        h.op.wide = h.op.wide + (bit<72>)h.op.sum;
    }
    // The action ends in the middle of both loops.
    action search() {
        for (bit<8> i = 0; i < 8; i = i + 1) {
            for (bit<8> j = 0; j < 4; j = j + 1) {
                bit<32> cell;
                cells.read(cell, ((bit<32>)(i + j) + h.op.x) & 15);
                if (cell == h.op.sum) { m.found = i; return; }
                m.word = m.word ^ cell;
            }
            if (i == h.op.m) { m.found = 77; return; }
        }
        m.found = 255;
        h.op.sum = m.word;
    }
    // The pipeline ends in the middle of a loop.
    action leave() {
        for (bit<8> i = 0; i < h.op.n; i = i + 1) {
            h.op.sum = h.op.sum + 1;
            if (i == (h.op.m & 15)) { exit; }
        }
        h.op.sum = 0;
    }
    // State that the next turn reads.
    action fill() {
        for (bit<32> i = 0; i < 20; i = i + 1) {
            bit<32> cell;
            cells.read(cell, i & 15);
            cells.write((i + 1) & 15, cell + h.op.x);
            turns.count(i & 7);
            bit<16> bin;
            hash(bin, HashAlgorithm.crc16, 16w0, { h.op.sum, i }, 16w8);
            bins.write((bit<32>)bin, h.op.x[15:0] ^ i[15:0]);
            h.op.sum = h.op.sum ^ cell;
        }
    }
    // Elements of a stack by a loop's variable, and headers that come and go.
    action stack() {
        for (bit<8> i = 0; i < m.count; i = i + 1) {
            if (h.items[i[1:0]].key == h.op.m) { h.items[i[1:0]].value = h.items[i[1:0]].value + 1; }
            if (h.items[i[1:0]].key == 1) { h.items.pop_front(1); m.count = m.count - 1; }
        }
    }
    action shift_out() {
        for (bit<72> w = h.op.wide; w != 0; w = w >> 5) { h.op.level = h.op.level + 1; }
    }
    table chosen {
        key = { h.op.op: ternary; }
        actions = { sum; square; search; leave; fill; stack; shift_out; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        s.egress_spec = 1;
        if (h.op.isValid() && !chosen.apply().hit) {
            if (h.op.op & 7 == 0) { sum(); }
            else if (h.op.op & 7 == 1) { square(); }
            else if (h.op.op & 7 == 2) { search(); }
            else if (h.op.op & 7 == 3) { leave(); }
            else if (h.op.op & 7 == 4) { fill(); }
            else if (h.op.op & 7 == 5) { stack(); }
            else { shift_out(); square(); search(); }
        }
        h.op.x = h.op.x + (bit<32>)m.found;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.op); p.emit(h.items); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
