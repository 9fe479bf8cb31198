"""The loop of an all-reduce, without I/O: rounds, retries, late workers, new epochs.

``reduce_loop`` is a generator. It yields requests to the network and is sent the results:

    ====================  =======================================================================
    it yields             it is sent
    ====================  =======================================================================
    Round(segments)       a RoundResult; or a StalledError is thrown into it
    NewEpoch(without)     the indices of the workers who take part in that epoch, ascending
    ====================  =======================================================================

``run_loop`` executes these requests. ``Collective`` runs the loop with all workers of a job on
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

from innet.codecs import Codec, ExchangeOutcome, SumOptions
from innet.core.errors import InputError, OverflowedError, StalledError
from innet.core.numbers import number_list
from innet.core.reduce_op import Segment
from innet.core.threads import Map, parallel_map

Vector = NDArray[np.float32]
Exchange = Generator[list[Segment], list[NDArray[np.int32]], ExchangeOutcome]
Answer = list[NDArray[np.int32]] | OverflowedError | None
"""The answers to one worker's segments; None before the first round."""

_WORTH_THREADS = 1 << 16  # elements; below, handing work to a thread takes longer than doing it


@dataclass(frozen=True, slots=True)
class Round:
    """A request: combine these segments with those of workers in other processes.

    Attributes:
        segments: by worker.
    """

    segments: Mapping[int, list[Segment]]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a ``Round``.

    Attributes:
        words: the combined words of each segment, by worker; ignored if a worker was late.
        overflowed: a sum exceeded int32 in the switch, which tells all workers the same.
        late: workers that are missing in a sum of the round, as far as they are known here.
        is_partial: a sum of the round lacks workers. In a tree of switches ``late`` may be empty
            all the same: results say how many are missing, and the coordinator knows who.
    """

    words: Mapping[int, list[NDArray[np.int32]]]
    overflowed: bool = False
    late: tuple[int, ...] = ()
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """A request: begin the job's next epoch.

    Attributes:
        without: workers to leave out, in addition to those who are already absent and those who the
            coordinator knows to be late.
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

    outcomes: dict[int, ExchangeOutcome] = field(default_factory=dict)
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
    options: SumOptions | None = None,
) -> Loop:
    """Sum gradients, in up to ``attempts`` attempts.

    All or nothing: if a sum of a round lacks a worker, the all-reduce is repeated without that
    worker, in the next epoch and with the others' codecs restored. So all elements are sums over
    the same workers, whatever words a codec sends.

    After an error the codecs are restored, except those of workers who were left out, which keep
    their gradients in the error feedback. The same gradients can be passed again.

    Args:
        codecs: codecs of the workers in this process, by worker.
        gradients: their gradients, flat.
        present: all workers who take part, here and elsewhere, ascending.
        attempts: the most attempts.
        has_epochs: whether ``NewEpoch`` can be requested.
        checked: the gradients have been checked already.
        threads: threads that run the codecs of large gradients.
        options: of the gradient, if there is one worker in this process.

    Raises:
        StalledError: the last attempt stalled; or a worker was late and the others cannot continue
            without it, or continued without the workers of this process.
    """
    left = dict(gradients)
    states = {worker: codecs[worker].snapshot() for worker in left}
    reduction = Reduction()
    large = max(gradient.size for gradient in left.values()) >= _WORTH_THREADS
    try:
        while True:
            ranks = {worker: rank for rank, worker in enumerate(present)}
            exchanges: dict[int, Exchange] = {
                worker: codecs[worker].exchange(
                    gradient,
                    len(present),
                    rank=ranks[worker],
                    checked=checked,
                    options=options,
                )
                for worker, gradient in left.items()
            }
            late: tuple[int, ...] | None = None
            try:
                with parallel_map(threads if large else 1) as together:
                    late = yield from _attempt(codecs, exchanges, together, reduction)
                if late is None:
                    return reduction
            except StalledError:
                attempts -= 1
                if not attempts or not has_epochs:
                    raise
            finally:
                for exchange in exchanges.values():
                    exchange.close()  # after a failure codecs take back what they have not sent
            if late is not None:
                _check_allowed(late, left.keys(), has_epochs)
            # The late workers' words were not used, so their codecs keep their gradients.
            for worker in left.keys() & (late or ()):
                del left[worker], states[worker]
            _restore(codecs, states)
            answer = yield NewEpoch(late or ())
            assert isinstance(answer, tuple)
            if late is not None:
                gone = set(present) - set(answer)
                reduction.without = tuple(sorted({*reduction.without, *late, *gone}))
            present = answer
    except BaseException:
        _restore(codecs, states)
        raise


def _attempt(
    codecs: Mapping[int, Codec],
    exchanges: Mapping[int, Exchange],
    together: Map,
    reduction: Reduction,
) -> Generator[Request, RoundResult | tuple[int, ...], tuple[int, ...] | None]:
    """All rounds of the codecs.

    Returns:
        None if all sums are of all workers; otherwise those who were late, as far as known here.
    """
    answers: dict[int, Answer] = dict.fromkeys(exchanges)
    while True:
        steps = together(_advance, exchanges.values(), answers.values())
        segments: dict[int, list[Segment]] = {}
        outcomes: dict[int, ExchangeOutcome] = {}
        for worker, step in zip(exchanges, steps, strict=True):
            if isinstance(step, ExchangeOutcome):
                outcomes[worker] = step
            else:
                segments[worker] = step
        if outcomes:
            # Codecs decide by words that all received, so they end together.
            if segments:
                raise InputError(
                    f"the codec of worker {min(segments)} begins a further round, that of worker "
                    f"{min(outcomes)} has ended; a part takes as many rounds on all workers."
                )
            reduction.outcomes = outcomes
            return None
        begun = time.perf_counter()
        try:
            result = yield Round(segments)
        finally:
            reduction.network += time.perf_counter() - begun
        assert isinstance(result, RoundResult)
        if result.late or result.is_partial:
            return result.late
        # The switch tells all workers the same, so either all repeat the round or none does.
        may_overflow = any(codecs[worker].may_overflow for worker in exchanges)
        if may_overflow and result.overflowed:
            answers = dict.fromkeys(exchanges, OverflowedError("a sum has left int32."))
        else:
            answers = {worker: result.words[worker] for worker in exchanges}


def _advance(exchange: Exchange, answer: Answer) -> list[Segment] | ExchangeOutcome:
    """Send the answers to a codec; its next segments, or its outcome."""
    try:
        if answer is None:
            return next(exchange)
        if isinstance(answer, OverflowedError):
            return exchange.throw(answer)
        return exchange.send(answer)
    except StopIteration as stop:
        outcome: ExchangeOutcome = stop.value
        return outcome


def _check_allowed(late: tuple[int, ...], here: Collection[int], has_epochs: bool) -> None:
    """Raise StalledError unless the workers ``here`` can continue without the late ones."""
    if late and not set(here) - set(late):
        names = number_list(here)
        raise StalledError(
            f"the others went on without worker {names}, which was late; it can come back under a "
            "later epoch (begin_epoch)."
        )
    if not has_epochs:
        raise StalledError(
            f"sums of this round lack {named(late)}, who were late; begin the job's next epoch "
            "without them, or pass renew, which does it."
        )


def named(late: tuple[int, ...]) -> str:
    """Late workers in a sentence."""
    return f"the workers {number_list(late)}" if late else "workers of other racks"


def _restore(codecs: Mapping[int, Codec], states: Mapping[int, Mapping[str, Any]]) -> None:
    for worker, state in states.items():
        codecs[worker].load_state_dict(state)


def run_loop(
    loop: Loop,
    combine: Callable[[Mapping[int, list[Segment]]], RoundResult],
    new_epoch: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Reduction:
    """Execute the requests of ``reduce_loop``.

    Args:
        loop: the generator, not started.
        combine: executes a ``Round``: takes the workers' segments, returns the result.
        new_epoch: executes a ``NewEpoch``: takes the workers to leave out, returns those present.

    Raises:
        InnetError: an error of ``combine`` or ``new_epoch``, unless the loop tries again.
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


def run_loops(
    loops: Mapping[int, Loop],
    combine: Callable[[Mapping[int, Mapping[int, list[Segment]]]], Mapping[int, RoundResult]],
) -> dict[int, Reduction]:
    """Execute the requests of several ``reduce_loop`` of different workers, each round together.

    Those that need fewer rounds end before the others. They have one attempt each: after an error
    all are closed.

    Args:
        loops: the generators, not started, by any number.
        combine: executes the rounds of those loops that have one: takes the workers' segments by
            loop, returns the result of each.

    Raises:
        InnetError: an error of ``combine``. The codecs of loops that have not ended are restored.
    """
    reductions: dict[int, Reduction] = {}
    answers: Mapping[int, RoundResult | None] = dict.fromkeys(loops)
    try:
        while answers:
            rounds: dict[int, Mapping[int, list[Segment]]] = {}
            for number, answer in answers.items():
                loop = loops[number]
                try:
                    request = next(loop) if answer is None else loop.send(answer)
                except StopIteration as stop:
                    reductions[number] = stop.value
                else:
                    assert isinstance(request, Round)  # with one attempt there is no new epoch
                    rounds[number] = request.segments
            answers = combine(rounds) if rounds else {}
    finally:
        for loop in loops.values():
            loop.close()
    return reductions
