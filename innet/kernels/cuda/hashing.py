"""Where elements lie in sketches; ``innet.kernels.layout.lhc`` defines it.

Kernels get a layout as one tuple of 64-bit words, ``hashing`` = (part, starts, log2(lanes), seed,
hashes): a division for each element would cost more than its hash.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from innet.kernels.layout.lhc import SketchLayout

Hashing = tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]
Hash = tuple[np.uint64, np.uint64, np.uint64]  # what a block's cells and signs are read from

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ONE = np.uint64(1)


def hashing_of(layout: SketchLayout) -> Hashing:
    """The layout as kernels take it."""
    return (
        np.uint64(layout.part),
        np.uint64(layout.starts),
        np.uint64(layout.lanes.bit_length() - 1),
        np.uint64(layout.seed),
        np.uint64(layout.hashes),
    )


@cuda.jit(device=True)
def mix(z: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@cuda.jit(device=True)
def hash_of(item: np.uint64, hashing: Hashing) -> Hash:
    """The three words that decide where the block of the item goes."""
    z0 = mix((item >> hashing[2]) * GOLDEN + hashing[3])
    z1 = mix(z0 + GOLDEN)
    return z0, z1, mix(z1 + GOLDEN)


@cuda.jit(device=True)
def cell_of(words: Hash, j: int, item: np.uint64, hashing: Hashing) -> np.uint64:
    """The item's j-th cell, given its block's hash."""
    z0, z1, z2 = words
    part, starts, shift = hashing[0], hashing[1], hashing[2]
    half = z1 & LOW
    if j == 1:
        half = z1 >> HALF
    elif j == 2:
        half = z2 & LOW
    elif j == 3:
        half = z2 >> HALF
    row = ((((z0 & LOW) * starts) >> HALF) + np.uint64(j)) * part + ((half * part) >> HALF)
    turn = z0 >> np.uint64(36 + 7 * j)
    return (row << shift) + ((item + turn) & ((ONE << shift) - ONE))


@cuda.jit(device=True)
def signed(words: Hash, j: int, integer: np.int32) -> np.int32:
    """The integer modulo 2**32, negated where the j-th sign says so."""
    negative = np.int64((words[0] >> np.uint64(32 + j)) & ONE)
    return np.int32(np.int64(integer) * (np.int64(1) - np.int64(2) * negative))
