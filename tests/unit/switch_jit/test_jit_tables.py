"""Tables as arrays find what the tables themselves find."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from support.searches import RANGES, SHAPES, found, near, row_of
from support.state_fuzzer import interesting_number
from support.tables import random_match, table_arguments, table_of

from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.frontend.loader import load_program
from innet.switch.jit.tables import box_tree
from innet.switch.jit.tables.arrays import replica_arrays
from innet.switch.state.replication import Replication
from innet.switch.state.tables import Generation

KIND = ir.MatchKind


@pytest.fixture(scope="module")
def base() -> ir.Program:
    return load_program(Path(__file__).parents[2] / "programs/jit_tables.json")


@pytest.mark.repeats("the same with other numbers of entries", but=["3-*", "0-lpm", "60-ternary"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("entries", [0, 1, 3, 60])
def test_finds_what_the_table_finds(base: ir.Program, shape: str, entries: int) -> None:
    rng = np.random.default_rng([entries, list(SHAPES).index(shape)])
    state = table_of(base, *SHAPES[shape])
    for _ in range(entries):
        matches = tuple(random_match(rng, kind, width) for kind, width in SHAPES[shape])
        with contextlib.suppress(ControlError):  # two entries that match the same
            state.add(matches, ir.ActionEntry(state.table.actions[0], ()), int(rng.integers(4)))
    arguments = table_arguments(base, state)
    ordered = state.ordered()
    for _ in range(300):
        if ordered and rng.random() < 0.8:
            key = near(rng, ordered[rng.integers(len(ordered))], state)
        else:
            key = tuple(interesting_number(rng, width) for _, width in SHAPES[shape])
        expected = state.lookup(key)
        row = found(base, state, arguments, key)
        assert row == row_of(expected, state), key


@pytest.mark.repeats("the same with other masks and widths", but=["5-*", "1-widths0", "40-widths1"])
@pytest.mark.parametrize("widths", [(32, 16), (64, 48), (200, 65)])
@pytest.mark.parametrize("masks", [1, 5, 40])
def test_ternary_entries_of_few_masks(
    base: ir.Program, widths: tuple[int, ...], masks: int
) -> None:
    rng = np.random.default_rng([masks, widths[0]])
    state = table_of(base, *((KIND.TERNARY, width) for width in widths))
    chosen = [tuple(interesting_number(rng, width) for width in widths) for _ in range(masks)]
    for _ in range(600):
        mask = chosen[rng.integers(masks)]
        pairs = [(int(rng.integers(0, 9)) * 0x1111, each) for each in mask]
        matches = tuple(ir.TernaryMatch(value & each, each) for value, each in pairs)
        with contextlib.suppress(ControlError):
            state.add(matches, ir.ActionEntry(state.table.actions[0], ()), int(rng.integers(50)))
    for entry in list(state)[::5]:
        state.delete(entry.handle)
    arguments = table_arguments(base, state)
    ordered = state.ordered()
    for _ in range(600):
        key = near(rng, ordered[rng.integers(len(ordered))], state)
        expected = state.lookup(key)
        row = found(base, state, arguments, key)
        assert row == row_of(expected, state), key


@pytest.mark.repeats("the same with more entries", but=["40-*"])
@pytest.mark.parametrize("shape", RANGES)
@pytest.mark.parametrize("count", [40, 500])
def test_trees_of_ranges(
    base: ir.Program, shape: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if count == 40:
        monkeypatch.setattr(box_tree, "LEAF", 3)
        monkeypatch.setattr(box_tree, "MAX_IN_NODE", 1)
    rng = np.random.default_rng([count, list(RANGES).index(shape)])
    state = table_of(base, *RANGES[shape])
    for _ in range(count):
        matches = [random_match(rng, kind, width) for kind, width in RANGES[shape]]
        for i, match in enumerate(matches):
            if isinstance(match, ir.RangeMatch) and rng.random() < 0.7:  # one that is not wide
                width = int(rng.integers(1 << min(RANGES[shape][i][1] // 2, 20)))
                matches[i] = ir.RangeMatch(match.low, min(match.high, match.low + width))
        with contextlib.suppress(ControlError):  # two entries that match the same
            state.add(matches, ir.ActionEntry(state.table.actions[0], ()), int(rng.integers(99)))
    for entry in list(state)[::5]:
        state.delete(entry.handle)
    arguments = table_arguments(base, state)
    ordered = state.ordered()
    for _ in range(300):
        key = near(rng, ordered[rng.integers(len(ordered))], state)
        expected = state.lookup(key)
        row = found(base, state, arguments, key)
        assert row == row_of(expected, state), key


def test_an_entry_that_no_number_is_in(base: ir.Program) -> None:
    """simple_switch takes it, too."""
    state = table_of(base, (KIND.RANGE, 16))
    for low in range(100):
        action = ir.ActionEntry(state.table.actions[0], ())
        state.add([ir.RangeMatch(low + 50, low)], action, 1)
        state.add([ir.RangeMatch(low, low)], action, 2)
    arguments = table_arguments(base, state)
    for key in range(200):
        assert found(base, state, arguments, (key,)) == (2 * key + 2 if key < 100 else 0)


@pytest.mark.parametrize("kind", ["apart", "nested", "any"])
def test_nodes_cover_what_is_below_them(base: ir.Program, kind: str) -> None:
    """Every entry is in the tree once, the best of a node is its best, and few lie across."""
    rng = np.random.default_rng(5)
    state = table_of(base, (KIND.TERNARY, 8), (KIND.RANGE, 16))
    for number_ in range(1000):
        low, high = {
            "apart": (64 * number_, 64 * number_ + 50),
            "nested": (number_, (1 << 16) - 1 - number_),
            "any": sorted(rng.integers(0, 1 << 16, 2).tolist()),
        }[kind]
        matches = [ir.TernaryMatch(0, 0), ir.RangeMatch(low, high)]
        with contextlib.suppress(ControlError):
            state.add(matches, ir.ActionEntry(state.table.actions[0], ()), int(rng.integers(9)))
    order, heads, bounds = box_tree.BoxIndex(state.columns, changing=False).arguments()
    entries = {entry.index + 1: entry for entry in state}
    ranks = {entry.index + 1: rank for rank, entry in enumerate(state.ordered())}
    assert sorted(order.tolist()) == sorted(entries)
    assert len(heads) < len(order) / 4
    for node, (start, end, skip, best) in enumerate(heads.tolist()):
        below = order[start : heads[skip - 1, 1]].tolist()
        assert best == min(below, key=ranks.__getitem__)
        assert bounds[node, 0] == entries[best].priority
        own = [ranks[row] for row in order[start:end].tolist()]
        assert own == sorted(own)
        *_, low, _, high = bounds[node].tolist()
        assert low == min(entries[row].values[1] for row in below)
        assert high == max(entries[row].masks[1] for row in below)


@pytest.mark.parametrize(
    "shape", ["lpm", "lpm 64", "lpm with exact", "lpm 128", "lpm 100 with exact"]
)
def test_many_nested_prefixes(base: ir.Program, shape: str) -> None:
    """Of few first bits, so that most entries lie in others."""
    rng = np.random.default_rng(list(SHAPES).index(shape))
    state = table_of(base, *SHAPES[shape])
    for _ in range(500):
        matches: list[ir.Match] = []
        for kind, width in SHAPES[shape]:
            value = int(rng.integers(16)) << (width - 4) | int(rng.integers(4))
            length = int(rng.choice([0, 1, 3, 4, width - 1, width])) + -width % 8
            matches.append(ir.LpmMatch(value, length) if kind is KIND.LPM else ir.ExactMatch(3))
        with contextlib.suppress(ControlError):
            state.add(matches, ir.ActionEntry(state.table.actions[0], ()), 0)
    assert len(state) > 50
    arguments = table_arguments(base, state)
    ordered = state.ordered()
    for _ in range(500):
        key = near(rng, ordered[rng.integers(len(ordered))], state)
        expected = state.lookup(key)
        row = found(base, state, arguments, key)
        assert row == row_of(expected, state), key


def test_large_exact_table(base: ir.Program) -> None:
    state = table_of(base, (KIND.EXACT, 48), size=10_000)
    rng = np.random.default_rng(3)
    keys = sorted({int(each) for each in rng.integers(0, 1 << 48, 10_000)})
    for key in keys:
        state.add([ir.ExactMatch(key)], ir.ActionEntry(state.table.actions[0], ()), 0)
    arguments = table_arguments(base, state)
    rows = {entry.values[0]: entry.index + 1 for entry in state}
    for key in keys[::7]:
        assert found(base, state, arguments, (key,)) == rows[key]
        assert found(base, state, arguments, (key ^ 1,)) == rows.get(key ^ 1, 0)


def test_replicas() -> None:
    replication = Replication(Generation())
    for group in (1, 5):
        replication.create_group(group)
    for rid, ports in ((3, [1, 2]), (4, [9])):
        replication.associate(5, replication.create_node(rid, ports))
    found_ = replica_arrays(replication)
    assert found_.start.tolist() == [0, 0, 0, 0, 0, 0, 3]
    assert found_.port.tolist() == [1, 2, 9]
    assert found_.rid.tolist() == [3, 3, 4]
    assert found_.largest == 3
    empty = replica_arrays(Replication(Generation()))
    assert (empty.start.tolist(), empty.largest) == ([0], 0)
