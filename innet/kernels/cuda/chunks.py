"""The largest element of each chunk, and the elements that reach the largest of their chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.arrays import Longs, chunks_of
from innet.kernels.cuda.bitmap import bitmap_to_indices
from innet.kernels.cuda.device import (
    Array,
    back,
    ballot,
    empty,
    floats,
    largest,
    threads_for,
    times,
    warps_for,
)
from innet.kernels.cuda.residual import add_scaled, sum_of

_MAGNITUDE = 0x7FFFFFFF
_LAST = 2**31 - 1  # no index is larger


def chunk_argmax(x: Any, chunk: int, /) -> Any:
    """See ``innet.kernels.Kernels.chunk_argmax``."""
    words = floats(x).view(np.int32)
    indices = empty(-(-words.size // chunk))
    _chunk_argmax[warps_for(indices.size)](words, 0, words.size, chunk, indices)
    return back(indices, x)


def add_scaled_argmax(x: Any, y: Any, weight: float, parts: Longs, /) -> Any:
    """See ``innet.kernels.Kernels.add_scaled_argmax``. Scratch: the sum."""
    words = sum_of(floats(x), floats(y)).view(np.int32)
    indices = empty(chunks_of(parts))
    found = 0
    for begin, end, chunk in parts.tolist():
        chunks = -(-(end - begin) // chunk)
        here = indices[found : found + chunks]
        _chunk_argmax[warps_for(chunks)](words, begin, end, chunk, here)
        found += chunks
    return *add_scaled(x, y, weight), back(indices, x, y)


@cuda.jit
def _chunk_argmax(words: Array, begin: int, end: int, chunk: int, indices: Array) -> None:
    """A warp for each chunk of the words from ``begin`` to ``end``."""
    lane = cuda.grid(1) & 31
    for c in range(cuda.grid(1) >> 5, indices.size, cuda.gridsize(1) >> 5):
        key, first = np.int64(-1), begin + c * chunk
        for i in range(first + lane, min(first + chunk, end), 32):
            # Of equal magnitudes the first has the largest key.
            part = (np.int64(words[i] & _MAGNITUDE) << np.int64(32)) | np.int64(_LAST - i)
            key = max(key, part)
        key = largest(key)
        if lane == 0:
            indices[c] = _LAST - (key & np.int64(_LAST))


# ----------------------------------------------------------------------------
# The elements that reach the largest magnitude of their chunk after a multiple of the gradient is
# added.


def select_above_chunk_max(x: Any, gradient: Any, weight: float, chunk: int, /) -> Any:
    """See ``innet.kernels.Kernels.select_above_chunk_max``.

    Scratch: a bitmap of the elements, an index for each chunk.
    """
    values = floats(x)
    largest = chunk_argmax(values, chunk)
    maxima = empty(largest.size, np.float32)
    _look_up[threads_for(largest.size)](values, largest, maxima)
    flags = empty(-(-values.size // 32), np.uint32)
    grid = warps_for(flags.size)
    _flag[grid](values, floats(gradient), weight, maxima, chunk, flags)
    indices = bitmap_to_indices(flags.view(np.int32), values.size)
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
