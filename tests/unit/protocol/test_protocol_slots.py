"""One worker's end, frame by frame: what it sends, accepts and repeats, and when it gives up."""

from __future__ import annotations

import numpy as np
import pytest
from support.traffic import without_values

from innet.core.errors import InputError, StalledError, StateError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment, SizedSegment
from innet.protocol import JobMembership, SlotClient, SlotRegisters, SlotState, Timing
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

LAYOUT = PacketLayout(4)
MEMBER = JobMembership(worker=1, workers=3, job=7, epoch=9, window=4)
ME, SWITCH = Endpoint.of_worker(1), Endpoint.of_switch()
TIMING = Timing(timeout=1.0, backoff=2.0, max_timeout=3.0, give_up=20.0, adaptive=False)


def new_worker(first_chunk: int = 0) -> SlotClient:
    return SlotClient(
        LAYOUT, MEMBER, source=ME, switch=SWITCH, timing=TIMING, first_chunk=first_chunk
    )


def words(chunks: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + 4 * chunks, dtype=np.int32)


def started(chunks: int, first_chunk: int = 0) -> SlotClient:
    worker = new_worker(first_chunk)
    worker.start([Segment(ReduceOp.SUM, words(chunks))], 0.0)
    return worker


def result(chunk: int, value: int = 0, **changed: int) -> np.ndarray:
    """What the switch answers for ``chunk``: four times ``value``."""
    fields = {
        "operation": ReduceOp.SUM,
        "job": 7,
        "epoch": 9,
        "sequence": (chunk + 1) % 2**32,
        "slot": chunk % 4,
        "slot_version": chunk // 4 % 2,
        "flags": HeaderFlag.RESULT,
        "bitmap": 0b111,
        "worker": 1,
        "count": 3,
        "elements": 4,
    }
    return pack(LAYOUT, SWITCH, ME, np.full((1, 4), value, np.int32), **{**fields, **changed})


def header(frames: np.ndarray, name: str) -> list[int]:
    return parse_strict(LAYOUT, frames).header[name].tolist()


def test_first_window() -> None:
    worker = started(6)
    frames = worker.outgoing(0.0)
    batch = parse_strict(LAYOUT, frames)
    assert batch.values.tolist() == words(4).reshape(4, 4).tolist()
    expected = {
        "sequence": [1, 2, 3, 4],
        "slot": [0, 1, 2, 3],
        "slot_version": [0] * 4,
        "worker": [1] * 4,
        "job": [7] * 4,
        "epoch": [9] * 4,
        "operation": [1] * 4,
        "elements": [4] * 4,
        "flags": [0] * 4,
        "bitmap": [0] * 4,
        "count": [0] * 4,
        "exponent": [0] * 4,
    }
    assert {name: header(frames, name) for name in expected} == expected
    assert not len(worker.outgoing(0.0))


def test_result_triggers_the_next_chunk_of_its_slot() -> None:
    worker = started(6)
    worker.outgoing(0.0)
    assert worker.receive(np.concatenate([result(2), result(0)]), 0.1) == 2
    frames = worker.outgoing(0.1)
    # Chunk 6 does not exist: only slot 0 goes on, with chunk 4 in its other copy.
    assert header(frames, "sequence") == [5]
    assert header(frames, "slot") == [0]
    assert header(frames, "slot_version") == [1]
    worker.receive(result(1), 0.2)
    assert header(worker.outgoing(0.2), "sequence") == [6]
    assert worker.receive(np.concatenate([result(3), result(5), result(4)]), 0.3) == 3
    assert worker.done
    assert worker.next_deadline() is None
    assert not len(worker.outgoing(100.0))


def test_results_are_put_together_whatever_their_order() -> None:
    worker = started(6)
    worker.outgoing(0.0)
    for chunk in (3, 0, 2, 1, 5, 4):
        worker.receive(result(chunk, 10 * chunk), 0.0)
        worker.outgoing(0.0)
    (total,) = worker.results()
    assert total.dtype == np.int32
    assert total.tolist() == [10 * chunk for chunk in range(6) for _ in range(4)]


def test_partial_last_chunk_and_several_segments() -> None:
    worker = new_worker()
    worker.start([Segment(ReduceOp.OR, words(1)[:3]), Segment(ReduceOp.MAX, words(1, 50))], 0.0)
    frames = worker.outgoing(0.0)
    assert header(frames, "operation") == [2, 3]
    assert header(frames, "elements") == [3, 4]
    assert parse_strict(LAYOUT, frames).values.tolist() == [[0, 1, 2, 0], [50, 51, 52, 53]]
    worker.receive(result(0, 5, operation=2, elements=3), 0.0)
    worker.receive(result(1, 6, operation=3), 0.0)
    assert [array.tolist() for array in worker.results()] == [[5] * 3, [6] * 4]


def test_packets_of_chunks_with_owners_come_with_values_and_without() -> None:
    """Of worker 1, in one round: what others own, what it owns, and a sum of all."""
    layout = PacketLayout(4, has_owners=True)
    worker = SlotClient(layout, MEMBER, source=ME, switch=SWITCH, timing=TIMING)
    reduce, broadcast, barrier = CollectiveOp
    worker.start(
        [
            Segment(reduce, words(1, 10), 0),
            Segment(broadcast, words(1, 30), 1),
            Segment(reduce, words(1, 20), 1),
            Segment(ReduceOp.SUM, words(1, 40)),
            Segment(broadcast, words(1, 50), 2),
            Segment(barrier, words(1, 60), 2),
        ],
        0.0,
    )
    sent = worker.outgoing(0.0)
    whole, bare = layout.frame_size, layout.bare_size
    assert sent.length.tolist() == [whole, whole, bare, whole]
    batch = parse_strict(layout, sent)
    assert batch.header["operation"].tolist() == [4, 5, 0x84, 1]
    assert batch.header["exponent"].tolist() == [0, 1, 1, 0]
    assert batch.values[[0, 1, 3], 0].tolist() == [10, 30, 40]

    def answer(chunk: int, operation: int, value: int, owner: int) -> tuple[int, bytes]:
        frame = pack(
            layout, SWITCH, ME, np.full((1, 4), value, np.int32), operation=operation, job=7,
            epoch=9, sequence=chunk + 1, slot=chunk % 4, slot_version=chunk // 4,
            flags=HeaderFlag.RESULT, bitmap=7, worker=1, count=3, exponent=owner,
        )[0].tobytes()  # fmt: skip
        return 0, frame if value else without_values(layout, frame)

    # Its own reduce and what others broadcast have values. The others' forms of them are refused.
    strange = [answer(0, 4, 1, 0), answer(1, 5, 1, 1), answer(2, 4, 0, 1), answer(3, 1, 0, 0)]
    assert worker.receive(PacketBatch.from_packets(strange), 0.5) == 0
    assert worker.counters.refused == {"operation": 4}
    first = [answer(0, 4, 0, 0), answer(1, 5, 0, 1), answer(2, 4, 5, 1), answer(3, 1, 6, 0)]
    assert worker.receive(PacketBatch.from_packets(first), 0.5) == 4
    rest = worker.outgoing(0.5)
    assert rest.length.tolist() == [bare, bare]
    assert parse_strict(layout, rest).header["operation"].tolist() == [0x85, 0x86]
    # All of the packets end with the header, and their rows with them.
    again = worker.outgoing(1.5)
    assert parse_strict(layout, again).header["flags"].tolist() == [HeaderFlag.RESEND] * 2
    last = [answer(4, 5, 7, 2), answer(5, 6, 0, 2)]
    assert worker.receive(PacketBatch.from_packets(last), 2.0) == 2
    assert worker.done
    _, _, mine, total, told, _ = worker.results()
    assert (mine.tolist(), total.tolist(), told.tolist()) == ([5] * 4, [6] * 4, [7] * 4)
    assert worker.counters.bytes_sent == 3 * whole + 5 * bare
    assert worker.counters.bytes_received == (2 + 2 + 1) * (whole + bare)


def test_thin_packets_without_values_stand_for_themselves() -> None:
    """Of two chunks of 100 elements, sent and received once with values and once without."""
    layout = PacketLayout(1, stands_for=100, has_owners=True)
    worker = SlotClient(layout, MEMBER, source=ME, switch=SWITCH, timing=TIMING)
    worker.start([SizedSegment(CollectiveOp.REDUCE, 100, owner) for owner in (0, 1)], 0.0)
    sent = worker.outgoing(0.0)
    whole, bare = layout.frame_size, layout.bare_size
    assert sent.length.tolist() == [whole, bare]
    answers = []
    for chunk in range(2):
        frame = pack(
            layout, SWITCH, ME, np.zeros((1, 1), np.int32), operation=CollectiveOp.REDUCE, job=7,
            epoch=9, sequence=chunk + 1, slot=chunk, slot_version=0, flags=HeaderFlag.RESULT,
            bitmap=7, worker=1, count=3, exponent=chunk,
        )[0].tobytes()  # fmt: skip
        answers.append((0, frame if chunk else without_values(layout, frame)))
    assert worker.receive(PacketBatch.from_packets(answers), 0.5) == 2
    both = layout.wire_size + bare
    assert layout.wire_size == bare + 400
    assert (worker.counters.bytes_sent, worker.counters.bytes_received) == (both, both)


@pytest.mark.parametrize(
    ("layout", "owner", "message"),
    [
        (LAYOUT, 0, "chunks have owners, which the switch's program does not know; choose one"),
        (
            PacketLayout(4, has_owners=True),
            3,
            "a chunk has the owner 3; the job's workers are 0 to 2",
        ),
    ],
)
def test_owners_that_cannot_be_are_refused(layout: PacketLayout, owner: int, message: str) -> None:
    worker = SlotClient(layout, MEMBER, source=ME, switch=SWITCH)
    with pytest.raises(InputError, match=message):
        worker.start([Segment(CollectiveOp.REDUCE, words(1), owner)], 0.0)
    # And it can begin another round.
    worker.start([Segment(ReduceOp.SUM, words(1))], 0.0)
    assert len(worker.outgoing(0.0)) == 1


def test_cursor_goes_on_with_the_next_all_reduce() -> None:
    worker = started(3)
    worker.outgoing(0.0)
    worker.receive(np.concatenate([result(chunk, chunk) for chunk in range(3)]), 0.0)
    (first,) = worker.results()
    assert worker.next_chunk == 3
    worker.start([Segment(ReduceOp.SUM, words(5))], 1.0)
    frames = worker.outgoing(1.0)
    assert header(frames, "sequence") == [4, 5, 6, 7]
    assert header(frames, "slot") == [3, 0, 1, 2]
    assert header(frames, "slot_version") == [0, 1, 1, 1]
    # A straggler of the first all-reduce is no result of the second.
    assert worker.receive(result(0, 99), 1.0) == 0
    assert worker.counters.duplicates == 1
    worker.receive(np.concatenate([result(chunk, 50) for chunk in range(3, 7)]), 1.0)
    worker.outgoing(1.0)
    worker.receive(result(7, 51), 1.0)
    assert worker.results()[0].tolist() == [50] * 16 + [51] * 4
    assert first.tolist() == [0] * 4 + [1] * 4 + [2] * 4  # still what it was


def test_sequence_wraps_and_slots_go_on_evenly() -> None:
    first = 2**32 - 6
    worker = started(12, first)
    sequences, slots, versions = [], [], []
    while not worker.done:
        frames = worker.outgoing(0.0)
        sequences += header(frames, "sequence")
        slots += header(frames, "slot")
        versions += header(frames, "slot_version")
        answers = [result(first + len(sequences) - len(frames) + i, 1) for i in range(len(frames))]
        assert worker.receive(np.concatenate(answers), 0.0) == len(frames)
    assert sequences == [*range(2**32 - 5, 2**32), 0, 1, 2, 3, 4, 5, 6]
    assert slots == [2, 3, 0, 1] * 3
    assert versions == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert worker.counters.duplicates == 0


def test_nothing_to_reduce_is_done_at_once() -> None:
    worker = new_worker()
    for segments in ([], [Segment(ReduceOp.SUM, words(0))]):
        worker.start(segments, 0.0)
        assert worker.done
        assert worker.next_deadline() is None
        assert not len(worker.outgoing(0.0))
        assert worker.receive(result(0), 0.0) == 0
        assert [array.tolist() for array in worker.results()] == [[] for _ in segments]


# ---------------------------------------------------------------- what is not accepted

STRANGE = {
    "not a result": {"flags": HeaderFlag.ECN},
    "job": {"job": 8},
    "epoch": {"epoch": 8},
    "worker": {"worker": 2},
    "count": {"count": 2},
    "slot": {"slot": 4},
    "sequence": {"sequence": 9},
    "slot version": {"slot_version": 1},
    "operation": {"operation": 2},
    "elements": {"elements": 3},
}


@pytest.mark.parametrize("reason", STRANGE)
def test_what_does_not_fit_is_counted_and_ignored(reason: str) -> None:
    worker = started(6)
    worker.outgoing(0.0)
    frames = np.concatenate([result(0, 1), result(1, 99, **STRANGE[reason]), result(2, 1)])
    assert worker.receive(frames, 0.0) == 2
    assert worker.counters.refused == {reason: 1}
    assert worker.counters.duplicates == 0
    assert header(worker.outgoing(0.0), "slot") == [0]  # chunk 5 waits for slot 1
    assert worker.receive(result(1, 1), 0.0) == 1


def test_result_of_a_chunk_that_was_not_sent_is_refused() -> None:
    worker = started(6)
    assert worker.receive(result(0), 0.0) == 0  # queued, not sent
    assert worker.counters.refused == {"sequence": 1}
    assert len(worker.outgoing(0.0)) == 4
    assert new_worker().receive(result(0), 0.0) == 0  # nothing was started at all


def test_garbage_of_any_length_is_counted_by_reason() -> None:
    worker = started(1)
    frame = worker.outgoing(0.0)[0].tobytes()
    good = result(0, 5)[0].tobytes()
    magic = bytearray(good)
    magic[42] ^= 1
    batch = PacketBatch.from_packets(
        [(0, b""), (0, good[:-1]), (0, bytes(magic)), (0, frame), (0, good + b"x"), (0, good)]
    )
    assert worker.receive(batch, 0.0) == 1
    assert worker.counters.refused == {"length": 3, "magic": 1, "not a result": 1}
    assert worker.counters.received == 6
    assert worker.counters.bytes_received == sum(batch.length)
    assert worker.results()[0].tolist() == [5] * 4


def test_duplicates_are_counted_and_the_first_counts() -> None:
    worker = started(6)
    worker.outgoing(0.0)
    assert worker.receive(np.concatenate([result(1, 7), result(0, 1), result(1, 8)]), 0.0) == 2
    assert worker.receive(result(0, 2), 0.0) == 0  # while chunk 4 is queued in the same slot
    worker.outgoing(0.0)
    assert worker.receive(result(0, 3), 0.0) == 0  # while chunk 4 waits
    assert worker.counters.duplicates == 3
    for chunk in (2, 3, 4, 5):
        worker.receive(result(chunk), 0.0)
    assert worker.receive(result(5, 4), 0.0) == 0  # and when all is done
    assert worker.counters.duplicates == 4
    assert worker.results()[0].tolist() == [1] * 4 + [7] * 4 + [0] * 16
    assert worker.counters.refused == {}


@pytest.mark.parametrize("first", [0, 10, 2**31 + 10, 2**32 - 1])
def test_results_from_before_the_first_chunk_are_old(first: int) -> None:
    worker = started(1, first)
    worker.outgoing(0.0)
    early = [result(chunk) for chunk in range(first - 5, first)]
    assert worker.receive(np.concatenate(early), 0.0) == 0
    assert (worker.counters.duplicates, worker.counters.refused) == (5, {})
    assert worker.receive(result(first + 1), 0.0) == 0
    assert worker.counters.refused == {"sequence": 1}


def test_flags_of_results_are_collected() -> None:
    worker = started(2)
    worker.outgoing(0.0)
    worker.receive(result(0, flags=HeaderFlag.RESULT | HeaderFlag.RESEND), 0.0)
    worker.receive(result(1, flags=HeaderFlag.RESULT | HeaderFlag.OVERFLOW), 0.0)
    assert worker.result_flags == HeaderFlag.OVERFLOW | HeaderFlag.RESEND
    worker.start([], 0.0)
    assert worker.result_flags == HeaderFlag(0)


# ---------------------------------------------------------------- time


def test_retransmission_backs_off_per_slot() -> None:
    worker = started(2)
    assert worker.next_deadline() == 0.0
    worker.outgoing(0.0)
    assert worker.next_deadline() == 1.0
    assert not len(worker.outgoing(0.999))
    worker.receive(result(0), 0.5)
    first = worker.outgoing(1.0)
    assert header(first, "sequence") == [2]
    assert header(first, "flags") == [HeaderFlag.RESEND]
    assert parse_strict(LAYOUT, first).values.tolist() == [[4, 5, 6, 7]]
    # 1 s, then 2 s, then 3 s, the maximum, each from the last transmission.
    for due in (3.0, 6.0, 9.0, 12.0):
        assert worker.next_deadline() == due
        assert not len(worker.outgoing(due - 1e-9))
        assert header(worker.outgoing(due), "sequence") == [2]
    assert worker.counters.retransmissions == 5
    assert worker.counters.sent == 7
    assert worker.counters.bytes_sent == 7 * LAYOUT.frame_size


def test_back_off_starts_anew_with_each_chunk() -> None:
    worker = started(5)
    worker.outgoing(0.0)
    worker.outgoing(1.0)
    worker.receive(result(0), 1.5)
    assert header(worker.outgoing(1.5), "sequence") == [5]
    assert header(worker.outgoing(2.5), "sequence") == [5]  # 1 s later, not 2 s


def test_retransmissions_and_new_chunks_go_together() -> None:
    worker = started(6)
    worker.outgoing(0.0)
    worker.receive(result(1), 1.0)
    frames = worker.outgoing(1.0)
    assert header(frames, "sequence") == [1, 3, 4, 6]
    assert header(frames, "flags") == [HeaderFlag.RESEND] * 3 + [0]
    assert parse_strict(LAYOUT, frames).values[:, 0].tolist() == [0, 8, 12, 20]


def test_gives_up_in_time_and_says_what_it_knows() -> None:
    worker = started(6)
    worker.outgoing(0.0)
    worker.receive(np.concatenate([result(0), result(2), result(3)]), 0.5)
    while (now := worker.next_deadline()) < 20.0:
        worker.outgoing(now)
        assert worker.receive(result(4, elements=2), now) == 0
    with pytest.raises(StalledError) as caught:
        worker.outgoing(now)
    assert now == 20.0
    message = str(caught.value)
    assert "job 7, epoch 9, worker 1 of 3: slot 1, version 0, sequence 2" in message
    assert "after 20 s and 8 transmissions; 2 slots wait" in message
    assert "last result: 19.5 s ago" in message
    assert "refused packets: elements 15." in message
    assert "((slot_base | 1) << 1) | 0" in message
    # Nothing has changed: a late result still counts.
    assert worker.receive(np.concatenate([result(1), result(4)]), 20.0) == 2
    assert header(worker.outgoing(20.0), "sequence") == [6]
    assert worker.receive(result(5), 20.0) == 1
    assert worker.done


def test_never_heard() -> None:
    worker = started(1)
    worker.outgoing(3.0)
    with pytest.raises(StalledError, match=r"after 20 s .* last result: never\. Who is missing"):
        worker.outgoing(23.0)


@pytest.mark.parametrize(
    ("held", "missing", "text"),
    [
        (SlotRegisters(2, 0b010), (0, 2), "It waits for workers 0, 2."),
        (SlotRegisters(2, 0b110), (0,), "It waits for worker 0."),
        (SlotRegisters(2, 0b101), (1,), "worker 1. None of what worker 1 sent was counted"),
        (SlotRegisters(2, 0b111), (), "its results do not reach worker 1"),
        (SlotRegisters(0, 0b111), (0, 1, 2), "no packet of this chunk"),
        (SlotRegisters(10, 0b001), (), "already belongs to chunk 10: another run uses job 7"),
    ],
)
def test_diagnosis_names_the_missing(
    held: SlotRegisters, missing: tuple[int, ...], text: str
) -> None:
    worker = started(4)
    worker.outgoing(0.0)
    worker.receive(result(0), 0.0)
    asked = []

    def read(slot: int, slot_version: int) -> SlotRegisters:
        asked.append((slot, slot_version))
        return held

    diagnosis = worker.diagnose(read, 5.0)
    assert asked == [(1, 0)]  # the oldest that waits
    assert diagnosis.missing == missing
    assert text in str(diagnosis)
    assert "job 7, epoch 9" in str(diagnosis)


def test_no_diagnosis_where_nothing_waits() -> None:
    worker = new_worker()
    assert worker.stall(0.0) is None
    assert worker.diagnose(lambda slot, version: SlotRegisters(0, 0), 0.0) is None


# ---------------------------------------------------------------- the state table


def test_state_table() -> None:
    """Every row of the table in the module's docstring, by the public methods and slot 0."""
    at_work = {SlotState.QUEUED: 0.0, SlotState.WAITING: 0.0}

    def in_state(state: SlotState, chunks: int) -> SlotClient:
        worker = started(chunks)
        if state is not SlotState.QUEUED:
            worker.outgoing(0.0)
        if state is SlotState.IDLE:
            worker.receive(np.concatenate([result(chunk) for chunk in range(chunks)]), 0.0)
        assert worker._state[0] == state
        return worker

    for state in at_work:
        with pytest.raises(StateError, match="5 chunks of the previous all-reduce"):
            in_state(state, 5).start([], 0.0)
    idle = in_state(SlotState.IDLE, 1)
    assert not len(idle.outgoing(0.0))
    assert not len(idle.outgoing(1e9))
    assert idle.receive(result(0), 0.0) == 0
    assert idle.counters.duplicates == 1
    idle.start([Segment(ReduceOp.SUM, words(4))], 0.0)
    assert idle._state.tolist() == [SlotState.QUEUED] * 4

    queued = in_state(SlotState.QUEUED, 1)
    assert queued.receive(result(0), 0.0) == 0
    assert queued.counters.refused == {"sequence": 1}
    assert queued.receive(result(-4), 0.0) == 0
    assert queued.counters.duplicates == 1
    assert queued._state[0] == SlotState.QUEUED
    assert len(queued.outgoing(1e9)) == 1  # it was never sent, so no deadline has passed
    assert queued._state[0] == SlotState.WAITING

    waiting = in_state(SlotState.WAITING, 5)
    assert not len(waiting.outgoing(0.5))
    assert len(waiting.outgoing(1.0)) == 4
    with pytest.raises(StalledError):
        waiting.outgoing(20.0)
    assert waiting.receive(result(-4), 0.0) == 0
    assert waiting.counters.duplicates == 1
    assert waiting._state[0] == SlotState.WAITING
    assert waiting.receive(result(0), 0.0) == 1
    assert waiting._state[0] == SlotState.QUEUED
    last = in_state(SlotState.WAITING, 1)
    assert last.receive(result(0), 0.0) == 1
    assert last._state[0] == SlotState.IDLE


def test_results_before_they_are_there() -> None:
    with pytest.raises(StateError, match="no results"):
        new_worker().results()
    with pytest.raises(StateError, match="no results: 2 chunks wait"):
        started(2).results()


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"workers": 33},
        {"worker": 3},
        {"worker": -1},
        {"job": 65536},
        {"epoch": -1},
        {"window": 0},
        {"window": 3},
        {"window": 2**17},
    ],
)
def test_impossible_memberships_are_refused(wrong: dict[str, int]) -> None:
    good = {"worker": 1, "workers": 3, "job": 7, "epoch": 9, "window": 4}
    with pytest.raises(InputError):
        JobMembership(**{**good, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"give_up": -1.0},
        {"give_up": float("inf")},
        {"backoff": 0.5},
        {"backoff": float("nan")},
        {"timeout": 2.0, "max_timeout": 1.0},
    ],
)
def test_impossible_timings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Timing(**wrong)


def test_negative_first_chunk_is_refused() -> None:
    with pytest.raises(InputError, match="first_chunk is -1"):
        new_worker(-1)
