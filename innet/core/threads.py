"""Threads: work of several workers at the same time, as kernels let others run meanwhile; and what
only one thread may do at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from innet.core.errors import StateError

Map = Callable[..., Iterable[Any]]


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def side_by_side(threads: int) -> Iterator[Map]:
    """Something like ``map``, that calls in so many threads; results come in order all the same.

    When the context closes, all calls have returned.
    """
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


class OneAtATime:
    """Refuses what begins while the same is under way, so that this one is not harmed by it.

    To wait would not do: threads come in another order on each worker, and what is summed would be
    of different tensors.

    Args:
        whose: who does one thing at a time.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While the context is open, nobody else gets in.

        Raises:
            StateError: somebody is in.
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
