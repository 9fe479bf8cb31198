"""Both engines on the same random traffic and control plane, and what they must agree on."""

from __future__ import annotations

import numpy as np

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from support.state_fuzzer import StateFuzzer


def check_random_traffic(
    program: ir.Program, seed: int, largest: int = 200, rounds: int = 4
) -> SwitchState:
    """Run traffic made for ``program`` through both engines; AssertionError where they differ.

    Args:
        largest: packets of a batch, beside which there is one of a single packet.
        rounds: of other entries and registers, with two batches each.

    Returns the interpreter's state after it.
    """
    rng = np.random.default_rng([seed, 1])
    fuzzer = StateFuzzer(program, rng)
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    interpret, jit = InterpretEngine(program, states[0]), JitEngine(program, states[1])
    for _ in range(rounds):
        fuzzer.fill(states, entries=12)
        fuzzer.registers(states)
        for state in states:
            state.clock += 1000
        for size in (1, largest):
            packets = fuzzer.packets(size)
            expected = interpret.process(PacketBatch.from_packets(packets))
            got = jit.process(PacketBatch.from_packets(packets))
            assert got.to_packets() == expected.to_packets()
            np.testing.assert_array_equal(got.origin, expected.origin)
            agree(*states)
        fuzzer.delete_some(states)
    return states[0]


def agree(first: SwitchState, second: SwitchState) -> None:
    """Registers, counters, meters, last hits, statistics and digests are the same."""
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
        if one.ages is not None and other.ages is not None:
            np.testing.assert_array_equal(one.ages.last_hits, other.ages.last_hits)
    assert first.statistics.as_dict() == second.statistics.as_dict()
    assert first.digests == second.digests
    np.testing.assert_array_equal(first.random_state, second.random_state)
