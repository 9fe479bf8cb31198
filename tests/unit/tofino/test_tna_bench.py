"""The test bench of TNA programs computes as P4_16 says, and refuses what it does not know."""

from __future__ import annotations

import pytest
from lark.exceptions import UnexpectedInput
from support.tna import TnaSwitch
from support.tna.translate import UnknownError

PROGRAM = """
#include <core.p4>
#include <tna.p4>
header h_t { bit<32> a; bit<32> b; bit<32> c; }
struct headers_t { h_t h; }
struct metadata_t { bit<32> x; }
parser P(packet_in packet, out headers_t hdr, out metadata_t meta,
         out ingress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.h);
        transition accept;
    }
}
struct cell_t { int<32> low; int<32> high; }
control I(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
          in ingress_intrinsic_metadata_from_parser_t from_parser,
          inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
          inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Register<bit<32>, bit<1>>(2) sums;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sums) add = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
            held = held + hdr.h.a;
        }
    };
    apply {
        for_tm.ucast_egress_port = 1;
        BODY
    }
}
control D(packet_out packet, inout headers_t hdr, in metadata_t meta,
          in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply { packet.emit(hdr); }
}
parser EP(packet_in packet, out headers_t hdr, out metadata_t meta,
          out egress_intrinsic_metadata_t intrinsic) {
    state start { packet.extract(intrinsic); packet.extract(hdr.h); transition accept; }
}
control E(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
          in egress_intrinsic_metadata_from_parser_t from_parser,
          inout egress_intrinsic_metadata_for_deparser_t for_deparser,
          inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    apply { }
}
control ED(packet_out packet, inout headers_t hdr, in metadata_t meta,
           in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply { packet.emit(hdr); }
}
Pipeline(P(), I(), D(), EP(), E(), ED()) pipe;
Switch(pipe) main;
"""


@pytest.fixture
def switch(tmp_path):
    def make(body, seed=0):
        (path := tmp_path / "program.p4").write_text(PROGRAM.replace("BODY", body))
        return TnaSwitch(path, seed)

    return make


def numbers(*words):
    return b"".join((word & 0xFFFFFFFF).to_bytes(4) for word in words)


@pytest.mark.parametrize(
    ("expression", "a", "b", "expected"),
    [
        ("hdr.h.a + hdr.h.b", 2**32 - 1, 2, 1),
        ("hdr.h.a - hdr.h.b", 1, 2, -1),
        ("hdr.h.a |+| hdr.h.b", 2**32 - 1, 2, 2**32 - 1),
        ("hdr.h.a |-| hdr.h.b", 1, 2, 0),
        ("(bit<32>)((int<32>)hdr.h.a |+| (int<32>)hdr.h.b)", 2**31 - 1, 1, 2**31 - 1),
        ("(bit<32>)((int<32>)hdr.h.a |+| (int<32>)hdr.h.b)", -(2**31), -1, -(2**31)),
        ("(bit<32>)((int<32>)hdr.h.a - (int<32>)hdr.h.b)", -(2**31), 1, 2**31 - 1),
        ("(bit<32>)max((int<32>)hdr.h.a, (int<32>)hdr.h.b)", -1, 1, 1),
        ("max(hdr.h.a, hdr.h.b)", -1, 1, -1),
        ("hdr.h.a[15:8] ++ hdr.h.b[23:0]", 0x12345678, 0x9ABCDEF0, 0x56BCDEF0),
        ("hdr.h.a & hdr.h.b == 0 ? 32w1 : 32w2", 1, 2, 1),  # & binds more tightly than ==
        ("hdr.h.a | 1 << 4 ^ hdr.h.b", 0, 3, 0x13),
        ("~hdr.h.a", 1, 0, -2),
        ("(bit<32>)((int<32>)hdr.h.a >> 4)", -32, 0, -2),
        ("hdr.h.a >> 4", -32, 0, 0x0FFFFFFE),
        ("(int<32>)hdr.h.a < (int<32>)hdr.h.b ? 32w1 : 32w2", -1, 0, 1),
        ("hdr.h.a < hdr.h.b ? 32w1 : 32w2", -1, 0, 2),
    ],
)
def test_expressions(switch, expression, a, b, expected):
    made = switch(f"hdr.h.c = {expression};")
    assert made.process(0, numbers(a, b, 0) + b"rest") == [(1, numbers(a, b, expected) + b"rest")]


def test_a_register_action_reads_changes_and_writes(switch):
    made = switch("hdr.h.c = add.execute(hdr.h.b[0:0]);")
    answers = [made.process(0, numbers(a, 1, 0)) for a in (5, 7, -1)]
    assert answers == [[(1, numbers(a, 1, before))] for a, before in ((5, 0), (7, 5), (-1, 12))]
    assert made.registers["I.sums"].cells == [0, 11]


def test_metadata_that_nothing_has_set_is_random_unless_the_program_asks(switch, tmp_path):
    body = "hdr.h.c = meta.x;"
    answers = {switch(body, seed).process(0, numbers(0, 0, 0))[0][1] for seed in range(4)}
    assert len(answers) == 4
    asking = PROGRAM.replace("struct metadata_t", "@pa_auto_init_metadata struct metadata_t")
    (path := tmp_path / "asking.p4").write_text(asking.replace("BODY", body))
    assert TnaSwitch(path).process(0, numbers(0, 0, 9)) == [(1, numbers(0, 0, 0))]


def test_packets_that_do_not_leave(switch):
    assert switch("for_deparser.drop_ctl = 1;").process(0, numbers(0, 0, 0)) == []
    assert switch("").process(0, numbers(0, 0)) == []  # too short
    forever = switch("for_tm.ucast_egress_port = 68;")
    with pytest.raises(AssertionError, match="does not leave"):
        forever.process(0, numbers(0, 0, 0))


@pytest.mark.parametrize(
    "body",
    [
        "hdr.h.c = (int<32>)hdr.h.a;",  # without a cast
        "hdr.h.c = hdr.h.a + (int<32>)hdr.h.b;",
        "hdr.h.c = unknown;",
        "hdr.h.c = hdr.h.a[7:0];",
    ],
)
def test_what_is_no_p4_or_unknown_is_refused(switch, body):
    with pytest.raises(UnknownError):
        switch(body)


def test_what_the_grammar_does_not_have_is_refused(switch):
    with pytest.raises(UnexpectedInput):
        switch("for (bit<8> i in 0..3) { }")
