"""Float32 numbers split into limbs and joined again, as ``innet.kernels.layout.limbs`` defines.

All loops run over stretches that stay in the L1 cache, one limb after the other, without branches,
so that they compile to vector instructions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import float_of_bits, magnitude_bits
from innet.kernels.layout.limbs import LOWEST_EXPONENT, NO_EXPONENT, Limbs

_STRETCH = 512
_FRACTION = 0x7FFFFF
_LEADING = 0x800000  # the bit of a normal number's mantissa that is not stored
_WIDE = 1 << 31


def lowest_exponent(x: Floats, /) -> int:
    """See ``innet.kernels.Kernels.lowest_exponent``."""
    bits = int(_lowest_bit(x, x.view(np.int32)))
    if bits == np.iinfo(np.int32).max:
        return NO_EXPONENT
    exponent = bits >> 23
    return exponent - 127 if exponent else bits.bit_length() - 1 + LOWEST_EXPONENT


def split_limbs(x: Floats, limbs: Limbs, /) -> Ints:
    """See ``innet.kernels.Kernels.split_limbs``."""
    parts = buffers.empty(limbs.count * x.size, np.int32).reshape(limbs.count, x.size)
    _split(x.view(np.int32), limbs.exponent, limbs.bits, parts)
    return parts.ravel()


def join_limbs(sums: Ints, limbs: Limbs, /) -> Floats:
    """See ``innet.kernels.Kernels.join_limbs``. Scratch: a kilobyte or four for each limb."""
    parts = sums.reshape(limbs.count, -1)
    values = buffers.empty(parts.shape[1], np.float32)
    step = np.float64(2.0) ** limbs.exponent
    if limbs.count == 1:
        _join_one(parts[0], step, values)
    elif limbs.count == 2:
        _join_two(parts, limbs.bits, step, values)
    else:
        _join_many(parts, limbs.bits, step, values)
    return values


@njit(cache=True, nogil=True)
def _lowest_bit(x: Floats, words: Ints) -> np.int32:
    """The bits of the smallest of the elements' lowest set bits; the largest int32 for zeros."""
    least = np.int32(0x7FFFFFFF)
    for i in range(x.size):
        word = words[i]
        fraction = word & np.int32(_FRACTION)
        # The value of the lowest bit of its fraction: an exact difference.
        lost = magnitude_bits(x[i] - float_of_bits(word & ~(fraction & -fraction)))
        magnitude = magnitude_bits(x[i])
        lowest = magnitude if fraction == 0 else lost
        least = min(least, np.int32(0x7FFFFFFF) if magnitude == 0 else lowest)
    return least


@njit(cache=True, nogil=True)
def _split(words: Ints, exponent: int, bits: int, parts: Ints) -> None:
    for start in range(0, words.size, _STRETCH):
        stretch = words[start : start + _STRETCH]
        for k in range(parts.shape[0]):
            # The mantissa of a number with exponent field e counts units of 2**(e - 150).
            _limb(stretch, -150 - exponent - k * bits, bits, parts[k, start : start + _STRETCH])


@njit(cache=True, nogil=True)
def _limb(words: Ints, base: int, bits: int, part: Ints) -> None:
    mask = np.uint32((1 << bits) - 1)
    least = np.int32(1)
    for i in range(words.size):
        word = words[i]
        field = np.int32((word >> 23) & 0xFF)
        leading = np.int32(_LEADING if field else 0)
        mantissa = np.uint32((word & np.int32(_FRACTION)) | leading)
        shift = np.int32(max(field, least) + base)
        # Shifts by 31 and more leave nothing of 24 bits in a limb, to either side.
        up = np.uint32(min(max(shift, np.int32(0)), np.int32(31)))
        down = np.uint32(min(max(np.int32(-shift), np.int32(0)), np.int32(31)))
        limb = np.int32(np.uint32(np.uint32(mantissa << up) >> down) & mask)
        sign = np.int32(word >> 31)
        part[i] = np.int32((limb ^ sign) - sign)


@njit(cache=True, nogil=True)
def _join_one(part: Ints, step: float, values: Floats) -> None:
    # The product is exact in float64.
    for i in range(part.size):
        values[i] = np.float32(np.float64(part[i]) * step)


@njit(cache=True, nogil=True)
def _join_two(parts: Ints, bits: int, step: float, values: Floats) -> None:
    # Below 2**31 · 2**31 + 2**31: exact in int64.
    low, high = parts[0], parts[1]
    for i in range(values.size):
        values[i] = _rounded((np.int64(high[i]) << bits) + np.int64(low[i]), step)


@njit(cache=True, nogil=True)
def _rounded(integer: np.int64, step: float) -> np.float32:
    """Integer · step, a power of two of at least 2**-149, with one rounding.

    Only the conversion to float32 rounds, and only if the integer has more than 24 bits; then the
    product is a normal number. With fewer bits it is a multiple of 2**-149 of at most 24 bits, so
    it is exact, subnormal or not. Numbers that are 2**128 or more after rounding to 24 bits become
    infinite in the last conversion, as IEEE 754 demands.
    """
    return np.float32(np.float64(np.float32(integer)) * step)


@njit(cache=True, nogil=True)
def _join_many(parts: Ints, bits: int, step: float, values: Floats) -> None:
    """Any number of limbs: carries first, from below, then the leading limbs, from above.

    The carries leave limbs of 0 .. 2**bits - 1 and a remainder c of either sign above them, so
    that the sum is c · 2**(bits·count) plus a non-negative number. Limb by limb is appended to the
    remainder until it needs 33 bits with its sign: more than the 24 that are kept and one to round
    by. Of the later limbs it only matters whether one is not zero. Then the sum lies strictly
    between the remainder and its successor. No tie and no float32 lies between them, so the odd one
    of the two rounds like the sum, and is taken.
    """
    count = parts.shape[0]
    limbs = np.empty((count, _STRETCH), np.int32)
    rest = np.empty(_STRETCH, np.int64)
    unit = np.empty(_STRETCH, np.float64)
    for start in range(0, values.size, _STRETCH):
        size = min(_STRETCH, values.size - start)
        rest[:size] = 0
        for k in range(count):
            _carry(parts[k, start : start + size], bits, rest[:size], limbs[k, :size])
        # Less than 2**160, as the uppermost limb holds a bit of a float32.
        unit[:size] = step * 2.0 ** (bits * count)
        for k in range(count - 1, -1, -1):
            _take_in(limbs[k, :size], bits, rest[:size], unit[:size])
        for i in range(size):
            values[start + i] = _rounded(rest[i], unit[i])


@njit(cache=True, nogil=True)
def _carry(part: Ints, bits: int, rest: NDArray[np.int64], limb: Ints) -> None:
    mask = np.int64((1 << bits) - 1)
    for i in range(part.size):
        # |rest| is below 2**31 before and after: (2**31 - 1 + 2**31) / 2 at the most.
        full = np.int64(part[i]) + rest[i]
        limb[i] = np.int32(full & mask)
        rest[i] = full >> bits


@njit(cache=True, nogil=True)
def _take_in(limb: Ints, bits: int, rest: NDArray[np.int64], unit: NDArray[np.float64]) -> None:
    finer = 2.0**-bits
    for i in range(limb.size):
        narrow = (rest[i] >= -_WIDE) & (rest[i] < _WIDE)
        longer = (rest[i] << bits) + np.int64(limb[i])
        longest = rest[i] | np.int64(limb[i] != 0)
        rest[i] = longer if narrow else longest
        unit[i] *= finer if narrow else 1.0
