"""Requests of controllers, carried out by the thread that runs the switch.

A request is a generator that the thread runs between two batches of packets, for some milliseconds
at a time. One is carried out after the other, in the order of arrival, so that each sees the switch
as the ones before it left it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from innet.p4runtime.status import Code, StatusError, resource_exhausted

_MOST_PENDING = 4096
_SLICE_SECONDS = 0.005
_ANSWER_SECONDS = 120.0
_LOOK_SECONDS = 5.0  # between looks for requests that wait too long

Steps = Generator[None, None, Any]
"""A request: it yields where packets may pass, and returns its result."""


class _Call(NamedTuple):
    steps: Steps
    is_atomic: bool
    answer: asyncio.Future[Any]


class CallQueue:
    """Requests that wait.

    A controller that writes one entry after the other asks for a thousand requests a second. So a
    request has no timer and no lock of its own, and answers that come together wake the loop once.

    Args:
        loop: runs who waits for answers.
        wake: makes the thread of the switch call ``run`` soon; called by the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        # Both ends of a deque may be used by two threads at once.
        self._pending: deque[_Call] = deque()
        self._answers: deque[tuple[_Call, Any, Exception | None]] = deque()
        self._current: _Call | None = None
        self._is_telling = False
        self._is_closed = False
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # ── In the loop's thread ──

    def submit(self, steps: Steps, *, is_atomic: bool = False) -> asyncio.Future[Any]:
        """Add a request; its answer may also be DEADLINE_EXCEEDED or UNAVAILABLE.

        Args:
            steps: what to do.
            is_atomic: no packet passes until it is done.

        Raises:
            StatusError: RESOURCE_EXHAUSTED, too many wait; UNAVAILABLE, the switch ends.
        """
        if self._is_closed:
            raise _ends()
        if len(self._pending) >= _MOST_PENDING:
            raise resource_exhausted(f"{_MOST_PENDING} requests wait already; try later")
        answer = self._loop.create_future()
        self._waiting.append((self._loop.time() + _ANSWER_SECONDS, answer))
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._expire)
        self._pending.append(_Call(steps, is_atomic, answer))
        self._wake()
        return answer

    def _tell(self) -> None:
        """Give the answers that there are."""
        self._is_telling = False
        while self._answers:
            call, value, error = self._answers.popleft()
            if call.answer.done():
                continue  # nobody waits any more
            if error is None:
                call.answer.set_result(value)
            else:
                call.answer.set_exception(error)
        self._drop_answered()

    def _drop_answered(self) -> None:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()

    def _expire(self) -> None:
        """Give up those that wait for too long."""
        self._timer = None
        now = self._loop.time()
        for until, answer in self._waiting:
            if until <= now and not answer.done():
                text = f"the switch did not come to it in {_ANSWER_SECONDS:g} s"
                answer.set_exception(StatusError(Code.DEADLINE_EXCEEDED, text))
        self._drop_answered()
        if self._waiting:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._expire)

    # ── In the thread that runs the switch ──

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
        if self._current is not None or self._pending:
            self._wake()

    def close(self) -> None:
        """Refuse those that wait, and all later ones."""
        self._is_closed = True
        if self._current is not None:
            self._answer(self._current, None, _ends())
        while self._pending:
            self._answer(self._pending.popleft(), None, _ends())

    def _next(self) -> _Call | None:
        while self._pending:
            call = self._pending.popleft()
            if not call.answer.done():
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
            self._answer(call, end.value, None)
        except Exception as error:
            self._answer(call, None, error)
        return True

    def _answer(self, call: _Call, value: Any, error: Exception | None) -> None:
        self._answers.append((call, value, error))
        if not self._is_telling:
            self._is_telling = True
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._tell)


def _ends() -> StatusError:
    return StatusError(Code.UNAVAILABLE, "the switch ends")
