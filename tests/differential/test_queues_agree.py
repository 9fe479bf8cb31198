"""Both engines leave the same packets at the same times through the same egress queues."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from support.engines import check_timed_traffic
from support.state_fuzzer import StateFuzzer
from support.tiers import tiered

from innet.core.engines import EngineName
from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.switch.engine import MAX_LOOPS
from innet.switch.frontend.loader import load_program

SEEDS = int(os.environ.get("INNET_FUZZ_SEEDS", "1"))
FOLDER = Path(__file__).parents[1] / "programs"

#: Programs in which packets come by again, or a packet is one of each kind of variable that a
#: packet keeps while it waits.
PROGRAMS = [
    "fuzz_clone",
    "fuzz_ends",
    "fuzz_multicast",
    "fuzz_priorities",
    "fuzz_unions",
    "fuzz_varbit",
    "jit_copies",
    "jit_digests",
    "jit_runs",
    "jit_wide",
    "queue_headers",
    "switch_copies",
]
each_program = pytest.mark.parametrize(
    "name",
    tiered(
        PROGRAMS,
        [name for name in PROGRAMS if name not in {"fuzz_ends", "fuzz_priorities", "jit_runs"}],
        "the same with programs that keep as much, and without queues",
    ),
)


@pytest.mark.repeats(
    "the same with other programs", but=["0-fuzz_multicast", "0-jit_digests", "0-switch_copies"]
)
@each_program
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_traffic_with_times(name: str, seed: int) -> None:
    state = check_timed_traffic(load_program(FOLDER / f"{name}.json"), seed)
    assert state.traffic_manager.now > 0


@pytest.mark.repeats(
    "the same with other programs", but=["0-fuzz_clone", "0-jit_copies", "0-queue_headers"]
)
@each_program
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_traffic_with_bit_rates(name: str, seed: int) -> None:
    program = load_program(FOLDER / f"{name}.json")
    state = check_timed_traffic(program, 100 + seed, rounds=8, bit_rates=True)
    assert state.traffic_manager.now > 0


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize(("op", "counted"), [(0, "resubmitted"), (1, "recirculated")])
def test_packets_that_never_end_are_stopped_with_times_too(
    op: int, counted: str, engine: EngineName
) -> None:
    switch = Switch.load(FOLDER / "switch_forever.json", engine)
    assert switch.process([(0, bytes([op])), (0, b"\x07")], times=[5, 5]) == [(1, b"\x07")]
    assert getattr(switch.statistics, counted) == MAX_LOOPS
    assert switch.statistics.looped == 1
    assert switch.waiting == 0


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("name", ["fuzz_clone", "fuzz_multicast", "queue_headers"])
def test_queues_without_a_rate_change_nothing(name: str, engine: EngineName) -> None:
    """Nothing waits then: the answers are those of a call without times, at the arrivals."""
    program = load_program(FOLDER / f"{name}.json")
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    timed, plain = (Switch.load(program, engine) for _ in range(2))
    fuzzer.fill([timed.state, plain.state], entries=12)
    for switch in (timed, plain):
        switch.traffic_manager.set_depth(1000)
    batch = PacketBatch.from_packets(fuzzer.packets(100))
    times = np.arange(100) * 1_000_000
    sent, expected = timed.process_batch(batch, times=times), plain.process_batch(batch)
    assert sent.to_packets() == expected.to_packets()
    assert sent.time is not None
    np.testing.assert_array_equal(sent.time, times[sent.origin])
    np.testing.assert_array_equal(sent.origin, expected.origin)
    assert timed.waiting == 0
