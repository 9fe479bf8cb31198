"""Count sketch: encode, and the median estimate of every element.

The 16 elements of a block lie in neighboring cells, which are added or looked up as one vector.
Accumulators and cells have 15 more columns at the end, so that no vector is split.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints, Longs
from innet.kernels.cpu.intrinsics import add_signed_16, mix, take_signed_16
from innet.kernels.cpu.statistics import absmax_nnz
from innet.kernels.layout.count_sketch import LANES, CountLayout
from innet.kernels.layout.hashing import GOLDEN

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDER = 6755399441055744.0  # as in ``innet.kernels.cpu.fixed_point``: rounds what is below 2**51
_STRIP = 512  # elements whose estimates are sorted together; they stay in the L1 cache
_USUAL_ROWS = 5
_LIMIT = float(np.finfo(np.float32).max)


def count_sketch_encode(x: Floats, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_sketch_encode``."""
    magnitude, _, _ = absmax_nnz(x)
    _, exponent = math.frexp(float(np.int32(magnitude).view(np.float32)))
    add_row = _add_blocks if layout.lanes == LANES else _add_singly
    # Row by row: the only scratch is the accumulators of one row, which stay in a cache.
    sums = np.empty(layout.columns + layout.lanes - 1, np.int64)
    cells = np.empty((layout.rows, layout.columns), np.float32)
    for row, key in zip(cells, layout.keys(), strict=True):
        sums[:] = 0
        add_row(x, 2.0 ** (31 - exponent), key, layout.columns, sums)
        _to_floats(sums, 2.0 ** (exponent - 31), row)
    return cells.ravel()


def count_sketch_estimate(sketch: Ints, size: int, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_sketch_estimate``. Scratch: a copy of the sketch."""
    estimates = buffers.empty(size, np.float32)
    strip = np.empty((layout.rows, _STRIP), np.int32)
    rows = sketch.reshape(layout.rows, layout.columns)
    cells = np.concatenate((rows, rows[:, : layout.lanes - 1]), axis=1)
    _estimate(cells, layout.keys(), layout.columns, strip, estimates)
    return estimates


@njit(cache=True, nogil=True)
def _hash(block: int, key: np.uint64) -> np.uint64:
    return mix(np.uint64(block) * GOLDEN + key)


@njit(cache=True, nogil=True)
def _first_column(z: np.uint64, columns: int) -> int:
    return int(((z & _LOW) * np.uint64(columns)) >> _HALF)


@njit(cache=True, nogil=True)
def _add_blocks(x: Floats, scale: float, key: np.uint64, columns: int, sums: Longs) -> None:
    full = x.size // LANES
    for b in range(full):
        z = _hash(b, key)
        position = _first_column(z, columns)
        add_signed_16(x, b * LANES, scale, z >> np.uint64(48), sums, position)
    if x.size % LANES:
        last = np.zeros(LANES, np.float32)
        for i in range(x.size % LANES):
            last[i] = x[full * LANES + i]
        z = _hash(full, key)
        add_signed_16(last, 0, scale, z >> np.uint64(48), sums, _first_column(z, columns))


@njit(cache=True, nogil=True)
def _add_singly(x: Floats, scale: float, key: np.uint64, columns: int, sums: Longs) -> None:
    for i in range(x.size):
        z = _hash(i, key)
        value = np.int64((np.float64(x[i]) * scale + _ROUNDER) - _ROUNDER)
        # All ones where the sign bit is set: (v ^ -1) + 1 is -v, without a branch.
        negate = -np.int64(z >> np.uint64(63))
        sums[_first_column(z, columns)] += (value ^ negate) - negate


@njit(cache=True, nogil=True)
def _to_floats(sums: Longs, unit: float, cells: Floats) -> None:
    """The sums as float32; those after the last column are added to the first ones."""
    for c in range(cells.size, sums.size):
        sums[c - cells.size] += sums[c]
    for c in range(cells.size):
        cells[c] = np.float32(min(max(np.float64(sums[c]) * unit, -_LIMIT), _LIMIT))


@njit(cache=True, nogil=True)
def _estimate(
    cells: NDArray[np.int32],
    keys: NDArray[np.uint64],
    columns: int,
    strip: NDArray[np.int32],
    estimates: Floats,
) -> None:
    rows = keys.size
    for start in range(0, estimates.size, strip.shape[1]):
        count = min(strip.shape[1], estimates.size - start)
        for row in range(rows):
            if cells.shape[1] > columns:
                for i in range(0, count, LANES):  # the strip has room for the whole of the last
                    z = _hash((start + i) // LANES, keys[row])
                    position = _first_column(z, columns)
                    take_signed_16(cells[row], position, z >> np.uint64(48), strip[row], i)
            else:
                _look_up_singly(cells[row], start, keys[row], strip[row, :count])
        part = estimates[start : start + count]
        if rows == _USUAL_ROWS:
            _median_of_5(strip, part)
        else:
            _median(strip, part)


@njit(cache=True, nogil=True)
def _median_of_5(strip: NDArray[np.int32], estimates: Floats) -> None:
    """The median of five: neither the largest nor the smallest of four can be it, so it is the
    median of the two middle ones and the fifth.
    """
    a, b, c, d, e = strip[0], strip[1], strip[2], strip[3], strip[4]
    for i in range(estimates.size):
        low = max(min(a[i], b[i]), min(c[i], d[i]))
        high = min(max(a[i], b[i]), max(c[i], d[i]))
        middle = max(min(low, high), min(max(low, high), e[i]))
        estimates[i] = np.float32(middle)


@njit(cache=True, nogil=True)
def _median(strip: NDArray[np.int32], estimates: Floats) -> None:
    """Odd-even transposition sort of the rows, for all elements of the strip at once."""
    rows, count = strip.shape[0], estimates.size
    for turn in range(rows):
        for row in range(turn % 2, rows - 1, 2):
            low, high = strip[row], strip[row + 1]
            for i in range(count):
                a, b = low[i], high[i]
                low[i] = min(a, b)
                high[i] = max(a, b)
    middle = strip[rows // 2]
    for i in range(count):
        estimates[i] = np.float32(middle[i])


@njit(cache=True, nogil=True)
def _look_up_singly(cells: Ints, start: int, key: np.uint64, signed: Ints) -> None:
    for i in range(signed.size):
        z = _hash(start + i, key)
        negate = -np.int32(z >> np.uint64(63))
        signed[i] = (cells[_first_column(z, cells.size)] ^ negate) - negate
