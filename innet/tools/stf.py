"""Runs STF tests (``stf_syntax``) on the built-in switch.

What p4c's own runner does with simple_switch decides what a test means: packets are compared in
order, port by port, with what each port was expected to send; a port that takes part in the test
and of which nothing is expected must stay silent; what leaves at other ports is not looked at.
Different from there, counters are really checked, and a command that the switch refuses fails the
test.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from innet.core.errors import ControlError
from innet.switch import EngineName, Switch, ir
from innet.tools import stf_statements as stated
from innet.tools.stf_names import Names, arguments_of, match_of

PAUSE = 1_000_000
"""Microseconds between a command and the next packet, as p4c's runner waits."""

HIGHEST_PRIORITY = 10_000
"""STF's priority p is simple_switch's 10000 - p: there the lowest number wins."""

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
    """The packet number ``position`` (from 0) that left at ``port`` is not as expected.

    ``expected`` None: none was expected any more. ``got`` None: none left.
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
    """A statement that could not be carried out."""

    line: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class WrongCounter:
    """A counter that does not hold what it should."""

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


Failure = WrongPacket | Refused | WrongCounter


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test.

    Attributes:
        test: its name.
        failures: in the order of the file, packets last; none: it passed.
        packets: how many were sent into the switch.
        compared: how many packets that left were compared.
        printed: (line, text) of what commands printed, such as registers that were read.
    """

    test: str
    failures: tuple[Failure, ...]
    packets: int
    compared: int
    printed: tuple[tuple[int, str], ...]

    @property
    def passed(self) -> bool:
        return not self.failures


def run(program: ir.Program, test: stated.Test, engine: EngineName = "jit") -> Outcome:
    """Run a test on a fresh switch.

    Raises:
        UnsupportedError: the program uses something that the engine does not have.
    """
    return _Run(Switch(program, engine)).run(test)


@dataclass(slots=True)
class _Run:
    switch: Switch
    names: Names = field(init=False)
    entries: dict[str, tuple[str, int]] = field(init=False, default_factory=dict)
    """What the test calls an entry, to its table and handle."""
    added: list[tuple[str, int]] = field(init=False, default_factory=list)
    sent: dict[int, list[bytes]] = field(init=False, default_factory=dict)
    failures: list[Failure] = field(init=False, default_factory=list)
    printed: list[tuple[int, str]] = field(init=False, default_factory=list)
    packets: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.names = Names(self.switch.program)

    def run(self, test: stated.Test) -> Outcome:
        paused = False
        for statement in test.statements:
            if isinstance(statement, stated.Send):
                self.switch.state.clock += 0 if paused else PAUSE
                paused = True
                self._send(statement)
            elif not isinstance(statement, stated.Expect | stated.NoPacket):
                paused = False
                try:
                    self._control(statement)
                except ControlError as error:
                    self.failures.append(Refused(statement.line, str(error)))
        compared = self._compare(test.statements)
        return Outcome(test.name, tuple(self.failures), self.packets, compared, tuple(self.printed))

    def _send(self, statement: stated.Send) -> None:
        try:
            left = self.switch.process([(statement.port, statement.data)])
        except ValueError as error:  # a port that no switch has
            self.failures.append(Refused(statement.line, str(error)))
            return
        self.packets += 1
        for port, data in left:
            self.sent.setdefault(port, []).append(data)

    # ── Control plane ──

    def _control(
        self,
        statement: stated.Add
        | stated.SetDefault
        | stated.Remove
        | stated.CheckCounter
        | stated.Command
        | stated.Wait,
    ) -> None:
        match statement:
            case stated.Add():
                self._add(statement)
            case stated.SetDefault(_, table, call):
                target = self.names.table(table)
                action = self.names.action(target, call.action)
                self.switch.table_set_default(
                    target.name, action.name, arguments_of(action, call.arguments)
                )
            case stated.Remove():
                self._remove(statement)
            case stated.CheckCounter():
                self._check(statement)
            case stated.Command(line, text):
                if printed := self.switch.command(text):
                    self.printed.append((line, printed))
            case stated.Wait():
                pass  # the next packet comes after a pause

    def _add(self, statement: stated.Add) -> None:
        table = self.names.table(statement.table)
        given = {self.names.key(table, name): text for name, text in statement.keys}
        matches = [match_of(key, given.get(i)) for i, key in enumerate(table.keys)]
        action = self.names.action(table, statement.call.action)
        arguments = arguments_of(action, statement.call.arguments)
        priority = None
        if table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE):
            if statement.priority is None:
                raise ControlError(
                    f"table {table.name} is {table.match.value}, so that its entries need a "
                    "priority, written after the table's name"
                )
            priority = HIGHEST_PRIORITY - statement.priority
        handle = self.switch.table_add(table.name, action.name, matches, arguments, priority)
        self.added.append((table.name, handle))
        if statement.entry is not None:
            self.entries[statement.entry.removeprefix("$")] = (table.name, handle)

    def _remove(self, statement: stated.Remove) -> None:
        chosen = self.added if statement.entry is None else [self._entry(statement.entry)]
        for table, handle in list(chosen):
            self.switch.table_delete(table, handle)
            self.added.remove((table, handle))
        self.entries = {name: each for name, each in self.entries.items() if each in self.added}

    def _entry(self, name: str) -> tuple[str, int]:
        if name not in self.entries:
            known = ", ".join(self.entries) or "none"
            raise ControlError(f"no entry is called {name}. Named entries: {known}.")
        return self.entries[name]

    def _check(self, check: stated.CheckCounter) -> None:
        index = check.index if isinstance(check.index, int) else self._entry(check.index)[1]
        packets, size = self.switch.control.counter_read(
            self.names.counter(check.counter).name, index
        )
        got = size if check.unit == "bytes" else packets
        if check.unit is not None and not _RELATIONS[check.relation](got, check.value):
            self.failures.append(WrongCounter(check.line, check, got))

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


def fits(expected: stated.Expect, got: bytes) -> bool:
    """Whether a packet is what was expected."""
    if expected.pattern is None:
        return True
    digits = got.hex().upper()
    length = len(expected.pattern)
    if len(digits) < length or (expected.exact and len(digits) > length):
        return False
    return all(want in ("*", digit) for want, digit in zip(expected.pattern, digits, strict=False))
