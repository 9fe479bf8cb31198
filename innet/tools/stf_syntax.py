"""p4c's simple test framework (STF): a test file, read into statements.

One statement a line; ``#`` begins a comment. Keywords are the same in either case. Beside p4c's own
grammar, a key may be written as P4 writes it: ``0x0a00/8``, ``0x1&&&0xf``, ``5..9``.

Source: p4c's ``tools/stf``, and what ``backends/bmv2/bmv2stf.py`` adds to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from innet.core.errors import InputError


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


# ----------------------------------------------------------------------------
# The parser.


def read(path: Path) -> Test:
    """The test in a file.

    Raises:
        InputError: the file cannot be read, or names the file and line of what is no statement.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Test:
    """The test that ``text`` states; ``name`` is that of its file, for messages.

    Raises:
        InputError: names the file and line of what is no statement; there are no statements.
    """
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].strip()
        if not words:
            continue
        try:
            statements.append(_statement(words, number))
        except _SyntaxProblemError as problem:
            raise InputError(f"{name}:{number}: {problem}: {_shortened(line.strip())}") from None
    if not statements:
        raise InputError(
            f"{name}: states nothing; a packet test sends packets (packet PORT BYTES) and says "
            "what leaves (expect PORT BYTES)"
        )
    return Test(name, tuple(statements))


class _SyntaxProblemError(Exception):
    """What is wrong with a line."""


def _shortened(line: str) -> str:
    return line if len(line) <= 100 else f"{line[:99]}…"


def _statement(words: str, line: int) -> Statement:
    keyword, _, rest = words.partition(" ") if " " in words else words.partition("\t")
    reader = _READERS.get(keyword.lower())
    if reader is not None:
        return reader(rest.strip(), line)
    if not re.fullmatch(r"[a-z_0-9]+", keyword.lower()):
        known = ", ".join(_READERS)
        raise _SyntaxProblemError(f"{keyword!r} begins no statement ({known}, or a CLI command)")
    return Command(line, f"{keyword.lower()} {rest}".strip())


# ── Packets ──


def _port_and_data(rest: str) -> tuple[int, str]:
    port, *data = rest.split()
    if not port.isdecimal():
        raise _SyntaxProblemError(f"{port!r} is no port")
    return int(port), "".join(data).upper()


def _send(rest: str, line: int) -> Send:
    if not rest:
        raise _SyntaxProblemError("packet needs a port and hexadecimal digits")
    port, data = _port_and_data(rest)
    if not re.fullmatch(r"[0-9A-F]*", data):
        raise _SyntaxProblemError("packet data is made of hexadecimal digits")
    if len(data) % 2:
        raise _SyntaxProblemError(f"a packet of {len(data)} hexadecimal digits ends in half a byte")
    return Send(line, port, bytes.fromhex(data))


def _expect(rest: str, line: int) -> Expect:
    if not rest:
        raise _SyntaxProblemError("expect needs a port")
    port, data = _port_and_data(rest)
    pattern, exact = data.removesuffix("$"), data.endswith("$")
    if not re.fullmatch(r"[0-9A-F*]*", pattern):
        raise _SyntaxProblemError("expected data is made of hexadecimal digits, *, and a last $")
    return Expect(line, port, pattern if data else None, exact)


# ── Statements made of tokens ──

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>0[xX][0-9a-fA-F*]+|0[bB][01*]+|0[oO][0-7*]+|[0-9]+)
      | "(?P<quoted>[^"]+)"
      | (?P<name>[A-Za-z_$][A-Za-z_$0-9]*)
      | (?P<sign>&&&|\.\.|==|!=|<=|>=|[:,.\[\]()/=<>])
    )""",
    re.VERBOSE,
)


class _Tokens:
    """Takes a line apart, from the left."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise _SyntaxProblemError(f"cannot read {text[position:].strip()[:20]!r}")
            kind = found.lastgroup or ""
            self._tokens.append(("name" if kind == "quoted" else kind, found[kind]))
            position = found.end()
        self._next = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._next + ahead
        return self._tokens[place] if place < len(self._tokens) else ("end", "the end of the line")

    def take(self, kind: str, what: str) -> str:
        """The next token, which must be of ``kind``."""
        found, text = self.peek()
        if found != kind:
            raise _SyntaxProblemError(f"expected {what}, found {text}")
        self._next += 1
        return text

    def sign(self, *signs: str) -> str:
        found, text = self.peek()
        if found != "sign" or text not in signs:
            raise _SyntaxProblemError(f"expected {' or '.join(signs)}, found {text}")
        self._next += 1
        return text

    def skip(self, sign: str) -> bool:
        """Whether ``sign`` came next; if so, it is taken."""
        if self.peek() != ("sign", sign):
            return False
        self._next += 1
        return True

    def end(self) -> None:
        found, text = self.peek()
        if found != "end":
            raise _SyntaxProblemError(f"{text!r} is too much")


def _qualified(tokens: _Tokens, what: str) -> str:
    """``a.b[3].c``"""
    name = tokens.take("name", what)
    while True:
        if tokens.skip("."):
            name += "." + tokens.take("name", "a name after the dot")
        elif tokens.skip("["):
            name += "[" + tokens.take("number", "an index") + "]"
            tokens.sign("]")
        else:
            return name


def _call(tokens: _Tokens, action: str) -> ActionCall:
    """What follows an action's name."""
    tokens.sign("(")
    arguments: list[tuple[str, str]] = []
    while not tokens.skip(")"):
        if arguments:
            tokens.sign(",")
        name = tokens.take("name", "an argument's name")
        tokens.sign(":")
        arguments.append((name, tokens.take("number", "a value")))
    return ActionCall(action, tuple(arguments))


def _value(tokens: _Tokens) -> str:
    value = tokens.take("number", "a value")
    for separator in ("/", "&&&", ".."):
        if tokens.skip(separator):
            return value + separator + tokens.take("number", f"a number after {separator}")
    return value


def _add(rest: str, line: int) -> Add:
    tokens = _Tokens(rest)
    table = _qualified(tokens, "a table")
    priority = None
    if tokens.peek()[0] == "number":
        priority = _integer(tokens.take("number", "a priority"))
    keys: list[tuple[str, str]] = []
    name = _qualified(tokens, "a key field or an action")
    while tokens.skip(":"):
        keys.append((name, _value(tokens)))
        name = _qualified(tokens, "a key field or an action")
    call = _call(tokens, name)
    entry = tokens.take("name", "a name for the entry") if tokens.skip("=") else None
    tokens.end()
    return Add(line, table, priority, tuple(keys), call, entry)


def _set_default(rest: str, line: int) -> SetDefault:
    tokens = _Tokens(rest)
    table = _qualified(tokens, "a table")
    call = _call(tokens, _qualified(tokens, "an action"))
    tokens.end()
    return SetDefault(line, table, call)


def _remove(rest: str, line: int) -> Remove:
    tokens = _Tokens(rest)
    entry = tokens.take("name", "all or an entry's name")
    tokens.end()
    return Remove(line, None if entry.lower() == "all" else entry.removeprefix("$"))


def _check_counter(rest: str, line: int) -> CheckCounter:
    tokens = _Tokens(rest)
    counter = _qualified(tokens, "a counter")
    tokens.sign("(")
    index: int | str
    if tokens.peek()[0] == "number":
        index = _integer(tokens.take("number", "an index"))
    else:
        index = tokens.take("name", "an index or an entry").removeprefix("$")
    tokens.sign(")")
    if tokens.peek()[0] == "end":
        return CheckCounter(line, counter, index, None, "==", 0)
    word = tokens.take("name", "packets or bytes").lower()
    unit: Literal["packets", "bytes"]
    if word == "packets":
        unit = "packets"
    elif word == "bytes":
        unit = "bytes"
    else:
        raise _SyntaxProblemError(f"expected packets or bytes, found {word}")
    relation = _RELATIONS[tokens.sign(*_RELATIONS)]
    value = _integer(tokens.take("number", "a number"))
    tokens.end()
    return CheckCounter(line, counter, index, unit, relation, value)


_RELATIONS: dict[str, Relation] = {
    "==": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def _integer(text: str) -> int:
    if "*" in text:
        raise _SyntaxProblemError(f"{text} is no whole number")
    return number(text)


def number(text: str) -> int:
    """A number as STF writes it: decimal (leading zeros allowed), 0x, 0o or 0b."""
    return int(text) if text.isdecimal() else int(text, 0)


def _alone(rest: str, keyword: str) -> None:
    if rest:
        raise _SyntaxProblemError(f"nothing follows {keyword}")


def _no_packet(rest: str, line: int) -> NoPacket:
    _alone(rest, "no_packet")
    return NoPacket(line)


def _wait(rest: str, line: int) -> Wait:
    _alone(rest, "wait")
    return Wait(line)


_READERS: dict[str, Callable[[str, int], Statement]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "packet": _send,
    "expect": _expect,
    "no_packet": _no_packet,
    "wait": _wait,
    "check_counter": _check_counter,
}
