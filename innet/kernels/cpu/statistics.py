"""Sums, squares and products of magnitudes in the order that ``innet.kernels`` defines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.kernels.arrays import LANES, Floats
from innet.kernels.cpu.intrinsics import float_of_bits, magnitude_bits
from innet.kernels.cpu.topk import least_bits

Doubles = NDArray[np.float64]
_FRACTION = 0x000FFFFFFFFFFFFF
_ONE = 0x3FF0000000000000  # the bits of 1.0
_BIAS = 1023
_INFINITY = 0x7F800000  # the bits of float32's infinity


def smallest(x: Floats, least: float, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.smallest``."""
    found, count = _smallest(x, np.int32(least_bits(least)))
    return float(found), int(count)


def moments(x: Floats, shift: float, least: float, /) -> tuple[float, float]:
    """See ``innet.kernels.Kernels.moments``."""
    sums, squares = np.zeros(LANES), np.zeros(LANES)
    _moments(x, shift, np.int32(least_bits(least)), sums, squares)
    return float(_folded_sum(sums)), float(_folded_sum(squares))


def product(x: Floats, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.product``."""
    fractions = np.ones(LANES)
    exponent = _product(x, fractions)
    width = LANES
    while width > 1:
        width //= 2
        fractions = fractions[:width] * fractions[width:]
    exponent += _normalise(fractions)
    return float(fractions[0]), int(exponent)


def _folded_sum(lanes: Doubles) -> np.float64:
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return np.float64(lanes[0])


@njit(cache=True, nogil=True)
def _smallest(x: Floats, least: np.int32) -> tuple[np.float32, int]:
    smallest = np.int32(_INFINITY)
    count = 0
    for i in range(x.size):
        bits = magnitude_bits(x[i])
        smallest = min(smallest, bits if bits >= least else np.int32(_INFINITY))
        count += int(bits >= least)
    return float_of_bits(smallest), count


@njit(cache=True, nogil=True)
def _moments(x: Floats, shift: float, least: np.int32, sums: Doubles, squares: Doubles) -> None:
    for start in range(0, x.size, LANES):
        row = x[start : start + LANES]
        for j in range(row.size):
            reaches = magnitude_bits(row[j]) >= least
            deviation = np.float64(abs(row[j])) - shift if reaches else 0.0
            sums[j] += deviation
            squares[j] += deviation * deviation


@njit(cache=True, nogil=True)
def _product(x: Floats, fractions: Doubles) -> int:
    """Multiply the fractions, each in [1, 2), into the lanes; returns the exponents' sum."""
    exponent = 0
    for i, start in enumerate(range(0, x.size, LANES)):
        row = x[start : start + LANES]
        for j in range(row.size):
            factor = np.float64(abs(row[j])) if row[j] != 0 else 1.0
            bits = np.float64(factor).view(np.int64)
            exponent += int((bits >> 52) - _BIAS)
            fractions[j] *= np.int64((bits & _FRACTION) | _ONE).view(np.float64)
        if i % 512 == 511:  # a lane is below 2**513: far from float64's end
            exponent += _normalise(fractions)
    return exponent + _normalise(fractions)


@njit(cache=True, nogil=True)
def _normalise(lanes: Doubles) -> int:
    """Bring the lanes into [1, 2); returns the sum of the exponents that they lose."""
    exponent = 0
    for j in range(lanes.size):
        bits = np.float64(lanes[j]).view(np.int64)
        exponent += int((bits >> 52) - _BIAS)
        lanes[j] = np.int64((bits & _FRACTION) | _ONE).view(np.float64)
    return exponent
