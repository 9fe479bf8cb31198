"""One process at a time: what all would compile, one compiles, and the others find it on disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 60.0
"""Seconds after which a process waits no longer: the one inside may have been stopped."""

_POLL = 0.02  # seconds


@contextlib.contextmanager
def process_lock(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Wait until no other process is inside the lock at ``path``.

    The lock saves work and protects nothing: after ``patience`` seconds, and where there can be no
    file at ``path``, the body runs without it. A process that ends leaves its locks. The same
    process must not enter twice.
    """
    descriptor = _lock(path, patience)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for processes forked meanwhile
            os.close(descriptor)


def _lock(path: Path, patience: float) -> int | None:
    """The descriptor that holds the lock; None without it."""
    end = time.monotonic() + patience
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who held it may have removed the file since it was opened here.
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:  # the file system has no locks
            os.close(descriptor)
            return None
        os.close(descriptor)
        if time.monotonic() > end:
            return None
        time.sleep(_POLL)
