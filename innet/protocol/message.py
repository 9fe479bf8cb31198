"""One all-reduce as the protocol sees it: segments cut into chunks of a packet's size, and back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from innet import memory
from innet.errors import InputError
from innet.words import Operation, Segment

_OPERATIONS = frozenset(Operation)


class Message:
    """The words that one worker sends, and room for the results.

    A chunk never spans two segments; the last one of a segment is filled up with zeros. The words
    of a single segment are used where they are; those of several are copied.

    Args:
        segments: what to combine.
        values: values per packet.

    Attributes:
        chunks: how many there are.
        words: int32, chunk after chunk; zeros that fill up the last one of all may be missing.
        combined: shape (chunks, values), int32, whatever it is: the results, once they are in.
        operation: shape (chunks,), uint8, an Operation each.
        elements: shape (chunks,), uint16, how many of a chunk's values are meant.

    Raises:
        InputError: words that are not int32 of one dimension, or an operation that is none.
    """

    def __init__(self, segments: Sequence[Segment], values: int) -> None:
        for index, segment in enumerate(segments):
            _check(index, segment)
        self._lengths = [len(segment.words) for segment in segments]
        counts = (-(-length // values) for length in self._lengths)
        self._first = list(accumulate(counts, initial=0))
        self.chunks = self._first[-1]
        self.combined: NDArray[np.int32] = memory.empty(self.chunks * values, np.int32).reshape(
            self.chunks, values
        )
        self.operation = np.empty(self.chunks, np.uint8)
        self.elements = np.empty(self.chunks, np.uint16)
        self.elements.fill(values)
        for segment, length, (first, end) in zip(
            segments, self._lengths, pairwise(self._first), strict=True
        ):
            self.operation[first:end] = segment.operation
            if length:
                self.elements[end - 1] = (length - 1) % values + 1
        if len(segments) == 1:
            # Writeable, too: compiled code takes no others, and a copy is rarely needed.
            words = np.require(segments[0].words, requirements=["C", "A", "W"])
            self.words: NDArray[np.int32] = words
        else:
            self.words = self._joined(segments, values)

    def _joined(self, segments: Sequence[Segment], values: int) -> NDArray[np.int32]:
        """The words of all segments, each filled up with zeros to whole chunks."""
        words = memory.empty(self.chunks * values, np.int32)
        for segment, (first, end) in zip(segments, pairwise(self._first), strict=True):
            meant = first * values + len(segment.words)
            words[first * values : meant] = segment.words
            words[meant : end * values] = 0
        return words

    def results(self) -> list[NDArray[np.int32]]:
        """One array per segment, without the filling: views of ``combined``."""
        flat = self.combined.reshape(-1)
        width = self.combined.shape[1]
        return [
            flat[first * width : first * width + length]
            for first, length in zip(self._first, self._lengths, strict=False)
        ]


def tag_of(segments: Sequence[Segment], first_chunk: int, label: int) -> int:
    """What all packets of an all-reduce carry, so that the switch keeps different ones apart.

    Workers that reduce the same thing at the same point of the job agree on it; of others, whose
    packets would be taken for one sum, all but one in 65,536 do not.
    """
    shape = [(int(segment.operation), len(segment.words)) for segment in segments]
    return zlib.crc32(repr((label, first_chunk, shape)).encode()) & 0xFFFF


def _check(index: int, segment: Segment) -> None:
    if segment.words.dtype != np.int32 or segment.words.ndim != 1:
        raise InputError(
            f"segment {index} holds {segment.words.dtype} of shape {segment.words.shape}; "
            "expected int32 of shape (n,)."
        )
    if segment.operation not in _OPERATIONS:
        known = ", ".join(each.name for each in Operation)
        raise InputError(
            f"segment {index} has the operation {segment.operation!r}; choose one of {known}."
        )
