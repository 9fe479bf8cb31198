"""Bitmaps: count the set bits, list them."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import set_bits, trailing_zeros

# Places that ``list_bits`` writes to for each word, whatever is set in it: to look how many are
# would be to guess a branch that nobody can.
AT_ONCE = 4


def popcount(bitmap: Ints, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    return int(_popcount(bitmap.view(np.uint32)))


def expand(bitmap: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.expand``."""
    return expand_words(without_tail(bitmap, size))


def without_tail(bitmap: Ints, size: int) -> Words:
    """The words without bits past the last element, which would lead outside the arrays; a copy
    where the last word may have some.
    """
    words = bitmap.view(np.uint32)[: -(-size // 32)]
    if size % 32:
        words = words.copy()
        words[-1] &= np.uint32((1 << size % 32) - 1)
    return words


def expand_words(words: Words) -> Ints:
    """The indices of all set bits, ascending."""
    count = int(_popcount(words))
    indices: Ints = memory.empty(count + AT_ONCE, np.int32)
    if count < words.size // 7:  # most words are empty, which a branch may well expect
        _list_few(words, indices)
    elif count < words.size:
        _list_some(words, indices)
    else:
        list_bits(words, 0, indices)
    return indices[:count]


@njit(cache=True, nogil=True)
def _popcount(words: Words) -> int:
    count = 0
    for w in range(words.size):
        count += set_bits(words[w])
    return count


@njit(cache=True, nogil=True)
def list_bits(words: Words, base: int, indices: Ints) -> int:
    """Write base + the index of each set bit, ascending; returns how many there are.

    ``indices`` has ``AT_ONCE`` places more than that, which are overwritten.
    """
    return _list(words, base, indices, AT_ONCE)


@njit(cache=True, nogil=True)
def _list_some(words: Words, indices: Ints) -> None:
    """``list_bits`` where few words have more than two bits."""
    _list(words, 0, indices, AT_ONCE // 2)


@njit(cache=True, inline="always")
def _list(words: Words, base: int, indices: Ints, at_once: int) -> int:
    """``at_once`` is a constant to the compiler, as this is written into its callers."""
    found = 0
    for w in range(words.size):
        word = words[w]
        first = base + 32 * w
        count = set_bits(word)
        for k in range(found, found + at_once):
            indices[k] = first + trailing_zeros(word)
            word &= word - np.uint32(1)
        for k in range(found + at_once, found + count):
            indices[k] = first + trailing_zeros(word)
            word &= word - np.uint32(1)
        found += count
    return found


@njit(cache=True, nogil=True)
def _list_few(words: Words, indices: Ints) -> None:
    found = 0
    for w in range(words.size):
        word = words[w]
        while word != np.uint32(0):
            indices[found] = 32 * w + trailing_zeros(word)
            word &= word - np.uint32(1)
            found += 1
