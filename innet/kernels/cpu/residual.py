"""The sum of an array and a multiple of another one, and the low-pass filter based on it."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import add_scaled_16, magnitude_bits, prefetch

_AHEAD = 16  # elements to prefetch ahead; hides the latency of memory


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total: Floats = buffers.empty(x.size, np.float32)
    past = buffers.passes_caches(total)
    return total, int(_add_scaled(x, y, np.float32(weight), total, past))


def low_pass(
    held: Floats, gradient: Floats, weight: float, indices: Ints, taken: Floats, /
) -> tuple[Floats, Floats, int]:
    """See ``innet.kernels.Kernels.low_pass``."""
    sums: Floats = buffers.empty(indices.size, np.float32)
    stays = np.float32(1) - np.float32(weight)
    return taken, sums, int(_low_pass(held, gradient, stays, indices, taken, sums))


@njit(cache=True, nogil=True)
def _add_scaled(x: Floats, y: Floats, weight: np.float32, total: Floats, past: bool) -> np.int32:
    """Returns the bits of the largest magnitude."""
    maxima = np.zeros(16, np.int32)
    full = x.size // 16 * 16
    for i in range(0, full, 16):
        add_scaled_16(x, y, i, weight, total, past, maxima)
    largest = maxima.max()
    for i in range(full, x.size):
        total[i] = x[i] + weight * y[i]
        largest = max(largest, magnitude_bits(total[i]))
    return np.int32(largest)


@njit(cache=True, nogil=True)
def _low_pass(  # noqa: PLR0917 - compiled functions are called by position
    held: Floats, gradient: Floats, stays: np.float32, indices: Ints, kept: Floats, sums: Floats
) -> np.int32:
    """The elements are far apart: each is prefetched while earlier ones are processed.

    Returns the bits of the largest magnitude that is kept.
    """
    largest = np.int32(0)
    count = indices.size
    for i in range(count):
        coming = int(indices[min(i + _AHEAD, count - 1)])
        prefetch(held, coming)
        prefetch(gradient, coming)
        prefetch(kept, coming)
        position = np.uint64(indices[i])
        part = held[position]
        sums[i] = part + gradient[position]
        rest = stays * part + np.float32(0)
        kept[position] = rest
        largest = max(largest, magnitude_bits(rest))
    return largest
