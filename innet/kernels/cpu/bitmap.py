"""Bitmaps: count the set bits, list them."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import set_bits, trailing_zeros


def popcount(bitmap: Ints, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    return int(_popcount(bitmap.view(np.uint32)))


def expand(bitmap: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.expand``."""
    words = bitmap.view(np.uint32)
    indices = np.empty(_popcount(words), np.int32)
    return indices[: _expand(words, size, indices)]


@njit(cache=True)
def _popcount(words: Words) -> int:
    count = 0
    for w in range(words.size):
        count += set_bits(words[w])
    return count


@njit(cache=True)
def _expand(words: Words, size: int, indices: Ints) -> int:
    count = 0
    for w in range(words.size):
        word = words[w]
        while word != np.uint32(0):
            i = 32 * w + trailing_zeros(word)
            word &= word - np.uint32(1)
            if i < size:
                indices[count] = i
                count += 1
    return count
