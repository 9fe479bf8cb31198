"""What tables take: no more than twice the data that was put into them.

A register's data are its bits, at least eight. An entry's data is each key field, its mask, prefix
length or upper bound where it has one, its priority where it has one, its action and each of the
action's arguments: one 64-bit word each, and as many as hold them where fields are wider. So it is
with members of action profiles; each place in a group is a word, too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.tables import random_match, table_of

from innet.errors import ControlError
from innet.switch import Switch, fresh_memory, ir
from innet.switch.engine import SwitchState, dtype_of
from innet.switch.jit.table_arrays import table_arguments
from innet.switch.loader import load_program
from innet.switch.table_words import words_of
from innet.switch.tables import Reference, TableState

ROOT = Path(__file__).parents[2]
L3 = ROOT / "benchmarks/programs/l3.json"
KIND = ir.MatchKind

SHAPES = {
    "exact": [(KIND.EXACT, 32)],
    "wide exact": [(KIND.EXACT, 128), (KIND.EXACT, 16)],
    "lpm": [(KIND.LPM, 32)],
    "lpm 128": [(KIND.LPM, 128)],
    "lpm and exact": [(KIND.LPM, 32), (KIND.EXACT, 16)],
    "ternary": [(KIND.TERNARY, 32)],
    "three masks": [(KIND.TERNARY, 32), (KIND.TERNARY, 128), (KIND.EXACT, 8)],
    "range": [(KIND.RANGE, 16)],
    "two ranges": [(KIND.RANGE, 16), (KIND.RANGE, 64)],
    "wide ranges": [(KIND.RANGE, 128), (KIND.RANGE, 8), (KIND.RANGE, 65), (KIND.EXACT, 3)],
    "acl": [(KIND.TERNARY, 32), (KIND.LPM, 32), (KIND.RANGE, 16), (KIND.RANGE, 16)],
}


@pytest.fixture(scope="module")
def base() -> ir.Program:
    return load_program(ROOT / "tests/programs/jit_tables.json")


@pytest.mark.parametrize("width", range(1, 200))
def test_registers(width: int) -> None:
    """No smaller array than one of bytes can be had."""
    cell = dtype_of(width).itemsize * words_of(width)
    assert cell <= max(1, 2 * width / 8)


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many bytes were taken since it was first asked."""
    monkeypatch.setattr(fresh_memory, "_LARGE", 1 << 62)  # so that all is traced

    def ask() -> int:
        gc.collect()
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        return tracemalloc.get_traced_memory()[0]

    yield ask
    tracemalloc.stop()


def data_bytes(state: TableState, actions: tuple[ir.Action, ...]) -> int:
    """The data of a table whose entries all have the action of the first."""
    words = 0
    for key in state.table.keys:
        second = key.match in (KIND.TERNARY, KIND.RANGE)
        words += words_of(key.width) * (1 + second) + (key.match is KIND.LPM)
    parameters = actions[next(iter(state)).action.action].parameters
    words += sum(words_of(each.width) for each in parameters)
    return 8 * len(state) * (words + state.columns.has_masks + 1)


def fill(state: TableState, count: int, rng: np.random.Generator, apart: bool) -> None:
    """Add entries until there are so many. Their ranges lie ``apart`` and their masks have few
    lengths, or both are of any kind; prefixes end with bytes.
    """
    entry = ir.ActionEntry(state.table.actions[0], (1,))
    while len(state) < count:
        matches = []
        for key in state.table.keys:
            match = random_match(rng, key.match, key.width)
            if isinstance(match, ir.LpmMatch):
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
        with contextlib.suppress(ControlError):  # two entries that match the same
            state.add(matches, entry, int(rng.integers(1 << 20)))


@pytest.mark.parametrize(
    ("shape", "apart"),
    [
        *((shape, False) for shape in SHAPES),
        *((shape, True) for shape in ("three masks", "range", "two ranges", "acl")),
    ],
)
def test_tables_of_all_shapes(
    base: ir.Program, shape: str, apart: bool, grown: Callable[[], int]
) -> None:
    """Control plane and arrays of the compiled engine together, also after entries were replaced.

    1,100 entries have just outgrown two hash tables.
    """
    rng = np.random.default_rng(0)
    first, state = (table_of(base, *SHAPES[shape], size=1 << 16, parameters=1) for _ in range(2))
    fill(first, 40, rng, apart)
    table_arguments(base, first)  # modules that NumPy imports late are no part of a table
    before = grown()
    arguments = None
    for _ in range(2):
        fill(state, 1100, rng, apart)
        del arguments
        arguments = table_arguments(base, state)
        taken, data = grown() - before, data_bytes(state, base.actions)
        assert taken <= 2 * data, taken / data
        for entry in list(state)[::8]:
            state.delete(entry.handle)
    assert arguments


def l3(size: int, engine: str) -> Switch:
    document = json.loads(L3.read_text(encoding="utf-8"))
    for table in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        table["max_size"] = max(size, table["max_size"])
    return Switch.load(document, engine=engine)


def test_a_router_of_ten_thousand_routes_and_next_hops(grown: Callable[[], int]) -> None:
    """Control plane and compiled engine together."""
    switch = l3(100_000, "jit")
    packet = [(1, bytes(64))]
    switch.process(packet)
    routes, hops = (switch.control.table(name) for name in ("routes", "next_hops"))
    rng = np.random.default_rng(0)
    lengths = rng.choice([16, 20, 24, 28, 32], 10_000, p=[0.05, 0.15, 0.6, 0.1, 0.1]).tolist()
    addresses = rng.permutation(1 << 16)[:10_000] << 16
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
    assert data == 10_000 * 8 * (4 + 5)
    assert taken <= 2 * data, taken / data


@pytest.mark.parametrize("groups", [False, True])
def test_entries_that_refer_to_members(groups: bool, grown: Callable[[], int]) -> None:
    """A member for every second entry, or groups of ten for every tenth."""
    document = json.loads((ROOT / "tests/programs/switch_profiles.json").read_text("utf-8"))
    for table in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        table["max_size"] = 1 << 16
    program = load_program(document)
    state = SwitchState(program, np.random.default_rng(0))
    (table_,) = (each for each in state.tables if each.table.name == "I.prefix_table")
    profile = state.profile_of(table_.table)
    assert profile is not None
    member = ir.ActionEntry(profile.actions["I.masked"], (1,))
    profile.create_member(member)
    table_.add([ir.LpmMatch(0, 8)], Reference(False, 0), 0)
    table_arguments(program, table_, profile)
    before = grown()
    for _ in range(1500):
        profile.create_member(member)
    for group in range(300 if groups else 0):
        profile.create_group()
        for i in range(10):
            profile.add_to_group((7 * group + i) % 1500, group)
    for number in range(3000):
        target = Reference(True, number // 10) if groups else Reference(False, number // 2)
        table_.add([ir.LpmMatch(number << 16 | 1 << 31, 16)], target, 0)
    arguments = table_arguments(program, table_, profile)
    taken = grown() - before
    data = 8 * (3000 * 3 + 1500 * 2 + (3000 if groups else 0))
    assert arguments
    assert taken <= 2 * data, taken / data


MANY = """
import os, sys
sys.path[:0] = ["tests", "tests/unit"]
from test_switch_memory import data_bytes, l3
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
switch = l3(100_000, "jit")
switch.process([(1, bytes(64))])
before = resident()
for number in range(100_000):
    switch.table_add("next_hops", "forward", [number], [1, 0x0200000000FE, number])
switch.process([(1, bytes(64))])
print(resident() - before, data_bytes(switch.control.table("next_hops"), switch.program.actions))
"""


@pytest.mark.slow
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
    array = fresh_memory.fresh(shape, np.uint64)
    assert (array.shape, array.dtype) == (shape, np.uint64)
    assert array.flags.carray
    assert not array.any()
    array[...] = 7
