"""The lossless homomorphic sketch: hashing, encode, occupancy. ``innet.kernels.layout`` defines it.

Compiled functions get the layout as one tuple ``hashing`` = (part, starts, log2(lanes), seed,
turns), where turns[j] is the lowest bit of turn j: its length is the number of hashes, which the
compiler knows, as it is part of the type, so that loops over the hashes leave no branch behind.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu import memory
from innet.kernels.cpu.intrinsics import flag_32, trailing_zeros
from innet.kernels.layout import SketchLayout

Hashing = tuple[np.uint64, np.uint64, np.uint64, np.uint64, tuple[np.uint64, ...]]
Hash = tuple[np.uint64, np.uint64, np.uint64]  # what a block's cells and signs are read from

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


def lhc_encode(
    indices: Ints | None, integers: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    bitmap = np.zeros(-(-size // 32), np.uint32)
    sketch = memory.zeros(layout.cells, np.int32)
    if indices is None:
        _encode_dense(integers, hashing_of(layout), bitmap, sketch)
    else:
        _encode_sparse(indices, integers, hashing_of(layout), bitmap, sketch)
    return bitmap.view(np.int32), sketch


def lhc_occupancy(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    counts = np.zeros(layout.cells, np.int32)
    _count(without_tail(bitmap, size), hashing_of(layout), counts)
    return counts


def hashing_of(layout: SketchLayout) -> Hashing:
    """The layout as compiled functions take it."""
    return (
        np.uint64(layout.part),
        np.uint64(layout.starts),
        np.uint64(layout.lanes.bit_length() - 1),
        np.uint64(layout.seed),
        tuple(np.uint64(36 + 7 * j) for j in range(layout.hashes)),
    )


def without_tail(bitmap: Ints, size: int) -> Words:
    """A copy without the bits past the last element, which would lead outside the arrays."""
    words = bitmap.view(np.uint32).copy()
    if size % 32:
        words[-1] &= np.uint32((1 << size % 32) - 1)
    return words


@njit(cache=True)
def mix(z: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def first_word(item: np.uint64, hashing: Hashing) -> np.uint64:
    """z0 of the item's block: first segment, signs and turns."""
    return mix((item >> hashing[2]) * _GOLDEN + hashing[3])


@njit(cache=True)
def first_segment(z0: np.uint64, hashing: Hashing) -> np.uint64:
    """The segment of the first row."""
    return ((z0 & _LOW) * hashing[1]) >> _HALF


@njit(cache=True)
def hash_of(item: np.uint64, hashing: Hashing) -> Hash:
    """The three words that decide where the block of the item goes."""
    z0 = first_word(item, hashing)
    z1 = mix(z0 + _GOLDEN)
    return z0, z1, mix(z1 + _GOLDEN)


@njit(cache=True)
def cell_of(words: Hash, j: int, item: np.uint64, hashing: Hashing) -> np.uint64:
    """The item's j-th cell, given its block's hash. Unsigned, so that nothing wraps around."""
    z0, z1, z2 = words
    part, _, shift, _, turns = hashing
    half = z1 & _LOW
    if j == 1:
        half = z1 >> _HALF
    elif j == 2:
        half = z2 & _LOW
    elif j == 3:
        half = z2 >> _HALF
    row = (first_segment(z0, hashing) + np.uint64(j)) * part + ((half * part) >> _HALF)
    lane = (item + (z0 >> turns[j])) & ((_ONE << shift) - _ONE)
    return (row << shift) + lane


@njit(cache=True)
def signed(words: Hash, j: int, integer: np.int32) -> int:
    """The integer, negated where the j-th sign says so, in 64 bits."""
    return int(integer) * (1 - 2 * int((words[0] >> np.uint64(32 + j)) & _ONE))


@njit(cache=True)
def _add(sketch: Ints, item: int, integer: np.int32, words: Hash, hashing: Hashing) -> None:
    for j in range(len(hashing[4])):
        cell = cell_of(words, j, np.uint64(item), hashing)
        # Added up in 64 bits and stored in 32: modulo 2**32.
        sketch[cell] = np.int32(sketch[cell] + signed(words, j, integer))


@njit(cache=True)
def _encode_dense(integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints) -> None:
    shift = int(hashing[2])
    last = -1
    words = (np.uint64(0), np.uint64(0), np.uint64(0))
    for w in range(bitmap.size):
        first = 32 * w
        if first + 32 <= integers.size:
            flags = flag_32(integers, first, np.uint32(0xFFFFFFFF), np.uint32(1))
        else:
            flags = np.uint32(0)
            for i in range(first, integers.size):
                flags |= np.uint32(integers[i] != 0) << np.uint32(i - first)
        bitmap[w] = flags
        while flags != np.uint32(0):
            item = first + trailing_zeros(flags)
            flags &= flags - np.uint32(1)
            if item >> shift != last:
                last = item >> shift
                words = hash_of(np.uint64(item), hashing)
            _add(sketch, item, integers[item], words, hashing)


@njit(cache=True)
def _encode_sparse(
    indices: Ints, integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints
) -> None:
    for i in range(indices.size):
        if integers[i] != 0:
            item = int(indices[i])
            bitmap[item >> 5] |= np.uint32(1) << np.uint32(item & 31)
            _add(sketch, item, integers[i], hash_of(np.uint64(item), hashing), hashing)


@njit(cache=True)
def _count(pending: Words, hashing: Hashing, counts: Ints) -> None:
    for w in range(pending.size):
        flags = pending[w]
        while flags != np.uint32(0):
            item = np.uint64(32 * w + trailing_zeros(flags))
            flags &= flags - np.uint32(1)
            words = hash_of(item, hashing)
            for j in range(len(hashing[4])):
                counts[cell_of(words, j, item, hashing)] += 1
