"""The compiled engine and the interpreter leave the same packets, registers and counters behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.guided import Guide

from innet.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.interpreter import InterpretEngine
from innet.switch.jit import JitEngine
from innet.switch.loader import load_program

PROGRAMS = [
    path
    for path in sorted((Path(__file__).parents[1] / "programs").glob("*.json"))
    if not JitEngine.unsupported(load_program(path))
]


def test_own_programs_are_supported() -> None:
    names = {path.stem for path in PROGRAMS}
    assert names >= {"jit_expressions", "jit_headers", "jit_parser", "jit_runs", "jit_tables"}


def agree(first: SwitchState, second: SwitchState) -> None:
    for name, one, other in zip(
        [register.name for register in first.program.registers],
        first.registers,
        second.registers,
        strict=True,
    ):
        np.testing.assert_array_equal(one, other, err_msg=name)
    for one, other in zip(first.counters, second.counters, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(first.meters, second.meters, strict=True):
        np.testing.assert_array_equal(one.cells, other.cells, err_msg=one.array.name)
    for one, other in zip(first.tables, second.tables, strict=True):
        np.testing.assert_array_equal(one.counters, other.counters, err_msg=one.table.name)
    assert first.statistics.as_dict() == second.statistics.as_dict()
    assert first.digests == second.digests
    np.testing.assert_array_equal(first.random_state, second.random_state)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(3))
def test_random_traffic(path: Path, seed: int) -> None:
    program = load_program(path)
    rng = np.random.default_rng([seed, 1])
    guide = Guide(program, rng)
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    interpret, jit = InterpretEngine(program, states[0]), JitEngine(program, states[1])
    for _ in range(4):
        guide.fill(states, entries=12)
        guide.registers(states)
        for state in states:
            state.clock += 1000
        for size in (1, 200):
            packets = guide.packets(size)
            expected = interpret.process(PacketBatch.from_packets(packets))
            got = jit.process(PacketBatch.from_packets(packets))
            assert got.to_packets() == expected.to_packets()
            np.testing.assert_array_equal(got.origin, expected.origin)
            agree(*states)
        guide.delete_some(states)
