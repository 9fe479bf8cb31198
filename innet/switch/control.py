"""The control plane of a switch, typed: tables, registers, counters, replication, value sets.

Every method checks all that it is given before it changes anything, so that a refused command
leaves the state as it was. Names may be shortened to any unique ending at a dot, as in
simple_switch_CLI: ``ingress.pool.admit`` may be called ``pool.admit`` or ``admit``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.errors import ControlError, UnknownNameError
from innet.switch import hashes, ir
from innet.switch.engine import SwitchState
from innet.switch.tables import BYTES, PACKETS, RuntimeEntry, TableState
from innet.switch.whole import whole

Key = int | str | tuple[int, int] | ir.Match | None
"""One field of a match: an integer (all its bits must be equal), (value, prefix length) for lpm,
(value, mask) for ternary, (low, high) for range, None for anything at all, or text as
simple_switch_CLI reads it."""

Plain = int | str | tuple[int, int] | None

Number = int | str
"""An integer, or text: decimal, 0x..., an IPv4, IPv6 or Ethernet address where the width fits."""


class ControlPlane:
    """Commands over the state of one switch."""

    def __init__(self, state: SwitchState) -> None:
        self.state = state
        self.program = program = state.program
        self._tables = _endings(table.name for table in program.tables)
        self._registers = _endings(register.name for register in program.registers)
        self._counters = _endings(counter.name for counter in program.counters)
        self._value_sets = _endings(each.name for each in program.value_sets)
        self._calculations = _endings(each.name for each in program.calculations)

    # ── Tables ──

    def table(self, name: str) -> TableState:
        """The table called ``name``."""
        return self.state.tables[
            _resolve("table", name, self._tables, [t.name for t in self.program.tables])
        ]

    def table_add(
        self,
        table: str,
        action: str,
        keys: Sequence[Key],
        parameters: Sequence[Number] = (),
        priority: int | None = None,
    ) -> int:
        """Add an entry; returns its handle.

        Args:
            table: its name.
            action: its name, one of the table's.
            keys: one per field of the table's key.
            parameters: one per parameter of the action.
            priority: needed by ternary and range tables, where the lowest number wins.

        Raises:
            ControlError: something does not exist, does not fit, is there already, or is constant.
        """
        target = self.table(table)
        entry = self._action_entry(target, action, parameters)
        matches = self._matches(target.table, keys)
        ordered = target.table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)
        if ordered and priority is None:
            raise ControlError(
                f"table {target.table.name} is {target.table.match.value}, so its entries need a "
                "priority"
            )
        if priority is not None and not 0 <= whole(priority, "the priority") < 1 << 31:
            raise ControlError(f"priority {priority} is not in 0..2147483647")
        return target.add(matches, entry, priority or 0)

    def table_modify(
        self, table: str, action: str, handle: int, parameters: Sequence[Number] = ()
    ) -> None:
        """Change what an entry runs."""
        target = self.table(table)
        target.modify(handle, self._action_entry(target, action, parameters))

    def table_set_default(self, table: str, action: str, parameters: Sequence[Number] = ()) -> None:
        """Change what a miss runs."""
        target = self.table(table)
        target.set_default(self._action_entry(target, action, parameters))

    def _action_entry(
        self, target: TableState, action: str, parameters: Sequence[Number]
    ) -> ir.ActionEntry:
        candidates = target.table.actions
        names = [self.program.actions[each].name for each in candidates]
        index = candidates[
            _resolve("action", action, _endings(names), names, of=f"table {target.table.name}")
        ]
        wanted = self.program.actions[index].parameters
        if len(parameters) != len(wanted):
            described = ", ".join(f"{each.name} ({each.width} bits)" for each in wanted)
            raise ControlError(
                f"action {self.program.actions[index].name} needs {len(wanted)} parameters, not "
                f"{len(parameters)}: {described or 'none'}"
            )
        return ir.ActionEntry(
            index,
            tuple(
                number(value, each.width, f"parameter {each.name}")
                for value, each in zip(parameters, wanted, strict=True)
            ),
        )

    def _matches(self, table: ir.Table, keys: Sequence[Key]) -> list[ir.Match]:
        if len(keys) != len(table.keys):
            described = ", ".join(f"{each.name} ({each.match.value})" for each in table.keys)
            raise ControlError(
                f"table {table.name} needs {len(table.keys)} key fields, not {len(keys)}: "
                f"{described or 'none'}"
            )
        return [match_of(key, field) for key, field in zip(keys, table.keys, strict=True)]

    # ── Registers and counters ──

    def register(self, name: str) -> tuple[ir.RegisterArray, NDArray[Any]]:
        """The register array called ``name`` and its cells."""
        names = [register.name for register in self.program.registers]
        index = _resolve("register", name, self._registers, names)
        return self.program.registers[index], self.state.registers[index]

    def register_read(self, name: str, index: int) -> int:
        array, cells = self.register(name)
        return int(cells[_inside(index, array.size, array.name)])

    def register_write(self, name: str, index: int, value: int) -> None:
        """Write a cell; a negative value is kept as two's complement."""
        array, cells = self.register(name)
        place = _inside(index, array.size, array.name)
        value = whole(value, f"register {array.name}")
        if not -(1 << array.width - 1) <= value < 1 << array.width:
            raise ControlError(
                f"{value} does not fit the {array.width} bits of register {array.name}"
            )
        cells[place] = value & ((1 << array.width) - 1)

    def register_reset(self, name: str) -> None:
        """All cells to 0."""
        self.register(name)[1][...] = 0

    def counter(self, name: str) -> tuple[ir.CounterArray, NDArray[np.uint64]]:
        """The counter array called ``name`` and its cells, columns PACKETS and BYTES."""
        names = [counter.name for counter in self.program.counters]
        index = _resolve("counter", name, self._counters, names)
        return self.program.counters[index], self.state.counters[index]

    def counter_read(self, name: str, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell; for a direct counter ``index`` is an entry's handle."""
        cell = self._counter_cell(name, index)
        return int(cell[PACKETS]), int(cell[BYTES])

    def counter_write(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a cell; ``size`` in bytes."""
        cell = self._counter_cell(name, index)
        for value in (packets, size):
            if not 0 <= whole(value, "a counter") < 1 << 64:
                raise ControlError(f"{value} does not fit a counter, which has 64 bits")
        cell[PACKETS], cell[BYTES] = packets, size

    def _counter_cell(self, name: str, index: int) -> NDArray[np.uint64]:
        array, cells = self.counter(name)
        if array.table is not None:
            index = self.state.tables[array.table].get(index).index
        row: NDArray[np.uint64] = cells[_inside(index, array.size, array.name)]
        return row

    def counter_reset(self, name: str) -> None:
        """All cells to 0."""
        self.counter(name)[1][...] = 0

    # ── Replication ──

    def multicast_group(self, group: int, replicas: Iterable[tuple[int, int]]) -> None:
        """Make ``group`` copy to each (port, rid), in that order, whatever it did before."""
        replication = self.state.replication
        pairs = list(replicas)
        handles = []
        try:
            for port, rid in pairs:
                handles.append(replication.create_node(rid, [port]))
            if group not in replication.groups:
                replication.create_group(group)
        except ControlError:
            for handle in handles:
                replication.destroy_node(handle)
            raise
        for old in list(replication.groups[group]):
            replication.destroy_node(old)
        for handle in handles:
            replication.associate(group, handle)

    # ── Parser value sets and hash parameters ──

    def value_set(self, name: str) -> tuple[ir.ValueSet, set[int]]:
        """The parser value set called ``name`` and its members."""
        names = [each.name for each in self.program.value_sets]
        index = _resolve("parser value set", name, self._value_sets, names)
        return self.program.value_sets[index], self.state.value_sets[index]

    def value_set_add(self, name: str, value: Number) -> None:
        described, members = self.value_set(name)
        members.add(number(value, described.width, f"parser value set {described.name}"))
        self.state.generation.bump()

    def value_set_remove(self, name: str, value: Number) -> None:
        """Nothing happens when it is not in it."""
        described, members = self.value_set(name)
        members.discard(number(value, described.width, f"parser value set {described.name}"))
        self.state.generation.bump()

    def value_set_clear(self, name: str) -> None:
        self.value_set(name)[1].clear()
        self.state.generation.bump()

    def set_crc(self, calculation: str, parameters: hashes.CrcParameters) -> None:
        """Change the CRC of a calculation whose algorithm is crc16_custom or crc32_custom."""
        names = [each.name for each in self.program.calculations]
        index = _resolve("calculation", calculation, self._calculations, names)
        algorithm = self.program.calculations[index].algorithm
        if algorithm != f"crc{parameters.width}_custom":
            raise ControlError(
                f"calculation {names[index]} is {algorithm}, not crc{parameters.width}_custom"
            )
        for value in (parameters.polynomial, parameters.initial, parameters.final_xor):
            number(value, parameters.width, "a CRC parameter")
        self.state.crc[index] = parameters
        self.state.generation.bump()


# ── Values ───────────────────────────────────────────────────────────────────────────────────────


def number(value: Number, width: int, what: str) -> int:
    """A value of ``width`` bits; ControlError, which calls it ``what``, when it does not fit."""
    parsed = _parse(value, width, what) if isinstance(value, str) else whole(value, what)
    if parsed < 0 or parsed >> width:
        raise ControlError(f"{value} does not fit the {width} bits of {what}")
    return parsed


def _parse(text: str, width: int, what: str) -> int:
    try:
        if width == 32 and "." in text:
            return int(ipaddress.IPv4Address(text))
        if width == 48 and ":" in text:
            parts = [int(part, 16) for part in text.split(":")]
            if len(parts) != 6 or not all(0 <= part <= 0xFF for part in parts):
                raise ValueError
            return int.from_bytes(bytes(parts), "big")
        if width == 128 and ":" in text:
            return int(ipaddress.IPv6Address(text))
        return int(text, 0)
    except ValueError:
        raise ControlError(f"{text!r} is no number for {what}; write 42, 0x2a or 0b101") from None


def match_of(key: Key, field: ir.TableKey) -> ir.Match:
    """What ``key`` says about ``field``; ControlError when it cannot say that."""
    what = f"key field {field.name}"
    plain = _plain(key, field, what)
    every = (1 << field.width) - 1
    match field.match:
        case ir.MatchKind.EXACT | ir.MatchKind.VALID:
            if plain is None or isinstance(plain, tuple):
                raise ControlError(f"{what} is {field.match.value}: it needs one value")
            return ir.ExactMatch(number(plain, field.width, what))
        case ir.MatchKind.LPM:
            first, second = _pair(plain, "/", (0, 0), field.width)
            prefix = _integer(second, f"the prefix length of {what}")
            if not 0 <= prefix <= field.width:
                raise ControlError(f"prefix length {prefix} is not in 0..{field.width} of {what}")
            return ir.LpmMatch(number(first, field.width, what), prefix)
        case ir.MatchKind.TERNARY:
            first, second = _pair(plain, "&&&", (0, 0), every)
            mask = number(second, field.width, f"the mask of {what}")
            return ir.TernaryMatch(number(first, field.width, what), mask)
        case ir.MatchKind.RANGE:
            first, second = _pair(plain, "->", (0, every), first_again=True)
            low, high = number(first, field.width, what), number(second, field.width, what)
            if low > high:
                raise ControlError(f"{low}->{high} is an empty range for {what}")
            return ir.RangeMatch(low, high)


def _plain(key: Key, field: ir.TableKey, what: str) -> Plain:
    """``key`` without its class, which must be that of the field's kind."""
    kinds: Mapping[type, tuple[ir.MatchKind, ...]] = {
        ir.ExactMatch: (ir.MatchKind.EXACT, ir.MatchKind.VALID),
        ir.LpmMatch: (ir.MatchKind.LPM,),
        ir.TernaryMatch: (ir.MatchKind.TERNARY,),
        ir.RangeMatch: (ir.MatchKind.RANGE,),
    }
    if field.match not in kinds.get(type(key), (field.match,)):
        raise ControlError(f"{what} is {field.match.value}, which {type(key).__name__} is not")
    match key:
        case ir.ExactMatch(value):
            return value
        case ir.LpmMatch(first, second) | ir.TernaryMatch(first, second):
            return (first, second)
        case ir.RangeMatch(low, high):
            return (low, high)
    return key


def _pair(
    key: Plain,
    separator: str,
    anything: tuple[int, int],
    other: int = 0,
    *,
    first_again: bool = False,
) -> tuple[Number, Number]:
    """Both parts of a key. The second part of a key of one part is ``other``, or the first."""
    if key is None:
        return anything
    if isinstance(key, tuple):
        return key
    if isinstance(key, str) and separator in key:
        first, _, second = key.partition(separator)
        return first.strip(), second.strip()
    return key, key if first_again else other


def _integer(value: Number, what: str) -> int:
    if not isinstance(value, str):
        return whole(value, what)
    try:
        return int(value)
    except ValueError:
        raise ControlError(f"{value!r} is no integer for {what}") from None


def _inside(index: int, size: int, name: str) -> int:
    index = whole(index, f"the index of {name}")
    if not 0 <= index < size:
        raise ControlError(f"index {index} is not in 0..{size - 1} of {name}")
    return index


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


def _endings(names: Iterable[str]) -> dict[str, int | None]:
    """Every ending at a dot of every name, to its position; None where it is not unique."""
    endings: dict[str, int | None] = {}
    listed = list(names)
    for position, name in enumerate(listed):
        parts = name.split(".")
        for first in range(1, len(parts)):
            ending = ".".join(parts[first:])
            endings[ending] = None if ending in endings else position
    # A whole name means itself, even where it is the ending of another.
    endings.update({name: position for position, name in reversed(list(enumerate(listed)))})
    return endings


def _resolve(
    kind: str, name: str, endings: Mapping[str, int | None], names: list[str], *, of: str = ""
) -> int:
    position = endings.get(name)
    if position is not None:
        return position
    if name in endings:
        fitting = [each for each in names if each.endswith(f".{name}")]
        more = ", ..." if len(fitting) > 10 else ""
        listed = ", ".join(sorted(fitting)[:10]) + more
        raise ControlError(f"{kind} {name!r} is ambiguous: {listed}")
    raise ControlError(str(UnknownNameError(kind, name, names, of=of)))


def describe(entry: RuntimeEntry, program: ir.Program) -> str:
    """An entry on one line, in the words of table_add."""
    keys = " ".join(_describe_match(match) for match in entry.matches)
    action = program.actions[entry.action.action].name
    arguments = " ".join(hex(value) for value in entry.action.arguments)
    return f"{entry.handle}: {keys} => {action} {arguments} priority {entry.priority}"


def _describe_match(match: ir.Match) -> str:
    if isinstance(match, ir.ExactMatch):
        return hex(match.value)
    if isinstance(match, ir.LpmMatch):
        return f"{match.value:#x}/{match.prefix}"
    if isinstance(match, ir.TernaryMatch):
        return f"{match.value:#x}&&&{match.mask:#x}"
    return f"{match.low:#x}->{match.high:#x}"
