"""Tables that shrink: entries close up, and nobody sees it but who measures memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.switch_cases import program
from support.tables import random_match, table_arguments, table_of

from innet.core.errors import ControlError
from innet.switch import Switch, ir
from innet.switch.frontend.loader import load_program
from innet.switch.state.tables import TableState

KIND = ir.MatchKind
SHAPES = {
    "exact": [(KIND.EXACT, 16)],
    "exact of 9 bits": [(KIND.EXACT, 9)],
    "lpm": [(KIND.LPM, 32)],
    "ternary": [(KIND.TERNARY, 16)],
    "range": [(KIND.RANGE, 16)],
}


@pytest.fixture(scope="module")
def base() -> ir.Program:
    return load_program(Path(__file__).parents[2] / "programs/jit_tables.json")


class Model:
    """Which handle simple_switch gives an entry, and whether it knows one."""

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        self.entries: dict[int, tuple[tuple[ir.Match, ...], int]] = {}

    def add(self, matches: tuple[ir.Match, ...], argument: int) -> int:
        index = next(i for i in range(len(self.entries) + 1) if i not in self.entries)
        self.entries[index] = (matches, argument)
        return self.versions.get(index, 0) << 24 | index

    def delete(self, index: int) -> int:
        """The handle that there was."""
        del self.entries[index]
        version = self.versions.get(index, 0)
        self.versions[index] = (version + 1) % 256
        return version << 24 | index


def compare(state: TableState, model: Model) -> None:
    known = {entry.index: (entry.matches, entry.action.arguments[0]) for entry in state}
    assert list(known) == sorted(model.entries)
    for index, (matches, argument) in model.entries.items():
        assert known[index][1] == argument
        assert state.find(matches, 5).index == index
        assert state.get(model.versions.get(index, 0) << 24 | index).index == index


@pytest.mark.repeats("the same with other tables", but=["exact", "lpm"])
@pytest.mark.parametrize("shape", SHAPES)
def test_handles_and_entries_stay(base: ir.Program, shape: str) -> None:
    """While a table grows, loses entries here and there or from one end on, and grows again."""
    rng = np.random.default_rng(1)
    state = table_of(base, *SHAPES[shape], size=700, parameters=1)
    model, argument = Model(), 0
    most = 400
    for wanted, order in [(most, 0), (60, 0), (90, 0), (30, 1), (most, 0), (5, -1), (most, 0)]:
        while len(state) > wanted:
            indices = sorted(model.entries)
            index = indices[-1 if order > 0 else 0] if order else int(rng.choice(indices))
            handle = model.delete(index)
            state.delete(handle)
            with pytest.raises(ControlError, match=f"no entry with handle {handle}"):
                state.delete(handle)
        while len(state) < wanted:
            argument += 1
            matches = tuple(random_match(rng, *part) for part in SHAPES[shape])
            entry = ir.ActionEntry(state.table.actions[0], (argument,))
            try:
                handle = state.add(matches, entry, 5)
            except ControlError:  # one that matches the same is there
                continue
            masked = state.get(handle).matches
            assert handle == model.add(masked, argument)
        compare(state, model)


def test_of_equal_priorities_the_lowest_index_wins_after_entries_closed_up(
    base: ir.Program,
) -> None:
    state = table_of(base, (KIND.TERNARY, 16), size=700, parameters=1)
    for number in range(400):
        entry = ir.ActionEntry(state.table.actions[0], (number,))
        state.add([ir.TernaryMatch(number, 0x1FF)], entry, 1)
    for number in range(10, 390):
        state.delete(number)
    every = ir.TernaryMatch(0, 0)
    state.add([every], ir.ActionEntry(state.table.actions[0], (1000,)), 1)
    assert state.lookup([9]).handle == 9
    assert state.lookup([395]).action.arguments == (1000,)
    rows = state.columns.rows()
    assert rows.max() > 20  # the new one is not where its index says
    table_arguments(base, state)
    assert (np.diff(state.columns.rows()) > 0).all()
    assert [entry.index for entry in state] == [*range(11), *range(390, 400)]
    assert state.lookup([9]).handle == 9
    assert state.lookup([395]).action.arguments == (1000,)
    assert state.lookup([395]).index == 10


@pytest.mark.repeats(
    "the same compiled, whose counters test_jit_control.py reads", but=["interpret"]
)
@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_direct_counters_and_meters_stay_with_their_entries(engine: str) -> None:
    document = program("switch_profiles")
    for each in (each for pipeline in document["pipelines"] for each in pipeline["tables"]):
        each["max_size"] = 600
    switch = Switch.load(document, engine=engine)
    switch.command("act_prof_create_member ways go 3 7")
    flows = np.random.default_rng(2).permutation(1 << 16)[:400].tolist()
    for flow in flows:
        switch.command(f"table_indirect_add way_table {flow} => 0")

    def packets(flow: int, count: int) -> list[tuple[int, bytes]]:
        return [(0, bytes([0]) + flow.to_bytes(2, "big") + bytes(7))] * count

    def hits(handle: int) -> int:
        return switch.control.counter_read("way_hits", handle)[0]

    before = [marks for flow in flows for marks in switch.process(packets(flow, 1))]
    left = sorted(np.random.default_rng(3).permutation(400)[:90].tolist())
    for handle in sorted({*range(400)} - {*left}):
        switch.command(f"table_indirect_delete way_table {handle}")
    assert len(switch.control.table_state("way_table").columns.live) < 120  # they have closed up
    for count, handle in enumerate(left, 1):
        sent = switch.process(packets(flows[handle], count % 5))
        assert sent == [before[handle]] * (count % 5)
        assert hits(handle) == 1 + count % 5
    new = int(switch.command("table_indirect_add way_table 77 => 0").split()[-1])
    assert new & 0xFFFFFF == min({*range(400)} - {*left})
    switch.process(packets(77, 3))
    assert hits(new) == 3
    assert sum(hits(handle) for handle in left) == sum(1 + i % 5 for i in range(1, 91))


def test_deleted_entries_give_their_memory_back(base: ir.Program) -> None:
    """A byte stays for each index, from which handles come."""
    state = table_of(base, (KIND.EXACT, 32), size=1 << 16, parameters=1)
    for number in range(4000):
        state.add([ir.ExactMatch(number)], ir.ActionEntry(state.table.actions[0], (number,)), 0)
    for number in np.random.default_rng(0).permutation(4000)[:3600].tolist():
        state.delete(number)
    columns = state.columns
    arrays = (columns.words, columns.live, columns.index.slots, columns.runs.actions)
    taken = sum(each.nbytes for each in (*arrays, columns.runs.data))
    assert taken <= 2 * 400 * 24
    assert columns.versions.nbytes <= 4300
