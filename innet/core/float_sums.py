"""Float sums of the program ``fpisa``, bit for bit, contribution by contribution.

A sum is an exponent and a signed mantissa of 32 bits, which stand for ``mantissa * 2**(exponent -
152)``: a float32's 24 bits lie above two guard bits. Adding moves the mantissa with the smaller
exponent to the right, and cuts off what falls out (towards minus infinity). A sum is normalized and
rounded, half to even, when it is read. bf16 and fp16 are added in the same way, and a word has two.

So the order of contributions matters. With n of them, a sum before it is rounded lies at most n - 1
units below the exact one. A unit is 2**-152 times two to the power of the largest exponent: a
quarter of the last bit of a float32 as large as the largest contribution.

Sums of bf16 and fp16 may also be rounded by chance: up as often as what is cut off says, so that
the mean is right. The random number follows from the packet and the place in it, as a result that
is sent again must be rounded alike.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatName: TypeAlias = Literal["float32", "bf16", "fp16"]
Words: TypeAlias = NDArray[np.int32]

MOST_CONTRIBUTIONS = 32
"""Contributions for which a mantissa of 32 bits has room."""

_POSITIVE, _NEGATIVE, _NAN = 1, 2, 3  # added besides numbers; both infinities make no number


class FloatSum(enum.IntEnum):
    """How a switch that adds floats combines words. The values are those on the wire, after those
    of ``innet.core.reduce_op``.
    """

    FLOAT32 = 7
    BF16 = 8  # two numbers in a word
    FP16 = 9  # likewise
    BF16_STOCHASTIC = 10  # rounded by chance
    FP16_STOCHASTIC = 11


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A format as IEEE 754 lays it out: sign, exponent, fraction.

    Attributes:
        bits: of a number.
        fraction: bits behind the leading one.
        bias: from its exponents to those of float32.
        operation: by which a switch adds words of it, and rounds half to even.
        stochastic: by which it rounds by chance; None of float32.
    """

    bits: int
    fraction: int
    bias: int
    operation: FloatSum
    stochastic: FloatSum | None = None

    @property
    def per_word(self) -> int:
        """Numbers in a word, the first in its low bits."""
        return 32 // self.bits

    @property
    def infinity(self) -> int:
        """The bits of infinity."""
        return (1 << (self.bits - 1)) - (1 << self.fraction)


FORMATS = MappingProxyType(
    {
        "float32": FloatFormat(32, 23, 0, FloatSum.FLOAT32),
        "bf16": FloatFormat(16, 7, 0, FloatSum.BF16, FloatSum.BF16_STOCHASTIC),
        "fp16": FloatFormat(16, 10, 112, FloatSum.FP16, FloatSum.FP16_STOCHASTIC),
    }
)
"""The formats that the program adds, by name."""
_BY_OPERATION = {
    operation: each
    for each in FORMATS.values()
    for operation in (each.operation, each.stochastic)
    if operation is not None
}


class SlotSum:
    """The sums of some slots, as registers hold them.

    Args:
        form: of the contributions.
        size: how many sums.
    """

    def __init__(self, form: FloatFormat, size: int) -> None:
        self._form = form
        self._exponent = np.zeros(size, np.int64)
        self._mantissa = np.zeros(size, np.int64)
        self._special = np.zeros(size, np.int64)

    def add(self, bits: NDArray[np.uint32]) -> None:
        """Add a contribution: the bits of a number for each sum."""
        # Step 1, take the numbers apart. A subnormal number has the exponent 1 and no leading bit.
        form, number = self._form, bits.astype(np.int64)
        fraction = number & ((1 << form.fraction) - 1)
        exponent = number >> form.fraction & (form.infinity >> form.fraction)
        negative = number >> (form.bits - 1) == 1
        infinite = exponent == form.infinity >> form.fraction
        kind = np.where(fraction != 0, _NAN, np.where(negative, _NEGATIVE, _POSITIVE))
        self._special |= np.where(infinite, kind, 0)
        leading = np.where(exponent == 0, 0, 1 << form.fraction)
        mantissa = (fraction | leading) << (25 - form.fraction)
        mantissa = np.where(infinite, 0, np.where(negative, -mantissa, mantissa))
        exponent = np.where((exponent == 0) | infinite, 1, exponent) + form.bias

        # Step 2, align and add. The shift is arithmetic, so it rounds towards minus infinity.
        largest = np.maximum(exponent, self._exponent)
        self._mantissa = (self._mantissa >> np.minimum(largest - self._exponent, 31)) + (
            mantissa >> np.minimum(largest - exponent, 31)
        )
        self._exponent = largest

    def read(
        self, noise: NDArray[np.uint32] | None = None, form: FloatFormat | None = None
    ) -> NDArray[np.uint32]:
        """The bits of the sums, normalized and rounded.

        Args:
            noise: a random number for each sum, which is then rounded by chance.
            form: of the results; None: that of the contributions.
        """
        form = form or self._form
        size = np.abs(self._mantissa)
        negative = self._mantissa < 0
        least = 26 + form.bias - form.fraction  # here the last bit is the smallest number's
        top = np.frexp(size.astype(np.float64))[1] - 1  # of the highest bit; -1 of 0
        exponent = np.maximum(top + self._exponent - (least + form.fraction), 0)
        exponent[size == 0] = 0
        right = np.where(exponent == 0, least - self._exponent, top - form.fraction)
        moved = _half_to_even(size, right) if noise is None else _by_chance(size, right, noise)
        bits = np.minimum((exponent << form.fraction) + moved, form.infinity)
        bits |= np.where(negative, 1 << (form.bits - 1), 0)
        special = form.infinity | np.choose(
            self._special, [0, 0, 1 << (form.bits - 1), 1 << (form.fraction - 1)]
        )
        return np.where(self._special != 0, special, bits).astype(np.uint32)


def _half_to_even(size: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """``size / 2**right``, rounded; ``right`` may be negative."""
    down = np.maximum(right, 1)
    rounded = (size + (1 << (down - 1)) - 1 + (size >> down & 1)) >> down
    result: NDArray[np.int64] = np.where(right > 0, rounded, size << np.maximum(-right, 0))
    return result


def _by_chance(
    size: NDArray[np.int64], right: NDArray[np.int64], noise: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """``size / 2**right``, rounded up where ``noise / 2**32`` is above 1 - what is cut off."""
    down = np.clip(right, 0, 32)
    rounded = (size + (noise.astype(np.int64) >> (32 - down))) >> down
    return np.where(right > 0, rounded, size << np.maximum(-right, 0))


def packet_noise(sequence: int, count: int) -> NDArray[np.uint32]:
    """The random numbers by which the switch rounds the ``count`` sums of a packet.

    Two multiplications of Wellons' lowbias32, of a counter.
    """
    counters = np.arange(1, count + 1, dtype=np.uint32)
    noise = counters + np.uint32(sequence * 0x9E3779B9 % 2**32)
    noise = (noise ^ noise >> np.uint32(16)) * np.uint32(0x7FEB352D)
    return (noise ^ noise >> np.uint32(15)) * np.uint32(0x846CA68B)


def of_floats(
    form: FloatFormat, values: NDArray[np.float32], noise: NDArray[np.uint32] | None = None
) -> NDArray[np.uint32]:
    """The bits of the format's numbers nearest to finite values, half to even.

    Args:
        form: bf16 or fp16 if there is ``noise``.
        values: shape (n,).
        noise: shape (n,): random numbers, for rounding by chance.
    """
    if form.bits == 32:
        return values.view(np.uint32)
    if noise is not None:
        exact = SlotSum(FORMATS["float32"], values.size)
        exact.add(values.view(np.uint32))
        return exact.read(noise, form)
    if form.bias:
        with np.errstate(over="ignore"):  # infinite, as IEEE 754 says
            return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # of NaN, the bits are cut off
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded)


def to_floats(form: FloatFormat, bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """The numbers that bits stand for."""
    if form.bits == 32:
        return bits.view(np.float32)
    if form.bias:
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return (bits << np.uint32(16)).view(np.float32)


def to_words(form: FloatFormat, bits: NDArray[np.uint32]) -> Words:
    """Numbers packed into words; a last word that is not full ends with 0."""
    words = bits
    if form.per_word == 2:
        halves = np.zeros(-(-bits.size // 2) * 2, np.uint16)
        halves[: bits.size] = bits
        words = halves.astype("<u2").view("<u4").astype(np.uint32)
    return words.view(np.int32)


def to_bits(form: FloatFormat, words: Words) -> NDArray[np.uint32]:
    """The numbers of words, as many as fit."""
    if form.per_word == 1:
        return words.view(np.uint32)
    return words.astype("<i4").view("<u2").astype(np.uint32)


def sum_in_order(operation: FloatSum, contributions: Sequence[Words], sequence: int = 0) -> Words:
    """What the switch answers, if contributions arrive in this order.

    Args:
        operation: how the words are added.
        contributions: one int32 array per worker, all of the same shape.
        sequence: number of the packet that the words are taken to be, for rounding by chance.

    Returns:
        int32 of that shape.
    """
    form = _BY_OPERATION[operation]
    sums = SlotSum(form, contributions[0].size * form.per_word)
    for words in contributions:
        sums.add(to_bits(form, words))
    by_chance = operation is form.stochastic
    noise = packet_noise(sequence, contributions[0].size * form.per_word) if by_chance else None
    return to_words(form, sums.read(noise))


def order_error(
    operation: FloatSum, contributions: Sequence[Words], orders: int = 8, most: int = 1 << 16
) -> float:
    """The largest difference of a sum by other orders of arrival, in random orders.

    Args:
        operation: how the words are added.
        contributions: one int32 array per worker, all of the same shape (n,).
        orders: how many are tried; the first is that of the contributions.
        most: words that are tried; of more, as many at equal distances.
    """
    form, rng = _BY_OPERATION[operation], np.random.default_rng(0)
    step = -(-contributions[0].size // most) or 1
    tried = [words[::step] for words in contributions]
    least = largest = np.empty(0)
    for number in range(orders):
        places = rng.permutation(len(tried)) if number else range(len(tried))
        words = sum_in_order(operation, [tried[place] for place in places])
        sums = to_floats(form, to_bits(form, words)).astype(np.float64)
        least = np.minimum(least, sums) if number else sums
        largest = np.maximum(largest, sums) if number else sums
    with np.errstate(invalid="ignore"):  # what is infinite in all orders does not differ
        return float(np.nan_to_num(largest - least, nan=0.0, posinf=np.inf).max(initial=0.0))


def are_possible(operation: FloatSum, contributions: Sequence[Words], sums: Words) -> bool:
    """Whether sums are as close to the exact ones as the switch's are in any order.

    Args:
        operation: how the words are added.
        contributions: one int32 array per worker, all of the same shape.
        sums: what the network answered; of that shape.
    """
    form = _BY_OPERATION[operation]
    bits = [to_bits(form, words) for words in contributions]
    found = to_floats(form, to_bits(form, sums)).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # Step 1, the exact sums, nearly: float64 has 29 bits more than float32.
        floats = [to_floats(form, each).astype(np.float64) for each in bits]
        exact = np.sum(floats, axis=0)
        slack = np.sum(np.abs(floats), axis=0) * len(bits) * 2.0**-52

        # Step 2, what is cut off, and what rounding does to the rest.
        last = form.infinity >> form.fraction
        exponents = [np.maximum(each >> np.uint32(form.fraction) & last, 1) for each in bits]
        unit = np.ldexp(1.0, np.max(exponents, axis=0).astype(np.int64) + (form.bias - 152))
        binade = np.maximum(np.frexp(found)[1] - 1, form.bias - 126)
        rounding = np.ldexp(1.0 if operation is form.stochastic else 0.5, binade - form.fraction)
        bound = (len(bits) - 1) * unit + rounding + slack

        # Step 3, what is no finite number. A finite sum may be too large for the format.
        largest = to_floats(form, np.array([form.infinity - 1], np.uint32)).astype(np.float64)
        beyond = np.isinf(found) & (found * exact > 0) & (np.abs(exact) + bound >= largest)
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        return bool((same | beyond | (np.abs(found - exact) <= bound)).all())
