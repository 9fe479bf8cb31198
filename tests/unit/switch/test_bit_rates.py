"""Ports with a bit rate: wire times, strict priority, and limits in bytes, beside a naive model."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support.lines import Arrival, Buffers, managed, naive, some_arrivals
from support.switch_cases import program

from innet.core.errors import ControlError
from innet.core.packets import PacketBatch
from innet.switch import Switch, traffic_manager
from innet.switch.traffic_manager import (
    BYTES,
    DEPTH,
    DROPS,
    MARKED,
    MOST_EXTRA_BYTES,
    TrafficManager,
)

PICOSECONDS = 10**12
RATES = [1, 1000, 10**6, 10**9 + 7, 10**10, 10**11, 4 * 10**11]


NO_LIMITS = Buffers()


def on_lines(priorities=1, rate=10**11, buffers=NO_LIMITS):
    """A traffic manager whose ports have a bit rate, in picoseconds."""
    manager = TrafficManager(priorities)
    manager.set_bit_rate(rate, ticks_per_second=PICOSECONDS)
    manager.set_depth(buffers.packets)
    manager.set_depth_bytes(buffers.bytes)
    return manager


def departures(manager, *arrivals):
    """When packets leave, in picoseconds, in the order in which they came."""
    left = managed(manager, arrivals).left
    return [left.get(number) for number in range(len(arrivals))]


def test_packets_follow_each_other_after_their_time_on_the_wire():
    """At 100 Gbit/s a byte takes 80 ps; 24 bytes are added, and the shortest frame has 60."""
    manager = on_lines()
    arrivals = [Arrival(5, 1, 0, length) for length in (1500, 60, 1, 330)]
    assert departures(manager, *arrivals) == [5, 121_925, 128_645, 135_365]


def test_times_are_rounded_up_to_a_tick():
    manager = TrafficManager()
    manager.set_bit_rate(10**9 + 7, 1)
    assert departures(manager, *[Arrival(0, 1, 0, 60)] * 3) == [0, 672, 1344]
    slower = TrafficManager()
    slower.set_bit_rate(10**9 - 7, 1)
    assert departures(slower, *[Arrival(0, 1, 0, 60)] * 3) == [0, 673, 1346]


def test_a_line_that_was_idle_sends_at_once():
    manager = on_lines()
    assert departures(manager, Arrival(0, 1, 0, 60), Arrival(10**6, 1, 0, 60)) == [0, 10**6]


def test_ports_do_not_share_a_line():
    assert departures(on_lines(), Arrival(0, 1, 0, 60), Arrival(0, 2, 0, 60)) == [0, 0]


def test_the_highest_priority_goes_first_but_nothing_is_interrupted():
    """A frame of 126 bytes takes 12,000 ps."""
    arrivals = [
        Arrival(0, 1, 0, 126),  # leaves at once
        Arrival(1, 1, 0, 126),
        Arrival(2, 1, 1, 126),  # before the second
        Arrival(13_000, 1, 2, 126),  # while the third is sent; before the second, too
    ]
    assert departures(on_lines(3), *arrivals) == [0, 36_000, 12_000, 24_000]


def test_a_queue_without_a_bit_rate_keeps_its_interval():
    manager = TrafficManager()
    manager.set_rate(10)
    manager.set_bit_rate(1000, 1)
    assert departures(manager, *[Arrival(0, port, 0, 101) for port in (1, 2, 1, 2)]) == [
        0,
        10**8,
        10**9,
        2 * 10**8,
    ]


def test_packets_that_wait_keep_their_departures_when_a_line_comes():
    manager = TrafficManager()
    manager.set_rate(10, 1)
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8
    manager.set_bit_rate(10**6, 1)
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8 + 10**6


def test_a_limit_in_bytes_counts_what_waits():
    manager = on_lines(buffers=Buffers(bytes=1000))
    arrivals = [Arrival(0, 1, 0, length) for length in (1000, 600, 500, 400)]
    # The first is on the wire when the second comes, and nothing waits.
    assert departures(manager, *arrivals) == [0, 81_920, None, 131_840]
    queue = manager.queue(1)
    assert (queue.dropped, queue.bytes, queue.bytes_max) == (1, 0, 1000)
    assert (queue.capacity_bytes, queue.bit_rate) == (1000, 10**11)


def test_both_limits_hold():
    manager = on_lines(buffers=Buffers(packets=1, bytes=100))
    lengths = [100, 101, 1, 1]
    assert departures(manager, *[Arrival(0, 1, 0, each) for each in lengths]) == [
        0,
        None,
        9920,
        None,
    ]
    manager.set_depth_bytes(None, 1)
    assert manager.queue(1).capacity_bytes is None


CASES = [
    Buffers(),
    Buffers(packets=3),
    Buffers(bytes=4000),
    Buffers(packets=6, bytes=9000),
]
COMPILED = SimpleNamespace(
    **{
        name: njit(getattr(traffic_manager, name))
        for name in ("admit", "is_congested", "postponement", "withdraw")
    }
)


@pytest.mark.parametrize("buffers", CASES)
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32), priorities=st.sampled_from([1, 2, 8]), rate=st.sampled_from(RATES)
)
def test_as_a_naive_scheduler(buffers, seed, priorities, rate):
    arrivals = some_arrivals(np.random.default_rng(seed), 80, priorities)
    expected = naive(rate, PICOSECONDS, priorities, buffers, arrivals)
    manager = on_lines(priorities, rate, buffers)
    got = managed(manager, arrivals)
    assert got == expected
    compiled = on_lines(priorities, rate, buffers)
    assert managed(compiled, arrivals, COMPILED) == expected
    np.testing.assert_array_equal(compiled.queues, manager.queues)
    # Nothing is lost or made, and each queue is first in, first out.
    assert manager.dropped + len(got.left) == len(arrivals)
    words = manager._cells
    assert not words[..., [DEPTH, BYTES]].any()
    assert words[..., DROPS].sum() == len(arrivals) - len(got.left)
    assert words[..., MARKED].sum() == len(got.marked)
    by_queue = {}
    for number in sorted(got.left):
        each = arrivals[number]
        by_queue.setdefault((each.port, each.priority), []).append(got.left[number])
    assert all(times == sorted(times) for times in by_queue.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("set_bit_rate", -1), "the bit rate of a port is 0 to .* not -1"),
        (("set_bit_rate", 1.5), "the bit rate of a port is 1.5; give an integer"),
        (("set_bit_rate", 10**15 + 1), "the bit rate of a port is 0 to 1,000,000,000,000,000"),
        (("set_bit_rate", 1, 512), "an egress port is 0 to 511, not 512"),
        (("set_bit_rate", 1, 1, 0), "the ticks of a second is 1 to 1,000,000,000,000, not 0"),
        (("set_depth_bytes", -1), "the depth of a queue in bytes is 0 to .* not -1"),
        (("set_depth_bytes", 1, 1, 7), "there is no priority 7"),
        (("set_extra_bytes", -1), "the extra bytes of a packet is 0 to 524,288, not -1"),
        (("set_extra_bytes", MOST_EXTRA_BYTES + 1), "the extra bytes of a packet is 0 to 524,288"),
    ],
)
def test_what_no_queue_can_have_is_named_and_changes_nothing(call, message):
    manager = TrafficManager(2)
    before = manager.queues.copy()
    name, *arguments = call
    with pytest.raises(ControlError, match=message):
        getattr(manager, name)(*arguments)
    assert (manager.queues == before).all()
    assert manager.extra_bytes == 0


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("extra", [0, 1000])
def test_programs_see_extra_bytes_and_lines_carry_them(engine, extra):
    """A tick is the time of a byte. Frames of 100 bytes and 24 on the wire, and so many more."""
    switch = Switch.load(program("switch_copies"), engine)
    switch.traffic_manager.set_extra_bytes(extra)
    switch.traffic_manager.set_bit_rate(8 * 10**9)
    plain, longer = bytes([20, *range(99)]), bytes([4, *range(99)])
    switch.commands("mc_mgrp_create 3\nmc_node_create 0 1\nmc_node_associate 3 0")
    received = PacketBatch.from_packets([(0, plain), (0, longer), (0, plain)])
    batch = switch.process_batch(received, times=np.zeros(3, np.int64))
    # The second is longer by the header that ingress added.
    assert batch.time.tolist() == [0, 124 + extra, 250 + 2 * extra]
    lengths = [
        int.from_bytes(data[at : at + 2], "big")
        for at, (_, data) in zip([6, 8, 6], batch.to_packets(), strict=True)
    ]
    assert lengths == [100 + extra, 102 + extra, 100 + extra]
    assert switch.traffic_manager.queue(1).bytes_max == 202 + 2 * extra


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_programs_count_extra_bytes_without_times_too(engine):
    switch = Switch.load(program("fuzz_counters"), engine)
    switch.process([(0, bytes(10))])
    switch.traffic_manager.set_extra_bytes(500)
    switch.process([(0, bytes(10))])
    (counter,) = (
        cells
        for cells, array in zip(switch.state.counters, switch.program.counters, strict=True)
        if array.name.endswith(".both")
    )
    assert counter[0].tolist() == [4, 2 * 10 + 2 * 510]


def test_extra_bytes_stay_while_packets_wait():
    manager = on_lines()
    traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 100)
    with pytest.raises(ControlError, match="counted with 0 extra bytes; let them leave first"):
        manager.set_extra_bytes(1)
    manager.set_extra_bytes(0)
