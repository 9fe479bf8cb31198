"""What simple_switch does where one might expect something else, as it answered.

The expected packets were recorded from simple_switch 1.15.5 running the programs of
tests/programs/as_bmv2_*.p4; the comments say where in BMv2 the behavior comes from.
"""

from __future__ import annotations

import copy

import pytest
from support.switch_cases import program

from innet.core.errors import ControlError, ProgramError
from innet.switch import Switch


def switch_of(name, engine, *commands):
    switch = Switch.load(program(name), engine)
    for command in commands:
        switch.command(command)
    return switch


def answer(switch, packet, port=1):
    """What leaves for one packet, as (port, hexadecimal)."""
    return [(p, out.hex()) for p, out in switch.process([(port, bytes.fromhex(packet))])]


def words(text):
    return text.replace(" ", "")


# ── Numbers that are wider than what BMv2 converts them to ──


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_indices_count_modulo_two_to_the_32(engine):
    """Registers and counters take their index as an unsigned int of 32 bits."""
    switch = switch_of("as_bmv2_indices", engine)
    for index, old in [
        ("0000000000000001", 0),
        ("0000000000000007", 0),
        ("0000000000000008", 0),  # out of bounds, where nothing is read nor written
        ("00000000ffffffff", 0),
        ("0000000100000000", 0),  # cell 0
        ("0000000100000001", 100),  # cell 1
        ("0000000100000001", 200),
        ("8000000000000007", 100),  # cell 7
        ("ffffffffffffffff", 0),
    ]:
        assert answer(switch, index + "00000000") == [(2, f"{index}{old:08x}")]
    assert switch.registers["cells"].tolist() == [100, 300, 0, 0, 0, 0, 0, 200]
    assert switch.counters["asked"].packets.tolist() == [1, 3, 0, 0, 0, 0, 0, 2]


OPTIONS = "a0 0102 0304 0506 0708 09"


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize(
    ("packet", "sent"),
    [
        # ── Lengths of variable fields: the code says which error the parser found ──
        ("00000008 0abc 0000", "0000 00000008 0abc 0000"),
        ("00000040 0abc 0000", "0000 00000040 0abc 0000"),
        ("00000048 0abc 0000", "0002 00000048 0abc 0000"),  # HeaderTooShort
        ("0000000c 0abc 0000", "0003 0000000c 0abc 0000"),  # ParserInvalidArgument
        ("7ffffff8 0abc 0000", "0001 7ffffff8 0abc 0000"),  # PacketTooShort
        ("7fffffff 0abc 0000", "0003 7fffffff 0abc 0000"),
        # BMv2 reads the length as an int, which is at most 2**31 - 1: no multiple of 8.
        ("80000000 0abc 0000", "0003 80000000 0abc 0000"),
        ("fffffff8 0abc 0000", "0003 fffffff8 0abc 0000"),
        # ── Checksums with the payload, which begins at a whole byte after the 12 bits ──
        ("00000008 1abc 0000", "0000 00000008 1abc 4027"),
        ("00000040 1abc 0000", "0000 00000040 1abc 4b3f"),
        ("00000000 1abc 0000", "0000 00000000 1abc 3b2b"),
    ],
)
def test_variable_fields_and_payloads(engine, packet, sent):
    switch = switch_of("as_bmv2_lengths", engine)
    assert answer(switch, words(packet + OPTIONS)) == [(2, words(sent + OPTIONS))]


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_a_copy_forgets_the_length_of_an_invalid_header(engine):
    """BMv2 copies valid headers only, and begins with variable fields that are empty."""
    switch = switch_of(
        "as_bmv2_lengths",
        engine,
        "mc_mgrp_create 1",
        "mc_node_create 7 3 4",
        "mc_node_associate 1 0",
    )
    # Made invalid in ingress and valid in egress: sent as it was, then to a multicast group.
    alone = words("00000010 2abc 0000") + words(OPTIONS)
    assert answer(switch, alone) == [(2, words("0000 00000010 2abc 0000 110000 0304 0506070809"))]
    many = words("00000010 3abc 0000") + words(OPTIONS)
    copy = words("0000 00000010 3abc 0000 11 0304 0506070809")
    assert answer(switch, many) == [(3, copy), (4, copy)]


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize(
    ("session", "port"),
    [
        ("00000005", 3),
        ("00010005", 3),
        ("00008005", 3),  # the highest of the 16 bits says that there is a clone
        ("00018005", 3),
        ("ffff0006", 4),
        ("00007fff", None),
    ],
)
def test_mirror_sessions_count_modulo_two_to_the_15(engine, session, port):
    """BMv2 keeps 16 bits of the session in a register of the packet, and one of them is a flag."""
    switch = switch_of("as_bmv2_lengths", engine, "mirroring_add 5 3", "mirroring_add 6 4")
    ports = [sent for sent, _ in answer(switch, f"{session}40000000")]
    assert sorted(ports) == ([2] if port is None else [2, port])


# ── Stacks ──


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize(
    ("packet", "sent"),
    [
        # lastIndex of an empty stack is 2**64 - 1 where it is compared, whatever its type says.
        ("00 00000000 00 0102", "00 ffffffff 02 0102"),
        ("01 00000000 00 0102", "01 00000000 03 0102"),
        ("02 00000000 00 0102", "02 00000001 03 0102"),
    ],
)
def test_the_last_index_of_a_stack(engine, packet, sent):
    """BMv2 subtracts 1 from a count of 64 bits without sign; p4c puts no mask around it."""
    assert answer(switch_of("as_bmv2_stacks", engine), words(packet)) == [(2, words(sent))]


# ── Tables ──


def changed_tables(change):
    """The tables program with ``change`` made to its tables, by name."""
    document = copy.deepcopy(program("switch_tables"))
    tables = [table for pipeline in document["pipelines"] for table in pipeline["tables"]]
    change({table["name"]: table for table in tables})
    return document


def empty_range(tables):
    entry = tables["I.constant_table"]["entries"][0]
    entry["match_key"][1].update(start="0x09", end="0x05")


def the_same_entry_twice(tables):
    entries = tables["I.constant_table"]["entries"]
    entries[1] = entries[0]


def too_long_a_prefix(tables):
    table = tables["I.odd_table"]
    key = {"match_type": "lpm", "key": "0x0123", "prefix_length": 13}
    table["entries"] = [
        {
            "match_key": [key],
            "action_entry": {"action_id": table["action_ids"][0], "action_data": ["0x1"]},
            "priority": 1,
        }
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (empty_range, "not below the start"),
        (the_same_entry_twice, "already has an entry"),
        (too_long_a_prefix, "at most 12"),
    ],
)
def test_entries_for_which_a_program_is_refused(change, said):
    with pytest.raises(ProgramError, match=said):
        Switch.load(changed_tables(change), "interpret")


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_constant_entries_can_be_cleared(engine):
    """Nothing else can be done to them, but BMv2 does not look when a table is cleared."""
    switch = switch_of("switch_tables", engine)
    packet = "0000 00000000 0000 123456 0005 00 00"
    before = answer(switch, words(packet))
    for command in ("table_delete constant_table 0", "table_modify constant_table constant 0 => 9"):
        with pytest.raises(ControlError, match="constant"):
            switch.command(command)
    assert answer(switch, words(packet)) == before
    switch.command("table_clear constant_table")
    assert switch.command("table_num_entries constant_table") == "0"
    assert answer(switch, words(packet)) != before
    with pytest.raises(ControlError, match="constant"):
        switch.command("table_add constant_table constant 1&&&1 5->9 => 1 1")


# ── Ends of ranges ──


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize(
    ("number", "negated", "product", "total", "less"),
    [
        # -n |-| 5 as int<64>, n * 3 |+| 1, n + n >> 1, and whether n + 2 < n, as bit<64>
        ("8000000000000000", "8000000000000000", "8000000000000001", "0000000000000000", "00"),
        ("7fffffffffffffff", "8000000000000000", "7ffffffffffffffe", "7fffffffffffffff", "00"),
        ("8000000000000003", "7ffffffffffffff8", "800000000000000a", "0000000000000003", "00"),
        ("ffffffffffffffff", "fffffffffffffffc", "fffffffffffffffe", "7fffffffffffffff", "01"),
        ("5555555555555556", "aaaaaaaaaaaaaaa5", "0000000000000003", "5555555555555556", "00"),
    ],
)
def test_overflow_is_seen_by_what_comes_next(engine, number, negated, product, total, less):
    """A compiler that takes overflow for impossible gets -(-2**63) - 5 wrong."""
    switch = switch_of("as_bmv2_overflow", engine)
    assert answer(switch, number * 3 + "00") == [(2, negated + product + total + less)]


# ── Fields of no bits ──


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_fields_of_no_bits_hold_nothing_and_cost_nothing(engine):
    """Between bytes; within one simple_switch reads where there is no byte, and may crash."""
    switch = switch_of("fuzz_empty", engine, "table_add stated set 3 => 0 4")
    for packet, out in [
        ("01 03 20 00000000000000ff 0000 00", "01 04 21 00000000000000ff 8072 04"),
        ("00 01 1f 0000000000000001", "00 01 00 0000000000000002"),
    ]:
        assert answer(switch, words(packet)) == [(1, words(out))]
