"""Sums of a gradient and a residual."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Floats, Ints
from innet.kernels.reference.statistics import absmax_nnz


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    with np.errstate(over="ignore"):
        total = x + np.float32(weight) * y
    return total, absmax_nnz(total)[0]


def low_pass(
    memory: Floats, gradient: Floats, weight: float, indices: Ints, taken: Floats, /
) -> tuple[Floats, Floats, int]:
    """See ``innet.kernels.Kernels.low_pass``."""
    kept = taken.copy()
    stays = np.float32(1) - np.float32(weight)
    kept[indices] = stays * memory[indices] + np.float32(0)
    sums, _ = add_scaled(memory[indices], gradient[indices], 1.0)
    return kept, sums, absmax_nnz(kept[indices])[0]
