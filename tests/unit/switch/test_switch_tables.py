"""Tables at run time: which entry a key hits, handles, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.switch_cases import program

from innet.core.errors import ControlError
from innet.switch import Switch, ir
from innet.switch.state.tables import Generation, TableState, normalize_match, prefix_mask


def table_of(match, *keys, max_size=64, **more):
    """A table over fields of header 0; ``keys`` are (match kind, width)."""
    return ir.Table(
        **{
            "name": "t",
            "kind": ir.TableKind.SIMPLE,
            "match": match,
            "keys": tuple(
                ir.TableKey(kind, ir.FieldRef(0, i), width, None, f"k{i}")
                for i, (kind, width) in enumerate(keys)
            ),
            "max_size": max_size,
            "actions": (0, 1),
            "next": (None, None),
            "by_hit": False,
            "hit": None,
            "miss": None,
            "base_default_next": None,
            "default": None,
            "default_action_const": False,
            "default_entry_const": False,
            "entries": (),
            "immutable": False,
            "with_counters": False,
            "counter": None,
            "meter": None,
            "support_timeout": False,
            "action_profile": None,
        }
        | more
    )


EXACT, LPM = ir.MatchKind.EXACT, ir.MatchKind.LPM
TERNARY, RANGE = ir.MatchKind.TERNARY, ir.MatchKind.RANGE
ENTRY = ir.ActionEntry(0, ())
ACTIONS = (ir.Action("plain", (), ()), ir.Action("other", (ir.Parameter("port", 9),), ()))


def state_of(*args, **more):
    return TableState(table_of(*args, **more), Generation(), ACTIONS)


def test_exact():
    table = state_of(EXACT, (EXACT, 8), (EXACT, 16))
    handle = table.add([ir.ExactMatch(1), ir.ExactMatch(2)], ENTRY, 0)
    assert table.lookup([1, 2]).handle == handle
    assert table.lookup([2, 1]) is None


def test_the_longest_prefix_wins():
    table = state_of(LPM, (LPM, 32), (EXACT, 8))
    for prefix in (0, 24, 8, 32, 16):
        table.add([ir.LpmMatch(0x0A010203, prefix), ir.ExactMatch(1)], ENTRY, 0)
    for key, prefix in [
        (0x0A010203, 32),
        (0x0A0102FF, 24),
        (0x0A01FFFF, 16),
        (0x0AFFFFFF, 8),
        (0xFFFFFFFF, 0),
    ]:
        assert table.lookup([key, 1]).prefix == prefix
        assert table.lookup([key, 2]) is None


def test_a_prefix_counts_from_the_top_of_whole_bytes():
    # As simple_switch does it: a field of 12 bits sits in 2 bytes, so that /8 compares 4 bits.
    assert prefix_mask(8, 12) == 0xF00
    assert prefix_mask(12, 12) == 0xFF0
    assert prefix_mask(3, 12) == 0
    assert prefix_mask(32, 32) == 0xFFFFFFFF
    assert prefix_mask(0, 32) == 0


@pytest.mark.parametrize("match", [TERNARY, RANGE])
def test_prefixes_that_compare_the_same_bits_are_one_entry(match):
    table = state_of(match, (match, 8), (LPM, 12))
    other = ir.TernaryMatch(1, 1) if match is TERNARY else ir.RangeMatch(1, 1)
    table.add([other, ir.LpmMatch(0x800, 1)], ENTRY, 3)
    with pytest.raises(ControlError, match="already"):
        table.add([other, ir.LpmMatch(0xFFF, 3)], ENTRY, 3)
    table.add([other, ir.LpmMatch(0xFFF, 5)], ENTRY, 3)
    table.add([other, ir.LpmMatch(0xFFF, 3)], ENTRY, 4)
    assert len(list(table)) == 3


def test_the_lowest_priority_wins_then_the_first_entry():
    table = state_of(TERNARY, (TERNARY, 8))
    any_ = table.add([ir.TernaryMatch(0, 0)], ENTRY, 50)
    low = table.add([ir.TernaryMatch(0x10, 0xF0)], ENTRY, 10)
    table.add([ir.TernaryMatch(0x01, 0x0F)], ENTRY, 10)
    assert table.lookup([0x11]).handle == low
    assert table.lookup([0x22]).handle == any_
    table.delete(low)
    assert table.lookup([0x12]).handle == any_


def test_range_keys_beside_others():
    table = state_of(RANGE, (RANGE, 16), (TERNARY, 8), (EXACT, 4), (LPM, 8))
    matches = [
        ir.RangeMatch(10, 20),
        ir.TernaryMatch(1, 1),
        ir.ExactMatch(3),
        ir.LpmMatch(0xA0, 4),
    ]
    table.add(matches, ENTRY, 1)
    assert table.lookup([10, 7, 3, 0xAF]) is not None
    assert table.lookup([20, 1, 3, 0xA0]) is not None
    for wrong in ([9, 1, 3, 0xA0], [21, 1, 3, 0xA0], [15, 2, 3, 0xA0], [15, 1, 2, 0xA0]):
        assert table.lookup(wrong) is None
    assert table.lookup([15, 1, 3, 0xB0]) is None


def test_a_static_mask_is_applied_to_keys_and_entries():
    key = ir.TableKey(EXACT, ir.FieldRef(0, 0), 16, 0x00FF, "k")
    table = state_of(EXACT, keys=(key,))
    table.add([ir.ExactMatch(0x1234)], ENTRY, 0)
    assert table.lookup([0xFF34]) is not None
    with pytest.raises(ControlError, match="already"):
        table.add([ir.ExactMatch(0x5634)], ENTRY, 0)


def test_handles_are_reused_with_another_version():
    table = state_of(EXACT, (EXACT, 8))
    handles = [table.add([ir.ExactMatch(i)], ENTRY, 0) for i in range(3)]
    assert handles == [0, 1, 2]
    table.delete(1)
    again = table.add([ir.ExactMatch(9)], ENTRY, 0)
    assert again == 1 << 24 | 1
    assert table.lookup([9]).index == 1
    with pytest.raises(ControlError, match="no entry with handle 1"):
        table.delete(1)
    table.clear()
    assert len(table) == 0
    assert table.add([ir.ExactMatch(5)], ENTRY, 0) == 0


def test_versions_of_handles_begin_again_after_256():
    table = state_of(EXACT, (EXACT, 8))
    versions = []
    for number in range(258):
        handle = table.add([ir.ExactMatch(number % 2)], ENTRY, 0)
        versions.append(handle >> 24)
        table.delete(handle)
    assert versions == [*range(256), 0, 1]


def test_prefixes_within_the_padding_are_one_match_beside_ternary_keys():
    """Each matches every packet. In an LPM table they are apart, as simple_switch has them."""
    three, four = ([ir.LpmMatch(0, prefix), ir.TernaryMatch(0, 0)] for prefix in (3, 4))
    mixed = state_of(TERNARY, (LPM, 9), (TERNARY, 7))
    mixed.add(three, ENTRY, 1)
    with pytest.raises(ControlError, match="already has"):
        mixed.add(four, ENTRY, 1)
    mixed.add(four, ENTRY, 2)
    plain = state_of(LPM, (LPM, 9))
    for entry in (three, four):
        plain.add(entry[:1], ENTRY, 0)
    assert len(plain) == 2


def test_full_duplicate_and_keyless_tables_refuse_and_stay_as_they_were():
    table = state_of(EXACT, (EXACT, 8), max_size=2)
    table.add([ir.ExactMatch(0)], ENTRY, 0)
    with pytest.raises(ControlError, match="already has"):
        table.add([ir.ExactMatch(0)], ENTRY, 0)
    table.add([ir.ExactMatch(1)], ENTRY, 0)
    before = (table.version, table.generation.value, list(table))
    with pytest.raises(ControlError, match="full"):
        table.add([ir.ExactMatch(2)], ENTRY, 0)
    assert (table.version, table.generation.value, list(table)) == before
    with pytest.raises(ControlError, match="no key"):
        state_of(EXACT).add([], ENTRY, 0)


def test_same_match_with_another_priority_is_another_entry():
    table = state_of(TERNARY, (TERNARY, 8))
    table.add([ir.TernaryMatch(1, 1)], ENTRY, 1)
    table.add([ir.TernaryMatch(3, 1)], ENTRY, 2)
    with pytest.raises(ControlError, match="already"):
        table.add([ir.TernaryMatch(5, 1)], ENTRY, 2)


def test_constant_defaults():
    stated = ir.ActionEntry(1, (2,))
    table = state_of(EXACT, (EXACT, 8), default=stated, default_action_const=True)
    table.set_default(ir.ActionEntry(1, (1,)))
    with pytest.raises(ControlError, match="default action"):
        table.set_default(ENTRY)
    constant = state_of(EXACT, (EXACT, 8), default=stated, default_entry_const=True)
    with pytest.raises(ControlError, match="default entry"):
        constant.set_default(stated)
    table.reset_default()
    assert table.default == stated


def test_next_node():
    nodes = tuple(ir.Node(ir.NodeKind.TABLE, i) for i in range(4))
    by_action = state_of(EXACT, (EXACT, 8), next=nodes[:2], base_default_next=nodes[2])
    assert by_action.next_node(1, hit=True) == nodes[1]
    assert by_action.next_node(0, hit=False) == nodes[0]
    assert by_action.next_node(None, hit=False) == nodes[2]
    by_hit = state_of(EXACT, (EXACT, 8), next=(), by_hit=True, hit=nodes[0], miss=nodes[3])
    assert by_hit.next_node(1, hit=True) == nodes[0]
    assert by_hit.next_node(None, hit=False) == nodes[3]


@st.composite
def ternary_entries(draw):
    return [
        (draw(st.integers(0, 255)), draw(st.integers(0, 255)), draw(st.integers(0, 5)))
        for _ in range(draw(st.integers(0, 12)))
    ]


@given(ternary_entries(), st.integers(0, 255))
def test_ternary_equals_a_scan_of_all_entries(entries, key):
    table = state_of(TERNARY, (TERNARY, 8))
    added = []
    for value, mask, priority in entries:
        try:
            handle = table.add([ir.TernaryMatch(value, mask)], ENTRY, priority)
        except ControlError:
            continue
        added.append((priority, handle, value & mask, mask))
    fitting = [each for each in added if key & each[3] == each[2]]
    found = table.lookup([key])
    assert (found.handle if found else None) == (min(fitting)[1] if fitting else None)
    # What a compiled engine copies gives the same answer.
    first = next((e for e in table.ordered() if key & e.masks[0] == e.values[0]), None)
    assert first == found


@given(
    st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 16)), max_size=20),
    st.integers(0, 0xFFFF),
)
def test_lpm_equals_a_scan_of_all_prefixes(entries, key):
    table = state_of(LPM, (LPM, 16))
    kept = {}
    for value, prefix in entries:
        try:
            table.add([ir.LpmMatch(value, prefix)], ENTRY, 0)
        except ControlError:
            continue
        kept[prefix, value >> (16 - prefix)] = True
    expected = max((p for p, v in kept if key >> (16 - p) == v), default=None)
    found = table.lookup([key])
    assert (found.prefix if found else None) == expected


def test_normalise_gives_masks_for_every_kind():
    table = table_of(RANGE, (EXACT, 8), (LPM, 8), (TERNARY, 8), (RANGE, 8))
    matches = [
        ir.ExactMatch(5),
        ir.LpmMatch(0xAB, 4),
        ir.TernaryMatch(0xFF, 0x0F),
        ir.RangeMatch(3, 9),
    ]
    assert normalize_match(table, matches) == ((5, 0xA0, 0x0F, 3), (0xFF, 0xF0, 0x0F, 9), 0)


def test_direct_counters_start_again_with_a_new_entry():
    switch = Switch.load(program("switch_state"), "interpret")
    handle = switch.table_add("counted", "count_it", [1])
    switch.process([(0, bytes([0, 1]) + bytes(16))] * 3 + [(0, bytes([0, 2]) + bytes(16))])
    assert switch.control.counter_read("I.hits", handle) == (3, 54)
    assert switch.counters["I.hits"].packets[0] == 3
    switch.table_delete("counted", handle)
    again = switch.table_add("counted", "count_it", [2])
    assert switch.control.counter_read("I.hits", again) == (0, 0)
    with pytest.raises(ControlError, match="no entry with handle"):
        switch.command(f"counter_read I.hits {handle}")
