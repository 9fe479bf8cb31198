// One thing that a Tofino 1 does not do, by WRONG: 1 a comparison of a cell under a mask that comes with the packet,
// 2 three comparisons with a cell, 3 five actions on one register, 4 whether a sum has left int32, 5 a checksum that
// is verified under a condition. 0: nothing wrong.

#include <core.p4>
#include <tna.p4>

#ifndef WRONG
#define WRONG 0
#endif

header data_t { bit<32> a; bit<32> b; bit<32> c; bit<16> index; bit<16> checksum; }
struct headers_t { data_t data; }
struct metadata_t { bit<1> wrong; }
struct empty_t {}

parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() checksum;
    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.data);
#if WRONG == 5
        checksum.add(hdr.data);
        if (hdr.data.a == 1) {
            meta.wrong = (bit<1>)checksum.verify();
        }
#endif
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Register<bit<32>, bit<10>>(1024) one;

#if WRONG < 3 || WRONG == 5
    RegisterAction<bit<32>, bit<10>, bit<32>>(one) act = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
#if WRONG == 0 || WRONG == 5
            held = held | hdr.data.a;
#elif WRONG == 1
            if (held & hdr.data.a == 0) {
                held = held | hdr.data.a;
            }
#elif WRONG == 2
            if (held == hdr.data.a || held == hdr.data.b || held > 100) {
                held = 0;
            }
#endif
        }
    };
#endif
#if WRONG == 3
#define ANOTHER(n) \
    RegisterAction<bit<32>, bit<10>, bit<32>>(one) act##n = { \
        void apply(inout bit<32> held, out bit<32> result) { held = held + n; result = held; } \
    }; \
    action do_act##n() { hdr.data.b = act##n.execute(hdr.data.index[9:0]); }
    ANOTHER(1)
    ANOTHER(2)
    ANOTHER(3)
    ANOTHER(4)
    ANOTHER(5)
    table five {
        key = { hdr.data.c: exact; }
        actions = { do_act1; do_act2; do_act3; do_act4; do_act5; }
        const default_action = do_act1();
        size = 64;
    }
#endif
#if WRONG == 4
    Register<int<32>, bit<10>>(1024) sum;
    RegisterAction<int<32>, bit<10>, bit<32>>(sum) left = {
        void apply(inout int<32> held, out bit<32> result) {
            int<32> total = held + (int<32>)hdr.data.a;
            result = ((bit<32>)held ^ (bit<32>)total) & (hdr.data.a ^ (bit<32>)total);
            held = total;
        }
    };
#endif

    apply {
#if WRONG == 3
        five.apply();
#elif WRONG == 4
        hdr.data.b = left.execute(hdr.data.index[9:0]);
#else
        hdr.data.b = act.execute(hdr.data.index[9:0]);
#endif
        for_tm.ucast_egress_port = intrinsic.ingress_port;
    }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply { packet.emit(hdr); }
}

parser EgressParser(packet_in packet, out headers_t hdr, out empty_t meta,
                    out egress_intrinsic_metadata_t intrinsic) {
    state start { packet.extract(intrinsic); transition accept; }
}

control Egress(inout headers_t hdr, inout empty_t meta, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    apply {}
}

control EgressDeparser(packet_out packet, inout headers_t hdr, in empty_t meta,
                       in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply { packet.emit(hdr); }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
