"""Transports: order, counting, taps; faults with the stated probabilities and times; the loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError, StalledError
from innet.core.packets import PacketBatch
from innet.network import Direction, Faults, FaultyTransport, Outage, Recorder, drive
from innet.transport.memory import MemoryTransport


def numbered(count: int, port: int = 1, first: int = 0, size: int = 8) -> PacketBatch:
    """``count`` packets that carry their number."""
    data = np.zeros((count, size), np.uint8)
    data[:, :4] = np.arange(first, first + count, dtype=">u4")[:, None].view(np.uint8)
    return PacketBatch.uniform(data, port)


def numbers(batch: PacketBatch) -> list[int]:
    return [int.from_bytes(payload[:4], "big") for _, payload in batch.to_packets()]


def echo(batch: PacketBatch) -> PacketBatch:
    return batch


class Spy:
    """A switch that keeps what it was given and answers to the port one higher."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, batch: PacketBatch) -> PacketBatch:
        self.calls.append(numbers(batch))
        return PacketBatch(batch.data.copy(), batch.length, batch.port + 1)


# ---------------------------------------------------------------- in memory


def test_memory_keeps_order_and_counts() -> None:
    spy = Spy()
    transport = MemoryTransport(spy, [1, 2, 3])
    transport.send(numbered(3, port=1), 0.0)
    transport.send(numbered(2, port=2, first=3, size=10), 0.0)
    arrived = transport.receive(0.0)
    assert numbers(arrived) == [0, 1, 2, 3, 4]
    assert arrived.port.tolist() == [2, 2, 2, 3, 3]
    assert arrived.length.tolist() == [8, 8, 8, 10, 10]
    assert transport.to_switch.packets.tolist() == [0, 3, 2, 0]
    assert transport.to_switch.bytes.tolist() == [0, 24, 20, 0]
    assert transport.to_hosts.packets.tolist() == [0, 0, 3, 2]
    assert transport.to_hosts.bytes.tolist() == [0, 0, 24, 20]
    assert transport.undelivered == 0
    assert len(transport.receive(0.0)) == 0
    assert spy.calls == [[0, 1, 2, 3, 4]]  # small batches share a call


def test_memory_drops_and_counts_what_leaves_at_other_ports() -> None:
    transport = MemoryTransport(Spy(), [2, 5])
    transport.send(PacketBatch.concatenate([numbered(2, 5), numbered(3, 2, 2)]), 0.0)
    assert len(transport.receive(0.0)) == 0
    assert transport.undelivered == 5
    negative = MemoryTransport(
        lambda batch: PacketBatch(batch.data, batch.length, batch.port - 9), [2]
    )
    negative.send(numbered(1, 2), 0.0)
    assert len(negative.receive(0.0)) == 0
    assert negative.undelivered == 1


def test_memory_gives_large_batches_as_they_are() -> None:
    seen = []

    def switch(batch: PacketBatch) -> PacketBatch:
        seen.append(batch)
        return batch

    transport = MemoryTransport(switch, [1])
    large = numbered(5000)
    for batch in (numbered(1), numbered(1, first=1), large, numbered(2)):
        transport.send(batch, 0.0)
    together = numbers(transport.receive(0.0))
    assert together == [0, 1, *range(5000), 0, 1]
    assert [len(batch) for batch in seen] == [5002, 2]
    transport.send(large, 0.0)
    transport.receive(0.0)
    assert seen[2].data is large.data


def test_memory_time_stands_still_while_something_is_to_be_done() -> None:
    transport = MemoryTransport(echo, [1])
    assert transport.wait(1.0, 5.0) == 5.0
    assert transport.wait(1.0, math.inf) == math.inf
    assert transport.wait(6.0, 5.0) == 6.0
    transport.send(numbered(0), 0.0)
    assert transport.wait(1.0, 5.0) == 5.0
    transport.send(numbered(1), 0.0)
    assert transport.wait(1.0, 5.0) == 1.0


@pytest.mark.parametrize("ports", [[], [1, 1], [-1], [0, 511]])
def test_impossible_ports_are_refused(ports: list[int]) -> None:
    with pytest.raises(InputError, match="ports are"):
        MemoryTransport(echo, ports)


@pytest.mark.parametrize("port", [0, 2, 4, -1])
def test_sending_from_nowhere_is_refused(port: int) -> None:
    transport = MemoryTransport(echo, [1, 3])
    with pytest.raises(InputError, match=rf"attached to port {port}; hosts are at \[1, 3\]"):
        transport.send(PacketBatch.concatenate([numbered(1), numbered(1, port)]), 0.0)
    assert transport.to_switch.packets.sum() == 0


def test_recorder_keeps_a_round_in_order() -> None:
    recorder = Recorder(limit=5)
    transport = MemoryTransport(echo, [1], tap=recorder)
    transport.send(numbered(2), 1.5)
    transport.receive(2.5)
    transport.send(numbered(4, first=7), 3.5)
    transport.tap = None
    transport.receive(4.5)
    assert numbers(recorder.packets()) == [0, 1, 0, 1, 7]
    assert recorder.times().tolist() == [1.5, 1.5, 2.5, 2.5, 3.5]
    assert recorder.to_switch().tolist() == [True, True, False, False, True]
    assert (len(recorder), recorder.missed) == (5, 3)


def test_recorder_copies_and_may_be_empty() -> None:
    recorder = Recorder()
    assert len(recorder.packets()) == len(recorder.times()) == len(recorder.to_switch()) == 0
    batch = numbered(2)
    recorder(Direction.TO_HOST, batch, 0.0)
    batch.data[:] = 255
    assert numbers(recorder.packets()) == [0, 1]
    with pytest.raises(InputError):
        Recorder(-1)


# ---------------------------------------------------------------- faults


def faulty(faults: Faults, seed: int = 0, to_hosts: Faults | None = None) -> FaultyTransport:
    inner = MemoryTransport(echo, [1, 2, 3])
    return FaultyTransport(inner, faults, np.random.default_rng(seed), to_hosts)


def until_empty(transport: FaultyTransport) -> list[tuple[float, int]]:
    """(time of arrival, number) of all that arrives."""
    seen, now = [], 0.0
    while not math.isinf(now):
        seen += [(now, number) for number in numbers(transport.receive(now))]
        now = transport.wait(now, math.inf)
    return seen


def test_no_faults_change_nothing() -> None:
    transport = faulty(Faults())
    batch = PacketBatch.concatenate([numbered(50, 1), numbered(50, 2, 50, size=20)])
    transport.send(batch, 0.0)
    assert transport.receive(0.0).to_packets() == batch.to_packets()
    assert until_empty(transport) == []


def test_all_lost_and_all_doubled() -> None:
    transport = faulty(Faults(loss=1.0, duplicate=1.0))
    transport.send(numbered(100), 0.0)
    assert until_empty(transport) == []
    assert transport.to_switch_faults.lost == 100
    assert transport.to_switch_faults.duplicated == 0
    transport = faulty(Faults(duplicate=1.0), to_hosts=Faults())
    transport.send(numbered(3), 0.0)
    assert until_empty(transport) == [(0.0, number) for number in (0, 0, 1, 1, 2, 2)]
    assert transport.to_switch_faults.duplicated == 3
    assert (transport.to_hosts_faults.entered, transport.to_hosts_faults.duplicated) == (6, 0)


def test_delay_is_exact_each_way() -> None:
    transport = faulty(Faults(delay=0.25), to_hosts=Faults(delay=0.5))
    transport.send(numbered(2), 1.0)
    assert transport.wait(1.0, 9.0) == pytest.approx(1.25)
    assert transport.wait(1.0, 1.125) == 1.125
    assert [number for _, number in until_empty(transport)] == [0, 1]
    transport.send(numbered(1), 2.0)
    times = [time for time, _ in until_empty(transport)]
    assert times == pytest.approx([2.75])


def test_jitter_and_hold_stay_in_their_bounds_and_reorder() -> None:
    transport = faulty(Faults(delay=1.0, jitter=0.5, tick=0.0), to_hosts=Faults())
    transport.send(numbered(1000), 0.0)
    seen = until_empty(transport)
    times = [time for time, _ in seen]
    assert 1.0 <= min(times) < 1.01
    assert 1.49 < max(times) <= 1.5
    assert sorted(number for _, number in seen) == list(range(1000)) != [n for _, n in seen]

    transport = faulty(Faults(reorder=0.25, hold=2.0, tick=0.0), to_hosts=Faults())
    transport.send(numbered(1000), 0.0)
    seen = until_empty(transport)
    held = [time for time, _ in seen if time > 0]
    assert transport.to_switch_faults.held == len(held)
    assert 200 < len(held) < 300
    assert 1.9 < max(held) <= 2.0


def test_probabilities_are_met() -> None:
    transport = faulty(Faults(loss=0.3, duplicate=0.2), to_hosts=Faults())
    transport.send(numbered(20000), 0.0)
    until_empty(transport)
    counters = transport.to_switch_faults
    # Five standard deviations of the binomial distribution.
    assert abs(counters.lost - 6000) < 5 * math.sqrt(20000 * 0.3 * 0.7)
    survived = 20000 - counters.lost
    assert abs(counters.duplicated - 0.2 * survived) < 5 * math.sqrt(survived * 0.2 * 0.8)
    assert counters.arrived == survived + counters.duplicated


def test_ticks_gather_arrivals_and_never_hasten_them() -> None:
    exact = faulty(Faults(jitter=1.0, tick=0.0), to_hosts=Faults(tick=0.0))
    coarse = faulty(Faults(jitter=1.0, tick=0.125), to_hosts=Faults(tick=0.0))
    for transport in (exact, coarse):
        transport.send(numbered(200), 0.0)
    due = {number: time for time, number in until_empty(exact)}
    rounded = {number: time for time, number in until_empty(coarse)}
    assert set(rounded.values()) <= {0.125 * step for step in range(1, 9)}
    assert all(0 <= rounded[number] - due[number] < 0.125 for number in due)


def test_later_packets_overtake_held_ones_across_sends() -> None:
    transport = faulty(Faults(reorder=0.5, hold=1.0, tick=0.0), seed=3, to_hosts=Faults(tick=0.0))
    for turn in range(50):
        transport.send(numbered(4, first=4 * turn), turn * 0.01)
    order = [number for _, number in until_empty(transport)]
    assert sorted(order) == list(range(200))
    latest = max(order.index(number) - number for number in range(200))
    assert latest > 40  # ten sends later


@given(st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_equal_seeds_give_equal_fates(
    seed: int, loss: float, duplicate: float, reorder: float
) -> None:
    faults = Faults(loss=loss, duplicate=duplicate, reorder=reorder, jitter=0.01)
    runs = []
    for _ in range(2):
        transport = faulty(faults, seed)
        transport.send(numbered(20), 0.0)
        transport.send(numbered(20, 2, 20), 0.003)
        runs.append(until_empty(transport))
    assert runs[0] == runs[1]


def test_settings_do_not_change_each_others_random_numbers() -> None:
    survivors = []
    for duplicate in (0.0, 1.0):
        transport = faulty(Faults(loss=0.5, duplicate=duplicate), seed=7, to_hosts=Faults())
        transport.send(numbered(200), 0.0)
        survivors.append({number for _, number in until_empty(transport)})
    assert survivors[0] == survivors[1]
    assert 50 < len(survivors[0]) < 150


@pytest.mark.parametrize("name", ["loss", "duplicate", "reorder"])
@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_impossible_probabilities_are_refused(name: str, wrong: float) -> None:
    with pytest.raises(InputError, match=f"{name} is {wrong}; a probability"):
        Faults(**{name: wrong})


@pytest.mark.parametrize("name", ["delay", "jitter", "hold", "tick"])
@pytest.mark.parametrize("wrong", [-0.1, math.inf, math.nan])
def test_impossible_durations_are_refused(name: str, wrong: float) -> None:
    with pytest.raises(InputError, match=f"{name} is {wrong} s"):
        Faults(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong", "remedy"),
    [
        ("loss", "0.1", "loss is '0.1'; a probability"),
        ("mark", None, "mark is None; a probability"),
        ("reorder", True, "reorder is True; a probability"),
        ("delay", "1", "delay is '1' s; give 0 or a positive number"),
        ("restarts", 0.1, "restarts is 0.1; give a tuple"),
        ("restarts", ("0.1",), "a restart at '0.1' s; give 0 or a positive number"),
        ("outages", Outage(0, 1), r"outages is Outage\(.*; give a tuple"),
        ("outages", ((0, 1),), r"an outage is \(0, 1\); give innet.network.Outage"),
    ],
)
def test_faults_of_another_type_are_refused(name: str, wrong: object, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        Faults(**{name: wrong})


def test_an_outage_has_numbers() -> None:
    with pytest.raises(InputError, match="an outage from '0' to 1 s"):
        Outage("0", 1)


def test_numbers_of_numpy_are_numbers() -> None:
    assert Faults(loss=np.float32(0.5), restarts=np.array([0.5])).loss == 0.5


# ---------------------------------------------------------------- the loop


class Caller:
    """Sends one packet per second until ``wanted`` came back."""

    def __init__(self, wanted: int, timed: bool = True) -> None:
        self.wanted = wanted
        self.timed = timed
        self.arrivals: list[tuple[float, list[int]]] = []
        self.due = 0.0

    @property
    def done(self) -> bool:
        return sum(len(found) for _, found in self.arrivals) >= self.wanted

    def outgoing(self, now: float) -> np.ndarray:
        if now < self.due:
            return np.empty((0, 8), np.uint8)
        self.due += 1.0
        return numbered(1, first=int(now)).data

    def receive(self, packets: PacketBatch, now: float) -> int:
        self.arrivals.append((now, numbers(packets)))
        return len(packets)

    def next_deadline(self) -> float | None:
        return self.due if self.timed else None


def test_drive_steps_from_event_to_event() -> None:
    hosts = {1: Caller(3), 3: Caller(2)}
    transport = faulty(Faults(delay=0.125, tick=0.0), to_hosts=Faults(delay=0.25, tick=0.0))
    assert drive(hosts, transport, 0.0) == 2.375
    assert hosts[1].arrivals == [(0.375, [0]), (1.375, [1]), (2.375, [2])]
    assert hosts[3].arrivals == [(0.375, [0]), (1.375, [1]), (2.375, [2])]


def test_drive_starts_at_the_given_time_and_ends_at_once_if_all_are_done() -> None:
    assert drive({1: Caller(0)}, MemoryTransport(echo, [1]), 17.0) == 17.0
    assert drive({}, MemoryTransport(echo, [1]), 17.0) == 17.0


def test_drive_lets_packets_for_absent_hosts_vanish() -> None:
    transport = MemoryTransport(Spy(), [1, 2])
    transport.send(numbered(1), 0.0)
    assert drive({1: Caller(0)}, transport, 0.0) == 0.0


def test_drive_does_not_wait_for_nothing() -> None:
    transport = MemoryTransport(lambda batch: batch.take(np.zeros(len(batch), np.bool_)), [1, 2])
    with pytest.raises(StalledError, match="the hosts at ports 2 are not done"):
        drive({1: Caller(0, timed=False), 2: Caller(1, timed=False)}, transport, 0.0)


def test_a_host_that_only_asks_for_its_turn_does_not_hang_the_loop() -> None:
    class Idle:
        done = False

        def outgoing(self, now: float) -> np.ndarray:
            return np.empty((0, 64), np.uint8)

        def receive(self, packets: PacketBatch, now: float) -> int:
            return 0

        def next_deadline(self) -> float:
            return 0.0

    transport = MemoryTransport(lambda packets: packets, [3])
    with pytest.raises(StalledError, match="hosts at ports 3 ask for a turn"):
        drive({3: Idle()}, transport, 0.0)
