"""Threads: for kernels that release the GIL, a parallel map and work in parts on cores that others
leave idle; and a guard against concurrent use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from innet.core.errors import StateError

Map = Callable[..., Iterable[Any]]

_idle: ContextVar[int] = ContextVar("idle", default=1)


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def parallel_map(threads: int) -> Iterator[Map]:
    """A ``map`` that calls in this number of threads; results come in order.

    When the context closes, all calls have returned.
    """
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


@contextmanager
def while_others_wait(others: int) -> Iterator[None]:
    """In this context have ``in_parts`` use the cores of so many processes that wait for it."""
    token = _idle.set(min(cores(), 1 + others))
    try:
        yield
    finally:
        _idle.reset(token)


def in_parts(work: Callable[[int, int], object], size: int, step: int) -> None:
    """Call ``work(begin, end)`` for all of 0 .. size, in as many parts as there are idle cores.

    Args:
        work: what releases the GIL, and whose parts are independent of each other.
        size: where the last part ends.
        step: all parts but the last have a multiple of this size.
    """
    parts = min(_idle.get(), -(-size // step))
    if parts <= 1:
        work(0, size)
        return
    each = -(-size // (parts * step)) * step
    others = [
        _helpers().submit(work, begin, min(begin + each, size)) for begin in range(each, size, each)
    ]
    try:
        work(0, each)  # here, so that one thread less is woken
    finally:
        wait(others)  # they use the same arrays
    for other in others:
        other.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads for parts. They are kept: to start one takes as long as a part of a millisecond."""
    return ThreadPoolExecutor(cores(), "innet-part")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a child has no threads


class ExclusiveUse:
    """Refuses a call while another one is under way in another thread.

    Waiting would not do: threads come in another order on each worker, and different tensors would
    be summed.

    Args:
        whose: the owner of the calls, for the message.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While the context is open, no other may be opened.

        Raises:
            StateError: one is open.
        """
        if not self._lock.acquire(blocking=False):
            raise StateError(
                f"an all-reduce of {self._whose} is under way, in another thread; begin the next "
                "one when that one has returned."
            )
        try:
            yield
        finally:
            self._lock.release()
