"""An array and a multiple of another one; and the low-pass filter that is made of it."""

from __future__ import annotations

import numpy as np

from innet import memory
from innet.compiled import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import add_scaled_16, low_pass_16, magnitude_bits
from innet.kernels.cpu.stretches import STRETCH


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total: Floats = memory.empty(x.size, np.float32)
    past = memory.passes_caches(total)
    return total, int(_add_scaled(x, y, np.float32(weight), total, past))


def low_pass(
    held: Floats, gradient: Floats, weight: float, indices: Ints, /
) -> tuple[Floats, Floats, int]:
    """See ``innet.kernels.Kernels.low_pass``."""
    kept: Floats = memory.empty(held.size, np.float32)
    sums: Floats = memory.empty(indices.size, np.float32)
    past = memory.passes_caches(kept)
    bits = _low_pass(held, gradient, np.float32(weight), indices, kept, sums, past)
    return kept, sums, int(bits)


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


@njit(cache=True, nogil=True)
def _low_pass(  # noqa: PLR0917 - compiled functions are called by position
    held: Floats,
    gradient: Floats,
    weight: np.float32,
    indices: Ints,
    kept: Floats,
    sums: Floats,
    past: bool,
) -> np.int32:
    """By the stretch: what lies at the indices, which ascend, is looked at while it is in a cache.

    Returns the bits of the largest magnitude.
    """
    maxima = np.zeros(16, np.int32)
    flags = np.zeros(STRETCH // 16, np.uint16)
    stays = np.float32(1) - weight
    largest = np.int32(0)
    following = 0
    for start in range(0, held.size, STRETCH):
        end = min(start + STRETCH, held.size)
        whole = start + (end - start) // 16 * 16
        flags[:] = 0
        first = following
        while following < indices.size and indices[following] < end:
            place = np.uint64(indices[following] - start)
            flags[place >> np.uint64(4)] |= np.uint16(1 << (place & np.uint64(15)))
            following += 1
        for i in range(start, whole, 16):
            group = flags[(i - start) >> 4]
            low_pass_16(held, gradient, i, weight, group, kept, past, maxima)
        for i in range(whole, end):
            chosen = flags[(i - start) >> 4] >> ((i - start) & 15) & 1
            kept[i] = stays * held[i] + np.float32(0) if chosen else held[i] + weight * gradient[i]
            largest = max(largest, magnitude_bits(kept[i]))
        for f in range(first, following):
            place = np.uint64(indices[f])
            sums[f] = held[place] + gradient[place]
    return max(largest, np.int32(maxima.max()))
