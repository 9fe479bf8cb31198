"""What reaches a known threshold, with or without a residual, in one reading.

How many will reach it is not known before: the lists begin with room for a sixteenth of the
elements. Where that runs out, the rest is counted and the lists are made as long as it takes: the
worst case costs a second reading and little memory beyond the result's.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Floats, Selected
from innet.kernels.cpu.intrinsics import magnitude_bits
from innet.kernels.cpu.topk import STRETCH, accumulate, list_reaching

_SPARE = STRETCH + 32  # room that lets a stretch be listed without looking
_INFINITY = 0x7F800000


def reaching(x: Floats, threshold: float, /) -> Selected:
    """See ``innet.kernels.Kernels.reaching``."""
    return _select(x, None, threshold)


def reaching_residual(gradient: Floats, residual: Floats, threshold: float, /) -> Selected:
    """See ``innet.kernels.Kernels.reaching_residual``."""
    return _select(residual, gradient, threshold)


def least_bits(threshold: float) -> int:
    """The bits of the smallest float32, infinity included, that is not below the threshold."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(threshold)
    bits = int(nearest.view(np.int32))
    return bits + 1 if float(nearest) < threshold and bits < _INFINITY else bits


def _select(x: Floats, gradient: Floats | None, threshold: float) -> Selected:
    least = np.uint32(least_bits(threshold))
    lists = _lists(x.size // 16 + _SPARE)
    place, found = _advance(x, gradient, least, lists, (0, 0))
    if place < x.size:
        rest = None if gradient is None else gradient[place:]
        longer = _lists(found + _count(x[place:], rest, least) + _SPARE)
        for old, new in zip(lists, longer, strict=True):
            new[:found] = old[:found]
        lists = longer
        _, found = _advance(x, gradient, least, lists, (place, found))
        return lists[0][:found], lists[1][:found]
    return lists[0][:found].copy(), lists[1][:found].copy()


def _lists(room: int) -> Selected:
    return np.empty(room, np.int32), np.empty(room, np.float32)


@njit(cache=True, nogil=True)
def _count(x: Floats, gradient: Floats | None, least: np.uint32) -> int:
    """How many of x, or of x + gradient, reach the bits."""
    count = 0
    for i in range(x.size):
        value = x[i] if gradient is None else x[i] + gradient[i]
        count += int(magnitude_bits(value) >= np.int32(least))
    return count


@njit(cache=True, nogil=True)
def _advance(
    x: Floats,
    gradient: Floats | None,
    least: np.uint32,
    lists: Selected,
    progress: tuple[int, int],
) -> tuple[int, int]:
    """List what reaches the bits; with a gradient, x becomes x + gradient, the listed ones zero.

    ``progress`` is the place to begin at and how many are listed already. It is returned as it is
    afterwards: the place is the array's end, or where the lists might not hold another stretch.
    """
    place, found = progress
    indices, _ = lists
    while place < x.size and found + _SPARE <= indices.size:
        end = min(place + STRETCH, x.size)
        if gradient is not None:
            accumulate(gradient[place:end], x[place:end])
        before = found
        found = list_reaching(x[place:end], place, least, lists, found)
        if gradient is not None:
            for i in range(before, found):
                x[indices[i]] = 0
        place = end
    return place, found
