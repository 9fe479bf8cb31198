"""Bloom filters: fill one, and test every element of a gradient for membership.

One thread per word of a bitmap. Most of the filter stays in the L2 cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    HALF,
    LOW,
    ONE,
    Array,
    back,
    empty,
    filled,
    ints,
    mix,
    threads_for,
)
from innet.kernels.layout.bloom import Filter
from innet.kernels.layout.hashing import GOLDEN


def bloom_insert(bitmap: Any, shape: Filter, /) -> Any:
    """See ``innet.kernels.Kernels.bloom_insert``."""
    blocks = ints(bitmap).view(np.uint32)
    words = filled(shape.words, 0, np.uint32)
    _fill[threads_for(blocks.size)](blocks, shape.probes, np.uint64(shape.seed), words)
    return back(words.view(np.int32), bitmap)


def bloom_query(words: Any, size: int, shape: Filter, /) -> Any:
    """See ``innet.kernels.Kernels.bloom_query``."""
    bits = ints(words).view(np.uint32)
    found = empty(-(-size // 32), np.uint32)
    _members[threads_for(found.size)](bits, size, shape.probes, np.uint64(shape.seed), found)
    return back(found.view(np.int32), words)


@cuda.jit(device=True)
def _place(z: np.uint64, j: int) -> np.uint64:
    """Place j of the block that is hashed to z."""
    return ((z & LOW) + np.uint64(j) * ((z >> HALF) | ONE)) & LOW


@cuda.jit
def _fill(blocks: Array, probes: int, seed: np.uint64, words: Array) -> None:
    for b in range(cuda.grid(1), blocks.size, cuda.gridsize(1)):
        flags = np.uint64(blocks[b])
        if flags != np.uint64(0):
            z = mix(np.uint64(b) * GOLDEN + seed)
            twice = (flags << HALF) | flags
            for j in range(probes):
                position = _place(z, j)
                turned = np.uint32((twice >> (HALF - (position & np.uint64(31)))) & LOW)
                cuda.atomic.or_(words, np.int64((position * np.uint64(words.size)) >> HALF), turned)


@cuda.jit
def _members(words: Array, size: int, probes: int, seed: np.uint64, found: Array) -> None:
    for b in range(cuda.grid(1), found.size, cuda.gridsize(1)):
        z = mix(np.uint64(b) * GOLDEN + seed)
        flags = LOW
        j = 0
        while flags != np.uint64(0) and j < probes:
            position = _place(z, j)
            word = np.uint64(words[np.int64((position * np.uint64(words.size)) >> HALF)])
            twice = (word << HALF) | word
            flags &= (twice >> (position & np.uint64(31))) & LOW
            j += 1
        left = size - 32 * b
        if left < 32:
            flags &= (ONE << np.uint64(left)) - ONE
        found[b] = np.uint32(flags)
