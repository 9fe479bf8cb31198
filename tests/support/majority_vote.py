"""A quantizer that is not linear, as somebody else might write it: signs, and their majority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from innet.codecs import QUANTIZERS
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ONE_INTEGER_PER_ELEMENT,
    SMALL_INTEGERS,
    Capabilities,
    Floats,
    Ints,
    Quantizer,
    Scaling,
    Selection,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings


class Vote(Scaling):
    """The sign of the sum of signs, times the largest magnitude of all workers."""

    bound = 1

    def __init__(self, largest: np.float32) -> None:
        self.scale = float(largest > 0)
        self._largest = largest

    def quantize(self, values: Floats) -> Ints:
        return np.sign(values).astype(np.int32)

    def dequantize(self, integers: Ints) -> Floats:
        return np.sign(integers).astype(np.float32) * self._largest


class MajorityVote(Quantizer[Settings]):
    """After signSGD with majority vote (Bernstein et al., ICML 2018)."""

    name = "majority-vote"
    # Nothing is said of rounds: the defaults are those of a quantizer.
    capabilities = Capabilities(
        provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, SMALL_INTEGERS, KEEPS_ZEROS}),
        linear=False,
    )

    def largest_integer(self, workers: int) -> int:
        del workers
        return 1

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        del workers
        return Vote(answers[0].view(np.float32)[0])


@contextmanager
def registered() -> Iterator[None]:
    """The quantizer is registered, as if another distribution had done it."""
    QUANTIZERS.register(MajorityVote.name, MajorityVote)
    try:
        yield
    finally:
        del QUANTIZERS._loaded[MajorityVote.name]
