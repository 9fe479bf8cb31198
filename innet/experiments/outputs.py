"""Can a result be written where it is to go? Asked before hours of work, not after."""

from __future__ import annotations

from pathlib import Path

from innet.errors import InputError


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written. A file that is there stays as it is, none is left new.

    Raises:
        InputError: names the path and what the system said of it.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return  # a pipe or a device: trying it out would be seen at its other end
        new = not path.exists()
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> InputError:
    """What to raise where writing ``path`` failed."""
    return InputError(f"cannot write {path}: {error.strerror or error}.")
