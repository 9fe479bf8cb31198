"""Top-k and threshold selection."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Floats, Ints
from innet.kernels.reference.residual import add_scaled


def top_k(x: Floats, k: int, /) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.top_k``."""
    # Compared by their bits, so that a NaN is larger than infinity.
    descending = np.argsort(-np.abs(x).view(np.int32), kind="stable")
    indices = np.sort(descending[:k])
    return indices.astype(np.int32), x[indices]


def top_k_residual(gradient: Floats, residual: Floats, k: int, /) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = top_k(rest, k)
    rest[indices] = 0
    return indices, values, rest


def select_threshold(x: Floats, threshold: float, /) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.select_threshold``."""
    indices = np.flatnonzero(~(np.abs(x).astype(np.float64) < threshold))
    return indices.astype(np.int32), x[indices]


def select_threshold_residual(
    gradient: Floats, residual: Floats, threshold: float, /
) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.select_threshold_residual``."""
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = select_threshold(rest, threshold)
    rest[indices] = 0
    return indices, values, rest
