"""Files that are written whole or not at all, and why there is none to read."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from innet.core.errors import OutputError


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Where to write what is to be at ``path``: a file beside it that takes its place at the end.

    A reader never sees half of it. After an error or an interruption nothing new is left, and what
    was there before still is. Of two processes that write the same file the later one wins.

    A device, a pipe and what a link leads to are written themselves, and so is a file in a folder
    that takes no new ones.

    Raises:
        OutputError: it cannot be written; says why.
    """
    path = Path(path)
    try:
        known = path.exists()
        replaceable = path.is_file() and os.access(path.parent, os.W_OK)
        if path.is_symlink() or (known and not replaceable):
            yield path
            return
        beside = path.with_name(f".innet-{secrets.token_hex(8)}.part")
        try:
            yield beside
            if known:
                shutil.copymode(path, beside)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError.of(path, error) from None


def missing(path: str | Path) -> str | None:
    """Why there is no file to read at ``path``, such as "no such file"; None where there is one."""
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except (OSError, ValueError) as error:  # a folder that is closed, a name that none can have
        return (getattr(error, "strerror", None) or str(error)).lower()
    return None if stat.S_ISREG(mode) else "not a file"
