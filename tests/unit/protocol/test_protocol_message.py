"""Segments cut into chunks and put together again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment, SizedSegment
from innet.protocol.message import (
    Message,
    SizedMessage,
    sequence_of,
    serial_distance,
    serial_distances,
)
from innet.wire import WITHOUT_VALUES


def segment(length: int, operation: ReduceOp = ReduceOp.SUM, first: int = 1) -> Segment:
    return Segment(operation, np.arange(first, first + length, dtype=np.int32))


def test_chunks_do_not_span_segments_and_are_filled_with_zeros() -> None:
    message = Message([segment(5), segment(0), segment(4, ReduceOp.MAX, 11)], 4)
    assert message.chunks == 3
    assert message.words.tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 11, 12, 13, 14]
    assert message.combined.shape == (3, 4)
    assert message.elements.tolist() == [4, 1, 4]
    assert message.operation.tolist() == [1, 1, 3]


def test_words_that_compiled_code_would_not_take_are_copied() -> None:
    strided = Segment(ReduceOp.SUM, np.arange(10, dtype=np.int32)[::2])
    fixed = Segment(ReduceOp.OR, np.frombuffer(bytes(range(16)), np.int32))
    for given_ in (strided, fixed):
        flags = Message([given_], 4).words.flags
        assert flags.c_contiguous
        assert flags.writeable
    usual = segment(8)
    assert Message([usual], 4).words is usual.words


@pytest.mark.parametrize("segments", [[], [segment(0)], [segment(0), segment(0)]])
def test_nothing_to_send(segments: list[Segment]) -> None:
    message = Message(segments, 4)
    assert message.chunks == 0
    assert [len(result) for result in message.results()] == [0] * len(segments)


@given(st.lists(st.integers(0, 40), max_size=5), st.sampled_from([1, 3, 4, 32]), st.randoms())
def test_results_return_what_was_stored(lengths: list[int], values: int, random) -> None:
    segments = [segment(length, first=100 * index) for index, length in enumerate(lengths)]
    message = Message(segments, values)
    doubled = np.zeros((message.chunks, values), np.int32)
    doubled.reshape(-1)[: len(message.words)] = 2 * message.words
    order = list(range(message.chunks))
    random.shuffle(order)
    while order:
        size = random.randint(1, len(order))
        now, order = np.array(order[:size], np.int64), order[size:]
        message.combined[now] = doubled[now]
    results = message.results()
    assert len(results) == len(lengths)
    for result, sent in zip(results, segments, strict=True):
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, sent.words * 2)


def test_a_single_segment_is_not_copied() -> None:
    words = np.arange(7, dtype=np.int32)
    message = Message([Segment(ReduceOp.SUM, words)], 4)
    assert np.shares_memory(message.words, words)
    assert message.elements.tolist() == [4, 3]
    message.combined[:] = -1
    assert words.tolist() == list(range(7))


def test_strided_words_are_fine() -> None:
    words = np.arange(10, dtype=np.int32)[::2]
    assert Message([Segment(ReduceOp.OR, words)], 5).words.tolist() == [0, 2, 4, 6, 8]


def test_unusable_segments_are_named() -> None:
    good = segment(1)
    with pytest.raises(InputError, match=r"segment 1 holds int64 of shape \(3,\)"):
        Message([good, Segment(ReduceOp.SUM, np.zeros(3, np.int64))], 4)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"segment 0 holds int32 of shape \(2, 2\)"):
        Message([Segment(ReduceOp.SUM, np.zeros((2, 2), np.int32))], 4)
    known = "SUM, OR, MAX, REDUCE, BROADCAST, BARRIER"
    with pytest.raises(InputError, match=f"segment 0 has the operation 99; choose one of {known}"):
        Message([Segment(99, np.zeros(2, np.int32))], 4)  # type: ignore[arg-type]


OWNED = [
    (CollectiveOp.REDUCE, 6, 0),
    (CollectiveOp.REDUCE, 0, 1),  # an empty shard
    (CollectiveOp.REDUCE, 3, 2),
    (ReduceOp.SUM, 2, None),
    (CollectiveOp.BROADCAST, 5, 1),
    (CollectiveOp.BARRIER, 1, 0),
]


@pytest.mark.parametrize("is_sized", [False, True])
def test_chunks_have_owners_and_who_sends_no_values_says_so(is_sized: bool) -> None:
    def message(worker: int) -> Message:
        if is_sized:
            return SizedMessage([SizedSegment(*each) for each in OWNED], 4, worker)
        sent = [Segment(name, np.ones(n, np.int32), owner) for name, n, owner in OWNED]
        return Message(sent, 4, worker)

    def operations(worker: int) -> list[int]:
        return message(worker).operation.tolist()

    everywhere = message(0)
    assert everywhere.chunks == 7
    # Segments with owners take turns, each spread evenly.
    assert everywhere.elements.tolist() == [4, 3, 2, 2, 4, 1, 1]
    assert everywhere.owners.tolist() == [0, 2, 0, 0, 1, 0, 1]
    bare = WITHOUT_VALUES
    assert operations(0) == [bare | 4, 4, bare | 4, 1, bare | 5, bare | 6, bare | 5]
    assert operations(1) == [4, 4, 4, 1, 5, bare | 6, 5]
    assert operations(2) == [4, bare | 4, 4, 1, bare | 5, bare | 6, bare | 5]
    # All say the same of the chunks; so they have one tag, and another with other owners.
    assert {message(worker).tag(7, 0) for worker in range(3)} == {everywhere.tag(7, 0)}
    others = [SizedSegment(name, size, owner and 1) for name, size, owner in OWNED]
    assert SizedMessage(others, 4).tag(7, 0) != everywhere.tag(7, 0)
    if not is_sized:
        assert [len(each) for each in everywhere.results()] == [6, 0, 3, 2, 5, 1]


@pytest.mark.parametrize("sizes", [(9, 9, 9), (0, 17, 4, 1), (4, 0), (1, 1, 1, 1), (40, 3, 40)])
def test_shards_take_turns_and_find_their_words_again(sizes: tuple[int, ...]) -> None:
    """At any chunk, each has as many chunks behind it as is its part of all, within one."""
    words = [np.arange(size, dtype=np.int32) + 1000 * at for at, size in enumerate(sizes)]
    shards = list(enumerate(words))
    sent = [Message([Segment(CollectiveOp.BROADCAST, w, o) for o, w in shards], 4, worker)
            for worker in range(len(sizes))]  # fmt: skip
    owners = sent[0].owners
    counts = np.bincount(owners, minlength=len(sizes))
    assert counts.tolist() == [-(-size // 4) for size in sizes]
    for owner, count in enumerate(counts):
        behind = np.cumsum(owners == owner)
        assert (abs(behind - np.arange(1, len(owners) + 1) * count / len(owners)) <= 1).all()
    # As at the switch, the result of a chunk is what its owner sent.
    for chunk, owner in enumerate(owners):
        place = sent[0].places[chunk]
        values = np.append(sent[owner].words, np.zeros(4, np.int32))[4 * place : 4 * place + 4]
        assert not values[sent[owner].elements[chunk] :].any()
        for message in sent:
            message.combined[place] = values
    for worker, message in enumerate(sent):
        for owner, found in enumerate(message.results()):
            assert found.shape == words[owner].shape
            assert owner == worker or found.tolist() == words[owner].tolist()


def test_without_owners_there_are_none() -> None:
    assert Message([segment(9)], 4).owners.tolist() == []
    assert SizedMessage([SizedSegment(ReduceOp.MAX, 9)], 4).owners.tolist() == []


@pytest.mark.parametrize(
    ("operation", "owner", "message"),
    [
        (ReduceOp.SUM, 0, "SUM has the owner 0, but all workers send and get its words; leave it"),
        (CollectiveOp.REDUCE, None, "REDUCE has the owner None; give the index of a worker"),
        (CollectiveOp.BROADCAST, -1, "BROADCAST has the owner -1; give"),
        (CollectiveOp.BROADCAST, 1 << 16, "BROADCAST has the owner 65536; give"),
        (CollectiveOp.BARRIER, 1.0, "BARRIER has the owner 1.0; give"),
        (CollectiveOp.BARRIER, True, "BARRIER has the owner True; give"),
    ],
)
def test_wrong_owners_are_named(operation: ReduceOp, owner: object, message: str) -> None:
    words = np.zeros(2, np.int32)
    with pytest.raises(InputError, match=f"segment 1 with the operation {message}"):
        Message([segment(1), Segment(operation, words, owner)], 4)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"segment 0 with the operation {message}"):
        SizedMessage([SizedSegment(operation, 2, owner)], 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, np.zeros(3, np.int32), segment(1)])
def test_a_round_is_a_list(wrong: object) -> None:
    with pytest.raises(InputError, match=rf"of type {type(wrong).__name__}; expected a list of"):
        Message(wrong, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.int32(3), Segment(ReduceOp.SUM, [1, 2])])  # type: ignore[arg-type]
def test_what_is_no_segment(wrong: object) -> None:
    with pytest.raises(
        InputError, match=r"segment 1 is .*; expected an innet\.core\.reduce_op\.Segment"
    ):
        Message([segment(1), wrong], 4)  # type: ignore[list-item]


def test_sequence_wraps_to_zero() -> None:
    chunks = np.array([0, 2**32 - 2, 2**32 - 1, 2**32, 2**33 + 5])
    assert sequence_of(chunks).tolist() == [1, 2**32 - 1, 0, 1, 6]


@pytest.mark.parametrize(
    ("sequence", "reference", "ahead"),
    [
        (1, 1, 0),
        (2, 1, 1),
        (1, 2, -1),
        (0, 2**32 - 1, 1),
        (2**32 - 1, 0, -1),
        (5, 2**32 - 5, 10),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, -(2**31)),
    ],
)
def test_serial_arithmetic(sequence: int, reference: int, ahead: int) -> None:
    assert serial_distance(sequence, reference) == ahead
    pair = np.array([sequence], np.uint32), np.array([reference], np.uint32)
    assert serial_distances(*pair).tolist() == [ahead]
