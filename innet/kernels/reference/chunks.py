"""Kernels that look at chunks of consecutive elements."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Floats, Ints, Longs
from innet.kernels.reference.residual import add_scaled


def chunk_argmax(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_argmax``."""
    starts = range(0, x.size, chunk)
    return np.array([i + np.argmax(np.abs(x[i : i + chunk])) for i in starts], np.int32)


def add_scaled_argmax(
    x: Floats, y: Floats, weight: float, parts: Longs, /
) -> tuple[Floats, int, Ints]:
    """See ``innet.kernels.Kernels.add_scaled_argmax``."""
    total, _ = add_scaled(x, y, 1.0)
    found = [
        chunk_argmax(total[begin:end], chunk) + np.int32(begin)
        for begin, end, chunk in parts.tolist()
    ]
    return *add_scaled(x, y, weight), np.concatenate([np.empty(0, np.int32), *found])


def select_above_chunk_max(
    x: Floats, gradient: Floats, weight: float, chunk: int, /
) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.select_above_chunk_max``."""
    h = np.abs(x + gradient.astype(np.float64) * weight)
    maxima = np.abs(x[chunk_argmax(x, chunk)])
    least = maxima[np.arange(x.size) // chunk]
    return np.flatnonzero((h >= least) & (least > 0)).astype(np.int32), maxima
