"""The largest element of each chunk, of an array or of a sum of two.

As in ``innet.kernels.cpu.maxima`` a chunk is looked at in windows of 16 elements, of which the last
overlaps the one before it. Where the maximum lies is looked up afterwards, in the first cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import (
    equal_sum_16,
    largest_sum_16,
    magnitude_bits,
    trailing_zeros,
)
from innet.kernels.cpu.maxima import largest_of

_WINDOW = 16
_GROUP = 16  # chunks that are looked at together


def chunk_largest(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest``."""
    indices: Ints = memory.empty(-(-x.size // chunk), np.int32)
    _chunk_largest(x, chunk, indices)
    return indices


def chunk_largest_sum(x: Floats, y: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest_sum``."""
    indices: Ints = memory.empty(-(-x.size // chunk), np.int32)
    _chunk_largest_sum(x, y, chunk, indices)
    return indices


@njit(cache=True, nogil=True)
def _chunk_largest(x: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        begin = c * chunk
        largest = largest_of(x, begin, min(chunk, x.size - begin))
        i = begin
        while magnitude_bits(x[i]) != largest:
            i += 1
        indices[c] = i


@njit(cache=True, nogil=True)
def _chunk_largest_sum(x: Floats, y: Floats, chunk: int, indices: Ints) -> None:
    largest = np.empty(_GROUP, np.int32)
    for group in range(0, indices.size, _GROUP):
        end = min(group + _GROUP, indices.size)
        # First all maxima, then where they lie: a branch that was guessed wrongly does not wait
        # for the memory, nor what comes from there for the branch.
        for c in range(group, end):
            begin = c * chunk
            largest[c - group] = _largest_sum(x, y, begin, min(chunk, x.size - begin))
        for c in range(group, end):
            begin = c * chunk
            size = min(chunk, x.size - begin)
            indices[c] = _first_of(x, y, begin, size, largest[c - group])


@njit(cache=True, nogil=True)
def _largest_sum(x: Floats, y: Floats, begin: int, size: int) -> np.int32:
    """The bits of the largest magnitude of x + y."""
    largest = np.int32(0)
    if size < _WINDOW:
        for i in range(begin, begin + size):
            largest = max(largest, magnitude_bits(x[i] + y[i]))
    else:
        for k in range(0, size, _WINDOW):
            largest = max(largest, largest_sum_16(x, y, begin + min(k, size - _WINDOW)))
    return largest


@njit(cache=True, nogil=True)
def _first_of(x: Floats, y: Floats, begin: int, size: int, bits: np.int32) -> int:
    """The first sum of this magnitude, which there is."""
    if size < _WINDOW:
        i = begin
        while magnitude_bits(x[i] + y[i]) != bits:
            i += 1
        return i
    k = 0
    while True:
        first = begin + min(k, size - _WINDOW)
        flags = equal_sum_16(x, y, first, bits)
        if flags != np.uint32(0):
            return first + trailing_zeros(flags)
        k += _WINDOW
