"""Rounding to integers and back."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Floats, Ints
from innet.kernels.layout.hashing import GOLDEN, mix


def quantize(x: Floats, scale: float, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize``."""
    return np.rint(x.astype(np.float64) * scale).astype(np.int32)


def quantize_stochastic(x: Floats, scale: float, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize_stochastic``."""
    finest = (np.abs(x).astype(np.float64) * (scale * 2.0**32)).astype(np.uint64)
    counter = np.arange(1, x.size + 1, dtype=np.uint64)
    chance = mix(counter * GOLDEN + np.uint64(key)) >> np.uint64(32)
    magnitudes = ((finest + chance) >> np.uint64(32)).astype(np.int64)
    return np.where(x < 0, -magnitudes, magnitudes).astype(np.int32)


def dequantize(integers: Ints, step: float, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantize``."""
    with np.errstate(over="ignore"):
        return (integers.astype(np.float64) * step).astype(np.float32) + np.float32(0)
