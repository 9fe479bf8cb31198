"""Programs in the namespaces of Mininet's nodes: started, waited for with a deadline, and ended.

Each dies with the process that started it, even where that one is killed and cannot clean up: the
kernel sees to it (PR_SET_PDEATHSIG, prctl(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from innet.core.errors import NetworkError, StalledError

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 5.0
_LAST_WORDS = 600  # characters of a log that a message repeats

PYTHON = sys.executable
"""The interpreter of innet's own programs; ``topo.custom`` sets it for ``mn``."""

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class NodeProcess:
    """One program in a node's namespaces.

    Args:
        name: for messages, such as "switch s1".
        node: process id of the node's shell; None for this process's own namespaces.
        command: the program and its arguments.
        log: where standard error goes.
        environment: variables that differ from this process's.
        talks: standard input and output are pipes, for ``tell`` and ``hear``; otherwise output
            goes to the log too.
    """

    def __init__(
        self,
        name: str,
        node: int | None,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        talks: bool = True,
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
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        self._said = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def fileno(self) -> int:
        """Of its standard output: readable when ``hear`` has something."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def tell(self, line: str) -> None:
        """Write a line to its standard input; one that has ended does not hear it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def hear(self, deadline: float, what: str) -> str:
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

    def heard(self) -> str | None:
        """A line that has come, without waiting for more than the rest of it; None at the end."""
        if b"\n" in self._said or self._readable():
            try:
                return self.hear(_END_SECONDS, "to end its line")
            except NetworkError:
                return None
        return ""

    def _readable(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def death(self) -> NetworkError:
        """What to raise where it has ended and should not have."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        status = self._process.returncode
        if status is None:
            how = "closed its output"
        elif status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        else:
            how = f"ended with status {status}"
        words = self.log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]
        return NetworkError(f"{self.name} {how}. Its last words: {words or 'none'}")

    def end(self) -> None:
        """End it: by SIGTERM, and by SIGKILL if that does not help."""
        for stop in (self._process.terminate, self._process.kill):
            if self.running:
                stop()
                self._process.send_signal(signal.SIGCONT)  # one that was stopped hears nothing else
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
