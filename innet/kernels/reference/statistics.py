"""Kernels for statistics: the oracle of sums in the fixed order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import LANES, Floats, Ints

Doubles = NDArray[np.float64]


def absmax_nnz(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.absmax_nnz``."""
    bad = np.flatnonzero(~np.isfinite(x))
    largest = np.max(np.abs(x), initial=np.float32(0))
    return (
        int(np.float32(largest).view(np.int32)),
        int(np.count_nonzero(x)),
        int(bad[0]) if bad.size else -1,
    )


def absmax_nnz_sparse(x: Floats, most: int, /) -> tuple[int, int, int, tuple[Ints, Floats] | None]:
    """See ``innet.kernels.Kernels.absmax_nnz_sparse``."""
    indices = np.flatnonzero(x).astype(np.int32)
    return *absmax_nnz(x), (indices, x[indices]) if indices.size <= most else None


def absmin_count(x: Floats, least: float, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.absmin_count``."""
    magnitudes = np.abs(x).astype(np.float64)
    counted = magnitudes[magnitudes >= least]
    return float(counted.min(initial=math.inf)), counted.size


def moments(x: Floats, shift: float, least: float, /) -> tuple[float, float]:
    """See ``innet.kernels.Kernels.moments``."""
    magnitudes = np.abs(x).astype(np.float64)
    deviations = np.where(magnitudes >= least, magnitudes - shift, 0.0)
    return _sum(deviations), _sum(deviations * deviations)


def abs_product(x: Floats, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.abs_product``."""
    factors = np.where(x == 0, np.float32(1), np.abs(x))
    halves, powers = np.frexp(factors.astype(np.float64))  # halves in [0.5, 1)
    exponent = int(powers.sum(dtype=np.int64)) - x.size
    lanes = np.ones(LANES)
    for row in _rows(2 * halves, 1.0):
        lanes, lost = np.frexp(lanes * row)
        lanes *= 2
        exponent += int(lost.sum()) - LANES
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] * lanes[lanes.size // 2 :]
    half, power = math.frexp(float(lanes[0]))
    return 2 * half, exponent + power - 1


def _sum(terms: Doubles) -> float:
    lanes = np.zeros(LANES)
    for row in _rows(terms, 0.0):
        lanes = lanes + row
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return float(lanes[0])


def _rows(terms: Doubles, neutral: float) -> Doubles:
    """Shape (rows, LANES), padded with neutral elements."""
    rows = np.full((-(-terms.size // LANES), LANES), neutral)
    rows.ravel()[: terms.size] = terms
    return rows
