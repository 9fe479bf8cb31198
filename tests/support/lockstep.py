"""Run the codecs of all workers in lock-step over a perfect network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, ExchangeOutcome
from innet.codecs.parts import COEFFICIENTS, STOCHASTIC_ROUNDING
from innet.core.errors import OverflowedError
from innet.core.float_sums import FloatSum
from innet.core.reduce_op import ReduceOp, Segment, combine
from support import gradients

Ints = NDArray[np.int32]
Watcher = Callable[[list[list[Segment]]], None]


def all_reduce(
    codecs: Sequence[Codec],
    gradients: Sequence[NDArray[np.float32]],
    watch: Watcher = lambda segments: None,
    counts: Sequence[int] | None = None,
) -> list[ExchangeOutcome]:
    """The outcomes of all workers; what the codecs' contract says about segments is asserted.

    Args:
        watch: called with each round's segments, by worker.
        counts: how many workers each codec stands for, who all send the same; by default one.
    """
    counts = [1] * len(codecs) if counts is None else counts
    exchanges = [
        codec.exchange(gradient, sum(counts))
        for codec, gradient in zip(codecs, gradients, strict=True)
    ]
    outcomes: list[ExchangeOutcome] = []
    answers: list[Ints] | None = None
    overflowed = False
    while True:
        segments: list[list[Segment]] = []
        for exchange in exchanges:
            try:
                if overflowed:
                    segments.append(exchange.throw(OverflowedError()))
                else:
                    segments.append(next(exchange) if answers is None else exchange.send(answers))
            except StopIteration as stop:
                outcomes.append(stop.value)
        if outcomes:
            assert len(outcomes) == len(codecs), "some workers ended before the others"
            return outcomes
        watch(segments)
        shapes = {tuple((each.operation, each.words.shape) for each in own) for own in segments}
        assert len(shapes) == 1, "workers sent segments of different operations or lengths"
        assert all(each.words.dtype == np.int32 for own in segments for each in own)
        overflowed = codecs[0].may_overflow and any(
            leaves_int32([each.words for each in column], counts)
            for column in zip(*segments, strict=True)
            if column[0].operation is ReduceOp.SUM
        )
        assert {codec.may_overflow for codec in codecs} == {codecs[0].may_overflow}
        answers = [
            combined(column[0].operation, [each.words for each in column], counts)
            for column in zip(*segments, strict=True)
        ]
        for answer in answers:
            answer.flags.writeable = False  # all workers receive the same arrays: nobody may write


def combined(operation: ReduceOp, contributions: Sequence[Ints], counts: Sequence[int]) -> Ints:
    """What the network answers where each contribution is that of so many workers."""
    if operation is not ReduceOp.SUM:
        return combine(operation, contributions)
    weights = np.array(counts, np.int64)[:, np.newaxis]
    total = (np.stack(contributions) * weights).sum(axis=0, dtype=np.int64)
    return total.astype(np.uint32).view(np.int32)


def leaves_int32(contributions: Sequence[Ints], counts: Sequence[int]) -> bool:
    """Whether a sum leaves int32 on its way, in the order of the workers."""
    weights = np.array(counts, np.int64)[:, np.newaxis]
    partial = np.cumsum(np.stack(contributions) * weights, axis=0, dtype=np.int64)
    return bool(((partial < -(2**31)) | (partial >= 2**31)).any())


def integer_oracle(
    outcomes: Sequence[ExchangeOutcome], size: int, counts: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """The sum of what the workers say they contributed, in int64; of floats that a switch adds, one
    worker after the other.
    """
    operation = outcomes[0].contribution.operation
    if isinstance(operation, FloatSum):
        assert counts is None
        words = combine(operation, [each.contribution.integers for each in outcomes])
        return words.astype(np.int64)
    oracle = np.zeros(size, np.int64)
    for number, outcome in enumerate(outcomes):
        own = outcome.contribution
        assert own.size == size
        weight = 1 if counts is None else counts[number]
        place = slice(None) if own.indices is None else own.indices
        oracle[place] += weight * own.integers.astype(np.int64)
    return oracle


def shares(outcomes: Sequence[ExchangeOutcome], size: int) -> NDArray[np.float64]:
    """What each worker sent for each coordinate, shape (workers, size): see ``sent_oracle``."""
    sent = np.zeros((len(outcomes), size))
    for own, outcome in zip(sent, outcomes, strict=True):
        place = slice(None) if outcome.indices is None else outcome.indices
        own[place] = outcome.sent if outcome.represented is None else outcome.represented
    return sent


def sent_oracle(outcomes: Sequence[ExchangeOutcome], size: int) -> NDArray[np.float64]:
    """The sum of the float32 values that the workers selected, in float64; or of those that their
    integers stand for, where the quantizer says so.
    """
    oracle = np.sum(shares(outcomes, size), axis=0)
    if (applied := outcomes[0].applied) is not None:
        counted = np.zeros(size)
        counted[applied] = oracle[applied]
        return counted
    return oracle


def promised(
    codec: Codec, job: Sequence[NDArray[np.float32]], outcomes: Sequence[ExchangeOutcome]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Where float32 holds the sum for sure, and how far off it may be there; both of shape (d,).

    Only where the scale is not zero.
    """
    sent = np.abs(shares(outcomes, job[0].size))
    exact = np.abs(sent_oracle(outcomes, job[0].size))
    fits = exact < gradients.LARGEST * (1 - 1e-5)  # others may round to infinity
    tolerance = exact * 2.0**-24 + 2.0**-149  # the rounding, and that of this oracle
    tolerance += 2.0**-52 * len(job) * np.sum(np.abs(job), axis=0, dtype=np.float64)
    # Half a step of the quantizer for each worker, or a whole one where it says so.
    step = 1 if STOCHASTIC_ROUNDING in codec.quantizer.capabilities.provides else 0.5
    if outcomes[0].represented is not None:
        # What the integers stand for is known but for rounding; float32's end is held, not passed.
        step = 0
        fits &= (sent < gradients.LARGEST).all(axis=0)
        tolerance += np.sum(sent * 2.0**-24 + 2.0**-149, axis=0)
    error = step * len(job) / outcomes[0].scale * (1 + 1e-6)
    if COEFFICIENTS in codec.selector.capabilities.provides:
        # A coefficient is a column of the matrix times a vector of length 1, and so no larger than
        # this. Rows of an orthonormal factor are no longer than 1: the errors of the coefficients
        # behind an element, their steps and their float32's, add up to the root of the rank.
        largest = len(job) * sent.max() * np.sqrt(job[0].size)
        fits &= largest < gradients.LARGEST
        error = (error + largest * 2.0**-22) * np.sqrt(codec.selector.parameters.rank)
    return fits, tolerance + error
