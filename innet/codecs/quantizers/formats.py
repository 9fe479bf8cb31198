"""Quantizer ``format``: numbers of bf16, fp16, fp8, MX or int8, as integers that can be summed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    LEAVES_RESIDUAL,
    ONE_INTEGER_PER_ELEMENT,
    SMALL_INTEGERS,
    STOCHASTIC_ROUNDING,
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
from innet.codecs.quantizers.exact import Exact, ExactSettings, block_magnitudes, multiplied
from innet.core.errors import GradientError, InputError
from innet.core.numbers import FLOAT32_MAX, INT32_MAX
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels, Limbs
from innet.kernels.layout.formats import FORMATS, MX_BLOCK, SMALLEST_SCALE, NumberFormat
from innet.kernels.layout.hashing import key_of
from innet.kernels.layout.limbs import LOWEST_EXPONENT

Doubles = NDArray[np.float64]
FormatName = Literal[
    "bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3",
    "mxfp6-e3m2", "mxfp4", "mxint8", "int8",
]  # fmt: skip

_WIDEST = 22  # bits of a worker's integer, as ``Kernels.quantize_to_format`` has room for
_ENOUGH = 8  # bits of an integer that are not given up so that more share a word


class FormatSettings(Settings):
    """Which numbers, and what their sum is.

    Attributes:
        format: whose numbers the elements become.
        sums: grid: they are rounded once more, to integers of a few bits in steps of the block's
            scale, and these are summed exactly; wide: the sum of the format's numbers is exact.
        rounding: nearest (of two the even number) or stochastic (by chance, without bias).
        block: consecutive elements of the gradient that share a scale, which costs a word each way;
            0 for one scale for all. None: 32 for MX, bf16 and fp16, 0 for fp8 and int8.
        bits: of an integer of the sum on the grid, with its sign. None: as many as there is room
            for when as many share a word as have the format's bits and log2(N).
    """

    format: FormatName = "mxfp8-e4m3"
    sums: Literal["grid", "wide"] = "grid"
    rounding: Literal["nearest", "stochastic"] = "nearest"
    block: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    bits: Annotated[int, Field(ge=2, le=32)] | None = None

    @model_validator(mode="after")
    def _bits_of_a_grid(self) -> FormatSettings:
        if self.sums == "wide" and self.bits is not None:
            raise ValueError(
                "bits are of a grid; with sums=wide the format decides. Leave them out"
            )
        return self


class Format(StepCounter[FormatSettings], Quantizer[FormatSettings]):
    """Elements become numbers of a format of few bits, and these become integers to be summed.

    Numbers. Each element is rounded to the format. MX formats multiply it before by the power of
    two that their block's scale says, 2**(floor(log2(M)) - e), e the exponent of the format's
    largest number, at least 2**-127; M is the largest magnitude of the block of all workers'
    gradients, which the network finds. What is then larger than the largest number becomes that
    number, as the specification has it. The presets fp8 have one scale, the smallest power of two
    with which nothing is larger; int8 has M / 127, which is no power of two. bf16 and fp16 have no
    scale; a gradient beyond fp16's 65,504 is refused.

    ``sums=grid``: the number is rounded once more, to a multiple of a step that all workers share,
    of the block, 2**(2 - w) of the power of two below M, so that N workers' integers of w bits fit
    ``bits``: w = bits - ceil(log2(N)), 22 at most. The integers are summed without error. This is
    not the sum of the format's numbers: of those far below the block's largest it drops what is
    below half a step. Numbers of mxint8 and int8 are multiples of the step from w = 8 on, those of
    mxfp4 from w = 5 on, those of mxfp6-e2m3 from 7 and mxfp6-e3m2 from 10 on.

    ``sums=wide``: the sum of the format's numbers is exact, and rounded once, to float32. The
    numbers are multiples of the format's smallest. Where N times the largest multiple is an int32
    they are sent as such: that needs 5 bits for mxfp4 of one worker, 19 for mxfp8-e4m3, and
    log2(N) more. Otherwise (e5m2, bf16, fp16) they are sent in limbs, as quantizer ``exact`` does.

    No overflow. An integer is held at B = floor(largest number / step), and at 2**(w - 1) - 1 where
    that is less; 2**w · N <= 2**bits, so N · B < 2**(bits - 1), and so is every partial sum.

    Error. Against the numbers before rounding a value is off by half the distance of the format's
    numbers at it, and on the grid by half a step more; by whole ones with stochastic rounding. The
    numbers between a format's largest and the next power of two lose up to 1/8 (e4m3), 1/4 (e5m2,
    e2m3, e3m2: 1/8 or less) of themselves: that is MX's rule for the scale. What was rounded is
    known to the worker, so with error feedback ``residual`` it is sent later.

    By chance, both roundings are one, to a multiple of the larger step, with random numbers as
    quantizer ``qsgd`` has them. Then the mean is right, but for what is larger than the largest.

    Differences with the OCP specification: workers share a block's scale, since integers of
    different scales cannot be added up; it is sent as a word in a round of its own, not as a byte
    beside the elements; what travels are integers, as an adder needs them, and not the codes.
    """

    name = "format"
    settings = FormatSettings
    capabilities = Capabilities(
        provides=frozenset({INT32, SMALL_INTEGERS, KEEPS_ZEROS, LEAVES_RESIDUAL}),
        integer_width=32,
        overflow_bound="the largest number / the step of the integers",
        metadata="ceil(d / block)",
    )

    def __init__(self, parameters: FormatSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._form = form = FORMATS[parameters.format]
        self._wide = parameters.sums == "wide"
        self._by_chance = parameters.rounding == "stochastic"
        # The numbers of an unscaled format in limbs are those of an exact sum.
        self._exact = (
            Exact(ExactSettings(), context) if self._wide and form.scaled == "no" else None
        )
        self._rounded = np.empty(0, np.float32)  # what was announced, if there is ``_exact``
        usual = default_block(form)
        block = usual if parameters.block is None else parameters.block
        self._block = 0 if self._exact else block
        # What depends on the parameters. bf16's largest number is nearly that of float32, and
        # stands for what is above it.
        if form.scaled == "no" and form.highest < FORMATS["bf16"].highest:
            self.reach = form.largest
        provides = set(self.capabilities.provides)
        provides |= {STOCHASTIC_ROUNDING} if self._by_chance else set()
        if not (self._wide or self._block):
            provides.add(ONE_INTEGER_PER_ELEMENT)
        self.capabilities = replace(  # type: ignore[misc] # of an object, not of the class
            self.capabilities,
            provides=frozenset(provides),
            metadata="2" if self._exact else "ceil(d / block)" if self._block else "1",
            fixed_size=self._exact is None,
        )

    @property
    def scale_block(self) -> int:
        return self._block

    def largest_integer(self, workers: int) -> int:
        if self._exact:
            return self._exact.largest_integer(workers)
        if self._wide:
            multiple = _multiple(self._form)
            in_limbs = multiple * workers > INT32_MAX
            return (1 << _limbs(self._form, workers).bits) - 1 if in_limbs else multiple
        return self._grid(workers)[1]

    def _grid(self, workers: int) -> tuple[int, int]:
        """The bits w of a worker's integer on the grid, and its largest magnitude.

        Raises:
            InputError: fewer than two bits are left; says for how many workers there are.
        """
        form, given = self._form, self.parameters.bits
        for_sums = (workers - 1).bit_length()
        if given is None:
            lanes = min(32 // form.width, 32 // (min(form.width, _ENOUGH) + for_sums))
            width = 32 // max(1, lanes) - for_sums
        else:
            width = given - for_sums
        if width < 2:
            most = 1 << ((32 if given is None else given) - 2)
            raise InputError(
                f"quantizer 'format' with {given or 32} bits sums up to {most} workers, not "
                f"{workers}; choose "
                + ("more bits." if given and given < 32 else "quantizer 'fixed' or 'exact'.")
            )
        width = min(width, _WIDEST)
        largest = (1 << (width - 1)) - 1
        if form.scaled != "no":
            largest = min(largest, int(form.largest / _unit(form, width)))
        return width, largest

    def announce(self, selection: Selection) -> list[Segment]:
        if self._exact:
            self._rounded = self._to_format(selection.values, self._key())
            magnitude, nonzero, _ = self.context.kernels.absmax_nnz(self._rounded)
            magnitude = self._beyond(np.array([selection.magnitude], np.int32), magnitude).max()
            rounded = replace(
                selection, values=self._rounded, magnitude=int(magnitude), nonzero=nonzero
            )
            return self._exact.announce(rounded)
        magnitudes = np.array([selection.magnitude], np.int32)
        if self.scale_block:
            magnitudes = block_magnitudes(self.context.kernels, selection, self.scale_block)
        if self._form.scaled == "no":  # those of the numbers that the elements become
            rounded_up = self._to_format(magnitudes.view(np.float32), None)
            if self._by_chance:
                distance = np.ldexp(rounded_up, -self._form.mantissa) + self._form.smallest
                rounded_up = self._to_format((rounded_up + distance).astype(np.float32), None)
            magnitudes = self._beyond(magnitudes, rounded_up.view(np.int32))
        return [Segment(ReduceOp.MAX, magnitudes)]

    def _beyond(self, magnitudes: Ints, rounded: Any) -> Ints:
        """Rounded magnitudes, but those that the format cannot hold as they are."""
        reach = np.float32(self.reach).view(np.int32)
        return np.where(magnitudes > reach, magnitudes, np.int32(rounded))

    def _to_format(self, values: Floats, key: int | None) -> Floats:
        """Rounded to an unscaled format."""
        one, size = np.ones(1, np.float32), max(1, values.size)
        return self.context.kernels.round_to_format(values, one, size, self._form, key)

    def _key(self) -> int | None:
        """Of the random numbers of this all-reduce; None without."""
        if not self._by_chance:
            return None
        return key_of("format", self.context.seed, self.context.worker, self._step)

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        """What follows from the largest magnitudes.

        Raises:
            InputError: no integers are small enough; the same on all workers.
            GradientError: a magnitude is beyond the format; the same on all workers.
        """
        form = self._form
        magnitudes = answers[0][:1] if self._exact else answers[0]
        largest = float(magnitudes.max(initial=0).astype(np.int32).view(np.float32))
        if largest > self.reach:
            raise GradientError(
                f"a worker's gradient has a magnitude of {largest:g}; {self.parameters.format} "
                f"holds numbers up to {self.reach:g}. Scale the gradients down, or choose bf16."
            )
        key = self._key()
        most = self.largest_integer(workers)
        self._step += 1
        if self._exact:
            return NumbersInLimbs(self._exact.agree(answers, workers), self._rounded, most)
        width = 0 if self._wide else self._grid(workers)[0]
        limbs = _limbs(form, workers)
        in_limbs = self._wide and _multiple(form) * workers > INT32_MAX
        integers = _Integers(form, width, most, key, limbs if in_limbs else None)
        return FormatScaling(self.context.kernels, integers, magnitudes, self.scale_block)


def default_block(form: NumberFormat) -> int:
    """Elements that share a scale, if nothing else is said; 0 for all."""
    return MX_BLOCK if form.scaled in {"block", "no"} else 0


def _unit(form: NumberFormat, width: int) -> float:
    """The step of a scaled format's integers of that many bits; 0 bits for the format's own."""
    return max(2.0 ** (form.highest + 2 - width), form.smallest) if width else form.smallest


def _multiple(form: NumberFormat) -> int:
    """How often a format's largest number has its smallest."""
    return int(form.largest / form.smallest)


def _limbs(form: NumberFormat, workers: int) -> Limbs:
    """That hold all numbers of a format, and the workers' sums of them."""
    largest = int(np.float32(form.largest).view(np.int32))
    return Limbs.of(largest, max(form.lowest - form.mantissa, LOWEST_EXPONENT), workers)


@dataclass(frozen=True, slots=True)
class _Integers:
    """What becomes of a format's numbers.

    Attributes:
        form: the format.
        width: bits of an integer on the grid, 0 for multiples of the format's smallest number.
        most: the largest magnitude of an integer.
        key: of the random numbers; None to round to the nearest.
        limbs: of a number, where it does not fit an int32; None for one integer.
    """

    form: NumberFormat
    width: int
    most: int
    key: int | None
    limbs: Limbs | None


class FormatScaling(Scaling):
    """A scale for each block.

    Args:
        kernels: the functions that work on arrays.
        integers: what becomes of the numbers.
        magnitudes: the bits of the largest magnitude of each block, of all workers.
        block: elements of a block; 0 for all, and one magnitude.
    """

    def __init__(self, kernels: Kernels, integers: _Integers, magnitudes: Ints, block: int) -> None:
        self._kernels = kernels
        self._integers = integers
        self._block = block
        self._powers, self._finer = _scales(integers, magnitudes)
        self._blocks: Ints | None = None  # of the values that were contributed; None for all
        self.bound = integers.most
        self.scale = 0.0
        largest = magnitudes.max(initial=0, keepdims=True)
        if largest[0]:
            self.scale = 1 / _worst(integers, largest)

    @cached_property
    def _steps(self) -> Doubles:
        """What an integer of each block is a multiple of."""
        return 1 / (self._powers.astype(np.float64) * self._finer)

    def quantize(self, values: Floats) -> Ints:
        block = self._block or max(1, values.size)
        return self._made(values, self._powers, self._finer, block)

    def dequantize(self, integers: Ints) -> Floats:
        return self._floats(integers, self._steps, self._block or max(1, integers.size))

    def contribute(self, selection: Selection) -> Contribution:
        values, indices, size = selection.values, selection.indices, selection.size
        count = self._integers.limbs.count if self._integers.limbs else 1
        if indices is None or not self._block:
            integers = self.quantize(values)
            self._blocks = None
        else:  # a block for each value, as its neighbors may be others
            self._blocks = indices // np.int32(self._block)
            powers, finer = self._powers[self._blocks], self._finer[self._blocks]
            integers = self._made(values, powers, finer, 1)
        if indices is not None and count > 1:
            starts = np.arange(0, size * count, size, dtype=np.int32)
            indices = (starts[:, np.newaxis] + indices).ravel()
        return Contribution(size * count, indices, integers, limbs=count, bound=self.bound)

    def represented(self, contribution: Contribution) -> Floats:
        """What this worker's integers stand for, held within float32's range."""
        integers, blocks = contribution.integers, self._blocks
        if blocks is None:
            values = self.dequantize(integers)
        else:
            values = self._floats(integers, self._steps[blocks], 1)
        return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX, out=values)

    def _made(self, values: Floats, powers: Floats, finer: Floats, block: int) -> Ints:
        integers = self._integers
        form, key, limbs = integers.form, integers.key, integers.limbs
        if limbs is None:
            return self._kernels.quantize_to_format(
                values, powers, finer, block, form, integers.most, key
            )
        numbers = self._kernels.round_to_format(values, powers, block, form, key)
        return self._kernels.split_limbs(numbers, limbs)

    def _floats(self, integers: Ints, steps: Doubles, block: int) -> Floats:
        limbs = self._integers.limbs
        if limbs is None:
            return self._kernels.dequantize_blocks(integers, steps, block)
        numbers = self._kernels.join_limbs(integers, limbs)
        # Steps are those of the smallest number. Products with a power of two are exact: subnormal
        # ones, too, as they are multiples of 2**-143 of fewer than 24 bits.
        scales = (steps / self._integers.form.smallest).astype(np.float32)
        with np.errstate(over="ignore"):
            return multiplied(numbers, scales, block) + np.float32(0)


class NumbersInLimbs(Scaling):
    """The numbers of a format without a scale, in the limbs of an exact sum.

    Args:
        exact: how they are split.
        rounded: the numbers of all values that were announced.
        largest: the largest magnitude of a limb.
    """

    def __init__(self, exact: Scaling, rounded: Floats, largest: int) -> None:
        self._exact = exact
        self._rounded = rounded
        self._sent = rounded
        self.scale = exact.scale
        self.bound = largest

    def quantize(self, values: Floats) -> Ints:
        return self._exact.quantize(values)

    def dequantize(self, integers: Ints) -> Floats:
        return self._exact.dequantize(integers)

    def contribute(self, selection: Selection) -> Contribution:
        """See ``Scaling``; zeros may have been left out of what was announced."""
        same = selection.values.size == self._rounded.size
        self._sent = self._rounded if same else self._rounded[selection.indices]
        contribution = self._exact.contribute(replace(selection, values=self._sent))
        return replace(contribution, bound=self.bound)

    def represented(self, contribution: Contribution) -> Floats:
        """The numbers themselves."""
        del contribution
        return self._sent.copy()


def _scales(integers: _Integers, magnitudes: Ints) -> tuple[Floats, Floats]:
    """What a block's elements are multiplied by, and the integers in 1 after that."""
    form, width = integers.form, integers.width
    if form.scaled == "no":
        exponents = (magnitudes >> 23) - np.int32(127)  # floor(log2(M)); -127 below 2**-126
        finest = max(SMALLEST_SCALE, form.lowest - form.mantissa)
        units = np.maximum(exponents + np.int32(2 - width), np.int32(finest))
        return np.ones(magnitudes.size, np.float32), _power(-units)
    finer = np.full(magnitudes.size, 1 / _unit(form, width), np.float32)
    return powers_of(form, magnitudes), finer


def powers_of(form: NumberFormat, magnitudes: Ints) -> Floats:
    """What each block is multiplied by to become numbers of a format: 1 by its scale.

    Args:
        form: the format.
        magnitudes: the bits of the largest magnitude of each block.
    """
    if form.scaled == "no":
        return np.ones(magnitudes.size, np.float32)
    if form.scaled == "linear":
        largest = magnitudes.view(np.float32).astype(np.float64)
        powers = np.divide(form.largest, largest, out=np.ones(largest.size), where=largest > 0)
        return np.minimum(powers, FLOAT32_MAX).astype(np.float32)
    exponents = (magnitudes >> 23) - np.int32(127)
    scales = np.maximum(exponents - np.int32(form.highest), np.int32(SMALLEST_SCALE))
    if form.scaled == "tensor":
        above = np.ldexp(magnitudes.view(np.float32).astype(np.float64), -scales)
        scales = scales + (above > form.largest)
    return _power(-scales)


def _power(exponents: Ints) -> Floats:
    """2**exponent, for -127 .. 127; the first is subnormal."""
    bits = (exponents + np.int32(127)) << 23
    powers: Floats = np.maximum(bits, np.int32(1 << 22)).view(np.float32)
    return powers


def _worst(integers: _Integers, largest: Ints) -> float:
    """The largest error of a value, given the bits of the largest magnitude of all, shape (1,)."""
    form = integers.form
    powers, finer = _scales(integers, largest)
    if form.scaled == "no":
        distance = math.ldexp(1.0, (int(largest[0]) >> 23) - 127 - form.mantissa)
        return distance + 1 / float(finer[0])
    ends = 2.0 ** (form.highest + 1) - form.largest if form.scaled == "block" else 0.0
    distance = max(2.0 ** (form.highest - form.mantissa), ends)
    return (distance + 1 / float(finer[0])) / float(powers[0])
