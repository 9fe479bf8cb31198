"""Text commands to a running simple_switch, over Thrift or through simple_switch_CLI.

Over Thrift innet runs them itself. simple_switch_CLI is the reference; one keeps running, as its
start takes longer than a thousand commands.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from innet.bmv2.control_plane import ThriftControlPlane
from innet.bmv2.process_commands import PROCESS_COMMANDS
from innet.core.errors import ControlError, StalledError
from innet.switch.control import commands

ANSWER_SECONDS = 60.0
"""Seconds that simple_switch_CLI has to answer a few commands."""

_PROMPT = b"RuntimeCmd: "
_AT_ONCE = 50  # so few that no pipe fills up
_STOP_SECONDS = 5.0


class CommandClient:
    """Runs commands over Thrift.

    Args:
        program: BMv2 JSON of simple_switch's program.
        port: where its control plane listens.
        inside: a context in which to open the connection, such as a network namespace.
        seconds: within which it must be ready.

    Attributes:
        control: its control plane.

    Raises:
        ControlError: simple_switch cannot be reached.
        StalledError: it listens, but is not ready in time.
    """

    def __init__(
        self,
        program: Mapping[str, Any],
        port: int,
        *,
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        with inside():
            self.control = ThriftControlPlane(program, port)
            self.control.wait(seconds)

    def run(self, lines: Sequence[str]) -> list[str]:
        """The output of each command; for a refused one "Error: " and why.

        Raises:
            ControlError: a line is not exactly one command, or the connection is gone.
            StalledError: no answer in time.
        """
        return [self._run(line) for line in lines]

    def _run(self, line: str) -> str:
        _require_command(line)
        name, *words = line.partition("#")[0].split()
        try:
            if name in PROCESS_COMMANDS:
                return PROCESS_COMMANDS[name](self.control, name, words)
            return commands.run(self.control, line)
        except ControlError as error:
            if not self.control.open:
                raise
            return f"Error: {error}"

    def call(self, name: str, *arguments: Any) -> Any:
        """A call of the control plane; see ``ThriftClient.call``."""
        return self.control.client.call(name, *arguments)

    def close(self) -> None:
        self.control.close()


def _require_command(line: str) -> None:
    if not line.split("#", 1)[0].strip() or "\n" in line:
        raise ControlError(f"not one command: {line!r}")


class CliProcess:
    """A simple_switch_CLI that sends commands to the simple_switch that listens at ``port``.

    Args:
        cli: simple_switch_CLI.
        port: where simple_switch's control plane listens.

    Raises:
        StalledError: no answer in ``ANSWER_SECONDS``.
        ControlError: simple_switch_CLI ended; quotes its output.
    """

    def __init__(self, cli: Path, port: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the user's own tool, no shell
            [cli, "--thrift-port", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            self._answers(1, "to start")
        except BaseException:
            self.close()
            raise

    def run(self, lines: Sequence[str]) -> list[str]:
        """Its output for each command. A comment or an empty line is not a command."""
        answers: list[str] = []
        for start in range(0, len(lines), _AT_ONCE):
            part = lines[start : start + _AT_ONCE]
            for line in part:
                _require_command(line)
            text = "".join(f"{line}\n" for line in part)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(text.encode())
                self._process.stdin.flush()
            except BrokenPipeError:
                raise ControlError("simple_switch_CLI has ended.") from None
            answers += self._answers(len(part), f"{len(part)} commands")
        return answers

    def _answers(self, count: int, what: str) -> list[str]:
        """The output before each of the next ``count`` prompts."""
        assert self._process.stdout is not None
        end = time.monotonic() + ANSWER_SECONDS
        output = b""
        while output.count(_PROMPT) < count:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                raise StalledError(
                    f"simple_switch_CLI did not answer {what} in {ANSWER_SECONDS:g} s."
                )
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise ControlError(
                    f"simple_switch_CLI ended: {output.decode(errors='replace').strip()[-500:]}"
                )
            output += read
        return [part.decode(errors="replace") for part in output.split(_PROMPT)[:count]]

    def close(self) -> None:
        self._selector.close()
        self._process.kill()
        self._process.communicate(timeout=_STOP_SECONDS)
