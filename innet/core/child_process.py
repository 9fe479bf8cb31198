"""Programs that this process starts, talks with line by line, waits for with a deadline, and ends.

Switches and workers of a Mininet run are such processes, in the namespaces of its nodes, and so is
the switch service that a process group starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innet.core.errors import NetworkError, StalledError

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 5.0
_LAST_CHARACTERS = 600  # characters of a log that a message repeats

PYTHON = sys.executable
"""The interpreter of innet's own programs; ``topo/custom.py`` sets it for ``mn``."""

_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Let the kernel end this process with the thread that has started it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ChildProcess:
    """A program that this process has started.

    Args:
        name: for messages, such as "switch s1".
        command: the program and its arguments.
        log: where standard error goes.
        node: process id of the shell of a Mininet node, in whose namespaces the program runs; None
            for those of this process.
        environment: variables that differ from this process's.
        talks: standard input and output are pipes, for ``write_line`` and ``read_line``; otherwise
            output goes to the log too.
        dies_with_parent: the kernel ends it (PR_SET_PDEATHSIG, prctl(2)) with the thread that
            started it, even where this process is killed and cannot clean up.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        node: int | None = None,
        environment: Mapping[str, str] | None = None,
        talks: bool = True,
        dies_with_parent: bool = True,
    ) -> None:
        self.name = name
        self.log = log
        inside = [] if node is None else ["mnexec", "-a", str(node)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs, no shell
                [*inside, *map(str, command)],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else errors,
                stderr=errors,
                env=os.environ | dict(environment or {}),
                start_new_session=True,  # Ctrl-C is for who started it, who then ends it in order
                # subprocess has no argument for prctl, and Python (3.11 to 3.14) no safer hook. A
                # wrapper that calls prctl and then exec needs one more program for each child.
                # The hook runs in a copy of this process in which only the calling thread goes on,
                # so callers that have other threads pass dies_with_parent=False.
                preexec_fn=die_with_parent if dies_with_parent else None,  # noqa: PLW1509
            )
        self._said = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def fileno(self) -> int:
        """Of its standard output: readable when ``read_line`` has something."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def write_line(self, line: str) -> None:
        """Write a line to its standard input; one that has ended does not hear it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """``write_line`` with a line of JSON."""
        self.write_line(json.dumps(message))

    def read_line(self, deadline: float, what: str) -> str:
        """The next line of its standard output.

        Args:
            deadline: seconds to wait.
            what: is waited for, for the message.

        Raises:
            NetworkError: it ended; says what it said last.
            StalledError: the deadline passed.
        """
        end = time.monotonic() + deadline
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            while b"\n" not in self._said:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise StalledError(f"{self.name} was not {what} within {deadline:g} s.")
                read = os.read(self.fileno(), 1 << 16)
                if not read:
                    raise self.death()
                self._said += read
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    def death(self) -> NetworkError:
        """What to raise where it has ended and should not have."""
        self.wait(_END_SECONDS)
        status = self._process.returncode
        if status is None:
            how = "closed its output"
        elif status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        else:
            how = f"ended with status {status}"
        words = self.log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_CHARACTERS:]
        return NetworkError(f"{self.name} {how}. Its last words: {words or 'none'}")

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most so long; whether it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.running

    def close_input(self) -> None:
        """End its standard input."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def end(self) -> None:
        """End it: by SIGTERM, and by SIGKILL if that does not help."""
        for stop in (self._process.terminate, self._process.kill):
            if self.running:
                stop()
                self._process.send_signal(signal.SIGCONT)  # one that was stopped hears nothing else
                self.wait(_END_SECONDS)
        self._close_pipes()

    def kill(self) -> None:
        """End it by SIGKILL, unless it has ended."""
        if self.running:
            self._process.kill()
            self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        self.close_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
