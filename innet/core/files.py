"""Files are written completely or not at all; TOML files; and why a file cannot be read."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from innet.core.errors import ConfigError, OutputError


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Write a file atomically: a temporary file beside ``path`` replaces it at the end.

    A reader never sees half of the file. After an error or an interruption the old file is still
    there, and nothing else. Of two processes that write the same file the later one wins.

    Devices, pipes and the targets of links are written directly, and so is a file in a folder that
    takes no new files.

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


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file, unchecked.

    Raises:
        ConfigError: the file cannot be read, or is not TOML (with the line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except RecursionError:
        raise ConfigError(f"{path} is no valid TOML: it is nested too deeply.") from None
    except tomllib.TOMLDecodeError as error:
        # The message ends in "(at line 3, column 7)".
        raise ConfigError(f"{path} is no valid TOML: {error}.") from None
