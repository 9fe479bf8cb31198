"""A thread that runs the all-reduces of one process, in order.

Callers put a ``ReduceWork`` into the queue and continue computing. All workers of a job must
enqueue the same all-reduces in the same order.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.warm_up import warm_up
from innet.codecs import Codec, CodecSpec, ModelLayers, build_codec
from innet.codecs.build import descriptions, normalize
from innet.codecs.checks import GradientStats
from innet.core.errors import (
    InnetError,
    MembershipError,
    NetworkError,
    StalledError,
    StateError,
)
from innet.core.reduce_op import Deferral
from innet.core.waiting import log_compiling
from innet.records import Report
from innet.torch.preflight import PreflightResult, preflight
from innet.torch.reducers import Reducer

Vector = NDArray[np.float32]
_SAMPLE = 4096  # elements of the gradient with which a codec is compiled
_compiled: set[str] = set()


class ReduceWork(Protocol):
    """One all-reduce. The communication thread calls its methods."""

    @property
    def fingerprint(self) -> str:
        """Its identity, the same on all workers."""

    @property
    def codec(self) -> Codec:
        """Its codec; see ``CommThread.build_codec``."""

    @property
    def deferral(self) -> Deferral:
        """What may be done on the way with the gradient and the sum, for this all-reduce only."""

    def load(self) -> Vector:
        """This worker's gradient, shape (d,), float32."""

    def set_result(self, total: Vector, report: Report) -> None:
        """Take the sum. The work may change the array."""

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        """These workers' gradients are not finite. Nothing was summed, and no codec's state has
        changed.
        """

    def set_exception(self, error: BaseException) -> None:
        """The all-reduce failed."""


class CommThread:
    """The communication thread, and this worker's connection to the others.

    Args:
        reducer: what sums with the others; the thread owns it.
        deadline: seconds that ``renew`` waits for a worker.
        seed: of the codecs' hashes, the same on all workers.

    Attributes:
        worker: index of this worker.
        workers: number of workers.
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
        self._queue: queue.SimpleQueue[ReduceWork | threading.Event | None] = queue.SimpleQueue()
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

    def put(self, work: ReduceWork) -> None:
        """Enqueue an all-reduce. It fails after ``close``, and in a process forked from this one,
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
        while (work := self._queue.get()) is not None:
            if isinstance(work, threading.Event):
                work.set()
                continue
            try:
                self._reduce(work)
            except BaseException as error:
                # Any exception must reach the code that waits for the work.
                self._broken = self._broken or str(error)
                work.set_exception(error)

    def _reduce(self, work: ReduceWork) -> None:
        if self._broken is not None:
            raise StateError(f"an all-reduce before this one failed: {self._broken}")
        gradient, seen, error = _loaded(work)
        try:
            answers = preflight(
                self._reducer.combine,
                self.worker,
                work.fingerprint,
                workers=self.workers,
                finite=seen is not None or error is not None,
                error=None if error is None else str(error),
            )
            if answers.failed:
                raise _failure(answers, error)
            if gradient is None or seen is None or answers.not_finite:
                work.set_not_finite(answers.not_finite)
                return
            total, report = self._reducer.all_reduce(
                gradient, work.codec, seen=seen, deferral=work.deferral
            )
        except MembershipError:
            raise  # it names the missing worker
        except StalledError as stall:
            raise StalledError(self._reducer.diagnose() or str(stall)) from stall
        work.set_result(total, report)


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


def _loaded(
    work: ReduceWork,
) -> tuple[Vector | None, GradientStats | None, BaseException | None]:
    """The gradient, what the codec found in it if it is finite, and the error that prevents its
    reduction.
    """
    try:
        gradient = work.load()
        seen, bad = work.codec.examine(gradient)
        if bad >= 0:
            return gradient, None, None
        work.codec.check(gradient)
        return gradient, seen, None
    except BaseException as error:
        return None, None, error


def _failure(answers: PreflightResult, error: BaseException | None) -> BaseException:
    if error is not None:
        return error
    return NetworkError(f"worker {answers.failed[0]} gave up: {answers.message}")
