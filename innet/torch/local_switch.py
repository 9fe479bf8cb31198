"""The switch that a process starts for itself and the others of its machine, and ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from innet.core.errors import NetworkError

# The first start compiles, beside all that a machine may be busy with; a process that ends is
# noticed at once, so that only one that hangs is waited for so long.
START_SECONDS = 300.0
_END_SECONDS = 15.0
_LET_END_SECONDS = 5.0
_lock = threading.Lock()
_companions: list[LocalSwitch] = []


def local_switch() -> LocalSwitch:
    """The one of this process; it is started if there is none, or if it has ended.

    Raises:
        NetworkError: it does not start.
    """
    with _lock:
        if not _companions:
            atexit.register(end)
        for each in [each for each in _companions if not each.runs]:
            _companions.remove(each)
        if not _companions:
            _companions.append(LocalSwitch())
        return _companions[0]


def let_end(address: str) -> None:
    """Wait for the end of the one at an address, if it is this process's, and not for long.

    To its workers it has ended when their connections do; to its parent, a little later.
    """
    with _lock:
        for each in _companions:
            if each.address == address:
                each.let_end()


def end() -> None:
    """End it, once its workers have left."""
    with _lock:
        while _companions:
            _companions.pop().close()


class LocalSwitch:
    """A process that runs ``python -m innet.processes.local_switch``.

    It lives as long as this process does, and a little longer if workers are still connected.

    Attributes:
        address: HOST:PORT, of the loopback interface.
        key: who has it may join.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.key = secrets.token_hex(16)
        with tempfile.TemporaryDirectory(prefix="innet-") as folder:
            errors = Path(folder) / "errors.txt"
            # The key goes in by standard input, which other users cannot see; the process ends
            # when this one closes it, or dies.
            with errors.open("wb") as file:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "innet.processes.local_switch"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env={**os.environ, "INNET_SWITCH": ""},
                    start_new_session=True,  # Ctrl-C is for the workers; they leave first
                )
            try:
                self.address = self._begin()
            except BaseException as error:
                self._process.kill()
                self._process.communicate()
                if not isinstance(error, NetworkError):
                    raise
                said = errors.read_text(errors="replace").strip().splitlines()
                raise NetworkError(f"{error} It said: {said[-1] if said else 'nothing'}") from None

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def let_end(self) -> None:
        """Wait until it has ended, not for long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LET_END_SECONDS)

    def close(self) -> None:
        """End the process. One forked from its parent does not, as the parent still needs it."""
        if os.getpid() != self._owner:
            return
        try:
            self._process.communicate(timeout=_END_SECONDS)  # closes the pipes
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _begin(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(self.key.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise NetworkError("the switch process ended at once.") from None
        until = time.monotonic() + START_SECONDS
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                left = until - time.monotonic()
                if left <= 0:
                    raise NetworkError(
                        f"the switch process did not listen within {START_SECONDS:g} s. Where the "
                        "machine is too busy for it, start one before, with `innet switch serve`, "
                        "and set INNET_SWITCH."
                    )
                if selector.select(left):
                    part = os.read(self._process.stdout.fileno(), 1000)
                    if not part:
                        raise NetworkError("the switch process ended before it listened.")
                    said += part
        return said.decode().strip()
