"""Runs STF tests (``stf_syntax``) on the built-in switch, or on an installed simple_switch.

A test means the same as with p4c's own runner and simple_switch. For each port, packets are
compared in order with the expected ones. A port that the test sends packets to, but expects none
from, must stay silent. Packets at other ports are ignored. Unlike p4c's runner, this one checks
counters, and a command that the switch refuses fails the test.

In a timed test, packets wait in the egress queues. A test is timed if a gap between packets is
given, or if one of its ``wait`` statements has a duration.
"""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

from innet.bmv2 import simple_switch
from innet.bmv2.session import Session
from innet.core.engines import EngineName
from innet.core.errors import ControlError, ProgramError, UnknownNameError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.switch import ControlPlane, Switch, ir, load_program
from innet.tools import stf_syntax as stated
from innet.tools.stf_syntax import number

_T = TypeVar("_T", ir.Table, ir.Action, ir.ActionProfile, ir.CounterArray, ir.RegisterArray)


class StfNames:
    """Resolves a test's names in a program."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program

    def table(self, name: str) -> ir.Table:
        return _find("table", name, self.program.tables)

    def action(self, table: ir.Table, name: str) -> ir.Action:
        """One of the table's actions."""
        actions = [self.program.actions[each] for each in table.actions]
        return _find("action", name, actions, of=f"table {table.name}")

    def profile(self, name: str) -> tuple[ir.ActionProfile, ir.Table]:
        """An action profile, and one of the tables that have it, whose actions are its own."""
        profiles = self.program.action_profiles
        found = _find("action profile", name, profiles)
        for table in self.program.tables:
            if table.action_profile is not None and profiles[table.action_profile] is found:
                return found, table
        raise ControlError(f"no table has the action profile {found.name}")

    def counter(self, name: str) -> ir.CounterArray:
        return _find("counter", name, self.program.counters)

    def register(self, name: str) -> ir.RegisterArray:
        return _find("register", name, self.program.registers)

    def key(self, table: ir.Table, name: str) -> int:
        """The position of a key field.

        ``stack$1.f`` is ``stack[1].f``. A header's name alone is its validity bit. Parts of the
        path may be missing at the front.
        """
        head, dollar, tail = name.partition("$")
        digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
        if dollar and digits:
            name = f"{head}[{digits}]{tail[len(digits) :]}"
        names = [each.name for each in table.keys]
        wanted = [name, f"{name}$", f"{name}.$valid$"]
        if name.endswith("valid"):
            wanted.append(f"{name.removesuffix('valid')}$valid$")
        if name.endswith(("$valid", "isValid")):
            wanted.append(f"{name.rpartition('.')[0]}.$valid$")
        for each in wanted:
            if each in names:
                return names.index(each)
        for each in wanted:
            for position, known in enumerate(names):
                if known.endswith(f".{each}"):
                    return position
        raise ControlError(str(UnknownNameError("key field", name, names, of=table.name)))


def _find(kind: str, name: str, things: Sequence[_T], *, of: str = "") -> _T:
    """The thing called ``name``, or the only one whose name ends with it."""
    for each in things:
        if each.name == name:
            return each
    for ending in (f".{name}", name):
        fitting = [each for each in things if each.name.endswith(ending)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            listed = ", ".join(sorted(each.name for each in fitting))
            raise ControlError(f"{kind} {name!r} is ambiguous: {listed}")
    raise ControlError(str(UnknownNameError(kind, name, [each.name for each in things], of=of)))


# ── Values ──


def arguments_of(action: ir.Action, given: Iterable[tuple[str, str]]) -> list[int]:
    """The arguments in the order of the action's parameters, also of those without a name.

    Raises:
        ControlError: an argument is missing, given twice, unknown, or not a number.
    """
    values: dict[str, int] = {}
    names = [each.name for each in action.parameters]
    for position, (stated_name, text) in enumerate(given):
        if not stated_name and position >= len(names):
            raise ControlError(f"action {action.name} takes {len(names)} argument(s)")
        name = stated_name or names[position]
        if name not in names:
            raise ControlError(str(UnknownNameError("parameter", name, names, of=action.name)))
        if name in values:
            raise ControlError(f"parameter {name} of {action.name} is given twice")
        values[name] = _plain(text, f"parameter {name}")
    if missing := [name for name in names if name not in values]:
        raise ControlError(f"action {action.name} needs {', '.join(missing)} as well")
    return [values[name] for name in names]


def match_of(key: ir.TableKey, text: str | None) -> ir.Match:
    """The match of a key field. None matches anything, but is 0 for an exact match.

    Raises:
        ControlError: the text does not fit the key's match kind.
    """
    what = f"key field {key.name}, which is {key.match.value}"
    every = (1 << key.width) - 1
    match key.match:
        case ir.MatchKind.EXACT | ir.MatchKind.VALID:
            return ir.ExactMatch(_plain(text or "0", what))
        case ir.MatchKind.TERNARY:
            value, mask = _masked(text or "0&&&0", what)
            return ir.TernaryMatch(value, every if mask is None else mask & every)
        case ir.MatchKind.LPM:
            first, slash, second = (text or "0/0").partition("/")
            if slash:
                return ir.LpmMatch(_plain(first, what), _plain(second, what))
            return ir.LpmMatch(_starred(first, what), min(_digits(first, key.width), key.width))
        case ir.MatchKind.RANGE:
            first, dots, second = (text or f"0..{every}").partition("..")
            return ir.RangeMatch(_plain(first, what), _plain(second if dots else first, what))


def _plain(text: str, what: str) -> int:
    try:
        return number(text)
    except ValueError:
        raise ControlError(f"{text!r} is no value for {what}") from None


def _starred(text: str, what: str) -> int:
    """The number, with 0 for each star."""
    return _plain(text.replace("*", "0"), what)


_BITS = {"x": 4, "o": 3, "b": 1}


def _masked(text: str, what: str) -> tuple[int, int | None]:
    """Value and mask. The mask covers the written digits; None (all bits) for a decimal number."""
    value, amps, mask = text.partition("&&&")
    if amps:
        return _plain(value, what), _plain(mask, what)
    if text[1:2].lower() not in _BITS:
        return _plain(text, what), None
    bits = _BITS[text[1].lower()]
    found = 0
    for digit in text[2:]:
        found = found << bits | (0 if digit == "*" else (1 << bits) - 1)
    return _starred(text, what) & found, found


def _digits(text: str, width: int) -> int:
    """The number of bits of the digits before the stars; all bits for a decimal number."""
    bits = _BITS.get(text[1:2].lower())
    return width if bits is None else bits * (len(text) - 2 - text.count("*"))


# ----------------------------------------------------------------------------
# Two packets in hexadecimal rows, with a mark under each digit that differs.

ROW = 16
"""Bytes in a row."""

MOST_ROWS = 8
"""Most differing rows that are shown; a further line counts the rest."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs.

    Attributes:
        offset: position of its first byte in the packet.
        expected, got: digits in groups of two bytes; spaces after the end of a packet.
        marks: ``^`` under each digit that differs.
    """

    offset: int
    expected: str
    got: str
    marks: str


def differences(pattern: str, got: bytes, *, exact: bool = True) -> list[Difference]:
    """The rows in which ``got`` differs from ``pattern`` (hexadecimal digits; * for any digit).

    Without ``exact``, bytes after the end of the pattern are ignored.
    """
    digits = got.hex().upper()
    rows = []
    width = 2 * ROW
    for start in range(0, max(len(pattern), len(digits)), width):
        left, right = pattern[start : start + width], digits[start : start + width]
        marks = "".join(
            "^" if _differ(one, other, exact=exact) else " "
            for one, other in zip_longest(left, right, fillvalue=" ")
        )
        if marks.strip():
            rows.append(
                Difference(start // 2, _grouped(left), _grouped(right), _grouped(marks).rstrip())
            )
    return rows


def _differ(expected: str, got: str, *, exact: bool) -> bool:
    if expected == "*":
        return got == " "
    if expected == " ":
        return exact and got != " "
    return expected != got


def _grouped(digits: str) -> str:
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def as_rows(digits: str) -> list[str]:
    """Digits in rows, each after the offset of its first byte."""
    width = 2 * ROW
    return [
        f"{start // 2:04x}  {_grouped(digits[start : start + width])}"
        for start in range(0, len(digits), width)
    ]


def shown(pattern: str, got: bytes, *, exact: bool = True) -> list[str]:
    """``differences`` as lines of text."""
    rows = differences(pattern, got, exact=exact)
    lines = []
    for row in rows[:MOST_ROWS]:
        lines.append(f"{row.offset:04x}  expected  {row.expected}".rstrip())
        lines.append(f"      got       {row.got}".rstrip())
        lines.append(f"                {row.marks}")
    if len(rows) > MOST_ROWS:
        lines.append(f"{len(rows) - MOST_ROWS} more rows of {ROW} bytes differ")
    expected = (len(pattern) + 1) // 2
    if expected > len(got) or (exact and expected != len(got)):
        least = "" if exact else "at least "
        lines.append(f"expected {least}{expected} bytes, got {len(got)}")
    return lines


# ----------------------------------------------------------------------------
# The runner.

PAUSE = 1_000_000
"""Microseconds between a command and the next packet, as in p4c's runner. A timed test waits only
at ``wait`` statements; this is the duration of one without its own."""

HIGHEST_PRIORITY = 10_000
"""STF's priority p is simple_switch's 10000 - p, where the lowest number wins."""

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class WrongPacket:
    """Packet ``position`` (from 0) at ``port`` differs from the expected one.

    ``expected`` None: no further packet was expected. ``got`` None: no packet left.
    """

    port: int
    position: int
    expected: stated.Expect | None
    got: bytes | None

    @property
    def line(self) -> int | None:
        """The line that expects the packet."""
        return None if self.expected is None else self.expected.line

    def __str__(self) -> str:
        where = f"port {self.port}, packet {self.position}"
        if self.expected is None:
            return f"{where}: nothing more was expected, but a packet left"
        if self.got is None:
            return f"{where}: a packet was expected, but none left"
        return f"{where}: not the packet that was expected"


@dataclass(frozen=True, slots=True)
class Refused:
    """A statement that the switch refused."""

    line: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class WrongCounter:
    """A counter with another value than expected."""

    line: int
    check: stated.CheckCounter
    got: int

    def __str__(self) -> str:
        check = self.check
        index = check.index if isinstance(check.index, int) else f"${check.index}"
        return (
            f"counter {check.counter}({index}): expected {check.unit} {check.relation} "
            f"{check.value}, got {self.got}"
        )


@dataclass(frozen=True, slots=True)
class WrongRegister:
    """A register's cell with another value than expected."""

    line: int
    check: stated.CheckRegister
    got: int

    def __str__(self) -> str:
        check = self.check
        return (
            f"register {check.register}({check.index}): expected {check.relation} {check.value}, "
            f"got {self.got}"
        )


Failure = WrongPacket | Refused | WrongCounter | WrongRegister


@dataclass(frozen=True, slots=True)
class StfOutcome:
    """The result of a test.

    Attributes:
        test: its name.
        failures: in the order of the file, packets last; empty if the test passed.
        packets: number of packets sent to the switch.
        compared: number of packets that were compared.
        printed: (line, text) of the output of commands, such as register values, and of entries
            whose idle timeout expired.
    """

    test: str
    failures: tuple[Failure, ...]
    packets: int
    compared: int
    printed: tuple[tuple[int, str], ...]

    @property
    def passed(self) -> bool:
        return not self.failures


def run(
    program: ir.Program,
    test: stated.Test,
    engine: EngineName = "jit",
    priority_queues: int = 1,
    gap: int | None = None,
) -> StfOutcome:
    """Run a test on a new switch.

    Args:
        program: what the switch runs.
        test: what is sent and expected.
        engine: of the switch.
        priority_queues: egress queues per port.
        gap: nanoseconds between a packet and the next; makes the test timed, so that packets wait
            in the egress queues. In a test that is timed by its own waits it is 0 by default.

    Raises:
        InputError: the number of queues is out of range.
        UnsupportedError: the engine does not support the program.
    """
    switch = Switch(program, engine, priority_queues=priority_queues)
    waits = any(isinstance(s, stated.Wait) and s.nanoseconds is not None for s in test.statements)
    if gap is None and not waits:
        return _BuiltinRun(program, switch).run(test)
    return _TimedRun(program, switch, gap or 0).run(test)


def run_on_simple_switch(
    document: Mapping[str, Any],
    test: stated.Test,
    priority_queues: int = 1,
    deadline: float = 120.0,
) -> StfOutcome:
    """Run a test on a new simple_switch, the reference of the built-in switch.

    simple_switch gets the ports that the test names, and drops packets to others; so ``no_packet``
    covers these ports alone. Each packet is sent when the one before has been processed. A ``wait``
    with a duration takes that long. A simple_switch that ends before the test does fails it.

    Args:
        document: p4c's JSON.
        test: what is sent and expected.
        priority_queues: egress queues per port.
        deadline: seconds for the whole test.

    Raises:
        MissingToolError: simple_switch is not installed.
        ProgramError: innet or simple_switch refused the program.
        StalledError: the deadline passed; says what it waited for.
    """
    packets = [each for each in test.statements if isinstance(each, stated.Send)]
    sent = [(each.port, each.data) for each in packets if each.port <= MAX_PORT]
    expected = {each.port for each in test.statements if isinstance(each, stated.Expect)}
    commands = [each.text for each in test.statements if isinstance(each, stated.CliCommand)]
    program = load_program(document)
    with simple_switch.open_session(
        document,
        sent,
        expected | simple_switch.ports_of(commands),
        deadline=deadline,
        thrift=True,
        priority_queues=priority_queues,
    ) as session:
        return _SimpleSwitchRun(program, session).run(test)


@dataclass(slots=True)
class _StfRun(ABC):
    """A test on one switch. Subclasses know the switch."""

    program: ir.Program
    names: StfNames = field(init=False)
    entries: dict[str, tuple[str, int]] = field(init=False, default_factory=dict)
    """Name of an entry in the test, to its table and handle."""
    chosen: dict[tuple[str, str, int], int] = field(init=False, default_factory=dict)
    """Handles of members and groups, by profile, kind and the test's number."""
    added: list[tuple[str, int]] = field(init=False, default_factory=list)
    sent: dict[int, list[bytes]] = field(init=False, default_factory=dict)
    failures: list[Failure] = field(init=False, default_factory=list)
    printed: list[tuple[int, str]] = field(init=False, default_factory=list)
    packets: int = field(init=False, default=0)
    ended: bool = field(init=False, default=False)
    """Whether the switch ended, so that there is nothing to run the rest of the test on."""

    def __post_init__(self) -> None:
        self.names = StfNames(self.program)

    def run(self, test: stated.Test) -> StfOutcome:
        paused = False
        for statement in test.statements:
            if isinstance(statement, stated.Send):
                if not paused:
                    self._pause()
                paused = True
                self._send(statement)
            elif not isinstance(statement, stated.Expect | stated.NoPacket):
                paused = False
                try:
                    self._control(statement)
                except ControlError as error:
                    self.failures.append(Refused(statement.line, str(error)))
            if self.ended:
                break
        self._end(test.statements[-1].line)
        compared = self._compare(test.statements)
        return StfOutcome(
            test.name, tuple(self.failures), self.packets, compared, tuple(self.printed)
        )

    # ── The switch ──

    @property
    @abstractmethod
    def control(self) -> ControlPlane: ...

    @abstractmethod
    def _command(self, text: str) -> str:
        """Run one command of simple_switch_CLI; returns what it prints."""

    @abstractmethod
    def _send(self, statement: stated.Send) -> None:
        """Send a packet, and keep what left."""

    def _keep(self, left: Iterable[tuple[int, bytes]]) -> None:
        for port, data in left:
            self.sent.setdefault(port, []).append(data)

    @abstractmethod
    def _pause(self) -> None:
        """Called before a packet that does not directly follow another one."""

    @abstractmethod
    def _wait(self, statement: stated.Wait) -> None: ...

    @abstractmethod
    def _end(self, line: int) -> None:
        """Called after the last statement."""

    # ── Control plane ──

    def _control(
        self,
        statement: stated.Add
        | stated.NewMember
        | stated.NewGroup
        | stated.SetDefault
        | stated.Remove
        | stated.CheckCounter
        | stated.CheckRegister
        | stated.CliCommand
        | stated.Wait,
    ) -> None:
        match statement:
            case stated.Add():
                self._add(statement)
            case stated.NewMember(_, profile, named, call):
                found, table = self.names.profile(profile)
                action = self.names.action(table, call.action)
                self.chosen[found.name, "member", named] = self.control.act_prof_create_member(
                    found.name, action.name, arguments_of(action, call.arguments)
                )
            case stated.NewGroup(_, profile, named, members):
                found, _ = self.names.profile(profile)
                handles = [self._chosen(found.name, "member", each) for each in members]
                group = self.control.act_prof_create_group(found.name)
                self.chosen[found.name, "group", named] = group
                for each in handles:
                    self.control.act_prof_add_member_to_group(found.name, each, group)
            case stated.SetDefault(_, table, call):
                target = self.names.table(table)
                action = self.names.action(target, call.action)
                self.control.table_set_default(
                    target.name, action.name, arguments_of(action, call.arguments)
                )
            case stated.Remove():
                self._remove(statement)
            case stated.CheckCounter():
                self._check(statement)
            case stated.CheckRegister():
                self._check_register(statement)
            case stated.CliCommand(line, text):
                if printed := self._command(text):
                    self.printed.append((line, printed))
            case stated.Wait():
                self._wait(statement)

    def _add(self, statement: stated.Add) -> None:
        table = self.names.table(statement.table)
        given = {self.names.key(table, name): text for name, text in statement.keys}
        matches = [match_of(key, given.get(i)) for i, key in enumerate(table.keys)]
        priority = None
        if table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE):
            if statement.priority is None:
                raise ControlError(
                    f"table {table.name} is {table.match.value}, so that its entries need a "
                    "priority, written after the table's name"
                )
            priority = HIGHEST_PRIORITY - statement.priority
        call = statement.call
        if isinstance(call, stated.ProfileChoice):
            handle = self._add_choice(table, call, matches, priority)
        else:
            action = self.names.action(table, call.action)
            arguments = arguments_of(action, call.arguments)
            handle = self.control.table_add(table.name, action.name, matches, arguments, priority)
        self.added.append((table.name, handle))
        if statement.entry is not None:
            self.entries[statement.entry.removeprefix("$")] = (table.name, handle)

    def _add_choice(
        self,
        table: ir.Table,
        choice: stated.ProfileChoice,
        matches: Sequence[Any],
        priority: int | None,
    ) -> int:
        handle = self._chosen(self.control.profile_of_table(table.name), choice.kind, choice.number)
        if choice.kind == "member":
            return self.control.table_indirect_add(table.name, matches, handle, priority)
        return self.control.table_indirect_add_with_group(table.name, matches, handle, priority)

    def _chosen(self, profile: str, kind: str, named: int) -> int:
        """The handle of a member or group."""
        known = [number for p, k, number in self.chosen if (p, k) == (profile, kind)]
        if named not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise ControlError(f"action profile {profile} has no {kind} {named}; it has {listed}")
        return self.chosen[profile, kind, named]

    def _remove(self, statement: stated.Remove) -> None:
        chosen = self.added if statement.entry is None else [self._entry(statement.entry)]
        for table, handle in list(chosen):
            if self.names.table(table).action_profile is None:
                self.control.table_delete(table, handle)
            else:
                self.control.table_indirect_delete(table, handle)
            self.added.remove((table, handle))
        self.entries = {name: each for name, each in self.entries.items() if each in self.added}

    def _entry(self, name: str) -> tuple[str, int]:
        if name not in self.entries:
            known = ", ".join(self.entries) or "none"
            raise ControlError(f"no entry is called {name}. Named entries: {known}.")
        return self.entries[name]

    def _check(self, check: stated.CheckCounter) -> None:
        index = check.index if isinstance(check.index, int) else self._entry(check.index)[1]
        packets, size = self.control.counter_read(self.names.counter(check.counter).name, index)
        got = size if check.unit == "bytes" else packets
        if check.unit is not None and not _RELATIONS[check.relation](got, check.value):
            self.failures.append(WrongCounter(check.line, check, got))

    def _check_register(self, check: stated.CheckRegister) -> None:
        got = self.control.register_read(self.names.register(check.register).name, check.index)
        if not _RELATIONS[check.relation](got, check.value):
            self.failures.append(WrongRegister(check.line, check, got))

    # ── Packets ──

    def _compare(self, statements: Sequence[stated.Statement]) -> int:
        expected: dict[int, list[stated.Expect]] = {}
        silent = False
        for statement in statements:
            if isinstance(statement, stated.Expect):
                expected.setdefault(statement.port, []).append(statement)
            elif isinstance(statement, stated.Send):
                expected.setdefault(statement.port, [])
            silent |= isinstance(statement, stated.NoPacket)
        compared = 0
        for port in sorted({*expected, *self.sent} if silent else expected):
            wanted, got = expected.get(port, []), self.sent.get(port, [])
            compared += len(got)
            for i in range(max(len(wanted), len(got))):
                one = wanted[i] if i < len(wanted) else None
                other = got[i] if i < len(got) else None
                if one is None or other is None or not fits(one, other):
                    self.failures.append(WrongPacket(port, i, one, other))
        return compared


@dataclass(slots=True)
class _BuiltinRun(_StfRun):
    """A test on the built-in switch."""

    switch: Switch

    @property
    def control(self) -> ControlPlane:
        return self.switch.control

    def _command(self, text: str) -> str:
        return self.switch.command(text)

    def _send(self, statement: stated.Send) -> None:
        try:
            left = self._process(PacketBatch.from_packets([(statement.port, statement.data)]))
        except ValueError as error:  # a port that no switch has
            self.failures.append(Refused(statement.line, str(error)))
            return
        self.packets += 1
        self._take(left, statement.line)

    def _process(self, packet: PacketBatch) -> PacketBatch:
        return self.switch.process_batch(packet)

    def _take(self, left: PacketBatch, line: int) -> None:
        """Keep the packets that left, and the entries that expired until then."""
        idle = self.switch.take_idle_timeouts()
        self.printed += [(line, str(each)) for each in idle]
        self._keep(left.to_packets())

    def _pause(self) -> None:
        """Let time pass before a packet that does not directly follow another one."""
        self.switch.state.clock += PAUSE

    def _wait(self, statement: stated.Wait) -> None:
        """The next packet comes after a pause."""

    def _end(self, line: int) -> None:
        """Everything has left already."""


@dataclass(slots=True)
class _TimedRun(_BuiltinRun):
    """A timed test: packets arrive at times, and wait in the egress queues."""

    gap: int
    now: int = field(init=False, default=0)

    def _pause(self) -> None:
        """Do nothing: only gaps and waits let time pass."""

    def _wait(self, statement: stated.Wait) -> None:
        wait = PAUSE * 1000 if statement.nanoseconds is None else statement.nanoseconds
        self.now += wait
        self._take(self.switch.run_until(self.now), statement.line)

    def _process(self, packet: PacketBatch) -> PacketBatch:
        if self.packets:
            self.now += self.gap
        return self.switch.process_batch(packet, times=[self.now], until=self.now)

    def _end(self, line: int) -> None:
        self._take(self.switch.run_until(), line)


@dataclass(slots=True)
class _SimpleSwitchRun(_StfRun):
    """A test on a running simple_switch."""

    session: Session

    @property
    def control(self) -> ControlPlane:
        return self.session.control

    def _command(self, text: str) -> str:
        return self.session.command(text).strip()

    def _send(self, statement: stated.Send) -> None:
        if statement.port > MAX_PORT:
            reason = f"a packet arrives at port {statement.port}; a switch has ports 0..{MAX_PORT}"
            self.failures.append(Refused(statement.line, reason))
            return
        try:
            left = self.session.play(1)
        except ProgramError as error:
            self.failures.append(Refused(statement.line, str(error)))
            self.ended = True
            return
        self.packets += 1
        self._keep((port, data) for port, packets in left.items() for data in packets)

    def _pause(self) -> None:
        """The switch is idle; its clock runs on."""

    def _wait(self, statement: stated.Wait) -> None:
        time.sleep((statement.nanoseconds or 0) / 1e9)

    def _end(self, line: int) -> None:
        """Everything has left already."""


def fits(expected: stated.Expect, got: bytes) -> bool:
    """Whether a packet matches the expected one."""
    if expected.pattern is None:
        return True
    digits = got.hex().upper()
    length = len(expected.pattern)
    if len(digits) < length or (expected.exact and len(digits) > length):
        return False
    return all(want in ("*", digit) for want, digit in zip(expected.pattern, digits, strict=False))
