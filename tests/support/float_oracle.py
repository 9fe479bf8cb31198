"""Sums of floats as the program fpisa makes them, number by number in plain Python.

Written from docs/fpisa.md with integers and fractions, without NumPy, the P4 program or
``innet.core.float_sums``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

FORMATS = {
    7: (32, 8, 23),
    8: (16, 8, 7),
    9: (16, 5, 10),
    10: (16, 8, 7),
    11: (16, 5, 10),
}
"""By operation: bits of a number, of its exponent and of its fraction."""

STOCHASTIC = 10, 11
"""Operations that round by chance."""


class Sum:
    """One sum in a slot."""

    def __init__(self, operation: int) -> None:
        self.bits, self.exponent_bits, self.fraction = FORMATS[operation]
        self.last = 2**self.exponent_bits - 1  # exponent of infinities
        self.exponent, self.mantissa = 0, 0  # stand for mantissa * 2**(exponent - 152)
        self.infinities: set[int] = set()  # their signs; both for NaN

    def add(self, number: int) -> None:
        """Add a number, given its bits."""
        sign = number >> (self.bits - 1)
        exponent = number >> self.fraction & self.last
        fraction = number % 2**self.fraction
        if exponent == self.last:  # it is added all the same, and its mantissa means nothing
            self.infinities |= {0, 1} if fraction else {sign}
        significand = fraction + 2**self.fraction if exponent else fraction
        # As exponents of float32, whose mantissas have 23 bits and two guard bits.
        mine = max(exponent, 1) + 127 - (2 ** (self.exponent_bits - 1) - 1)
        mantissa = (-1) ** sign * significand * 2 ** (25 - self.fraction)
        largest = max(mine, self.exponent)
        self.mantissa //= 2 ** (largest - self.exponent)  # towards minus infinity
        self.mantissa += mantissa // 2 ** (largest - mine)
        self.exponent = largest

    def read(self, noise: int | None = None) -> int:
        """The bits of the sum; with a random number of 32 bits rounded by it, else half to even."""
        infinity = self.last << self.fraction
        if len(self.infinities) == 2:
            return infinity | 1 << (self.fraction - 1)
        if self.infinities:
            return infinity | self.infinities.copy().pop() << (self.bits - 1)
        value = Fraction(self.mantissa) * Fraction(2) ** (self.exponent - 152)
        sign, value = int(value < 0) << (self.bits - 1), abs(value)
        # Numbers of a binade are this far apart, those of the lowest one and subnormal ones.
        bias = 2 ** (self.exponent_bits - 1) - 1
        distance = Fraction(2) ** (1 - bias - self.fraction)
        exponent = 0
        while value >= distance * 2 ** (self.fraction + 1):
            distance, exponent = distance * 2, exponent + 1
        if noise is None:
            number = round(value / distance)  # half to even
        else:
            # As many bits of the noise count as mantissa's bits are cut off.
            cut = max(0, int(math.log2(distance)) - (self.exponent - 152))
            number = (value / distance + Fraction(noise >> (32 - cut), 2**cut)).__floor__()
        bits = number + (exponent << self.fraction)
        return sign | min(bits, infinity)


def numbers_of(operation: int, words: Iterable[int]) -> list[int]:
    """The bits of the numbers in words: of two, the one in the low half is the first."""
    if FORMATS[operation][0] == 32:
        return [int(word) % 2**32 for word in words]
    return [half for word in words for half in (int(word) % 2**16, int(word) % 2**32 >> 16)]


def sums_of(operation: int, contributions: Iterable[Iterable[int]]) -> list[Sum]:
    """The sums of the numbers in the workers' words, added in this order."""
    columns = [numbers_of(operation, words) for words in contributions]
    sums = [Sum(operation) for _ in columns[0]]
    for column in columns:
        for each, number in zip(sums, column, strict=True):
            each.add(number)
    return sums


def noise_of(sequence: int, place: int) -> int:
    """The random number of a place in a packet, the first of which is 1."""
    noise = (sequence * 0x9E3779B9 + place) % 2**32
    noise = (noise ^ noise >> 16) * 0x7FEB352D % 2**32
    return (noise ^ noise >> 15) * 0x846CA68B % 2**32


def words_of(operation: int, sums: list[Sum], sequence: int = 0) -> list[int]:
    """The words of the result of a chunk of this number, none below 0."""
    if operation in STOCHASTIC:
        bits = [each.read(noise_of(sequence, at)) for at, each in enumerate(sums, 1)]
    else:
        bits = [each.read() for each in sums]
    if FORMATS[operation][0] == 32:
        return bits
    return [low | high << 16 for low, high in zip(bits[::2], bits[1::2], strict=True)]


# ── FPISA-A ──────────────────────────────────────────────────────────────────────────────────────
#
# Sums of float32 as a Tofino 1 can make them: what arrives moves to the sum's exponent, to the left
# by up to 7, or overwrites the sum. A sum is an exponent, in the place where a float32 has it, and
# a mantissa, which stays at an end of int32 once it is there.

HEADROOM = 7
MOST, LEAST = 2**31 - 1, -(2**31)


def approximate_start(number: int) -> tuple[int, int]:
    """The sum of one number, given its bits."""
    sign, exponent, fraction = number >> 31, number >> 23 & 255, number % 2**23
    if exponent == 255:
        return 255 << 23, MOST
    mantissa = fraction + 2**23 if exponent else fraction
    return max(exponent, 1) << 23, -mantissa if sign else mantissa


def approximate_add(held: tuple[int, int], number: int) -> tuple[int, int]:
    """A sum with a number more."""
    (scale, total), (exponent, mantissa) = held, approximate_start(number)
    ahead = (exponent - scale) >> 23
    if ahead > HEADROOM or mantissa == MOST:
        return (exponent if ahead > HEADROOM else scale), mantissa
    if total not in (MOST, LEAST):
        moved = mantissa << ahead if ahead > 0 else mantissa >> min(-ahead, 31)
        total = max(LEAST, min(MOST, total + moved))
    return scale, total


def approximate_result(held: tuple[int, int]) -> int:
    """The bits of a sum: cut off towards zero, no subnormal numbers, NaN for an end of int32."""
    scale, total = held
    if total in (MOST, LEAST):
        return 0x7FC00000
    size, sign = abs(total), int(total < 0) << 31
    exponent = (scale >> 23) + size.bit_length() - 24
    if not size or exponent <= 0:
        return 0
    if exponent >= 255:
        return sign | 255 << 23
    top = size.bit_length() - 24
    fraction = (size >> top if top > 0 else size << -top) % 2**23
    return sign | exponent << 23 | fraction
