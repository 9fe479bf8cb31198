"""Quantizer ``exact``: the float32 nearest to the true sum, whatever the order and the workers."""

from __future__ import annotations

import numpy as np

from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
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

_LARGEST = 2**31 - 1  # integers that a contribution can have; their indices are int32


class Exact(Quantizer[Settings]):
    """Every float32 goes as several int32 limbs, which lose nothing; their sums are put together
    with one rounding, half to even.

    The network finds the largest magnitude of all workers' values and the lowest bit that is set
    in any of them, by MAX of the bits of the one and of the negated exponent of the other. Between
    the two lie all bits of all values: 277 at the most, about 45 in a million normal numbers. All
    workers split all values at the same places, so that the limbs can be added one by one.

    No overflow. A limb is at most 2**b - 1 in magnitude, with b the largest for which
    N · (2**b - 1) <= 2**31 - 1, N the number of workers: 31 bits for one, 29 for four, 25 for 64.
    So neither the N limbs that meet nor any partial sum of them leaves int32, and -2**31 does not
    occur. Nothing is rounded before the end: the sums of the limbs are the sum of the values.

    The result is what IEEE 754 defines for the exact sum, rounded once: subnormal where that is so
    small, infinite from 2**128 - 2**103 on (although no value is infinite, and whatever the partial
    sums were). A sum that is zero is +0.0, even one of nothing but -0.0, whose sign integers lose.
    """

    name = "exact"
    capabilities = Capabilities(
        provides=frozenset({INT32, KEEPS_ZEROS}),
        fixed_size=False,  # limbs by the range of the values
        integer_width=32,
        overflow_bound="2**b - 1 with N * (2**b - 1) <= 2**31 - 1",
        metadata="2",
    )

    def largest_integer(self, workers: int) -> int:
        """See ``Quantizer``; that of a limb."""
        return (1 << Limbs.of(0, 0, workers).bits) - 1

    def announce(self, selection: Selection) -> list[Segment]:
        exponent = self.context.kernels.lowest_exponent(selection.values)
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude, -exponent], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        magnitude, exponent = int(answers[0][0]), -int(answers[0][1])
        limbs = Limbs.of(magnitude, exponent, workers) if magnitude else None
        return ExactScaling(self.context.kernels, limbs)


class ExactScaling(Scaling):
    """Limbs at the places that all workers agreed on; None where all values are zero.

    Attributes:
        scale: units of the lowest limb in 1, a power of two.
    """

    def __init__(self, kernels: Kernels, limbs: Limbs | None) -> None:
        self._kernels = kernels
        self.limbs = Limbs(0, 1, 1) if limbs is None else limbs
        self.scale = 0.0 if limbs is None else 2.0**-limbs.exponent

    def quantize(self, values: Floats) -> Ints:
        """Shape (limbs · n,): the lowest limbs of all values, then the next ones."""
        return self._kernels.split_limbs(values, self.limbs)

    def dequantize(self, integers: Ints) -> Floats:
        """The float32 numbers nearest to what limbs of that shape add up to."""
        return self._kernels.join_limbs(integers, self.limbs)

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
        return Contribution(size * count, indices, self.quantize(selection.values), limbs=count)

    def restore(self, total: Ints, size: int) -> Floats:
        del size
        return self.dequantize(total)
