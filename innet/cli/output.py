"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from innet.core.files import atomic_write

if os.environ.get("COLUMNS") == "0":  # said by some terminals; Rich would print nothing into it
    del os.environ["COLUMNS"]

# Without emoji: in messages and tables, colons stand around what users wrote, and ":x:" is that.
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


_COMPILING = "Compiling what this machine has not compiled yet (kept for the next time) ..."


def say_error(message: str) -> None:
    """One message, as a person should see it."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(message, markup=False, highlight=False, soft_wrap=True)


class CompileNotice:
    """Says once on a terminal that compiling is what takes so long.

    Args:
        seconds: from the begin of the first compilation; what is quicker is not worth a line.
        console: the terminal. Scripts get the same output on a slow machine as on a fast one.
    """

    def __init__(self, seconds: float = 2.0, console: Console = err) -> None:
        self._seconds = seconds
        self._console = console
        self._since: float | None = None
        self._is_done = not console.is_terminal  # or about to be said

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """While something is compiled that is not on disk yet; may be nested."""
        if self._is_done:
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
            timer.join()  # nothing is printed after the block

    def _say(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._console.print(_COMPILING, markup=False)


def say_json(document: Any) -> None:
    """A document for programs: nothing else goes to standard output then."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))


def write_text(path: Path, text: str) -> None:
    """Write a file; InputError when it cannot be written."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _finite(document: Any) -> Any:
    """``document`` with null for numbers that JSON has no word for (RFC 8259, section 6)."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, dict):
        return {key: _finite(value) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [_finite(value) for value in document]
    return document
