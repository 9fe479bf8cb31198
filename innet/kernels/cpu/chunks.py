"""The largest element of each chunk, of an array or of a sum of two.

Magnitude and place are one number, of which the largest is taken: in any order, in vectors, and
without a branch that could be guessed wrongly.
"""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import magnitude_bits

_LAST = 0x7FFFFFFF  # no element has a larger index


def chunk_largest(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest``."""
    indices: Ints = buffers.empty(-(-x.size // chunk), np.int32)
    _chunk_largest(x, chunk, indices)
    return indices


def chunk_largest_sum(x: Floats, y: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest_sum``."""
    indices: Ints = buffers.empty(-(-x.size // chunk), np.int32)
    _chunk_largest_sum(x, y, chunk, indices)
    return indices


@njit(cache=True, nogil=True)
def _key(value: np.float32, index: int) -> np.int64:
    """The larger, the larger the magnitude is; of equal ones, the smaller the index."""
    return np.int64(np.int64(magnitude_bits(value)) << np.int64(32) | np.int64(_LAST - index))


@njit(cache=True, nogil=True)
def _chunk_largest(x: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        begin = c * chunk
        piece = x[begin : begin + chunk]
        largest = np.int64(0)
        for i in range(piece.size):
            largest = max(largest, _key(piece[i], i))
        indices[c] = begin + _LAST - (largest & _LAST)


@njit(cache=True, nogil=True)
def _chunk_largest_sum(x: Floats, y: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        begin = c * chunk
        first, second = x[begin : begin + chunk], y[begin : begin + chunk]
        largest = np.int64(0)
        for i in range(first.size):
            largest = max(largest, _key(first[i] + second[i], i))
        indices[c] = begin + _LAST - (largest & _LAST)
