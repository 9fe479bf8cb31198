"""A process that waits for others says so: once, on the logger ``innet``, which prints it. And a
hook for whoever wants to say that something is compiled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

PATIENCE = 2.0  # seconds
_log = logging.getLogger("innet")


class _Hooks:
    """What a command may set.

    Attributes:
        compiling: makes a context for each compilation of what is not on disk yet.
    """

    compiling: Callable[[], AbstractContextManager[None]] = nullcontext


hooks = _Hooks()


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
