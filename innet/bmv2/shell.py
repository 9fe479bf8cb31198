"""A command line for a running switch that serves Thrift: ours, or a real simple_switch.

It asks the switch for its program, and reads the commands of simple_switch_CLI from standard input:
in a terminal with completion and history.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import readline
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from innet.bmv2 import dumps
from innet.bmv2.control_plane import ThriftControlPlane
from innet.bmv2.process_commands import PROCESS_COMMANDS
from innet.bmv2.thrift_client import ThriftClient
from innet.core.errors import InnetError
from innet.switch.control import commands
from innet.switch.control.control_plane import ControlPlane

PROMPT = "RuntimeCmd: "
_ENDS = {"EOF", "exit", "quit"}


NAMES = sorted([*commands.COMMANDS, *PROCESS_COMMANDS, "shell"])
"""All commands."""


class Completion:
    """Completes commands, and the names that they take, for ``readline``."""

    def __init__(self, control: ControlPlane) -> None:
        program = control.program
        self._commands = NAMES
        self._names = {
            "TABLE": sorted(each.name for each in program.tables),
            "ACTION": sorted(each.name for each in program.actions),
            "REGISTER": sorted(each.name for each in program.registers),
            "COUNTER": sorted(each.name for each in program.counters),
            "METER": sorted(each.name for each in program.meters),
            "PROFILE": sorted(each.name for each in program.action_profiles),
        }
        self._found: list[str] = []

    def of(self, line: str, word: str) -> list[str]:
        """What ``word`` may become, the last one of ``line``, which is the text until there."""
        before = line[: len(line) - len(word)].split()
        if not before:
            possible = self._commands
        else:
            found = commands.COMMANDS.get(before[0])
            usage = "" if found is None else found.usage.replace("[", "").replace("]", "")
            wanted = usage.split()
            place = len(before) - 1
            if before[0] == "help":
                possible = self._commands
            else:
                possible = self._names.get(wanted[place], []) if place < len(wanted) else []
        return [each for each in possible if each.startswith(word)]

    def __call__(self, word: str, state: int) -> str | None:
        if state == 0:
            self._found = self.of(readline.get_line_buffer()[: readline.get_endidx()], word)
        return self._found[state] + " " if state < len(self._found) else None


def run(host: str, port: int, lines: Iterable[str] | None = None) -> int:
    """Read commands until they end, and print what they answer; how many were refused.

    Args:
        host: where the switch is.
        port: where its control plane listens.
        lines: the commands; by default those of the standard input.

    Raises:
        ControlError: nothing listens there.
    """
    control = connect(host, port)
    refused = 0
    try:
        for line in _typed(control) if lines is None else lines:
            if line.strip() in _ENDS:
                break
            try:
                answer = _run(control, line)
                if line.split()[:1] == ["swap_configs"]:  # names are those of its program now
                    control.close()
                    control = connect(host, port)
            except InnetError as error:
                refused += 1
                print(f"Error: {error}")
                if not control.open:
                    raise
                continue
            if answer:
                print(answer)
    finally:
        control.close()
    return refused


def _run(control: ThriftControlPlane, line: str) -> str:
    """What a command answers; ControlError where it is refused."""
    name, _, rest = line.strip().partition(" ")
    words = rest.partition("#")[0].split()
    if name == "shell" or name.startswith("!"):
        command = rest if name == "shell" else line.strip()[1:]
        found = subprocess.run(  # noqa: S602 - as the user typed it
            command, shell=True, text=True, capture_output=True, check=False
        )
        return (found.stdout + found.stderr).rstrip("\n")
    if name in PROCESS_COMMANDS:
        return PROCESS_COMMANDS[name](control, name, words)
    if name == "help" and not words:
        own = [f"{name} {each.usage}".rstrip() for name, each in PROCESS_COMMANDS.items()]
        return "\n".join([commands.run(control, line), *own, "shell COMMAND"])
    if name == "help" and words[0] in PROCESS_COMMANDS:
        found_command = PROCESS_COMMANDS[words[0]]
        return f"{words[0]} {found_command.usage}".rstrip() + f"\n  {found_command.help}"
    printed = dumps.dump(control, name, words)
    return commands.run(control, line) if printed is None else printed


def connect(host: str, port: int) -> ThriftControlPlane:
    """The control plane of the switch that listens at a port; the switch tells its program."""
    client = ThriftClient(port, host=host)
    try:
        program: dict[str, Any] = json.loads(client.call("bm_get_config"))
    finally:
        client.close()
    return ThriftControlPlane(program, port, host)


def _typed(control: ControlPlane) -> Iterable[str]:
    """Lines of the standard input, until it ends."""
    if sys.stdin.isatty():
        _prepare_terminal(control)
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return


def _prepare_terminal(control: ControlPlane) -> None:
    history = Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser()
    history = history / "innet" / "switch-cli"
    with contextlib.suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        if history.exists():
            readline.read_history_file(history)
        readline.set_history_length(1000)
        atexit.register(_save, history)
    readline.set_completer_delims(" \t\n")
    readline.set_completer(Completion(control))
    readline.parse_and_bind("tab: complete")


def _save(history: Path) -> None:
    with contextlib.suppress(OSError):
        readline.write_history_file(history)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as simple_switch_CLI, with its options, and without what the rest of innet's command line
    takes time to import; the exit status.
    """
    parser = argparse.ArgumentParser(
        prog="simple_switch_CLI", description="Commands to a running switch, from standard input."
    )
    parser.add_argument("--thrift-port", type=int, default=9090, help="of the switch (9090)")
    parser.add_argument("--thrift-ip", default="localhost", help="where it is (localhost)")
    parser.add_argument("--json", metavar="FILE", help="taken; the switch tells its program")
    parser.add_argument("--pre", metavar="KIND", help="taken; multicast is that of simple_switch")
    options = parser.parse_args(arguments)
    try:
        run(options.thrift_ip, options.thrift_port)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
