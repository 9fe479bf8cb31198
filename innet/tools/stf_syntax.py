"""p4c's simple test framework (STF): a test file, read into statements.

One statement a line; ``#`` begins a comment. Keywords are the same in either case. Beside p4c's own
grammar, a key may be written as P4 writes it: ``0x0a00/8``, ``0x1&&&0xf``, ``5..9``. And ``wait``
may say how long: ``wait 10ms``. As 4ward writes them, arguments may stand in order, ``forward(1)``,
and entries may choose members and groups of action profiles.

The grammar below reads one line at a time. A line with another keyword is a command of
simple_switch_CLI, which has a separate parser.

Source: p4c's ``tools/stf``, what ``backends/bmv2/bmv2stf.py`` adds to it, and the packet tests of
4ward (https://github.com/4ward-p4/4ward).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.exceptions import VisitError
from lark.lexer import PatternStr

from innet.core.errors import InputError
from innet.core.numbers import nanoseconds


@dataclass(frozen=True, slots=True)
class NamedCall:
    """An action with its arguments by name, as text; the name of one that has none is empty."""

    action: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """``member=NUMBER`` or ``group=NUMBER``, as ``member`` and ``group`` number them."""

    kind: Literal["member", "group"]
    number: int


@dataclass(frozen=True, slots=True)
class Add:
    """``add TABLE [PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...) [= ENTRY]``; of several entries
    that match, the highest priority wins. ``entry`` is what the test calls it, without ``$``. In
    place of an action a table with an action profile takes a ``ProfileChoice``.
    """

    line: int
    table: str
    priority: int | None
    keys: tuple[tuple[str, str], ...]
    call: NamedCall | ProfileChoice
    entry: str | None


@dataclass(frozen=True, slots=True)
class NewMember:
    """``member PROFILE NUMBER ACTION NAME=VALUE ...``: the test's number of a new member."""

    line: int
    profile: str
    number: int
    call: NamedCall


@dataclass(frozen=True, slots=True)
class NewGroup:
    """``group PROFILE NUMBER MEMBER ...``: the test's number of a new group of members."""

    line: int
    profile: str
    number: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetDefault:
    """``setdefault TABLE ACTION(NAME:VALUE, ...)``"""

    line: int
    table: str
    call: NamedCall


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
    """``wait [DURATION]``: time passes. ``nanoseconds``: how much; None: it is not said."""

    line: int
    nanoseconds: int | None


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
class CheckRegister:
    """``check_register NAME(INDEX) RELATION NUMBER``: a cell as an unsigned number."""

    line: int
    register: str
    index: int
    relation: Relation
    value: int


@dataclass(frozen=True, slots=True)
class CliCommand:
    """Anything else: a command of simple_switch_CLI."""

    line: int
    text: str


Statement = (
    Add
    | NewMember
    | NewGroup
    | SetDefault
    | Remove
    | Send
    | Expect
    | NoPacket
    | Wait
    | CheckCounter
    | CheckRegister
    | CliCommand
)


@dataclass(frozen=True, slots=True)
class Test:
    """A test file; ``name`` is for people."""

    name: str
    statements: tuple[Statement, ...]


# ── Reading ──

_GRAMMAR = r"""
add: name [NUMBER] key* name call ["=" WORD]
    | name [NUMBER] key* WORD "=" NUMBER -> add_choice
member: name NUMBER name (call | pairs)
group: name NUMBER NUMBER*
setdefault: name name call
remove: WORD
packet: PORT BYTES*
expect: PORT PATTERN* [END]
no_packet:
wait: [DURATION]
check_counter: name "(" (NUMBER | WORD) ")" [UNIT RELATION NUMBER]
check_register: name "(" NUMBER ")" RELATION NUMBER

key: name ":" NUMBER [SEPARATOR NUMBER]
call: "(" [argument ("," argument)*] ")"
argument: [word ":"] NUMBER
pairs: pair*
pair: word "=" NUMBER
name: word part*
part: "." word | "[" NUMBER "]"
word: WORD | QUOTED

NUMBER: /[0-9]+(\.[0-9]+){3}|0[xX][0-9a-fA-F*]+|0[bB][01*]+|0[oO][0-7*]+|[0-9]+/
WORD: /[A-Za-z_$][A-Za-z_$0-9]*/
QUOTED: /"[^"]+"/
PORT: /[0-9]+(?!\S)/
BYTES: /[0-9a-fA-F]+/
PATTERN: /[0-9a-fA-F*]+/
END: "$"
DURATION: /[0-9]\S*/
UNIT: "packets"i | "bytes"i
RELATION: "==" | "!=" | "<=" | ">=" | "<" | ">"
SEPARATOR: "/" | "&&&" | ".."

%ignore /[ \t]+/
"""

_USAGE = {
    "add": "add TABLE [PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...) [= ENTRY], or "
    "member=NUMBER or group=NUMBER in place of the action",
    "member": "member PROFILE NUMBER ACTION NAME=VALUE ...",
    "group": "group PROFILE NUMBER MEMBER ...",
    "setdefault": "setdefault TABLE ACTION(NAME:VALUE, ...)",
    "remove": "remove all, or remove ENTRY",
    "packet": "packet PORT HEX",
    "expect": "expect PORT [HEX, with * for any digit, and $ where nothing follows]",
    "no_packet": "no_packet",
    "wait": "wait [DURATION, such as 1.5ms]",
    "check_counter": "check_counter COUNTER(INDEX) [packets|bytes RELATION NUMBER]",
    "check_register": "check_register REGISTER(INDEX) RELATION NUMBER",
}
"""How each statement is written, by its keyword, which is also its rule of the grammar."""

_TERMINALS = {
    "WORD": "a name",
    "QUOTED": "a name",
    "NUMBER": "a number",
    "PORT": "a port",
    "BYTES": "hexadecimal digits",
    "PATTERN": "hexadecimal digits or *",
    "UNIT": "packets or bytes",
    "DURATION": "a duration",
    "RELATION": "a relation (== != < <= > >=)",
    "SEPARATOR": "'/', '&&&' or '..'",
    "$END": "the end of the line",
}
"""What terminals are called in messages; others are called by their text."""

_PARSER = Lark(_GRAMMAR, parser="lalr", start=list(_USAGE))


def read(path: Path) -> Test:
    """The test in a file.

    Raises:
        InputError: the file cannot be read, or names the file, line and column of what is no
            statement.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Test:
    """The test that ``text`` states; ``name`` is that of its file, for messages.

    Raises:
        InputError: names the file, line and column of what is no statement; there are no
            statements.
    """
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if (statement := _statement(line.split("#", 1)[0].rstrip(), number)) is not None:
                statements.append(statement)
        except _SyntaxProblemError as problem:
            where = f"{name}:{number}:{problem.column}"
            raise InputError(f"{where}: {problem}: {_shortened(line.strip())}") from None
    if not statements:
        raise InputError(
            f"{name}: states nothing; a packet test sends packets (packet PORT BYTES) and says "
            "what leaves (expect PORT BYTES)"
        )
    return Test(name, tuple(statements))


class _SyntaxProblemError(Exception):
    """What is wrong with a line, and the column where it is, counted from 1."""

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(problem)
        self.column = column


def _shortened(line: str) -> str:
    return line if len(line) <= 100 else f"{line[:99]}…"


def _statement(line: str, number: int) -> Statement | None:
    """The statement of a line without its comment; None: there is none."""
    first = re.match(r"\s*(\S+)\s*", line)
    if first is None:
        return None
    keyword, rest, column = first[1].lower(), line[first.end() :], first.end() + 1
    if keyword not in _USAGE:
        if not re.fullmatch(r"[a-z_0-9]+", keyword):
            known = ", ".join(_USAGE)
            problem = f"{first[1]!r} begins no statement ({known}, or a CLI command)"
            raise _SyntaxProblemError(problem, first.start(1) + 1)
        return CliCommand(number, f"{keyword} {rest}".strip())
    try:
        statement: Statement = _Statements(number).transform(_PARSER.parse(rest, start=keyword))
    except UnexpectedToken as error:
        ended = error.token.type == "$END"
        found = "the end of the line" if ended else repr(str(error.token))
        at = len(rest) if ended else (error.token.start_pos or 0)
        problem = _expected(error.accepts or error.expected, found, keyword)
        raise _SyntaxProblemError(problem, column + at) from None
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        problem = _expected(error.allowed, repr(rest[at : at + 20]), keyword)
        raise _SyntaxProblemError(problem, column + at) from None
    except VisitError as error:
        raise _SyntaxProblemError(str(error.orig_exc), column) from None
    return statement


def _expected(terminals: set[str], found: str, keyword: str) -> str:
    """The message for an unexpected ``found``, where one of ``terminals`` is allowed."""
    order = [*_TERMINALS, *sorted(terminals)]
    texts = dict.fromkeys(map(_terminal, sorted(terminals, key=order.index)))
    *others, last = texts
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"expected {listed}, found {found} (write {_USAGE[keyword]})"


def _terminal(name: str) -> str:
    if name in _TERMINALS:
        return _TERMINALS[name]
    pattern = _PARSER.get_terminal(name).pattern
    return repr(pattern.value) if isinstance(pattern, PatternStr) else name


@v_args(inline=True)
class _Statements(Transformer[Token, Any]):
    """Turns parse trees into statements; a ValueError says what is wrong with one."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line

    def add(self, table: str, priority: Token | None, *rest: Any) -> Add:
        *keys, action, arguments, entry = rest
        number = None if priority is None else _integer(priority)
        call = NamedCall(action, arguments)
        return Add(self.line, table, number, tuple(keys), call, entry and str(entry))

    def add_choice(self, table: str, priority: Token | None, *rest: Any) -> Add:
        *keys, kind, choice = rest
        if kind not in ("member", "group"):
            raise ValueError(f"an entry chooses member=NUMBER or group=NUMBER, not {kind}=")
        found = None if priority is None else _integer(priority)
        return Add(
            self.line, table, found, tuple(keys), ProfileChoice(kind.value, _integer(choice)), None
        )

    def member(
        self, profile: str, named: Token, action: str, arguments: tuple[tuple[str, str], ...]
    ) -> NewMember:
        return NewMember(self.line, profile, _integer(named), NamedCall(action, arguments))

    def group(self, profile: str, named: Token, *members: Token) -> NewGroup:
        return NewGroup(self.line, profile, _integer(named), tuple(map(_integer, members)))

    def setdefault(self, table: str, action: str, arguments: tuple[Any, ...]) -> SetDefault:
        return SetDefault(self.line, table, NamedCall(action, arguments))

    def remove(self, entry: Token) -> Remove:
        return Remove(self.line, None if entry.lower() == "all" else entry.removeprefix("$"))

    def packet(self, port: Token, *data: Token) -> Send:
        digits = "".join(data)
        if len(digits) % 2:
            raise ValueError(f"a packet of {len(digits)} hexadecimal digits ends in half a byte")
        return Send(self.line, int(port), bytes.fromhex(digits))

    def expect(self, port: Token, *data: Token | None) -> Expect:
        *digits, end = data
        pattern = "".join(map(str, digits)).upper()
        return Expect(self.line, int(port), pattern if digits or end else None, end is not None)

    def no_packet(self) -> NoPacket:
        return NoPacket(self.line)

    def wait(self, duration: Token | None) -> Wait:
        return Wait(self.line, None if duration is None else nanoseconds(duration, "the wait"))

    def check_counter(
        self, counter: str, cell: Token, unit: Any, relation: Any, value: Token | None
    ) -> CheckCounter:
        index = _integer(cell) if cell.type == "NUMBER" else cell.removeprefix("$")
        if value is None:
            return CheckCounter(self.line, counter, index, None, "==", 0)
        return CheckCounter(
            self.line, counter, index, unit.lower(), relation.value, _integer(value)
        )

    def check_register(
        self, register: str, cell: Token, relation: Any, value: Token
    ) -> CheckRegister:
        return CheckRegister(self.line, register, _integer(cell), relation.value, _integer(value))

    def key(
        self, name: str, value: Token, separator: Token | None, second: Token | None
    ) -> tuple[str, str]:
        return name, f"{value}{separator or ''}{second or ''}"

    def call(self, *arguments: tuple[str, str] | None) -> tuple[tuple[str, str], ...]:
        return tuple(each for each in arguments if each is not None)

    def argument(self, name: str | None, value: Token) -> tuple[str, str]:
        return name or "", str(value)

    def pairs(self, *pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        return pairs

    def pair(self, name: str, value: Token) -> tuple[str, str]:
        return name, str(value)

    def name(self, *parts: str) -> str:
        return "".join(parts)

    def part(self, part: str) -> str:
        return f"[{part}]" if isinstance(part, Token) else f".{part}"

    def word(self, text: Token) -> str:
        return text.strip('"')


def _integer(text: str) -> int:
    if "*" in text:
        raise ValueError(f"{text} is no whole number")
    return number(text)


def number(text: str) -> int:
    """A number as STF writes it: decimal (leading zeros allowed), 0x, 0o, 0b or an IPv4 address."""
    if "." in text:
        return int(ipaddress.IPv4Address(text))
    return int(text) if text.isdecimal() else int(text, 0)
