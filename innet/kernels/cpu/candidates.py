"""Lists of the elements that reach a bound, with their values, by the stretch.

A branch that nobody can guess costs more than a few elements do. So there is none for each element:
what is listed is found 64 at a time, places are written whether there are so many or not, and
values are fetched once a stretch is listed, while it is in the nearest cache.
"""

from __future__ import annotations

import numpy as np

from innet import memory
from innet.compiled import njit
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.intrinsics import (
    flag_32,
    magnitude_bits,
    set_bits,
    split_sum_64,
    trailing_zeros,
)

STRETCH = 2048  # elements that are listed before their values are fetched
AT_ONCE = 4  # places that are written to for each 64 elements, as ``list_bits`` does
_MORE_AT_ONCE = 12  # likewise, where more than ``_MANY`` of a stretch were listed
_MANY = STRETCH // 32
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def new_lists(room: int) -> Selected:
    """Arrays for so many indices and values."""
    return memory.empty(room, np.int32), memory.empty(room, np.float32)


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
    listed = found
    while start < x.size and found + STRETCH <= indices.size:
        many, listed = found - listed > _MANY, found
        end = min(start + STRETCH, x.size)
        whole = end - (end - start) % 64
        if many:
            found = _reach(x, start, whole, least, indices, found, _MORE_AT_ONCE)
        else:
            found = _reach(x, start, whole, least, indices, found, AT_ONCE)
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
    listed = found
    while start < x.size and found + STRETCH <= indices.size:
        many, listed = found - listed > _MANY, found
        end = min(start + STRETCH, x.size)
        whole = end - (end - start) % 64
        if many:
            found = _split(terms, rest, bounds, past, start, whole, indices, found, _MORE_AT_ONCE)
        else:
            found = _split(terms, rest, bounds, past, start, whole, indices, found, AT_ONCE)
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


@njit(cache=True, nogil=True)
def list_between(x: Floats, least: np.uint32, bound: np.uint32, places: Ints) -> int:
    """Write the places where the magnitude's bits reach ``least``, but not ``bound``; returns how
    many there are.

    ``places`` has ``AT_ONCE`` places more than that, which are overwritten.
    """
    found = 0
    whole = x.size - x.size % 64
    for i in range(0, whole, 64):
        flags = _flag_64(x, i, least) & ~_flag_64(x, i, bound)
        found = _list_64(flags, i, places, found, AT_ONCE)
    for i in range(whole, x.size):
        places[found] = i
        found += int(np.int64(least) <= magnitude_bits(x[i]) < np.int64(bound))
    return found


@njit(cache=True, inline="always")
def _reach(  # noqa: PLR0917 - written into its callers, where ``at_once`` is a constant
    x: Floats, start: int, end: int, least: np.uint32, indices: Ints, found: int, at_once: int
) -> int:
    """The indices of ``list_reaching``, of 64 elements at a time; returns how many there are."""
    for i in range(start, end, 64):
        found = _list_64(_flag_64(x, i, least), i, indices, found, at_once)
    return found


@njit(cache=True, inline="always")
def _split(  # noqa: PLR0917 - as ``_reach``
    terms: tuple[Floats, Floats],
    rest: Floats,
    bounds: tuple[np.uint32, np.uint32],
    past: bool,
    start: int,
    end: int,
    indices: Ints,
    found: int,
    at_once: int,
) -> int:
    """The same of ``list_sums``; and ``rest``."""
    for i in range(start, end, 64):
        flags = split_sum_64(terms[0], terms[1], i, bounds[0], bounds[1], rest, past)
        found = _list_64(flags, i, indices, found, at_once)
    return found


@njit(cache=True, inline="always")
def _flag_64(x: Floats, start: int, least: np.uint32) -> np.uint64:
    """Bit j tells whether the magnitude's bits at start + j reach ``least``, for j = 0 .. 63."""
    lower = np.uint64(flag_32(x, start, _MAGNITUDE, least))
    upper = np.uint64(flag_32(x, start + 32, _MAGNITUDE, least))
    return lower | (upper << np.uint64(32))


@njit(cache=True, inline="always")
def _list_64(flags: np.uint64, first: int, indices: Ints, found: int, at_once: int) -> int:
    """Append ``first`` + the position of each bit; returns how many there are now."""
    place = np.uint64(found)  # unsigned, so that nothing wraps around
    count = set_bits(flags)
    for k in range(at_once):
        indices[place + np.uint64(k)] = first + trailing_zeros(flags)
        flags &= flags - np.uint64(1)
    for k in range(at_once, count):
        indices[place + np.uint64(k)] = first + trailing_zeros(flags)
        flags &= flags - np.uint64(1)
    return found + count
