"""Quantizer ``fixed``: fixed point with one scale, which all workers share."""

from __future__ import annotations

import numpy as np

from innet.codecs.optional_methods import Defers
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ONE_INTEGER_PER_ELEMENT,
    Capabilities,
    Contribution,
    Floats,
    Ints,
    Quantizer,
    Scaling,
    Selection,
)
from innet.core.numbers import FLOAT32_MAX, INT32_MAX
from innet.core.reduce_op import FloatSegment, ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels


class Fixed(Quantizer[Settings]):
    """q = round(x · s) with s = B / M, B = floor((2**31 - 1) / N), half to even, in float64.

    N is the number of workers and M the largest magnitude of all workers' values, which the
    network finds: every worker announces the bits of its own largest magnitude, and the bits of
    non-negative floats, read as integers, are in the order of the floats, so that MAX of integers
    is MAX of magnitudes.

    No overflow. With u = 2**-53, fl(B / M) <= B·(1 + u) / M, and |x| <= M, so that the product
    before it is rounded is at most B·(1 + u) < B + 2**-22, as B < 2**31. B + 2**-22 is a float64,
    and rounding is monotonic, so the rounded product is no larger than that, and the integer
    nearest to it is at most B: |q| <= B. The N integers of a coordinate sum up to at most
    N·B <= 2**31 - 1 in magnitude, and so does every partial sum. -2**31 does not occur.

    Nor does the scale overflow: the smallest M that is not zero is 2**-149, and B / M < 2**180.

    Error. A value is off by at most half a step, M / B / 2, and the sum by at most N of these
    (about N² · M / 2**32), besides the rounding of the result to float32. A sum beyond float32's
    range becomes infinite, as in IEEE arithmetic. A sum too small for a float32 becomes 0.0, never
    -0.0: the exact sum may be zero where the rounded integers' sum is not.
    """

    name = "fixed"
    capabilities = Capabilities(
        provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, KEEPS_ZEROS}),
        integer_width=32,
        overflow_bound="floor((2**31 - 1) / N)",
        metadata="1",
    )

    def largest_integer(self, workers: int) -> int:
        return INT32_MAX // workers

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        largest = float(answers[0][:1].view(np.float32)[0])
        return FixedScaling(self.context.kernels, largest, workers)


class FixedScaling(Scaling, Defers):
    """One scale for all.

    Args:
        kernels: the functions that work on arrays.
        largest: the largest magnitude of all workers' values.
        workers: how many there are.
    """

    def __init__(self, kernels: Kernels, largest: float, workers: int) -> None:
        self._kernels = kernels
        bound = INT32_MAX // workers
        self.scale = bound / largest if largest else 0.0
        self.step = largest / bound
        self.finite = always_finite(self.step)

    def defer(self, selection: Selection) -> Contribution | None:
        values = selection.values
        if not self.scale or selection.indices is not None or not values.flags.carray:
            return None
        later = FloatSegment(values, self.scale, self.step, self._kernels.quantize)
        return Contribution(selection.size, None, later, bound=self.bound)

    def quantize(self, values: Floats) -> Ints:
        return self._kernels.quantize(values, self.scale)

    def dequantize(self, integers: Ints) -> Floats:
        return self._kernels.dequantize(integers, self.step)


def always_finite(step: float) -> bool:
    """Whether every int32 times the step, a float64, is finite as a float32, -2**31 included."""
    return 2.0**31 * step <= FLOAT32_MAX
