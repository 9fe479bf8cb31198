"""Largest magnitude, non-zeros and the first element that is not finite, in one reading."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats, Ints, Words
from innet.kernels.cpu.intrinsics import flag_32, largest_32, magnitude_bits, set_bits

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def survey(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.survey``."""
    largest, nonzero = _survey(x)
    return int(largest), int(nonzero), _first_bad(x, largest)


def survey_and_mark(x: Floats, /) -> tuple[int, int, int, Ints]:
    """See ``innet.kernels.Kernels.survey_and_mark``."""
    bitmap: Words = memory.empty(-(-x.size // 32), np.uint32)
    largest, nonzero = _survey_and_mark(x, bitmap)
    return int(largest), int(nonzero), _first_bad(x, largest), bitmap.view(np.int32)


def _first_bad(x: Floats, largest: np.int32) -> int:
    return int(_first_not_finite(x)) if largest >= _INFINITY else -1


@njit(cache=True, nogil=True)
def _survey(x: Floats) -> tuple[np.int32, int]:
    largest = np.int32(0)
    nonzero = 0
    for i in range(x.size):
        # A maximum of integers: unlike one of floats it may be taken in any order, in vectors.
        bits = magnitude_bits(x[i])
        largest = max(bits, largest)
        nonzero += bits != 0
    return largest, nonzero


@njit(cache=True, nogil=True)
def _survey_and_mark(x: Floats, bitmap: Words) -> tuple[np.int32, int]:
    largest = np.int32(0)
    nonzero = 0
    whole = x.size // 32
    for w in range(whole):
        largest = max(largest_32(x, 32 * w), largest)
        bitmap[w] = flag_32(x, 32 * w, _MAGNITUDE, np.uint32(1))
        nonzero += set_bits(bitmap[w])
    if whole < bitmap.size:
        bitmap[whole] = 0
    for i in range(32 * whole, x.size):
        bits = magnitude_bits(x[i])
        largest = max(bits, largest)
        nonzero += bits != 0
        bitmap[whole] |= np.uint32(bits != 0) << np.uint32(i - 32 * whole)
    return largest, nonzero


@njit(cache=True, nogil=True)
def _first_not_finite(x: Floats) -> int:
    for i in range(x.size):
        if magnitude_bits(x[i]) >= _INFINITY:
            return i
    return -1
