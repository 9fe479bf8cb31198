"""Quantizer ``optimistic``: fixed point that hopes that sums fit, and repeats where they do not."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.optional_methods import RepeatsAfterOverflow
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    MAY_OVERFLOW,
    ONE_INTEGER_PER_ELEMENT,
    ONE_VALUE_PER_WORD,
    Capabilities,
    Ints,
    Quantizer,
    Scaling,
    Selection,
)
from innet.codecs.quantizers.fixed import FixedScaling
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels


class OptimisticSettings(Settings):
    """The headroom for sums.

    Attributes:
        headroom: how many times one worker's largest magnitude the sum may become before it
            overflows: 1 makes the finest steps; the number of workers, or more, is quantizer
            ``fixed``.
    """

    headroom: Annotated[int, Field(ge=1, le=2**20)] = 4


class Optimistic(Quantizer[OptimisticSettings]):
    """As ``fixed``, with B = floor((2**31 - 1) / H) for a headroom H below N.

    Sums of N workers' gradients are rarely N times as large as the largest value of one worker. So
    the quantization step can be H / N of that of ``fixed``. If a sum leaves int32, the switch marks
    the result. All workers see the mark, double H and send the round again. With H = N no sum can
    leave int32, as for ``fixed``. So there are at most log2(N / H) repetitions, and the result is
    always exact. H is reset for each all-reduce.

    A partial sum that leaves int32 and comes back also counts: which one does depends on the order
    in which packets arrive, but all workers get the same. Values are within B, at most
    2**31 - 1, for every H, by the argument in ``fixed``.
    """

    name = "optimistic"
    settings = OptimisticSettings
    capabilities = Capabilities(
        provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, KEEPS_ZEROS, MAY_OVERFLOW}),
        requires={
            ONE_VALUE_PER_WORD: "whether a sum has left int32 can be seen only where its word "
            "holds nothing else.",
        },
        integer_width=32,
        overflow_bound="floor((2**31 - 1) / min(headroom, N)), detected",
        metadata="1",
    )

    def largest_integer(self, workers: int) -> int:
        """See ``Quantizer``; that of the first try, the largest one."""
        return (2**31 - 1) // min(workers, self.parameters.headroom)

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        largest = float(answers[0][:1].view(np.float32)[0])
        return OptimisticScaling(self.context.kernels, largest, workers, self.parameters.headroom)


class OptimisticScaling(FixedScaling, RepeatsAfterOverflow):
    """A scale that leaves room for the sum of ``headroom`` workers, of ``workers``."""

    def __init__(self, kernels: Kernels, largest: float, workers: int, headroom: int) -> None:
        super().__init__(kernels, largest, min(workers, headroom))
        self.may_overflow = headroom < workers
        self._largest = largest
        self._workers = workers
        self._headroom = headroom

    def after_overflow(self) -> Scaling:
        return OptimisticScaling(self._kernels, self._largest, self._workers, 2 * self._headroom)
