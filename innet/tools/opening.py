"""Files that all tools take: compiled programs and lists of commands."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

from innet import programs
from innet.errors import ControlError, InputError, UnknownNameError
from innet.switch import EngineName, Switch, ir, load_program


def open_program(name: str | Path) -> ir.Program:
    """A compiled program: a file of p4c's JSON, or the name of one that innet ships.

    Raises:
        InputError: there is neither.
        ProgramError: the file is no compiled P4 program.
    """
    if not Path(name).exists() and str(name) in programs.catalogue():
        return load_program(programs.catalogue()[str(name)].json())
    if not Path(name).is_file():
        shipped = ", ".join(programs.catalogue())
        raise InputError(
            f"{name}: no such file. Name the JSON that p4c wrote, or a program that innet ships: "
            f"{shipped}."
        )
    return load_program(name)


def engine_named(name: str) -> EngineName:
    """``name``, which must be that of an engine: UnknownNameError."""
    if name not in get_args(EngineName):
        raise UnknownNameError("switch engine", name, get_args(EngineName))
    return cast("EngineName", name)


def run_commands(switch: Switch, path: Path | None) -> str:
    """Run the commands in a file (None: none), one a line; returns what they print.

    Raises:
        InputError: the file cannot be read.
        ControlError: names file and line of the command that was refused.
    """
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    printed = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            printed.append(switch.command(line))
        except ControlError as error:
            raise ControlError(f"{path}:{number}: {line.strip()}: {error}") from None
    return "\n".join(each for each in printed if each)
