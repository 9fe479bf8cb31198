"""The lossless homomorphic sketch: encode, occupancy. ``innet.kernels.layout.lhc`` defines it.

A warp takes the 32 elements of a word of the bitmap, so that the elements of a block go to
neighbouring cells of the same rows at the same time: with 32 lanes a row is one line of 128 bytes.
Additions are atomic, on integers: their order does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.bitmap import word_below
from innet.kernels.cuda.device import Array, back, empty, filled, ints, threads_for, warps_for
from innet.kernels.cuda.hashing import Hashing, cell_of, hash_of, hashing_of, signed
from innet.kernels.cuda.warp import ballot
from innet.kernels.layout.lhc import SketchLayout


def lhc_encode(indices: Any, integers: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    words = ints(integers)
    bitmap = filled(-(-size // 32), 0, np.uint32)
    sketch = filled(layout.cells)
    hashing = hashing_of(layout)
    if indices is None:
        _encode_dense[warps_for(bitmap.size)](words, hashing, bitmap, sketch)
    else:
        grid = threads_for(words.size)
        _encode_sparse[grid](ints(indices), words, hashing, bitmap, sketch)
    return back(bitmap.view(np.int32), integers), back(sketch, integers)


def lhc_occupancy(bitmap: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    occupancy = filled(layout.cells)
    occupy(ints(bitmap).view(np.uint32), size, hashing_of(layout), occupancy, empty(0))
    return back(occupancy, bitmap)


def occupy(words: Array, size: int, hashing: Hashing, occupancy: Array, combined: Array) -> None:
    """Count the elements of every cell; combine their indices by exclusive or.

    Args:
        words: the bitmap; bits from ``size`` on are ignored.
        size: elements of the gradient.
        hashing: see ``hashing``.
        occupancy: zeros, shape (cells,); becomes the counts.
        combined: zeros, shape (cells,); becomes the combined indices. Empty: they are not wanted.
    """
    _occupy[warps_for(words.size)](words, size, hashing, occupancy, combined)


@cuda.jit(device=True)
def _add(sketch: Array, item: np.uint64, integer: np.int32, hashing: Hashing) -> None:
    words = hash_of(item, hashing)
    for j in range(np.int64(hashing[4])):
        cuda.atomic.add(sketch, cell_of(words, j, item, hashing), signed(words, j, integer))


@cuda.jit
def _encode_dense(integers: Array, hashing: Hashing, bitmap: Array, sketch: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        item = 32 * w + lane
        integer = np.int32(0)
        if item < integers.size:
            integer = integers[item]
        flags = ballot(integer != 0)
        if lane == 0:
            bitmap[w] = flags
        if integer != 0:
            _add(sketch, np.uint64(item), integer, hashing)


@cuda.jit
def _encode_sparse(
    indices: Array, integers: Array, hashing: Hashing, bitmap: Array, sketch: Array
) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        if integers[i] != 0:
            item = np.int64(indices[i])
            cuda.atomic.or_(bitmap, item >> 5, np.uint32(1) << np.uint32(item & 31))
            _add(sketch, np.uint64(item), integers[i], hashing)


@cuda.jit
def _occupy(words: Array, size: int, hashing: Hashing, occupancy: Array, combined: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, words.size, cuda.gridsize(1) >> 5):
        if (word_below(words, w, size) >> np.uint32(lane)) & np.uint32(1) != 0:
            item = np.uint64(32 * w + lane)
            hashes = hash_of(item, hashing)
            for j in range(np.int64(hashing[4])):
                cell = cell_of(hashes, j, item, hashing)
                cuda.atomic.add(occupancy, cell, np.int32(1))
                if combined.size != 0:
                    cuda.atomic.xor(combined, cell, np.int32(item))
