"""Bloom filters: fill one, and test every element of a gradient for membership.

Nearly all elements are not in the filter. So 32 at a time are hashed, in vectors, and asked for
their first bits without a branch; the few that pass are asked for the others one by one.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import trailing_zeros
from innet.kernels.cpu.lhc import mix
from innet.kernels.filters import Filter

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_FIRST = 3  # probes without a branch: one element in eight passes them when half the bits are set


def bloom_fill(items: Ints, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_fill``."""
    words = np.zeros(shape.words, np.uint32)
    _fill(items, shape.probes, np.uint64(shape.seed), words)
    return words.view(np.int32)


def bloom_members(words: Ints, size: int, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_members``."""
    found = np.zeros(-(-size // 32), np.uint32)
    _members(words.view(np.uint32), size, shape.probes, np.uint64(shape.seed), found)
    return found.view(np.int32)


@njit(cache=True)
def _probe(z: np.uint64, j: int, words: Words) -> np.uint32:
    """Bit j of the element that is hashed to z, as the lowest of a word."""
    step = (z >> _HALF) | _ONE
    place = ((z & _LOW) + np.uint64(j) * step) & _LOW
    bit = (place * np.uint64(32 * words.size)) >> _HALF
    return np.uint32((words[bit >> np.uint64(5)] >> np.uint32(bit & np.uint64(31))) & np.uint32(1))


@njit(cache=True)
def _fill(items: Ints, probes: int, seed: np.uint64, words: Words) -> None:
    for i in range(items.size):
        z = mix(np.uint64(items[i]) * _GOLDEN + seed)
        step = (z >> _HALF) | _ONE
        for j in range(probes):
            place = ((z & _LOW) + np.uint64(j) * step) & _LOW
            bit = (place * np.uint64(32 * words.size)) >> _HALF
            words[bit >> np.uint64(5)] |= np.uint32(1) << np.uint32(bit & np.uint64(31))


@njit(cache=True)
def _hash(first: int, seed: np.uint64, hashed: NDArray[np.uint64]) -> None:
    for i in range(hashed.size):
        hashed[i] = mix(np.uint64(first + i) * _GOLDEN + seed)


@njit(cache=True)
def _members(words: Words, size: int, probes: int, seed: np.uint64, found: Words) -> None:
    hashed = np.empty(32, np.uint64)
    at_once = min(probes, _FIRST)
    for w in range(found.size):
        _hash(32 * w, seed, hashed)
        flags = np.uint32(0)
        for i in range(32):
            passed = np.uint32(1)
            for j in range(at_once):
                passed &= _probe(hashed[i], j, words)
            flags |= passed << np.uint32(i)
        if 32 * w + 32 > size:
            flags &= np.uint32((1 << (size & 31)) - 1)
        left = flags
        while left != np.uint32(0):
            i = trailing_zeros(left)
            left &= left - np.uint32(1)
            for j in range(at_once, probes):
                if _probe(hashed[i], j, words) == np.uint32(0):
                    flags ^= np.uint32(1) << np.uint32(i)
                    break
        found[w] = flags
