"""Coroutines in simulated time: a node runs its tasks one after the other, and none at once.

An ``await`` is a point where simulated time passes; there is no asyncio here, and no time passes
anywhere else. SimPy's processes and trio's clock that jumps are the models.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from innet.core.errors import InputError, StateError
from innet.core.numbers import is_real
from innet.sim.network import SECOND

FOREVER = 1 << 62  # picoseconds
_LONGEST = 1e6  # seconds of a wait
_NO_ASYNCIO = "asyncio has no part in simulated time: await host.sleep(seconds) lets it pass."


def ticks_of(seconds: float, what: str) -> int:
    """Seconds as picoseconds. More than 0 is at least one: who waits for the rest of a time,
    which floats round, then does not wait for ever.

    Raises:
        InputError: no time from 0 to 1e6 s; ``what`` names it.
    """
    if not is_real(seconds) or not 0 <= seconds <= _LONGEST:
        raise InputError(f"{what} is {seconds!r}; give seconds, from 0 to {_LONGEST:g}.")
    return max(round(seconds * SECOND), int(seconds > 0))


def shown(ticks: int) -> str:
    """A time as errors name it, such as "12.5 us"."""
    for unit, size in (("s", SECOND), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if ticks >= size:
            return f"{ticks / size:.12g} {unit}"
    return f"{ticks} ps"


class _Suspension:
    """What a task that waits awaits; its value is that with which it goes on."""

    __slots__ = ()

    def __await__(self) -> Generator[None, Any, Any]:
        return (yield)


suspended: Awaitable[Any] = _Suspension()


class HostTask:
    """A coroutine of a host or a controller.

    Attributes:
        name: of its function.
        node: whose it is.
        done: it has returned or failed.
    """

    def __init__(self, node: BedNode, begin: Callable[[], Any], name: str, *, serves: bool) -> None:
        self.name = name
        self.node = node
        self.done = False
        self._begin = begin
        self._coroutine: Coroutine[Any, Any, Any] | None = None  # it has not begun
        self._serves = serves  # for ever: nobody waits for it
        self._result: Any = None
        self._joined: list[HostTask] = []
        self._waits_since = 0

    def result(self) -> Any:
        """What the coroutine returned.

        Raises:
            StateError: it has not returned yet.
        """
        if not self.done:
            raise StateError(f"{self} has not returned yet: let time pass by run().")
        return self._result

    def __await__(self) -> Generator[Any, Any, Any]:
        """Another task of the same node waits until this one is done, and gets its result."""
        if not self.done:
            self._joined.append(self.node.current)
            yield from suspended.__await__()
        return self._result

    def step(self, value: Any = None) -> None:
        """Let it go on with ``value`` until it waits again."""
        node = self.node
        node.steps += 1
        before, node._current = node._current, self
        if self._coroutine is None:
            self._coroutine = self._begin()
        try:
            self._coroutine.send(value)
        except StopIteration as stop:
            self.done, self._result = True, stop.value
            node._finished(self)
        except BaseException as error:
            self.done = True
            error.add_note(f"in {self}, after {shown(node.ticks)} of simulated time")
            if isinstance(error, RuntimeError) and "no running event loop" in str(error):
                error.add_note(_NO_ASYNCIO)
            raise
        else:
            self._waits_since = node.ticks
        finally:
            node._current = before
        if self.done:
            for task in self._joined:
                node.wake_at(node.ticks, task)
            self._joined.clear()

    def close(self) -> None:
        """End it where it waits."""
        if not self.done and self._coroutine is not None and self.node._current is not self:
            self._coroutine.close()

    def where(self) -> str:
        """What it waits for: the line, and since when."""
        at: Any = self._coroutine
        if at is None:
            return f"{self} has not begun"
        place = ""
        while at is not None and getattr(at, "cr_frame", None) is not None:
            code = at.cr_frame.f_code
            if "/innet/testbed/" not in code.co_filename.replace("\\", "/"):
                place = f"{code.co_filename}:{at.cr_frame.f_lineno}"
            what = code.co_name
            at = at.cr_await
        return f"{self} waits in {what}() since {shown(self._waits_since)}, at {place}"

    def __str__(self) -> str:
        return f"{self.name} of {self.node.name}"


class BedTimer:
    """A call at a time, which may be cancelled until then."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It does not happen."""
        self.call = None


class BedNode:
    """What has tasks in simulated time.

    Attributes:
        name: of the node.
        ticks: the time there, picoseconds.
        steps: how often one of its tasks has gone on.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ticks = self.steps = 0
        self._current: HostTask | None = None
        self._tasks: list[HostTask] = []
        self._left = 0  # tasks that the network waits for
        self._timers: list[tuple[int, int, BedTimer]] = []
        self._serial = itertools.count()

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.ticks / SECOND

    @property
    def tasks(self) -> list[HostTask]:
        """All of its tasks, those that are done, too."""
        return self._tasks

    @property
    def current(self) -> HostTask:
        """The task that runs.

        Raises:
            StateError: none does.
        """
        if self._current is None:
            raise StateError(
                f"await something of {self.name} in a coroutine of {self.name} only: in one that "
                f"@{self.name}.run began."
            )
        return self._current

    def start(self, function: Callable[..., Any], *arguments: Any) -> HostTask:
        """Begin another coroutine of this node now; it runs when the running one waits.

        Args:
            function: an ``async def``.
            arguments: those that it is called with.
        """
        return self._begin(function, arguments, serves=False)

    def run(self, function: Callable[..., Any]) -> HostTask:
        """Let an ``async def`` without arguments begin at time 0. ``Testbed.run`` waits for it."""
        return self._begin(function, (), serves=False)

    def serve(self, function: Callable[..., Any]) -> HostTask:
        """As ``run``, for what answers for ever: ``Testbed.run`` does not wait for it."""
        return self._begin(function, (), serves=True)

    def _begin(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], *, serves: bool
    ) -> HostTask:
        if not inspect.iscoroutinefunction(function):
            name = getattr(function, "__name__", repr(function))
            raise InputError(f"{name} of {self.name} is no coroutine; write async def {name}.")
        name = getattr(function, "__name__", "a coroutine")
        task = HostTask(self, lambda: function(*arguments), name, serves=serves)
        self._tasks.append(task)
        self._left += not serves
        self.wake_at(self.ticks, task)
        return task

    def _finished(self, task: HostTask) -> None:
        self._left -= not task._serves

    @property
    def done(self) -> bool:
        """Whether all of its tasks that somebody waits for are."""
        return self._left == 0

    async def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        await self.sleep_until((self.ticks + ticks_of(seconds, "a sleep")) / SECOND)

    async def sleep_until(self, seconds: float) -> None:
        """Let simulated time pass up to a time; none if it is over."""
        until = max(self.ticks, ticks_of(seconds, "a time to sleep until"))
        self.wake_at(until, self.current)
        await suspended

    def at(self, seconds: float, call: Callable[[], None]) -> BedTimer:
        """Call a function at a time.

        Raises:
            InputError: the time is over.
        """
        ticks = ticks_of(seconds, "a time")
        if ticks < self.ticks:
            raise InputError(
                f"{self.name} has the time {shown(self.ticks)}, and {shown(ticks)} is over."
            )
        return self._at(ticks, call)

    def wake_at(self, ticks: int, task: HostTask, value: Any = None) -> BedTimer:
        """Let a task go on at a time."""
        return self._at(ticks, lambda: task.step(value))

    def _at(self, ticks: int, call: Callable[[], None]) -> BedTimer:
        timer = BedTimer(call)
        heapq.heappush(self._timers, (ticks, next(self._serial), timer))
        return timer

    def _next_timer(self) -> int:
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else FOREVER

    def _run_timer(self) -> None:
        """Do what is due first."""
        ticks, _, timer = heapq.heappop(self._timers)
        if timer.call is not None:
            self.ticks = ticks
            timer.call()

    def close(self) -> None:
        """End all tasks where they wait."""
        for task in self._tasks:
            task.close()


def waiting(nodes: list[BedNode]) -> list[str]:
    """Who waits for what."""
    return [
        task.where() for node in nodes for task in node.tasks if not task.done and not task._serves
    ]


__all__ = ["FOREVER", "BedNode", "BedTimer", "HostTask", "shown", "suspended", "ticks_of"]
