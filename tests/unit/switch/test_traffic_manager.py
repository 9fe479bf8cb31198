"""Egress queues: BMv2's rules by example and against a naive oracle, compiled code, and errors."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support.queues import DEPTHS, RATES, ManagedQueues, NaiveQueues
from support.switch_cases import program
from support.tiers import examples

from innet.core.errors import ControlError, InputError
from innet.core.settings import PriorityQueues
from innet.switch import Switch, traffic_manager
from innet.switch.traffic_manager import (
    CAPACITY,
    DEFAULT_DEPTH,
    DROPS,
    MAX_PRIORITIES,
    PORTS,
    QUEUE_WORDS,
    SWITCH_WORDS,
    QueueState,
    TrafficManager,
)

SECOND = 10**9


def answers(*lines):
    """What the queues answer to lines of tests/support/queues.py, after 1 s without traffic."""
    return ManagedQueues().run(lines)


def departures(*lines):
    """When packets leave, in milliseconds, by port and packet."""
    (*_, last) = ManagedQueues().run([*lines, f"until {100 * SECOND}"])
    found = [[int(each) for each in word.split(":")] for word in last.split()]
    return [(port, packet, time / 10**6) for port, packet, time in found]


# ── The rules, one by one ──


def test_without_a_rate_packets_leave_at_once_in_order():
    assert departures("new 1", "until 5000000", "push 1 0", "push 1 0", "push 2 0") == [
        (1, 0, 5),
        (1, 1, 5),
        (2, 2, 5),
    ]


def test_the_first_packet_of_a_port_waits_for_an_interval_too():
    """BMv2 makes a port's queues when they are first used, as if a packet had just left each."""
    assert departures("new 1", "rate 10 -1 -1", "push 1 0", "push 1 0") == [
        (1, 0, 100),
        (1, 1, 200),
    ]


@pytest.mark.parametrize("line", ["rate 10 1 -1", "rate 10 1 0", "depth 9 1 -1", "depth 9 1 0"])
def test_a_command_that_names_the_port_makes_its_queues(line):
    """So does one for the other priority, and the time of the first packet counts no more."""
    lines = ["new 2", "rate 10 -1 -1", line, f"until {SECOND}"]
    assert departures(*lines, "push 1 0", "push 1 0") == [(1, 0, 1000), (1, 1, 1100)]


@pytest.mark.parametrize("line", ["rate 10 -1 -1", "depth 9 -1 -1", "rate 10 2 -1", "depth 9 2 0"])
def test_a_command_for_all_ports_or_another_makes_no_queue(line):
    lines = ["new 2", "rate 10 -1 -1", line, f"until {SECOND}"]
    assert departures(*lines, "push 1 0") == [(1, 0, 1100)]


def test_a_packet_of_one_priority_makes_the_queues_of_the_others():
    lines = ["new 2", "rate 10 -1 -1", "push 1 0", f"until {SECOND}", "push 1 1"]
    assert departures(*lines) == [(1, 1, 1000)]


def test_a_packet_that_is_dropped_makes_the_queues_and_sends_nothing():
    lines = ["new 2", "rate 10 -1 -1", "depth 0 -1 -1", "push 1 0", f"until {SECOND}"]
    assert departures(*lines, "depth 5 -1 -1", "push 1 0", "push 1 0") == [
        (1, 1, 1000),
        (1, 2, 1100),
    ]


def test_the_depth_is_what_waits_before_the_packet():
    said = answers("new 1", "rate 1 1 -1", *["push 1 0"] * 3, "until 1000000000", "push 1 0")
    assert said[2:] == ["1 0", "1 1", "1 2", "1:0:1000000000", "1 2"]


def test_a_queue_holds_64_packets_by_default():
    said = answers("new 1", "rate 1 1 -1", *["push 1 0"] * 66)
    assert said[-3:] == ["1 63", "0 64", "0 64"]
    assert DEFAULT_DEPTH == 64


def test_a_queue_of_depth_0_drops_all():
    assert answers("new 1", "depth 0 1 -1", "push 1 0", "push 2 0")[2:] == ["0 0", "1 0"]


def test_packets_that_wait_stay_when_the_depth_is_lowered():
    lines = ["new 1", "rate 1 1 -1", *["push 1 0"] * 3, "depth 1 1 -1", "push 1 0"]
    lines += [f"until {2 * SECOND}", "push 1 0", f"until {3 * SECOND}", "push 1 0"]
    said = answers(*lines)
    assert said[6] == "0 3"
    assert said[8] == "0 1"
    assert said[10] == "1 0"


def test_packets_that_wait_keep_their_departures_when_the_rate_changes():
    lines = ["new 1", "rate 10 1 -1", "push 1 0", "push 1 0", "rate 1000 1 -1", "push 1 0"]
    assert departures(*lines, "rate 0 1 -1", "push 1 0", "rate 1 1 -1", "push 1 0") == [
        (1, 0, 100),
        (1, 1, 200),
        (1, 2, 201),
        (1, 3, 201),
        (1, 4, 1201),
    ]


def test_a_rate_for_all_ports_holds_for_those_that_come_later_and_those_that_had_another():
    lines = ["new 1", "rate 5 1 -1", "rate 10 -1 -1", "push 1 0", "push 2 0"]
    assert departures(*lines) == [(1, 0, 100), (2, 1, 100)]


def test_a_rate_is_that_of_all_ports_of_a_port_or_of_one_priority():
    lines = ["new 2", "rate 10 -1 -1", "rate 5 1 -1", "rate 2 1 1"]
    lines += ["push 1 0", "push 1 1", "push 2 0", "push 2 1"]
    assert sorted(departures(*lines)) == [(1, 0, 200), (1, 1, 500), (2, 2, 100), (2, 3, 100)]


def test_the_higher_priority_leaves_first_of_those_that_are_due():
    lines = ["new 3", "push 1 0", "push 1 2", "push 1 1", "push 1 2"]
    assert [packet for _, packet, _ in departures(*lines)] == [1, 3, 2, 0]


def test_a_priority_that_is_not_due_holds_nothing_up():
    lines = ["new 2", "rate 1 1 1", "push 1 1", "push 1 0"]
    assert departures(*lines) == [(1, 1, 0), (1, 0, 1000)]


def test_a_queue_that_was_idle_owes_nothing():
    """The interval counts from the departure before; it does not add up while nothing comes."""
    lines = ["new 1", "rate 10 1 -1", "push 1 0", f"until {5 * SECOND}", "push 1 0", "push 1 0"]
    assert departures(*lines) == [(1, 1, 5000), (1, 2, 5100)]


@pytest.mark.parametrize(
    ("rate", "interval"),
    # duration_cast<nanoseconds>(duration<double>(1. / pps)), as g++ 13 compiles it
    [
        (1, SECOND),
        (3, 333333333),
        (7, 142857142),
        (93, 10752688),
        (1023, 977517),
        (10007, 99930),
        (10**6 + 3, 999),
        (10**9, 1),
        (10**9 + 1, 0),
        (2**63 - 1, 0),
    ],
)
def test_an_interval_is_cut_to_nanoseconds(rate, interval):
    said = answers("new 1", f"rate {rate} 1 -1", "push 1 0", "push 1 0", f"until {3 * SECOND}")
    assert said[-1] == f"1:0:{interval} 1:1:{2 * interval}"


# ── Against the oracle ──

PRIORITIES = 3
numbers = st.sampled_from([0, 1, 2, 5, 510])
places = st.tuples(numbers, st.integers(0, PRIORITIES - 1))
wheres = st.one_of(places, numbers.map(lambda port: (port, -1)), st.just((-1, -1)))
pauses = st.one_of(st.integers(0, 10), st.integers(0, 3 * SECOND), st.sampled_from([SECOND // 10]))
steps = st.one_of(
    places.map(lambda at: ("push", *at)),
    places.map(lambda at: ("push", *at)),
    pauses.map(lambda pause: ("pause", pause)),
    st.tuples(st.just("depth"), st.sampled_from(DEPTHS), wheres),
    st.tuples(st.just("rate"), st.sampled_from(RATES), wheres),
)


def lines_of(steps):
    now, lines = 0, [f"new {PRIORITIES}"]
    for name, value, *rest in steps:
        if name == "pause":
            now += value
            lines.append(f"until {now}")
        elif name == "push":
            lines.append(f"push {value} {rest[0]}")
        else:
            ((port, priority),) = rest
            lines.append(f"{name} {value} {port} {priority}")
    return [*lines, f"until {now + 1000 * SECOND}"]


def checked(queues, lines):
    """What queues answer; whatever happened, counts fit."""
    found, tried, taken = [], 0, 0
    for line in lines:
        (answer,) = queues.run([line])
        found.append(answer)
        tried += line.startswith("push")
        taken += line.startswith("push") and answer.startswith("1")
    manager = queues.manager
    assert manager.dropped == tried - taken
    assert all(each.depth == 0 for each in manager.used_queues())
    assert sum(each.dropped for each in manager.used_queues()) == manager.dropped
    return found


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(steps, max_size=60))
def test_queues_are_those_of_the_oracle(steps):
    lines = lines_of(steps)
    assert checked(ManagedQueues(), lines) == NaiveQueues().run(lines)


admit, withdraw = njit(traffic_manager.admit), njit(traffic_manager.withdraw)


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(steps, max_size=60))
def test_compiled_queues_are_the_same(steps):
    lines = lines_of(steps)
    assert checked(ManagedQueues(admit, withdraw), lines) == checked(ManagedQueues(), lines)


# ── What is told, and what is refused ──


def test_a_queue_is_told_of():
    queues = ManagedQueues()
    queues.run(["new 2", "rate 7 3 1", "depth 2 3 -1", *["push 3 1"] * 4])
    manager = queues.manager
    waiting = {"bytes": 200, "bytes_max": 200}
    assert manager.queue(3, 1) == QueueState(3, 1, 2, capacity=2, rate=7, dropped=2, **waiting)
    assert manager.queue(3) == QueueState(3, 0, depth=0, capacity=2, rate=0, dropped=0)
    assert manager.queue(4) == QueueState(4, 0, depth=0, capacity=64, rate=0, dropped=0)
    assert manager.used_queues() == [manager.queue(3, 0), manager.queue(3, 1)]
    assert manager.dropped == 2
    manager.reset_drops()
    assert manager.dropped == manager.queue(3, 1).dropped == 0
    assert manager.queue(3, 1).depth == 2


def test_queues_of_a_new_switch_are_unused_and_unlimited():
    switch = Switch.load(program("switch_tables"), "interpret", priority_queues=4)
    manager = switch.traffic_manager
    assert manager.priorities == 4
    assert manager.used_queues() == []
    assert manager.dropped == 0
    cells = manager.queues[:-SWITCH_WORDS].reshape(PORTS, 4, QUEUE_WORDS)
    assert set(np.unique(cells[..., CAPACITY])) == {64}
    assert not cells[..., DROPS].any()


def test_settings_allow_as_many_queues_as_a_port_can_have():
    (limit,) = (each.le for each in get_args(PriorityQueues)[1].metadata if hasattr(each, "le"))
    assert limit == MAX_PRIORITIES


@pytest.mark.parametrize("wrong", [0, -1, 33, 1.0, "2", None, True])
def test_a_number_of_queues_that_no_port_can_have(wrong):
    message = f"1 to 32 priority queues per port, not {wrong}"
    if type(wrong) is not int:
        message = f"the number of priority queues per port is {wrong!r}; give an integer"
    with pytest.raises(InputError, match=message):
        TrafficManager(wrong)


@pytest.mark.parametrize("of", ["depth", "rate"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1,), "the {} of a queue is 0 to .* not -1"),
        ((1.0,), "the {} of a queue is 1.0; give an integer"),
        (("5",), "the {} of a queue is '5'; give an integer"),
        ((2**63,), "the {} of a queue is 0 to .* not 9223372036854775808"),
        ((1, 512), "an egress port is 0 to 511, not 512"),
        ((1, -1), "a port is 0 to .* not -1"),
        ((1, "1"), "a port is '1'; give an integer"),
        ((1, 1, 2), "no priority 2: this switch has 2 queues per port; --priority-queues says"),
        ((1, 1, -1), "a priority is 0 to .* not -1"),
        ((1, None, 1), "the priority of a queue needs a port"),
    ],
)
def test_what_no_queue_has_is_named_and_changes_nothing(of, arguments, message):
    manager = TrafficManager(2)
    before = manager.queues.copy()
    with pytest.raises(ControlError, match=message.format(of)):
        getattr(manager, f"set_{of}")(*arguments)
    assert (manager.queues == before).all()
    assert manager.queue(1, 1).rate == 0


def test_a_queue_that_is_not_there_is_not_told_of():
    manager = TrafficManager()
    with pytest.raises(ControlError, match="no priority 1: this switch has 1 queue per port"):
        manager.queue(0, 1)
    with pytest.raises(ControlError, match="an egress port is 0 to 511, not 600"):
        manager.queue(600)
