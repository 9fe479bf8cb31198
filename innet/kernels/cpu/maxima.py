"""What reaches the largest magnitude of its chunk once the gradient is added again."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import flag_32, trailing_zeros

_STRETCH = 512  # elements compared at a time, a multiple of the 32 that make a word of flags


def reaching_maxima(
    x: Floats, gradient: Floats, weight: float, maxima: Floats, chunk: int, /
) -> Ints:
    """See ``innet.kernels.Kernels.reaching_maxima``."""
    indices = np.empty(_count(x, gradient, weight, maxima, chunk), np.int32)
    _list(x, gradient, weight, maxima, chunk, indices)
    return indices


@njit(cache=True, nogil=True)
def _count(x: Floats, gradient: Floats, weight: float, maxima: Floats, chunk: int) -> int:
    count = 0
    for b in range(maxima.size):
        if maxima[b] == 0:
            continue
        own, fresh = x[b * chunk : (b + 1) * chunk], gradient[b * chunk : (b + 1) * chunk]
        for i in range(own.size):
            count += int(abs(own[i] + weight * np.float64(fresh[i])) >= maxima[b])
    return count


@njit(cache=True, nogil=True)
def _list(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats, gradient: Floats, weight: float, maxima: Floats, chunk: int, indices: Ints
) -> None:
    """Fill in the indices, of which there are as many as was counted."""
    found = 0
    reaches = np.zeros(_STRETCH, np.int32)
    for start in range(0, x.size, _STRETCH):
        stop = min(start + _STRETCH, x.size)
        begin = start
        while begin < stop:  # one chunk after the other, or what of it lies in the stretch
            b = begin // chunk
            end = min((b + 1) * chunk, stop)
            own, fresh = x[begin:end], gradient[begin:end]
            flags_of = reaches[begin - start : end - start]
            least = np.float64(maxima[b]) if maxima[b] > 0 else np.inf
            for i in range(own.size):
                flags_of[i] = abs(own[i] + weight * np.float64(fresh[i])) >= least
            begin = end
        filled = -(-(stop - start) // 32) * 32
        reaches[stop - start : filled] = 0
        for i in range(0, filled, 32):
            flags = flag_32(reaches, i, np.uint32(1), np.uint32(1))
            while flags != np.uint32(0):
                indices[found] = start + i + trailing_zeros(flags)
                flags &= flags - np.uint32(1)
                found += 1
