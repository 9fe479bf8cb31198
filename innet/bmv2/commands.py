"""Control commands for a running simple_switch, without simple_switch_CLI.

The same dialect as the built-in switch's (``innet.switch.control.commands``), and the same answers:
commands are checked against the program here, and carried out by calls over Thrift.
"""

from __future__ import annotations

from collections.abc import Sequence

from innet.bmv2 import arrays as _arrays  # noqa: F401 - it registers commands
from innet.bmv2 import profiles as _profiles  # noqa: F401 - likewise
from innet.bmv2 import replication as _replication  # noqa: F401 - likewise
from innet.bmv2 import tables as _tables  # noqa: F401 - likewise
from innet.bmv2.runtime import HANDLERS, Runtime
from innet.core.errors import ControlError, UnknownNameError
from innet.switch.control import commands as _commands  # noqa: F401 - likewise, for their usage
from innet.switch.control.command_table import COMMANDS
from innet.switch.switch import Switch

OF_THE_PROGRAM = ("show_tables", "show_actions", "table_show_actions", "table_info", "show_pvs")
"""Commands whose answer is in the program alone."""

KNOWN = frozenset(HANDLERS) | frozenset(OF_THE_PROGRAM)
"""Commands that need no simple_switch_CLI."""


class RuntimeControl(Runtime):
    """The control plane of one running simple_switch, by commands as text. See ``Runtime``."""

    def command(self, line: str) -> str:
        """Run one command; what it prints.

        Raises:
            ControlError: it was refused, or is known to simple_switch_CLI only.
            StalledError: no answer in time.
        """
        words = line.split("#", 1)[0].split()
        if not words or "\n" in line:
            raise ControlError(f"not one command: {line!r}")
        name, arguments = words[0], words[1:]
        known = COMMANDS.get(name)
        if known is None:
            raise ControlError(str(UnknownNameError("command", name, COMMANDS)))
        handler = HANDLERS.get(name)
        if name not in KNOWN:
            raise ControlError(f"{name} needs simple_switch_CLI on PATH")
        most = len(arguments) if known.most is None else known.most
        if not known.least <= len(arguments) <= most:
            raise ControlError(f"usage: {name} {known.usage}".rstrip())
        if handler is None:
            return Switch(self.program, "interpret").command(line)
        return handler(self, arguments)

    def run(self, lines: Sequence[str]) -> list[str]:
        """What each command prints; "Error: ..." for one that was refused, as simple_switch_CLI."""
        answers = []
        for line in lines:
            if not line.split("#", 1)[0].strip():
                raise ControlError(f"not one command: {line!r}")
            try:
                answers.append(self.command(line))
            except ControlError as error:
                answers.append(f"Error: {error}")
        return answers
