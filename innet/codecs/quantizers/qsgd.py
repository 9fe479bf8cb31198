"""Quantizer ``qsgd``: few levels, rounded by chance so that the mean is right."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ONE_INTEGER_PER_ELEMENT,
    SMALL_INTEGERS,
    STOCHASTIC_ROUNDING,
    Capabilities,
    Floats,
    Ints,
    Quantizer,
    Scaling,
    Selection,
    StepCounter,
)
from innet.codecs.quantizers.fixed import always_finite
from innet.core.numbers import INT32_MAX
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels
from innet.kernels.layout.hashing import key_of

_MOST_LEVELS = 2**20


class QsgdSettings(Settings):
    """The number of levels.

    Attributes:
        levels: the integer that the largest magnitude becomes, 1 .. 2**20; the default is the
            largest of 8 bits with a sign.
    """

    levels: Annotated[int, Field(ge=1, le=_MOST_LEVELS)] = 127


class Qsgd(StepCounter[QsgdSettings], Quantizer[QsgdSettings]):
    """|x| · L / M, rounded up with the probability of its fractional part; the sign of x.

    Stochastic quantization with L levels, in a form that a switch can sum, after Alistarh, Grubic,
    Li, Tomioka, Vojnovic: QSGD: Communication-efficient SGD via gradient quantization and encoding,
    NeurIPS 2017, https://arxiv.org/abs/1610.02132. M is the largest magnitude of all workers'
    values, which the network finds as for quantizer ``fixed``. Differences with the paper:

    * The paper scales by each worker's own 2-norm, so that its integers mean something else for
      every worker and cannot be added up. Here all share one M, the maximum norm.
    * The paper codes the integers with Elias' code, whose words cannot be summed. Here carrier
      ``packed`` puts as many into a word as the sum over the workers leaves room for.

    L is ``levels``, or floor((2**31 - 1) / N) where N workers would otherwise overflow.

    No overflow. Let T = L · 2**32 <= 2**52 and u = 2**-53. The scale times 2**32 is fl(T / M), at
    most T · (1 + u) / M; |x| <= M, so the product before it is rounded is at most T · (1 + u) <=
    T + 1/2. T + 1/2 is a float64, and rounding is monotonic, so the rounded product is no larger
    and its integer part t at most T. A random r below 2**32 is added and 32 bits are dropped: as T
    is a multiple of 2**32, the magnitude (t + r) >> 32 is at most L. N integers, and any partial
    sum of them, are at most N · L <= 2**31 - 1 in magnitude.

    No bias: the mean over r is t / 2**32 exactly, and that differs from |x| · L / M by less than
    2**-30, of the two roundings and of what t leaves out. A value is off by at most one step of
    M / L (and that 2**-30 of one), with a variance of at most a quarter of a step's square. Zeros
    remain zeros.

    The random numbers are a function of the seed, the worker, the number of the all-reduce and the
    position among the values sent: workers round independently, a run repeats exactly, and kernels
    agree. An exchange that is given up after its handshake has used up its number.
    """

    name = "qsgd"
    settings = QsgdSettings
    capabilities = Capabilities(
        provides=frozenset(
            {INT32, ONE_INTEGER_PER_ELEMENT, SMALL_INTEGERS, STOCHASTIC_ROUNDING, KEEPS_ZEROS}
        ),
        integer_width=32,
        overflow_bound="min(levels, floor((2**31 - 1) / N))",
        metadata="1",
    )

    def largest_integer(self, workers: int) -> int:
        return min(self.parameters.levels, INT32_MAX // workers)

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        largest = float(answers[0][:1].view(np.float32)[0])
        levels = self.largest_integer(workers)
        key = key_of("qsgd", self.context.seed, self.context.worker, self._step)
        self._step += 1
        return QsgdScaling(self.context.kernels, largest, levels, key)


class QsgdScaling(Scaling):
    """One scale for all, and this worker's random numbers.

    Args:
        kernels: the functions that work on arrays.
        largest: the largest magnitude of all workers' values.
        levels: the integer that it becomes.
        key: names the random numbers.
    """

    def __init__(self, kernels: Kernels, largest: float, levels: int, key: int) -> None:
        self._kernels = kernels
        self._key = key
        self.scale = levels / largest if largest else 0.0
        self.step = largest / levels
        self.finite = always_finite(self.step)
        self.bound = levels

    def quantize(self, values: Floats) -> Ints:
        return self._kernels.quantize_stochastic(values, self.scale, self._key)

    def dequantize(self, integers: Ints) -> Floats:
        return self._kernels.dequantize(integers, self.step)
