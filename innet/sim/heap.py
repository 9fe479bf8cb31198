"""A heap of pairs of a time and a number, in two arrays of compiled code: the smallest is first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit

Ints = NDArray[np.int64]


@njit(cache=True, nogil=True)
def push(times: Ints, numbers: Ints, size: int, time: int, number: int) -> None:
    """Add a pair to a heap of ``size``."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and numbers[above] < number):
            break
        times[at], numbers[at] = times[above], numbers[above]
        at = above
    times[at], numbers[at] = time, number


@njit(cache=True, nogil=True)
def replace_first(times: Ints, numbers: Ints, size: int, time: int, number: int) -> None:
    """Replace the first pair of a heap of ``size``.

    The last pair, with the size that is left, removes the first one.
    """
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (
            times[below + 1] < times[below]
            or (times[below + 1] == times[below] and numbers[below + 1] < numbers[below])
        ):
            below += 1
        if times[below] > time or (times[below] == time and numbers[below] > number):
            break
        times[at], numbers[at] = times[below], numbers[below]
        at = below
    times[at], numbers[at] = time, number
