"""Large arrays are made by the stretch, in the first cache, from where it goes to its place."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import copy_16
from innet.kernels.cpu.lhc import mix

STRETCH = 1024  # elements; a multiple of those that fill a cache line


@njit(cache=True, nogil=True)
def put(stretch: Floats | Ints, array: Floats | Ints, start: int, end: int, past: bool) -> None:
    """Copy a stretch to where it begins and ends in the array, past the caches or not. Only the
    array's last stretch is shorter.
    """
    whole = start + (end - start) // 16 * 16
    for i in range(start, whole, 16):
        copy_16(stretch, i - start, array, i, past)
    for i in range(whole, end):
        array[i] = stretch[i - start]


# ----------------------------------------------------------------------------
# Fixed-point numbers, rounded to the nearest or by chance; and a sparse array made dense.

# 1.5 · 2**52: adding it to a float64 below 2**51 rounds that to an integer, half to even, in one
# instruction that every vector unit has. Numba compiles without -ffast-math: it stays as written.
_ROUNDER = 6755399441055744.0
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def quantize(x: Floats, scale: float, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize``."""
    integers: Ints = buffers.empty(x.size, np.int32)
    if buffers.passes_caches(integers):
        _quantise_past(x, scale, integers)
    else:
        _quantize(x, scale, integers)
    return integers


def quantise_randomly(x: Floats, scale: float, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.quantise_randomly``."""
    integers = buffers.empty(x.size, np.int32)
    _quantise_randomly(x, scale * 2.0**32, np.uint64(key), integers)
    return integers


def dequantise(integers: Ints, step: float, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantise``."""
    values: Floats = buffers.empty(integers.size, np.float32)
    if buffers.passes_caches(values):
        _dequantise_past(integers, step, values)
    else:
        _dequantise(integers, step, values)
    return values


def scatter(indices: Ints, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter``."""
    dense: Ints = buffers.empty(size, np.int32)
    _scatter(indices, integers, dense, buffers.passes_caches(dense))
    return dense


@njit(cache=True, nogil=True)
def _quantize(x: Floats, scale: float, integers: Ints) -> None:
    for i in range(x.size):
        integers[i] = np.int32((np.float64(x[i]) * scale + _ROUNDER) - _ROUNDER)


@njit(cache=True, nogil=True)
def _quantise_past(x: Floats, scale: float, integers: Ints) -> None:
    """The same for a result that is written past the caches."""
    stretch = np.empty(STRETCH, np.int32)
    for start in range(0, x.size, STRETCH):
        end = min(start + STRETCH, x.size)
        piece = x[start:end]
        # Not by a call of ``_quantize``, which would not run in vectors here.
        for i in range(piece.size):
            stretch[i] = np.int32((np.float64(piece[i]) * scale + _ROUNDER) - _ROUNDER)
        put(stretch, integers, start, end, True)


@njit(cache=True, nogil=True)
def _quantise_randomly(x: Floats, finest: float, key: np.uint64, integers: Ints) -> None:
    for i in range(x.size):
        chance = mix(np.uint64(i + 1) * _GOLDEN + key) >> np.uint64(32)
        magnitude = (np.int64(np.float64(abs(x[i])) * finest) + np.int64(chance)) >> 32
        integers[i] = np.int32(-magnitude if x[i] < 0 else magnitude)


@njit(cache=True, nogil=True)
def _dequantise(integers: Ints, step: float, values: Floats) -> None:
    for i in range(integers.size):
        values[i] = np.float32(np.float64(integers[i]) * step)


@njit(cache=True, nogil=True)
def _dequantise_past(integers: Ints, step: float, values: Floats) -> None:
    """The same for a result that is written past the caches."""
    stretch = np.empty(STRETCH, np.float32)
    for start in range(0, integers.size, STRETCH):
        end = min(start + STRETCH, integers.size)
        piece = integers[start:end]
        for i in range(piece.size):
            stretch[i] = np.float32(np.float64(piece[i]) * step)
        put(stretch, values, start, end, True)


@njit(cache=True, nogil=True)
def _scatter(indices: Ints, integers: Ints, dense: Ints, past: bool) -> None:
    """By the stretch: indices ascend. What counts is unsigned, so that nothing wraps around."""
    stretch = np.zeros(STRETCH, np.int32)
    following, items = np.uint64(0), np.uint64(indices.size)
    for start in range(0, dense.size, STRETCH):
        end = min(start + STRETCH, dense.size)
        first = following
        while following < items and indices[following] < end:
            stretch[np.uint64(indices[following] - start)] = integers[following]
            following += np.uint64(1)
        put(stretch, dense, start, end, past)
        for i in range(first, following):
            stretch[np.uint64(indices[i] - start)] = 0
