"""``Switch.process`` with times: packets wait in egress queues, on both engines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innet.core.engines import EngineName
from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.switch import Switch

FORWARD = Path(__file__).parents[3] / "p4/examples/forward.json"
PACKET = bytes.fromhex("0a0000000001 0a0000000002 0800") + bytes(50)
MILLISECOND = 1_000_000


@pytest.fixture(params=["jit", "interpret"])
def switch(request: pytest.FixtureRequest) -> Switch:
    """All packets to port 1, of which 1,000 a second leave."""
    engine: EngineName = request.param
    made = Switch.load(FORWARD, engine)
    made.command("table_add addresses forward 0x0a0000000001 => 1")
    made.command("set_queue_rate 1000 1")
    return made


def burst(count: int) -> PacketBatch:
    return PacketBatch.from_packets([(2, PACKET)] * count)


def test_a_burst_leaves_at_the_rate(switch: Switch) -> None:
    sent = switch.process_batch(burst(5), times=[10] * 5)
    assert sent.time is not None
    # The queue was made when its rate was set, at 0, as if a packet had left then.
    assert sent.time.tolist() == [i * MILLISECOND for i in range(1, 6)]
    assert sent.origin is not None
    assert sent.origin.tolist() == [0, 1, 2, 3, 4]
    assert switch.traffic_manager.now == 5 * MILLISECOND
    assert switch.state.clock == 5000


def test_what_finds_its_queue_full_is_dropped_and_counted(switch: Switch) -> None:
    switch.command("set_queue_depth 3 1")
    sent = switch.process_batch(burst(10), times=[10] * 10)
    assert len(sent) == 3
    assert switch.statistics.dropped_queue == 7
    assert switch.traffic_manager.queue(1).dropped == 7
    assert switch.traffic_manager.queue(1).depth == 0
    switch.reset_statistics()
    assert switch.traffic_manager.dropped == switch.statistics.dropped_queue == 0


def test_packets_wait_from_one_call_to_the_next(switch: Switch) -> None:
    assert switch.process([(2, PACKET)] * 4, times=[0] * 4, until=MILLISECOND) == [(1, PACKET)]
    assert switch.waiting == 3
    assert switch.next_departure == 2 * MILLISECOND
    # A packet that comes later waits behind them.
    later = switch.process_batch(burst(1), times=[MILLISECOND + 5], until=3 * MILLISECOND)
    assert later.time is not None
    assert later.time.tolist() == [2 * MILLISECOND, 3 * MILLISECOND]
    assert later.origin is not None
    assert later.origin.tolist() == [-1, -1]
    left = switch.run_until()
    assert left.time is not None
    assert left.time.tolist() == [4 * MILLISECOND, 5 * MILLISECOND]
    assert switch.waiting == 0
    assert switch.next_departure is None


def test_time_passes_without_packets(switch: Switch) -> None:
    assert len(switch.run_until(7 * MILLISECOND)) == 0
    assert switch.state.clock == 7000
    sent = switch.process_batch(burst(1), times=[7 * MILLISECOND])
    assert sent.time is not None
    assert sent.time.tolist() == [7 * MILLISECOND]  # the queue was idle


def test_constant_arrivals_below_the_rate_never_wait(switch: Switch) -> None:
    """A D/D/1 queue: with 900 packets a second of 1,000 nobody waits once the first has left."""
    times = MILLISECOND + np.arange(50) * (10 * MILLISECOND // 9)
    sent = switch.process_batch(burst(50), times=times)
    assert sent.time is not None
    np.testing.assert_array_equal(sent.time, times)


def test_random_arrivals_wait_as_long_as_a_queue_of_one_server_says(switch: Switch) -> None:
    """M/D/1 at load 0.8: the mean wait is load / (2 (1 - load)) services, 2 ms here."""
    rng = np.random.default_rng(1)
    switch.command("set_queue_depth 100000 1")
    gaps = rng.exponential(MILLISECOND / 0.8, 20_000 if switch.engine_name == "jit" else 4000)
    times = np.cumsum(gaps).astype(np.int64)
    sent = switch.process_batch(burst(len(times)), times=times)
    assert sent.time is not None
    waits = (sent.time - times) / MILLISECOND
    # Lindley's recursion says what this very sample waits; theory is the mean of many.
    wait, expected = 0.0, []
    for gap in np.diff(times, prepend=times[0]) / MILLISECOND:
        wait = max(0.0, wait + (1.0 if expected else 0.0) - gap)
        expected.append(wait)
    np.testing.assert_allclose(waits, expected, atol=1e-6)
    if switch.engine_name == "jit":
        assert waits.mean() == pytest.approx(2.0, rel=0.2)


def test_without_times_queues_are_passed_by(switch: Switch) -> None:
    switch.command("set_queue_depth 1 1")
    assert len(switch.process([(2, PACKET)] * 9)) == 9
    assert switch.state.clock == 0


Call = Callable[[Switch], Any]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.process([(2, PACKET)], times=[1, 2]), "2 times for 1 packets"),
        (lambda s: s.process([(2, PACKET)] * 2, times=[5, 4]), "packet 1 is at 4 ns"),
        (lambda s: s.process([(2, PACKET)], times=[-1]), "0 to"),
        (lambda s: s.process([(2, PACKET)], times=[1 << 62]), "0 to"),
        (lambda s: s.process([(2, PACKET)], times=[1 << 70]), "whole numbers of nanoseconds"),
        (lambda s: s.process([(2, PACKET)], times=[0.5]), "found float64"),
        (lambda s: s.process([(2, PACKET)], times=[[1]]), "shape (1, 1)"),
        (lambda s: s.process([(2, PACKET)], times=["1"]), "whole numbers of nanoseconds"),
        (lambda s: s.process([(2, PACKET)], times=[9], until=8), "until= is at 8 ns"),
        (lambda s: s.process([(2, PACKET)], until=8), "until= needs times="),
        (lambda s: s.run_until(-1), "0 to"),
        (lambda s: s.run_until(1.5), "found float64"),
        (lambda s: (s.run_until(10), s.run_until(9)), "until= is at 9 ns, and the switch is at 10"),
        (lambda s: (s.run_until(10), s.process([(2, PACKET)], times=[3])), "packet 0 is at 3 ns"),
    ],
)
def test_times_that_are_none(switch: Switch, call: Call, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        call(switch)
    assert switch.waiting == 0
    assert switch.statistics.packets_in == 0


def test_a_call_without_times_while_packets_wait(switch: Switch) -> None:
    switch.process([(2, PACKET)] * 3, times=[0] * 3, until=0)
    with pytest.raises(InputError, match=r"3 packets wait.*run_until"):
        switch.process([(2, PACKET)])
    assert len(switch.run_until()) == 3
    assert switch.process([(2, PACKET)]) == [(1, PACKET)]


def test_many_and_long_packets_that_wait(switch: Switch) -> None:
    """More and longer ones than there was room for."""
    switch.command("set_queue_depth 5000 1")
    packets = [(2, PACKET + bytes([i % 251]) * (i % 1400)) for i in range(3000)]
    assert switch.process(packets, times=range(3000), until=3000) == []
    assert switch.waiting == 3000
    long = (2, PACKET + bytes(9000))
    assert switch.process([long], times=[4000], until=4000) == []
    assert switch.run_until().to_packets() == [(1, data) for _, data in [*packets, long]]
