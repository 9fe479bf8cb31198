"""Sums, squares and products of magnitudes in the order that ``innet.kernels`` defines.

A thread for each of the lanes: the order leaves no more parallelism, so these kernels wait for one
addition after another where others wait for memory. The lanes are folded on the host, where the
result goes anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.arrays import LANES
from innet.kernels.cuda.device import WARP, Array, empty, floats
from innet.kernels.cuda.rounding import times

_EACH_LANE = (LANES // WARP, WARP)  # a warp on each of so many multiprocessors
_MAGNITUDE = 0x7FFFFFFF
_FRACTION = 0x7FFFFF
_LEADING = 0x800000  # the bit of a normal number's mantissa that is not stored


def moments(x: Any, shift: float, least: float, /) -> tuple[float, float]:
    """See ``innet.kernels.Kernels.moments``."""
    sums, squares = empty(LANES, np.float64), empty(LANES, np.float64)
    _moments[_EACH_LANE](floats(x), shift, least, sums, squares)
    return _folded(np.add, sums), _folded(np.add, squares)


def product(x: Any, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.product``."""
    fractions, exponents = empty(LANES, np.float64), empty(LANES, np.int64)
    _product[_EACH_LANE](floats(x).view(np.int32), fractions, exponents)
    half, exponent = np.frexp(_folded(np.multiply, fractions))  # below 2**512
    return 2 * float(half), int(exponents.copy_to_host().sum()) + int(exponent) - 1


def _folded(operation: np.ufunc, array: Array) -> float:
    lanes = array.copy_to_host()
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = operation(lanes[:half], lanes[half:])
    return float(lanes[0])


@cuda.jit
def _moments(x: Array, shift: float, least: float, sums: Array, squares: Array) -> None:
    lane = cuda.grid(1)
    total = np.float64(0)
    square = np.float64(0)
    for i in range(lane, x.size, LANES):
        magnitude = np.float64(abs(x[i]))
        if magnitude >= np.float64(least):
            deviation = magnitude - np.float64(shift)
            total += deviation
            square += times(deviation, deviation)
    sums[lane] = total
    squares[lane] = square


@cuda.jit
def _product(words: Array, fractions: Array, exponents: Array) -> None:
    """Each lane's product stays in [1, 2): scaling by a power of two does not change its bits."""
    lane = cuda.grid(1)
    fraction = np.float64(1)
    exponent = np.int64(0)
    for i in range(lane, words.size, LANES):
        if words[i] & _MAGNITUDE == 0:
            continue
        field = (words[i] >> 23) & 0xFF
        mantissa = words[i] & _FRACTION
        if field == 0:
            field = 1
        else:
            mantissa |= _LEADING
        above = cuda.clz(np.int32(mantissa)) - 8  # how far a subnormal's leading bit is from bit 23
        exponent += np.int64(field - 127 - above)
        fraction = times(fraction, np.float64(mantissa << above) * 2.0**-23)
        if fraction >= 2.0:
            fraction *= 0.5
            exponent += np.int64(1)
    fractions[lane] = fraction
    exponents[lane] = exponent
