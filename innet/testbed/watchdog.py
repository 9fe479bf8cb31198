"""A limit to the real time of a run, which also ends Python that does not return."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from innet.core.errors import StalledError

_LOOKS = 0.1  # seconds between them
_HERE = str(Path(__file__).parent)


class OutOfTimeError(StalledError):
    """A run took too long; the watchdog says why."""


class Watchdog:
    """Raises ``OutOfTimeError`` in the thread that made it, while the context is open.

    Args:
        limit: seconds for all.
        step: seconds for what runs between two changes of ``progress()``, where that is not None.
        progress: what runs, and how far it is; None: nothing that could be stuck.

    Attributes:
        why: why it raised.
    """

    def __init__(
        self, limit: float, step: float, progress: Callable[[], tuple[str, int] | None]
    ) -> None:
        self.why = ""
        self._limit, self._step, self._progress = limit, step, progress
        self._thread = threading.get_ident()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._watch, name="innet-watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._over.set()
        if self.why and kind is not OutOfTimeError:
            time.sleep(1)  # it was raised, and comes here

    def _watch(self) -> None:
        begun = since = time.monotonic()
        before: tuple[str, int] | None = None
        while not self._over.wait(_LOOKS):
            now, progress = time.monotonic(), self._progress()
            if progress is None or progress != before:
                before, since = progress, now
            if progress is not None and now - since > self._step:
                self._raise(
                    f"{progress[0]} does not yield: {self._line()}; it ran for {now - since:.1f} s"
                )
                return
            if now - begun > self._limit:
                self._raise(f"it did not end in {self._limit:g} s of real time")
                return

    def _line(self) -> str:
        """Which line of others' code the thread is at."""
        frame: FrameType | None = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        return "nowhere" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _raise(self, why: str) -> None:
        with self._lock:
            if not self._over.is_set():
                self.why = why
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(OutOfTimeError)
                )
