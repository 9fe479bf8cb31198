"""Carrier ``dense``: an int32 for every coordinate, zeros where nothing was selected."""

from __future__ import annotations

from collections.abc import Callable, Generator

from innet.codecs.parts import (
    INT32,
    ONE_VALUE_PER_WORD,
    SUMS_FLOATS,
    Capabilities,
    Carrier,
    CarrySteps,
    Contribution,
    Ints,
    Selection,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import CollectiveOp, FloatSegment, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels


class Dense(Carrier[Settings]):
    """What SwitchML sends."""

    name = "dense"
    takes_floats = True
    scatters = True
    capabilities = Capabilities(
        provides=frozenset({ONE_VALUE_PER_WORD, SUMS_FLOATS}),
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
    integers = contribution.integers
    if contribution.indices is not None:
        integers = kernels.scatter(contribution.indices, integers, contribution.size)
    return (yield from sum_integers(contribution, integers, None, watch))


def sum_integers(
    contribution: Contribution,
    integers: Ints,
    indices: Ints | None,
    watch: Stopwatch,
    pack: tuple[Callable[[Ints], Ints], Callable[[Ints, int], Ints]] | None = None,
) -> Generator[list[Segment], list[Ints], Ints]:
    """One round of integers of which each word is that of certain elements.

    Args:
        contribution: this worker's.
        integers: shape (m,), to be summed.
        indices: shape (m,), ascending: which they are, the same on all workers; None for all.
        watch: decoding begins when the sums are there.
        pack: makes words of integers; and integers of summed words, given how many.

    Returns:
        The sums, shape (m,). With shards, those of this worker's own part; the others are its own
        integers.
    """
    to_words, to_integers = pack or (_as_they_are, _of_words)
    if contribution.shards is None:
        (total,) = yield [Segment(contribution.operation, to_words(integers))]
        watch.enter("decode")
        return to_integers(total, integers.size)
    pieces = list(contribution.shards.pieces(contribution.limbs, indices))
    answers = yield [
        Segment(CollectiveOp.REDUCE, to_words(integers[piece]), owner) for owner, piece in pieces
    ]
    watch.enter("decode")
    total = integers.copy()
    for (owner, piece), answer in zip(pieces, answers, strict=True):
        if owner == contribution.worker:  # its own integers did not travel
            total[piece] += to_integers(answer, piece.stop - piece.start)
    return total


def _as_they_are(integers: Ints) -> Ints:
    return integers


def _of_words(words: Ints, count: int) -> Ints:
    del count  # one in each word
    return words
