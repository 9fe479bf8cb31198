"""What tables take: no more than twice the data that was put into them.

An entry's data is each key field, its mask, prefix length or upper bound where it has one, its
priority where it has one, its action and each of the action's arguments, as one 64-bit word each.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from innet.switch import Switch, fresh_memory, ir
from innet.switch.tables import TableState

ROOT = Path(__file__).parents[2]
L3 = ROOT / "benchmarks/programs/l3.json"


def data_bytes(state: TableState, actions: tuple[ir.Action, ...]) -> int:
    """The data of a table whose entries all have the action of the first."""
    keys = state.table.keys
    seconds = sum(key.match not in (ir.MatchKind.EXACT, ir.MatchKind.VALID) for key in keys)
    arguments = len(actions[next(iter(state)).action.action].parameters)
    return 8 * len(state) * (len(keys) + seconds + state.columns.has_masks + 1 + arguments)


def l3(size: int, engine: str) -> Switch:
    document = json.loads(L3.read_text(encoding="utf-8"))
    for table in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        table["max_size"] = max(size, table["max_size"])
    return Switch.load(document, engine=engine)


def test_a_router_of_ten_thousand_routes_and_next_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control plane and compiled engine together."""
    monkeypatch.setattr(fresh_memory, "_LARGE", 1 << 62)  # so that all is traced
    switch = l3(100_000, "jit")
    packet = [(1, bytes(64))]
    switch.process(packet)
    routes, hops = (switch.control.table(name) for name in ("routes", "next_hops"))
    rng = np.random.default_rng(0)
    lengths = rng.choice([16, 20, 24, 28, 32], 10_000, p=[0.05, 0.15, 0.6, 0.1, 0.1]).tolist()
    addresses = rng.permutation(1 << 16)[:10_000] << 16
    actions = {each.name: i for i, each in enumerate(switch.program.actions)}
    gc.collect()
    tracemalloc.start()
    try:
        for number, (address, length) in enumerate(zip(addresses.tolist(), lengths, strict=True)):
            route = ir.ActionEntry(actions["L3Ingress.route"], (number,))
            routes.add([ir.LpmMatch(address, length)], route, 0)
            forward = ir.ActionEntry(actions["L3Ingress.forward"], (1, 0x0200000000FE, number))
            hops.add([ir.ExactMatch(number)], forward, 0)
        switch.process(packet)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    data = sum(data_bytes(each, switch.program.actions) for each in (routes, hops))
    assert data == 10_000 * 8 * (4 + 5)
    assert grown <= 2 * data, grown / data


@pytest.mark.parametrize("name", ["ternaries", "ranges"])
def test_tables_that_are_kept_in_order_of_precedence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_memory, "_LARGE", 1 << 62)  # so that all is traced
    document = json.loads((ROOT / "tests/programs/fuzz_priorities.json").read_text("utf-8"))
    for table in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        table["max_size"] = 2000
    switch = Switch.load(document, engine="jit")
    packet = [(1, bytes(64))]
    switch.process(packet)
    table = switch.control.table(f"I.{name}")
    action = table.table.actions[0]
    entry = ir.ActionEntry(action, (1,) * len(switch.program.actions[action].parameters))
    rng = np.random.default_rng(0)
    makers = {
        ir.MatchKind.EXACT: lambda low, _: ir.ExactMatch(low),
        ir.MatchKind.TERNARY: ir.TernaryMatch,
        ir.MatchKind.RANGE: ir.RangeMatch,
    }
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2000):
            pairs = np.sort(rng.integers(0, 256, (len(table.table.keys), 2))).tolist()
            keys = [makers[k.match](*pair) for k, pair in zip(table.table.keys, pairs, strict=True)]
            table.add(keys, entry, number)
        switch.process(packet)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    data = data_bytes(table, switch.program.actions)
    assert grown <= 2 * data, grown / data


MANY = """
import os, sys
sys.path.insert(0, "tests/unit")
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
    grown, data = map(int, done.stdout.split())
    assert data == 100_000 * 8 * 5
    assert grown <= 2 * data, grown / data


@pytest.mark.parametrize("shape", [(10,), (100_000, 3), (0, 4), (40_000, 0)])
def test_fresh_memory(shape: tuple[int, ...]) -> None:
    array = fresh_memory.fresh(shape, np.uint64)
    assert (array.shape, array.dtype) == (shape, np.uint64)
    assert array.flags.carray
    assert not array.any()
    array[...] = 7
