"""One process at a time, but never for want of a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from innet.core import process_lock as locks
from innet.core.process_lock import process_lock

HOLD = """
import sys, time
from pathlib import Path
from innet.core.process_lock import process_lock
with process_lock(Path(sys.argv[1])):
    print("inside", flush=True)
    sys.stdin.read()
    print(time.monotonic(), flush=True)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """A process inside the lock, until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "inside\n"
    return process


def test_the_second_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    ended = []

    def sleep(seconds: float) -> None:
        if not ended:
            ended.append(process.communicate("")[0])

    monkeypatch.setattr(locks.time, "sleep", sleep)
    with process_lock(path):
        assert time.monotonic() > float(ended[0])
        assert path.exists()
    assert not path.exists()


def test_nobody_waits_for_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    process.kill()
    process.communicate()
    assert path.exists()
    with process_lock(path, patience=0.0):
        assert path.exists()
    assert not path.exists()


def test_nobody_waits_for_long_for_one_that_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    process.send_signal(signal.SIGSTOP)
    with process_lock(path, patience=0.1):
        pass
    assert path.exists()  # it is the other's
    process.send_signal(signal.SIGCONT)
    process.communicate("")
    assert process.returncode == 0


def test_where_there_can_be_no_file_there_is_no_lock(tmp_path: Path) -> None:
    with process_lock(tmp_path / "none" / "lock"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(95, os.strerror(95))

    with monkeypatch.context() as patched:
        patched.setattr(locks.fcntl, "flock", refuse)
        with process_lock(tmp_path / "lock", patience=60.0):
            pass


def test_a_child_that_has_inherited_it_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with process_lock(path):
        links = Path("/proc/self/fd").iterdir()
        (number,) = (int(link.name) for link in links if os.path.realpath(link) == str(path))
        child = subprocess.Popen(["sleep", "60"], pass_fds=[number])
    try:
        with process_lock(path, patience=0.0):
            assert path.exists()
    finally:
        child.kill()
        child.wait()


def test_an_error_inside_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ValueError, match="inside"), process_lock(path):
        raise ValueError("inside")
    with process_lock(path, patience=0.0):
        assert path.exists()
