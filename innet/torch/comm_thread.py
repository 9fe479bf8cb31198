"""A thread that runs the collectives of one process, in order.

Callers put a ``ReduceWork`` or a ``MoveWork`` into the queue and continue computing. All workers of
a job must enqueue the same ones. Where one began in a callback, workers may come to it and others
in different orders, as their callbacks run beside the program: then that of worker 0 counts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.warm_up import warm_up
from innet.codecs import Codec, CodecSpec, ModelLayers, SumOptions, build_codec
from innet.codecs.build import descriptions, normalize
from innet.codecs.checks import GradientStats
from innet.core.errors import (
    InnetError,
    MembershipError,
    NetworkError,
    StalledError,
    StateError,
)
from innet.core.waiting import log_compiling
from innet.records import Report
from innet.torch.callbacks import CallbackThreads
from innet.torch.preflight import PreflightResult, first_workers_choice, preflight
from innet.torch.reducers import Reducer

Vector = NDArray[np.float32]
Spans = Sequence[slice]
"""The places of one parameter in a gradient."""
_SAMPLE = 4096  # elements of the gradient with which a codec is compiled
_SHARE = 0.9
_FIRST_LOOK, _LONGEST_LOOK = 64, 1 << 16  # elements, of a search for one that is not zero
_compiled: set[str] = set()


class ReduceWork(Protocol):
    """One all-reduce. The communication thread calls its methods."""

    @property
    def name(self) -> str:
        """Which one it is, the same on all workers; "" if they come to all in one order."""

    @property
    def fingerprint(self) -> str:
        """What it is, the same on all workers."""

    @property
    def parts(self) -> Sequence[Spans]:
        """Where in the gradient the parameters are. Of one whose gradient is zero on all workers
        nothing is sent, and the codec keeps what it holds back of it.
        """

    @property
    def codec(self) -> Codec:
        """Its codec; see ``CommThread.build_codec``."""

    @property
    def options(self) -> SumOptions:
        """What may be done with the gradient, and is done with the sum."""

    def load(self) -> Vector:
        """This worker's gradient, shape (d,), float32."""

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        """Take the sum, which is to be multiplied by the factor: that of the options, or 1 if the
        sum is multiplied already. The work may change the array.
        """

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        """These workers' gradients are not finite. Nothing was summed, and no codec's state has
        changed.
        """

    def set_exception(self, error: BaseException) -> None:
        """The all-reduce failed."""


@runtime_checkable
class MoveWork(Protocol):
    """One collective that sums nothing: an all-gather, a broadcast or a barrier."""

    @property
    def name(self) -> str:
        """As of a ``ReduceWork``."""

    @property
    def fingerprint(self) -> str:
        """As of a ``ReduceWork``."""

    def move(self) -> None:
        """Do it, in the communication thread. All workers have come to it.

        Raises:
            InnetError: it failed half-way, and nothing can follow.
        """

    def set_exception(self, error: BaseException) -> None:
        """It failed."""


CollectiveWork: TypeAlias = ReduceWork | MoveWork


class CommThread:
    """The communication thread, and this worker's connection to the others.

    Args:
        reducer: what sums with the others; the thread owns it.
        deadline: seconds that ``renew`` waits for a worker.
        seed: of the codecs' hashes, the same on all workers.

    Attributes:
        worker: index of this worker.
        workers: number of workers.
        callbacks: for the futures of the all-reduces.
    """

    def __init__(self, reducer: Reducer, *, deadline: float, seed: int = 0) -> None:
        log_compiling()  # the first all-reduce may wait for it
        self.worker = reducer.worker
        self.workers = reducer.workers
        self._reducer = reducer
        self._deadline = deadline
        self._seed = seed
        self._broken: str | None = None
        self._closing = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self.callbacks = CallbackThreads()
        self._queue: queue.SimpleQueue[CollectiveWork | threading.Event | None] = (
            queue.SimpleQueue()
        )
        # Taken out of the queue, but not done: another one came first.
        self._waiting: deque[CollectiveWork | threading.Event | None] = deque()
        # A daemon, so that a script can end without closing it.
        self._thread = threading.Thread(target=self._run, name="innet communication", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def build_codec(
        self,
        spec: CodecSpec,
        layers: ModelLayers | None = None,
        kernels: str = "cpu",
        *,
        gain: bool = False,
    ) -> Codec:
        """Build a codec for this worker.

        Raises:
            InnetError: as ``innet.codecs.build_codec`` and ``Reducer.check``.
        """
        codec = build_codec(
            spec, seed=self._seed, worker=self.worker, layers=layers, kernels=kernels, gain=gain
        )
        self._reducer.check(codec)
        return codec

    def put(self, work: CollectiveWork) -> None:
        """Enqueue a collective. It fails after ``close``, and in a process forked from this one,
        which has no such thread.
        """
        try:
            self._check_owned()
        except StateError as error:
            work.set_exception(error)
            return
        with self._closing:
            if not self._closed:
                self._queue.put(work)
                return
        work.set_exception(StateError(f"worker {self.worker} has left its job; join a new one."))

    def renew(self) -> None:
        """Recover after a failure: wait for all workers, and continue in the next epoch.

        The state of codecs is kept. If the workers' histories differ, the next all-reduce fails
        with an error.

        Raises:
            InnetError: a worker has not come back in time; names it. Or this process was forked
                from the job's member.
        """
        self._rest()
        self._reducer.renew(self._deadline)
        self._broken = None

    def has_lost_switch(self) -> bool:
        """Whether the connection to the switch has ended.

        Raises:
            StalledError: an all-reduce is still under way.
            StateError: this process was forked from the job's member.
        """
        self._rest()
        return self._reducer.is_lost()

    def _check_owned(self) -> None:
        """A forked process has the connection, but not the thread."""
        if os.getpid() != self._owner:
            raise StateError(
                f"worker {self.worker} is in its job in the process that this one was forked from; "
                "reduce there."
            )

    def _rest(self) -> None:
        """Wait until the queue is empty, since the thread uses the same connection."""
        self._check_owned()
        idle = threading.Event()
        self._queue.put(idle)
        if not idle.wait(self._deadline):
            raise StalledError("an all-reduce is still under way; renew after it.")

    def close(self, deadline: float = 10.0) -> None:
        """Finish the queue within ``deadline`` seconds, and leave the job."""
        atexit.unregister(self.close)
        with self._closing:
            if not self._closed:
                self._queue.put(None)
            self._closed = True
        self._thread.join(deadline)
        self._reducer.leave()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if isinstance(work, threading.Event):
                work.set()
                continue
            try:
                self._do(work)
            except BaseException as error:
                # Any exception must reach the code that waits for the work.
                self._broken = self._broken or str(error)
                work.set_exception(error)

    def _next(self) -> CollectiveWork | threading.Event | None:
        return self._waiting.popleft() if self._waiting else self._queue.get()

    def _do(self, work: CollectiveWork) -> None:
        if self._broken is not None:
            raise StateError(f"a collective before this one failed: {self._broken}")
        try:
            gradient, answers = self._preflight(work)
            if answers.differs:
                self._do_first(work)
                return
            if isinstance(work, MoveWork):
                work.move()
                return
            if gradient is None or answers.not_finite:
                work.set_not_finite(answers.not_finite)
                return
            spans = [span for part in answers.unused for span in work.parts[part]]
            with work.codec.holding_back(spans):
                outcome, report = self._reducer.all_reduce(
                    gradient.values, work.codec, replace(work.options, stats=gradient.stats)
                )
            total = outcome.sum
            if spans and not total.flags.writeable:
                total = total.copy()
            for span in spans:
                total[span] = 0  # of a codec that sends more than elements
        except MembershipError:
            raise  # it names the missing worker
        except StalledError as stall:
            raise StalledError(self._reducer.diagnose() or str(stall)) from stall
        work.set_result(total, outcome.factor_left, report)

    def _preflight(self, work: CollectiveWork) -> tuple[_Gradient | None, PreflightResult]:
        """The round before a collective.

        Returns:
            The gradient, None if it is not finite or there is none; and what the workers have said.

        Raises:
            InnetError: a worker cannot take part.
        """
        gradient, error, parts = None, None, 0
        if not isinstance(work, MoveWork):
            gradient, error = _loaded(work)
            parts = len(work.parts)
        finite = isinstance(work, MoveWork) or (gradient is not None and gradient.stats is not None)
        answers = preflight(
            self._reducer.combine,
            self.worker,
            work.fingerprint,
            name=work.name,
            workers=self.workers,
            finite=finite or error is not None,
            error=None if error is None else str(error),
            zero=gradient.zero if finite and gradient is not None else (),
            parts=parts,
        )
        if answers.failed:
            raise _failure(answers, error)
        return gradient if finite else None, answers

    def _do_first(self, work: CollectiveWork) -> None:
        """Do the collective that worker 0 came to, and that one later."""
        chosen = first_workers_choice(self._reducer.combine, self.worker, work.name)
        if chosen(work.name):
            self._do(work)
            return
        self._waiting.appendleft(work)
        other = self._find(chosen)
        if other is None:
            error = NetworkError(
                f"worker {self.worker} has not begun the collective that worker 0 waits for, and "
                f"came to {work.fingerprint}. All must begin the same ones."
            )
            combine = self._reducer.combine
            preflight(combine, self.worker, "", workers=self.workers, error=str(error))
            raise error
        self._do(other)

    def _find(self, chosen: Callable[[str], bool]) -> CollectiveWork | None:
        """The work with that name, which may be begun only now; None after the deadline."""
        until = time.monotonic() + _SHARE * self._deadline  # the others wait that long for this one
        seen = 0
        while True:
            for index in range(seen, len(self._waiting)):
                work = self._waiting[index]
                if work is None:
                    return None  # nothing comes after the end
                if not isinstance(work, threading.Event) and chosen(work.name):
                    del self._waiting[index]
                    return work
            seen = len(self._waiting)
            try:
                self._waiting.append(self._queue.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                return None


def compile_codec(spec: CodecSpec) -> None:
    """Compile a codec's kernels, once in a process, so that the others need not wait for it in the
    first iteration.

    A codec that cannot run alone is compiled at its first use.
    """
    for each in descriptions(spec):
        described = repr(normalize(each))
        if described not in _compiled:
            _compiled.add(described)
            gradient = np.linspace(-1, 1, _SAMPLE, dtype=np.float32)
            with contextlib.suppress(InnetError):
                warm_up(each, gradient, [gradient.shape])


class _Gradient(NamedTuple):
    """A gradient that was looked at.

    Attributes:
        values: shape (d,), float32.
        stats: what the codec found in it; None if it is not finite.
        zero: parts that are zero, if the codec holds something back.
    """

    values: Vector
    stats: GradientStats | None
    zero: tuple[int, ...] = ()


def _loaded(work: ReduceWork) -> tuple[_Gradient | None, BaseException | None]:
    """The gradient, or the error that prevents its reduction."""
    try:
        values = work.load()
        stats, bad = work.codec.examine(values)
        if bad >= 0:
            return _Gradient(values, None), None
        work.codec.check(values)
        zero: tuple[int, ...] = ()
        if work.codec.keeps_state:
            parts = enumerate(work.parts)
            zero = tuple(i for i, part in parts if all(is_zero(values[span]) for span in part))
        return _Gradient(values, stats, zero), None
    except BaseException as error:
        return None, error


def is_zero(values: Vector) -> bool:
    """Whether all are; it reads no more than it must."""
    start, size = 0, _FIRST_LOOK
    while start < values.size:
        if values[start : start + size].any():
            return False
        start, size = start + size, min(4 * size, _LONGEST_LOOK)
    return True


def _failure(answers: PreflightResult, error: BaseException | None) -> BaseException:
    if error is not None:
        return error
    return NetworkError(f"worker {answers.failed[0]} gave up: {answers.message}")
