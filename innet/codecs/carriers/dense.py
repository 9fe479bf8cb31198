"""Carrier ``dense``: an int32 for every coordinate, zeros where nothing was selected."""

from __future__ import annotations

from collections.abc import Generator

from innet.codecs.parts import (
    INT32,
    ONE_VALUE_PER_WORD,
    Capabilities,
    Carrier,
    CarrySteps,
    Contribution,
    Ints,
    Selection,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import FloatSegment, ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels


class Dense(Carrier[Settings]):
    """What SwitchML sends."""

    name = "dense"
    takes_floats = True
    capabilities = Capabilities(
        provides=frozenset({ONE_VALUE_PER_WORD}),
        requires={INT32: "the switch adds 32-bit integers."},
        rounds=(0, 1),
        index="none",
    )

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        del selection, workers  # its size is the gradient's: nothing to agree on
        return []

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        del answers, workers
        floats = contribution.words
        if isinstance(floats, FloatSegment) and contribution.indices is None:
            (summed,) = yield [floats]
            watch.enter("decode")
            return Total(summed, sums=floats.sums)
        integers = yield from sum_dense(contribution, self.context.kernels, watch)
        return Total(integers)


def sum_dense(
    contribution: Contribution, kernels: Kernels, watch: Stopwatch
) -> Generator[list[Segment], list[Ints], Ints]:
    """One round in which all elements travel."""
    words = contribution.integers
    if contribution.indices is not None:
        words = kernels.scatter(contribution.indices, words, contribution.size)
    (total,) = yield [Segment(ReduceOp.SUM, words)]
    watch.enter("decode")
    return total
