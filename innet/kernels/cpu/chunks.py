"""The largest element of each chunk."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import magnitude_bits


def chunk_largest(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest``."""
    indices = np.empty(-(-x.size // chunk), np.int32)
    _chunk_largest(x, chunk, indices)
    return indices


@njit(cache=True, nogil=True)
def _chunk_largest(x: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        piece = x[c * chunk : (c + 1) * chunk]
        # A maximum of integers runs in vectors; where it lies is looked up afterwards, in cache.
        largest = np.int32(0)
        for i in range(piece.size):
            largest = max(largest, magnitude_bits(piece[i]))
        i = 0
        while magnitude_bits(piece[i]) != largest:
            i += 1
        indices[c] = c * chunk + i
