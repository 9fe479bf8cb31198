"""Which way commands take to a running simple_switch: Thrift's library, or simple_switch_CLI."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from innet.bmv2.cli import ControlClient
from innet.core.errors import MissingToolError

_REMEDY = (
    "Install Thrift's library (pip install 'innet[bmv2]'), or BMv2 with its simple_switch_CLI on "
    "PATH."
)


class Control(Protocol):
    """Takes commands to a running simple_switch."""

    def run(self, lines: Sequence[str]) -> list[str]:
        """What is printed for each command; an error for one that was refused."""

    def close(self) -> None: ...


def has_thrift() -> bool:
    """Whether Thrift's library is installed."""
    return importlib.util.find_spec("thrift") is not None


class Controls:
    """Commands go by Thrift where its library is there; else, and what only it knows, by the CLI.

    Args:
        program: BMv2 JSON of what simple_switch runs.
        port: where its control plane listens.
        cli: simple_switch_CLI, if it is there.
        inside: in which to open a connection, such as a network namespace.
        prefix: what to start simple_switch_CLI with, likewise.

    Raises:
        MissingToolError: neither is installed.
        ControlError: simple_switch cannot be reached.
        StalledError: it listens, but is not ready in time.
    """

    def __init__(
        self,
        program: Mapping[str, Any],
        port: int,
        cli: Path | None,
        *,
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
        prefix: Sequence[str] = (),
    ) -> None:
        self._tool, self._port, self._prefix = cli, port, prefix
        self._cli: ControlClient | None = None
        self._runtime: Control | None = None
        self._known: frozenset[str] = frozenset()
        if has_thrift():
            from innet.bmv2.commands import (  # noqa: PLC0415 - it needs Thrift's library
                KNOWN,
                RuntimeControl,
            )

            with inside():
                self._runtime = runtime = RuntimeControl(program, port)
                runtime.wait()
            self._known = KNOWN
        elif cli is None:
            raise MissingToolError("simple_switch_CLI", "the control plane of BMv2", _REMEDY)

    def run(self, lines: Sequence[str]) -> list[str]:
        """See ``Control``.

        Raises:
            ControlError: the connection is gone.
            StalledError: no answer in time.
        """
        return [self._way(line).run([line])[0] for line in lines]

    def close(self) -> None:
        for each in (self._runtime, self._cli):
            if each is not None:
                each.close()

    def _way(self, line: str) -> Control:
        words = line.split()
        if self._runtime is not None and words and words[0] in self._known:
            return self._runtime
        if self._cli is None and self._tool is not None:
            self._cli = ControlClient(self._tool, self._port, self._prefix)
        found = self._cli or self._runtime
        assert found is not None
        return found
