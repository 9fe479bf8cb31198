"""Float32 numbers as a few small integers each, as all kernels split and join them.

If no element has a set bit below 2**exponent, every element is an integer times 2**exponent. Limb k
is bits k·bits to (k + 1)·bits - 1 of the magnitude of that integer, with the number's sign:

    x = 2**exponent · (limb 0 + limb 1 · 2**bits + limb 2 · 2**(2·bits) + ...)

An array of n numbers becomes ``count`` arrays of n limbs, one after the other, the lowest first.

Sums. A limb is at most 2**bits - 1 in magnitude, so the sum of N workers' limbs stays in int32 when
N · (2**bits - 1) <= 2**31 - 1, and so does every partial sum. ``Limbs.of`` takes the largest such
``bits``, which exists for up to 2**31 - 1 workers (one bit). The limbs' weights are the same on all
workers. So the sums of the limbs, joined, are the sum of the numbers, without any rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.core.errors import InputError

LOWEST_EXPONENT = -149  # the exponent of the smallest float32
NO_EXPONENT = 128  # above the exponent of the largest float32; for arrays of zeros
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limbs:
    """How float32 numbers are split.

    Attributes:
        exponent: every number is a multiple of 2**exponent; -149 .. 128.
        bits: of a limb, besides the sign; 1 .. 31.
        count: limbs of a number, at least 1.

    Raises:
        InputError: a number outside its range.
    """

    exponent: int
    bits: int
    count: int

    def __post_init__(self) -> None:
        if not (
            LOWEST_EXPONENT <= self.exponent <= NO_EXPONENT
            and 1 <= self.bits <= 31
            and self.count >= 1
        ):
            raise InputError(
                f"float32 cannot be split into {self.count} limbs of {self.bits} bits above "
                f"2**{self.exponent}."
            )

    @classmethod
    def of(cls, magnitude: int, exponent: int, workers: int) -> Limbs:
        """The fewest limbs that hold every number of all workers, and their sum.

        Args:
            magnitude: the bits of the largest magnitude, as ``Kernels.absmax_nnz`` returns them.
            exponent: the lowest of all numbers together.
            workers: how many numbers are summed, 1 .. 2**31 - 1.
        """
        bits = (_INT32_MAX // workers + 1).bit_length() - 1
        # The exponent of the highest set bit; for a subnormal number that of its mantissa.
        top = (
            (magnitude >> 23) - 127
            if magnitude >> 23
            else magnitude.bit_length() - 1 + LOWEST_EXPONENT
        )
        width = top - exponent + 1
        return cls(exponent, bits, max(1, -(-width // bits)))
