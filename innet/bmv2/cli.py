"""A simple_switch_CLI that stays: its start takes longer than a thousand commands."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from innet.core.errors import ControlError, StalledError

ANSWER_SECONDS = 60.0
"""How long the answer to some commands may take."""

_PROMPT = b"RuntimeCmd: "
_AT_ONCE = 50  # so few that neither side waits for the other to read
_STOP_SECONDS = 5.0


class ControlClient:
    """Sends commands to the simple_switch that listens at ``port``.

    Args:
        cli: simple_switch_CLI.
        port: where simple_switch's control plane listens.
        prefix: what to start it with, such as a program that enters a network namespace.

    Raises:
        StalledError: no answer in ``ANSWER_SECONDS``.
        ControlError: simple_switch_CLI ended; says what it said.
    """

    def __init__(self, cli: Path, port: int, prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the user's own tool, no shell
            [*prefix, cli, "--thrift-port", str(port)],
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
        """What it prints for each command. A comment or an empty line is no command."""
        answers: list[str] = []
        for start in range(0, len(lines), _AT_ONCE):
            part = lines[start : start + _AT_ONCE]
            for line in part:
                if not line.split("#", 1)[0].strip() or "\n" in line:
                    raise ControlError(f"not one command: {line!r}")
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
        """What stands before each of the next ``count`` prompts."""
        assert self._process.stdout is not None
        end = time.monotonic() + ANSWER_SECONDS
        said = b""
        while said.count(_PROMPT) < count:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                raise StalledError(
                    f"simple_switch_CLI did not answer {what} in {ANSWER_SECONDS:g} s."
                )
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise ControlError(
                    f"simple_switch_CLI ended: {said.decode(errors='replace').strip()[-500:]}"
                )
            said += read
        return [part.decode(errors="replace") for part in said.split(_PROMPT)[:count]]

    def close(self) -> None:
        self._selector.close()
        self._process.kill()
        self._process.communicate(timeout=_STOP_SECONDS)
