"""Count sketch: encode, and the median estimate of every element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.count_layout import MAX_ROWS, CountLayout
from innet.kernels.cuda.device import Array, back, empty, filled, floats, ints, threads_for
from innet.kernels.cuda.hashing import GOLDEN, HALF, LOW, mix
from innet.kernels.cuda.survey import survey

_LIMIT = float(np.finfo(np.float32).max)


def count_sketch(x: Any, layout: CountLayout, /) -> Any:
    """See ``innet.kernels.Kernels.count_sketch``. Scratch: 8 bytes for each cell."""
    values = floats(x)
    magnitude, _, _ = survey(values)
    _, exponent = math.frexp(float(np.int32(magnitude).view(np.float32)))
    sums, cells = filled(layout.cells, 0, np.int64), empty(layout.cells, np.float32)
    keys = cuda.to_device(layout.keys())
    scale = 2.0 ** (31 - exponent)
    _add_up[threads_for(values.size)](values, scale, keys, layout.columns, sums)
    _to_floats[threads_for(sums.size)](sums, 1 / scale, cells)
    return back(cells, x)


def count_estimate(sketch: Any, size: int, layout: CountLayout, /) -> Any:
    """See ``innet.kernels.Kernels.count_estimate``."""
    cells, estimates = ints(sketch), empty(size, np.float32)
    keys = cuda.to_device(layout.keys())
    _estimate[threads_for(size)](cells, keys, layout.columns, estimates)
    return back(estimates, sketch)


@cuda.jit(device=True)
def _cell(z: np.uint64, row: int, columns: int) -> int:
    """The cell of a row that an element goes to which is hashed to z."""
    column = ((z & LOW) * np.uint64(columns)) >> HALF
    return int(row * columns + np.int64(column))


@cuda.jit
def _add_up(x: Array, scale: float, keys: Array, columns: int, sums: Array) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        value = np.int64(round(np.float64(x[i]) * np.float64(scale)))
        if value != 0:
            for row in range(keys.size):
                z = mix(np.uint64(i) * GOLDEN + keys[row])
                signed = -value if z >> np.uint64(63) != 0 else value
                cuda.atomic.add(sums, _cell(z, row, columns), signed)


@cuda.jit
def _to_floats(sums: Array, unit: float, cells: Array) -> None:
    for c in range(cuda.grid(1), sums.size, cuda.gridsize(1)):
        value = np.float64(sums[c]) * np.float64(unit)
        cells[c] = np.float32(min(max(value, -_LIMIT), _LIMIT))


@cuda.jit
def _estimate(cells: Array, keys: Array, columns: int, estimates: Array) -> None:
    """Each thread sorts the few values of its element by insertion."""
    ordered = cuda.local.array(MAX_ROWS, np.int32)
    for i in range(cuda.grid(1), estimates.size, cuda.gridsize(1)):
        for row in range(keys.size):
            z = mix(np.uint64(i) * GOLDEN + keys[row])
            value = cells[_cell(z, row, columns)]
            if z >> np.uint64(63) != 0:
                value = np.int32(-value)
            place = row
            while place > 0 and ordered[place - 1] > value:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = value
        estimates[i] = np.float32(ordered[keys.size // 2])
