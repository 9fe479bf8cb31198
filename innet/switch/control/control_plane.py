"""The control plane of a switch: its operations and their checks, for every kind of switch.

``ControlPlane`` checks arguments against the program, resolves names to positions in the program,
and passes them to a subclass: the built-in switch (``innet.switch.control.builtin``) or a running
simple_switch (``innet.bmv2``). The commands of simple_switch_CLI
(``innet.switch.control.commands``) work on any ``ControlPlane``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Protocol

from innet.core.errors import ControlError
from innet.core.numbers import require_int
from innet.switch import ir
from innet.switch.control.values import (
    Key,
    Names,
    Number,
    cell_index,
    check_rates,
    distinct,
    in_range,
    matches_of,
    number,
)
from innet.switch.state.hashes import CrcParameters
from innet.switch.state.meters import MeterRate
from innet.switch.state.profiles import profile_actions
from innet.switch.state.replication import (
    MAX_GROUP,
    MAX_LAG,
    MAX_REPLICATION_PORT,
    MAX_RID,
    MAX_SESSION,
    MirrorSession,
    Replication,
)
from innet.switch.state.tables import EntryLife, ProfileRef, Target, is_ordered
from innet.switch.traffic_manager import QueueState

QueueSetting = Literal["depth", "rate"]


class InstalledEntry(Protocol):
    """An entry of a table, as read by the control plane."""

    @property
    def handle(self) -> int: ...
    @property
    def matches(self) -> tuple[ir.Match, ...]: ...
    @property
    def action(self) -> Target: ...
    @property
    def priority(self) -> int: ...
    @property
    def life(self) -> EntryLife | None:
        """Timeout and time since the last hit; None for an entry without a timeout."""
        ...


class ControlPlane(ABC):
    """Operations on one switch that runs ``program``.

    Operations have the names of simple_switch_CLI's commands, if it has them. Handles, ports and
    indices are those of simple_switch. Names may be shortened (see ``Names``).

    Raises:
        ControlError: from any method that refuses its arguments; then nothing has changed.
    """

    unavailable: ClassVar[Mapping[str, str]] = {}
    """Commands of simple_switch_CLI that this switch lacks, and what to do instead."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._tables = Names("table", program.tables)
        self._profiles = Names("action profile", program.action_profiles)
        self._registers = Names("register", program.registers)
        self._counters = Names("counter", program.counters)
        self._meters = Names("meter", program.meters)
        self._value_sets = Names("parser value set", program.value_sets)
        self._calculations = Names("calculation", program.calculations)
        self._actions_of_table: dict[int, Names[ir.Action]] = {}

    # ── Tables ──

    def table(self, name: str) -> ir.Table:
        """The program's description of table ``name``."""
        return self._tables[name]

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
            ControlError: something does not exist, does not fit, exists already, or is constant.
        """
        index = self._simple_table(table)
        entry = self._action_entry(index, action, parameters)
        target = self.program.tables[index]
        return self._add_entry(index, matches_of(target, keys), entry, _priority(target, priority))

    def table_modify(
        self, table: str, action: str, handle: int, parameters: Sequence[Number] = ()
    ) -> None:
        """Change the action of an entry."""
        index = self._simple_table(table)
        self._modify_entry(index, handle, self._action_entry(index, action, parameters))

    def table_set_default(self, table: str, action: str, parameters: Sequence[Number] = ()) -> None:
        """Change the action on a miss."""
        index = self._simple_table(table)
        self._set_default(index, self._action_entry(index, action, parameters))

    def table_reset_default(self, table: str) -> None:
        """Restore the program's action on a miss."""
        self._reset_default(self._tables.index(table))

    def table_delete(self, table: str, handle: int) -> None:
        """Remove an entry."""
        self._delete_entry(self._tables.index(table), handle)

    def table_clear(self, table: str) -> None:
        """Remove all entries except the default."""
        self._clear_table(self._tables.index(table))

    def table_num_entries(self, table: str) -> int:
        """The number of entries of a table."""
        return self._count_entries(self._tables.index(table))

    def table_entries(self, table: str) -> Sequence[InstalledEntry]:
        """The entries of a table, by index."""
        return self._entries(self._tables.index(table))

    def table_entry(self, table: str, handle: int) -> InstalledEntry:
        """The entry of a handle."""
        return self._entry(self._tables.index(table), handle)

    def table_find(
        self, table: str, keys: Sequence[Key], priority: int | None = None
    ) -> InstalledEntry:
        """The entry that was added with these keys."""
        index = self._tables.index(table)
        target = self.program.tables[index]
        return self._find_entry(index, matches_of(target, keys), _priority(target, priority))

    def table_default(self, table: str) -> Target | None:
        """The action on a miss; None for none."""
        return self._default(self._tables.index(table))

    def table_set_timeout(self, table: str, handle: int, milliseconds: int) -> None:
        """Set the time without a hit after which an entry is reported (0: never), beginning now.

        The table must have ``support_timeout``. The entry stays until it is deleted. The built-in
        switch reports by ``Switch.take_idle_timeouts``, simple_switch by nanomsg.
        """
        index = self._tables.index(table)
        number(milliseconds, 31, "the timeout in milliseconds")
        if not self.program.tables[index].support_timeout:
            name = self.program.tables[index].name
            raise ControlError(f"table {name} does not support entry timeouts")
        self._set_timeout(index, handle, milliseconds)

    def _simple_table(self, name: str) -> int:
        """The position of a table whose entries hold actions themselves."""
        index = self._tables.index(name)
        table = self.program.tables[index]
        if table.action_profile is not None:
            raise ControlError(
                f"table {table.name} takes its actions from action profile "
                f"{self.program.action_profiles[table.action_profile].name}; use "
                "table_indirect_add and the like"
            )
        return index

    def _action_entry(
        self, table: int, action: str, parameters: Sequence[Number]
    ) -> ir.ActionEntry:
        """Resolve one of a table's actions, and check its parameters."""
        possible = self.program.tables[table].actions
        names = self._actions_of_table.get(table)
        if names is None:
            names = self._action_names(possible, f"table {self.program.tables[table].name}")
            self._actions_of_table[table] = names
        return self._with_parameters(possible[names.index(action)], parameters)

    def _action_names(self, actions: Iterable[int], of: str) -> Names[ir.Action]:
        return Names("action", [self.program.actions[each] for each in actions], of=of)

    def _with_parameters(self, action: int, parameters: Sequence[Number]) -> ir.ActionEntry:
        found = self.program.actions[action]
        wanted = found.parameters
        if len(parameters) != len(wanted):
            described = ", ".join(f"{each.name} ({each.width} bits)" for each in wanted)
            raise ControlError(
                f"action {found.name} needs {len(wanted)} parameters, not "
                f"{len(parameters)}: {described or 'none'}"
            )
        pairs = zip(parameters, wanted, strict=True)
        values = [number(value, each.width, f"parameter {each.name}") for value, each in pairs]
        return ir.ActionEntry(action, tuple(values))

    # ── Tables with an action profile ──

    def table_indirect_add(
        self, table: str, keys: Sequence[Key], member: int, priority: int | None = None
    ) -> int:
        """Add an entry that runs a member; returns its handle (see ``table_add``)."""
        return self._add_indirect(table, keys, ProfileRef(False, member), priority)

    def table_indirect_add_with_group(
        self, table: str, keys: Sequence[Key], group: int, priority: int | None = None
    ) -> int:
        """Add an entry that runs one member of a nonempty group."""
        return self._add_indirect(table, keys, ProfileRef(True, group), priority)

    def table_indirect_modify(self, table: str, handle: int, member: int) -> None:
        """Let an entry run another member."""
        self._modify_entry(self._indirect_table(table), handle, ProfileRef(False, member))

    def table_indirect_modify_with_group(self, table: str, handle: int, group: int) -> None:
        """Let an entry run one member of a nonempty group."""
        index = self._indirect_table(table, with_groups=True)
        self._modify_entry(index, handle, ProfileRef(True, group))

    def table_indirect_delete(self, table: str, handle: int) -> None:
        """Remove an entry, but not its member or group."""
        self._delete_entry(self._indirect_table(table), handle)

    def table_indirect_set_default(self, table: str, member: int) -> None:
        """Run a member on a miss."""
        self._set_default(self._indirect_table(table), ProfileRef(False, member))

    def table_indirect_set_default_with_group(self, table: str, group: int) -> None:
        """Run one member of a group on a miss; nothing while the group is empty."""
        self._set_default(self._indirect_table(table, with_groups=True), ProfileRef(True, group))

    def table_indirect_reset_default(self, table: str) -> None:
        """Restore the program's action on a miss: no action."""
        self._reset_default(self._indirect_table(table))

    def profile(self, name: str) -> ir.ActionProfile:
        """The program's description of action profile ``name``."""
        return self._profiles[name]

    def profile_of_table(self, table: str) -> str:
        """The name of a table's action profile."""
        profile = self.program.tables[self._indirect_table(table)].action_profile
        assert profile is not None
        return self.program.action_profiles[profile].name

    def _add_indirect(
        self, table: str, keys: Sequence[Key], target: ProfileRef, priority: int | None
    ) -> int:
        index = self._indirect_table(table, with_groups=target.group)
        found = self.program.tables[index]
        return self._add_entry(index, matches_of(found, keys), target, _priority(found, priority))

    def _indirect_table(self, name: str, *, with_groups: bool = False) -> int:
        """The position of a table that has an action profile."""
        index = self._tables.index(name)
        table = self.program.tables[index]
        if table.action_profile is None:
            raise ControlError(
                f"table {table.name} has no action profile; use table_add and the like"
            )
        if with_groups and table.kind is not ir.TableKind.INDIRECT_WS:
            raise ControlError(f"table {table.name} has no selector, so it takes no groups")
        return index

    # ── Action profiles ──

    def act_prof_create_member(
        self, profile: str, action: str, parameters: Sequence[Number] = ()
    ) -> int:
        """Add an action with parameters to a profile; returns its handle."""
        index = self._profiles.index(profile)
        return self._create_member(index, self._member_entry(index, action, parameters))

    def act_prof_modify_member(
        self, profile: str, action: str, member: int, parameters: Sequence[Number] = ()
    ) -> None:
        """Change the action of a member, for all entries and groups that use it."""
        index = self._profiles.index(profile)
        self._modify_member(index, member, self._member_entry(index, action, parameters))

    def act_prof_delete_member(self, profile: str, member: int) -> None:
        """Remove a member that no group, entry or default uses."""
        self._delete_member(self._profiles.index(profile), member)

    def act_prof_create_group(self, profile: str) -> int:
        """Add an empty group; returns its handle."""
        return self._create_group(self._profile_with_groups(profile))

    def act_prof_delete_group(self, profile: str, group: int) -> None:
        """Remove a group that no entry or default uses."""
        self._delete_group(self._profile_with_groups(profile), group)

    def act_prof_add_member_to_group(self, profile: str, member: int, group: int) -> None:
        """Add a member to a group. Members are in the order of their handles."""
        self._add_to_group(self._profile_with_groups(profile), member, group)

    def act_prof_remove_member_from_group(self, profile: str, member: int, group: int) -> None:
        """Remove a member from a group."""
        self._remove_from_group(self._profile_with_groups(profile), member, group)

    def act_prof_members(self, profile: str) -> dict[int, ir.ActionEntry]:
        """The members of a profile, by handle in ascending order."""
        return self._members(self._profiles.index(profile))

    def act_prof_member(self, profile: str, member: int) -> ir.ActionEntry:
        """The action of a member."""
        return self._member(self._profiles.index(profile), member)

    def act_prof_groups(self, profile: str) -> dict[int, list[int]]:
        """The handles of the members of each group, by the group's handle in ascending order."""
        index = self._profiles.index(profile)
        if self.program.action_profiles[index].selector is None:
            return {}
        return self._groups(index)

    def act_prof_group(self, profile: str, group: int) -> list[int]:
        """The handles of the members of a group."""
        return self._group(self._profile_with_groups(profile), group)

    def _member_entry(
        self, profile: int, action: str, parameters: Sequence[Number]
    ) -> ir.ActionEntry:
        """Resolve one of the actions of a profile's members, and check its parameters."""
        possible = list(profile_actions(self.program, profile).values())
        of = f"action profile {self.program.action_profiles[profile].name}"
        found = self._action_names(possible, of).index(action)
        return self._with_parameters(possible[found], parameters)

    def _profile_with_groups(self, name: str) -> int:
        index = self._profiles.index(name)
        profile = self.program.action_profiles[index]
        if profile.selector is None:
            raise ControlError(
                f"action profile {profile.name} has no selector, so it has no groups"
            )
        return index

    # ── Registers ──

    def register_read(self, name: str, index: int) -> int:
        """A cell as an unsigned number."""
        register = self._registers.index(name)
        array = self.program.registers[register]
        return self._read_register(register, cell_index(index, array.size, array.name))

    def register_read_all(self, name: str) -> list[int]:
        """All cells."""
        return self._read_registers(self._registers.index(name))

    def register_write(self, name: str, index: int, value: int) -> None:
        """Write a cell; a negative value is stored in two's complement."""
        register = self._registers.index(name)
        array = self.program.registers[register]
        cell = cell_index(index, array.size, array.name)
        self.register_write_range(name, cell, cell + 1, value)

    def register_write_range(self, name: str, start: int, end: int, value: int) -> None:
        """Write one value to the cells from ``start`` to before ``end``."""
        register = self._registers.index(name)
        array = self.program.registers[register]
        if not 0 <= start <= end <= array.size:
            raise ControlError(
                f"cells {start} to before {end} are not in 0..{array.size - 1} of {array.name}"
            )
        value = require_int(value, f"register {array.name}", ControlError)
        if not -(1 << array.width - 1) <= value < 1 << array.width:
            raise ControlError(
                f"{value} does not fit the {array.width} bits of register {array.name}"
            )
        self._write_registers(register, start, end, value & ((1 << array.width) - 1))

    def register_reset(self, name: str) -> None:
        """Set all cells to 0."""
        self._reset_register(self._registers.index(name))

    # ── Counters and meters: the index into those of a table is an entry's handle ──

    def counter_read(self, name: str, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell."""
        counter = self._counters.index(name)
        return self._read_counter(counter, _cell(self.program.counters[counter], index))

    def counter_read_all(self, name: str) -> list[tuple[int, int]]:
        """(packets, bytes) of all cells; of a direct counter those of its table's entries."""
        counter = self._counters.index(name)
        array = self.program.counters[counter]
        cells: Iterable[int] = range(array.size)
        if array.table is not None:  # a cell for each entry, by its handle
            cells = [entry.handle for entry in self._entries(array.table)]
        return [self._read_counter(counter, cell) for cell in cells]

    def counter_write(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a cell; ``size`` in bytes."""
        counter = self._counters.index(name)
        cell = _cell(self.program.counters[counter], index)
        for value in (packets, size):
            if not 0 <= require_int(value, "a counter", ControlError) < 1 << 64:
                raise ControlError(f"{value} does not fit a counter, which has 64 bits")
        self._write_counter(counter, cell, packets, size)

    def counter_reset(self, name: str) -> None:
        """Set all cells to 0."""
        self._reset_counter(self._counters.index(name))

    def meter_set_rates(self, name: str, index: int, rates: Sequence[MeterRate]) -> None:
        """Set the rates of a cell, in ascending order, and fill its buckets.

        Rates are in packets or bytes per microsecond, bursts in packets or bytes.
        """
        meter = self._meters.index(name)
        cell = _cell(self.program.meters[meter], index)
        check_rates(self.program.meters[meter], rates)
        self._set_rates(meter, cell, rates)

    def meter_array_set_rates(self, name: str, rates: Sequence[MeterRate]) -> None:
        """Set the same rates for all cells (see ``meter_set_rates``)."""
        meter = self._meters.index(name)
        check_rates(self.program.meters[meter], rates)
        self._set_rates(meter, None, rates)

    def meter_get_rates(self, name: str, index: int) -> list[MeterRate]:
        """The rates of a cell in ascending order; none if none were set."""
        meter = self._meters.index(name)
        return self._get_rates(meter, _cell(self.program.meters[meter], index))

    # ── Multicast and mirroring ──

    def mc_mgrp_create(self, group: int) -> None:
        """Create a multicast group, unless it exists."""
        self._create_multicast_group(_multicast_group(group))

    def mc_mgrp_destroy(self, group: int) -> None:
        """Remove a multicast group; its nodes stay, without a group."""
        self._destroy_multicast_group(_multicast_group(group))

    def mc_node_create(self, rid: int, ports: Iterable[int], lags: Iterable[int] = ()) -> int:
        """Create a node, which copies to ports and link aggregation groups; returns its handle."""
        rid = in_range(rid, MAX_RID, "replication id")
        return self._create_node(rid, _ports(ports), distinct(lags, MAX_LAG, "lag"))

    def mc_node_update(self, node: int, ports: Iterable[int], lags: Iterable[int] = ()) -> None:
        """Change the ports and link aggregation groups of a node."""
        node = require_int(node, "the node", ControlError)
        self._update_node(node, _ports(ports), distinct(lags, MAX_LAG, "lag"))

    def mc_node_associate(self, group: int, node: int) -> None:
        """Add a node, which is in no group, to the end of a multicast group."""
        self._associate_node(_multicast_group(group), require_int(node, "the node", ControlError))

    def mc_node_dissociate(self, group: int, node: int) -> None:
        """Remove a node from its multicast group."""
        self._dissociate_node(_multicast_group(group), require_int(node, "the node", ControlError))

    def mc_node_destroy(self, node: int) -> None:
        """Remove a node, also from its group."""
        self._destroy_node(require_int(node, "the node", ControlError))

    def mc_set_lag_membership(self, lag: int, ports: Iterable[int]) -> None:
        """Set the ports of a link aggregation group."""
        self._set_lag(in_range(lag, MAX_LAG, "lag"), _ports(ports))

    def multicast_group(self, group: int, replicas: Iterable[tuple[int, int]]) -> None:
        """Set the replicas of multicast group ``group``: (port, rid) pairs, in this order."""
        group = _multicast_group(group)
        nodes = [
            (in_range(rid, MAX_RID, "replication id"), _ports([port])) for port, rid in replicas
        ]
        groups = self.replication().groups
        if group not in groups:
            self._create_multicast_group(group)
        for handle in list(groups.get(group, ())):
            self._destroy_node(handle)
        for rid, ports in nodes:
            self._associate_node(group, self._create_node(rid, ports, ()))

    @abstractmethod
    def replication(self) -> Replication:
        """The current multicast groups, nodes and link aggregation groups; do not change them."""

    def mirroring_add(
        self, session: int, port: int | None = None, group: int | None = None
    ) -> None:
        """Send clones of a session to a port, to a multicast group (which may be created later), or
        to both.
        """
        session = _mirror_session(session)
        if port is not None:
            (port,) = _ports([port])
        if group is not None:
            group = _multicast_group(group)
        self._set_mirror_session(session, MirrorSession(port, group))

    def mirroring_delete(self, session: int) -> None:
        """Remove a session, so that it makes no clones."""
        self._delete_mirror_session(_mirror_session(session))

    def mirroring_get(self, session: int) -> MirrorSession:
        """The destination of a session's clones."""
        return self._mirror_session(_mirror_session(session))

    # ── Parser value sets and hash parameters ──

    def value_set(self, name: str) -> set[int]:
        """The values in a parser value set."""
        return self._values(self._value_sets.index(name))

    def value_set_add(self, name: str, value: Number) -> None:
        """Add a value to a parser value set. Adding it twice has no effect."""
        self._add_value(*self._value(name, value))

    def value_set_remove(self, name: str, value: Number) -> None:
        """Remove a value from a parser value set, if it is in it."""
        self._remove_value(*self._value(name, value))

    def value_set_clear(self, name: str) -> None:
        """Remove all values from a parser value set."""
        self._clear_values(self._value_sets.index(name))

    def _value(self, name: str, value: Number) -> tuple[int, int]:
        index = self._value_sets.index(name)
        found = self.program.value_sets[index]
        return index, number(value, found.width, f"parser value set {found.name}")

    def set_crc(self, calculation: str, parameters: CrcParameters) -> None:
        """Change the CRC of a calculation whose algorithm is crc16_custom, crc32_custom, ..."""
        index = self._calculations.index(calculation)
        for value in (parameters.polynomial, parameters.initial, parameters.final_xor):
            number(value, parameters.width, "a CRC parameter")
        self._set_crc(index, parameters)

    def set_toeplitz_key(self, calculation: str, key: bytes) -> None:
        """Change the key of a calculation whose algorithm is toeplitz."""
        self._set_toeplitz_key(self._calculations.index(calculation), key)

    # ── The switch as a whole ──

    def set_queue_depth(
        self, packets: int, port: int | None = None, priority: int | None = None
    ) -> None:
        """Set the capacity in packets of egress queues: of all, of those of a port, or of one.

        Packets that wait already stay, even if they are more.
        """
        self._set_queue("depth", number(packets, 31, "the depth"), *_queue(port, priority))

    def set_queue_rate(
        self, rate: int, port: int | None = None, priority: int | None = None
    ) -> None:
        """Set the packets a second of egress queues (all, a port's, or one); 0: no limit.

        Packets that wait already leave at their previous times.
        """
        self._set_queue("rate", number(rate, 63, "the rate"), *_queue(port, priority))

    def queue_read(self, port: int | None = None, priority: int | None = None) -> list[QueueState]:
        """The egress queues of a port, or one of them; without a port, all used ones.

        simple_switch has no such command: only the built-in switch reports its queues.
        """
        return self._read_queues(*_queue(port, priority))

    @abstractmethod
    def get_time_elapsed(self) -> int:
        """Microseconds since the switch started, as in its timestamps."""

    @abstractmethod
    def get_time_since_epoch(self) -> int:
        """Microseconds since 1970 by the switch's clock."""

    @abstractmethod
    def switch_info(self) -> str:
        """A description of the switch."""

    @abstractmethod
    def show_ports(self) -> str:
        """A description of the switch's ports."""

    @abstractmethod
    def reset_state(self) -> None:
        """Reset all state from the control plane and from packets; the program's entries stay."""

    # ── What a switch does with what was checked ──
    #
    # Tables, profiles and arrays are positions in the program. Handles are as the caller gave
    # them: only the switch knows those that exist.

    @abstractmethod
    def _add_entry(
        self, table: int, matches: Sequence[ir.Match], action: Target, priority: int
    ) -> int: ...
    @abstractmethod
    def _modify_entry(self, table: int, handle: int, action: Target) -> None: ...
    @abstractmethod
    def _delete_entry(self, table: int, handle: int) -> None: ...
    @abstractmethod
    def _clear_table(self, table: int) -> None: ...
    @abstractmethod
    def _set_default(self, table: int, action: Target) -> None: ...
    @abstractmethod
    def _reset_default(self, table: int) -> None: ...
    @abstractmethod
    def _set_timeout(self, table: int, handle: int, milliseconds: int) -> None: ...
    @abstractmethod
    def _count_entries(self, table: int) -> int: ...
    @abstractmethod
    def _entries(self, table: int) -> Sequence[InstalledEntry]: ...
    @abstractmethod
    def _entry(self, table: int, handle: int) -> InstalledEntry: ...
    @abstractmethod
    def _find_entry(
        self, table: int, matches: Sequence[ir.Match], priority: int
    ) -> InstalledEntry: ...
    @abstractmethod
    def _default(self, table: int) -> Target | None: ...

    @abstractmethod
    def _create_member(self, profile: int, entry: ir.ActionEntry) -> int: ...
    @abstractmethod
    def _modify_member(self, profile: int, member: int, entry: ir.ActionEntry) -> None: ...
    @abstractmethod
    def _delete_member(self, profile: int, member: int) -> None: ...
    @abstractmethod
    def _create_group(self, profile: int) -> int: ...
    @abstractmethod
    def _delete_group(self, profile: int, group: int) -> None: ...
    @abstractmethod
    def _add_to_group(self, profile: int, member: int, group: int) -> None: ...
    @abstractmethod
    def _remove_from_group(self, profile: int, member: int, group: int) -> None: ...
    @abstractmethod
    def _members(self, profile: int) -> dict[int, ir.ActionEntry]: ...
    @abstractmethod
    def _member(self, profile: int, member: int) -> ir.ActionEntry: ...
    @abstractmethod
    def _groups(self, profile: int) -> dict[int, list[int]]: ...
    @abstractmethod
    def _group(self, profile: int, group: int) -> list[int]: ...

    @abstractmethod
    def _read_register(self, register: int, index: int) -> int: ...
    @abstractmethod
    def _read_registers(self, register: int) -> list[int]: ...
    @abstractmethod
    def _write_registers(self, register: int, start: int, end: int, value: int) -> None: ...
    @abstractmethod
    def _reset_register(self, register: int) -> None: ...
    @abstractmethod
    def _read_counter(self, counter: int, index: int) -> tuple[int, int]: ...
    @abstractmethod
    def _write_counter(self, counter: int, index: int, packets: int, size: int) -> None: ...
    @abstractmethod
    def _reset_counter(self, counter: int) -> None: ...
    @abstractmethod
    def _set_rates(self, meter: int, index: int | None, rates: Sequence[MeterRate]) -> None: ...
    @abstractmethod
    def _get_rates(self, meter: int, index: int) -> list[MeterRate]: ...

    @abstractmethod
    def _create_multicast_group(self, group: int) -> None: ...
    @abstractmethod
    def _destroy_multicast_group(self, group: int) -> None: ...
    @abstractmethod
    def _create_node(self, rid: int, ports: Sequence[int], lags: Sequence[int]) -> int: ...
    @abstractmethod
    def _update_node(self, node: int, ports: Sequence[int], lags: Sequence[int]) -> None: ...
    @abstractmethod
    def _associate_node(self, group: int, node: int) -> None: ...
    @abstractmethod
    def _dissociate_node(self, group: int, node: int) -> None: ...
    @abstractmethod
    def _destroy_node(self, node: int) -> None: ...
    @abstractmethod
    def _set_lag(self, lag: int, ports: Sequence[int]) -> None: ...
    @abstractmethod
    def _set_mirror_session(self, session: int, where: MirrorSession) -> None: ...
    @abstractmethod
    def _delete_mirror_session(self, session: int) -> None: ...
    @abstractmethod
    def _mirror_session(self, session: int) -> MirrorSession: ...

    @abstractmethod
    def _values(self, value_set: int) -> set[int]: ...
    @abstractmethod
    def _add_value(self, value_set: int, value: int) -> None: ...
    @abstractmethod
    def _remove_value(self, value_set: int, value: int) -> None: ...
    @abstractmethod
    def _clear_values(self, value_set: int) -> None: ...
    @abstractmethod
    def _set_crc(self, calculation: int, parameters: CrcParameters) -> None: ...
    @abstractmethod
    def _set_toeplitz_key(self, calculation: int, key: bytes) -> None: ...
    @abstractmethod
    def _set_queue(
        self, what: QueueSetting, value: int, port: int | None, priority: int | None
    ) -> None: ...
    @abstractmethod
    def _read_queues(self, port: int | None, priority: int | None) -> list[QueueState]: ...


def _priority(table: ir.Table, priority: int | None) -> int:
    """The priority of an entry; ControlError if the table needs one or it is invalid."""
    if priority is None:
        if is_ordered(table):
            raise ControlError(
                f"table {table.name} is {table.match.value}, so its entries need a priority"
            )
        return 0
    return in_range(priority, (1 << 31) - 1, "priority")


def _cell(array: ir.CounterArray | ir.MeterArray, index: int) -> int:
    """The index of a cell; for arrays of a table, the handle of an entry."""
    return index if array.table is not None else cell_index(index, array.size, array.name)


def _multicast_group(group: int) -> int:
    return in_range(group, MAX_GROUP, "multicast group")


def _mirror_session(session: int) -> int:
    return in_range(session, MAX_SESSION, "mirror session")


def _ports(ports: Iterable[int]) -> tuple[int, ...]:
    return distinct(ports, MAX_REPLICATION_PORT, "port")


def _queue(port: int | None, priority: int | None) -> tuple[int | None, int | None]:
    if priority is not None and port is None:
        raise ControlError("the priority of a queue needs a port")
    return (
        None if port is None else number(port, 9, "the port"),
        None if priority is None else number(priority, 31, "the priority"),
    )
