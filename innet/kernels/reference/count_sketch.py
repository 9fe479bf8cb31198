"""Count sketch: the oracle. See ``innet.kernels`` for what each function must do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Floats, Ints
from innet.kernels.layout.count_sketch import CountLayout
from innet.kernels.layout.hashing import GOLDEN, mix


def count_sketch_encode(x: Floats, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_sketch_encode``."""
    _, exponent = math.frexp(float(np.abs(x).max(initial=0)))
    fixed = np.rint(x.astype(np.float64) * 2.0 ** (31 - exponent)).astype(np.int64)
    cells = np.zeros((layout.rows, layout.columns), np.int64)
    columns, negative = _places(x.size, layout)
    for row in range(layout.rows):
        np.add.at(cells[row], columns[row], np.where(negative[row], -fixed, fixed))
    limit = float(np.finfo(np.float32).max)
    values = cells.astype(np.float64) * 2.0 ** (exponent - 31)
    return np.clip(values, -limit, limit).astype(np.float32).ravel()


def count_sketch_estimate(sketch: Ints, size: int, layout: CountLayout, /) -> Floats:
    """See ``innet.kernels.Kernels.count_sketch_estimate``."""
    columns, negative = _places(size, layout)
    cells = np.take_along_axis(sketch.reshape(layout.rows, layout.columns), columns, axis=1)
    signed = np.where(negative, -cells, cells)
    median: Ints = np.sort(signed, axis=0)[layout.rows // 2]
    return median.astype(np.float32)


def _places(size: int, layout: CountLayout) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Columns of all elements, shape (rows, size), and where they are negated, of that shape."""
    lanes, columns = np.uint64(layout.lanes), np.uint64(layout.columns)
    block, lane = np.divmod(np.arange(size, dtype=np.uint64), lanes)
    z = mix(block * GOLDEN + layout.keys()[:, np.newaxis])
    first = (z & np.uint64(0xFFFFFFFF)) * columns >> np.uint64(32)
    negative = z >> (np.uint64(64) - lanes + lane) & np.uint64(1) == 1
    return ((first + lane) % columns).astype(np.int64), negative
