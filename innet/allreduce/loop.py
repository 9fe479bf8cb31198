"""The codecs of all workers, in lock-step over an emulated network: rounds, and what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, Outcome
from innet.core.errors import InputError, OverflowedError, StalledError
from innet.core.reduce_op import Segment
from innet.core.threads import Map, side_by_side
from innet.topology import Emulation
from innet.wire import Flag

Vector = NDArray[np.float32]
Exchange = Generator[list[Segment], list[NDArray[np.int32]], Outcome]
Answer = list[NDArray[np.int32]] | OverflowedError | None
"""To one worker's segments; None before the first round."""
_WORTH_THREADS = 1 << 16  # elements; below, to hand work over takes longer than to do it


@dataclass(slots=True)
class Run:
    """What it came to.

    Attributes:
        outcomes: by worker.
        rounds: exchanges over the network, of the attempt that succeeded.
        network: seconds in it, of all attempts.
        without: workers who were left out because they were late.
    """

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    rounds: int = 0
    network: float = 0.0
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of all workers, shape (workers,), and of the switches; differences are of a run."""

    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    bytes_sent: NDArray[np.int64]
    retransmissions: NDArray[np.int64]
    switch: int

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.sent - other.sent,
            self.received - other.received,
            self.bytes_sent - other.bytes_sent,
            self.retransmissions - other.retransmissions,
            self.switch - other.switch,
        )


class _LateError(Exception):
    """The others went on without ``workers``."""

    def __init__(self, workers: list[int]) -> None:
        super().__init__(workers)
        self.workers = workers


class Lockstep:
    """Workers of one process.

    Args:
        codecs: by worker.
        network: where their ends are.
        goes_on: without those who are late; their timing asks for partial results.
        threads: that run the codecs of large gradients.
    """

    def __init__(
        self, codecs: Sequence[Codec], network: Emulation, *, goes_on: bool, threads: int
    ) -> None:
        self._codecs = codecs
        self._network = network
        self._goes_on = goes_on
        self._threads = threads

    def run(self, gradients: Mapping[int, Vector], attempts: int) -> Run:
        """One all-reduce, as often as it takes and is allowed.

        All or nothing: if a single sum of a round lacks a worker, the all-reduce begins again
        without that worker, under the next epoch and with the others' codecs as they were. So all
        elements are sums over the same workers, whatever words a codec makes of them.

        One that fails leaves the codecs as if it had not been begun, but for those of the late: who
        tries it again with the same gradients counts nothing twice.

        Args:
            gradients: of the workers who take part, in the order of their numbers.
            attempts: how often it may stall, less one.

        Raises:
            StalledError: it stalled once too often.
        """
        left = dict(gradients)
        without: list[int] = []
        network = 0.0
        while True:
            states = {worker: self._codecs[worker].snapshot() for worker in left}
            run = Run(network=network, without=tuple(sorted(without)))
            try:
                self._exchange(left, run)
                return run
            except _LateError as late:
                without += late.workers
                # What the late have sent counts nowhere: their codecs keep it for another time.
                for worker in late.workers:
                    del left[worker], states[worker]
            except StalledError:
                attempts -= 1
                if not attempts or not self._network.has_epochs:
                    self._restore(states)
                    raise
            except BaseException:
                self._restore(states)
                raise
            network = run.network
            self._restore(states)
            self._network.begin_epoch(self._network.plan.job.absent.union(without))

    def _restore(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        for worker, state in states.items():
            self._codecs[worker].load_state_dict(state)

    def _exchange(self, gradients: Mapping[int, Vector], run: Run) -> None:
        exchanges: dict[int, Exchange] = {
            worker: self._codecs[worker].exchange(gradient, len(gradients), rank=rank, checked=True)
            for rank, (worker, gradient) in enumerate(gradients.items())
        }
        large = max(gradient.size for gradient in gradients.values()) >= _WORTH_THREADS
        try:
            with side_by_side(self._threads if large else 1) as together:
                self._in_lock_step(exchanges, run, together)
        finally:
            for exchange in exchanges.values():
                exchange.close()  # after a failure: codecs take back what they have not sent

    def _in_lock_step(self, exchanges: Mapping[int, Exchange], run: Run, together: Map) -> None:
        answers: dict[int, Answer] = dict.fromkeys(exchanges)
        while True:
            steps = together(_advance, exchanges.values(), answers.values())
            segments: dict[int, list[Segment]] = {}
            for worker, step in zip(exchanges, steps, strict=True):
                if isinstance(step, Outcome):
                    run.outcomes[worker] = step
                else:
                    segments[worker] = step
            if run.outcomes:
                # They decide by what all have received, so they end together.
                if segments:
                    ready, more = min(run.outcomes), min(segments)
                    raise InputError(
                        f"the codec of worker {more} begins a further round, that of worker "
                        f"{ready} has ended; a part takes as many rounds on all workers."
                    )
                return
            begun = time.perf_counter()
            try:
                answers = self._round(segments)
            finally:
                run.network += time.perf_counter() - begun
            run.rounds += 1

    def _round(self, segments: Mapping[int, list[Segment]]) -> dict[int, Answer]:
        """One exchange: every worker's segments in, what each worker received out."""
        network = self._network
        ends = {worker: network.workers[worker] for worker in segments}
        begun = network.now
        for worker, end in ends.items():
            end.start(segments[worker], begun)
        try:
            network.run()
        except StalledError:
            if not self._goes_on or not any(end.done for end in ends.values()):
                raise
            network.now = begun  # those who go on have not waited until the late gave up
        if self._goes_on:
            late = {worker for worker, end in ends.items() if not end.done}
            late.update(*(end.missing for end in ends.values() if end.done))
            if len(late) == len(ends):
                raise StalledError(
                    "each worker was late for some sum of this round, so that nobody is left to go "
                    "on without the others."
                )
            if late:
                raise _LateError(sorted(late))
        # The switch tells all workers the same, so they all repeat the round, or none does.
        hopeful = any(self._codecs[worker].optimistic for worker in ends)
        if hopeful and any(end.result_flags & Flag.OVERFLOW for end in ends.values()):
            return dict.fromkeys(ends, OverflowedError("a sum has left int32."))
        return {worker: end.results() for worker, end in ends.items()}


def _advance(exchange: Exchange, answer: Answer) -> list[Segment] | Outcome:
    """The next round's segments, after the answers to the last; or what it came to."""
    try:
        if answer is None:
            return next(exchange)
        if isinstance(answer, OverflowedError):
            return exchange.throw(answer)
        return exchange.send(answer)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
