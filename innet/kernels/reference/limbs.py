"""Kernels of the limbs: exact integers of any size, one element at a time."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from innet.kernels.arrays import Floats, Ints
from innet.kernels.layout.limbs import LOWEST_EXPONENT, NO_EXPONENT, Limbs


def lowest_exponent(x: Floats, /) -> int:
    """See ``innet.kernels.Kernels.lowest_exponent``."""
    finest = NO_EXPONENT
    for value in x[x != 0].tolist():
        integer = int(Fraction(value) / Fraction(2) ** LOWEST_EXPONENT)
        finest = min(finest, LOWEST_EXPONENT + (integer & -integer).bit_length() - 1)
    return finest


def split_limbs(x: Floats, limbs: Limbs, /) -> Ints:
    """See ``innet.kernels.Kernels.split_limbs``."""
    parts = np.zeros((limbs.count, x.size), np.int32)
    mask = 2**limbs.bits - 1
    for i, value in enumerate(x.tolist()):
        integer = int(Fraction(value) / Fraction(2) ** limbs.exponent)
        sign = -1 if integer < 0 else 1
        for k in range(limbs.count):
            parts[k, i] = sign * (abs(integer) >> (k * limbs.bits) & mask)
    return parts.ravel()


def join_limbs(sums: Ints, limbs: Limbs, /) -> Floats:
    """See ``innet.kernels.Kernels.join_limbs``."""
    columns = sums.reshape(limbs.count, -1).T.tolist()
    return np.array(
        [
            _float32(sum(part << (k * limbs.bits) for k, part in enumerate(column)), limbs.exponent)
            for column in columns
        ],
        np.float32,
    )


def _float32(integer: int, exponent: int) -> float:
    """The float32 nearest to integer · 2**exponent; of two, the one with an even mantissa."""
    magnitude = abs(integer)
    # The value of the last of 24 bits, or of fewer if the number is subnormal.
    quantum = max(magnitude.bit_length() - 24 + exponent, LOWEST_EXPONENT)
    mantissa = round(Fraction(magnitude) * Fraction(2) ** (exponent - quantum))  # half to even
    if mantissa * Fraction(2) ** quantum >= Fraction(2) ** 128:
        return math.copysign(math.inf, integer)
    return math.copysign(math.ldexp(mantissa, quantum), integer)
