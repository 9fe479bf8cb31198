"""Input files of all tools: compiled programs and command files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from innet import programs
from innet.core.engines import EngineName
from innet.core.errors import ControlError, InputError, ProgramError, UnknownNameError
from innet.core.files import missing
from innet.switch import Switch, ir, load_program, read_document


def open_document(name: str | Path) -> dict[str, Any]:
    """The JSON of a compiled program: a file from p4c, or a program of innet or of another
    distribution by name.

    Raises:
        InputError: there is no such file and no such program.
        ProgramError: the file does not contain a JSON object.
    """
    if (wrong := missing(name)) is not None:
        for known in (programs.catalogue, programs.available):
            if str(name) in known():
                return known()[str(name)].json()
        there = ", ".join(programs.available())
        raise InputError(
            f"{name}: {wrong}. Name the JSON that p4c wrote, or a compiled program: {there}."
        )
    document = read_document(Path(name))
    if not isinstance(document, dict):
        raise ProgramError(f"{name} holds no JSON object, so it is no compiled P4 program")
    return document


def open_program(name: str | Path) -> ir.Program:
    """The program from ``open_document``; ProgramError if it is not a compiled P4 program."""
    return program_in(open_document(name), name)


def program_in(document: dict[str, Any], name: str | Path) -> ir.Program:
    """The program in a file's JSON. Errors name the file."""
    try:
        return load_program(document)
    except ProgramError as error:
        raise type(error)(f"{name}: {error}") from None


def engine_named(name: str) -> EngineName:
    """``name`` as an engine's name; UnknownNameError if it is not one."""
    if name not in get_args(EngineName):
        raise UnknownNameError("switch engine", name, get_args(EngineName))
    return cast("EngineName", name)


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for a switch, and their file. ``lines`` count from 1."""

    path: Path | None
    lines: tuple[str, ...]

    def run(self, switch: Switch) -> str:
        """Run them; returns what they print.

        Raises:
            ControlError: names file and line of the command that was refused.
        """
        printed = []
        for number, line in enumerate(self.lines, 1):
            try:
                printed.append(switch.command(line))
            except ControlError as error:
                raise ControlError(f"{self.path}:{number}: {line.strip()}: {error}") from None
        return "\n".join(each for each in printed if each)


def read_commands(path: Path | None) -> Commands:
    """The commands in a file, one per line; none for None. InputError if it cannot be read."""
    if path is None:
        return Commands(None, ())
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return Commands(path, tuple(text.splitlines()))
