"""The form with egress queues, called by other compiled code: ingress and egress on their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.engines import agree_on_time
from support.state_fuzzer import StateFuzzer
from support.tiers import tiered

from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.inline import InlineQueues, next_departure, run_queues
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from innet.switch.traffic_manager import FOREVER

PROGRAMS = Path(__file__).parents[2] / "programs"
ROWS = 40


@njit()
def one_event(program: InlineQueues, first: int, count: int) -> tuple[int, int, int, int, int]:
    """What comes next: egress of a packet that waits, or ingress of one that arrives."""
    departure = next_departure(program)
    if first < count and program.times[first] < departure:
        # Before the packet's own time: it is received, and nothing leaves.
        until = program.times[first] - 1
        return 0, *run_queues(program, first, first + 1, until)
    return 1, *run_queues(program, first, first, departure)


@pytest.mark.repeats("the same with other programs", but=["*-fuzz_clone", "*-jit_copies"])
@pytest.mark.parametrize(
    "name",
    tiered(
        ["fuzz_clone", "jit_copies", "fuzz_digests", "jit_runs"],
        ["fuzz_clone", "jit_copies", "jit_runs"],
        "the same with copies",
    ),
)
@pytest.mark.parametrize("bit_rates", [False, True])
def test_event_by_event(name: str, bit_rates: bool) -> None:
    program = load_program(PROGRAMS / f"{name}.json")
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    states = [SwitchState(program, np.random.default_rng(0), 2) for _ in range(2)]
    jit, interpret = JitEngine(program, states[0]), InterpretEngine(program, states[1])
    memory = PacketBatch(
        np.zeros((ROWS, 2000), np.uint8), np.zeros(ROWS, np.int32), np.zeros(ROWS, np.int32)
    )
    running = jit.inline_queues(memory)
    assert running is not None
    for _ in range(4):
        fuzzer.fill(states, entries=12)
        for state in states:
            state.traffic_manager.set_rate(10_000, 1)
            state.traffic_manager.set_depth(5)
            if bit_rates:
                state.traffic_manager.set_bit_rate(10**8)
                state.traffic_manager.set_depth_bytes(4000)
                state.traffic_manager.set_recirculation(10**9, 2500)
        packets = [(port, data[:2000]) for port, data in fuzzer.packets(ROWS)]
        times = states[0].traffic_manager.now + 1 + np.arange(ROWS) * 1700
        extra = np.arange(ROWS, dtype=np.int32) % 3 * 500 * bit_rates
        for row, (port, data) in enumerate(packets):
            memory.data[row, : len(data)] = np.frombuffer(data, np.uint8)
            memory.length[row], memory.port[row] = len(data), port
        inline = running.begin()
        inline.times[:], inline.extra[:] = times, extra
        sent, left, longer, halves, first = [], [], [], [0, 0], 0
        while first < ROWS or next_departure(inline) < FOREVER:
            half, first, produced, wanted, failed = one_event(inline, first, ROWS)
            assert failed == 0
            rows = np.arange(produced)
            out = PacketBatch(inline.out, inline.out_length, inline.out_port)
            sent += out.take(rows).to_packets()
            left += inline.out_time[rows].tolist()
            longer += inline.out_extra[rows].tolist()
            if wanted:
                inline = running.make_room(wanted)
                inline.times[:] = times
                continue
            halves[half] += 1
            assert half == 1 or produced == 0
        running.end()
        batch = PacketBatch.from_packets(packets)
        batch = PacketBatch(batch.data, batch.length, batch.port, extra=extra)
        expected = interpret.process_timed(batch, times, FOREVER)
        assert sent == expected.to_packets()
        none = np.zeros(len(sent), np.int32)
        assert longer == (none if expected.extra is None else expected.extra).tolist()
        assert left == expected.time.tolist()
        assert halves[0] == ROWS
        assert halves[1] > 0
        agree_on_time(*states)
        fuzzer.delete_some(states)


def test_what_takes_python_is_not_inlined() -> None:
    program = load_program(PROGRAMS / "switch_ageing.json")
    state = SwitchState(program, np.random.default_rng(0))
    memory = PacketBatch.empty(100)
    assert JitEngine(program, state).inline_queues(memory) is None
    assert InterpretEngine(program, state).inline_queues(memory) is None
