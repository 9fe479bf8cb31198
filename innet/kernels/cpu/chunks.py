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
    for c in range(indices.size):
        begin = c * chunk
        size = min(chunk, x.size - begin)
        if size >= _WINDOW:
            indices[c] = _first_largest(x, y, begin, size)
        else:
            largest = np.int32(-1)
            for i in range(begin, begin + size):
                bits = magnitude_bits(x[i] + y[i])
                if bits > largest:
                    largest = bits
                    indices[c] = i


@njit(cache=True, nogil=True)
def _first_largest(x: Floats, y: Floats, begin: int, size: int) -> int:
    """The first of the largest sums, of at least 16."""
    largest = np.int32(0)
    for k in range(0, size, _WINDOW):
        largest = max(largest, largest_sum_16(x, y, begin + min(k, size - _WINDOW)))
    k = 0
    while True:
        first = begin + min(k, size - _WINDOW)
        flags = equal_sum_16(x, y, first, largest)
        if flags != np.uint32(0):
            return first + trailing_zeros(flags)
        k += _WINDOW
