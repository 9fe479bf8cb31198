"""Bloom filters: fill one, and test every element of a gradient for membership.

A word of a bitmap at a time: its 32 elements are hashed and looked up together. The blocks of a
strip are hashed and tested side by side, in vectors, probe after probe.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.lhc import mix
from innet.kernels.filters import Filter

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_STRIP = 64  # blocks that are hashed side by side; they stay in the first cache


def bloom_fill(bitmap: Ints, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_fill``."""
    words: Words = memory.zeros(shape.words, np.uint32)
    _fill(bitmap.view(np.uint32), shape.probes, np.uint64(shape.seed), words)
    return words.view(np.int32)


def bloom_members(words: Ints, size: int, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_members``."""
    found: Words = memory.empty(-(-size // 32), np.uint32)
    _members(words.view(np.uint32), shape.probes, np.uint64(shape.seed), found)
    if size % 32:
        found[-1] &= np.uint32((1 << size % 32) - 1)
    return found.view(np.int32)


@njit(cache=True, nogil=True)
def _fill(bitmap: Words, probes: int, seed: np.uint64, words: Words) -> None:
    count = np.uint64(words.size)
    blocks = np.zeros(_STRIP, np.uint64)  # those that are not empty, and their flags
    given = np.empty(_STRIP, np.uint32)
    places = np.empty(_STRIP, np.uint32)
    steps = np.empty(_STRIP, np.uint32)
    b = 0
    while b < bitmap.size:
        ready = 0
        while b < bitmap.size and ready < _STRIP:
            # Without a branch: which blocks are empty cannot be guessed.
            blocks[ready] = np.uint64(b)
            given[ready] = bitmap[b]
            ready += int(bitmap[b] != np.uint32(0))
            b += 1
        for i in range(_STRIP):
            z = mix(blocks[i] * _GOLDEN + seed)
            places[i] = np.uint32(z & _LOW)
            steps[i] = np.uint32((z >> _HALF) | _ONE)
        for i in range(ready):
            flags, place, step = given[i], places[i], steps[i]
            for _ in range(probes):
                turn = place & np.uint32(31)
                back = (np.uint32(32) - turn) & np.uint32(31)
                turned = np.uint32(flags << turn) | np.uint32(flags >> back)
                words[(np.uint64(place) * count) >> _HALF] |= turned
                place = np.uint32(place + step)


@njit(cache=True, nogil=True)
def _members(words: Words, probes: int, seed: np.uint64, found: Words) -> None:
    count = np.uint64(words.size)
    places = np.empty(_STRIP, np.uint32)
    steps = np.empty(_STRIP, np.uint32)
    for start in range(0, found.size, _STRIP):
        flags = found[start : start + _STRIP]
        for b in range(flags.size):
            z = mix(np.uint64(start + b) * _GOLDEN + seed)
            places[b] = np.uint32(z & _LOW)
            steps[b] = np.uint32((z >> _HALF) | _ONE)
            flags[b] = np.uint32(_LOW)
        for _ in range(probes):
            for b in range(flags.size):
                place = places[b]
                word = words[(np.uint64(place) * count) >> _HALF]
                turn = place & np.uint32(31)
                back = (np.uint32(32) - turn) & np.uint32(31)
                flags[b] &= np.uint32(word >> turn) | np.uint32(word << back)
                places[b] = np.uint32(place + steps[b])
