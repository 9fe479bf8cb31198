// Programs that keep to the rules of the translation from v1model, so that only room decides. ROOM chooses one:
// 1: 44 registers; 2: 52; 3: a chain of 15 tables; 4: a ternary table of 200,000 entries; 5: an exact one of 400,000.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header words_t {
    bit<16> operation;
    bit<16> index;
    bit<32> a;
    bit<32> b;
}

struct headers_t {
    ethernet_t ethernet;
    words_t    words;
}

struct metadata_t {
    bit<16> step0; bit<16> step1; bit<16> step2; bit<16> step3; bit<16> step4; bit<16> step5; bit<16> step6;
    bit<16> step7; bit<16> step8; bit<16> step9; bit<16> step10; bit<16> step11; bit<16> step12; bit<16> step13;
}

parser RoomParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.words);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Update(inout headers_t hdr, inout metadata_t meta) { apply { } }

#define REGISTER(i) \
    register<bit<32>>(1024) sum##i; \
    action add##i() { \
        bit<32> held; \
        sum##i.read(held, (bit<32>)hdr.words.index); \
        held = held + hdr.words.a; \
        sum##i.write((bit<32>)hdr.words.index, held); \
    } \
    table choose##i { \
        key = { hdr.words.operation: exact; } \
        actions = { add##i; NoAction; } \
        const entries = { i: add##i(); } \
        const default_action = NoAction(); \
    }
#define APPLY(i) choose##i.apply();

#define ELEVEN_0(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10)
#define ELEVEN_1(M) M(11) M(12) M(13) M(14) M(15) M(16) M(17) M(18) M(19) M(20) M(21)
#define ELEVEN_2(M) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31) M(32)
#define ELEVEN_3(M) M(33) M(34) M(35) M(36) M(37) M(38) M(39) M(40) M(41) M(42) M(43)
#define EIGHT(M) M(44) M(45) M(46) M(47) M(48) M(49) M(50) M(51)

#if ROOM == 1
#define ALL(M) ELEVEN_0(M) ELEVEN_1(M) ELEVEN_2(M) ELEVEN_3(M)
#elif ROOM == 2
#define ALL(M) ELEVEN_0(M) ELEVEN_1(M) ELEVEN_2(M) ELEVEN_3(M) EIGHT(M)
#else
#define ALL(M)
#endif

#define LINK(from, to) \
    action go##to(bit<16> next) { meta.step##to = next; } \
    table follow##to { \
        key = { meta.step##from: exact; } \
        actions = { go##to; NoAction; } \
        const default_action = NoAction(); \
        size = 256; \
    }
#define LINKS(M) \
    M(0, 1) M(1, 2) M(2, 3) M(3, 4) M(4, 5) M(5, 6) M(6, 7) M(7, 8) M(8, 9) M(9, 10) M(10, 11) M(11, 12) M(12, 13)
#define APPLY_LINK(from, to) follow##to.apply();

control RoomIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    ALL(REGISTER)

    action send(bit<9> port) { standard_metadata.egress_spec = port; }
#if ROOM == 3
    action begin(bit<16> next) { meta.step0 = next; }
    table first {
        key = { hdr.words.index: exact; }
        actions = { begin; NoAction; }
        const default_action = NoAction();
        size = 256;
    }
    LINKS(LINK)
    table leave {
        key = { meta.step13: exact; }
        actions = { send; NoAction; }
        const default_action = NoAction();
        size = 256;
    }
#elif ROOM == 4
    table leave {
        key = { hdr.words.a: ternary; }
        actions = { send; NoAction; }
        const default_action = NoAction();
        size = 200000;
    }
#elif ROOM == 5
    table leave {
        key = { hdr.ethernet.destination: exact; }
        actions = { send; NoAction; }
        const default_action = NoAction();
        size = 400000;
    }
#endif

    apply {
        ALL(APPLY)
#if ROOM == 3
        first.apply();
        LINKS(APPLY_LINK)
#endif
#if ROOM >= 3
        leave.apply();
#else
        send(1);
#endif
    }
}

control RoomEgress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) { apply { } }

control RoomDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.words);
    }
}

V1Switch(RoomParser(), Verify(), RoomIngress(), RoomEgress(), Update(), RoomDeparser()) main;
