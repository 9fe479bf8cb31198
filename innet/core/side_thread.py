"""A thread that does one thing again and again, whenever it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from innet.core.errors import StalledError

_STOP_SECONDS = 60.0


class SideThread:
    """Runs ``work`` beside the thread that made it.

    Args:
        what: its name, in errors too.
        work: what it does. It ends by itself or when it is told to, in a way of its own.
        after: called in the thread each time that it has ended.
    """

    def __init__(
        self, what: str, work: Callable[[], None], after: Callable[[], None] = lambda: None
    ) -> None:
        self._what, self._work, self._after = what, work, after
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin the work; the thread is made at the first call."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._what, daemon=True)
            self._thread.start()
        self._go.release()

    def wait(self) -> None:
        """Wait until the work that was begun has ended.

        Raises:
            StalledError: it does not end; or whatever the work raised.
        """
        if not self._done.acquire(timeout=_STOP_SECONDS):
            raise StalledError(f"{self._what} did not stop within {_STOP_SECONDS:g} s.")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread, in which no work goes on."""
        self._is_over = True
        self._go.release()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while self._go.acquire() and not self._is_over:
            try:
                self._work()
            except BaseException as error:  # raised by ``wait``
                self._error = error
            self._done.release()
            self._after()
