"""Tables of the compiled engine that take changes in place find what the tables themselves find."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support.searches import RANGES, SHAPES, found, near, row_of
from support.state_fuzzer import interesting_number
from support.switch_cases import program
from support.tables import random_match, table_of

from innet.core.errors import ControlError
from innet.switch import Switch, ir
from innet.switch.frontend.loader import load_program
from innet.switch.jit.tables import box_tree
from innet.switch.jit.tables.arrays import TableArguments
from innet.switch.jit.tables.box_tree import BoxIndex
from innet.switch.jit.tables.prefixes import PrefixIndex
from innet.switch.state.tables import TableState

KIND = ir.MatchKind
BASE = load_program(Path(__file__).parents[2] / "programs/jit_tables.json")
ALL = {**SHAPES, **RANGES}
#: A shape of each kind of search, with short and with long keys.
SOME = [
    "direct",
    "one word",
    "lpm",
    "lpm 12",
    "lpm over words",
    "ternary",
    "ternary 200",
    "range",
    "range 130",
    "two of 70 bits",
    "three with ternary",
]


def some_match(rng: np.random.Generator, kind: ir.MatchKind, width: int) -> ir.Match:
    """Of few values and masks, so that entries contain each other and share masks."""
    if rng.random() < 0.3:
        return random_match(rng, kind, width)
    value = int(rng.integers(8)) << (width - 3) | int(rng.integers(3)) if width > 3 else 1
    match kind:
        case KIND.LPM:
            return ir.LpmMatch(value, int(rng.choice([0, 1, 2, 3, width - 1, width])))
        case KIND.TERNARY:
            mask = ((1 << width) - 1) >> int(rng.integers(3)) & ~int(rng.integers(2))
            return ir.TernaryMatch(value & mask, mask)
        case KIND.RANGE:
            return ir.RangeMatch(value, min(value + int(rng.integers(9)), (1 << width) - 1))
        case _:
            return ir.ExactMatch(value)


def change(rng: np.random.Generator, state: TableState, shape: str, count: int) -> None:
    """Add, modify and delete entries."""
    for _ in range(count):
        handles = state.handles()
        entry = ir.ActionEntry(state.table.actions[0], ())
        if handles and rng.random() < 0.45:
            state.delete(int(rng.choice(handles)))
        elif handles and rng.random() < 0.1:
            state.modify(int(rng.choice(handles)), entry)
        else:
            matches = tuple(some_match(rng, *part) for part in ALL[shape])
            with contextlib.suppress(ControlError):  # one that matches the same is there
                state.add(matches, entry, int(rng.integers(5)))


def compare(rng: np.random.Generator, state: TableState, arguments: list[Any], shape: str) -> None:
    ordered = state.ordered()
    for _ in range(30):
        if ordered and rng.random() < 0.8:
            key = near(rng, ordered[rng.integers(len(ordered))], state)
        else:
            key = tuple(interesting_number(rng, width) for _, width in ALL[shape])
        expected = row_of(state.lookup(key), state)
        assert found(BASE, state, arguments, key) == expected, (key, state.lookup(key))


@pytest.mark.repeats(
    "the same with other shapes", but=["one word", "lpm", "ternary", "range", "three with ternary"]
)
@pytest.mark.parametrize("shape", SOME)
@given(
    seed=st.integers(0, 1 << 32),
    start=st.sampled_from([0, 5, 150]),
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
@settings(max_examples=6, deadline=None)
def test_changes_between_look_ups(shape: str, seed: int, start: int, steps: list[int]) -> None:
    rng = np.random.default_rng(seed)
    state = table_of(BASE, *ALL[shape], size=160)
    change(rng, state, shape, start)
    arguments = TableArguments(BASE, state)
    compare(rng, state, arguments.settle(), shape)
    for step in steps:
        change(rng, state, shape, step)
        compare(rng, state, arguments.update(), shape)
        if step % 7 == 0:
            compare(rng, state, arguments.settle(), shape)


@pytest.mark.repeats("the same with other shapes", but=["lpm", "ternary", "range"])
@pytest.mark.parametrize("shape", ["lpm", "lpm over words", "ternary", "range", "two"])
def test_one_change_after_the_other(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table that grows, shrinks by most and grows again; nodes of trees are small."""
    monkeypatch.setattr(box_tree, "LEAF", 3)
    monkeypatch.setattr(box_tree, "_ROOM", 1)
    rng = np.random.default_rng(1)
    state = table_of(BASE, *ALL[shape], size=400)
    change(rng, state, shape, 300)
    arguments = TableArguments(BASE, state)
    arguments.settle()
    for _ in range(80):
        change(rng, state, shape, 1)
        compare(rng, state, arguments.update(), shape)
    for handle in rng.permutation(state.handles())[:-12].tolist():
        state.delete(handle)
        compare(rng, state, arguments.update(), shape)
    for _ in range(40):
        change(rng, state, shape, 3)
        compare(rng, state, arguments.update(), shape)


@pytest.mark.parametrize("kind", ["lpm", "ternary", "range"])
def test_a_change_of_many_entries_is_taken_in_place(kind: str) -> None:
    """What is searched is the same object, and nothing of it is made anew."""
    shape = {
        "lpm": [(KIND.LPM, 32)],
        "ternary": [(KIND.TERNARY, 32), (KIND.TERNARY, 16)],
        "range": [(KIND.RANGE, 32)],
    }[kind]
    state = table_of(BASE, *shape, size=4096)
    entry = ir.ActionEntry(state.table.actions[0], ())

    def matches(number: int) -> list[ir.Match]:
        low = number * 977
        return {
            "lpm": [ir.LpmMatch(low << 8 & 0xFFFFFFFF, 24)],
            "ternary": [ir.TernaryMatch(low, 0xFFFFFFFF), ir.TernaryMatch(0, 0)],
            "range": [ir.RangeMatch(low, low + 500)],
        }[kind]

    for number in range(600):
        state.add(matches(number), entry, 1)
    arguments = TableArguments(BASE, state)
    arguments.settle()
    state.add(matches(600), entry, 1)
    arguments.update()  # from now on there is room for more
    search = arguments._search
    assert search is not None
    for number in range(601, 700):
        state.add(matches(number), entry, 1)
        state.delete(number - 300)
        arguments.update()
        assert arguments._search is search
    assert not isinstance(search, BoxIndex) or search.changing


def test_two_engines_of_one_table() -> None:
    """Each finds what changed, also what the other was told."""
    rng = np.random.default_rng(2)
    state = table_of(BASE, *ALL["lpm"], size=400)
    change(rng, state, "lpm", 100)
    both = [TableArguments(BASE, state) for _ in range(2)]
    for number in range(8):
        change(rng, state, "lpm", 3)
        compare(rng, state, both[number // 2 % 2].update(), "lpm")


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=5, deadline=None)
def test_engines_agree_under_changes(seed: int) -> None:
    """Packets between changes of all tables of a program, which has counters and multicast."""
    rng = np.random.default_rng(seed)
    document = program("jit_tables")
    switches = [Switch.load(document, engine=engine) for engine in ("interpret", "jit")]
    tables = [each for each in switches[0].program.tables if each.keys and not each.immutable]
    for _ in range(12):
        for _ in range(int(rng.integers(1, 12))):
            table = tables[rng.integers(len(tables))]
            matches = tuple(random_match(rng, key.match, key.width) for key in table.keys)
            action = int(rng.choice(table.actions))
            parameters = switches[0].program.actions[action].parameters
            numbers = tuple(int(rng.integers(1 << min(each.width, 3))) for each in parameters)
            entry, priority = ir.ActionEntry(action, numbers), int(rng.integers(4))
            handles = switches[0].control.table_state(table.name).handles()
            chosen = int(rng.choice(handles)) if handles and rng.random() < 0.5 else None
            for switch in switches:
                state = switch.control.table_state(table.name)
                with contextlib.suppress(ControlError):
                    if chosen is None:
                        state.add(matches, entry, priority)
                    elif priority:
                        state.delete(chosen)
                    else:
                        state.modify(chosen, entry)
        packets = [(int(rng.integers(8)), rng.bytes(24)) for _ in range(20)]
        expected, got = (switch.process(packets) for switch in switches)
        assert got == expected


@pytest.mark.parametrize("width", [9, 32, 48, 60])
def test_nested_prefixes_taken_in_place_are_as_made_anew(width: int) -> None:
    rng = np.random.default_rng(width)
    state = table_of(BASE, (KIND.LPM, width), size=600)
    entry = ir.ActionEntry(state.table.actions[0], ())
    arguments = TableArguments(BASE, state)
    arguments.settle()
    for _ in range(120):
        if len(state) and rng.random() < 0.4:
            state.delete(int(rng.choice(state.handles())))
        else:
            length = int(rng.integers(0, width + 1))
            value = int(rng.integers(0, 8)) << (width - 3) & ((1 << length) - 1) << (width - length)
            with contextlib.suppress(ControlError):  # it is there already
                state.add([ir.LpmMatch(value, length + -width % 8)], entry, 0)
        arguments.update()
        kept, anew = arguments._search, PrefixIndex(state.columns, state.table)
        assert isinstance(kept, PrefixIndex)
        (sample, rows, parents), (same, order, above) = kept.arguments(), anew.arguments()
        assert sample.tolist() == same.tolist()
        assert rows.tolist() == order.tolist()
        assert parents.tolist() == above.tolist()
    assert len(state) > 5


@pytest.mark.parametrize("shape", ["one word", "lpm", "ternary", "range"])
def test_another_action_leaves_all_arguments_where_they_are(shape: str) -> None:
    """So nothing is searched in another way, or written into the frames of compiled programs."""
    rng = np.random.default_rng(3)
    state = table_of(BASE, *ALL[shape], size=400)
    change(rng, state, shape, 200)
    arguments = TableArguments(BASE, state)
    before = arguments.settle()
    state.modify(state.handles()[0], ir.ActionEntry(state.table.actions[-1], ()))
    after = arguments.update()
    same = [one is other for one, other in zip(before, after, strict=True)]
    cut = 0 if shape == "one word" else 2  # slices of arrays that are longer
    assert len(same) - sum(same) <= cut
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one, other)
