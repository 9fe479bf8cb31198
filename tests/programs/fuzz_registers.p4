// Registers of many widths, signed ones too, at indices inside and outside, read and written twice.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<32> index; bit<64> value; }
header seen_t { bit<32> word; int<16> small; bit<64> large; bit<8> few; bit<48> middle; int<8> sign; bit<72> wide; }
struct headers_t { op_t op; seen_t seen; }
struct metadata_t { bit<5> odd; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply {} }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<1>>(8) bits;
    register<bit<5>>(7) fives;
    register<bit<32>>(16) words;
    register<bit<48>>(3) middles;
    register<bit<64>>(16) larges;
    register<bit<72>>(4) wides;
    register<int<16>>(16) smalls;
    register<int<64>>(5) sums;
    register<bit<32>>(1) last;

    action add() {
        bit<32> word;
        words.read(word, h.op.index);
        word = word + (bit<32>)h.op.value;
        words.write(h.op.index, word);
        words.read(h.seen.word, h.op.index);
    }
    action swap() {
        larges.read(h.seen.large, h.op.index);
        larges.write(h.op.index, h.op.value);
        larges.read(h.op.value, h.op.index + 1);
    }
    action narrow() {
        bit<1> one;
        bits.read(one, h.op.index);
        bits.write(h.op.index, one ^ h.op.value[0:0]);
        fives.read(m.odd, h.op.index);
        fives.write(h.op.index, m.odd - h.op.value[4:0]);
        h.seen.few = m.odd ++ one ++ 2w1;
    }
    action signed_ones() {
        int<16> before;
        smalls.read(before, h.op.index);
        int<16> now = before |+| (int<16>)(bit<16>)h.op.value;
        smalls.write(h.op.index, now);
        h.seen.small = now;
        h.seen.sign = before < now ? 8s1 : (before > now ? -8s1 : 8s0);
        int<64> sum;
        sums.read(sum, h.op.index);
        sums.write(h.op.index, sum - (int<64>)h.op.value);
        h.seen.large = (bit<64>)sum;
    }
    action broad() {
        bit<72> much;
        wides.read(much, h.op.index);
        wides.write(h.op.index, (much << 3) + (bit<72>)h.op.value);
        h.seen.wide = much;
        middles.read(h.seen.middle, h.op.index);
        middles.write(h.op.index, h.seen.middle ^ h.op.value[63:16]);
    }
    action fresh() {
        h.seen.setValid();
        h.seen = { 0, 0, 0, 0, 0, 0, 0 };
        s.egress_spec = 1;
        last.write(0, h.op.index);
    }
    table chosen {
        key = { h.op.op: ternary; }
        actions = { add; swap; narrow; signed_ones; broad; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        if (h.op.isValid()) {
            fresh();
            if (!chosen.apply().hit) {
                if (h.op.op & 7 == 0) { add(); }
                else if (h.op.op & 7 == 1) { swap(); }
                else if (h.op.op & 7 == 2) { narrow(); }
                else if (h.op.op & 7 == 3) { signed_ones(); }
                else if (h.op.op & 7 == 4) { broad(); }
                else if (h.op.op & 7 == 5) { h.op.index = h.op.index & 7; swap(); }
                else { h.op.index = h.op.index & 3; add(); signed_ones(); broad(); }
            }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t h, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t h) { apply { p.emit(h.op); p.emit(h.seen); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
