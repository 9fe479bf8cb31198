"""The parameter server: what it adds, replaces, answers and refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp
from innet.protocol import SlotRegisters
from innet.protocol.parameter_server import ALL_WORKERS, ParameterServer
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack, parse

LAYOUT = PacketLayout(4)
WINDOW = 4
LARGEST = 2**31 - 1


def server(workers: int = 3) -> ParameterServer:
    return ParameterServer(
        LAYOUT,
        workers=workers,
        job=7,
        epoch=3,
        window=WINDOW,
        source=Endpoint.of_server(),
        switch=Endpoint.of_switch(),
    )


def packet(bits: int, word: int, chunk: int = 0, **changes) -> np.ndarray:
    fields = {
        "operation": ReduceOp.SUM,
        "job": 7,
        "epoch": 3,
        "sequence": (chunk + 1) % 2**32,
        "slot": chunk % WINDOW,
        "slot_version": chunk // WINDOW % 2,
        "worker": 0,
        "bitmap": bits,
        "count": bits.bit_count(),
        "message": 5,
        **changes,
    }
    words = np.full((1, LAYOUT.values), word, np.int32)
    return pack(LAYOUT, Endpoint.of_worker(0), Endpoint.of_server(), words, **fields)


def answers(end: ParameterServer) -> list[tuple[int, int, int]]:
    """(addressee, flags, first word) of what it sends."""
    batch = parse(LAYOUT, end.outgoing(0.0))
    assert batch.valid.all()
    header = batch.header
    return [
        (int(row["worker"]), int(row["flags"]), int(word))
        for row, word in zip(header, batch.values[:, 0], strict=True)
    ]


ALL = (ALL_WORKERS, HeaderFlag.RESULT)


@pytest.mark.parametrize(
    ("parts", "added"),
    [
        ([0b111], 1),
        ([0b001, 0b010, 0b100], 3),
        ([0b011, 0b100], 2),
        ([0b001, 0b001, 0b110], 2),  # a copy
        ([0b001, 0b111], 2),  # more than is counted takes its place
        ([0b011, 0b110, 0b100], 2),  # an overlap is refused
        ([0b101, 0b110, 0b111], 2),
    ],
    ids=str,
)
def test_each_worker_counts_once(parts, added):
    """A worker's word is ten to the power of its index, so a sum says who is in it."""

    def value(bits):
        return sum(10**i for i in range(3) if bits >> i & 1)

    for together in (True, False):
        end = server()
        frames = [packet(bits, value(bits)) for bits in parts]
        batches = [np.concatenate(frames)] if together else frames
        assert sum(end.receive(batch, 0.0) for batch in batches) == added
        assert answers(end) == [(*ALL, 111)]
        assert end.done
        assert end.counters.results == 1
        assert end.counters.received == len(parts)
        assert end.counters.bytes_received == sum(frame.size for frame in frames)


def test_a_resent_contribution_is_answered_and_a_copy_is_not():
    end = server(2)
    end.receive(packet(0b01, 1), 0.0)
    end.receive(packet(0b01, 1, flags=HeaderFlag.RESEND), 0.0)
    assert answers(end) == []
    end.receive(packet(0b10, 2, worker=1), 0.0)
    assert answers(end) == [(*ALL, 3)]
    end.receive(packet(0b10, 2, worker=1), 0.0)
    assert answers(end) == []
    end.receive(packet(0b10, 2, worker=1, flags=HeaderFlag.RESEND), 0.0)
    assert answers(end) == [(1, HeaderFlag.RESULT, 3)]
    assert end.counters.duplicates == 3
    assert end.counters.retransmissions == 1
    assert end.counters.refused == {}


def test_a_chunk_is_closed_without_those_who_lack_at_the_second_question():
    """From then on its result is what it is, whoever asks again or comes late."""
    first = HeaderFlag.RESEND | HeaderFlag.PARTIAL
    second = first | HeaderFlag.URGENCY
    end = server(3)
    end.receive(packet(0b001, 1), 0.0)
    end.receive(packet(0b010, 10, worker=1), 0.0)
    end.receive(packet(0b001, 1, flags=first), 0.0)
    assert answers(end) == []
    end.receive(packet(0b001, 1, flags=second), 0.0)
    lacking = HeaderFlag.RESULT | HeaderFlag.PARTIAL
    assert answers(end) == [(ALL_WORKERS, lacking, 11)]
    end.receive(packet(0b010, 10, worker=1, flags=second), 0.0)
    end.receive(packet(0b100, 100, worker=2, flags=second), 0.0)
    assert answers(end) == [(1, lacking, 11), (2, lacking, 11)]
    assert end.counters.refused == {"late": 1}
    assert (end.counters.results, end.counters.retransmissions) == (1, 2)


def test_urgency_alone_closes_nothing():
    end = server(2)
    end.receive(packet(0b01, 1, flags=HeaderFlag.URGENCY), 0.0)
    assert answers(end) == []


@pytest.mark.parametrize(
    ("operation", "words", "expected", "marks"),
    [
        (ReduceOp.SUM, (LARGEST, 1), -LARGEST - 1, HeaderFlag.OVERFLOW),
        (ReduceOp.SUM, (-LARGEST, -2), LARGEST, HeaderFlag.OVERFLOW),
        (ReduceOp.SUM, (LARGEST, -1), LARGEST - 1, 0),
        (ReduceOp.SUM, (1, -3), -2, 0),
        (ReduceOp.SUM, (-1, 3), 2, 0),
        (ReduceOp.MAX, (-5, 3), 3, 0),
        (ReduceOp.OR, (0b1100, 0b0101), 0b1101, 0),
    ],
)
def test_operations_and_overflow(operation, words, expected, marks):
    end = server(2)
    for worker, word in enumerate(words):
        end.receive(packet(1 << worker, word, operation=operation), 0.0)
    assert answers(end) == [(ALL_WORKERS, HeaderFlag.RESULT | marks, expected)]


def test_an_overflow_marks_its_own_chunk_alone():
    end = server(2)
    for bits in (0b01, 0b10):
        end.receive(np.concatenate([packet(bits, LARGEST), packet(bits, 1, chunk=1)]), 0.0)
    assert answers(end) == [(ALL_WORKERS, HeaderFlag.RESULT | HeaderFlag.OVERFLOW, -2), (*ALL, 2)]


def test_marks_and_exponents_travel_with_the_result():
    end = server(2)
    end.receive(packet(0b01, 1, flags=HeaderFlag.ECN, exponent=9), 0.0)
    end.receive(packet(0b10, 1, flags=HeaderFlag.COLLISION, exponent=4), 0.0)
    header = parse(LAYOUT, end.outgoing(0.0)).header[0]
    assert header["flags"] == HeaderFlag.RESULT | HeaderFlag.ECN
    assert header["exponent"] == 9
    assert (header["bitmap"], header["count"]) == (3, 2)
    assert header["message"] == 5
    assert end.collisions == 1


def test_newer_chunks_take_over_and_older_ones_are_stale():
    end = server(2)
    end.receive(packet(0b11, 1, chunk=2), 0.0)
    end.receive(packet(0b01, 5, chunk=2 + 2 * WINDOW), 0.0)
    assert end.registers(2, 0) == SlotRegisters(3 + 2 * WINDOW, 0b01)
    end.receive(packet(0b10, 9, chunk=2), 0.0)
    end.receive(packet(0b10, 7, chunk=2 + 2 * WINDOW), 0.0)
    assert answers(end) == [(*ALL, 1), (*ALL, 12)]
    assert end.counters.refused == {"stale": 1}


def test_the_sequence_may_wrap():
    end = server(2)
    for chunk in range(2**32 - 3, 2**32 + 3):
        end.receive(packet(0b01, 1, chunk=chunk), 0.0)
        end.receive(packet(0b10, 2, chunk=chunk), 0.0)
        assert answers(end) == [(*ALL, 3)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job": 8}, "job"),
        ({"epoch": 2}, "epoch"),
        ({"worker": 3}, "worker"),
        ({"bitmap": 0, "count": 0}, "bitmap"),
        ({"bitmap": 0b1000, "count": 1}, "bitmap"),
        ({"count": 2}, "count"),
        ({"slot": 1}, "slot"),
        ({"slot_version": 1}, "slot"),
        ({"flags": HeaderFlag.RESULT}, "a result"),
        ({"message": 6}, "mismatch"),
        ({"operation": ReduceOp.MAX}, "mismatch"),
        ({"elements": 3}, "mismatch"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_what_does_not_fit_is_counted_and_changes_nothing(changes, reason):
    end = server(3)
    end.receive(packet(0b100, 1), 0.0)
    end.receive(packet(0b001, 1, **changes), 0.0)
    assert end.counters.refused == {reason: 1}
    assert end.registers(0, 0) == SlotRegisters(1, 0b100)
    assert answers(end) == []


def test_numbers_out_of_range_are_refused():
    with pytest.raises(InputError, match="33 workers; a job takes 1 to 32"):
        server(33)


@given(
    st.lists(
        st.tuples(st.integers(1, 15), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
    )
)
def test_no_sum_is_ever_wrong(sent):
    """Whatever arrives, in whatever batches: a result is the sum of each worker once."""
    end = server(4)
    frames = [
        packet(
            bits,
            sum(10**i for i in range(4) if bits >> i & 1),
            chunk,
            flags=again * HeaderFlag.RESEND,
        )
        for bits, chunk, again in sent
    ]
    half = len(frames) // 2
    for batch in (frames[:half], frames[half:]):
        if batch:
            end.receive(np.concatenate(batch), 0.0)
    for _, flags, word in answers(end):
        assert word == 1111
        assert flags == HeaderFlag.RESULT
