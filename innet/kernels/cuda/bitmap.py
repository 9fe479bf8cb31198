"""Bitmaps: count the set bits, list them.

A warp looks at a word at a time, each lane at a bit of it: the elements that share a word lie side
by side in whatever is written for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    WARP,
    Array,
    back,
    empty,
    filled,
    ints,
    threads_for,
    warps_for,
)
from innet.kernels.cuda.scan import exclusive_scan, segment_of
from innet.kernels.cuda.warp import rank


def popcount(bitmap: Any, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    words = ints(bitmap).view(np.uint32)
    count = filled(1)
    _popcount[threads_for(words.size)](words, count)
    return int(count.copy_to_host()[0])


def expand(bitmap: Any, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.expand``."""
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
    own = np.int32(0)
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        own += np.int32(cuda.popc(words[w]))
    cuda.atomic.add(shared, 0, own)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, shared[0])


@cuda.jit
def _tally(words: Array, size: int, segment: int, counts: Array) -> None:
    """The set bits of each segment of so many words."""
    lane = cuda.grid(1) & 31
    for s in range(cuda.grid(1) >> 5, counts.size - 1, cuda.gridsize(1) >> 5):
        own = np.int32(0)
        for w in range(s * segment + lane, min((s + 1) * segment, words.size), 32):
            own += np.int32(cuda.popc(word_below(words, w, size)))
        if own != 0:
            cuda.atomic.add(counts, s, own)


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
