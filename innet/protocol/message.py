"""The words of one all-reduce: segments split into chunks of a packet's size, and back.

On the wire chunks have 32-bit serial numbers (RFC 1982, SERIAL_BITS = 32).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.errors import InputError, StateError
from innet.core.float_sums import FloatSum
from innet.core.numbers import is_int
from innet.core.reduce_op import CollectiveOp, FloatSegment, ReduceOp, Segment, SizedSegment, sends
from innet.wire import WITHOUT_VALUES


def sequence_of(chunk: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The header's ``sequence`` of chunks. Chunks count from 0 and do not wrap."""
    return (chunk + 1).astype(np.uint32)  # keeps the low 32 bits


def serial_distances(
    sequence: NDArray[np.uint32], reference: NDArray[np.uint32]
) -> NDArray[np.int32]:
    """How far ``sequence`` is ahead of ``reference`` (negative: behind), for arrays."""
    return (sequence - reference).view(np.int32)


def serial_distance(sequence: int, reference: int) -> int:
    """How far ``sequence`` is ahead of ``reference`` (negative: behind)."""
    return ((sequence - reference + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


_INT32 = np.dtype(np.int32)
_OPERATIONS = {int(each): each.name for each in (*ReduceOp, *CollectiveOp)}
_OPERATIONS |= {int(each): f"SUM of {each.name}" for each in FloatSum}
_NO_WORDS = np.empty(0, np.int32)
_NO_FLOATS = np.empty(0, np.float32), np.empty(0, np.float32), np.zeros(2)
_NO_OWNERS, _IN_ORDER = np.empty(0, np.uint16), np.empty(0, np.int32)
_MOST_OWNERS = 1 << 16  # workers that the header can name
_CUTS = 8  # that are remembered: an all-reduce has few rounds, and the next one often the same


class _Cut(NamedTuple):
    """How segments of given operations and lengths are split into chunks.

    Attributes:
        shape: the operations, lengths and owners, for the tag.
        lengths: words of each segment.
        first: the first chunk of each segment, and the number of chunks.
        operation, elements, owners, places: as in ``Message``; shared by messages, so they must
            not be written.
    """

    shape: str
    lengths: tuple[int, ...]
    first: tuple[int, ...]
    operation: NDArray[np.uint8]
    elements: NDArray[np.uint16]
    owners: NDArray[np.uint16]
    places: NDArray[np.int32]


Shape: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each segment: the operation, the number of words and, if there is one, the owner."""


def _shape_of(segments: Sequence[Segment] | Sequence[SizedSegment]) -> Shape:
    return tuple(
        [
            (int(each.operation), each.size)
            if each.owner is None
            else (int(each.operation), each.size, each.owner)
            for each in segments
        ]
    )


@lru_cache(_CUTS)
def _cut(shape: Shape, values: int, worker: int) -> _Cut:
    lengths = tuple(each[1] for each in shape)
    first = tuple(accumulate((-(-length // values) for length in lengths), initial=0))
    operation = np.empty(first[-1], np.uint8)
    elements = np.full(first[-1], values, np.uint16)
    has_owners = any(len(each) > 2 for each in shape)
    owners = np.zeros(first[-1], np.uint16) if has_owners else _NO_OWNERS
    places = _places(shape, np.diff(first).tolist()) if has_owners else _IN_ORDER
    for (number, length, *owner), (begin, end) in zip(shape, pairwise(first), strict=True):
        operation[begin:end] = number
        if owner:
            owners[begin:end] = owner[0]
            if not sends(number, owner[0] == worker):
                operation[begin:end] |= WITHOUT_VALUES
        if length:
            elements[end - 1] = (length - 1) % values + 1
    if has_owners:
        operation, elements, owners = operation[places], elements[places], owners[places]
    return _Cut(repr(list(shape)), lengths, first, operation, elements, owners, places)


def _cut_for(shape: Shape, values: int, worker: int) -> _Cut:
    """``_cut`` of a worker; it is the same for all where no chunk has an owner."""
    return _cut(shape, values, worker if any(len(each) > 2 for each in shape) else 0)


def _places(shape: Shape, counts: Sequence[int]) -> NDArray[np.int32]:
    """The order of the chunks of all segments, of which some have owners.

    Segments follow each other. Those with owners are spread evenly over the chunks of all of them.
    A link then carries values and headers by turns, at any time as many as altogether: workers go
    through the chunks together, and do not wait for one owner's link while those of others are
    idle. And a reduce-scatter and an all-gather in one round fill each other's gaps.
    """
    places: list[NDArray[np.int64]] = []
    begin = 0
    for has_owner, run in groupby(zip(shape, counts, strict=True), lambda each: len(each[0]) > 2):
        segments, sizes = zip(*run, strict=True)
        chunks = np.arange(begin, begin + sum(sizes))
        if has_owner:
            # Chunk j of n stands at (j + 1/2) / n of all; at one place, operations take turns.
            operations = [each[0] for each in segments]
            turns = [operations[:at].count(each) for at, each in enumerate(operations)]
            share = np.concatenate([(np.arange(size) + 0.5) / max(1, size) for size in sizes])
            chunks = chunks[np.lexsort((np.repeat(turns, sizes), share))]
        places.append(chunks)
        begin += sum(sizes)
    return np.concatenate(places).astype(np.int32)


class Message:
    """The words that one worker sends, and the array of results.

    A chunk never spans two segments; the last chunk of a segment is padded with zeros. The words of
    a single segment are not copied; those of several are. Those of a single ``FloatSegment`` are
    made chunk by chunk, and so is what their sums stand for, unless ``settle`` is called.

    Args:
        segments: what to combine.
        values: values per packet.
        worker: who sends them.

    Attributes:
        chunks: number of chunks.
        words: int32, all chunks, segment by segment; padding of the very last one may be missing.
            Empty while they are made chunk by chunk.
        floats: what words are made of chunk by chunk, shape (n,), and what the results stand for,
            filled in as they arrive; and shape (2,), float64, the scale and the step. Empty arrays
            where words are given.
        combined: shape (chunks, values), int32: the results; undefined before they arrive. Of words
            that are made chunk by chunk it is one row, as what they stand for is kept instead.
        operation: shape (chunks,), uint8, a ReduceOp or CollectiveOp each, plus WITHOUT_VALUES
            where this worker's packet carries none.
        elements: shape (chunks,), uint16, how many values of a chunk are filled.
        owners: shape (chunks,), uint16, who owns them; empty if no chunk has an owner.
        places: shape (chunks,), int32: where their words lie, in chunks of ``words`` and rows of
            ``combined``; empty if they are in order.

    Raises:
        InputError: not segments, words that are not one-dimensional int32, an unknown operation, or
            an owner too many or too few.
    """

    def __init__(self, segments: Sequence[Segment], values: int, worker: int = 0) -> None:
        _check_list(segments, Segment)
        for index, segment in enumerate(segments):
            _check(index, segment)
        self._cut = _cut_for(_shape_of(segments), values, worker)
        self._worker = worker
        self.chunks = self._cut.first[-1]
        self._values = values
        self._float_segment: FloatSegment | None = None
        self.floats = _NO_FLOATS
        self.operation, self.elements = self._cut.operation, self._cut.elements
        self.owners, self.places = self._cut.owners, self._cut.places
        if len(segments) == 1 and isinstance(segments[0], FloatSegment):
            self._make_floats(segments[0])
            return
        self._make_results()
        if len(segments) != 1:
            self.words = self._joined(segments, values)
        elif (words := segments[0].words).flags.carray:
            self.words = words
        else:  # compiled code takes no others
            self.words = np.require(words, requirements=["C", "A", "W"])

    def _make_results(self) -> None:
        self._results: NDArray[np.int32] = buffers.empty(self.chunks * self._values, np.int32)
        self.combined = self._results.reshape(self.chunks, self._values)

    def _make_floats(self, segment: FloatSegment) -> None:
        """Make words and the floats of results chunk by chunk."""
        self.words = _NO_WORDS
        # The results of all chunks one after the other: to keep them would write as much memory
        # again as their floats take.
        self.combined = np.empty((1, self._values), np.int32)
        self._float_segment = segment
        values, sums = segment.values, segment.values
        if not segment.overwrites:
            sums = buffers.empty(segment.size, np.float32)
        self.floats = values, sums, np.array([segment.scale, segment.step])

    def settle(self) -> None:
        """Make all words now, and leave it to others what the results stand for."""
        if self._float_segment is not None:
            self.words = self._float_segment.words
            self._float_segment, self.floats = None, _NO_FLOATS
            self._make_results()

    def _joined(self, segments: Sequence[Segment], values: int) -> NDArray[np.int32]:
        """The words of all segments, each padded with zeros to complete chunks."""
        words = buffers.empty(self.chunks * values, np.int32)
        for segment, (first, end) in zip(segments, pairwise(self._cut.first), strict=True):
            if segment.owner is not None and not sends(
                segment.operation, segment.owner == self._worker
            ):
                continue  # they do not travel
            filled = first * values + len(segment.words)
            words[first * values : filled] = segment.words
            words[filled : end * values] = 0
        return words

    def results(self) -> list[NDArray[np.int32]]:
        """One array per segment, without padding: views of ``combined``.

        A ``FloatSegment`` whose sums were made on the way is given these; its array is empty.
        """
        if self._float_segment is not None:
            self._float_segment.arrived(self.floats[1])
            return [_NO_WORDS]
        values, flat = self._values, self._results
        return [
            flat[first * values : first * values + length]
            for first, length in zip(self._cut.first, self._cut.lengths, strict=False)
        ]

    def tag(self, first_chunk: int, label: int) -> int:
        """The tag in all packets of an all-reduce, so that the switch tells all-reduces apart.

        Workers with the same all-reduce at the same point of the job have the same tag. Different
        all-reduces have the same tag with probability 1/65,536.
        """
        return zlib.crc32(f"({label}, {first_chunk}, {self._cut.shape})".encode()) & 0xFFFF


class SizedMessage(Message):
    """A message without words, for header-only packets. Workers with the same one share its memory.

    Args:
        segments: what a message with words would have.
        elements: words that a packet stands for.
        worker: who sends them.

    Attributes:
        chunks, operation, elements, owners, places: as of a ``Message`` with words.
        words, combined: empty.

    Raises:
        InputError: not thin segments, a size below 0, or an unknown operation.
    """

    def __init__(self, segments: Sequence[SizedSegment], elements: int, worker: int = 0) -> None:
        _check_list(segments, SizedSegment)
        for index, segment in enumerate(segments):
            if (
                not isinstance(segment, SizedSegment)
                or not is_int(segment.size)
                or segment.size < 0
            ):
                raise InputError(
                    f"segment {index} is {segment!r}; these packets are thin, so expected an "
                    "innet.core.reduce_op.SizedSegment with a number of words."
                )
            _check_operation(index, segment)
        self._cut = _cut_for(_shape_of(segments), elements, worker)
        self.chunks = self._cut.first[-1]
        self.combined = np.empty((self.chunks, 0), np.int32)
        self.operation, self.elements = self._cut.operation, self._cut.elements
        self.owners, self.places = self._cut.owners, self._cut.places
        self.words, self.floats = _NO_WORDS, _NO_FLOATS
        self._float_segment = None

    def results(self) -> list[NDArray[np.int32]]:
        """Nothing is in thin packets.

        Raises:
            StateError: always.
        """
        raise StateError("thin packets have no sums; leave thin out to have them.")


def _check_list(segments: object, kind: type[Segment | SizedSegment]) -> None:
    if not isinstance(segments, list | tuple):
        raise InputError(
            f"a round is of type {type(segments).__name__}; expected a list of "
            f"innet.core.reduce_op.{kind.__name__}."
        )


def _check_operation(index: int, segment: Segment | SizedSegment) -> None:
    operation, owner = segment.operation, segment.owner
    if operation not in _OPERATIONS:
        known = ", ".join(_OPERATIONS.values())
        raise InputError(f"segment {index} has the operation {operation!r}; choose one of {known}.")
    name = _OPERATIONS[operation]
    if not min(CollectiveOp) <= operation <= max(CollectiveOp):
        if owner is not None:
            raise InputError(
                f"segment {index} with the operation {name} has the owner {owner!r}, but all "
                "workers send and get its words; leave it out."
            )
    elif not is_int(owner) or not 0 <= owner < _MOST_OWNERS:
        raise InputError(
            f"segment {index} with the operation {name} has the owner {owner!r}; give the index "
            "of a worker."
        )


def _check(index: int, segment: Segment) -> None:
    if isinstance(segment, FloatSegment):
        return
    if not (isinstance(segment, Segment) and isinstance(segment.words, np.ndarray)):
        raise InputError(
            f"segment {index} is {segment!r}; expected an innet.core.reduce_op.Segment "
            "with a NumPy array."
        )
    if segment.words.dtype != _INT32 or segment.words.ndim != 1:
        raise InputError(
            f"segment {index} holds {segment.words.dtype} of shape {segment.words.shape}; "
            "expected int32 of shape (n,)."
        )
    _check_operation(index, segment)
