"""Bitmaps, lists of indices, and dense arrays: sparse integers from each form to the others."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import STRETCH, below_16, flag_32, put, set_bits, trailing_zeros

_ONE = np.uint64(1)
AT_ONCE = 16  # items after the last index that ``list_bits`` may overwrite


def popcount(bitmap: Ints, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    return int(_popcount(bitmap.view(np.uint32)))


def bitmap_to_indices(bitmap: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.bitmap_to_indices``."""
    return words_to_indices(without_tail(bitmap, size))


def without_tail(bitmap: Ints, size: int) -> Words:
    """The words without bits after the last element, which would index outside the arrays.

    A copy if the last word may have such bits.
    """
    words = bitmap.view(np.uint32)[: -(-size // 32)]
    if size % 32:
        words = words.copy()
        words[-1] &= np.uint32((1 << size % 32) - 1)
    return words


def words_to_indices(words: Words) -> Ints:
    """The indices of all set bits, ascending."""
    count = int(_popcount(words))
    indices: Ints = buffers.empty(count + AT_ONCE, np.int32)
    _list_so_many(words, 0, count, indices)
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

    ``indices`` has ``AT_ONCE`` more items than that, which are overwritten.
    """
    count = _popcount(words)
    _list_so_many(words, base, count, indices)
    return count


@njit(cache=True, nogil=True)
def _list_so_many(words: Words, base: int, count: int, indices: Ints) -> None:
    """``list_bits`` for ``count`` bits: the more bits, the more items are written at once."""
    found = 0
    if count < words.size // 10:
        found = _list_few(words, base, indices)
    elif count < words.size * 6 // 10:
        found = _list(words, base, indices, 2)
    elif count < words.size * 14 // 10:
        found = _list(words, base, indices, 4)
    elif count < words.size * 4:
        found = _list(words, base, indices, 8)
    else:
        found = _list(words, base, indices, AT_ONCE)
    for w in range(words.size // 2 * 2, words.size):  # an odd last word
        word = np.uint64(words[w])
        while word != np.uint64(0):
            indices[found] = base + 32 * w + trailing_zeros(word)
            word &= word - _ONE
            found += 1


@njit(cache=True, inline="always")
def _list(words: Words, base: int, indices: Ints, at_once: int) -> int:
    """Write ``at_once`` items for every two words, and a loop only for further bits.

    A branch on the number of bits could not be predicted. ``at_once`` is a constant for the
    compiler, since this function is inlined.
    """
    found = 0
    for p in range(words.size // 2):
        pair = np.uint64(words[2 * p]) | (np.uint64(words[2 * p + 1]) << np.uint64(32))
        first = base + 64 * p
        position = np.uint64(found)  # unsigned, so that nothing wraps around
        count = set_bits(pair)
        for k in range(at_once):
            indices[position + np.uint64(k)] = first + trailing_zeros(pair)
            pair &= pair - _ONE
        for k in range(at_once, count):
            indices[position + np.uint64(k)] = first + trailing_zeros(pair)
            pair &= pair - _ONE
        found += count
    return found


@njit(cache=True, nogil=True)
def _list_few(words: Words, base: int, indices: Ints) -> int:
    """For words that are mostly empty: then a branch is predicted well."""
    found = 0
    for p in range(words.size // 2):
        pair = np.uint64(words[2 * p]) | (np.uint64(words[2 * p + 1]) << np.uint64(32))
        while pair != np.uint64(0):
            indices[found] = base + 64 * p + trailing_zeros(pair)
            pair &= pair - _ONE
            found += 1
    return found


# ----------------------------------------------------------------------------
# Integers at indices: as a bitmap, at other indices, and in a dense array.


def nonzero_bitmap(indices: Ints | None, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.nonzero_bitmap``."""
    bitmap: Words = buffers.zeros(-(-size // 32), np.uint32)
    if indices is None:
        _nonzero_bitmap_dense(integers, bitmap)
    else:
        nonzero_bitmap_sparse(indices, integers, bitmap)
    return bitmap.view(np.int32)


def gather_sparse(indices: Ints, integers: Ints, positions: Ints, /) -> Ints:
    """See ``innet.kernels.Kernels.gather_sparse``."""
    found: Ints = buffers.zeros(positions.size, np.int32)
    _gather_sparse(indices, integers, positions, found)
    return found


@njit(cache=True, nogil=True)
def nonzero_word(integers: Ints, begin: int) -> np.uint32:
    """Bit j tells whether integer begin + j is not zero; bits after the end are 0."""
    if begin + 32 <= integers.size:
        return flag_32(integers, begin, np.uint32(0xFFFFFFFF), np.uint32(1))
    flags = np.uint32(0)
    for i in range(begin, integers.size):
        flags |= np.uint32(integers[i] != 0) << np.uint32(i - begin)
    return flags


@njit(cache=True, nogil=True)
def nonzero_bitmap_sparse(indices: Ints, integers: Ints, bitmap: Words) -> None:
    """Set the bits of the integers that are not zero."""
    for i in range(indices.size):
        item = np.uint64(indices[i])
        flag = np.uint32(integers[i] != 0)
        bitmap[item >> np.uint64(5)] |= flag << np.uint32(item & np.uint64(31))


@njit(cache=True, nogil=True)
def _nonzero_bitmap_dense(integers: Ints, bitmap: Words) -> None:
    for w in range(bitmap.size):
        bitmap[w] = nonzero_word(integers, 32 * w)


@njit(cache=True, nogil=True)
def _gather_sparse(indices: Ints, integers: Ints, positions: Ints, found: Ints) -> None:
    """Search sixteen indices at a time, without branches: which positions have an integer cannot be
    predicted.
    """
    following = 0
    full = positions.size // 16 * 16
    for start in range(0, full, 16):
        last = positions[start + 15]
        while following < indices.size and indices[following] <= last:
            index = indices[following]
            p = start + below_16(positions, start, index)
            if positions[p] == index:
                found[p] = integers[following]
            following += 1
    for p in range(full, positions.size):
        while following < indices.size and indices[following] < positions[p]:
            following += 1
        if following < indices.size and indices[following] == positions[p]:
            found[p] = integers[following]


def scatter(indices: Ints, integers: Ints, size: int, out: Ints | None = None, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter``."""
    dense: Ints = buffers.empty(size, np.int32) if out is None else out
    _scatter(indices, integers, dense, buffers.passes_caches(dense))
    return dense


@njit(cache=True, nogil=True)
def _scatter(indices: Ints, integers: Ints, dense: Ints, past: bool) -> None:
    """In stretches, since indices ascend. Counters are unsigned, so that no index is negative."""
    stretch = np.zeros(STRETCH, np.int32)
    following, items = np.uint64(0), np.uint64(indices.size)
    for start in range(0, dense.size, STRETCH):
        end = min(start + STRETCH, dense.size)
        first = following
        while following < items and indices[following] < end:
            stretch[np.uint64(indices[following] - start)] = integers[following]
            following += np.uint64(1)
        put(stretch, dense, start, end, past)
        for i in range(first, following):
            stretch[np.uint64(indices[i] - start)] = 0
