"""Sparse integers: a bitmap of what is not zero, and what they are at given places."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import below_16, flag_32


def mark(indices: Ints | None, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.mark``."""
    bitmap: Words = buffers.zeros(-(-size // 32), np.uint32)
    if indices is None:
        _mark_dense(integers, bitmap)
    else:
        mark_sparse(indices, integers, bitmap)
    return bitmap.view(np.int32)


def align(indices: Ints, integers: Ints, places: Ints, /) -> Ints:
    """See ``innet.kernels.Kernels.align``."""
    found: Ints = buffers.zeros(places.size, np.int32)
    _align(indices, integers, places, found)
    return found


@njit(cache=True, nogil=True)
def mark_word(integers: Ints, begin: int) -> np.uint32:
    """Bit j tells whether integer begin + j is not zero; those past the end are."""
    if begin + 32 <= integers.size:
        return flag_32(integers, begin, np.uint32(0xFFFFFFFF), np.uint32(1))
    flags = np.uint32(0)
    for i in range(begin, integers.size):
        flags |= np.uint32(integers[i] != 0) << np.uint32(i - begin)
    return flags


@njit(cache=True, nogil=True)
def mark_sparse(indices: Ints, integers: Ints, bitmap: Words) -> None:
    """Set the bits of the integers that are not zero."""
    for i in range(indices.size):
        item = np.uint64(indices[i])
        flag = np.uint32(integers[i] != 0)
        bitmap[item >> np.uint64(5)] |= flag << np.uint32(item & np.uint64(31))


@njit(cache=True, nogil=True)
def _mark_dense(integers: Ints, bitmap: Words) -> None:
    for w in range(bitmap.size):
        bitmap[w] = mark_word(integers, 32 * w)


@njit(cache=True, nogil=True)
def _align(indices: Ints, integers: Ints, places: Ints, found: Ints) -> None:
    """Sixteen places at a time, of which one is found without a branch: which of them have an
    integer cannot be guessed.
    """
    following = 0
    whole = places.size // 16 * 16
    for start in range(0, whole, 16):
        last = places[start + 15]
        while following < indices.size and indices[following] <= last:
            index = indices[following]
            p = start + below_16(places, start, index)
            if places[p] == index:
                found[p] = integers[following]
            following += 1
    for p in range(whole, places.size):
        while following < indices.size and indices[following] < places[p]:
            following += 1
        if following < indices.size and indices[following] == places[p]:
            found[p] = integers[following]
