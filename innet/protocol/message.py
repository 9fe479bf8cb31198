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
_NO_WORDS = np.empty(0, np.int32)
_NO_FLOATS = np.empty(0, np.float32), np.empty(0, np.float32), np.zeros(2)
_NO_OWNERS = np.empty(0, np.uint16)
_MOST_OWNERS = 1 << 16  # workers that the header can name
_CUTS = 8  # that are remembered: an all-reduce has few rounds, and the next one often the same


Places: TypeAlias = slice | NDArray[np.int64]
"""Numbers of chunks."""


class _Cut(NamedTuple):
    """How segments of given operations and lengths are split into chunks.

    Attributes:
        shape: the operations, lengths and owners, for the tag.
        lengths: words of each segment.
        chunks: how many there are.
        places: which of them are each segment's, in order.
        operation, elements, owners: as in ``Message``; shared by messages, so they must not be
            written.
    """

    shape: str
    lengths: tuple[int, ...]
    chunks: int
    places: tuple[Places, ...]
    operation: NDArray[np.uint8]
    elements: NDArray[np.uint16]
    owners: NDArray[np.uint16]


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
    counts = tuple(-(-length // values) for length in lengths)
    chunks = sum(counts)
    operation = np.empty(chunks, np.uint8)
    elements = np.full(chunks, values, np.uint16)
    has_owners = any(len(each) > 2 for each in shape)
    owners = np.zeros(chunks, np.uint16) if has_owners else _NO_OWNERS
    places = _places(tuple(each[0] if len(each) > 2 else 0 for each in shape), counts)
    for (number, length, *owner), place in zip(shape, places, strict=True):
        operation[place] = number
        if owner:
            owners[place] = owner[0]
            if not sends(number, owner[0] == worker):
                operation[place] |= WITHOUT_VALUES
        if length:
            last = place.stop - 1 if isinstance(place, slice) else place[-1]
            elements[last] = (length - 1) % values + 1
    return _Cut(repr(list(shape)), lengths, chunks, places, operation, elements, owners)


@lru_cache(_CUTS)
def _places(owned: tuple[int, ...], counts: tuple[int, ...]) -> tuple[Places, ...]:
    """Which chunks are each segment's: its operation, if it has an owner, and how many it has.

    Segments follow each other. Those with owners are spread evenly over the chunks of all of them.
    A link then carries values and headers by turns, at any time as many as altogether: no worker
    gets all values of its shard at the end, over a link that was idle before, and a reduce-scatter
    and an all-gather in one round fill each other's gaps.
    """
    places: list[Places] = []
    begin = 0
    for has_owner, run in groupby(zip(owned, counts, strict=True), lambda pair: pair[0] > 0):
        operations, sizes = zip(*run, strict=True)
        end = begin + sum(sizes)
        if has_owner and len(sizes) > 1:
            # Chunk j of n stands at (j + 1/2) / n of all; at one place, operations take turns.
            turns = [operations[:at].count(each) for at, each in enumerate(operations)]
            place = np.concatenate([(np.arange(size) + 0.5) / max(1, size) for size in sizes])
            number = np.empty(end - begin, np.int64)
            number[np.lexsort((np.repeat(turns, sizes), place))] = np.arange(begin, end)
            places += np.split(number, np.cumsum(sizes[:-1]))
        else:
            places += [slice(*pair) for pair in pairwise(accumulate(sizes, initial=begin))]
        begin = end
    return tuple(places)


class Message:
    """The words that one worker sends, and the array of results.

    A chunk never spans two segments; the last chunk of a segment is padded with zeros. Chunks are
    in the order of their segments, but those of different owners take turns. The words of a single
    segment are not copied; those of several are. Those of a single ``FloatSegment`` are made chunk
    by chunk, and so is what their sums stand for, unless ``settle`` is called.

    Args:
        segments: what to combine.
        values: values per packet.
        worker: who sends them.

    Attributes:
        chunks: number of chunks.
        words: int32, all chunks in order; padding of the very last one may be missing. Empty while
            they are made chunk by chunk.
        floats: what words are made of chunk by chunk, shape (n,), and what the results stand for,
            filled in as they arrive; and shape (2,), float64, the scale and the step. Empty arrays
            where words are given.
        combined: shape (chunks, values), int32: the results; undefined before they arrive. Of words
            that are made chunk by chunk it is one row, as what they stand for is kept instead.
        operation: shape (chunks,), uint8, a ReduceOp or CollectiveOp each, plus WITHOUT_VALUES
            where this worker's packet carries none.
        elements: shape (chunks,), uint16, how many values of a chunk are filled.
        owners: shape (chunks,), uint16, who owns them; empty if no chunk has an owner.

    Raises:
        InputError: not segments, words that are not one-dimensional int32, an unknown operation, or
            an owner too many or too few.
    """

    def __init__(self, segments: Sequence[Segment], values: int, worker: int = 0) -> None:
        _check_list(segments, Segment)
        for index, segment in enumerate(segments):
            _check(index, segment)
        self._cut = _cut(_shape_of(segments), values, worker)
        self.chunks = self._cut.chunks
        self._values = values
        self._float_segment: FloatSegment | None = None
        self.floats = _NO_FLOATS
        self.operation, self.elements = self._cut.operation, self._cut.elements
        self.owners = self._cut.owners
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
        words: NDArray[np.int32] = buffers.empty(self.chunks * values, np.int32)
        rows = words.reshape(self.chunks, values)
        for segment, place in zip(segments, self._cut.places, strict=True):
            own = segment.words
            if self._lacks_values(place):
                continue  # they do not travel
            if isinstance(place, slice):
                filled = place.start * values + len(own)
                words[place.start * values : filled] = own
                words[filled : place.stop * values] = 0
            else:
                whole, rest = divmod(len(own), values)
                rows[place[:whole]] = own[: len(own) - rest].reshape(whole, values)
                rows[place[whole:], :rest] = own[len(own) - rest :]
                rows[place[whole:], rest:] = 0
        return words

    def _lacks_values(self, place: Places) -> bool:
        """Whether this worker's packets of a segment carry no values."""
        return bool((self.operation[place][:1] & WITHOUT_VALUES).any())

    def results(self) -> list[NDArray[np.int32]]:
        """One array per segment, without padding: views of ``combined``, unless chunks with
        other owners are between its own.

        A ``FloatSegment`` whose sums were made on the way is given these; its array is empty.
        """
        if self._float_segment is not None:
            self._float_segment.arrived(self.floats[1])
            return [_NO_WORDS]
        values, flat = self._values, self._results
        found = []
        for place, length in zip(self._cut.places, self._cut.lengths, strict=True):
            if isinstance(place, slice):
                found.append(flat[place.start * values : place.start * values + length])
            elif self._lacks_values(place):  # so it gets some
                found.append(self.combined[place].reshape(-1)[:length])
            else:
                found.append(flat[:length])  # they mean nothing
        return found

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
        chunks, operation, elements, owners: as of a ``Message`` with words.
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
        self._cut = _cut(_shape_of(segments), elements, worker)
        self.chunks = self._cut.chunks
        self.combined = np.empty((self.chunks, 0), np.int32)
        self.operation, self.elements = self._cut.operation, self._cut.elements
        self.owners = self._cut.owners
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
    if operation <= max(ReduceOp):
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
