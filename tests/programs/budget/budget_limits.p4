// One thing that a pipe of a Tofino 1 cannot do, by WRONG: 1 an array twice, 2 a product, 3 a shift
// by the packet, 4 three words into a cell, 5 three comparisons with it, 6 a chain of 14 tables,
// 7 a resubmission with 80 bits, 8 arrays in circles, 9 a cell of 96 bits, 10 egress 164 bytes deep,
// 11 more headers than can be carried, 12 an array at more places than a stage has tables. 0: nothing
// wrong; tables with 2,048 exact and 1,024 ternary entries.

#include <core.p4>
#include <v1model.p4>

header data_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; }
header long_t { bit<1152> body; }
header huge_t { bit<2048> body; }
struct headers_t { data_t data; long_t pad; data_t last; huge_t first; huge_t second; }
struct metadata_t {
    @field_list(1) bit<80> kept;
    bit<32> x;
    bit<32> y;
}

parser LimitsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.data);
#if WRONG == 10
        packet.extract(hdr.pad);
        packet.extract(hdr.last);
#elif WRONG == 11
        packet.extract(hdr.first);
        packet.extract(hdr.second);
#endif
        transition accept;
    }
}

control LimitsIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1024) one;
    register<bit<32>>(1024) two;
    register<bit<96>>(1024) wide;
    action send(bit<9> port) { standard_metadata.egress_spec = port; }
    action add_one() { hdr.data.a = hdr.data.a + 1; }
    table exact_table {
        key = { hdr.data.a: exact; hdr.data.b: exact; }
        actions = { send; NoAction; }
        size = 2048;
    }
    table ternary_table {
        key = { hdr.data.c: ternary; hdr.data.d: ternary; }
        actions = { send; NoAction; }
        size = 1024;
    }
    action twice() {
        one.read(meta.x, 0);
        one.write(0, meta.x + hdr.data.a);
    }
    action words() {
        one.read(meta.x, 0);
        one.write(0, meta.x == hdr.data.a ? hdr.data.b : hdr.data.c);
    }
    action comparisons() {
        one.read(meta.x, 0);
        one.write(0, meta.x == 1 || meta.x == 5 || meta.x > 9 ? 0 : meta.x);
    }
    action from_one() { one.read(meta.x, 0); two.write(meta.x, 1); }
    action from_two() { two.read(meta.y, 0); one.write(meta.y, 1); }

    apply {
#if WRONG == 0
        exact_table.apply();
        ternary_table.apply();
#elif WRONG == 1
        twice();
        if (hdr.data.b == 0) { twice(); }
#elif WRONG == 2
        hdr.data.a = hdr.data.a * hdr.data.b;
#elif WRONG == 3
        hdr.data.a = hdr.data.a << hdr.data.b[7:0];
#elif WRONG == 4
        words();
#elif WRONG == 5
        comparisons();
#elif WRONG == 6
        add_one(); add_one(); add_one(); add_one(); add_one(); add_one(); add_one();
        add_one(); add_one(); add_one(); add_one(); add_one(); add_one(); add_one();
#elif WRONG == 7
        meta.kept = hdr.data.a ++ hdr.data.b ++ hdr.data.c[15:0];
        resubmit_preserving_field_list(1);
#elif WRONG == 8
        if (hdr.data.b == 0) { from_one(); } else { from_two(); }
#elif WRONG == 9
        wide.write(0, (bit<96>)hdr.data.a);
#elif WRONG == 12
#define AT(i) else if (hdr.data.b == i) { one.write(0, i); }
        if (hdr.data.b > 16) { add_one(); }
        AT(0) AT(1) AT(2) AT(3) AT(4) AT(5) AT(6) AT(7) AT(8) AT(9) AT(10) AT(11) AT(12) AT(13)
        AT(14) AT(15) AT(16)
#endif
    }
}

control LimitsEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    apply {
#if WRONG == 10
        hdr.last.d = 1;
#endif
    }
}
control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }
control LimitsDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(LimitsParser(), NoChecksum(), LimitsIngress(), LimitsEgress(), NoChecksum(),
         LimitsDeparser()) main;
