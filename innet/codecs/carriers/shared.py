"""Carrier ``shared``: all workers mean the same coordinates, so their integers travel alone."""

from __future__ import annotations

from innet.codecs.carriers.dense import sum_dense, sum_integers
from innet.codecs.parts import (
    INT32,
    ONE_VALUE_PER_WORD,
    SAME_INDICES,
    Capabilities,
    Carrier,
    CarrySteps,
    Contribution,
    Ints,
    Selection,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import Segment
from innet.core.settings import Settings


class Shared(Carrier[Settings]):
    """The i-th word is the integer at the i-th of the indices that every worker knows.

    It sends one word for each selected integer, for any number of workers. No index is sent, and
    the union of the workers' supports does not grow. If everything is selected, the form is dense.
    """

    name = "shared"
    scatters = True
    capabilities = Capabilities(
        provides=frozenset({ONE_VALUE_PER_WORD}),
        requires={
            INT32: "the switch adds 32-bit integers.",
            SAME_INDICES: "it sends integers without indices, so all workers must mean the same "
            "coordinates.",
        },
        rounds=(0, 1),
        index="shared",
    )

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        del selection, workers  # how many are chosen is the same on all: nothing to agree on
        return []

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        del answers, workers
        kernels = self.context.kernels
        if contribution.indices is None:
            total = yield from sum_dense(contribution, kernels, watch)
            return Total(total, {"form": "dense"})
        integers, indices = contribution.integers, contribution.indices
        summed = yield from sum_integers(contribution, integers, indices, watch)
        details = {"form": "shared", "shared": int(summed.size)}
        return Total(summed, details, indices)
