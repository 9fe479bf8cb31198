"""Largest magnitude, non-zeros and the first element that is not finite, in one reading."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Floats
from innet.kernels.cpu.intrinsics import magnitude_bits

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger


def survey(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.survey``."""
    largest, nonzero = _survey(x)
    bad = _first_not_finite(x) if largest >= _INFINITY else -1
    return int(largest), int(nonzero), int(bad)


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
def _first_not_finite(x: Floats) -> int:
    for i in range(x.size):
        if magnitude_bits(x[i]) >= _INFINITY:
            return i
    return -1
