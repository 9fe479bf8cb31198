"""Lists of the elements that reach a bound, with their values, by the stretch.

A branch that nobody can guess costs more than a few elements do. So there is none for each element:
what is listed is found 64 at a time, places are written whether there are so many or not, and
values are fetched once a stretch is listed, while it is in the nearest cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.intrinsics import (
    flag_32,
    magnitude_bits,
    set_bits_64,
    split_sum_64,
    trailing_zeros_64,
)

STRETCH = 2048  # elements that are listed before their values are fetched
AT_ONCE = 2  # places that are written to for each 64 elements, as ``list_bits`` does
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def new_lists(room: int) -> Selected:
    """Arrays for so many indices and values."""
    return memory.empty(room, np.int32), memory.empty(room, np.float32)


@njit(cache=True, inline="always")
def _list_64(flags: np.uint64, first: int, indices: Ints, found: int) -> int:
    """Append ``first`` + the position of each bit; returns how many there are now."""
    end = found + set_bits_64(flags)
    for k in range(found, found + AT_ONCE):
        indices[k] = first + trailing_zeros_64(flags)
        flags &= flags - np.uint64(1)
    for k in range(found + AT_ONCE, end):
        indices[k] = first + trailing_zeros_64(flags)
        flags &= flags - np.uint64(1)
    return end


@njit(cache=True, nogil=True)
def list_between(x: Floats, least: np.uint32, bound: np.uint32, places: Ints) -> int:
    """Write the places where the magnitude's bits reach ``least``, but not ``bound``; returns how
    many there are.

    ``places`` has ``AT_ONCE`` places more than that, which are overwritten.
    """
    found = 0
    whole = x.size - x.size % 64
    for i in range(0, whole, 64):
        flags = np.uint64(_between_32(x, i, least, bound))
        upper = np.uint64(_between_32(x, i + 32, least, bound))
        found = _list_64(flags | (upper << np.uint64(32)), i, places, found)
    for i in range(whole, x.size):
        places[found] = i
        found += int(np.int64(least) <= magnitude_bits(x[i]) < np.int64(bound))
    return found


@njit(cache=True, inline="always")
def _between_32(x: Floats, start: int, least: np.uint32, bound: np.uint32) -> np.uint32:
    reaching = flag_32(x, start, _MAGNITUDE, least)
    return reaching & ~flag_32(x, start, _MAGNITUDE, bound)


@njit(cache=True, nogil=True)
def list_reaching(
    x: Floats, least: np.uint32, lists: Selected, progress: tuple[int, int]
) -> tuple[int, int]:
    """List the elements whose magnitude's bits reach ``least``.

    ``progress`` is the place to begin at, a multiple of ``STRETCH``, and how many are listed
    already. It is returned as it is afterwards: the place is the end, or where the lists may have
    no room for another stretch.
    """
    indices, values = lists
    start, found = progress
    while start < x.size and found + STRETCH <= indices.size:
        end = min(start + STRETCH, x.size)
        whole = end - (end - start) % 64
        listed = found
        for i in range(start, whole, 64):
            flags = np.uint64(flag_32(x, i, _MAGNITUDE, least))
            upper = np.uint64(flag_32(x, i + 32, _MAGNITUDE, least))
            found = _list_64(flags | (upper << np.uint64(32)), i, indices, found)
        for i in range(whole, end):
            indices[found] = i
            found += int(magnitude_bits(x[i]) >= np.int32(least))
        for j in range(listed, found):
            values[j] = x[np.uint64(indices[j])]
        start = end
    return start, found


@njit(cache=True, nogil=True)
def list_sums(  # noqa: PLR0917 - compiled functions are called by position
    terms: tuple[Floats, Floats],
    rest: Floats,
    bounds: tuple[np.uint32, np.uint32],
    lists: Selected,
    progress: tuple[int, int],
    past: bool,
) -> tuple[int, int]:
    """``list_reaching`` of the sums of two arrays and the first of the bounds. The sums go to
    ``rest``, which is 0 in the place of those that reach the second, ``past`` the caches or not.
    """
    x, y = terms
    least, cleared = bounds
    indices, values = lists
    start, found = progress
    while start < x.size and found + STRETCH <= indices.size:
        end = min(start + STRETCH, x.size)
        whole = end - (end - start) % 64
        listed = found
        for i in range(start, whole, 64):
            flags = split_sum_64(x, y, i, least, cleared, rest, past)
            found = _list_64(flags, i, indices, found)
        for i in range(whole, end):
            value = x[i] + y[i]
            bits = magnitude_bits(value)
            rest[i] = np.float32(0) if bits >= np.int32(cleared) else value
            indices[found] = i
            found += int(bits >= np.int32(least))
        for j in range(listed, found):
            place = np.uint64(indices[j])
            values[j] = x[place] + y[place]
        start = end
    return start, found
