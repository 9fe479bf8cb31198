"""The control plane of a switch, typed: tables, registers, counters, replication, value sets.

Every method checks all that it is given before it changes anything, so that a refused command
leaves the state as it was. Names may be shortened to any unique ending at a dot, as in
simple_switch_CLI: ``ingress.pool.admit`` may be called ``pool.admit`` or ``admit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError
from innet.core.numbers import require_int
from innet.switch import ir
from innet.switch.control.entries import action_entry, checked, matches_of
from innet.switch.control.meters import MeterControl
from innet.switch.control.names import Names
from innet.switch.control.profiles import ProfileControl
from innet.switch.control.values import Key, Number, inside, number
from innet.switch.engine import SwitchState, cell_value, set_cell
from innet.switch.state import hashes
from innet.switch.state.tables import BYTES, PACKETS, RuntimeEntry, TableState


class ControlPlane(MeterControl, ProfileControl):
    """Commands over the state of one switch.

    Names may be shortened to an ending at a dot that only one thing of the kind has. Handles, ports
    and indices are those of simple_switch.

    Raises:
        ControlError: any of the methods, where it refuses something; then nothing has changed.
    """

    def __init__(self, state: SwitchState) -> None:
        self.state = state
        self.program = program = state.program
        self._registers = Names("register", (each.name for each in program.registers))
        self._counters = Names("counter", (each.name for each in program.counters))
        self._value_sets = Names("parser value set", (each.name for each in program.value_sets))
        self._calculations = Names("calculation", (each.name for each in program.calculations))

    # ── Tables ──

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
        target = self._simple_table(table)
        entry = self._action_entry(target, action, parameters)
        return target.add(matches_of(target.table, keys), entry, checked(target.table, priority))

    def table_modify(
        self, table: str, action: str, handle: int, parameters: Sequence[Number] = ()
    ) -> None:
        """Change what an entry runs."""
        target = self._simple_table(table)
        target.modify(handle, self._action_entry(target, action, parameters))

    def table_set_default(self, table: str, action: str, parameters: Sequence[Number] = ()) -> None:
        """Change what a miss runs."""
        target = self._simple_table(table)
        target.set_default(self._action_entry(target, action, parameters))

    def table_find(
        self, table: str, keys: Sequence[Key], priority: int | None = None
    ) -> RuntimeEntry:
        """The entry that was added with these keys; ControlError when there is none."""
        target = self.table(table)
        matches = matches_of(target.table, keys)
        return target.find(matches, checked(target.table, priority))

    def table_set_timeout(self, table: str, handle: int, milliseconds: int) -> None:
        """Say after how long without a hit simple_switch would report an entry.

        The table's ``support_timeout`` must be set. Nothing is reported here, and packets do not
        meet it in simple_switch either, which leaves removing entries to its controller.
        """
        target = self.table(table)
        target.get(handle)
        number(milliseconds, 31, "the timeout in milliseconds")
        target.require_timeouts()

    def _action_entry(
        self, target: TableState, action: str, parameters: Sequence[Number]
    ) -> ir.ActionEntry:
        table = target.table
        return action_entry(
            self.program, table.actions, action, parameters, of=f"table {table.name}"
        )

    def _simple_table(self, name: str) -> TableState:
        """The table called ``name``, whose entries hold actions themselves."""
        target = self.table(name)
        profile = self.state.profile_of(target.table)
        if profile is not None:
            raise ControlError(
                f"table {target.table.name} takes its actions from action profile "
                f"{profile.profile.name}; use table_indirect_add and the like"
            )
        return target

    # ── Registers and counters ──

    def register(self, name: str) -> tuple[ir.RegisterArray, NDArray[Any]]:
        """The register array called ``name`` and its cells."""
        index = self._registers.find(name)
        return self.program.registers[index], self.state.registers[index]

    def register_read(self, name: str, index: int) -> int:
        """A cell, not negative, whatever its width."""
        array, cells = self.register(name)
        return cell_value(cells, inside(index, array.size, array.name))

    def register_write(self, name: str, index: int, value: int) -> None:
        """Write a cell; a negative value is kept as two's complement."""
        array, cells = self.register(name)
        place = inside(index, array.size, array.name)
        value = require_int(value, f"register {array.name}")
        if not -(1 << array.width - 1) <= value < 1 << array.width:
            raise ControlError(
                f"{value} does not fit the {array.width} bits of register {array.name}"
            )
        set_cell(cells, place, value & ((1 << array.width) - 1))

    def register_reset(self, name: str) -> None:
        """All cells to 0."""
        self.register(name)[1][...] = 0

    def counter(self, name: str) -> tuple[ir.CounterArray, NDArray[np.uint64]]:
        """The counter array called ``name`` and its cells, columns PACKETS and BYTES."""
        index = self._counters.find(name)
        return self.program.counters[index], self.state.counters[index]

    def counter_read(self, name: str, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell; for a direct counter ``index`` is an entry's handle."""
        cell = self._counter_cell(name, index)
        return int(cell[PACKETS]), int(cell[BYTES])

    def counter_write(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a cell; ``size`` in bytes."""
        cell = self._counter_cell(name, index)
        for value in (packets, size):
            if not 0 <= require_int(value, "a counter") < 1 << 64:
                raise ControlError(f"{value} does not fit a counter, which has 64 bits")
        cell[PACKETS], cell[BYTES] = packets, size

    def _counter_cell(self, name: str, index: int) -> NDArray[np.uint64]:
        array, cells = self.counter(name)
        if array.table is not None:
            index = self.state.tables[array.table].get(index).index
        row: NDArray[np.uint64] = cells[inside(index, array.size, array.name)]
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
        index = self._value_sets.find(name)
        return self.program.value_sets[index], self.state.value_sets[index]

    def value_set_add(self, name: str, value: Number) -> None:
        """Let the parser meet this value; nothing happens when it is in it already."""
        described, members = self.value_set(name)
        members.add(number(value, described.width, f"parser value set {described.name}"))
        self.state.generation.bump()

    def value_set_remove(self, name: str, value: Number) -> None:
        """Nothing happens when it is not in it."""
        described, members = self.value_set(name)
        members.discard(number(value, described.width, f"parser value set {described.name}"))
        self.state.generation.bump()

    def value_set_clear(self, name: str) -> None:
        """Nothing is in it any more."""
        self.value_set(name)[1].clear()
        self.state.generation.bump()

    def set_crc(self, calculation: str, parameters: hashes.CrcParameters) -> None:
        """Change the CRC of a calculation whose algorithm is crc16_custom, crc32_custom, ..."""
        index = self._calculations.find(calculation)
        for value in (parameters.polynomial, parameters.initial, parameters.final_xor):
            number(value, parameters.width, "a CRC parameter")
        self.state.hashes[index].set_crc(parameters)
        self.state.generation.bump()

    def set_toeplitz_key(self, calculation: str, key: bytes) -> None:
        """Change the key of a calculation whose algorithm is toeplitz."""
        self.state.hashes[self._calculations.find(calculation)].set_key(key)
        self.state.generation.bump()
