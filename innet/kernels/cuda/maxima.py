"""What reaches the largest magnitude of its chunk once the gradient is added again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.bitmap import expand
from innet.kernels.cuda.chunks import chunk_largest
from innet.kernels.cuda.device import Array, back, empty, floats, threads_for, warps_for
from innet.kernels.cuda.rounding import times
from innet.kernels.cuda.warp import ballot


def reaching_maxima(x: Any, gradient: Any, weight: float, chunk: int, /) -> Any:
    """See ``innet.kernels.Kernels.reaching_maxima``.

    Scratch: a bitmap of the elements, an index for each chunk.
    """
    values = floats(x)
    largest = chunk_largest(values, chunk)
    maxima = empty(largest.size, np.float32)
    _look_up[threads_for(largest.size)](values, largest, maxima)
    flags = empty(-(-values.size // 32), np.uint32)
    grid = warps_for(flags.size)
    _flag[grid](values, floats(gradient), weight, maxima, chunk, flags)
    indices = expand(flags.view(np.int32), values.size)
    return back(indices, x, gradient), back(maxima, x, gradient)


@cuda.jit
def _look_up(x: Array, largest: Array, maxima: Array) -> None:
    for c in range(cuda.grid(1), largest.size, cuda.gridsize(1)):
        maxima[c] = abs(x[largest[c]])


@cuda.jit
def _flag(
    x: Array, gradient: Array, weight: float, maxima: Array, chunk: int, flags: Array
) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, flags.size, cuda.gridsize(1) >> 5):
        i = 32 * w + lane
        reaches = False
        if i < x.size:
            least = np.float64(maxima[i // chunk])
            added = times(np.float64(gradient[i]), np.float64(weight))
            reaches = bool(least > 0 and abs(np.float64(x[i]) + added) >= least)
        word = ballot(reaches)
        if lane == 0:
            flags[w] = word
