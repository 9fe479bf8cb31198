"""Decoding once for all workers of a process or a machine, which have received the same words."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from innet.kernels.arrays import Ints

Arrays = tuple[Ints, ...]
_MOST = 64  # decoded words of which some worker has not asked: codecs by layer have many at a time


class Decoding(Protocol):
    """What workers share to decode equal words once."""

    def __call__(
        self,
        how: Hashable,
        words: Arrays,
        decode: Callable[[], Arrays],
        valid: Callable[[Arrays], bool],
    ) -> Arrays:
        """What ``decode()`` returns for ``words``: arrays that the caller may change.

        Args:
            how: all that the result depends on besides the words.
            words: received ones, which may change after the call.
            decode: computes it.
            valid: whether arrays that another process has written have the form of a result.
        """


_current: ContextVar[Decoding | None] = ContextVar("decoding", default=None)


@contextlib.contextmanager
def decoding_by(decoding: Decoding | None) -> Iterator[None]:
    """Have codecs that are not made for a ``Decoding`` use this one, in this context."""
    token = _current.set(decoding)
    try:
        yield
    finally:
        _current.reset(token)


def current_decoding() -> Decoding | None:
    """What ``decoding_by`` has set."""
    return _current.get()


class DecodeOnce:
    """Keeps what one worker has decoded until all others have asked for it.

    Workers get equal words from the network and so decode them to equal results. A worker whose
    words differ in any bit decodes them itself. So results are those of each worker by itself,
    whatever went wrong before. May be used by several threads.

    Args:
        workers: how many ask.

    Attributes:
        saved: how often a result was already there.
    """

    def __init__(self, workers: int) -> None:
        self.saved = 0
        self._workers = workers
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[Arrays, Arrays, int]] = {}

    def __call__(
        self,
        how: Hashable,
        words: Arrays,
        decode: Callable[[], Arrays],
        valid: Callable[[Arrays], bool] = lambda _: True,  # noqa: ARG002 - nobody else writes here
    ) -> Arrays:
        """See ``Decoding``."""
        with self._lock:
            if how in self._known:
                seen, found, left = self._known.pop(how)
                if all(map(np.array_equal, seen, words)):
                    self.saved += 1
                    if left > 1:
                        self._known[how] = seen, found, left - 1
                        found = _copies(found)
                    return found
            found = decode()
            if self._workers > 1:
                self._known[how] = _copies(words), _copies(found), self._workers - 1
                while len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]
            return found


def _copies(arrays: Arrays) -> Arrays:
    return tuple(each.copy() for each in arrays)
