"""What tables take: no more than twice the data that was put into them.

A register's data are its bits, at least eight. An entry's data is each key field, its mask, prefix
length or upper bound where it has one, its priority where it has one, its action and each of the
action's arguments: one 64-bit word each, and as many as hold them where fields are wider. So it is
with members of action profiles; each place in a group is a word, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from support.tables import random_match, table_arguments, table_of
from support.tiers import tiered

import innet
from innet.core.errors import ControlError
from innet.switch import Switch, ir
from innet.switch.engine import SwitchState, dtype_of
from innet.switch.frontend.loader import load_program
from innet.switch.state import hash_index
from innet.switch.state.entries import argument_words, word_count
from innet.switch.state.tables import Generation, ProfileRef, TableState

ROOT = Path(__file__).parents[3]
L3 = ROOT / "benchmarks/programs/l3.json"
KIND = ir.MatchKind

SHAPES = {
    "exact": [(KIND.EXACT, 32)],
    "wide exact": [(KIND.EXACT, 128), (KIND.EXACT, 16)],
    "lpm": [(KIND.LPM, 32)],
    "lpm 64": [(KIND.LPM, 64)],
    "lpm 128": [(KIND.LPM, 128)],
    "lpm and exact": [(KIND.LPM, 32), (KIND.EXACT, 16)],
    "ternary": [(KIND.TERNARY, 32)],
    "three masks": [(KIND.TERNARY, 32), (KIND.TERNARY, 128), (KIND.EXACT, 8)],
    "range": [(KIND.RANGE, 16)],
    "two ranges": [(KIND.RANGE, 16), (KIND.RANGE, 64)],
    "wide ranges": [(KIND.RANGE, 128), (KIND.RANGE, 8), (KIND.RANGE, 65), (KIND.EXACT, 3)],
    "acl": [(KIND.TERNARY, 32), (KIND.LPM, 32), (KIND.RANGE, 16), (KIND.RANGE, 16)],
}


#: Widths of the arguments of each action that a table has.
ARGUMENTS: list[list[tuple[int, ...]]] = [
    [()],
    [(9,)],
    [(), (48, 9, 32, 16, 8)],
    [(), (128,), (9, 65, 300)],
]


@pytest.mark.parametrize(
    "width",
    tiered(
        range(1, 200),
        [width for width in range(1, 200) if width % 8 in {0, 1, 7}],
        "the same around the ends of bytes",
    ),
)
def test_registers(width: int) -> None:
    """No smaller array than one of bytes can be had."""
    cell = dtype_of(width).itemsize * word_count(width)
    assert cell <= max(1, 2 * width / 8)


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many bytes innet, NumPy and this file took since the test began.

    Others take memory meanwhile: pytest-xdist has a thread that receives messages.
    """
    monkeypatch.setattr(hash_index, "_LARGE", 1 << 62)  # so that all is traced
    ours = [f"{Path(each.__file__).parent}/" for each in (innet, np)]
    counted = (*ours, __file__, "<string>")  # where constructors of dataclasses are
    gc.collect()
    # What was there before need not be looked at again, nor after the test: gc.unfreeze would also
    # undo what conftest.py froze, and all later tests would look through millions of objects.
    gc.freeze()
    tracemalloc.start()

    def ask() -> int:
        gc.collect()
        # As its filter_traces, which compares each trace with each pattern, and takes longer than
        # all else here.
        traces = tracemalloc.take_snapshot().traces
        return sum(each.size for each in traces if each.traceback[0].filename.startswith(counted))

    yield ask
    tracemalloc.stop()


def data_bytes(state: TableState, actions: tuple[ir.Action, ...]) -> int:
    """The data of a table's entries; those of members and groups are their profile's."""
    words = state.columns.has_masks + 1
    for key in state.table.keys:
        second = key.match in (KIND.TERNARY, KIND.RANGE)
        words += word_count(key.width) * (1 + second) + (key.match is KIND.LPM)
    if state.table.action_profile is None and len(state.table.actions) == 1:
        arguments = len(state) * argument_words(actions[state.table.actions[0]])
    else:
        targets = [each.action for each in state]
        arguments = sum(
            argument_words(actions[each.action])
            for each in targets
            if isinstance(each, ir.ActionEntry)
        )
    return 8 * (len(state) * words + arguments)


def fill(state: TableState, count: int, rng: np.random.Generator, apart: bool) -> None:
    """Add entries until there are so many. Their ranges lie ``apart`` and their masks have few
    lengths, or both are of any kind; prefixes then end with bytes, or where they like.
    """
    entries = [
        ir.ActionEntry(action, (1,) * len(_base().actions[action].parameters))
        for action in state.table.actions
    ]
    while len(state) < count:
        matches = []
        for key in state.table.keys:
            match = random_match(rng, key.match, key.width)
            if apart and isinstance(match, ir.LpmMatch):
                match = ir.LpmMatch(match.value, match.prefix // 8 * 8)
            elif apart and isinstance(match, ir.RangeMatch):
                step = max(1, (1 << key.width) // count)
                low = len(state) * step % (1 << key.width)
                match = ir.RangeMatch(low, low + step // 2)
            elif apart and isinstance(match, ir.TernaryMatch):
                free = 4 * int(rng.integers(3))
                every = (1 << key.width) - 1
                match = ir.TernaryMatch(match.value >> free << free, every >> free << free)
            matches.append(match)
        entry = entries[int(rng.integers(len(entries)))]
        with contextlib.suppress(ControlError):  # two entries that match the same
            state.add(matches, entry, int(rng.integers(1 << 20)))


@lru_cache
def _base() -> ir.Program:
    """A program with actions of all ``ARGUMENTS``."""
    base = load_program(ROOT / "tests/programs/jit_tables.json")
    actions = (
        ir.Action("any", tuple(ir.Parameter("x", width) for width in widths), ())
        for widths in dict.fromkeys(itertools.chain(*ARGUMENTS))
    )
    return dataclasses.replace(base, actions=tuple(actions))


def table(parts: list[tuple[ir.MatchKind, int]], *arguments: tuple[int, ...]) -> TableState:
    """A table with an action for each of the ``arguments``' widths."""
    state = table_of(_base(), *parts, size=1 << 16)
    widths = [tuple(each.width for each in action.parameters) for action in _base().actions]
    actions = tuple(widths.index(each) for each in arguments)
    described = dataclasses.replace(state.table, actions=actions, next=(None,) * len(actions))
    return TableState(described, Generation(), _base().actions)


def check(
    grown: Callable[[], int], state: TableState, rng: np.random.Generator, apart: bool = False
) -> None:
    """Control plane and arrays of the compiled engine together, from 100 entries on: what an empty
    table takes is there before. Also after some and after most entries were deleted, less the byte
    for each handle that there was.
    """
    first = TableState(state.table, Generation(), _base().actions)
    fill(first, 100, np.random.default_rng(0), apart)
    table_arguments(_base(), first)
    data_bytes(first, _base().actions)
    del first  # but what the first table of all lets others make once stays
    held = [table_arguments(_base(), state)]
    before = grown()

    def compare() -> None:
        held.clear()
        held.append(table_arguments(_base(), state))
        taken, data = grown() - before, data_bytes(state, _base().actions)
        taken -= state.columns.versions.nbytes
        assert taken <= 2 * data, (len(state), taken / data)

    for count in (100, 150, 400):
        fill(state, count, rng, apart)
        compare()
    for entry in list(state)[::8]:
        state.delete(entry.handle)
    compare()
    fill(state, 400, rng, apart)
    for handle in rng.permutation([entry.handle for entry in state])[:250].tolist():
        state.delete(handle)
    compare()


@pytest.mark.repeats(
    "the same with other shapes",
    but=[
        "exact-False",
        "wide exact-False",
        "lpm-False",
        "ternary-False",
        "range-False",
        "acl-True",
    ],
)
@pytest.mark.parametrize(
    ("shape", "apart"),
    [
        *((shape, False) for shape in SHAPES),
        *(
            pytest.param(shape, True, marks=pytest.mark.repeats("the same side by side"))
            for shape in ("lpm", "three masks", "range", "two ranges")
        ),
        ("acl", True),
    ],
)
def test_tables_of_all_shapes(shape: str, apart: bool, grown: Callable[[], int]) -> None:
    rng = np.random.default_rng(0)
    fill(first := table(SHAPES[shape], (9,)), 40, rng, apart)
    table_arguments(_base(), first)  # modules that NumPy imports late are no part of a table
    check(grown, table(SHAPES[shape], (9,)), rng, apart)


@pytest.mark.repeats("the same with longest prefixes", but=["exact-arguments3"])
@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("shape", ["exact", "lpm 64"])
def test_actions_of_all_widths(
    shape: str, arguments: list[tuple[int, ...]], grown: Callable[[], int]
) -> None:
    """Those with few arguments pay nothing for others with many."""
    check(grown, table(SHAPES[shape], *arguments), np.random.default_rng(0))


@pytest.mark.parametrize("width", [8, 9, 12])
def test_small_keys(width: int, grown: Callable[[], int]) -> None:
    """Of all that there are, a hundred have an entry. An array of all keys counts, too."""
    state = table([(KIND.EXACT, width)], (9,))
    held = [table_arguments(_base(), state)]
    nothing = state.columns.index.slots.nbytes
    before = grown()
    fill(state, 100, np.random.default_rng(0), apart=False)
    held[0] = table_arguments(_base(), state)
    assert grown() - before + nothing <= 2 * data_bytes(state, _base().actions)


def l3(size: int, engine: str) -> Switch:
    document = json.loads(L3.read_text(encoding="utf-8"))
    for table in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        table["max_size"] = max(size, table["max_size"])
    return Switch.load(document, engine=engine)


@pytest.mark.repeats("the memory of each shape of table")
def test_a_router_of_thousands_of_routes_and_next_hops(grown: Callable[[], int]) -> None:
    """Control plane and compiled engine together."""
    switch = l3(100_000, "jit")
    packet = [(1, bytes(64))]
    switch.process(packet)
    routes, hops = (switch.control.table_state(name) for name in ("routes", "next_hops"))
    rng = np.random.default_rng(0)
    count = 5_000
    lengths = rng.choice([16, 20, 24, 28, 32], count, p=[0.05, 0.15, 0.6, 0.1, 0.1]).tolist()
    addresses = rng.permutation(1 << 16)[:count] << 16
    actions = {each.name: i for i, each in enumerate(switch.program.actions)}
    before = grown()
    for number, (address, length) in enumerate(zip(addresses.tolist(), lengths, strict=True)):
        route = ir.ActionEntry(actions["L3Ingress.route"], (number,))
        routes.add([ir.LpmMatch(address, length)], route, 0)
        forward = ir.ActionEntry(actions["L3Ingress.forward"], (1, 0x0200000000FE, number))
        hops.add([ir.ExactMatch(number)], forward, 0)
    switch.process(packet)
    taken = grown() - before
    data = sum(data_bytes(each, switch.program.actions) for each in (routes, hops))
    assert data == count * 8 * (4 + 5)
    assert taken <= 2 * data, taken / data


@pytest.mark.repeats("the same with more entries", but=["*-100"])
@pytest.mark.parametrize("entries", [100, 1000])
@pytest.mark.parametrize("of_each", [0, 1, 10])
def test_entries_that_refer_to_members(
    of_each: int, entries: int, grown: Callable[[], int]
) -> None:
    """A member for every second entry, or groups of some for every tenth. Two tables share them."""
    document = json.loads((ROOT / "tests/programs/switch_profiles.json").read_text("utf-8"))
    for each in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        each["max_size"] = 1 << 16
    program = load_program(document)
    state = SwitchState(program, np.random.default_rng(0))
    (first,) = (each for each in state.tables if each.table.name == "I.prefix_table")
    (second,) = (each for each in state.tables if each.table.name == "I.masked_table")
    profile = state.profile_of(first.table)
    assert profile is not None
    member = ir.ActionEntry(profile.actions["I.masked"], (1,))
    held = [table_arguments(program, each, profile) for each in (first, second)]
    before = grown()
    members, groups = entries // 2, entries // 10 if of_each else 0
    for _ in range(members):
        profile.create_member(member)
    for group in range(groups):
        profile.create_group()
        for i in range(of_each):
            profile.add_to_group((7 * group + i) % members, group)
    for number in range(entries):
        target = ProfileRef(True, number // 10) if of_each else ProfileRef(False, number // 2)
        first.add([ir.LpmMatch(number << 16 | 1 << 31, 16)], target, 0)
    held.clear()
    held += [table_arguments(program, each, profile) for each in (first, second)]
    taken = grown() - before
    data = 8 * (entries * 3 + members * 2 + groups * of_each)
    assert taken <= 2 * data, taken / data


def test_members_and_groups_alone(grown: Callable[[], int]) -> None:
    """Groups of one member, many groups of many, and what is left of both after they went."""
    document = json.loads((ROOT / "tests/programs/switch_profiles.json").read_text("utf-8"))
    program = load_program(document)
    state = SwitchState(program, np.random.default_rng(0))
    (profile,) = (each for each in state.profiles if each.profile.name == "I.ways")
    (ways,) = profile.tables
    plain, wide = (ir.ActionEntry(profile.actions[name], ()) for name in ("I.stay", "I.go"))
    wide = ir.ActionEntry(wide.action, (1, 2))
    profile.delete_member(profile.create_member(plain))
    profile.delete_group(profile.create_group())
    held = [table_arguments(program, ways, profile)]
    before = grown()

    def compare(members: int, arguments: int, places: int) -> None:
        held.clear()
        held.append(table_arguments(program, ways, profile))
        assert grown() - before <= 2 * 8 * (members + arguments + places)

    for number in range(600):
        profile.create_member(wide if number % 8 == 0 else plain)
    compare(600, 2 * 75, 0)
    for group in range(300):
        profile.create_group()
        profile.add_to_group(group, group)
    compare(600, 2 * 75, 300)
    for group in range(300):
        profile.delete_group(group)
    for member in range(200, 600):
        profile.delete_member(member)
    compare(200, 2 * 25, 0)


MANY = """
import os, sys
sys.path[:0] = ["tests", "tests/unit/switch"]
from test_switch_memory import data_bytes, l3
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
switch = l3(100_000, "jit")
switch.process([(1, bytes(64))])
before = resident()
for number in range(100_000):
    switch.table_add("next_hops", "forward", [number], [1, 0x0200000000FE, number])
switch.process([(1, bytes(64))])
table = switch.control.table_state("next_hops")
print(resident() - before, data_bytes(table, switch.program.actions))
"""


@pytest.mark.repeats("the memory of each shape of table, in a process of its own")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read memory from")
def test_a_process_with_many_exact_entries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        check=True,
        capture_output=True,
        text=True,
    )
    taken, data = map(int, done.stdout.split())
    assert data == 100_000 * 8 * 5
    assert taken <= 2 * data, taken / data


@pytest.mark.parametrize("shape", [(10,), (100_000, 3), (0, 4), (40_000, 0)])
def test_fresh_memory(shape: tuple[int, ...]) -> None:
    array = hash_index.mapped_zeros(shape, np.uint64)
    assert (array.shape, array.dtype) == (shape, np.uint64)
    assert array.flags.carray
    assert not array.any()
    array[...] = 7
