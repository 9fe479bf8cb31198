"""Requests of controllers, carried out by the thread that runs the switch.

A request is a generator that the thread runs between two batches of packets, for some milliseconds
at a time. One is carried out after the other, in the order of arrival, so that each sees the switch
as the ones before it left it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, NamedTuple

from innet.p4runtime.status import Code, StatusError

_MOST_PENDING = 4096
_SLICE_SECONDS = 0.005

Steps = Generator[None, None, Any]
"""A request: it yields where packets may pass, and returns its result."""


class _Call(NamedTuple):
    steps: Steps
    is_atomic: bool
    answer: Future[Any]


class CallQueue:
    """Requests that wait.

    Args:
        wake: makes the thread of the switch call ``run`` soon; called by any thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._pending: deque[_Call] = deque()
        self._current: _Call | None = None
        self._is_closed = False

    def submit(self, steps: Steps, *, is_atomic: bool = False) -> Future[Any]:
        """Add a request.

        Args:
            steps: what to do.
            is_atomic: no packet passes until it is done.

        Raises:
            StatusError: RESOURCE_EXHAUSTED, too many wait; UNAVAILABLE, the switch ends.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                raise StatusError(Code.UNAVAILABLE, "the switch ends")
            if len(self._pending) >= _MOST_PENDING:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED, f"{_MOST_PENDING} requests wait already; try later"
                )
            self._pending.append(_Call(steps, is_atomic, answer))
        self._wake()
        return answer

    def run(self) -> None:
        """Carry out requests for some milliseconds."""
        until = time.monotonic() + _SLICE_SECONDS
        while time.monotonic() < until:
            call = self._current or self._next()
            if call is None:
                return
            self._current = None
            if not self._advance(call, until):
                self._current = call
        with self._lock:
            more = self._current is not None or bool(self._pending)
        if more:
            self._wake()

    def close(self) -> None:
        """Refuse those that wait, and all later ones."""
        with self._lock:
            self._is_closed = True
            waiting = list(self._pending)
            self._pending.clear()
        if self._current is not None:
            waiting.append(self._current)
        for call in waiting:
            if not call.answer.done():
                call.answer.cancel()
                if not call.answer.cancelled():
                    call.answer.set_exception(StatusError(Code.UNAVAILABLE, "the switch ends"))

    def _next(self) -> _Call | None:
        with self._lock:
            while self._pending:
                call = self._pending.popleft()
                if call.answer.set_running_or_notify_cancel():
                    return call
        return None

    def _advance(self, call: _Call, until: float) -> bool:
        """Run a request until the time is over; whether it is done."""
        try:
            while True:
                next(call.steps)
                if not call.is_atomic and time.monotonic() >= until:
                    return False
        except StopIteration as end:
            call.answer.set_result(end.value)
        except Exception as error:
            call.answer.set_exception(error)
        return True
