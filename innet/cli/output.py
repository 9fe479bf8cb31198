"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from innet.core.files import atomic_write
from innet.core.waiting import PATIENCE, CompileNotice
from innet.reports.console import TableConsole

if os.environ.get("COLUMNS") == "0":  # said by some terminals; Rich would print nothing into it
    del os.environ["COLUMNS"]

# Without emoji: in messages and tables, colons stand around what users wrote, and ":x:" is that.
out = TableConsole(emoji=False)
err = Console(stderr=True, emoji=False)


def say_error(message: str) -> None:
    """One message, as a person should see it."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(message, markup=False, highlight=False, soft_wrap=True)


class TerminalNotice(CompileNotice):
    """Says on a terminal that compiling is what takes so long.

    Args:
        seconds: see ``CompileNotice``.
        console: the terminal. Scripts get the same output on a slow machine as on a fast one.
    """

    def __init__(self, seconds: float = PATIENCE, console: Console = err) -> None:
        super().__init__(lambda text: console.print(text, markup=False), seconds)
        self.is_done = not console.is_terminal


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
