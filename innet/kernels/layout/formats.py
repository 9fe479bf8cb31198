"""Number formats of few bits, as all kernels round to them.

A format has a sign, ``mantissa`` bits after the leading one, and exponents from ``lowest`` on: a
number of magnitude 2**e .. 2**(e + 1) is a multiple of 2**(max(e, lowest) - mantissa). Rounding is
to the nearest one, of two the even one, or by chance without bias; what would be larger than
``largest`` becomes ``largest``. So the integer formats are among them: all their numbers have the
step of the lowest exponent.

Sources: OCP Microscaling Formats (MX) Specification, version 1.0, 2023, for FP8, FP6, FP4, MXINT8
and the scales; IEEE 754-2019 for fp16; bf16 is the upper half of a float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SMALLEST_SCALE = -127
"""The exponent of E8M0's smallest scale, 2**-127."""
MX_BLOCK = 32
"""Elements of an MX block, which share a scale."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format's numbers.

    Attributes:
        width: bits of a number, with its sign.
        mantissa: bits after the leading one.
        lowest: the exponent of the smallest normal number.
        highest: the exponent of the largest number.
        largest: the largest number.
        scaled: "block" and "tensor" have a power of two by which the numbers are multiplied, for
            each block of neighbors or for all; "linear" has the largest magnitude by ``largest``
            instead; "no" has none: its numbers are what they are.
    """

    width: int
    mantissa: int
    lowest: int
    highest: int
    largest: float
    scaled: str

    @property
    def smallest(self) -> float:
        """The smallest number above 0; all others are multiples of it."""
        return 2.0 ** (self.lowest - self.mantissa)


FORMATS: Mapping[str, NumberFormat] = {
    "bf16": NumberFormat(16, 7, -126, 127, (2 - 2.0**-7) * 2.0**127, "no"),
    "fp16": NumberFormat(16, 10, -14, 15, 65504.0, "no"),
    "fp8-e4m3": NumberFormat(8, 3, -6, 8, 448.0, "tensor"),
    "fp8-e5m2": NumberFormat(8, 2, -14, 15, 57344.0, "tensor"),
    "mxfp8-e4m3": NumberFormat(8, 3, -6, 8, 448.0, "block"),
    "mxfp8-e5m2": NumberFormat(8, 2, -14, 15, 57344.0, "block"),
    "mxfp6-e2m3": NumberFormat(6, 3, 0, 2, 7.5, "block"),
    "mxfp6-e3m2": NumberFormat(6, 2, -2, 4, 28.0, "block"),
    "mxfp4": NumberFormat(4, 1, 0, 2, 6.0, "block"),
    "mxint8": NumberFormat(8, 6, 0, 0, 127 / 64, "block"),
    "int8": NumberFormat(8, 6, 6, 6, 127.0, "linear"),
}
"""The formats by name."""
