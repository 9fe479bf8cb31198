"""Threads: a parallel map, for kernels that release the GIL; and a guard against concurrent use."""

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
def parallel_map(threads: int) -> Iterator[Map]:
    """A ``map`` that calls in this number of threads; results come in order.

    When the context closes, all calls have returned.
    """
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


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
