"""The control plane of the built-in switch: operations on its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError, Refusal
from innet.core.packets import MAX_PORT
from innet.switch import ir
from innet.switch.control.control_plane import ControlPlane, QueueSetting
from innet.switch.engine import SwitchState, cell_value, set_cell
from innet.switch.state.hashes import CrcParameters
from innet.switch.state.meters import MeterRate
from innet.switch.state.replication import MirrorSession, Replication
from innet.switch.state.tables import BYTES, PACKETS, ProfileRef, RuntimeEntry, TableState, Target
from innet.switch.traffic_manager import QueueState

_REMEDIES = {
    "load_new_config_file": "load the other program into a separate switch",
    "swap_configs": "load the other program into a separate switch",
    "write_config_to_file": "the program is the file that was loaded",
    "serialize_state": "read Switch.state",
    "port_add": "all ports are there",
    "port_remove": "all ports are there",
    "shell": "run it in a shell",
}


def _meaningless(name: str, remedy: str) -> str:
    return f"{name} of simple_switch_CLI means nothing here: {remedy}"


class BuiltinControlPlane(ControlPlane):
    """Operations on the state of one switch."""

    unavailable: ClassVar[Mapping[str, str]] = {
        name: _meaningless(name, remedy) for name, remedy in _REMEDIES.items()
    }

    def __init__(self, state: SwitchState) -> None:
        super().__init__(state.program)
        self.state = state

    def table_state(self, name: str) -> TableState:
        """The entries of the table called ``name``."""
        return self.state.tables[self._tables.index(name)]

    # ── Tables ──

    def table_entries(self, table: str) -> list[RuntimeEntry]:
        return self._entries(self._tables.index(table))

    def _add_entry(
        self, table: int, matches: Sequence[ir.Match], action: Target, priority: int
    ) -> int:
        if isinstance(action, ProfileRef):
            self._require_target(table, action, with_members=True)
        return self.state.tables[table].add(matches, action, priority, self._swept(table))

    def _modify_entry(self, table: int, handle: int, action: Target) -> None:
        if isinstance(action, ProfileRef):
            self._require_target(table, action, with_members=True)
        self.state.tables[table].modify(handle, action)

    def _delete_entry(self, table: int, handle: int) -> None:
        self._swept(table)
        self.state.tables[table].delete(handle)

    def _clear_table(self, table: int) -> None:
        self._swept(table)
        self.state.tables[table].clear()

    def _set_default(self, table: int, action: Target) -> None:
        if isinstance(action, ProfileRef):
            self._require_target(table, action)
        self.state.tables[table].set_default(action)

    def _reset_default(self, table: int) -> None:
        self.state.tables[table].reset_default()

    def _set_timeout(self, table: int, handle: int, milliseconds: int) -> None:
        state = self.state.tables[table]
        assert state.ages is not None, "the table supports timeouts"
        state.ages.set_timeout(state.get(handle).index, milliseconds, self._swept(table))

    def _swept(self, table: int) -> int:
        """The time, after the sweeps due by then, for a change of entries that age; else 0."""
        return self.state.time() if self.program.tables[table].support_timeout else 0

    def _count_entries(self, table: int) -> int:
        return len(self.state.tables[table])

    def _entries(self, table: int) -> list[RuntimeEntry]:
        return [self._with_life(table, each) for each in self.state.tables[table]]

    def _entry(self, table: int, handle: int) -> RuntimeEntry:
        return self._with_life(table, self.state.tables[table].get(handle))

    def _find_entry(self, table: int, matches: Sequence[ir.Match], priority: int) -> RuntimeEntry:
        return self._with_life(table, self.state.tables[table].find(matches, priority))

    def _with_life(self, table: int, entry: RuntimeEntry) -> RuntimeEntry:
        ages = self.state.tables[table].ages
        if ages is None:
            return entry
        return replace(entry, life=ages.life(entry.index, self.state.time()))

    def _default(self, table: int) -> Target | None:
        return self.state.tables[table].default

    def _require_target(
        self, table: int, target: ProfileRef, *, with_members: bool = False
    ) -> None:
        """Raise ControlError unless the profile of a table has this member or group."""
        profile = self.state.profile_of(self.program.tables[table])
        assert profile is not None
        if not target.group:
            profile.require_member(target.handle)
        elif not profile.require_group(target.handle) and with_members:
            raise ControlError(
                f"group {target.handle} of {profile.profile.name} is empty", Refusal.EMPTY_GROUP
            )

    # ── Action profiles ──

    def _create_member(self, profile: int, entry: ir.ActionEntry) -> int:
        return self.state.profiles[profile].create_member(entry)

    def _modify_member(self, profile: int, member: int, entry: ir.ActionEntry) -> None:
        self.state.profiles[profile].modify_member(member, entry)

    def _delete_member(self, profile: int, member: int) -> None:
        self.state.profiles[profile].delete_member(member)

    def _create_group(self, profile: int) -> int:
        return self.state.profiles[profile].create_group()

    def _delete_group(self, profile: int, group: int) -> None:
        self.state.profiles[profile].delete_group(group)

    def _add_to_group(self, profile: int, member: int, group: int) -> None:
        self.state.profiles[profile].add_to_group(member, group)

    def _remove_from_group(self, profile: int, member: int, group: int) -> None:
        self.state.profiles[profile].remove_from_group(member, group)

    def _members(self, profile: int) -> dict[int, ir.ActionEntry]:
        return dict(self.state.profiles[profile].members)

    def _member(self, profile: int, member: int) -> ir.ActionEntry:
        found = self.state.profiles[profile]
        found.require_member(member)
        return found.members[member]

    def _groups(self, profile: int) -> dict[int, list[int]]:
        return dict(self.state.profiles[profile].groups)

    def _group(self, profile: int, group: int) -> list[int]:
        return self.state.profiles[profile].require_group(group)

    # ── Registers, counters and meters ──

    def _read_register(self, register: int, index: int) -> int:
        return cell_value(self.state.registers[register], index)

    def _read_registers(self, register: int) -> list[int]:
        cells = self.state.registers[register]
        return [cell_value(cells, index) for index in range(len(cells))]

    def _write_registers(self, register: int, start: int, end: int, value: int) -> None:
        for index in range(start, end):
            set_cell(self.state.registers[register], index, value)

    def _reset_register(self, register: int) -> None:
        self.state.registers[register][...] = 0

    def _read_counter(self, counter: int, index: int) -> tuple[int, int]:
        cell = self._counter_cell(counter, index)
        return int(cell[PACKETS]), int(cell[BYTES])

    def _write_counter(self, counter: int, index: int, packets: int, size: int) -> None:
        cell = self._counter_cell(counter, index)
        cell[PACKETS], cell[BYTES] = packets, size

    def _reset_counter(self, counter: int) -> None:
        self.state.counters[counter][...] = 0

    def _counter_cell(self, counter: int, index: int) -> NDArray[np.uint64]:
        cell = self._cell(self.program.counters[counter], index)
        row: NDArray[np.uint64] = self.state.counters[counter][cell]
        return row

    def _set_rates(self, meter: int, index: int | None, rates: Sequence[MeterRate]) -> None:
        found = self.state.meters[meter]
        cells = slice(None) if index is None else [self._cell(found.array, index)]
        found.set_rates(cells, rates)

    def meter_reset(self, name: str, index: int | None = None) -> None:
        """Take the rates of a cell away, or of all, so that every packet is green."""
        found = self.state.meters[self._meters.index(name)]
        cells = slice(None) if index is None else self._cell(found.array, index)
        found.clear_rates(cells)

    def _get_rates(self, meter: int, index: int) -> list[MeterRate]:
        found = self.state.meters[meter]
        return found.get_rates(self._cell(found.array, index))

    def _cell(self, array: ir.CounterArray | ir.MeterArray, index: int) -> int:
        """The cell of an index; for arrays of a table the index is an entry's handle."""
        return index if array.table is None else self.state.tables[array.table].get(index).index

    # ── Multicast and mirroring ──

    def replication(self) -> Replication:
        return self.state.replication

    def _create_multicast_group(self, group: int) -> None:
        self.state.replication.create_group(group)

    def _destroy_multicast_group(self, group: int) -> None:
        self.state.replication.destroy_group(group)

    def _create_node(self, rid: int, ports: Sequence[int], lags: Sequence[int]) -> int:
        return self.state.replication.create_node(rid, ports, lags)

    def _update_node(self, node: int, ports: Sequence[int], lags: Sequence[int]) -> None:
        self.state.replication.update_node(node, ports, lags)

    def _associate_node(self, group: int, node: int) -> None:
        self.state.replication.associate(group, node)

    def _dissociate_node(self, group: int, node: int) -> None:
        self.state.replication.dissociate(group, node)

    def _destroy_node(self, node: int) -> None:
        self.state.replication.destroy_node(node)

    def _set_lag(self, lag: int, ports: Sequence[int]) -> None:
        self.state.replication.set_lag(lag, ports)

    def _set_mirror_session(self, session: int, where: MirrorSession) -> None:
        self.state.replication.set_session(session, where.port, where.group)

    def _delete_mirror_session(self, session: int) -> None:
        self.state.replication.delete_session(session)

    def _mirror_session(self, session: int) -> MirrorSession:
        return self.state.replication.session(session)

    # ── Parser value sets and hash parameters ──

    def _values(self, value_set: int) -> set[int]:
        return set(self.state.value_sets[value_set])

    def _add_value(self, value_set: int, value: int) -> None:
        self.state.value_sets[value_set].add(value)
        self.state.generation.bump()

    def _remove_value(self, value_set: int, value: int) -> None:
        self.state.value_sets[value_set].discard(value)
        self.state.generation.bump()

    def _clear_values(self, value_set: int) -> None:
        self.state.value_sets[value_set].clear()
        self.state.generation.bump()

    def _set_crc(self, calculation: int, parameters: CrcParameters) -> None:
        self.state.hashes[calculation].set_crc(parameters)
        self.state.generation.bump()

    def _set_toeplitz_key(self, calculation: int, key: bytes) -> None:
        self.state.hashes[calculation].set_key(key)
        self.state.generation.bump()

    # ── The switch as a whole ──

    def _set_queue(
        self, what: QueueSetting, value: int, port: int | None, priority: int | None
    ) -> None:
        queues = self.state.traffic_manager
        if what == "depth":
            queues.set_depth(value, port, priority)
        else:
            queues.set_rate(value, port, priority)

    def _read_queues(self, port: int | None, priority: int | None) -> list[QueueState]:
        queues = self.state.traffic_manager
        if port is None:
            return queues.used_queues()
        chosen = range(queues.priorities) if priority is None else [priority]
        return [queues.queue(port, each) for each in chosen]

    def get_time_elapsed(self) -> int:
        return self.state.clock

    def get_time_since_epoch(self) -> int:
        return self.state.clock

    def switch_info(self) -> str:
        version = ".".join(map(str, self.program.version)) or "none"
        return f"program: {self.program.name}\nversion of its JSON: {version}"

    def show_ports(self) -> str:
        return f"ports 0..{MAX_PORT} are up"

    def reset_state(self) -> NoReturn:
        raise ControlError(_meaningless("reset_state", "load the program again"))
