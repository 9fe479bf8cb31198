"""The sum of an array and a multiple of another one, and the low-pass filter based on it."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.chunks import add_scaled_argmax
from innet.kernels.cpu.intrinsics import magnitude_bits, prefetch

_NO_PARTS = np.empty((0, 3), np.int64)
_AHEAD = 16  # elements to prefetch ahead; hides the latency of memory


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total, bits, _ = add_scaled_argmax(x, y, weight, _NO_PARTS)
    return total, bits


def low_pass(
    held: Floats, gradient: Floats, weight: float, indices: Ints, taken: Floats, /
) -> tuple[Floats, Floats, int]:
    """See ``innet.kernels.Kernels.low_pass``."""
    sums: Floats = buffers.empty(indices.size, np.float32)
    stays = np.float32(1) - np.float32(weight)
    return taken, sums, int(_low_pass(held, gradient, stays, indices, taken, sums))


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
