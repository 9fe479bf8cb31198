"""Bloom filters: fill one, and test every element of a gradient for membership.

The 32 elements of a bitmap's word are hashed and looked up together. The blocks of a strip are
hashed and tested side by side, in vectors, one probe after the other. Only the words are loaded one
by one, in separate loops, which takes a fifth less time than loading vectors of them.
"""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.core.threads import in_parts
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import mix
from innet.kernels.layout.bloom import Filter
from innet.kernels.layout.hashing import GOLDEN

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_STRIP = 128  # blocks hashed side by side; they stay in the L1 cache
_PART = 32 * _STRIP  # blocks; a smaller part takes less time than to start a thread


def bloom_insert(bitmap: Ints, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_insert``."""
    words: Words = buffers.zeros(shape.words, np.uint32)
    _fill(bitmap.view(np.uint32), shape.probes, np.uint64(shape.seed), words)
    return words.view(np.int32)


def bloom_query(words: Ints, size: int, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_query``."""
    found: Words = buffers.empty(-(-size // 32), np.uint32)
    filled, probes, seed = words.view(np.uint32), shape.probes, np.uint64(shape.seed)

    def look_up(begin: int, end: int) -> None:
        _members(filled, probes, seed, begin, found[begin:end])

    in_parts(look_up, found.size, _PART)
    if size % 32:
        found[-1] &= np.uint32((1 << size % 32) - 1)
    return found.view(np.int32)


@njit(cache=True, nogil=True)
def _fill(bitmap: Words, probes: int, seed: np.uint64, words: Words) -> None:
    count = np.uint64(np.uint32(words.size))
    blocks = np.zeros(_STRIP, np.uint64)  # the nonempty blocks, and their flags
    given = np.zeros(_STRIP, np.uint32)
    positions = np.empty(_STRIP, np.uint32)
    steps = np.empty(_STRIP, np.uint32)
    wanted = np.empty(_STRIP, np.uint32)
    turned = np.empty(_STRIP, np.uint32)
    b, size = np.uint64(0), np.uint64(bitmap.size)  # unsigned, so that nothing wraps around
    while b < size:
        ready = np.uint64(0)
        while b < size and ready < np.uint64(_STRIP):
            # Without a branch: which blocks are empty cannot be predicted.
            blocks[ready] = b
            given[ready] = bitmap[b]
            ready += np.uint64(bitmap[b] != np.uint32(0))
            b += _ONE
        for i in range(_STRIP):
            z = mix(blocks[i] * GOLDEN + seed)
            positions[i] = np.uint32(z & _LOW)
            steps[i] = np.uint32((z >> _HALF) | _ONE)
        for _ in range(probes):
            for i in range(_STRIP):
                position = positions[i]
                wanted[i] = np.uint32((np.uint64(position) * count) >> _HALF)
                turn = position & np.uint32(31)
                back = (np.uint32(32) - turn) & np.uint32(31)
                turned[i] = np.uint32(given[i] << turn) | np.uint32(given[i] >> back)
                positions[i] = np.uint32(position + steps[i])
            for i in range(ready):
                words[np.uint64(wanted[i])] |= turned[i]


@njit(cache=True, nogil=True)
def _members(words: Words, probes: int, seed: np.uint64, first: int, found: Words) -> None:
    """Fill in the words of a bitmap from word ``first`` on."""
    count = np.uint64(np.uint32(words.size))
    flags = np.empty(_STRIP, np.uint32)
    positions = np.empty(_STRIP, np.uint32)
    steps = np.empty(_STRIP, np.uint32)
    wanted = np.empty(_STRIP, np.uint32)
    loaded = np.empty(_STRIP, np.uint32)
    for start in range(0, found.size, _STRIP):
        for b in range(_STRIP):
            z = mix(np.uint64(first + start + b) * GOLDEN + seed)
            positions[b] = np.uint32(z & _LOW)
            steps[b] = np.uint32((z >> _HALF) | _ONE)
            flags[b] = np.uint32(_LOW)
        for _ in range(probes):
            for b in range(_STRIP):
                wanted[b] = np.uint32((np.uint64(positions[b]) * count) >> _HALF)
            for b in range(_STRIP):
                loaded[b] = words[np.uint64(wanted[b])]
            for b in range(_STRIP):
                position, word = positions[b], loaded[b]
                turn = position & np.uint32(31)
                back = (np.uint32(32) - turn) & np.uint32(31)
                flags[b] &= np.uint32(word >> turn) | np.uint32(word << back)
                positions[b] = np.uint32(position + steps[b])
        here = found[start : start + _STRIP]
        for b in range(here.size):
            here[b] = flags[b]
