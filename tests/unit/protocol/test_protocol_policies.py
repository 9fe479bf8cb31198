"""The worker's policies: adaptive timers, a window that congestion shrinks, partial results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.slot_oracle import LATE, SlotOracle
from support.tiers import seeds

from innet.core.errors import InputError, StalledError, StateError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults, FaultyTransport, drive
from innet.protocol import JobMembership, SlotClient, Timing
from innet.protocol.admission import Job, WorkerPort
from innet.protocol.slot_client import HashedClient, Window
from innet.protocol.timers import PROBES, RoundTrip
from innet.transport.memory import MemoryTransport
from innet.wire import (
    CONGESTED,
    Endpoint,
    Frames,
    HeaderFlag,
    PacketLayout,
    internet_checksum,
    pack,
    parse_strict,
)

LAYOUT = PacketLayout(4)


def worker_of(
    timing: Timing, worker: int = 0, workers: int = 2, window: int = 8, framing: str = "udp"
) -> SlotClient:
    return SlotClient(
        PacketLayout(4, framing),
        JobMembership(worker, workers, job=7, epoch=3, window=window),
        source=Endpoint.of_worker(worker),
        switch=Endpoint.of_switch(),
        timing=timing,
    )


def result(chunk: int, window: int = 8, worker: int = 0, framing: str = "udp", **more: int):
    fields = {"flags": HeaderFlag.RESULT, "bitmap": 3, "count": 2, **more}
    return pack(
        PacketLayout(4, framing),
        Endpoint.of_switch(),
        Endpoint.of_worker(worker),
        np.zeros((1, 4), np.int32),
        operation=ReduceOp.SUM,
        job=7,
        epoch=3,
        sequence=chunk + 1,
        slot=chunk % window,
        slot_version=chunk // window % 2,
        worker=worker,
        **fields,
    )


def words(chunks: int) -> list[Segment]:
    return [Segment(ReduceOp.SUM, np.arange(4 * chunks, dtype=np.int32))]


# ---------------------------------------------------------------- timers


def chunks_of(frames: Frames) -> list[int]:
    return [int(each) - 1 for each in LAYOUT.view(frames)["innet"]["sequence"]]


def test_an_overtaken_chunk_is_sent_again_before_its_time_out() -> None:
    worker = worker_of(Timing(timeout=5.0, max_timeout=5.0, adaptive=False, reordering=0.5))
    worker.start(words(8), 0.0)
    assert chunks_of(worker.outgoing(0.0)) == list(range(8))
    worker.receive(np.concatenate([result(0), result(4)]), 1.0)
    assert chunks_of(worker.outgoing(1.0)) == []
    assert worker.next_deadline() == 1.5
    worker.receive(result(3), 1.2)  # it was only late
    assert chunks_of(worker.outgoing(1.5)) == [1, 2]
    assert worker.next_deadline() == 5.0  # those after them were overtaken by nothing
    worker.receive(np.concatenate([result(5), result(6)]), 1.6)  # sent before 1 and 2 were again
    assert chunks_of(worker.outgoing(2.5)) == []
    assert worker.next_deadline() == 5.0
    assert chunks_of(worker.outgoing(5.0)) == [7]
    assert worker.next_deadline() == 6.5  # a time-out after they were sent again, no longer


def test_a_chunk_that_is_lost_again_is_overtaken_again() -> None:
    worker = worker_of(
        Timing(timeout=5.0, max_timeout=5.0, adaptive=False, reordering=0.5), window=2
    )
    worker.start(words(8), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(1, window=2), 1.0)
    assert chunks_of(worker.outgoing(1.0)) == [3]
    assert chunks_of(worker.outgoing(1.5)) == [0]
    worker.receive(result(3, window=2), 2.0)  # it was sent before
    assert chunks_of(worker.outgoing(2.0)) == [5]
    assert worker.next_deadline() == 6.5
    worker.receive(result(5, window=2), 3.0)  # but this one was sent after it
    worker.outgoing(3.0)
    assert chunks_of(worker.outgoing(3.5)) == [0]


def test_what_a_time_out_sends_again_waits_longer_though_it_was_as_short_as_reordering() -> None:
    worker = worker_of(Timing(timeout=0.5, adaptive=False, reordering=0.5))
    worker.start(words(1), 0.0)
    worker.outgoing(0.0)
    assert chunks_of(worker.outgoing(0.5)) == [0]
    assert worker.next_deadline() == 1.5


def test_many_overtaken_chunks_need_no_sign_of_life() -> None:
    worker = worker_of(
        Timing(timeout=5.0, max_timeout=5.0, adaptive=False, reordering=0.5), window=32
    )
    worker.start(words(32), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(31, window=32), 0.1)
    assert chunks_of(worker.outgoing(0.6)) == list(range(31))
    assert len(range(31)) > PROBES


def test_an_overtaken_chunk_waits_no_longer_than_one_that_is_not() -> None:
    """Nor does one that was held back in a silence, which has no time-out of its own."""
    worker = worker_of(
        Timing(timeout=0.5, max_timeout=1.0, adaptive=False, reordering=100.0), window=32
    )
    worker.start(words(32), 0.0)
    worker.outgoing(0.0)
    assert chunks_of(worker.outgoing(0.5)) == list(range(PROBES))
    worker.receive(result(31, window=32), 0.6)
    assert chunks_of(worker.outgoing(1.1)) == list(range(PROBES, 31))


def test_the_last_chunk_is_sent_again_early_to_find_what_was_lost() -> None:
    worker = worker_of(
        Timing(timeout=5.0, max_timeout=5.0, adaptive=False, reordering=0.5, tail_probe=1.0),
        window=4,
    )
    worker.start(words(6), 0.0)
    assert chunks_of(worker.outgoing(0.0)) == [0, 1, 2, 3]
    assert worker.next_deadline() == 5.0
    worker.receive(np.concatenate([result(0, window=4), result(1, window=4)]), 1.0)
    assert chunks_of(worker.outgoing(1.0)) == [4, 5]
    assert chunks_of(worker.outgoing(2.0)) == [5]
    assert worker.next_deadline() == 5.0  # and then waits for its time-out
    assert worker._timers.resend_at.max() == 7.0
    worker.receive(result(5, window=4), 2.1)  # which time's cannot be known: it was sent after 4
    assert sorted(chunks_of(worker.outgoing(2.6))) == [2, 3, 4]
    worker.receive(np.concatenate([result(each, window=4) for each in (2, 3, 4)]), 3.0)
    assert worker.done
    worker.start(words(1), 10.0)
    worker.outgoing(10.0)
    assert chunks_of(worker.outgoing(11.0)) == [6]


def test_a_probe_waits_for_two_round_trips_and_no_longer_than_a_time_out() -> None:
    trip = RoundTrip(Timing(timeout=1.0, min_timeout=1.0, max_timeout=2.0, tail_probe=0.1))
    assert trip.probe == 1.0  # it may be a long one
    trip.measured(0.02)
    assert trip.probe == 0.1
    trip.measured(0.02 + 8 * 0.18)
    assert trip.probe == pytest.approx(0.4)
    trip.measured(0.9)
    assert trip.probe == pytest.approx(2 * (0.2 * 7 / 8 + 0.9 / 8))
    for _ in range(99):
        trip.measured(0.9)
    assert trip.probe == trip.timeout
    assert RoundTrip(Timing(timeout=1.0, adaptive=False, tail_probe=0.1)).probe == 0.1
    assert RoundTrip(Timing(timeout=1.0, adaptive=False, tail_probe=3.0)).probe == 1.0
    assert RoundTrip(Timing(timeout=1.0)).probe == 1.0


def test_without_an_expected_order_nothing_is_overtaken() -> None:
    for worker in (
        worker_of(Timing(timeout=5.0, max_timeout=5.0, adaptive=False)),
        HashedClient(
            LAYOUT,
            JobMembership(0, 2, job=7, epoch=3, window=8),
            source=Endpoint.of_worker(0),
            switch=Endpoint.of_switch(),
            timing=Timing(
                timeout=5.0, max_timeout=5.0, adaptive=False, reordering=0.5, tail_probe=0.5
            ),
        ),
    ):
        worker.start(words(8), 0.0)
        worker.outgoing(0.0)
        worker.receive(result(7), 1.0)
        assert worker.next_deadline() == 5.0


def test_round_trip_follows_rfc_6298() -> None:
    trip = RoundTrip(Timing(timeout=1.0, min_timeout=0.01, max_timeout=10.0))
    assert trip.timeout == 1.0
    trip.measured(0.5)  # section 2.2: SRTT = R, RTTVAR = R / 2
    assert (trip.mean, trip.deviation, trip.timeout) == (0.5, 0.25, 1.5)
    trip.measured(0.7)  # section 2.3: RTTVAR first, with the old SRTT
    assert trip.deviation == pytest.approx(0.75 * 0.25 + 0.25 * 0.2)
    assert trip.mean == pytest.approx(0.875 * 0.5 + 0.125 * 0.7)
    assert trip.timeout == pytest.approx(trip.mean + 4 * trip.deviation)


@given(st.lists(st.floats(0, 100), max_size=50))
def test_timeouts_stay_between_their_bounds(measured: list[float]) -> None:
    timing = Timing(timeout=0.5, min_timeout=0.01, max_timeout=2.0)
    trip = RoundTrip(timing)
    for seconds in measured:
        trip.measured(seconds)
        assert 0.01 <= trip.timeout <= 2.0


def test_timeouts_shrink_to_a_steady_round_trip() -> None:
    trip = RoundTrip(Timing(timeout=1.0))
    for _ in range(100):
        trip.measured(0.02)
    assert 0.02 <= trip.timeout < 0.0201


def test_chunks_that_were_sent_twice_are_not_measured() -> None:
    """Karn's algorithm: nobody knows which of the transmissions was answered."""
    worker = worker_of(Timing(timeout=1.0), window=2)
    worker.start(words(4), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(1, 2), 0.5)
    assert worker.round_trip.mean == 0.5
    worker.outgoing(0.5)
    while worker.counters.retransmissions < 2:
        worker.outgoing(now := worker.next_deadline())
    worker.receive(np.concatenate([result(0, 2), result(3, 2)]), now + 0.001)
    assert worker.round_trip.mean == 0.5


def test_of_chunks_that_came_together_the_longest_wait_is_measured() -> None:
    worker = worker_of(Timing(timeout=1.0), window=2)
    worker.start(words(4), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(0, 2), 0.2)
    worker.outgoing(0.2)
    worker.receive(np.concatenate([result(2, 2), result(1, 2)]), 0.6)
    assert worker.round_trip.mean == pytest.approx(0.875 * 0.2 + 0.125 * 0.6)


def test_peers_that_come_late_are_no_slow_network() -> None:
    worker = worker_of(Timing(timeout=1.0, min_timeout=0.01), window=2)
    worker.start(words(4), 0.0)
    worker.outgoing(0.0)
    for chunk in (0, 1):
        worker.receive(result(chunk, 2), 3.0)  # the first ones, beyond the time-out
    assert worker.round_trip.mean is None
    worker.outgoing(3.0)
    worker.receive(result(2, 2), 4.5)  # sent when the others were there
    assert worker.round_trip.mean == 1.5


WIDE = 64  # slots


def late_worker(partial_after: float | None = None) -> SlotClient:
    """One that has sent a window of chunks at 0 s, whose peers have not begun."""
    timing = Timing(timeout=1.0, max_timeout=4.0, adaptive=False, partial_after=partial_after)
    worker = worker_of(timing, window=WIDE)
    worker.start(words(2 * WIDE), 0.0)
    assert len(worker.outgoing(0.0)) == WIDE
    assert worker.next_deadline() == 1.0
    return worker


def sequences(frames: np.ndarray) -> list[int]:
    return parse_strict(LAYOUT, frames).header["sequence"].tolist()


def test_into_a_silence_only_the_oldest_chunks_are_sent_again() -> None:
    worker = late_worker()
    for due in (1.0, 3.0, 7.0, 11.0):  # each twice as long as before, at most 4 s
        assert worker.next_deadline() == due
        assert sequences(worker.outgoing(due)) == list(range(1, PROBES + 1))
        assert not len(worker.outgoing(due))
    assert worker.counters.retransmissions == 4 * PROBES


def test_the_others_follow_a_time_out_after_the_first_sign_of_life() -> None:
    worker = late_worker()
    worker.outgoing(1.0)
    worker.receive(result(3, WIDE), 2.5)
    assert sequences(worker.outgoing(2.5)) == [3 + WIDE + 1]
    # The probes as before, and all that waited with them.
    assert sequences(worker.outgoing(3.0)) == [1, 2, 3, *range(5, PROBES + 1)]
    worker.receive(result(0, WIDE), 3.2)
    assert sequences(worker.outgoing(3.2)) == [WIDE + 1]
    assert sequences(worker.outgoing(3.5)) == [3 + WIDE + 1, *range(PROBES + 1, WIDE + 1)]


def test_where_the_others_are_silent_again_their_oldest_go_first() -> None:
    worker = late_worker()
    worker.outgoing(1.0)
    worker.receive(result(3, WIDE), 2.5)
    worker.outgoing(2.5)
    worker.outgoing(3.0)
    assert sequences(worker.outgoing(3.5)) == list(range(PROBES + 1, 2 * PROBES + 1))


def test_results_that_have_begun_to_come_have_a_time_out_to_go_on() -> None:
    worker = late_worker()
    worker.receive(result(WIDE - 1, WIDE), 0.9)
    worker.outgoing(0.9)
    assert sequences(worker.outgoing(1.0)) == list(range(1, PROBES + 1))
    worker.receive(result(0, WIDE), 1.5)
    worker.outgoing(1.5)
    assert worker.next_deadline() == pytest.approx(1.9)
    late = sequences(worker.outgoing(1.9))
    assert late == [*range(PROBES + 1, WIDE), 2 * WIDE]


def test_each_chunk_asks_for_what_is_there() -> None:
    worker = late_worker(partial_after=2.5)
    worker.outgoing(1.0)
    assert worker.next_deadline() == 2.5
    flags = parse_strict(LAYOUT, worker.outgoing(2.5)).header["flags"]
    assert len(flags) == WIDE
    assert (flags & HeaderFlag.PARTIAL).all()


@pytest.mark.parametrize("begun", [0.0, 0.3, 0.7])  # moments are rounded as they may
def test_half_as_long_again_another_level_is_asked(begun: float) -> None:
    worker = worker_of(Timing(timeout=1.0, adaptive=False, partial_after=0.05), window=1)
    worker.start(words(1), begun)
    worker.outgoing(begun)
    for level in range(4):
        due = worker.next_deadline()
        assert due == pytest.approx(begun + 0.05 * (1 + level / 2))
        (flags,) = parse_strict(LAYOUT, worker.outgoing(due)).header["flags"]
        assert flags == HeaderFlag.RESEND | HeaderFlag.PARTIAL | level << 6
    assert worker.next_deadline() == pytest.approx(due + 1.0)  # nobody is left to be asked


def test_fixed_timers_do_not_learn() -> None:
    trip = RoundTrip(Timing(timeout=1.0, adaptive=False))
    trip.measured(0.001)
    assert trip.timeout == 1.0


def test_the_next_chunk_waits_as_long_as_was_learnt() -> None:
    worker = worker_of(Timing(timeout=1.0, min_timeout=0.01), window=1)
    worker.start(words(3), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(0, 1), 0.1)
    worker.outgoing(0.1)
    assert worker.round_trip.timeout == pytest.approx(0.3)
    assert worker.next_deadline() == pytest.approx(0.4)


# ---------------------------------------------------------------- the window


def test_window_halves_once_for_a_window_with_marks_and_grows_by_one_without() -> None:
    window = Window(64, "aimd")
    window.heard(64, 10, next_chunk=64)
    assert (window.size, window.halvings) == (32, 1)
    window.heard(20, 63, next_chunk=96)  # these were under way when it was halved
    assert (window.size, window.halvings) == (32, 1)
    for _ in range(32):
        window.heard(1, None, next_chunk=128)
    assert window.size == 32
    window.heard(1, None, next_chunk=128)
    assert window.size == 33
    for chunk in range(200, 300):
        window.heard(1, chunk, next_chunk=chunk + 1)
    assert window.size == 1


def test_fixed_window_ignores_marks() -> None:
    window = Window(64, "fixed")
    window.heard(64, 10, next_chunk=64)
    assert (window.size, window.halvings) == (64, 0)


@pytest.mark.parametrize("how", ["flag", "ip"])
def test_marked_results_shrink_what_is_under_way(how: str) -> None:
    worker = worker_of(Timing(window_control="aimd"))
    worker.start(words(40), 0.0)
    assert len(worker.outgoing(0.0)) == 8

    def marked(chunk: int) -> np.ndarray:
        frame = result(chunk, flags=HeaderFlag.RESULT | (HeaderFlag.ECN if how == "flag" else 0))
        if how == "ip":
            ipv4 = LAYOUT.view(frame)["ipv4"]
            ipv4["tos"], ipv4["checksum"] = CONGESTED, 0
            ipv4["checksum"] = internet_checksum(ipv4[:, None].view(np.uint8))
        return frame

    worker.receive(marked(0), 0.0)
    assert worker.window.size == 4
    assert not len(worker.outgoing(0.0))  # seven are under way
    deadline = worker.next_deadline()
    assert deadline is not None
    assert deadline > 0.0  # nothing to do until a timer runs out
    for chunk in (3, 2, 1):  # under way when the window shrank: their marks say nothing new
        worker.receive(marked(chunk), 0.0)
        assert not len(worker.outgoing(0.0))
    worker.receive(result(4), 0.0)
    assert (worker.window.size, worker.window.halvings) == (4, 1)
    frames = worker.outgoing(0.0)
    # The oldest of those that wait for their turn goes first.
    assert parse_strict(LAYOUT, frames).header["sequence"].tolist() == [9]
    worker.receive(marked(8), 0.0)  # it went when the window was small already
    assert (worker.window.size, worker.window.halvings) == (2, 2)


def test_the_oldest_chunk_is_sent_though_newer_ones_fill_the_window() -> None:
    """Others may have it under way and none of the newer ones: each would wait for the other."""
    worker = worker_of(Timing(window_control="aimd"), window=2)
    worker.start(words(8), 0.0)
    worker.outgoing(0.0)
    worker.receive(result(1, window=2), 0.0)
    assert chunks_of(worker.outgoing(0.0)) == [3]
    worker.receive(result(0, window=2, flags=HeaderFlag.RESULT | HeaderFlag.ECN), 0.0)
    assert worker.window.size == 1
    assert worker.next_deadline() == 0.0
    assert chunks_of(worker.outgoing(0.0)) == [2]
    worker.receive(result(2, window=2, flags=HeaderFlag.RESULT | HeaderFlag.ECN), 0.0)
    assert chunks_of(worker.outgoing(0.0)) == []  # now the oldest one is under way


@pytest.mark.parametrize("seed", seeds(5))
def test_aimd_workers_finish_where_results_are_marked_and_lost(seed: int) -> None:
    rack = Rack(3, Timing(timeout=0.01, give_up=5.0, window_control="aimd"))
    faults = Faults(loss=0.02, mark=0.2)
    rack.transport = FaultyTransport(rack.transport, faults, np.random.default_rng(seed))
    rack.reduce(400, [0, 1, 2])
    for worker in rack.workers:
        assert worker.window.halvings > 10
        np.testing.assert_array_equal(worker.results()[0], 3 * np.arange(1600))


def test_only_who_adapts_says_that_it_listens() -> None:
    for control, tos in (("fixed", 0), ("aimd", 2)):
        worker = worker_of(Timing(window_control=control))
        worker.start(words(1), 0.0)
        assert parse_strict(LAYOUT, worker.outgoing(0.0)).frames["ipv4"]["tos"].tolist() == [tos]


def test_aimd_workers_of_different_windows_finish() -> None:
    """One hears of congestion all the time, the others never: no deadlock, exact sums."""
    rack = Rack(3, Timing(timeout=0.01, window_control="aimd"))
    inner = rack.switch.process
    window = rack.workers[1].window

    def marking(packets: PacketBatch) -> PacketBatch:
        answers = inner(packets)
        data = answers.data.copy()
        rows = answers.port == 2
        data[rows, 15] = CONGESTED
        data[rows, 24:26] = 0
        sums = internet_checksum(np.ascontiguousarray(data[rows, 14:34]))
        data[rows, 24], data[rows, 25] = sums >> 8, sums & 0xFF
        return PacketBatch(data, answers.length, answers.port)

    rack.transport = MemoryTransport(marking, [1, 2, 3])
    rack.reduce(100, [0, 1, 2])
    assert window.size == 1
    assert rack.workers[0].window.size == 8


# ---------------------------------------------------------------- partial results


class Rack:
    """Workers around the switch's oracle; those who are not driven are dead."""

    def __init__(self, workers: int, timing: Timing) -> None:
        members = [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(workers)]
        self.job = Job(members, number=7, epoch=3, slots=8)
        self.switch = SlotOracle(4, self.job.commands())
        self.transport = MemoryTransport(self.switch.process, range(1, workers + 1))
        self.workers = [worker_of(timing, i, workers) for i in range(workers)]
        self.now = 0.0

    def reduce(self, chunks: int, alive: list[int]) -> None:
        for worker in self.workers:
            worker.start(words(chunks), self.now)
        driven = {index + 1: self.workers[index] for index in alive}
        self.now = drive(driven, self.transport, self.now)


def test_the_others_go_on_without_a_dead_worker() -> None:
    rack = Rack(3, Timing(timeout=0.01, partial_after=0.05))
    rack.reduce(20, [0, 2])
    expected = 2 * np.arange(80)
    for index in (0, 2):
        worker = rack.workers[index]
        assert worker.missing == (1,)
        assert worker.bitmaps.tolist() == [0b101] * 20
        assert worker.result_flags & HeaderFlag.PARTIAL
        np.testing.assert_array_equal(worker.results()[0], expected)
    assert rack.now >= 0.05


class Dying:
    """A worker that dies after so many turns to send."""

    def __init__(self, worker: SlotClient, turns: int) -> None:
        self._worker = worker
        self._turns = turns

    @property
    def done(self) -> bool:
        return self._turns == 0

    def outgoing(self, now: float) -> Frames:
        if self.done:
            return np.empty((0, LAYOUT.frame_size), np.uint8)
        self._turns -= 1
        return self._worker.outgoing(now)

    def receive(self, packets: PacketBatch, now: float) -> int:
        return self._worker.receive(packets, now)

    def next_deadline(self) -> float | None:
        return None if self.done else self._worker.next_deadline()


def test_who_wants_all_or_none_stops_at_the_first_sum_that_lacks_somebody() -> None:
    spent = []
    for all_or_none in (False, True):
        rack = Rack(3, Timing(timeout=0.01, partial_after=0.05))
        first, dying, last = rack.workers
        for worker in rack.workers:
            worker.all_or_none = all_or_none
            worker.start(words(400), 0.0)
        hosts = {1: first, 2: Dying(dying, 20), 3: last}
        spent.append(drive(hosts, rack.transport, 0.0))
        assert first.missing == last.missing == (1,)
        assert first.late == last.late == ((1,) if all_or_none else ())
    assert spent[0] > 20 * spent[1]  # each window of chunks has waited for the dead worker
    assert 0.05 <= spent[1] < 0.1
    assert 0 < np.count_nonzero(first.bitmaps) < 200
    with pytest.raises(StateError, match="chunks wait"):
        first.results()
    with pytest.raises(StateError, match="no result yet"):
        first.start(words(1), 1.0)


@pytest.mark.parametrize("seed", seeds(40, 3))
def test_all_who_stop_early_name_who_died_under_loss(seed: int) -> None:
    rack = Rack(3, Timing(timeout=0.01, max_timeout=0.02, partial_after=0.5, give_up=5.0))
    first, dying, last = rack.workers
    for worker in rack.workers:
        worker.all_or_none = True
        worker.start(words(100), 0.0)
    lossy = FaultyTransport(rack.transport, Faults(loss=0.1), np.random.default_rng(seed))
    drive({1: first, 2: Dying(dying, 30), 3: last}, lossy, 0.0)
    assert first.late == last.late == (1,)


def test_without_the_policy_they_wait_and_say_for_whom() -> None:
    rack = Rack(3, Timing(timeout=0.01, give_up=1.0))
    with pytest.raises(StalledError):
        rack.reduce(20, [0, 2])


def test_a_late_worker_gets_the_result_that_all_have() -> None:
    rack = Rack(2, Timing(timeout=0.01, partial_after=0.05))
    first, late = rack.workers
    rack.reduce(5, [0])
    assert first.missing == (1,)
    rack.now = drive({2: late}, rack.transport, rack.now)
    assert rack.switch.dropped[LATE] == 5
    assert late.bitmaps.tolist() == first.bitmaps.tolist() == [0b01] * 5
    np.testing.assert_array_equal(late.results()[0], first.results()[0])
    assert late.missing == (1,)
    # And the next all-reduce has everybody again.
    rack.reduce(5, [0, 1])
    assert first.missing == late.missing == ()


def test_nobody_is_missing_where_nobody_is_late() -> None:
    rack = Rack(2, Timing(timeout=0.01, partial_after=0.05))
    rack.reduce(20, [0, 1])
    assert [worker.missing for worker in rack.workers] == [(), ()]
    assert rack.workers[0].bitmaps.tolist() == [0b11] * 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"partial_after": 0.0},
        {"partial_after": 9.0, "give_up": 9.0},  # who has given up asks nobody
        {"window_control": "cubic"},
        {"min_timeout": float("nan")},
        {"reordering": 0.0},
        {"reordering": True},
        {"tail_probe": 0.0},
        {"give_up": "30"},
        {"backoff": None},
    ],
)
def test_impossible_policies_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match=next(iter(wrong)).replace("_", "[_ ]")):
        Timing(**wrong)


def test_absent_workers_are_not_waited_for() -> None:
    member = JobMembership(0, 4, window=8, absent=frozenset({2}))
    assert member.present == (0, 1, 3)
    with pytest.raises(InputError, match="worker 2 is absent"):
        JobMembership(2, 4, absent=frozenset({2}))
