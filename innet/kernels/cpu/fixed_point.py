"""Fixed-point numbers: rounding to the nearest integer or at random, and the inverse."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import STRETCH, mix, put
from innet.kernels.layout.hashing import GOLDEN

# 1.5 · 2**52: adding it to a float64 below 2**51 rounds that to an integer, half to even, in one
# instruction that every vector unit has. Numba compiles without -ffast-math: it stays as written.
_ROUNDER = 6755399441055744.0


def quantize(x: Floats, scale: float, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize``."""
    integers: Ints = buffers.empty(x.size, np.int32)
    if buffers.passes_caches(integers):
        _quantize_past(x, scale, integers)
    else:
        _quantize(x, scale, integers)
    return integers


def quantize_stochastic(x: Floats, scale: float, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize_stochastic``."""
    integers = buffers.empty(x.size, np.int32)
    _quantize_stochastic(x, scale * 2.0**32, np.uint64(key), integers)
    return integers


def dequantize(integers: Ints, step: float, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantize``."""
    values: Floats = buffers.empty(integers.size, np.float32)
    if buffers.passes_caches(values):
        _dequantize_past(integers, step, values)
    else:
        _dequantize(integers, step, values)
    return values


@njit(cache=True, nogil=True)
def _quantize(x: Floats, scale: float, integers: Ints) -> None:
    for i in range(x.size):
        integers[i] = np.int32((np.float64(x[i]) * scale + _ROUNDER) - _ROUNDER)


@njit(cache=True, nogil=True)
def _quantize_past(x: Floats, scale: float, integers: Ints) -> None:
    """The same for a result that is written past the caches."""
    stretch = np.empty(STRETCH, np.int32)
    for start in range(0, x.size, STRETCH):
        end = min(start + STRETCH, x.size)
        piece = x[start:end]
        # Not a call of ``_quantize``, which would not compile to vector instructions here.
        for i in range(piece.size):
            stretch[i] = np.int32((np.float64(piece[i]) * scale + _ROUNDER) - _ROUNDER)
        put(stretch, integers, start, end, True)


@njit(cache=True, nogil=True)
def _quantize_stochastic(x: Floats, finest: float, key: np.uint64, integers: Ints) -> None:
    for i in range(x.size):
        chance = mix(np.uint64(i + 1) * GOLDEN + key) >> np.uint64(32)
        magnitude = (np.int64(np.float64(abs(x[i])) * finest) + np.int64(chance)) >> 32
        integers[i] = np.int32(-magnitude if x[i] < 0 else magnitude)


@njit(cache=True, nogil=True)
def _dequantize(integers: Ints, step: float, values: Floats) -> None:
    for i in range(integers.size):
        values[i] = np.float32(np.float64(integers[i]) * step) + np.float32(0)  # not -0.0


@njit(cache=True, nogil=True)
def _dequantize_past(integers: Ints, step: float, values: Floats) -> None:
    """The same for a result that is written past the caches."""
    stretch = np.empty(STRETCH, np.float32)
    for start in range(0, integers.size, STRETCH):
        end = min(start + STRETCH, integers.size)
        piece = integers[start:end]
        for i in range(piece.size):
            stretch[i] = np.float32(np.float64(piece[i]) * step) + np.float32(0)
        put(stretch, values, start, end, True)
