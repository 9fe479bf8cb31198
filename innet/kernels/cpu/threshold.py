"""What reaches a known threshold, with or without a residual, in one reading.

How many will reach it is not known before: the lists begin with room for a sixteenth of the
elements. Where that runs out, the rest is counted and the lists are made as long as it takes: the
worst case costs a second reading and little memory beyond the result's.
"""

from __future__ import annotations

import numpy as np

from innet import memory
from innet.compiled import njit
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.candidates import STRETCH, list_reaching, list_sums, new_lists
from innet.kernels.cpu.intrinsics import magnitude_bits

_INFINITY = 0x7F800000


def reaching(x: Floats, threshold: float, /) -> Selected:
    """See ``innet.kernels.Kernels.reaching``."""
    least = np.uint32(least_bits(threshold))
    lists = new_lists(x.size // 16 + STRETCH)
    place, found = list_reaching(x, least, lists, (0, 0))
    if place == x.size:
        return lists[0][:found].copy(), lists[1][:found].copy()
    lists = _longer(lists, found, _count(x[place:], None, least))
    _, found = list_reaching(x, least, lists, (place, found))
    return lists[0][:found], lists[1][:found]


def reaching_residual(
    gradient: Floats, residual: Floats, threshold: float, /
) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.reaching_residual``."""
    least = np.uint32(least_bits(threshold))
    rest: Floats = memory.empty(residual.size, np.float32)
    past = memory.passes_caches(rest)
    terms, bounds = (residual, gradient), (least, least)
    lists = new_lists(residual.size // 16 + STRETCH)
    place, found = list_sums(terms, rest, bounds, lists, (0, 0), past)
    if place == residual.size:
        return lists[0][:found].copy(), lists[1][:found].copy(), rest
    lists = _longer(lists, found, _count(residual[place:], gradient[place:], least))
    _, found = list_sums(terms, rest, bounds, lists, (place, found), past)
    return lists[0][:found], lists[1][:found], rest


def least_bits(threshold: float) -> int:
    """The bits of the smallest float32, infinity included, that is not below the threshold."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(threshold)
    bits = int(nearest.view(np.int32))
    return bits + 1 if float(nearest) < threshold and bits < _INFINITY else bits


def _longer(lists: Selected, found: int, more: int) -> Selected:
    """The lists with room for so many more than they have."""
    longer = new_lists(found + more + STRETCH)
    for old, new in zip(lists, longer, strict=True):
        new[:found] = old[:found]
    return longer


@njit(cache=True, nogil=True)
def _count(x: Floats, gradient: Floats | None, least: np.uint32) -> int:
    """How many of x, or of x + gradient, reach the bits."""
    count = 0
    for i in range(x.size):
        value = x[i] if gradient is None else x[i] + gradient[i]
        count += int(magnitude_bits(value) >= np.int32(least))
    return count
