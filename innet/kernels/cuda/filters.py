"""Bloom filters: fill one, and test every element of a gradient for membership.

The filter stays in the second cache, or nearly so; most elements are refused by their first bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, filled, ints, threads_for, warps_for
from innet.kernels.cuda.hashing import GOLDEN, HALF, LOW, ONE, mix
from innet.kernels.cuda.warp import ballot
from innet.kernels.filters import Filter


def bloom_fill(items: Any, shape: Filter, /) -> Any:
    """See ``innet.kernels.Kernels.bloom_fill``."""
    chosen = ints(items)
    words = filled(shape.words, 0, np.uint32)
    _fill[threads_for(chosen.size)](chosen, shape.probes, np.uint64(shape.seed), words)
    return back(words.view(np.int32), items)


def bloom_members(words: Any, size: int, shape: Filter, /) -> Any:
    """See ``innet.kernels.Kernels.bloom_members``."""
    bits = ints(words).view(np.uint32)
    found = empty(-(-size // 32), np.uint32)
    _members[warps_for(found.size)](bits, size, shape.probes, np.uint64(shape.seed), found)
    return back(found.view(np.int32), words)


@cuda.jit(device=True)
def _bit(z: np.uint64, j: int, words: Array) -> np.uint64:
    """Bit j of the element that is hashed to z."""
    step = (z >> HALF) | ONE
    place = ((z & LOW) + np.uint64(j) * step) & LOW
    return (place * np.uint64(32 * words.size)) >> HALF


@cuda.jit
def _fill(items: Array, probes: int, seed: np.uint64, words: Array) -> None:
    for i in range(cuda.grid(1), items.size, cuda.gridsize(1)):
        z = mix(np.uint64(items[i]) * GOLDEN + seed)
        for j in range(probes):
            bit = _bit(z, j, words)
            mask = np.uint32(1) << np.uint32(bit & np.uint64(31))
            cuda.atomic.or_(words, np.int64(bit >> np.uint64(5)), mask)


@cuda.jit
def _members(words: Array, size: int, probes: int, seed: np.uint64, found: Array) -> None:
    """A warp for each word of the result."""
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, found.size, cuda.gridsize(1) >> 5):
        item = 32 * w + lane
        member = item < size
        z = mix(np.uint64(item) * GOLDEN + seed)
        j = 0
        while member and j < probes:
            bit = _bit(z, j, words)
            word = words[np.int64(bit >> np.uint64(5))]
            member = (word >> np.uint32(bit & np.uint64(31))) & np.uint32(1) != 0
            j += 1
        flags = ballot(member)
        if lane == 0:
            found[w] = flags
