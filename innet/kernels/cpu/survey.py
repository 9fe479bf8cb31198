"""Largest magnitude, non-zeros and the first element that is not finite, in one reading."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import magnitude_bits, set_bits, survey_64, trailing_zeros

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger
_ONE = np.uint64(1)
_AT_ONCE = 2  # picks that are written for each 64 elements at the least
_BEYOND = 128  # places past the last pick that may be written to


def survey(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.survey``."""
    largest, nonzero = _survey(x)
    return int(largest), int(nonzero), _first_bad(x, largest)


def survey_and_pick(x: Floats, most: int, /) -> tuple[int, int, int, tuple[Ints, Floats] | None]:
    """See ``innet.kernels.Kernels.survey_and_pick``."""
    most = min(most, x.size)
    indices: Ints = buffers.empty(most + _BEYOND, np.int32)
    values: Floats = buffers.empty(most + _BEYOND, np.float32)
    largest, nonzero = _survey_and_pick(x, most, indices, values)
    picks = (indices[:nonzero], values[:nonzero]) if nonzero <= most else None
    return int(largest), int(nonzero), _first_bad(x, largest), picks


def _first_bad(x: Floats, largest: np.int32) -> int:
    return int(_first_not_finite(x)) if largest >= _INFINITY else -1


@njit(cache=True, nogil=True)
def _survey(x: Floats) -> tuple[np.int32, int]:
    maxima = np.zeros(16, np.int32)
    nonzero = 0
    whole = x.size // 64 * 64
    for start in range(0, whole, 64):
        nonzero += set_bits(survey_64(x, start, maxima))
    largest = maxima.max()
    for i in range(whole, x.size):
        # As integers: the bits of a NaN are larger than all others.
        bits = magnitude_bits(x[i])
        largest = max(bits, largest)
        nonzero += bits != 0
    return largest, nonzero


@njit(cache=True, nogil=True)
def _survey_and_pick(x: Floats, most: int, indices: Ints, values: Floats) -> tuple[np.int32, int]:
    """Where there are more, the lists are left unfinished and the rest is only surveyed.

    Of 64 elements so many as usual are written, whatever there is, as in ``bitmap``. For that the
    element after them must exist: it is what is found at the place of a bit that there is not.
    """
    maxima = np.zeros(16, np.int32)
    nonzero = start = 0
    while start + 64 < x.size and nonzero <= most:
        flags = survey_64(x, start, maxima)
        count = set_bits(flags)
        place = np.uint64(nonzero)  # unsigned, so that nothing wraps around
        for k in range(_AT_ONCE):
            own = np.uint64(start + trailing_zeros(flags))
            indices[place + np.uint64(k)] = own
            values[place + np.uint64(k)] = x[own]
            flags &= flags - _ONE
        for k in range(_AT_ONCE, count):
            own = np.uint64(start + trailing_zeros(flags))
            indices[place + np.uint64(k)] = own
            values[place + np.uint64(k)] = x[own]
            flags &= flags - _ONE
        nonzero += count
        start += 64
    largest = maxima.max()
    if nonzero > most:
        of_rest, others = _survey(x[start:])
        return max(largest, of_rest), nonzero + others
    for i in range(start, x.size):
        bits = magnitude_bits(x[i])
        largest = max(bits, largest)
        if bits != 0:
            indices[nonzero] = i
            values[nonzero] = x[i]
            nonzero += 1
    return largest, nonzero


@njit(cache=True, nogil=True)
def _first_not_finite(x: Floats) -> int:
    for i in range(x.size):
        if magnitude_bits(x[i]) >= _INFINITY:
            return i
    return -1
