"""The loop of an all-reduce, without I/O: rounds, retries, late workers, new epochs.

``reduce_loop`` is a generator. It yields what the network is to do and is sent what came of it:

    ====================  =======================================================================
    it yields             it is sent
    ====================  =======================================================================
    Round(segments)       a RoundResult; or a StalledError is thrown into it
    NewEpoch(without)     the indices of the workers who take part in that epoch, ascending
    ====================  =======================================================================

``run_loop`` carries these requests out. ``Collective`` runs the loop with all workers of a job on
an emulated network, ``Worker`` with one worker at its transport. The process group of
``innet.torch`` uses a ``Worker``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, Outcome
from innet.core.errors import InputError, OverflowedError, StalledError
from innet.core.reduce_op import Segment
from innet.core.threads import Map, parallel_map

Vector = NDArray[np.float32]
Exchange = Generator[list[Segment], list[NDArray[np.int32]], Outcome]
Answer = list[NDArray[np.int32]] | OverflowedError | None
"""To one worker's segments; None before the first round."""

_WORTH_THREADS = 1 << 16  # elements; below, handing work to a thread takes longer than doing it


@dataclass(frozen=True, slots=True)
class Round:
    """A request: combine these segments with those of the workers elsewhere.

    Attributes:
        segments: by worker.
    """

    segments: Mapping[int, list[Segment]]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What came of a ``Round``.

    Attributes:
        words: the combined words of each segment, by worker. Not read if somebody was late.
        overflowed: the switch saw a sum leave int32. It tells all workers the same.
        late: workers whom some sum of the round lacks.
    """

    words: Mapping[int, list[NDArray[np.int32]]]
    overflowed: bool = False
    late: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """A request: begin the job's next epoch.

    Attributes:
        without: workers to leave out, in addition to those who are absent already.
    """

    without: tuple[int, ...]


@dataclass(slots=True)
class Reduction:
    """The result of the loop.

    Attributes:
        outcomes: by worker.
        without: workers who were left out because they were late.
        network: seconds that rounds took, in all attempts.
    """

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    without: tuple[int, ...] = ()
    network: float = 0.0


Request: TypeAlias = Round | NewEpoch
Loop: TypeAlias = Generator[Request, RoundResult | tuple[int, ...], Reduction]


def reduce_loop(
    codecs: Mapping[int, Codec],
    gradients: Mapping[int, Vector],
    present: tuple[int, ...],
    *,
    attempts: int = 1,
    has_epochs: bool = True,
    checked: bool = False,
    threads: int = 1,
) -> Loop:
    """Sum gradients, in as many attempts as it takes and is allowed.

    All or nothing: if a single sum of a round lacks a worker, the all-reduce begins again without
    that worker, under the next epoch and with the others' codecs as they were. So all elements are
    sums over the same workers, whatever words a codec makes of them.

    After an error the codecs are as if it had not been begun, except those of workers who were left
    out: they keep their gradient for another time. The same gradients can be given again.

    Args:
        codecs: of the workers who run here, by worker.
        gradients: theirs, flat.
        present: all workers who take part, here and elsewhere, ascending.
        attempts: how many attempts may stall.
        has_epochs: whether a ``NewEpoch`` can be asked for.
        checked: the gradients have been checked already.
        threads: that run the codecs of large gradients.

    Raises:
        StalledError: the last attempt stalled; or somebody was late, and the others cannot go on
            without, or went on without the workers here.
    """
    left = dict(gradients)
    states = {worker: codecs[worker].snapshot() for worker in left}
    reduction = Reduction()
    large = max(gradient.size for gradient in left.values()) >= _WORTH_THREADS
    try:
        while True:
            exchanges: dict[int, Exchange] = {
                worker: codecs[worker].exchange(
                    gradient, len(present), rank=present.index(worker), checked=checked
                )
                for worker, gradient in left.items()
            }
            late: tuple[int, ...] = ()
            try:
                with parallel_map(threads if large else 1) as together:
                    late = yield from _attempt(codecs, exchanges, together, reduction)
                if not late:
                    return reduction
            except StalledError:
                attempts -= 1
                if not attempts or not has_epochs:
                    raise
            finally:
                for exchange in exchanges.values():
                    exchange.close()  # after a failure codecs take back what they have not sent
            _check_allowed(late, left.keys(), has_epochs)
            # What the late have sent counts nowhere: their codecs keep it for another time.
            for worker in left.keys() & late:
                del left[worker], states[worker]
            reduction.without = tuple(sorted({*reduction.without, *late}))
            _restore(codecs, states)
            answer = yield NewEpoch(late)
            assert isinstance(answer, tuple)
            present = answer
    except BaseException:
        _restore(codecs, states)
        raise


def _attempt(
    codecs: Mapping[int, Codec],
    exchanges: Mapping[int, Exchange],
    together: Map,
    reduction: Reduction,
) -> Generator[Request, RoundResult | tuple[int, ...], tuple[int, ...]]:
    """All rounds of the codecs; the workers who were late for one of them."""
    answers: dict[int, Answer] = dict.fromkeys(exchanges)
    while True:
        steps = together(_advance, exchanges.values(), answers.values())
        segments: dict[int, list[Segment]] = {}
        outcomes: dict[int, Outcome] = {}
        for worker, step in zip(exchanges, steps, strict=True):
            if isinstance(step, Outcome):
                outcomes[worker] = step
            else:
                segments[worker] = step
        if outcomes:
            # They decide by what all have received, so they end together.
            if segments:
                raise InputError(
                    f"the codec of worker {min(segments)} begins a further round, that of worker "
                    f"{min(outcomes)} has ended; a part takes as many rounds on all workers."
                )
            reduction.outcomes = outcomes
            return ()
        begun = time.perf_counter()
        try:
            result = yield Round(segments)
        finally:
            reduction.network += time.perf_counter() - begun
        assert isinstance(result, RoundResult)
        if result.late:
            return result.late
        # The switch tells all workers the same, so they all repeat the round, or none does.
        may_overflow = any(codecs[worker].may_overflow for worker in exchanges)
        if may_overflow and result.overflowed:
            answers = dict.fromkeys(exchanges, OverflowedError("a sum has left int32."))
        else:
            answers = {worker: result.words[worker] for worker in exchanges}


def _advance(exchange: Exchange, answer: Answer) -> list[Segment] | Outcome:
    """The next round's segments, after the answers to the last; or the outcome."""
    try:
        if answer is None:
            return next(exchange)
        if isinstance(answer, OverflowedError):
            return exchange.throw(answer)
        return exchange.send(answer)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome


def _check_allowed(late: tuple[int, ...], here: Collection[int], has_epochs: bool) -> None:
    """Whether the workers ``here`` may go on without the late."""
    if late and not set(here) - set(late):
        names = ", ".join(map(str, here))
        raise StalledError(
            f"the others went on without worker {names}, which was late; it can come back under a "
            "later epoch (begin_epoch)."
        )
    if late and not has_epochs:
        names = ", ".join(map(str, late))
        raise StalledError(
            f"sums of this round lack the workers {names}, who were late; begin the job's next "
            "epoch without them, or pass renew, which does it."
        )


def _restore(codecs: Mapping[int, Codec], states: Mapping[int, Mapping[str, Any]]) -> None:
    for worker, state in states.items():
        codecs[worker].load_state_dict(state)


def run_loop(
    loop: Loop,
    combine: Callable[[Mapping[int, list[Segment]]], RoundResult],
    new_epoch: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Reduction:
    """Carry out what ``reduce_loop`` asks for.

    Args:
        loop: not begun yet.
        combine: carries out a ``Round``: the workers' segments in, the result out.
        new_epoch: carries out a ``NewEpoch``: the workers to leave out in, those present out.

    Raises:
        InnetError: what ``combine`` or ``new_epoch`` raise, unless the loop tries again.
    """
    try:
        request = next(loop)
        while True:
            try:
                answer: RoundResult | tuple[int, ...] = (
                    combine(request.segments)
                    if isinstance(request, Round)
                    else new_epoch(request.without)
                )
            except BaseException as error:
                request = loop.throw(error)
            else:
                request = loop.send(answer)
    except StopIteration as stop:
        reduction: Reduction = stop.value
        return reduction
