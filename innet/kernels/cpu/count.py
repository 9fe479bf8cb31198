"""Count sketch: encode, and the median estimate of every element."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.kernels.arrays import Floats, Ints
from innet.kernels.count_layout import CountLayout
from innet.kernels.cpu.survey import survey

_ROUNDER = 6755399441055744.0  # as in ``innet.kernels.cpu.fixed``: rounds what is below 2**51
_STRIP = 512  # elements whose estimates are sorted together; they stay in the first cache
_LIMIT = float(np.finfo(np.float32).max)


def count_sketch(x: Floats, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_sketch``."""
    magnitude, _, _ = survey(x)
    _, exponent = math.frexp(float(np.int32(magnitude).view(np.float32)))
    # Row by row: the accumulators of one row are all the scratch there is, and stay in a cache.
    sums = np.empty(layout.columns, np.int64)
    cells = np.empty(layout.cells, np.float32)
    for row, key in enumerate(layout.keys()):
        _sum_row(x, 2.0 ** (31 - exponent), key, sums)
        start = row * layout.columns
        _to_floats(sums, 2.0 ** (exponent - 31), cells[start : start + layout.columns])
    return cells


def count_estimate(sketch: Ints, size: int, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_estimate``."""
    estimates = np.empty(size, np.float32)
    strip = np.empty((layout.rows, _STRIP), np.int32)
    _estimate(sketch.reshape(layout.rows, layout.columns), layout.keys(), strip, estimates)
    return estimates


@njit(cache=True, inline="always")
def _hash(i: int, key: np.uint64) -> np.uint64:
    z = np.uint64(i) * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _sum_row(x: Floats, scale: float, key: np.uint64, sums: NDArray[np.int64]) -> None:
    sums[:] = 0
    columns = np.uint64(sums.size)
    for i in range(x.size):
        z = _hash(i, key)
        column = np.int64(((z & np.uint64(0xFFFFFFFF)) * columns) >> np.uint64(32))
        value = np.int64((np.float64(x[i]) * scale + _ROUNDER) - _ROUNDER)
        # All ones where the sign bit is set: (v ^ -1) + 1 is -v, without a branch.
        negate = -np.int64(z >> np.uint64(63))
        sums[column] += (value ^ negate) - negate


@njit(cache=True)
def _to_floats(sums: NDArray[np.int64], unit: float, cells: Floats) -> None:
    for c in range(sums.size):
        cells[c] = np.float32(min(max(np.float64(sums[c]) * unit, -_LIMIT), _LIMIT))


@njit(cache=True)
def _estimate(
    cells: NDArray[np.int32], keys: NDArray[np.uint64], strip: NDArray[np.int32], estimates: Floats
) -> None:
    rows = keys.size
    columns = np.uint64(cells.shape[1])
    for start in range(0, estimates.size, strip.shape[1]):
        count = min(strip.shape[1], estimates.size - start)
        for row in range(rows):
            own, signed = cells[row], strip[row]
            for i in range(count):
                z = _hash(start + i, keys[row])
                column = np.int64(((z & np.uint64(0xFFFFFFFF)) * columns) >> np.uint64(32))
                negate = -np.int32(z >> np.uint64(63))
                signed[i] = (own[column] ^ negate) - negate
        # Odd-even transposition sort of the rows, for all elements of the strip at a time.
        for turn in range(rows):
            for row in range(turn % 2, rows - 1, 2):
                low, high = strip[row], strip[row + 1]
                for i in range(count):
                    a, b = low[i], high[i]
                    low[i] = min(a, b)
                    high[i] = max(a, b)
        middle = strip[rows // 2]
        for i in range(count):
            estimates[start + i] = np.float32(middle[i])
