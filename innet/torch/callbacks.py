"""Threads in which the callbacks of futures run, never in the one that does what they may wait for.

A callback may begin another all-reduce and wait for it, as PyTorch's PowerSGD hook does. If it ran
in the communication thread, which has to do that all-reduce, both would wait for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_PATIENCE = 5.0  # seconds that a future waits for those before it, and for their callbacks
_REST = 10.0  # seconds after which a thread without work ends


@dataclass(eq=False, slots=True)
class WorkOrigin:
    """Where a piece of work was begun.

    Attributes:
        owner: whose threads complete it.
        parent: in whose callback it was begun; None for the program itself.
        number: how many were begun there before it.
        name: all workers give it the same, however their threads run: "3" for the fourth that the
            program began, "3.0" for the first that a callback of it began.
        begun: how many its callbacks have begun.
    """

    owner: CallbackThreads
    parent: WorkOrigin | None
    number: int
    name: str = field(init=False)
    begun: int = 0

    def __post_init__(self) -> None:
        self.name = str(self.number)
        if self.parent is not None:
            of = "" if self.parent.owner is self.owner else "of another "
            self.name = f"{of}{self.parent.name}.{self.number}"


_running = threading.local()  # .origin: of the work in whose callback a thread is


class CallbackThreads:
    """Completes futures, and so runs their callbacks: in the order in which their work was begun,
    one after the other, on all workers.

    Work that a callback begins is completed while that callback runs. A future waits for those
    before it and for their callbacks for five seconds: one of them may be waiting for it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        # Complete, but not yet completed for those who wait: with the time.
        self._queue: deque[tuple[WorkOrigin, Callable[[], None], float]] = deque()
        self._open: dict[WorkOrigin | None, set[int]] = {}  # futures to complete, by parent
        self._entered: dict[WorkOrigin | None, object] = {}  # callbacks that run, by parent
        self._idle = 0
        self._begun = 0

    def begin(self) -> WorkOrigin:
        """The origin of work that begins here and now, in this thread."""
        parent: WorkOrigin | None = getattr(_running, "origin", None)
        with self._condition:
            if parent is None:
                self._begun += 1
                return WorkOrigin(self, None, self._begun - 1)
            parent.begun += 1
            return WorkOrigin(self, parent, parent.begun - 1)

    def open(self, origin: WorkOrigin) -> None:
        """There is a future of that work."""
        with self._condition:
            self._open.setdefault(origin.parent, set()).add(origin.number)

    def run(self, origin: WorkOrigin, complete: Callable[[], None], *, calls_back: bool) -> None:
        """Complete the future of that work: now, if it is its turn and nothing is called back."""
        with self._condition:
            now = time.monotonic()
            entered = origin.parent in self._entered
            if calls_back or entered or not self._is_turn_of(origin, now, now):
                self._queue.append((origin, complete, now))
                self._condition.notify()
                self._keep_one_idle()
                return
            self._close(origin)
        complete()

    @staticmethod
    @contextmanager
    def in_callback_of(origin: WorkOrigin) -> Iterator[None]:
        """Say that this thread is in a callback of that work: of the script's own if the work was
        complete when it got the callback.
        """
        before: WorkOrigin | None = getattr(_running, "origin", None)
        _running.origin = origin
        try:
            yield
        finally:
            _running.origin = before

    @staticmethod
    def is_in(origin: WorkOrigin) -> bool:
        """Whether this thread is in a callback of that work."""
        found: WorkOrigin | None = getattr(_running, "origin", None)
        while found is not None and found is not origin:
            found = found.parent
        return found is origin

    def _is_turn_of(self, origin: WorkOrigin, since: float, now: float) -> bool:
        """Whether nothing is before it, or it has waited long enough."""
        before = self._open.get(origin.parent, ())
        return now - since >= _PATIENCE or origin.number <= min(before, default=origin.number)

    def _close(self, origin: WorkOrigin) -> None:
        numbers = self._open.get(origin.parent, set())
        # What it has waited for in vain, others need not wait for.
        numbers -= {number for number in numbers if number <= origin.number}
        if not numbers:
            self._open.pop(origin.parent, None)

    def _keep_one_idle(self) -> None:
        """Somebody has to look after what is in the queue."""
        if self._queue and not self._idle:
            self._idle += 1
            # A daemon, so that a script can end while a callback waits.
            threading.Thread(target=self._serve, name="innet callbacks", daemon=True).start()

    def _serve(self) -> None:
        """Complete what may be, until nothing was there for a while. ``_idle`` counts this thread
        from the beginning.
        """
        while (taken := self._take()) is not None:
            origin, complete, token = taken
            try:
                complete()
            finally:
                with self._condition:
                    if self._entered.get(origin.parent) is token:
                        del self._entered[origin.parent]
                    self._idle += 1
                    self._condition.notify()

    def _take(self) -> tuple[WorkOrigin, Callable[[], None], object] | None:
        with self._condition:
            until = time.monotonic() + _REST
            while True:
                now = time.monotonic()
                for index, (origin, complete, since) in enumerate(self._queue):
                    waited = now - since >= _PATIENCE
                    if (origin.parent in self._entered and not waited) or not self._is_turn_of(
                        origin, since, now
                    ):
                        continue
                    del self._queue[index]
                    self._close(origin)
                    token = object()
                    self._entered[origin.parent] = token
                    self._idle -= 1
                    self._keep_one_idle()
                    return origin, complete, token
                if not self._queue and now >= until:
                    self._idle -= 1
                    return None
                self._condition.wait(_PATIENCE / 20 if self._queue else until - now)
