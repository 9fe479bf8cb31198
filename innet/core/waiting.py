"""A process that waits for others says so: once, on the logger ``innet``, which prints it. And a
hook for whoever wants to say that something is compiled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

PATIENCE = 2.0  # seconds
_COMPILING = "Compiling what this machine has not compiled yet (kept for the next time) ..."
_log = logging.getLogger("innet")


class _Hooks:
    """What a command may set.

    Attributes:
        compiling: makes a context for each compilation of what is not on disk yet.
    """

    compiling: Callable[[], AbstractContextManager[None]] = nullcontext


hooks = _Hooks()


class CompileNotice:
    """A ``hooks.compiling`` that says once that compiling is what takes so long.

    Args:
        say: gets the sentence.
        seconds: from the begin of the first compilation; what is quicker is not worth a line.

    Attributes:
        is_done: it was said, or need not be.
    """

    def __init__(self, say: Callable[[str], object], seconds: float = PATIENCE) -> None:
        self.is_done = False
        self._say_it = say
        self._seconds = seconds
        self._since: float | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """While something is compiled that is not on disk yet; may be nested."""
        if self.is_done:
            yield
            return
        if self._since is None:
            self._since = time.monotonic()
        left = self._since + self._seconds - time.monotonic()
        timer = threading.Timer(max(0.0, left), self._say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # nothing is said after the block

    def _say(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._say_it(_COMPILING)


def log_compiling() -> None:
    """Have the logger ``innet`` say that something is compiled, unless a command says it."""
    if hooks.compiling is nullcontext:
        hooks.compiling = CompileNotice(_log.warning)


class WaitNotice:
    """Says what is waited for, if that takes longer than ``PATIENCE`` seconds.

    Args:
        what: a sentence without its full stop; asked for when it is said.
    """

    def __init__(self, what: Callable[[], str]) -> None:
        self._what = what
        self._at: float | None = time.monotonic() + PATIENCE

    def next_check(self, until: float) -> float:
        """When to call ``check`` at the latest, by ``time.monotonic``; at most ``until``."""
        return until if self._at is None else min(until, self._at)

    def check(self) -> None:
        """To be called now and then while nothing comes."""
        if self._at is not None and time.monotonic() >= self._at:
            self._at = None
            _log.warning("%s ...", self._what())
