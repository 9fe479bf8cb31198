"""Indices in few bits: what one worker tells the others about its choice.

Both codes take a number of words that all workers know beforehand. Their words are combined by OR
with the zeros of all other workers, so a code need not be the sum or the union of anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from innet.codecs.parts import Ints
from innet.kernels import Kernels


class IndexCode(Protocol):
    """How a known number of indices becomes a known number of words.

    Attributes:
        count: indices.
        words: int32 words.
    """

    @property
    def count(self) -> int: ...

    @property
    def words(self) -> int: ...

    def encode(self, indices: Ints, kernels: Kernels) -> Ints:
        """The words of ``count`` indices, ascending."""
        ...

    def decode(self, words: Ints, kernels: Kernels) -> Ints:
        """The indices of such words. Other words give any indices, perhaps of another number."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkCode:
    """One index of each chunk of consecutive elements: its position in the chunk.

    A position takes ceil(log2 chunk) bits: 7 for chunks of 65 to 128 elements, 9 for 400.

    Attributes:
        size: elements.
        chunk: elements of a chunk; the last may be shorter.
    """

    size: int
    chunk: int

    @property
    def count(self) -> int:
        return -(-self.size // self.chunk)

    @property
    def words(self) -> int:
        return -(-self.count * self._bits // 32)

    @property
    def _bits(self) -> int:
        return (min(self.chunk, self.size) - 1).bit_length()

    def encode(self, indices: Ints, kernels: Kernels) -> Ints:
        """See ``IndexCode``."""
        if not self._bits:
            return np.empty(0, np.int32)
        return kernels.pack_bits(indices - self._starts(), self._bits)

    def decode(self, words: Ints, kernels: Kernels) -> Ints:
        """See ``IndexCode``."""
        if not self._bits:
            return self._starts()
        return kernels.unpack_bits(words, self.count, self._bits) + self._starts()

    def _starts(self) -> Ints:
        return np.arange(0, self.size, self.chunk, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class SortedCode:
    """Any ``count`` of ``size`` elements, ascending: Elias and Fano's code.

    The low b = floor(log2(size / count)) bits of each index are stored as they are. The rest of
    index i, plus i, is the position of a set bit in a bitmap. It has at most count + size / 2**b
    bits, so an index takes at most log2(size / count) + 2 bits. The entropy
    of a random choice of few of many is log2(size / count) + 1.44 bits an index.

    Source: P. Elias, "Efficient storage and retrieval by content and address of static files",
    Journal of the ACM 21, 1974.

    Attributes:
        size: elements.
        count: how many are listed, 1 .. size.
    """

    size: int
    count: int

    @property
    def words(self) -> int:
        return self._low_words + -(-self._bitmap // 32)

    @property
    def _bits(self) -> int:
        return (self.size // self.count).bit_length() - 1

    @property
    def _low_words(self) -> int:
        return -(-self.count * self._bits // 32)

    @property
    def _bitmap(self) -> int:
        """How many bits the bitmap has."""
        return ((self.size - 1) >> self._bits) + self.count

    def encode(self, indices: Ints, kernels: Kernels) -> Ints:
        """See ``IndexCode``."""
        high: Ints = (indices >> np.int32(self._bits)) + self._order()
        bitmap = kernels.nonzero_bitmap(high, np.ones_like(high), self._bitmap)
        if not self._bits:
            return bitmap
        low = indices & np.int32((1 << self._bits) - 1)
        return np.concatenate((kernels.pack_bits(low, self._bits), bitmap))

    def decode(self, words: Ints, kernels: Kernels) -> Ints:
        """See ``IndexCode``."""
        high = kernels.bitmap_to_indices(words[self._low_words :], self._bitmap)
        if high.size != self.count:
            return high  # not of this code
        indices: Ints = (high - self._order()) << np.int32(self._bits)
        if self._bits:
            indices |= kernels.unpack_bits(words[: self._low_words], self.count, self._bits)
        return indices

    def _order(self) -> Ints:
        return np.arange(self.count, dtype=np.int32)
