"""Bitmaps, lists of indices, and dense arrays: sparse integers from each form to the others.

A warp processes a word at a time, and each lane a bit of it. So the elements of a word are written
side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    WARP,
    Array,
    back,
    ballot,
    empty,
    exclusive_scan,
    filled,
    ints,
    rank,
    segment_of,
    threads_for,
    warps_for,
)


def popcount(bitmap: Any, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    words = ints(bitmap).view(np.uint32)
    count = filled(1)
    _popcount[threads_for(words.size)](words, count)
    return int(count.copy_to_host()[0])


def bitmap_to_indices(bitmap: Any, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.bitmap_to_indices``."""
    words = ints(bitmap).view(np.uint32)
    segment = segment_of(words.size, WARP)
    segments = -(-words.size // segment)
    counts = filled(segments + 1)
    _tally[warps_for(segments)](words, size, segment, counts)
    exclusive_scan(counts)
    total = counts[segments : segments + 1].copy_to_host()[0]  # the size of the result
    indices = empty(int(total))
    _list[warps_for(segments)](words, size, segment, counts, indices)
    return back(indices, bitmap)


@cuda.jit(device=True)
def word_below(words: Array, w: int, size: int) -> np.uint32:
    """Word w without the bits from ``size`` on."""
    rest = size - 32 * w
    if rest >= 32:
        return np.uint32(words[w])
    if rest <= 0:
        return np.uint32(0)
    return np.uint32(words[w] & ((np.uint32(1) << np.uint32(rest)) - np.uint32(1)))


@cuda.jit
def _popcount(words: Array, count: Array) -> None:
    shared = cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
    cuda.syncthreads()
    part = np.int32(0)
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        part += np.int32(cuda.popc(words[w]))
    cuda.atomic.add(shared, 0, part)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, shared[0])


@cuda.jit
def _tally(words: Array, size: int, segment: int, counts: Array) -> None:
    """Count the set bits of each segment of a fixed number of words."""
    lane = cuda.grid(1) & 31
    for s in range(cuda.grid(1) >> 5, counts.size - 1, cuda.gridsize(1) >> 5):
        part = np.int32(0)
        for w in range(s * segment + lane, min((s + 1) * segment, words.size), 32):
            part += np.int32(cuda.popc(word_below(words, w, size)))
        if part != 0:
            cuda.atomic.add(counts, s, part)


@cuda.jit
def _list(words: Array, size: int, segment: int, starts: Array, indices: Array) -> None:
    lane = cuda.grid(1) & 31
    for s in range(cuda.grid(1) >> 5, starts.size - 1, cuda.gridsize(1) >> 5):
        start = starts[s]
        for w in range(s * segment, min((s + 1) * segment, words.size)):
            word = word_below(words, w, size)
            if (word >> np.uint32(lane)) & np.uint32(1) != 0:
                indices[start + rank(word, lane)] = 32 * w + lane
            start += np.int32(cuda.popc(word))


# ----------------------------------------------------------------------------
# Integers at indices: as a bitmap, at other indices, and in a dense array.


def nonzero_bitmap(indices: Any, integers: Any, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.nonzero_bitmap``."""
    words = ints(integers)
    bitmap = filled(-(-size // 32), 0, np.uint32)
    if indices is None:
        _nonzero_bitmap_dense[warps_for(bitmap.size)](words, bitmap)
    else:
        _nonzero_bitmap_sparse[threads_for(words.size)](ints(indices), words, bitmap)
    return back(bitmap.view(np.int32), integers)


def gather_sparse(indices: Any, integers: Any, positions: Any, /) -> Any:
    """See ``innet.kernels.Kernels.gather_sparse``."""
    words, wanted = ints(integers), ints(positions)
    found = filled(wanted.size)
    _gather_sparse[threads_for(words.size)](ints(indices), words, wanted, found)
    return back(found, integers, positions)


@cuda.jit
def _nonzero_bitmap_dense(integers: Array, bitmap: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        integer = np.int32(0)
        if 32 * w + lane < integers.size:
            integer = integers[32 * w + lane]
        flags = ballot(integer != 0)
        if lane == 0:
            bitmap[w] = flags


@cuda.jit
def _nonzero_bitmap_sparse(indices: Array, integers: Array, bitmap: Array) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        if integers[i] != 0:
            item = indices[i]
            cuda.atomic.or_(bitmap, item >> 5, np.uint32(1) << np.uint32(item & 31))


@cuda.jit
def _gather_sparse(indices: Array, integers: Array, positions: Array, found: Array) -> None:
    """Each thread finds its position by binary search."""
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        low, high = 0, positions.size
        while low < high:
            middle = (low + high) // 2
            if positions[middle] < indices[i]:
                low = middle + 1
            else:
                high = middle
        if low < positions.size and positions[low] == indices[i]:
            found[low] = integers[i]


def scatter(indices: Any, integers: Any, size: int, out: Any = None, /) -> Any:
    """See ``innet.kernels.Kernels.scatter``."""
    dense = filled(size)
    positions = ints(indices)
    _scatter[threads_for(positions.size)](positions, ints(integers), dense)
    found = back(dense, indices, integers)
    if out is None:
        return found
    out[:] = found
    return out


@cuda.jit
def _scatter(indices: Array, integers: Array, dense: Array) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        dense[indices[i]] = integers[i]
