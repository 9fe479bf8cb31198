"""Workers, transport and the switch's oracle together: exact sums whatever the network does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.slot_oracle import MISMATCH, STALE, SlotOracle
from support.tiers import examples, tiered

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment, combine
from innet.network import Faults, FaultyTransport, Recorder, drive
from innet.protocol import JobMembership, SlotClient, SlotRegisters, Timing
from innet.protocol.admission import Job, WorkerPort
from innet.transport.memory import MemoryTransport
from innet.wire import Endpoint, PacketLayout

SLOT_BASE = 64


class Rack:
    """``workers`` at ports 1, 2, ... of one switch, on slots that do not begin at 0."""

    def __init__(
        self,
        workers: int,
        *,
        values: int = 4,
        window: int = 8,
        faults: Faults | None = None,
        seed: int = 0,
        first_chunk: int = 0,
        timing: Timing | None = None,
        framing: str = "udp",
    ) -> None:
        members = [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(workers)]
        job = Job(members, number=7, epoch=3, slot_base=SLOT_BASE, slots=window, group=5)
        self.switch = SlotOracle(values, job.commands())
        self.memory = MemoryTransport(self.switch.process, range(1, workers + 1))
        self.transport = self.memory
        if faults is not None:
            self.transport = FaultyTransport(self.memory, faults, np.random.default_rng(seed))
        self.workers = [
            SlotClient(
                PacketLayout(values, framing),
                JobMembership(worker=i, workers=workers, job=7, epoch=3, window=window),
                source=Endpoint.of_worker(i),
                switch=Endpoint.of_switch(),
                timing=timing or Timing(timeout=0.002, max_timeout=0.05, give_up=60.0),
                first_chunk=first_chunk,
            )
            for i in range(workers)
        ]
        if first_chunk:  # as a job that came this far has left the registers
            for slot in range(window):
                for version in (0, 1):
                    self.switch.copy(slot, version, SLOT_BASE).sequence = first_chunk % 2**32
        self.now = 0.0

    def all_reduce(self, contributions: list[list[Segment]]) -> None:
        """One round; asserts that every worker holds the exact result of every segment."""
        for worker, segments in zip(self.workers, contributions, strict=True):
            worker.start(segments, self.now)
        self.now = drive(dict(enumerate(self.workers, 1)), self.transport, self.now)
        for index, segment in enumerate(contributions[0]):
            words = [segments[index].words for segments in contributions]
            expected = combine(segment.operation, words)
            for worker in self.workers:
                np.testing.assert_array_equal(worker.results()[index], expected)

    def registers(self, slot: int, slot_version: int) -> SlotRegisters:
        copy = self.switch.copy(slot, slot_version, SLOT_BASE)
        return SlotRegisters(copy.sequence, copy.bitmap)


def contributions(
    rng: np.random.Generator, workers: int, shape: list[tuple[ReduceOp, int]]
) -> list[list[Segment]]:
    """Words over the whole range of int32, so that sums wrap."""
    return [
        [
            Segment(operation, rng.integers(-(2**31), 2**31, length).astype(np.int32))
            for operation, length in shape
        ]
        for _ in range(workers)
    ]


MIXED = [(ReduceOp.SUM, 130), (ReduceOp.OR, 1), (ReduceOp.MAX, 37), (ReduceOp.SUM, 0)]
BAD = Faults(loss=0.1, duplicate=0.1, reorder=0.2, hold=0.05, jitter=1e-3, tick=1e-4)


@pytest.mark.parametrize("workers", tiered([1, 2, 3, 8, 32], [1, 3], "other numbers of workers"))
@pytest.mark.parametrize("faults", [None, BAD], ids=["perfect", "bad"])
def test_exact_for_any_number_of_workers(workers: int, faults: Faults | None) -> None:
    rng = np.random.default_rng(workers)
    rack = Rack(workers, faults=faults, seed=workers)
    for _ in range(2):
        rack.all_reduce(contributions(rng, workers, MIXED))
    chunks = 2 * (33 + 1 + 10)
    for worker in rack.workers:
        assert worker.counters.results == chunks
        assert worker.counters.refused == {}
        if faults is None:
            assert worker.counters.sent == worker.counters.received == chunks
            assert worker.counters.retransmissions == worker.counters.duplicates == 0
    if faults is None:
        assert not rack.switch.dropped
        assert rack.memory.to_switch.packets[1:].tolist() == [chunks] * workers
        assert rack.memory.to_hosts.packets[1:].tolist() == [chunks] * workers
    else:
        assert sum(worker.counters.retransmissions for worker in rack.workers) > 0
        assert set(rack.switch.dropped) <= {STALE}


@pytest.mark.repeats("the same with fewer faults at a time", but=["*loss=0.5*", "*loss=0.3*"])
@pytest.mark.parametrize(
    "faults",
    [
        Faults(loss=0.5),
        Faults(loss=0.001),
        Faults(duplicate=1.0, jitter=0.01),
        Faults(reorder=0.5, hold=0.5),
        Faults(loss=0.3, duplicate=0.5, reorder=0.5, hold=1.0, delay=1e-4, jitter=0.01),
    ],
    ids=str,
)
@pytest.mark.parametrize("window", tiered([1, 2, 16], [2], "the same with other windows"))
def test_exact_under_each_fault(faults: Faults, window: int) -> None:
    rng = np.random.default_rng(window)
    rack = Rack(3, window=window, faults=faults, seed=window)
    for _ in range(2):
        rack.all_reduce(contributions(rng, 3, MIXED))


def test_packets_delayed_over_many_windows_harm_nobody() -> None:
    """Copies that arrive hundreds of chunks, and whole all-reduces, after their time."""
    late = Faults(duplicate=0.3, reorder=0.3, hold=5.0, tick=1e-3)
    rng = np.random.default_rng(5)
    rack = Rack(2, window=2, faults=late, timing=Timing(0.002, 1.0, 0.002, 60.0, False))
    for _ in range(10):
        rack.all_reduce(contributions(rng, 2, [(ReduceOp.SUM, 400)]))
    assert rack.switch.dropped[STALE] > 100
    assert sum(worker.counters.duplicates for worker in rack.workers) > 100
    assert all(worker.counters.refused == {} for worker in rack.workers)


@settings(max_examples=examples(40))
@given(
    workers=st.integers(1, 5),
    window=st.sampled_from([1, 2, 4, 8]),
    values=st.sampled_from([1, 3, 8]),
    framing=st.sampled_from(["udp", "raw"]),
    shape=st.lists(
        st.tuples(st.sampled_from(list(ReduceOp)), st.integers(0, 30)), min_size=1, max_size=3
    ),
    rounds=st.integers(1, 3),
    loss=st.floats(0, 0.4),
    duplicate=st.floats(0, 1),
    reorder=st.floats(0, 1),
    first_chunk=st.sampled_from([0, 5, 2**32 - 9, 2**33 + 2**32 - 3]),
    seed=st.integers(0, 2**32),
)
def test_exact_whatever_happens(
    workers: int,
    window: int,
    values: int,
    framing: str,
    shape: list[tuple[ReduceOp, int]],
    rounds: int,
    loss: float,
    duplicate: float,
    reorder: float,
    first_chunk: int,
    seed: int,
) -> None:
    rack = Rack(
        workers,
        values=values,
        window=window,
        framing=framing,
        first_chunk=first_chunk,
        faults=Faults(loss=loss, duplicate=duplicate, reorder=reorder, hold=0.02),
        seed=seed,
    )
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        rack.all_reduce(contributions(rng, workers, shape))


def test_sequence_wraps_without_a_trace() -> None:
    rack = Rack(2, window=4, first_chunk=2**32 - 50, faults=BAD)
    rng = np.random.default_rng(0)
    for _ in range(3):
        rack.all_reduce(contributions(rng, 2, [(ReduceOp.SUM, 30 * 4)]))
    assert rack.workers[0].next_chunk == 2**32 + 40
    assert rack.registers((2**32 + 39) % 4, (2**32 + 39) // 4 % 2).sequence == 40


def test_stragglers_join_late() -> None:
    """A worker that starts long after the others: they repeat with back-off, nobody is wrong."""
    rack = Rack(3, timing=Timing(0.01, 2.0, 0.1, 60.0))
    rng = np.random.default_rng(0)
    given_words = contributions(rng, 3, MIXED)
    for worker, segments in zip(rack.workers[:2], given_words[:2], strict=True):
        worker.start(segments, 0.0)
    hosts = dict(enumerate(rack.workers[:2], 1))

    class Late:
        """Keeps the loop going until one second has passed."""

        done = False

        def outgoing(self, now: float) -> np.ndarray:
            self.done = now >= 1.0
            return np.empty((0, 1), np.uint8)

        def receive(self, packets: PacketBatch, now: float) -> int:
            raise AssertionError(f"{len(packets)} packets at {now} for a worker that is absent")

        def next_deadline(self) -> float:
            return 1.0

    late = Late()
    now = 0.0
    while not late.done:  # step by step, since the workers cannot be done yet
        for port, host in {**hosts, 3: late}.items():
            frames = host.outgoing(now)
            if len(frames):
                rack.transport.send(PacketBatch.uniform(frames, port), now)
        assert len(rack.transport.receive(now)) == 0
        now = rack.transport.wait(
            now, min(host.next_deadline() for host in (*hosts.values(), late))
        )
    repeated = rack.workers[0].counters.retransmissions
    assert repeated == 8 * 12  # per slot at 0.01, 0.03, 0.07, 0.15, 0.25, ... 0.95 s
    rack.workers[2].start(given_words[2], now)
    drive(dict(enumerate(rack.workers, 1)), rack.transport, now)
    expected = combine(ReduceOp.SUM, [segments[0].words for segments in given_words])
    for worker in rack.workers:
        np.testing.assert_array_equal(worker.results()[0], expected)


@pytest.mark.parametrize("faults", [None, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("dead", [0, 2])
def test_dead_worker_is_named_within_the_deadline(faults: Faults | None, dead: int) -> None:
    rack = Rack(4, faults=faults, timing=Timing(0.01, 2.0, 0.5, give_up=10.0))
    rng = np.random.default_rng(1)
    rack.all_reduce(contributions(rng, 4, MIXED))
    began = rack.now
    for worker, segments in zip(rack.workers, contributions(rng, 4, MIXED), strict=True):
        worker.start(segments, rack.now)
    alive = {port: worker for port, worker in enumerate(rack.workers, 1) if port != dead + 1}
    survivor = next(iter(alive.values()))
    with pytest.raises(StalledError) as caught:
        drive(alive, rack.transport, rack.now)
    message = str(caught.value)
    assert "job 7, epoch 3, worker" in message
    assert "8 slots wait" in message
    assert "register worker_bitmap (with tree and hashed: bitmap) at index" in message
    stall = survivor.stall(began + 10.0)
    assert stall.waited == pytest.approx(10.0)
    assert stall.stuck == 8
    diagnosis = survivor.diagnose(rack.registers, began + 10.0)
    assert diagnosis.missing == (dead,)
    assert str(diagnosis).endswith(f"It waits for worker {dead}.")


def test_worker_that_sends_less_than_the_others_is_named() -> None:
    rack = Rack(2, timing=Timing(0.01, 2.0, 0.5, give_up=5.0))
    for worker, length in zip(rack.workers, (4, 9), strict=True):
        worker.start([Segment(ReduceOp.SUM, np.ones(length, np.int32))], 0.0)
    with pytest.raises(StalledError, match="worker 0 of 2: slot 0, version 0, sequence 1"):
        drive(dict(enumerate(rack.workers, 1)), rack.transport, 0.0)
    assert rack.workers[0].diagnose(rack.registers, 5.0).missing == (1,)
    assert rack.switch.dropped[MISMATCH] > 0


def test_an_all_reduce_is_never_added_to_another() -> None:
    """Lengths that differ by whole packets, so that no chunk's number of elements tells."""
    rack = Rack(2, timing=Timing(0.01, 2.0, 0.5, give_up=5.0))
    short, long = rack.workers
    short.start([Segment(ReduceOp.SUM, np.ones(4, np.int32))], 0.0)
    long.start([Segment(ReduceOp.SUM, np.ones(8, np.int32))], 0.0)
    with pytest.raises(StalledError):
        drive(dict(enumerate(rack.workers, 1)), rack.transport, 0.0)
    assert not short.done
    assert not long.done


def traces(seed: int) -> Iterator[bytes]:
    recorder = Recorder()
    rack = Rack(3, faults=BAD, seed=seed)
    rack.memory.tap = recorder
    for _ in range(2):
        rack.all_reduce(contributions(np.random.default_rng(0), 3, MIXED))
    yield recorder.packets().data.tobytes()
    yield recorder.times().tobytes()
    yield repr([worker.counters for worker in rack.workers]).encode()


def test_equal_seeds_give_equal_runs_byte_for_byte() -> None:
    digests = [hashlib.sha256(b"".join(traces(seed))).hexdigest() for seed in (4, 4, 5)]
    assert digests[0] == digests[1] != digests[2]
