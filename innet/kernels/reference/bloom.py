"""Kernels of the Bloom filter; ``innet.kernels.layout.bloom`` defines it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Ints
from innet.kernels.layout.bloom import Filter
from innet.kernels.layout.hashing import GOLDEN, mix

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def bloom_insert(bitmap: Ints, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_insert``."""
    items = np.flatnonzero(np.unpackbits(bitmap.view(np.uint8), bitorder="little"))
    bits = np.zeros(32 * shape.words, np.bool_)
    bits[_places(items.astype(np.uint64), shape)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


def bloom_query(words: Ints, size: int, shape: Filter, /) -> Ints:
    """See ``innet.kernels.Kernels.bloom_query``."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
    found = bits[_places(np.arange(size, dtype=np.uint64), shape)].all(axis=0)
    padded = np.pad(found, (0, -size % 32))
    return np.packbits(padded, bitorder="little").view(np.int32)


def _places(items: NDArray[np.uint64], shape: Filter) -> NDArray[np.int64]:
    """The bits of the items, shape (probes, items)."""
    block, lane = np.divmod(items, np.uint64(32))
    z = mix(block * GOLDEN + np.uint64(shape.seed))
    probes = np.arange(shape.probes, dtype=np.uint64)[:, np.newaxis]
    positions = ((z & _LOW) + probes * (z >> _HALF | np.uint64(1))) & _LOW
    words = positions * np.uint64(shape.words) >> _HALF
    bits: NDArray[np.uint64] = words * np.uint64(32) + (lane + positions) % np.uint64(32)
    return bits.astype(np.int64)
