"""Fixed-point numbers: quantise, dequantise, and a sparse array made dense."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu import memory

# 1.5 · 2**52: adding it to a float64 below 2**51 rounds that to an integer, half to even, in one
# instruction that every vector unit has. Numba compiles without -ffast-math: it stays as written.
_ROUNDER = 6755399441055744.0


def quantise(x: Floats, scale: float, /) -> Ints:
    """See ``innet.kernels.Kernels.quantise``."""
    integers = memory.empty(x.size, np.int32)
    _quantise(x, scale, integers)
    return integers


def dequantise(integers: Ints, step: float, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantise``."""
    values = memory.empty(integers.size, np.float32)
    _dequantise(integers, step, values)
    return values


def scatter(indices: Ints, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter``."""
    dense = memory.zeros(size, np.int32)
    _scatter(indices, integers, dense)
    return dense


@njit(cache=True)
def _quantise(x: Floats, scale: float, integers: Ints) -> None:
    for i in range(x.size):
        integers[i] = np.int32((np.float64(x[i]) * scale + _ROUNDER) - _ROUNDER)


@njit(cache=True)
def _dequantise(integers: Ints, step: float, values: Floats) -> None:
    for i in range(integers.size):
        values[i] = np.float32(np.float64(integers[i]) * step)


@njit(cache=True)
def _scatter(indices: Ints, integers: Ints, dense: Ints) -> None:
    for i in range(indices.size):
        dense[indices[i]] = integers[i]
