"""Quantizer ``exact``: the float32 nearest to the true sum, whatever the order and the workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ROUNDED_ONCE,
    Capabilities,
    Contribution,
    Floats,
    Ints,
    Quantizer,
    Scaling,
    Selection,
)
from innet.core.errors import GradientError
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels, Limbs
from innet.kernels.layout.limbs import LOWEST_EXPONENT

_LARGEST = 2**31 - 1  # integers that a contribution can have; their indices are int32


_ROOM = 96  # magnitudes below 2**97: the sum of fewer than 2**31 of them is below 2**128
_LARGEST_SHIFT = 126  # its power of two and the inverse are normal float32 numbers


class ExactSettings(Settings):
    """How limbs are aligned.

    Attributes:
        block: consecutive elements whose limbs are aligned at the block's largest magnitude, so
            that the lowest limbs of most elements are zero; 0 aligns all elements together. It
            costs a word for each block, and pays with a carrier that leaves out zeros.
    """

    block: Annotated[int, Field(ge=0, lt=2**31)] = 0


class Exact(Quantizer[ExactSettings]):
    """Sends every float32 as several int32 limbs, without loss; their sums are combined with one
    rounding, half to even.

    The network finds the largest magnitude of all workers' values, by MAX of its bits, and the
    lowest bit that is set in any value, by MAX of its negated exponent. All bits of all values are
    between the two: at most 277 bits, about 45 for a million normal numbers. All workers split all
    values at the same bit positions, so the limbs can be added one by one.

    No overflow. A limb is at most 2**b - 1 in magnitude, with b the largest for which
    N · (2**b - 1) <= 2**31 - 1, N the number of workers: 31 bits for one, 29 for four, 25 for 64.
    So neither the N limbs that meet nor any partial sum of them leaves int32, and -2**31 does not
    occur. Nothing is rounded before the end: the sums of the limbs are the sum of the values.

    Blocks. A float32 has 24 bits, a limb of four workers 29, so one limb holds all bits of an
    element whose magnitude is at least a 32nd of that at which its highest limb begins. With
    ``block`` that is the largest magnitude of a few neighbors instead of the largest of all: the
    network finds it by MAX, and all workers multiply the block by the power of two that lifts it to
    the largest of all. Such a product is exact: it is at most the largest value, and no bit falls
    below the lowest one. The rounded sum is divided by the same power. That is exact, too. If the
    quotient is a normal number, it has the same 24 bits. If it is subnormal, it is a multiple of
    2**-149 with fewer than 24 bits, so nothing was rounded before. From magnitudes of 2**97 on, a
    lifted sum might exceed float32, and nothing is lifted.

    The result is what IEEE 754 defines for the exact sum, rounded once: subnormal where that is so
    small, infinite from 2**128 - 2**103 on (although no value is infinite, and whatever the partial
    sums were). A sum that is zero is +0.0, even one of nothing but -0.0, whose sign integers lose.
    """

    name = "exact"
    capabilities = Capabilities(
        provides=frozenset({INT32, KEEPS_ZEROS, ROUNDED_ONCE}),
        fixed_size=False,  # limbs by the range of the values
        integer_width=32,
        overflow_bound="2**b - 1 with N * (2**b - 1) <= 2**31 - 1",
        metadata="ceil(d / block) + 2",
    )
    settings = ExactSettings

    @property
    def scale_block(self) -> int:
        return self.parameters.block

    def largest_integer(self, workers: int) -> int:
        """See ``Quantizer``; that of a limb."""
        return (1 << Limbs.of(0, 0, workers).bits) - 1

    def announce(self, selection: Selection) -> list[Segment]:
        kernels, block = self.context.kernels, self.parameters.block
        exponent = kernels.lowest_exponent(selection.values)
        segments = [Segment(ReduceOp.MAX, np.array([selection.magnitude, -exponent], np.int32))]
        if block:
            segments.append(Segment(ReduceOp.MAX, block_magnitudes(kernels, selection, block)))
        return segments

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        kernels, block = self.context.kernels, self.parameters.block
        magnitude, exponent = int(answers[0][0]), -int(answers[0][1])
        if not magnitude:
            return ExactScaling(kernels, None)
        limbs = Limbs.of(magnitude, exponent, workers)
        top = _top(np.int32(magnitude))
        if not block or top > _ROOM:
            return ExactScaling(kernels, limbs)
        # The highest limb begins with the highest bit, so that the lowest one is the sparse one.
        aligned = max(LOWEST_EXPONENT, int(top) + 1 - limbs.count * limbs.bits)
        shifts = np.minimum(top - _top(answers[1]), _LARGEST_SHIFT)
        powers = np.ldexp(np.float32(1), shifts)
        return ExactScaling(kernels, replace(limbs, exponent=aligned), block, powers)


def _top(magnitudes: Any) -> Any:
    """The exponent of the highest bit of float32 numbers, given their bits; -126 for subnormals."""
    return np.maximum(magnitudes >> 23, 1) - np.int32(127)


def block_magnitudes(kernels: Kernels, selection: Selection, block: int) -> Ints:
    """The bits of the largest magnitude of each block of elements, 0 where none is selected."""
    values, indices = selection.values, selection.indices
    if indices is None:
        return kernels.block_magnitudes(values, block)
    largest = np.zeros(-(-selection.size // block), np.int32)
    if indices.size:
        blocks = indices // np.int32(block)
        starts = np.flatnonzero(np.diff(blocks, prepend=np.int32(-1)))
        largest[blocks[starts]] = np.maximum.reduceat(np.abs(values).view(np.int32), starts)
    return largest


class ExactScaling(Scaling):
    """Limbs at the bit positions that all workers agreed on.

    Args:
        kernels: split and join.
        limbs: None where all values are zero.
        block: elements of a block, 0 if there are no blocks.
        powers: for each block, what its elements are multiplied by before they are split.

    Attributes:
        scale: units of the lowest limb in 1, a power of two; in a block multiplied by its power.
    """

    def __init__(
        self, kernels: Kernels, limbs: Limbs | None, block: int = 0, powers: Floats | None = None
    ) -> None:
        self._kernels = kernels
        self._block = block
        self._powers = powers
        self.limbs = Limbs(0, 1, 1) if limbs is None else limbs
        self.scale = 0.0 if limbs is None else 2.0**-limbs.exponent

    def quantize(self, values: Floats) -> Ints:
        """Shape (limbs · n,): the lowest limbs of all values, then the next ones."""
        return self._kernels.split_limbs(self._lifted(values, None), self.limbs)

    def dequantize(self, integers: Ints) -> Floats:
        """The float32 numbers nearest to what limbs of that shape add up to."""
        values = self._kernels.join_limbs(integers, self.limbs)
        if self._powers is None:
            return values
        return multiplied(values, np.float32(1) / self._powers, self._block)

    def _lifted(self, values: Floats, indices: Ints | None) -> Floats:
        if self._powers is None:
            return values
        if indices is None:
            return multiplied(values, self._powers, self._block)
        lifted: Floats = values * self._powers[indices // np.int32(self._block)]
        return lifted

    def contribute(self, selection: Selection) -> Contribution:
        """Limb after limb of the whole gradient: element i of limb k is at k · size + i.

        Raises:
            GradientError: there would be 2**31 integers or more; the same on all workers.
        """
        size, count = selection.size, self.limbs.count
        if size * count > _LARGEST:
            raise GradientError(
                f"a gradient of {size} elements with {count} limbs each takes more integers than "
                f"{_LARGEST}; sum it in several parts."
            )
        indices = selection.indices
        if indices is not None and count > 1:
            starts = np.arange(0, size * count, size, dtype=np.int32)
            indices = (starts[:, np.newaxis] + indices).ravel()
        lifted = self._lifted(selection.values, selection.indices)
        integers = self._kernels.split_limbs(lifted, self.limbs)
        return Contribution(size * count, indices, integers, limbs=count)

    def restore(self, total: Ints, size: int) -> Floats:
        del size
        return self.dequantize(total)


def multiplied(values: Floats, factors: Floats, block: int) -> Floats:
    """Each block of values times its factor; shape (n,), and one for each of the blocks."""
    full = values.size // block
    head = full * block
    product = np.empty(values.size, np.float32)
    rows, results = (each[:head].reshape(full, block) for each in (values, product))
    np.multiply(rows, factors[:full, np.newaxis], results)
    if head < values.size:
        np.multiply(values[head:], factors[full], product[head:])
    return product
