"""What a test of p4c's simple test framework (STF) states; ``stf_syntax`` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments by name, as text."""

    action: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Add:
    """``add TABLE [PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...) [= ENTRY]``; of several entries
    that match, the highest priority wins. ``entry`` is what the test calls it, without ``$``.
    """

    line: int
    table: str
    priority: int | None
    keys: tuple[tuple[str, str], ...]
    call: ActionCall
    entry: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """``setdefault TABLE ACTION(NAME:VALUE, ...)``"""

    line: int
    table: str
    call: ActionCall


@dataclass(frozen=True, slots=True)
class Remove:
    """``remove ENTRY`` or ``remove all`` (``entry`` None)."""

    line: int
    entry: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """``packet PORT HEX``"""

    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """``expect PORT [HEX]``: the next packet at that port begins so.

    ``pattern`` is in upper-case hexadecimal digits, ``*`` stands for any; None: whatever it holds.
    ``exact`` (written as ``$`` at the end): nothing follows.
    """

    line: int
    port: int
    pattern: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    """``no_packet``: nothing leaves but what is expected, at ports that the test does not name
    either.
    """

    line: int


@dataclass(frozen=True, slots=True)
class Wait:
    """``wait``: time passes."""

    line: int


Relation = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """``check_counter NAME(INDEX) [packets|bytes RELATION NUMBER]``.

    ``index`` is a number, or what the test calls an entry. Without a relation the cell need only
    exist.
    """

    line: int
    counter: str
    index: int | str
    unit: Literal["packets", "bytes"] | None
    relation: Relation
    value: int


@dataclass(frozen=True, slots=True)
class Command:
    """Anything else: a command of simple_switch_CLI."""

    line: int
    text: str


Statement = Add | SetDefault | Remove | Send | Expect | NoPacket | Wait | CheckCounter | Command


@dataclass(frozen=True, slots=True)
class Test:
    """A test file; ``name`` is for people."""

    name: str
    statements: tuple[Statement, ...]
