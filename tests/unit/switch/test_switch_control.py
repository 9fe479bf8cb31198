"""The control plane: commands as text and from Python, and that a refused one changes nothing."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.switch_cases import program

from innet.core.errors import (
    ControlError,
    InputError,
    ProgramError,
    UnknownNameError,
    UnsupportedError,
)
from innet.switch import Switch, ir
from innet.switch.control.commands import COMMANDS
from innet.switch.control.values import number


@pytest.fixture
def tables():
    return Switch.load(program("switch_tables"), "interpret")


@pytest.fixture
def state():
    return Switch.load(program("switch_state"), "interpret")


@pytest.fixture
def copies():
    return Switch.load(program("switch_copies"), "interpret")


def snapshot(switch):
    """All that the control plane can change."""
    state = switch.state
    return (
        state.generation.value,
        [(list(table), table.default, table.version) for table in state.tables],
        [cells.tolist() for cells in state.registers],
        [cells.tolist() for cells in state.counters],
        {group: list(nodes) for group, nodes in state.replication.groups.items()},
        {h: (n.rid, n.ports, n.group) for h, n in state.replication.nodes.items()},
        dict(state.replication.sessions),
        [set(members) for members in state.value_sets],
        [each.parameters for each in state.hashes],
    )


# ── Tables ──


def test_entries_by_command_and_from_python_are_the_same(tables):
    tables.command("table_add I.lpm_table I.lpm 3 10.1.0.0/16 => 0x42")
    other = Switch.load(program("switch_tables"), "interpret")
    other.table_add("lpm_table", "lpm", [3, (0x0A010000, 16)], [0x42])
    assert tables.table_entries("I.lpm_table") == other.table_entries("I.lpm_table")
    entry = other.table_entries("lpm_table")[0]
    assert (entry.values, entry.masks, entry.prefix) == ((3, 0x0A010000), (0xF, 0xFFFF0000), 16)
    assert entry.action.arguments == (0x42,)


def test_every_way_to_state_a_key(tables):
    add = tables.table_add
    add("ternary_table", "ternary_", [(0x12, 0xFF), 1, None], [1], priority=1)
    add("ternary_table", "ternary_", [0x34, "0x2", "1&&&1"], [2], priority=2)
    add("ternary_table", "ternary_", [ir.TernaryMatch(5, 7), ir.ExactMatch(3), 0], [3], priority=3)
    add("range_table", "range_", [(3, 9), None], [4], priority=4)
    add("range_table", "range_", ["7->8", "0x10&&&0xf0"], [5], priority=5)
    add("range_table", "range_", [11, None], [6], priority=6)
    add("range_table", "range_", [None, None], [7], priority=7)
    ternary = [(e.values, e.masks) for e in tables.table_entries("ternary_table")]
    assert ternary == [
        ((0x12, 1, 0), (0xFF, 0xF, 0)),
        ((0x34, 2, 1), (0xFFFFFF, 0xF, 1)),
        ((5, 3, 0), (7, 0xF, 1)),
    ]
    ranges = [(e.values[0], e.masks[0]) for e in tables.table_entries("range_table")]
    assert ranges == [(3, 9), (7, 8), (11, 11), (0, 0xFFFF)]


def test_handles_are_printed_and_used(tables):
    assert tables.command("table_add exact_table exactly 1 0 => 7").endswith("handle 0")
    assert tables.command("table_add exact_table exactly 2 0 => 8").endswith("handle 1")
    tables.command("table_modify exact_table exactly 0 9")
    tables.command("table_delete exact_table 1")
    assert tables.command("table_dump exact_table") == (
        "0: 0x1 0x0 => I.exactly 0x9 priority 0\ndefault: I.exactly 0xee"
    )
    assert tables.command("table_num_entries exact_table") == "1"
    tables.command("table_set_default exact_table drop")
    assert tables.command("table_dump exact_table").endswith("default: I.drop")
    tables.command("table_reset_default exact_table")
    tables.command("table_clear exact_table")
    assert tables.command("table_dump exact_table") == "default: I.exactly 0xee"


@pytest.mark.parametrize(
    ("text", "width", "value"),
    [
        ("00:1b:00:00:00:02", 48, 0x1B_0000_0002),
        ("FF:FF:ff:ff:ff:fe", 48, 2**48 - 2),
        ("10.0.1.254", 32, 0x0A_00_01_FE),
        ("2001:db8::1", 128, 0x2001_0DB8 << 96 | 1),
        ("255", 8, 255),
        ("0x2a", 8, 42),
        ("0b101", 3, 5),
        ("00:1b:00:00:00", 48, None),
        ("00:1b:00:00:00:02:03", 48, None),
        ("00:1b:00:00:00:100", 48, None),
        ("00:1b:00:00:00:02", 32, None),
        ("10.0.1.256", 32, None),
        ("10.0.1.254", 48, None),
        ("1::2::3", 128, None),
    ],
)
def test_numbers_as_text(text, width, value):
    """Addresses where they fit, as simple_switch_CLI takes them."""
    if value is None:
        with pytest.raises(ControlError, match=f"'{text}' is no number for it"):
            number(text, width, "it")
    else:
        assert number(text, width, "it") == value


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("table_ad exact_table exactly 1 0 => 7", "did you mean 'table_add'"),
        ("table_add exact exactly 1 0 => 7", "unknown table 'exact'.*I.exact_table"),
        ("table_add exact_table exacty 1 0 => 7", "unknown action.*'exacty'.*I.exactly"),
        ("table_add exact_table one 1 0 =>", "unknown action 'one' of table I.exact_table"),
        ("table_add exact_table exactly 1 => 7", "needs 2 key fields, not 1.*exact_key"),
        ("table_add exact_table exactly 1 0 2 => 7", "needs 2 key fields, not 3"),
        ("table_add exact_table exactly 1 0 =>", "needs 1 parameters, not 0: v .8 bits."),
        ("table_add exact_table exactly 1 0 => 7 8", "needs 1 parameters, not 2"),
        ("table_add exact_table exactly 0x10000 0 => 7", "65536|0x10000 does not fit the 16 bits"),
        ("table_add exact_table exactly -1 0 => 7", "-1 does not fit"),
        ("table_add exact_table exactly 1 0 => 256", "256 does not fit the 8 bits of parameter v"),
        ("table_add exact_table exactly one 0 => 7", "'one' is no number"),
        ("table_add exact_table exactly 1 0 7", "expected =>"),
        ("table_add exact_table exactly", "usage: table_add"),
        ("table_add lpm_table lpm 1 10.0.0.0/33 => 1", "33 is not in 0..32"),
        ("table_add lpm_table lpm 1 10.0.0/8 => 1", "'10.0.0' is no number.* or 10.0.0.1"),
        (
            "table_add lpm_table lpm 1 10.0.0.0/x => 1",
            "prefix length of .* is 'x'; give an int",
        ),
        ("table_add ternary_table ternary_ 1&&&0x1000000 1 0 => 1 1", "does not fit the 24 bits"),
        ("table_add ternary_table ternary_ 1 1 0 => 1", "needs 1 parameters, not 0"),
        ("table_add ternary_table ternary_ 1 1 0 => 1 -4", "priority -4"),
        ("table_add range_table range_ 9->3 0 => 1 1", "empty range"),
        ("table_add constant_table constant 1 1 => 1 1", "constant in the program"),
        ("table_set_default constant_table drop", "constant"),
        ("table_modify exact_table exactly 5 1", "no entry with handle 5. Handles: 0, 1"),
        ("table_modify exact_table exactly x 1", "is 'x'; give an integer"),
        ("table_delete exact_table 5", "no entry with handle 5"),
        ("table_delete exact_table", "usage: table_delete TABLE HANDLE"),
        ("table_add exact_table exactly 5 5 => 7", "already has an entry"),
    ],
)
def test_what_is_refused_is_named_and_changes_nothing(tables, command, words):
    tables.commands(
        "table_add exact_table exactly 5 5 => 1\n"
        "table_add exact_table exactly 6 6 => 1\n"
        "table_add ternary_table ternary_ 1&&&1 1 0&&&0 => 1 7"
    )
    before = snapshot(tables)
    with pytest.raises(ControlError, match=f"(?i){words}"):
        tables.command(command)
    assert snapshot(tables) == before


def test_a_full_table_is_refused(tables):
    for i in range(8):
        tables.table_add("exact_table", "exactly", [i, 0], [1])
    before = snapshot(tables)
    with pytest.raises(ControlError, match=r"I\.exact_table is full: it holds 8"):
        tables.table_add("exact_table", "exactly", [9, 0], [1])
    assert snapshot(tables) == before


def test_typed_keys_of_the_wrong_kind_are_refused(tables):
    with pytest.raises(ControlError, match="needs one value"):
        tables.table_add("exact_table", "exactly", [(1, 2), 0], [1])
    with pytest.raises(ControlError, match="is exact, which RangeMatch is not"):
        tables.table_add("exact_table", "exactly", [ir.RangeMatch(1, 2), 0], [1])
    with pytest.raises(ControlError, match="need a priority"):
        tables.table_add("ternary_table", "ternary_", [None, 1, None], [1])


def test_ambiguous_endings_are_refused():
    document = program("switch_state")
    document["register_arrays"][1]["name"] = "J.words"
    for action in document["actions"]:
        for primitive in action["primitives"]:
            for parameter in primitive["parameters"]:
                if parameter["value"] == "I.signed_words":
                    parameter["value"] = "J.words"
    switch = Switch.load(document, "interpret")
    with pytest.raises(ControlError, match=r"'words' is ambiguous: I\.words, J\.words"):
        switch.command("register_read words 0")
    assert switch.command("register_read J.words 0") == "J.words[0]= 0"


# ── Registers, counters, hashes ──


def test_registers(state):
    assert state.command("register_write narrow 5 127") == ""
    assert state.command("register_read I.narrow 5") == "I.narrow[5]= 127"
    assert state.command("register_read widest") == "widest= 0, 0, 0, 0"
    state.command("register_reset narrow")
    assert not state.registers["I.narrow"].any()


def test_registers_are_views_both_ways(state):
    state.registers["I.words"][7] = 99
    assert state.command("register_read words 7") == "words[7]= 99"
    state.command("register_write words 8 3")
    assert state.registers["I.words"][8] == 3
    assert state.registers["words"] is state.registers["I.words"]
    assert list(state.counters) == ["I.kinds", "I.hits"]
    with pytest.raises(UnknownNameError, match=r"I\.words"):
        state.registers["words_"]
    with pytest.raises(UnknownNameError, match=r"I\.kinds"):
        state.counters["kind"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("register_read words 256", "256 is not in 0..255 of I.words"),
        ("register_read words -1", "-1 is not in 0..255"),
        ("register_write narrow 0 128", "128 does not fit the 7 bits of register I.narrow"),
        ("register_write narrow 0 -65", "does not fit"),
        ("register_write nothing 0 1", "unknown register 'nothing'.*I.words"),
        ("register_write words 0", "usage: register_write REGISTER INDEX VALUE"),
        ("counter_read kinds 256", "256 is not in"),
        ("counter_read words 0", "unknown counter 'words'"),
        ("counter_write kinds 0 -1 0", "does not fit a counter"),
        ("set_crc32_parameters calc_5 1 2 3 0 0", "calc_5 is crc16_custom, not crc32_custom"),
        ("set_crc16_parameters calc_5 0x10000 0 0 0 0", "does not fit the 16 bits"),
        ("set_crc16_parameters calc_5 1 0 0 perhaps 0", "neither true nor false"),
        ("set_crc16_parameters calc_9 1 0 0 0 0", "unknown calculation 'calc_9'"),
        ("pvs_add known 3", "unknown parser value set 'known'"),
    ],
)
def test_refused_commands_on_state(state, command, words):
    state.commands("register_write words 0 5\ncounter_write kinds 0 1 2")
    before = snapshot(state)
    with pytest.raises(ControlError, match=words):
        state.command(command)
    assert snapshot(state) == before


def test_custom_crc_parameters_change_the_hash(state):
    packet = bytes([0, 5]) + b"1234" + bytes(12)
    before = state.process([(0, packet)])
    # CRC-32/MPEG-2 of "1234", by a bitwise computation.
    state.command("set_crc32_parameters calc_4 0x04c11db7 0xffffffff 0 false false")
    after = state.process([(0, packet)])
    remainder = 0xFFFFFFFF
    for byte in b"1234":
        remainder ^= byte << 24
        for _ in range(8):
            top = remainder >> 31
            remainder = (remainder << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if top else 0)
    assert before != after
    z = after[0][1][18 + 8 : 18 + 16]
    assert int.from_bytes(z, "big") == remainder


# ── Replication ──


def test_multicast_groups_by_command_and_from_python_are_the_same(copies):
    copies.commands(
        """
        mc_mgrp_create 3
        mc_node_create 7 3 2      # ports in any order: they are copied to in ascending order
        mc_node_create 9 6
        mc_node_associate 3 0
        mc_node_associate 3 1
        """
    )
    other = Switch.load(program("switch_copies"), "interpret")
    other.multicast_group(3, [(2, 7), (3, 7), (6, 9)])
    packets = [(1, bytes.fromhex("04001234"))]
    assert copies.process(packets) == other.process(packets)
    assert [port for port, _ in other.process(packets)] == [2, 3, 6]
    assert copies.command("mc_dump") == "group 3: port 2 rid 7, port 3 rid 7, port 6 rid 9"
    other.multicast_group(3, [(5, 1)])
    assert [port for port, _ in other.process(packets)] == [5]
    assert len(other.state.replication.nodes) == 1


def test_nodes_move_and_go(copies):
    copies.commands("mc_mgrp_create 1\nmc_mgrp_create 2\nmc_node_create 1 4\nmc_node_associate 1 0")
    copies.commands("mc_node_dissociate 1 0\nmc_node_associate 2 0\nmc_node_update 0 5 6")
    assert copies.state.replication.replicas(2) == ((5, 1), (6, 1))
    copies.command("mc_mgrp_destroy 2")
    assert copies.state.replication.nodes[0].group is None
    copies.command("mc_node_destroy 0")
    assert copies.command("mc_node_create 3 1").endswith("handle 0")


def test_a_new_node_has_the_lowest_handle_that_is_free(copies):
    replication = copies.state.replication
    assert [replication.create_node(1, [1]) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    for handle in (4, 1, 5):
        replication.destroy_node(handle)
    assert [replication.create_node(1, [1]) for _ in range(4)] == [1, 4, 5, 6]


class Asked(dict):
    """A dictionary that counts how often it is asked whether a key is in it."""

    times = 0

    def __contains__(self, key):
        self.times += 1
        return super().__contains__(key)


def test_a_new_node_does_not_ask_for_all_the_others(copies):
    copies.state.replication.nodes = nodes = Asked()
    for _ in range(200):
        copies.state.replication.create_node(1, [1])
    assert nodes.times <= 200


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mc_mgrp_create 65536", "65536 is not in 0..65535"),
        ("mc_mgrp_destroy 9", "no multicast group 9. Groups: 1"),
        ("mc_node_create 65536 1", "replication id 65536"),
        ("mc_node_create 1 512", "port 512 is not in 0..511"),
        ("mc_node_create 1 2 2", "named twice"),
        ("mc_node_create 1 x", "is 'x'; give an integer"),
        ("mc_node_create 1 2 | 256", "lag 256 is not in 0..255"),
        ("mc_set_lag_membership 256 1", "lag 256"),
        ("mc_set_lag_membership 1 512", "port 512"),
        ("mc_node_associate 1 7", "no multicast node with handle 7. Handles: 0"),
        ("mc_node_associate 9 0", "no multicast group 9"),
        ("mc_node_associate 1 0", "already belongs to group 1"),
        ("mc_node_dissociate 2 0", "no multicast group 2"),
        ("mc_node_destroy 4", "no multicast node"),
        ("mirroring_add 32768 1", "32768 is not in 0..32767"),
        ("mirroring_add 1 600", "port 600"),
        ("mirroring_delete 4", "no mirror session 4. Sessions: 2"),
    ],
)
def test_refused_commands_on_replication(copies, command, words):
    copies.commands(
        "mc_mgrp_create 1\nmc_node_create 5 1 2\nmc_node_associate 1 0\nmirroring_add 2 3"
    )
    before = snapshot(copies)
    with pytest.raises(ControlError, match=words):
        copies.command(command)
    assert snapshot(copies) == before


def test_a_group_with_a_bad_port_is_refused_whole(copies):
    copies.multicast_group(1, [(1, 0)])
    before = snapshot(copies)[4:]
    with pytest.raises(ControlError, match="port 999"):
        copies.multicast_group(1, [(2, 0), (999, 1)])
    assert snapshot(copies)[4:] == before


# ── Texts ──


def test_comments_and_empty_lines_do_nothing(state):
    before = snapshot(state)
    assert state.commands("\n# a comment\n   \n") == ""
    assert snapshot(state) == before


def test_a_text_stops_at_the_line_that_is_refused(state):
    with pytest.raises(ControlError, match="line 3: register_write words 999 1: index 999"):
        state.commands(
            "register_write words 0 1\n\nregister_write words 999 1\nregister_reset words"
        )
    assert state.registers["I.words"][0] == 1


@given(
    st.lists(st.text("abc019xX&>-/|#. ", max_size=12), max_size=6),
    st.sampled_from(sorted(COMMANDS)),
)
def test_any_text_is_a_command_or_a_control_error(words, name):
    switch = Switch.load(PARSED, "interpret")
    with contextlib.suppress(ControlError):
        switch.command(" ".join([name, *words]))


PARSED = Switch.load(program("switch_parser"), "interpret").program


# ── Loading ──


def test_unknown_engines_are_listed():
    with pytest.raises(UnknownNameError, match="jit"):
        Switch.load(PARSED, "turbo")


def test_unsupported_programs_are_refused_with_every_reason():
    document = program("switch_tables")
    document["extern_instances"] = [{"name": "I.own", "id": 0, "type": "own"}]
    document["calculations"] = [{"name": "calc", "id": 0, "algo": "random", "input": []}]
    with pytest.raises(UnsupportedError, match=r"(?s)extern instance I\.own.*algorithm random"):
        Switch.load(document, "interpret")
    assert issubclass(UnsupportedError, ProgramError)


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_externs_are_refused_without_a_way_that_does_not_exist(engine):
    document = program("switch_tables")
    document["extern_instances"] = [{"name": "I.own", "id": 0, "type": "own"}]
    document["actions"][0]["primitives"] += [{"op": "_own_update", "parameters": []}]
    with pytest.raises(UnsupportedError, match=r"(?s)extern instance I\.own.*_own_update") as told:
        Switch.load(document, engine)
    assert "Load it" not in str(told.value)  # as in the other engine, which has no externs either


# ── What is no integer, and names that are nearly right ──


@pytest.mark.parametrize(
    "refused",
    [
        lambda s: s.table_add("exact_table", "exactly", [1.7, 0], [1]),
        lambda s: s.table_add("exact_table", "exactly", [ir.ExactMatch(1.7), 0], [1]),
        lambda s: s.table_add("exact_table", "exactly", [1, 0], [1.0]),
        lambda s: s.table_add("lpm_table", "lpm", [3, (0x0A000000, 7.5)], [1]),
        lambda s: s.table_add("ternary_table", "ternary_", [(1, 1.5), 1, None], [1], priority=1),
        lambda s: s.table_add("ternary_table", "ternary_", [1, 1, None], [1], priority=1.5),
        lambda s: s.table_delete("exact_table", 0.5),
        lambda s: s.multicast_group(1, [(1.5, 0)]),
        lambda s: s.multicast_group(1, [(1, 0.5)]),
        lambda s: s.multicast_group(1.5, [(1, 0)]),
        lambda s: s.mirror_session(1, 1.5),
        lambda s: s.mirror_session(1, group=1.5),
        lambda s: s.mirror_session("1", 1),
    ],
)
def test_fractions_are_refused(tables, refused):
    before = snapshot(tables)[1:]
    with pytest.raises(ControlError, match=r"give an integer"):
        refused(tables)
    assert snapshot(tables)[1:] == before


def test_fractions_are_no_register_cells_and_no_counters(state):
    register = next(iter(state.registers))
    for refused in (
        lambda: state.control.register_write(register, 0, 1.5),
        lambda: state.control.register_write(register, 0.5, 1),
        lambda: state.control.register_read(register, 0.5),
        lambda: state.control.counter_write(next(iter(state.counters)), 0, 1.5, 1),
    ):
        with pytest.raises(ControlError, match="give an integer"):
            refused()


@pytest.mark.parametrize("key", [(), (1,), (1, 2, 3)])
def test_keys_have_one_part_or_two(tables, key):
    with pytest.raises(ControlError, match=r"one value or two, not \("):
        tables.table_add("lpm_table", "lpm", [3, key], [2])


@pytest.mark.parametrize("seed", [-1, "1", 0.5])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(InputError, match="the switch's seed"):
        Switch.load(program("switch_tables"), "interpret", seed=seed)


def test_numpy_integers_are_integers(tables):
    tables.table_add("lpm_table", "lpm", [np.uint8(3), (np.int64(0x0A010000), 16)], [np.int32(2)])
    assert tables.table_entries("lpm_table")[0].values == (3, 0x0A010000)


@pytest.mark.parametrize("group", [-5, 65536, 99999])
def test_a_mirror_session_of_an_impossible_group(copies, group):
    with pytest.raises(ControlError, match=rf"multicast group {group} is not in 0\.\.65535"):
        copies.command(f"mirroring_add_mc 1 {group}")
    assert not copies.state.replication.sessions


def test_a_port_beyond_32_bits(copies):
    with pytest.raises(InputError, match="a port is an integer of 32 bits"):
        copies.process([(1 << 40, b"x")])


def test_names_that_are_nearly_right():
    known = [f"I.pool.value_{i:03}" for i in range(300)] + ["I.admission.admission"]
    for name in ("admisson", "admission.admisson"):
        error = UnknownNameError("register", name, known)
        assert "Did you mean 'I.admission.admission'?" in str(error)
        assert "Known (10 of 301): I.admission.admission, I.pool.value_000, " in str(error)
        assert str(error).count("value_") == 9
        assert len(error.known) == 301
    assert str(UnknownNameError("x", "c", ["a", "b"])) == "unknown x 'c'. Known: a, b."
    assert str(UnknownNameError("x", "c", [])) == "unknown x 'c'. Known: none."


def test_many_handles_are_not_all_listed(tables):
    for value in range(16):
        tables.table_add("lpm_table", "lpm", [3, (value << 16, 16)], [1])
    with pytest.raises(ControlError, match=r"Handles: 0, .*, 9, \.\.\. \(16 in all\)\.$"):
        tables.table_delete("lpm_table", 99)


def test_many_multicast_nodes_are_not_all_listed(copies):
    for group in range(12):
        copies.multicast_group(group, [(1, 1)])
    some = r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\. \(12 in all\)\.$"
    with pytest.raises(ControlError, match=f"handle 99. Handles: {some}"):
        copies.command("mc_node_destroy 99")
    with pytest.raises(ControlError, match=f"group 99. Groups: {some}"):
        copies.command("mc_mgrp_destroy 99")
