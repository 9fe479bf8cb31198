"""Count sketch: encode, and the median estimate of every element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    HALF,
    LOW,
    ONE,
    Array,
    back,
    empty,
    filled,
    floats,
    ints,
    mix,
    threads_for,
)
from innet.kernels.cuda.statistics import absmax_nnz
from innet.kernels.layout.count_sketch import MAX_ROWS, CountLayout
from innet.kernels.layout.hashing import GOLDEN

_LIMIT = float(np.finfo(np.float32).max)


def count_sketch_encode(x: Any, layout: CountLayout, /) -> Any:
    """See ``innet.kernels.Kernels.count_sketch_encode``. Scratch: 8 bytes for each cell."""
    values = floats(x)
    magnitude, _, _ = absmax_nnz(values)
    _, exponent = math.frexp(float(np.int32(magnitude).view(np.float32)))
    sums, cells = filled(layout.cells, 0, np.int64), empty(layout.cells, np.float32)
    keys = cuda.to_device(layout.keys())
    scale = 2.0 ** (31 - exponent)
    shape = layout.lanes, layout.columns
    _add_up[threads_for(values.size)](values, scale, keys, *shape, sums)
    _to_floats[threads_for(sums.size)](sums, 1 / scale, cells)
    return back(cells, x)


def count_sketch_estimate(sketch: Any, size: int, layout: CountLayout, /) -> Any:
    """See ``innet.kernels.Kernels.count_sketch_estimate``."""
    cells, estimates = ints(sketch), empty(size, np.float32)
    keys = cuda.to_device(layout.keys())
    _estimate[threads_for(size)](cells, keys, layout.lanes, layout.columns, estimates)
    return back(estimates, sketch)


@cuda.jit(device=True)
def _hash(i: int, key: np.uint64, lanes: int) -> np.uint64:
    """The hash of the element's block in a row."""
    z: np.uint64 = mix(np.uint64(i // lanes) * GOLDEN + key)
    return z


@cuda.jit(device=True)
def _cell(z: np.uint64, i: int, row: int, lanes: int, columns: int) -> int:
    """The cell in a row of an element whose block has the hash z."""
    column = np.int64(((z & LOW) * np.uint64(columns)) >> HALF) + i % lanes
    # The block's first cell is one of the columns, and lanes are fewer.
    return int(row * columns + (column - columns if column >= columns else column))


@cuda.jit(device=True)
def _negative(z: np.uint64, i: int, lanes: int) -> bool:
    return bool((z >> np.uint64(64 - lanes + i % lanes)) & ONE != np.uint64(0))


@cuda.jit
def _add_up(x: Array, scale: float, keys: Array, lanes: int, columns: int, sums: Array) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        value = np.int64(round(np.float64(x[i]) * np.float64(scale)))
        if value != 0:
            for row in range(keys.size):
                z = _hash(i, keys[row], lanes)
                signed = -value if _negative(z, i, lanes) else value
                cuda.atomic.add(sums, _cell(z, i, row, lanes, columns), signed)


@cuda.jit
def _to_floats(sums: Array, unit: float, cells: Array) -> None:
    for c in range(cuda.grid(1), sums.size, cuda.gridsize(1)):
        value = np.float64(sums[c]) * np.float64(unit)
        cells[c] = np.float32(min(max(value, -_LIMIT), _LIMIT))


@cuda.jit
def _estimate(cells: Array, keys: Array, lanes: int, columns: int, estimates: Array) -> None:
    """Each thread sorts the few values of its element by insertion."""
    ordered = cuda.local.array(MAX_ROWS, np.int32)
    for i in range(cuda.grid(1), estimates.size, cuda.gridsize(1)):
        for row in range(keys.size):
            z = _hash(i, keys[row], lanes)
            value = cells[_cell(z, i, row, lanes, columns)]
            if _negative(z, i, lanes):
                value = np.int32(-value)
            position = row
            while position > 0 and ordered[position - 1] > value:
                ordered[position] = ordered[position - 1]
                position -= 1
            ordered[position] = value
        estimates[i] = np.float32(ordered[keys.size // 2])
