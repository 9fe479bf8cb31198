"""Sparse integers: a bitmap of what is not zero, and what they are at given places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, filled, ints, threads_for, warps_for
from innet.kernels.cuda.warp import ballot


def mark(indices: Any, integers: Any, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.mark``."""
    words = ints(integers)
    bitmap = filled(-(-size // 32), 0, np.uint32)
    if indices is None:
        _mark_dense[warps_for(bitmap.size)](words, bitmap)
    else:
        _mark_sparse[threads_for(words.size)](ints(indices), words, bitmap)
    return back(bitmap.view(np.int32), integers)


def align(indices: Any, integers: Any, places: Any, /) -> Any:
    """See ``innet.kernels.Kernels.align``."""
    words, wanted = ints(integers), ints(places)
    found = filled(wanted.size)
    _align[threads_for(words.size)](ints(indices), words, wanted, found)
    return back(found, integers, places)


@cuda.jit
def _mark_dense(integers: Array, bitmap: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        integer = np.int32(0)
        if 32 * w + lane < integers.size:
            integer = integers[32 * w + lane]
        flags = ballot(integer != 0)
        if lane == 0:
            bitmap[w] = flags


@cuda.jit
def _mark_sparse(indices: Array, integers: Array, bitmap: Array) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        if integers[i] != 0:
            item = indices[i]
            cuda.atomic.or_(bitmap, item >> 5, np.uint32(1) << np.uint32(item & 31))


@cuda.jit
def _align(indices: Array, integers: Array, places: Array, found: Array) -> None:
    """Each looks for its place by halves."""
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        low, high = 0, places.size
        while low < high:
            middle = (low + high) // 2
            if places[middle] < indices[i]:
                low = middle + 1
            else:
                high = middle
        if low < places.size and places[low] == indices[i]:
            found[low] = integers[i]
