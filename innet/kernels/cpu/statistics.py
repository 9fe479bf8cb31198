"""Statistics of a gradient: extremes and counts, sums, squares and products of magnitudes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import LANES, Floats, Ints
from innet.kernels.cpu.intrinsics import (
    absmax_nnz_64,
    float_of_bits,
    magnitude_bits,
    set_bits,
    trailing_zeros,
)
from innet.kernels.cpu.topk import least_bits

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger
_ONE = np.uint64(1)
_AT_ONCE = 2  # least items written for each 64 elements
_BEYOND = 128  # items after the last one that may be overwritten


def absmax_nnz(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.absmax_nnz``."""
    largest, nonzero = _absmax_nnz(x)
    return int(largest), int(nonzero), _first_bad(x, largest)


def absmax_nnz_sparse(x: Floats, most: int, /) -> tuple[int, int, int, tuple[Ints, Floats] | None]:
    """See ``innet.kernels.Kernels.absmax_nnz_sparse``."""
    most = min(most, x.size)
    indices: Ints = buffers.empty(most + _BEYOND, np.int32)
    values: Floats = buffers.empty(most + _BEYOND, np.float32)
    largest, nonzero = _absmax_nnz_sparse(x, most, indices, values)
    picks = (indices[:nonzero], values[:nonzero]) if nonzero <= most else None
    return int(largest), int(nonzero), _first_bad(x, largest), picks


def _first_bad(x: Floats, largest: np.int32) -> int:
    return int(_first_not_finite(x)) if largest >= _INFINITY else -1


@njit(cache=True, nogil=True)
def _absmax_nnz(x: Floats) -> tuple[np.int32, int]:
    maxima = np.zeros(16, np.int32)
    nonzero = 0
    full = x.size // 64 * 64
    for start in range(0, full, 64):
        nonzero += set_bits(absmax_nnz_64(x, start, maxima))
    largest = maxima.max()
    for i in range(full, x.size):
        # Compared as integers: the bits of a NaN are larger than all others.
        bits = magnitude_bits(x[i])
        largest = max(bits, largest)
        nonzero += bits != 0
    return largest, nonzero


@njit(cache=True, nogil=True)
def _absmax_nnz_sparse(x: Floats, most: int, indices: Ints, values: Floats) -> tuple[np.int32, int]:
    """If there are more than fit, the lists remain incomplete and the rest is only counted.

    For each 64 elements a fixed number of items is written, as in ``bitmap``. The element after the
    64 must exist, because it is read for bits that are not set.
    """
    # Write the non-zeros of 64 elements at a time, as long as they are few enough.
    maxima = np.zeros(16, np.int32)
    nonzero = start = 0
    while start + 64 < x.size and nonzero <= most:
        flags = absmax_nnz_64(x, start, maxima)
        count = set_bits(flags)
        position = np.uint64(nonzero)  # unsigned, so that nothing wraps around
        for k in range(_AT_ONCE):
            part = np.uint64(start + trailing_zeros(flags))
            indices[position + np.uint64(k)] = part
            values[position + np.uint64(k)] = x[part]
            flags &= flags - _ONE
        for k in range(_AT_ONCE, count):
            part = np.uint64(start + trailing_zeros(flags))
            indices[position + np.uint64(k)] = part
            values[position + np.uint64(k)] = x[part]
            flags &= flags - _ONE
        nonzero += count
        start += 64
    largest = maxima.max()
    if nonzero > most:
        # Too many: only count the rest.
        of_rest, others = _absmax_nnz(x[start:])
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


# ----------------------------------------------------------------------------
# Sums, squares and products of magnitudes, in the order that ``innet.kernels`` defines.

Doubles = NDArray[np.float64]
_FRACTION = 0x000FFFFFFFFFFFFF
_UNIT = 0x3FF0000000000000  # the bits of 1.0
_BIAS = 1023


def absmin_count(x: Floats, least: float, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.absmin_count``."""
    found, count = _absmin_count(x, np.int32(least_bits(least)))
    return float(found), int(count)


def moments(x: Floats, shift: float, least: float, /) -> tuple[float, float]:
    """See ``innet.kernels.Kernels.moments``."""
    sums, squares = np.zeros(LANES), np.zeros(LANES)
    _moments(x, shift, np.int32(least_bits(least)), sums, squares)
    return float(_folded_sum(sums)), float(_folded_sum(squares))


def abs_product(x: Floats, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.abs_product``."""
    fractions = np.ones(LANES)
    exponent = _abs_product(x, fractions)
    width = LANES
    while width > 1:
        width //= 2
        fractions = fractions[:width] * fractions[width:]
    exponent += _normalize(fractions)
    return float(fractions[0]), int(exponent)


def _folded_sum(lanes: Doubles) -> np.float64:
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return np.float64(lanes[0])


@njit(cache=True, nogil=True)
def _absmin_count(x: Floats, least: np.int32) -> tuple[np.float32, int]:
    smallest = np.int32(_INFINITY)
    count = 0
    for i in range(x.size):
        bits = magnitude_bits(x[i])
        smallest = min(smallest, bits if bits >= least else np.int32(_INFINITY))
        count += int(bits >= least)
    return float_of_bits(smallest), count


@njit(cache=True, nogil=True)
def _moments(x: Floats, shift: float, least: np.int32, sums: Doubles, squares: Doubles) -> None:
    for start in range(0, x.size, LANES):
        row = x[start : start + LANES]
        for j in range(row.size):
            reaches = magnitude_bits(row[j]) >= least
            deviation = np.float64(abs(row[j])) - shift if reaches else 0.0
            sums[j] += deviation
            squares[j] += deviation * deviation


@njit(cache=True, nogil=True)
def _abs_product(x: Floats, fractions: Doubles) -> int:
    """Multiply the fractions, each in [1, 2), into the lanes; returns the sum of exponents."""
    exponent = 0
    for i, start in enumerate(range(0, x.size, LANES)):
        row = x[start : start + LANES]
        for j in range(row.size):
            factor = np.float64(abs(row[j])) if row[j] != 0 else 1.0
            bits = np.float64(factor).view(np.int64)
            exponent += int((bits >> 52) - _BIAS)
            fractions[j] *= np.int64((bits & _FRACTION) | _UNIT).view(np.float64)
        if i % 512 == 511:  # a lane is below 2**513, far from float64's limit
            exponent += _normalize(fractions)
    return exponent + _normalize(fractions)


@njit(cache=True, nogil=True)
def _normalize(lanes: Doubles) -> int:
    """Scale the lanes into [1, 2); returns the sum of the exponents removed."""
    exponent = 0
    for j in range(lanes.size):
        bits = np.float64(lanes[j]).view(np.int64)
        exponent += int((bits >> 52) - _BIAS)
        lanes[j] = np.int64((bits & _FRACTION) | _UNIT).view(np.float64)
    return exponent
