"""The compiled engine and the interpreter leave the same packets, registers and counters behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support.engines import agree, check_random_traffic
from support.large_program import large_program
from support.state_fuzzer import StateFuzzer
from support.tiers import tiered

from innet.core.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from innet.switch.jit.tables import box_tree

#: Programs in which most packets go round until a limit stops them, which takes the interpreter a
#: second for each.
ENDLESS = {"switch_forever", "queue_growth", "queue_resubmit", "tools_tour"}
#: Random traffic of each program: INNET_FUZZ_SEEDS=10 pytest tests/differential
SEEDS = int(os.environ.get("INNET_FUZZ_SEEDS", "1"))
FOLDER = Path(__file__).parents[1] / "programs"
PROGRAMS = sorted(FOLDER.glob("*.json"))


def test_own_programs_are_there() -> None:
    names = {path.stem for path in PROGRAMS}
    assert names >= {"jit_expressions", "jit_headers", "jit_parser", "jit_runs", "jit_tables"}
    assert names >= {"jit_stacks", "jit_unions", "switch_parser"}
    assert names >= {"jit_copies", "jit_digests", "queue_headers", "switch_copies"}


@pytest.mark.repeats(
    "the same with programs of which simple_switch was recorded", but=["0-jit_*", "0-switch_*"]
)
@pytest.mark.parametrize(
    "name",
    tiered(
        [path.stem for path in PROGRAMS],
        [path.stem for path in PROGRAMS if not path.stem.startswith("fuzz_")],
        "recordings of simple_switch that both engines equal (tests/golden/switch)",
    ),
)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_traffic(name: str, seed: int) -> None:
    options = {"largest": 3, "rounds": 2} if name in ENDLESS else {"largest": 100}
    check_random_traffic(load_program(FOLDER / f"{name}.json"), seed, **options)


@pytest.mark.parametrize("name", ["fuzz_priorities", "jit_tables", "jit_wide", "switch_tables"])
def test_few_entries_in_trees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that a node would hold all of them."""
    monkeypatch.setattr(box_tree, "LEAF", 2)
    monkeypatch.setattr(box_tree, "MAX_IN_NODE", 1)
    check_random_traffic(load_program(FOLDER / f"{name}.json"), seed=5, largest=100)


def test_more_in_registers_than_their_width() -> None:
    """Whoever writes to ``Switch.registers`` may leave it there; emitted code relies on ranges."""
    program = load_program(FOLDER / "fuzz_registers.json")
    fuzzer = StateFuzzer(program, np.random.default_rng(0))
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    interpret, jit = InterpretEngine(program, states[0]), JitEngine(program, states[1])
    random = np.random.default_rng(1)
    for _ in range(4):
        for cells in zip(*(state.registers for state in states), strict=True):
            top = np.iinfo(cells[0].dtype).max
            cells[0][:] = cells[1][:] = random.integers(0, top, cells[0].shape, cells[0].dtype)
        batch = PacketBatch.from_packets(fuzzer.packets(100))
        assert jit.process(batch).to_packets() == interpret.process(batch).to_packets()
        agree(*states)


def test_errors_of_a_program_may_come_first() -> None:
    """p4c numbers errors in the order in which it meets them: NoError need not be 0."""
    document = json.loads((FOLDER / "switch_parser.json").read_text())
    count = len(document["errors"])
    document["errors"] = [[name, (code + 3) % count] for name, code in document["errors"]]
    program = load_program(document)
    assert program.errors["NoError"] == 3
    statistics = check_random_traffic(program, seed=0, largest=100).statistics
    assert 0 < statistics.parser_errors < statistics.packets_in


def test_a_generated_program_of_many_tables() -> None:
    program = load_program(large_program(tables=40))
    assert len(program.tables) > 40
    state = check_random_traffic(program, seed=0, largest=40, rounds=2)
    hit = [table.counters is not None and bool(table.counters.any()) for table in state.tables]
    assert sum(hit) >= 4
