"""Both engines on the same random traffic and control plane, and what they must agree on."""

from __future__ import annotations

import numpy as np

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from innet.switch.traffic_manager import FOREVER
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


def check_timed_traffic(
    program: ir.Program, seed: int, largest: int = 60, rounds: int = 4, *, bit_rates: bool = False
) -> SwitchState:
    """The same with times: random rates, capacities, arrivals and ends of calls.

    Args:
        bit_rates: with what BMv2 does not have, too.

    Returns the interpreter's state after it.
    """
    rng = np.random.default_rng([seed, 2])
    fuzzer = StateFuzzer(program, rng)
    states = [SwitchState(program, np.random.default_rng(0), 3) for _ in range(2)]
    engines = [InterpretEngine(program, states[0]), JitEngine(program, states[1])]
    longer = np.random.default_rng(seed)
    for _ in range(rounds):
        fuzzer.fill(states, entries=12)
        fuzzer.registers(states)
        _limit_queues(states, rng)
        if bit_rates:
            _set_lines(states, rng)
        for size in (1, largest, 0):
            batch = PacketBatch.from_packets(fuzzer.packets(size))
            if bit_rates:
                extra = longer.choice([0, 0, 40, 999], len(batch)).astype(np.int32)
                batch = PacketBatch(batch.data, batch.length, batch.port, extra=extra)
            now = states[0].traffic_manager.now
            gaps = rng.choice([0, 1, 700, 40_000], len(batch))
            times = now + np.cumsum(gaps, dtype=np.int64)
            last = int(times[-1]) if len(batch) else now
            until = FOREVER if rng.random() < 0.2 else last + int(rng.integers(0, 100_000))
            expected, got = (each.process_timed(batch, times, until) for each in engines)
            assert got.to_packets() == expected.to_packets()
            np.testing.assert_array_equal(got.origin, expected.origin)
            np.testing.assert_array_equal(got.time, expected.time)
            np.testing.assert_array_equal(got.extra, expected.extra)
            assert engines[0].waiting == engines[1].waiting
            assert engines[0].next_departure == engines[1].next_departure
            agree_on_time(*states)
        fuzzer.delete_some(states)
    return states[0]


def _limit_queues(states: list[SwitchState], rng: np.random.Generator) -> None:
    """Other capacities and rates for all queues, some ports', and single ones."""
    scope = [(), (int(rng.integers(8)),), (int(rng.integers(8)), int(rng.integers(3)))]
    for where in scope:
        depth, rate = int(rng.integers(0, 9)), int(rng.choice([0, 1000, 20_000, 1_000_000]))
        for state in states:
            state.traffic_manager.set_depth(depth, *where)
            state.traffic_manager.set_rate(rate, *where)


def _set_lines(states: list[SwitchState], rng: np.random.Generator) -> None:
    """Bit rates, limits in bytes, marks, a shared buffer, and recirculation that takes time."""
    threshold = None if rng.random() < 0.3 else int(rng.integers(1000))
    shared, alpha = [None, 2000, 5000][rng.integers(3)], float(rng.choice([0.25, 1, 8]))
    recirculation = [None, 0, 10**6, 10**10][rng.integers(4)], int(rng.choice([0, 1, 5000]))
    rates = [int(rng.choice([0, 10**7, 10**9, 10**11])) for _ in range(3)]
    depths = [None, *rng.integers(0, 3000, 2).tolist()]
    ports = [None, *rng.integers(0, 8, 2).tolist()]
    stand_in = [(0, 0), (30, 400)][rng.integers(2)]
    for state in states:
        manager = state.traffic_manager
        manager.set_ecn_threshold(threshold)
        manager.set_shared_buffer(shared, alpha)
        manager.set_recirculation(*recirculation)
        manager.set_stand_in(*stand_in)
        for port, rate, depth in zip(ports, rates, depths, strict=True):
            manager.set_bit_rate(rate, port)
            manager.set_depth_bytes(depth, port)


def agree_on_time(first: SwitchState, second: SwitchState) -> None:
    """``agree``, and queues and clocks are the same."""
    agree(first, second)
    one, other = first.traffic_manager, second.traffic_manager
    np.testing.assert_array_equal(one.queues, other.queues)
    assert one.now == other.now
    assert first.clock == second.clock == one.now // 1000


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
