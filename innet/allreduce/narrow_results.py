"""Sums in fewer bits on their way back: their owners round them before the all-gather.

An all-reduce is a reduce-scatter and an all-gather. Between the two each part of the sum is at its
owner, as float32. The owner rounds it to a number format and sends these numbers, in their own
bits, to all. What it rounds away it adds to its part of the next sum. So all workers have the same
result, and nothing is lost over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet import kernels as kernel_sets
from innet.codecs.error_feedback.residual import loaded, residual_of
from innet.codecs.quantizers.formats import default_block, powers_of
from innet.core.errors import StateError, UnknownNameError
from innet.core.numbers import FLOAT32_MAX
from innet.kernels.layout.formats import FORMATS, NumberFormat

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_SCALE_BIAS = 127  # of E8M0


class NarrowResults:
    """An owner's rounding of its part of each sum.

    The bytes of n elements are the scales of their blocks (E8M0, a byte each; of int8 a float32;
    bf16 and fp16 have none), and then the numbers' codes, without gaps, up to a whole word.

    Args:
        form: name of a format of ``innet.kernels.layout.formats``.

    Attributes:
        name: of the format.
        residual: what was rounded away so far, shape (n,); None before the first sum.

    Raises:
        UnknownNameError: there is no such format.
    """

    def __init__(self, form: str) -> None:
        if form not in FORMATS:
            raise UnknownNameError("number format", form, FORMATS)
        self.name = form
        self.residual: Floats | None = None
        self._form = FORMATS[form]
        self._kernels = kernel_sets.get("cpu")

    def _block(self, elements: int) -> int:
        scaled = self._form.scaled != "no"
        return (default_block(self._form) if scaled else 0) or max(1, elements)

    def _scale_bytes(self, elements: int) -> int:
        if self._form.scaled == "no":
            return 0
        blocks = -(-elements // self._block(elements))
        return blocks * (4 if self._form.scaled == "linear" else 1)

    def size(self, elements: int) -> int:
        """Bytes of so many elements."""
        codes = -(-elements * self._form.width // 32) * 4
        return self._scale_bytes(elements) + codes if elements else 0

    def check(self, elements: int) -> None:
        """Refuse a part of another length than the last one's, before anything is sent.

        Raises:
            StateError: says both.
        """
        if self.residual is not None and self.residual.size != elements:
            raise StateError(
                f"this worker's part of the sum has {elements} elements, and what was rounded "
                f"away is of {self.residual.size}; use one Collective for each tensor layout, and "
                "a new one where workers leave or come back."
            )

    def narrow(self, sums: Floats) -> tuple[Bytes, Floats]:
        """A part of a sum, with what earlier ones lost, in the format.

        Args:
            sums: shape (n,). Infinite elements count as the largest float32.

        Returns:
            The bytes, shape (size(n),); and what is to be the residual once all have them, by
            ``commit``.

        Raises:
            StateError: the part has another length than the last one.
        """
        self.check(sums.size)
        if self.residual is None:
            x = np.clip(sums, -FLOAT32_MAX, FLOAT32_MAX)
        else:
            with np.errstate(over="ignore"):
                x = np.clip(sums + self.residual, -FLOAT32_MAX, FLOAT32_MAX)
        if not x.size:
            return np.empty(0, np.uint8), x
        block, form = self._block(x.size), self._form
        powers = powers_of(form, self._kernels.block_magnitudes(x, block))
        numbers = self._kernels.round_to_format(x, powers, block, form, None)
        codes = self._kernels.pack_bits(codes_of(numbers, form), form.width)
        if form.scaled == "linear":
            scales = powers.view(np.uint8)
        elif form.scaled == "no":
            scales = np.empty(0, np.uint8)
        else:
            scales = (2 * _SCALE_BIAS - (powers.view(np.int32) >> 23)).astype(np.uint8)
        data = np.concatenate([scales, codes.view(np.uint8)])
        return data, residual_of(x, self.widen(data, x.size))

    def commit(self, residual: Floats) -> None:
        """All workers have the numbers: keep what ``narrow`` rounded away."""
        self.residual = residual

    def widen(self, data: Bytes, elements: int) -> Floats:
        """The numbers that ``narrow`` made, times their scales: shape (elements,)."""
        if not elements:
            return np.empty(0, np.float32)
        form, block, split = self._form, self._block(elements), self._scale_bytes(elements)
        words = np.ascontiguousarray(data[split:]).view(np.int32)
        numbers = numbers_of(self._kernels.unpack_bits(words, elements, form.width), form)
        if form.scaled == "no":
            return numbers
        if form.scaled == "linear":
            scales = 1 / np.ascontiguousarray(data[:split]).view(np.float32).astype(np.float64)
        else:
            scales = np.ldexp(1.0, data[:split].astype(np.int32) - _SCALE_BIAS)
        # Numbers are multiples of the smallest one, as integers are of a step.
        multiples = (numbers * np.float32(1 / form.smallest)).astype(np.float64)
        steps = scales[np.arange(elements) // block] * form.smallest
        values = np.clip(multiples * steps, -FLOAT32_MAX, FLOAT32_MAX)
        floats: Floats = values.astype(np.float32)
        return floats

    def state_dict(self) -> dict[str, Any]:
        """The format, and what was rounded away."""
        residual = None if self.residual is None else self.residual.copy()
        return {"format": self.name, "residual": residual}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``.

        Raises:
            StateError: it is none, or of another format.
        """
        if set(state) != {"format", "residual"} or state["format"] != self.name:
            raise StateError(
                f"the saved results are {dict(state).get('format', 'none')}, these {self.name}; "
                "give what state_dict returned."
            )
        self.residual = loaded(state["residual"], "results' residual")


def codes_of(numbers: Floats, form: NumberFormat) -> NDArray[np.int32]:
    """The bits by which a format writes its numbers: sign, exponent, fraction; of integer formats
    the two's complement of the multiple. Shape (n,), from 0 on.
    """
    sign = np.int32(1 << (form.width - 1))
    if form.lowest == form.highest:  # an integer format: all numbers have one step
        integers = np.rint(numbers / np.float32(form.smallest)).astype(np.int32)
        complements: NDArray[np.int32] = integers & np.int32(2 * sign - 1)
        return complements
    magnitudes = np.abs(numbers)
    bits = magnitudes.view(np.int32) >> (23 - form.mantissa)
    normal = bits - np.int32((form.lowest + 126) << form.mantissa)
    below = magnitudes < np.float32(2.0**form.lowest)
    small = np.rint(np.where(below, magnitudes, 0).astype(np.float64) / form.smallest)
    unsigned = np.where(below, small.astype(np.int32), normal)
    codes: NDArray[np.int32] = np.where(np.signbit(numbers), unsigned | sign, unsigned)
    return codes


def numbers_of(codes: NDArray[np.int32], form: NumberFormat) -> Floats:
    """The inverse of ``codes_of``."""
    sign = np.int32(1 << (form.width - 1))
    if form.lowest == form.highest:
        multiples: Floats = ((codes ^ sign) - sign).astype(np.float32)
        return multiples * np.float32(form.smallest)
    magnitudes = codes & np.int32(sign - 1)
    exponents = np.maximum(magnitudes >> form.mantissa, 1)
    leading = np.where(magnitudes >> form.mantissa > 0, 1 << form.mantissa, 0)
    fractions = (magnitudes & np.int32((1 << form.mantissa) - 1)) + leading
    numbers = np.ldexp(fractions.astype(np.float64), exponents - 1 + form.lowest - form.mantissa)
    signed: Floats = np.where(codes & sign != 0, -numbers, numbers).astype(np.float32)
    return signed
