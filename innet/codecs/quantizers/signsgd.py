"""Quantizer ``signsgd``: one sign for each element, and a vote of the workers."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

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


class SignSgdSettings(Settings):
    """The magnitude of a result.

    Attributes:
        scale: magnitude of an element of the mean over the workers; 1 in the paper, where the
            learning rate alone decides how far a step goes.
    """

    scale: Annotated[float, Field(gt=0, le=1e20)] = 1.0


class SignSgd(Quantizer[SignSgdSettings]):
    """signSGD with majority vote (Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018,
    arXiv 1802.04434; Bernstein, Zhao, Azizzadenesheli, Anandkumar, ICLR 2019, arXiv 1810.05291).

    Each worker sends -1, 0 or 1, the sign of each value. The switch sums the signs. Every worker
    takes the sign of the sum. The decoded value is that sign times ``scale`` times the number of
    workers N. So the mean over the workers, which optimizers use, is the paper's step: -1 or 1.

    No overflow: sums are at most N in magnitude. Carrier ``packed`` puts several into a word.
    No magnitude is exchanged, but one word that tells whether there is anything to vote on.

    Differences with the paper: the sign of zero, and of a tie, is 0; the paper's one bit cannot
    express this. In Signum each worker applies momentum before the vote; here the optimizer applies
    it after the vote.
    """

    name = "signsgd"
    capabilities = Capabilities(
        provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, SMALL_INTEGERS, KEEPS_ZEROS}),
        integer_width=32,
        overflow_bound="1",
        metadata="1",
        linear=False,
    )
    settings = SignSgdSettings

    def largest_integer(self, workers: int) -> int:
        del workers  # there are fewer than 2**31
        return 1

    def announce(self, selection: Selection) -> list[Segment]:
        return [Segment(ReduceOp.MAX, np.array([selection.nonzero > 0], np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        return Vote(bool(answers[0][0]), self.parameters.scale * workers)


class Vote(Scaling):
    """Signs, and the sign of their sum times ``step``. ``votes``: some value is not zero."""

    finite = True
    bound = 1

    def __init__(self, votes: bool, step: float) -> None:
        self.scale = float(votes)
        self._step = np.float32(step)

    def quantize(self, values: Floats) -> Ints:
        return (values > 0).astype(np.int32) - (values < 0)

    def dequantize(self, integers: Ints) -> Floats:
        return np.sign(integers).astype(np.float32) * self._step
