"""Quantizer ``float``: floats as they are, for a switch that adds floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import model_validator

from innet.codecs.parts import (
    FLOAT_WORDS,
    INT32,
    STOCHASTIC_ROUNDING,
    SUMS_FLOATS,
    Capabilities,
    Contribution,
    Floats,
    Ints,
    PartContext,
    Quantizer,
    Scaling,
    Selection,
    StepCounter,
)
from innet.core.errors import GradientError, InputError
from innet.core.float_sums import (
    FORMATS,
    MOST_CONTRIBUTIONS,
    FloatFormat,
    FloatName,
    FloatSum,
    of_floats,
    to_bits,
    to_floats,
    to_words,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels.layout.hashing import GOLDEN, key_of, mix


class FloatSettings(Settings):
    """What the words are.

    Attributes:
        format: float32, one number in a word; bf16 or fp16, two.
        rounding: of elements and of sums, to bf16 or fp16: nearest (half to even) or stochastic (by
            chance, without bias).
    """

    format: FloatName = "float32"
    rounding: Literal["nearest", "stochastic"] = "nearest"

    @model_validator(mode="after")
    def _rounded_to_fewer_bits(self) -> FloatSettings:
        if self.rounding == "stochastic" and self.format == "float32":
            raise ValueError("float32 is not rounded by chance. Choose format=bf16 or fp16")
        return self


class FloatWords(StepCounter[FloatSettings], Quantizer[FloatSettings]):
    """Each element as a number of the format; the switch adds them, as FPISA (Yuan et al., NSDI
    2022), and workers agree on no scale.

    Elements become bf16 or fp16 by rounding, half to even or by chance, and so do the switch's
    sums. ``innet.core.float_sums`` says what the switch makes of the numbers: sums depend on the
    order in which contributions arrive. A sum beyond the format is infinite. A sum that is zero is
    +0.0, also one of nothing but -0.0.

    Each worker announces its largest magnitude, though words do not depend on it: gradients of
    zeros need not be sent, and all workers refuse one that has a number beyond bf16 or fp16.
    """

    name = "float"
    capabilities = Capabilities(
        provides=frozenset({INT32, FLOAT_WORDS}),
        requires={SUMS_FLOATS: "words that are floats are added as such; choose carrier dense."},
        integer_width=32,
        metadata="1",
        linear=False,  # with each addition, what lies below the guard bits is cut off
    )
    settings = FloatSettings

    def __init__(self, parameters: FloatSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        if parameters.rounding == "stochastic":
            provides = self.capabilities.provides | {STOCHASTIC_ROUNDING}
            self.capabilities = replace(self.capabilities, provides=provides)  # type: ignore[misc]

    @property
    def form(self) -> FloatFormat:
        """The format of the words."""
        return FORMATS[self.parameters.format]

    def largest_integer(self, workers: int) -> int:
        """See ``Quantizer``; that of a number's bits, which are not summed as an integer.

        Raises:
            InputError: a slot's mantissa has no room for so many.
        """
        if workers > MOST_CONTRIBUTIONS:
            raise InputError(
                f"quantizer 'float' sums up to {MOST_CONTRIBUTIONS} workers, not {workers}; choose "
                "quantizer 'fixed' or 'exact'."
            )
        return (1 << (self.form.bits - 1)) - 1

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        """What words are.

        Raises:
            GradientError: a magnitude is beyond the format; the same on all workers.
        """
        self.largest_integer(workers)
        step, self._step = self._step, self._step + 1
        largest = answers[0][:1].view(np.float32)
        if of_floats(self.form, largest)[0] >= self.form.infinity:
            raise GradientError(
                f"a worker's gradient has a magnitude of {float(largest[0]):g}, which "
                f"{self.parameters.format} cannot hold. Scale the gradients down, or choose "
                "format=float32."
            )
        key = None
        if self.parameters.rounding == "stochastic":
            key = key_of("float", self.context.seed, self.context.worker, step)
        return FloatWordScaling(self.form, key, is_zero=not largest[0])


class FloatWordScaling(Scaling):
    """Words of a format.

    Args:
        form: the format.
        key: of the random numbers by which values are rounded; None: half to even.
        is_zero: all values are.

    Attributes:
        scale: 1, since there is none; 0 where all values are zero.
    """

    def __init__(self, form: FloatFormat, key: int | None, *, is_zero: bool) -> None:
        self._form, self._key = form, key
        self.scale = 0.0 if is_zero else 1.0
        self._indices: Ints | None = None  # of this worker's selection
        self._size = 0

    def quantize(self, values: Floats) -> Ints:
        """Shape (n,), or of two in a word half of that, rounded up."""
        noise = None
        if self._key is not None:
            counters = np.arange(values.size, dtype=np.uint64) * GOLDEN + np.uint64(self._key)
            noise = (mix(counters) >> np.uint64(32)).astype(np.uint32)
        return to_words(self._form, of_floats(self._form, values, noise))

    def dequantize(self, integers: Ints) -> Floats:
        """All numbers of the words."""
        return to_floats(self._form, to_bits(self._form, integers))

    def contribute(self, selection: Selection) -> Contribution:
        values = selection.values
        self._indices, self._size = selection.indices, selection.size
        if selection.indices is not None:
            values = np.zeros(selection.size, np.float32)
            values[selection.indices] = selection.values
        words = self.quantize(values)
        by_chance = self._form.stochastic if self._key is not None else None
        operation: FloatSum = by_chance or self._form.operation
        return Contribution(words.size, None, words, operation=operation)

    def represented(self, contribution: Contribution) -> Floats | None:
        sent = self.dequantize(contribution.integers)
        return sent[: self._size] if self._indices is None else sent[self._indices]

    def restore(self, total: Ints, size: int) -> Floats:
        return self.dequantize(total)[:size]
