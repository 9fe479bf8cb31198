"""Bitmaps and sparse integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Ints


def nonzero_bitmap(indices: Ints | None, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.nonzero_bitmap``."""
    dense = integers if indices is None else scatter(indices, integers, size)
    return bitmap_of(np.flatnonzero(dense), size)


def popcount(bitmap: Ints, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    return int(bits_of(bitmap).sum())


def bitmap_to_indices(bitmap: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.bitmap_to_indices``."""
    return np.flatnonzero(bits_of(bitmap)[:size]).astype(np.int32)


def scatter(indices: Ints, integers: Ints, size: int, out: Ints | None = None, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter``."""
    dense = np.empty(size, np.int32) if out is None else out
    dense[:] = 0
    dense[indices] = integers
    return dense


def gather_sparse(indices: Ints, integers: Ints, positions: Ints, /) -> Ints:
    """See ``innet.kernels.Kernels.gather_sparse``."""
    known = dict(zip(indices.tolist(), integers.tolist(), strict=True))
    return np.array([known.get(position, 0) for position in positions.tolist()], np.int32)


def bits_of(bitmap: Ints) -> NDArray[np.bool_]:
    """Shape (32 · words,): element i is bit i of the bitmap."""
    shifts = np.arange(32, dtype=np.uint32)
    return ((bitmap.view(np.uint32)[:, np.newaxis] >> shifts) & 1).astype(np.bool_).ravel()


def bitmap_of(items: NDArray[np.int64], size: int) -> Ints:
    """The bitmap of these items, ceil(size / 32) words."""
    words = np.zeros(-(-size // 32), np.uint32)
    np.bitwise_or.at(words, items // 32, np.uint32(1) << (items % 32).astype(np.uint32))
    return words.view(np.int32)
