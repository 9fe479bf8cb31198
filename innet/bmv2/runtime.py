"""A running simple_switch and the names of its program: what handlers of commands work with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from innet.bmv2.thrift_client import Client
from innet.core.errors import ControlError, StalledError
from innet.switch import ir
from innet.switch.control.command_table import Arguments
from innet.switch.control.names import Names
from innet.switch.frontend.loader import load_program

_CONTEXT = 0
_PAUSE = 0.01  # seconds between two looks
_ONE_OF_EACH_SERVICE: tuple[tuple[Any, ...], ...] = (
    ("bm_register_read_all", _CONTEXT, ""),
    ("bm_mc_get_entries", _CONTEXT),
    ("get_time_elapsed_us",),
)
Handler = Callable[["Runtime", Arguments], str]
HANDLERS: dict[str, Handler] = {}
"""By the commands' names: modules that have some register them here."""


def command(name: str) -> Callable[[Handler], Handler]:
    """Register a handler under the name of its command."""

    def register(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return register


class Runtime:
    """The control plane of one running simple_switch.

    Args:
        program: BMv2 JSON of what it runs.
        port: where its control plane listens; see ``Client``.

    Raises:
        ControlError: nothing listens there.
    """

    def __init__(self, program: Mapping[str, Any], port: int) -> None:
        self.program = program_ = load_program(program)
        self._client = Client(port)
        self.tables = Names("table", (each.name for each in program_.tables))
        self.registers = Names("register", (each.name for each in program_.registers))
        self.counters = Names("counter", (each.name for each in program_.counters))
        profiles = program_.action_profiles
        self.profiles = Names("action profile", (each.name for each in profiles))
        self.meters = Names("meter", (each.name for each in program_.meters))
        self.value_sets = Names("parser value set", (each.name for each in program_.value_sets))
        self.calculations = Names("calculation", (each.name for each in program_.calculations))

    def call(self, name: str, *arguments: Any) -> Any:
        """One call; see ``Client.call``."""
        return self._client.call(name, *arguments)

    def standard(self, name: str, *arguments: Any) -> Any:
        """One call that names a context."""
        return self._client.call(name, _CONTEXT, *arguments)

    def wait(self, seconds: float = 20.0) -> None:
        """Until all services are there: simple_switch listens before it has registered the last.

        Connections are opened where this is called, as the first was.

        Raises:
            StalledError: they were not within ``seconds``.
            ControlError: the connection is gone.
        """
        end = time.monotonic() + seconds
        for name, *arguments in _ONE_OF_EACH_SERVICE:
            while not self._offers(name, *arguments):
                if time.monotonic() > end:
                    raise StalledError(
                        f"simple_switch did not offer all of its services within {seconds:g} s."
                    )
                time.sleep(_PAUSE)

    def _offers(self, name: str, *arguments: Any) -> bool:
        """Whether a call, which may be refused, finds its service."""
        try:
            self.call(name, *arguments)
        except ControlError as error:
            if "Unknown service" in str(error):
                self._client.connect()  # the server ends a connection that asks so
                return False
            if not self._client.open:
                raise
        return True

    def close(self) -> None:
        self._client.close()

    def table(self, name: str) -> ir.Table:
        """The program's table of this name."""
        return self.program.tables[self.tables.find(name)]
