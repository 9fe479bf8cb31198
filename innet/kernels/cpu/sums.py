"""An array and a multiple of another one."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats
from innet.kernels.cpu.intrinsics import add_scaled_16, magnitude_bits


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total: Floats = memory.empty(x.size, np.float32)
    past = memory.passes_caches(total)
    return total, int(_add_scaled(x, y, np.float32(weight), total, past))


@njit(cache=True, nogil=True)
def _add_scaled(x: Floats, y: Floats, weight: np.float32, total: Floats, past: bool) -> np.int32:
    """Returns the bits of the largest magnitude."""
    maxima = np.zeros(16, np.int32)
    whole = x.size // 16 * 16
    for i in range(0, whole, 16):
        add_scaled_16(x, y, i, weight, total, past, maxima)
    largest = maxima.max()
    for i in range(whole, x.size):
        total[i] = x[i] + weight * y[i]
        largest = max(largest, magnitude_bits(total[i]))
    return np.int32(largest)
