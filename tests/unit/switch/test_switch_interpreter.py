"""What the interpreter makes of literal packets, worked out by hand from the P4 sources."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.switch_cases import CASES, program
from support.tiers import examples

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.switch.engine import MAX_LOOPS
from innet.switch.state.hashes import HashState


def switch_of(name):
    switch = Switch.load(program(name), "interpret")
    for command in CASES[name].commands if name in CASES else ():
        switch.command(command)
    return switch


def answer(switch, port, data):
    """What leaves for one packet, as (port, hexadecimal)."""
    return [(p, out.hex()) for p, out in switch.process([(port, bytes.fromhex(data))])]


# ── Parser ──


@pytest.mark.parametrize(
    ("port", "packet", "sent"),
    [
        # error, what was looked ahead, which state; then the headers, then the rest
        (0, "", "0001 0000 00"),
        (0, "03", "0001 0000 00 03"),
        (0, "030d", "0004 0000 01 030d"),
        (0, "0300 01aa", "0000 0000 03 0300 01aa"),
        (0, "0000 00a1 00a2 01a3 ff", "0000 0000 01 0000 00a1 00a2 01a3 ff"),
        (0, "0000 00a1 00a2 00a3 00a4", "0002 0000 01 0000 00a1 00a2 00a3 00a4"),
        (0, "0000 00a1 00", "0001 0000 01 0000 00a1 00"),
        (0, "0210 aabbcc", "0000 0000 02 0210 cc"),
        (0, "0207 aabbcc", "0003 0000 01 0207 aabbcc"),
        (0, "0220 aabbcc", "0001 0000 01 0220 aabbcc"),
        (0, "0100 2001 01ee", "0000 2001 01 0100 2001 01ee"),
        (0, "0100 c0", "0001 0000 01 0100 c0"),
        (0, "0407", "0000 0000 04 0407"),
        (0, "0408", "0000 0000 01 0408"),
        (1, "0600", "0000 0000 05 0600"),
        (6, "0600", "0000 0000 01 0600"),
        (3, "0600 0109", "0000 0000 06 0600 0109"),
        # lookahead of 11 bits, then a key of 3 that are there: 101
        (0, "0700 b3c0", "0000 059e 04 0700 b3c0"),
        # both need 2 bytes, of which there is one
        (0, "0700 b3", "0001 0000 01 0700 b3"),
    ],
)
def test_parser(port, packet, sent):
    switch = switch_of("switch_parser")
    switch.command("pvs_add P.known 7")
    assert answer(switch, port, packet) == [(1, sent.replace(" ", ""))]


def test_value_sets_change():
    switch = switch_of("switch_parser")
    assert answer(switch, 0, "0407") == [(1, "00000000010407")]
    switch.command("pvs_add known 0x07")
    assert answer(switch, 0, "0407") == [(1, "00000000040407")]
    assert switch.command("pvs_get known") == "0x7"
    switch.command("pvs_clear known")
    assert answer(switch, 0, "0407") == [(1, "00000000010407")]


# ── Checksums ──


def test_checksums():
    switch = switch_of("switch_checksums")
    # 00 12 34 00 sums to 3412, so the checksum is cbed.
    assert answer(switch, 0, "001234cbedaa") == [(1, "001234cbedaa")]
    assert answer(switch, 0, "0012340000aa") == [(2, "001234cbedaa")]
    assert switch.statistics.checksum_errors == 1
    # A header that is set invalid takes its checksums with it; kind 9 is not verified.
    assert answer(switch, 0, "09 1234 0000 0001 00000002 fffc 0000") == [
        # first: 0912 + 3400 = 3d12 -> c2ed; second with payload over c2ed 0001 5 00000002 000
        (1, "091234c2ed" + "0001" + "00000002" + second_sum() + crc_of_second())
    ]


def second_sum():
    words = [0xC2ED, 0x0001, 0x5000, 0x0000, 0x2000]
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    return f"{0xFFFF - total:04x}"


def crc_of_second():
    # source, data, sum, then the bits 001, which stand at the top of the last byte
    return f"{HashState('crc16').value(bytes.fromhex('000100000002' + second_sum() + '20')):04x}"


# ── Copies ──


def test_multicast_copies_in_the_order_of_association():
    sent = answer(switch_of("switch_copies"), 6, "04001234ee")
    # base, added header, stamp (type 5, port, length 5 + 2, rid, kept 0 + 4 + 1, lost, ingress)
    assert sent == [
        (7, "040012341234050700070009055506ee"),
        (2, "040012341234050200070007055506ee"),
        (3, "040012341234050300070007055506ee"),
    ]


def test_an_interrupted_packet_leaves_nothing_behind(monkeypatch):
    """As by Ctrl-C in a notebook, between the copies of a packet."""
    switch = switch_of("switch_copies")

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(switch._engine.deparser, "deparse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answer(switch, 6, "04001234ee")
    clone_and_original = "00001234ee"
    assert answer(switch, 3, clone_and_original) == answer(
        switch_of("switch_copies"), 3, clone_and_original
    )


def test_a_clone_has_what_was_received_and_fresh_metadata():
    assert answer(switch_of("switch_copies"), 3, "00001234ee") == [
        (4, "00001234010400050000000000ee"),
        (1, "0000aaaa000100050000015503ee"),
    ]


def test_a_clone_may_keep_fields_and_outlive_a_dropped_packet():
    switch = switch_of("switch_copies")
    assert answer(switch, 3, "01001234") == [(4, "01001234010400040000020000")]
    assert switch.statistics.dropped_ingress == 1
    assert switch.statistics.cloned == 1


def test_the_last_clone_wins():
    assert answer(switch_of("switch_copies"), 3, "02001234") == [
        (6, "02001234010600040000030000"),
        (1, "02001234000100040000035503"),
    ]


def test_resubmission_starts_again_with_what_was_received():
    # m.kept is kept: 4 of the first pass and 4 of the second; the note is m.again; type 0 again.
    assert answer(switch_of("switch_copies"), 2, "03001234") == [(2, "03000003000200040000085500")]


def test_recirculation_parses_what_was_deparsed():
    stamp = "0001000400000a5502"
    # Once more with the stamp of 9 bytes as payload, then out at port 3.
    assert answer(switch_of("switch_copies"), 2, "09021234") == [
        (3, "090312340003000d0000145500" + stamp)
    ]


def test_truncation_counts_the_whole_packet():
    switch = switch_of("switch_copies")
    assert answer(switch, 3, "08061234aabbcc") == [(1, "080612340001")]
    assert answer(switch, 3, "08001234") == [(1, "")]


def test_drops_are_counted_where_they_happen():
    switch = switch_of("switch_copies")
    assert answer(switch, 3, "05001234") == []  # mark_to_drop takes the group back
    assert answer(switch, 3, "07001234") == []  # there is no group 99
    # The packet is dropped at egress, its clone is not; it has the stamp that was added before.
    assert answer(switch, 3, "0e001234") == [(6, "0e0012340206000d0000000000")]
    statistics = switch.statistics
    assert (statistics.dropped_ingress, statistics.dropped_egress) == (1, 1)
    assert statistics.unknown_groups == 1
    assert (statistics.packets_in, statistics.packets_out) == (3, 1)
    assert (statistics.bytes_in, statistics.bytes_out) == (12, 13)
    switch.reset_statistics()
    assert not any(switch.statistics.as_dict().values())


# ── Headers and values ──


def test_stacks():
    switch = switch_of("switch_headers")
    # base (op, index, amount, s), then labels (value and last, n of 16 bits)
    labels = "02 0001 04 0002 07 0003".replace(" ", "")
    assert answer(switch, 0, "00000000" + labels)[0][1][8:] == "0a0000" + labels
    assert answer(switch, 0, "01000000" + labels)[0][1][8:] == labels[:12]
    assert answer(switch, 0, "02000000" + labels)[0][1][8:] == labels[6:]
    assert answer(switch, 0, "03000000" + labels)[0][1][8:] == ""


def test_signed_values_as_simple_switch_computes_them():
    switch = switch_of("switch_headers")

    def s_of(value):
        """base.s after: below 0 as int<8>(s + 100) its negative, else |+| 100."""
        return int(answer(switch, 0, f"200000{value:02x}")[0][1][6:8], 16)

    assert s_of(0) == 127  # 100 |+| 100
    assert s_of(0xB0) == 120  # -80 + 100 = 20
    assert s_of(100) == 56  # 200 is -56 as int<8>


def test_unions_have_one_valid_member():
    switch = switch_of("switch_headers")
    assert answer(switch, 0, "14000000aabbcc")[0][1][8:] == "01020304cc"
    assert answer(switch, 0, "15000000aabbcc")[0][1][8:] == "aabbcc"
    assert answer(switch, 0, "19000000aabbccdd")[0][1][8:] == "0a0b"
    assert answer(switch, 0, "1a000000aabbccdd")[0][1][8:] == ""


def test_varbit():
    switch = switch_of("switch_headers")
    assert answer(switch, 0, "1e00000002aabbccdd")[0][1][8:] == "02aabbcc02aabb09dd"
    assert answer(switch, 0, "1f00000000ccdd")[0][1][8:] == "dd"
    # 9 bytes are more than the header takes; 12 are refused by the program itself.
    assert answer(switch, 0, "2000000009" + "00" * 10)[0][1][4:6] == "ff"
    assert answer(switch, 0, "200000000c" + "00" * 20)[0][1][4:6] == "fd"


# ── State ──


def test_registers_of_every_width():
    switch = switch_of("switch_state")
    packet = bytes([3, 0]) + b"\xff\xff\xff\xff" + b"\x80\0\0\0" + bytes(8)
    switch.process([(0, packet)] * 2)
    # words[3] began as 2**32 - 1, and 2**32 - 1 was added twice.
    assert switch.registers["I.words"][3] == 2**32 - 3
    assert switch.registers["I.words"].dtype == "uint32"
    assert switch.registers["I.wide"].dtype == "uint64"
    switch.command("register_write widest 1 1180591620717411303423")  # 2**70 - 1
    switch.process([(0, bytes([1, 0]) + bytes(16))])
    widest = switch.registers["I.widest"]
    assert (widest.shape[1], widest.dtype) == (2, "uint64")
    assert int(widest[1, 0]) << 64 | int(widest[1, 1]) == 3 * (2**70 - 1)
    assert switch.command("register_read widest 1") == f"widest[1]= {3 * (2**70 - 1)}"
    assert switch.command("register_read widest").startswith(f"widest= 0, {3 * (2**70 - 1)}, 0")
    switch.command("register_reset widest")
    assert not widest.any()


def test_a_signed_register_reads_as_unsigned_as_in_simple_switch():
    switch = switch_of("switch_state")
    switch.command("register_write signed_words 0 -1")
    assert switch.registers["I.signed_words"][0] == 2**32 - 1
    # Reading -1 gives 2**32 - 1, which is not below 5, so nothing is written.
    out = answer(switch, 0, "0000" + "00000000" + "00000005" + "00" * 8)
    assert out[0][1].endswith("ffffffff00")
    assert switch.registers["I.signed_words"][0] == 2**32 - 1


def test_counters_count_packets_and_bytes():
    switch = switch_of("switch_state")
    switch.process([(0, bytes([0, 7]) + bytes(16)), (0, bytes([0, 7]) + bytes(26))])
    assert switch.counters["I.kinds"].packets[7] == 2
    assert switch.counters["I.kinds"].bytes[7] == 46
    assert switch.command("counter_read I.kinds 7") == "I.kinds[7]= (46 bytes, 2 packets)"


# ── Whatever comes ──


@pytest.fixture(scope="module", params=CASES)
def one_switch(request):
    """Of each program one, for packets of all kinds."""
    return switch_of(request.param)


@settings(max_examples=examples(60))
@given(packets=st.lists(st.tuples(st.integers(0, 510), st.binary(max_size=60)), max_size=6))
def test_no_packet_raises(one_switch, packets):
    before = one_switch.statistics.packets_in
    one_switch.process(packets)
    assert one_switch.statistics.packets_in - before == len(packets)


@pytest.mark.parametrize("name", CASES)
def test_empty_and_huge_packets(name):
    switch = switch_of(name)
    sent = switch.process([(0, b""), (510, bytes(10_000)), (1, b"\xff" * 10_000)])
    assert all(len(data) < 11_000 for _, data in sent)


def test_an_empty_batch():
    switch = switch_of("switch_parser")
    assert switch.process([]) == []
    assert len(switch.process_batch(PacketBatch.empty(100))) == 0


@pytest.mark.parametrize("port", [-1, 511, 4000])
def test_a_port_that_no_switch_has(port):
    with pytest.raises(InputError, match=r"ports 0\.\.510"):
        switch_of("switch_parser").process([(port, b"x")])


@pytest.mark.parametrize(("op", "counted"), [("00", "resubmitted"), ("01", "recirculated")])
def test_a_packet_that_would_go_round_forever_is_stopped(op, counted):
    switch = switch_of("switch_forever")
    assert answer(switch, 0, op) == []
    assert getattr(switch.statistics, counted) == MAX_LOOPS
    assert switch.statistics.looped == 1
    assert answer(switch, 0, "07") == [(1, "07")]


def test_clones_of_clones_are_stopped():
    switch = switch_of("switch_forever")
    switch.mirror_session(1, port=2)
    assert len(answer(switch, 0, "03")) == MAX_LOOPS + 1
    assert switch.statistics.looped == 1


def test_a_parser_that_goes_round_forever_is_stopped():
    switch = switch_of("switch_forever")
    assert answer(switch, 0, "04ff") == [(1, "04ff")]
    assert switch.statistics.parser_errors == 1


def test_a_failed_assertion_drops_the_packet():
    switch = switch_of("switch_forever")
    assert answer(switch, 0, "02") == []
    assert answer(switch, 5, "02") == [(1, "02")]
    assert switch.statistics.failed_assertions == 1
