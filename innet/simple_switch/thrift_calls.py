"""The calls of simple_switch's control plane, carried out on the built-in switch.

Behavior and codes of refusals are those of BMv2's servers Standard, SimplePre, SimplePreLAG and
SimpleSwitch. ``innet.simple_switch.thrift_server`` brings the calls over Thrift.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, NamedTuple, NoReturn, Protocol

from innet.bmv2.thrift_api import (
    EXACT,
    LPM,
    OWN_SERVICE,
    RANGE,
    SERVICES,
    TERNARY,
    VALID,
    bytes_of,
    sent_match,
)
from innet.core.errors import ControlError, InnetError, Refusal
from innet.switch import Switch, ir
from innet.switch.control import commands
from innet.switch.control.control_plane import ControlPlane, InstalledEntry
from innet.switch.control.values import check_rates
from innet.switch.state.hashes import CrcParameters
from innet.switch.state.meters import MeterRate
from innet.switch.state.replication import (
    MAX_GROUP,
    MAX_LAG,
    MAX_REPLICATION_PORT,
    MAX_SESSION,
    MirrorSession,
)
from innet.switch.state.tables import ProfileRef, Target

_NO_TARGET, _ACTION, _MEMBER, _GROUP = range(4)  # BmActionEntryType

_BAD_NAME, _BAD_INDEX, _BAD_RATES = 1, 2, 3  # codes of counters, meters and registers
_OTHER = {"counter": 3, "register": 3, "meter": 6, "vset": 2}  # codes by part of names
_FULL, _NO_GROUP, _NO_GROUP_HANDLE, _NO_NODE, _OTHER_GROUP = 1, 2, 3, 4, 5  # of multicast
_BAD_TYPE, _BAD_CONFIG = 2, 3  # of CRCs and Toeplitz keys
_BAD_PORT = 1
_NO_LIST = 1  # of digests
_RESOURCES = (
    "tables",
    "action_profiles",
    "counter_arrays",
    "meter_arrays",
    "register_arrays",
    "learn_lists",
)  # where the JSON lists the things of BmResourceType


class PortState(NamedTuple):
    """A port, its interface, and whether that is up."""

    number: int
    interface: str
    is_up: bool


class Learning(Protocol):
    """The learn lists (digests) of a switch. All methods raise KeyError for an unknown list."""

    def ack(self, learn_list: int, buffer: int, samples: Sequence[int], /) -> None: ...
    def ack_buffer(self, learn_list: int, buffer: int, /) -> None: ...
    def set_timeout(self, learn_list: int, milliseconds: int, /) -> None: ...
    def set_buffer_size(self, learn_list: int, samples: int, /) -> None: ...


class ThriftDevice(Protocol):
    """The switch process that a ``ThriftServer`` controls.

    Attributes:
        switch: the switch; None while there is no program (``--no-p4``).
        config: the JSON of its program.
        learning: its learn lists.
        device_id, thrift_port, notifications: as simple_switch's options.
        started: microseconds since 1970 at which it started.
        most_groups, most_nodes: of multicast.
    """

    @property
    def switch(self) -> Switch | None: ...
    @property
    def config(self) -> str: ...
    @property
    def learning(self) -> Learning: ...
    @property
    def device_id(self) -> int: ...
    @property
    def thrift_port(self) -> int: ...
    @property
    def notifications(self) -> str: ...
    @property
    def started(self) -> int: ...
    @property
    def most_groups(self) -> int: ...
    @property
    def most_nodes(self) -> int: ...

    def ports(self) -> Sequence[PortState]: ...
    def add_port(self, interface: str, port: int, pcap: str) -> None:
        """NetworkError or InputError where it cannot be added."""

    def remove_port(self, port: int) -> None:
        """InputError where there is no such port."""

    def load_config(self, config: str) -> None:
        """SwapError, or ProgramError and the like for a bad program."""

    def swap_configs(self) -> None:
        """SwapError."""

    def reset_state(self) -> None: ...
    def elapsed(self) -> int:
        """Microseconds since it started."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """Counts of packets."""
        ...


class SwapError(InnetError):
    """A swap of configurations that is refused; ``code`` is that of SwapOperationErrorCode."""

    DISABLED, ONGOING, NOT_ONGOING = 1, 2, 3

    def __init__(self, message: str = "", code: int = DISABLED) -> None:
        super().__init__(message)
        self.code = code


class RefusedError(Exception):
    """A call that is refused with a code of its service's exception."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Calls:
    """Carries out the calls of ``SERVICES`` on a device.

    A call is a line of the tables behind this class, ``_ON_NAMED``, ``_ON_QUEUES`` and
    ``_ON_DEVICE``, or else a method of its name (``_NAME``, or ``_SERVICE_NAME`` where services
    differ), which takes its arguments.
    """

    def __init__(self, device: ThriftDevice) -> None:
        self._device = device
        self._methods: dict[tuple[str, str], Callable[..., Any]] = {}
        for service, calls in {**SERVICES, "innet": OWN_SERVICE}.items():
            for name in calls:
                self._methods[service, name] = self._method(service, name)

    def _method(self, service: str, name: str) -> Callable[..., Any]:
        """What carries out a call."""
        if name in _ON_NAMED:
            return partial(self._on_named, *_ON_NAMED[name])
        if name in _ON_QUEUES:
            return partial(self._on_queues, _ON_QUEUES[name])
        if name in _ON_DEVICE:
            return partial(self._on_device, _ON_DEVICE[name])
        if name.startswith("bm_learning_"):
            return partial(self._on_learning, name.removeprefix("bm_learning_"))
        method: Callable[..., Any] | None = getattr(self, f"_{service}_{name}", None)
        return method or getattr(self, f"_{name}")

    def _on_named(
        self, find: Callable[[Calls, str], object], operation: str, _: int, name: str, *others: Any
    ) -> Any:
        """An operation of the control plane on a table or the like, if ``find`` finds it."""
        find(self, name)
        return getattr(self._control, operation)(name, *others)

    def _on_queues(self, operation: str, *arguments: int) -> int:
        """An operation on queues, which takes the value before the port and the priority."""
        *which, value = arguments
        getattr(self._control, operation)(value, *which)
        return 0

    def _on_device(self, operation: str, *arguments: Any) -> Any:
        return getattr(self._device, operation)(*arguments)

    def _on_learning(self, operation: str, _: int, learn_list: int, *others: Any) -> None:
        try:
            getattr(self._device.learning, operation)(learn_list, *others)
        except KeyError:
            raise RefusedError(_NO_LIST) from None

    def __call__(self, service: str, name: str, arguments: Sequence[Any]) -> Any:
        """The answer of a call; ``code_of`` has the code with which an error refuses it."""
        return self._methods[service, name](*arguments)

    @staticmethod
    def code_of(service: str, name: str, error: Exception) -> int | None:
        """The code with which a call is refused after an error; None where it has none for it."""
        if isinstance(error, RefusedError | SwapError):
            return error.code
        if name in _PORT_CALLS and isinstance(error, InnetError):
            return _BAD_PORT
        if service == "innet" or not isinstance(error, ControlError):
            return None
        if not SERVICES[service][name].refusals:
            return None
        if "_mt_" in name:
            return int(error.reason)
        return next((code for part, code in _OTHER.items() if f"_{part}_" in name), None)

    @property
    def _control(self) -> ControlPlane:
        if self._device.switch is None:
            raise ControlError("the switch has no program yet: load a configuration and swap it")
        return self._device.switch.control

    @property
    def _program(self) -> ir.Program:
        return self._control.program

    # ── innet's own service ──

    def _innet_command(self, line: str) -> str:
        return commands.run(self._control, line)

    def _innet_statistics(self) -> str:
        return json.dumps(self._device.statistics())

    # ── Tables ──

    def _table(self, name: str, *kinds: ir.TableKind) -> ir.Table:
        """The table of this full name, of one of these kinds."""
        for table in self._program.tables:
            if table.name == name:
                if kinds and table.kind not in kinds:
                    raise RefusedError(Refusal.WRONG_TABLE_TYPE)
                return table
        raise RefusedError(Refusal.UNKNOWN_TABLE)

    def _simple(self, name: str) -> ir.Table:
        return self._table(name, ir.TableKind.SIMPLE)

    def _indirect(self, name: str) -> ir.Table:
        return self._table(name, ir.TableKind.INDIRECT, ir.TableKind.INDIRECT_WS)

    def _with_selector(self, name: str) -> ir.Table:
        return self._table(name, ir.TableKind.INDIRECT_WS)

    def _action(self, possible: Sequence[int], name: str) -> ir.Action:
        """The action of this full name among those that are possible."""
        for each in possible:
            if self._program.actions[each].name == name:
                return self._program.actions[each]
        raise RefusedError(Refusal.UNKNOWN_ACTION)

    def _bm_mt_clear_entries(self, _: int, table: str, reset_default: bool) -> None:
        name = self._table(table).name
        self._control.table_clear(name)
        if reset_default:
            self._control.table_reset_default(name)

    def _bm_mt_add_entry(
        self,
        _: int,
        table: str,
        key: Sequence[Mapping[str, Any]],
        action: str,
        data: Sequence[bytes],
        options: Mapping[str, int],
    ) -> int:
        found = self._simple(table)
        chosen = self._action(found.actions, action)
        if found.immutable:
            raise RefusedError(Refusal.CONSTANT_ENTRIES)
        values = _values(chosen, data)
        matches = matches_of(found, key)
        return self._control.table_add(table, action, matches, values, _priority(options))

    def _bm_mt_set_default_action(
        self, _: int, table: str, action: str, data: Sequence[bytes]
    ) -> None:
        found = self._simple(table)
        chosen = self._action(found.actions, action)
        if found.default_entry_const:
            raise RefusedError(Refusal.CONSTANT_DEFAULT_ENTRY)
        self._control.table_set_default(table, action, _values(chosen, data))

    def _bm_mt_modify_entry(
        self, _: int, table: str, handle: int, action: str, data: Sequence[bytes]
    ) -> None:
        found = self._simple(table)
        chosen = self._action(found.actions, action)
        if found.immutable:
            raise RefusedError(Refusal.CONSTANT_ENTRIES)
        self._control.table_modify(table, action, handle, _values(chosen, data))

    def _bm_mt_set_entry_ttl(self, _: int, table: str, handle: int, milliseconds: int) -> None:
        if not self._table(table).support_timeout:
            raise RefusedError(Refusal.NO_AGEING)
        self._control.table_set_timeout(table, handle, milliseconds)

    _bm_mt_indirect_set_entry_ttl = _bm_mt_set_entry_ttl

    # ── Tables with an action profile ──

    def _bm_mt_indirect_add_entry(
        self,
        _: int,
        table: str,
        key: Sequence[Mapping[str, Any]],
        member: int,
        options: Mapping[str, int],
    ) -> int:
        found = self._indirect(table)
        self._require_member(found, member)
        matches = matches_of(found, key)
        return self._control.table_indirect_add(table, matches, member, _priority(options))

    def _require_member(self, table: ir.Table, member: int) -> None:
        assert table.action_profile is not None
        profile = self._program.action_profiles[table.action_profile].name
        self._control.act_prof_member(profile, member)

    def _bm_mt_indirect_modify_entry(self, _: int, table: str, handle: int, member: int) -> None:
        self._control.table_entry(self._indirect(table).name, handle)
        self._control.table_indirect_modify(table, handle, member)

    def _bm_mt_indirect_ws_add_entry(
        self,
        _: int,
        table: str,
        key: Sequence[Mapping[str, Any]],
        group: int,
        options: Mapping[str, int],
    ) -> int:
        found = self._with_selector(table)
        self._require_group(found, group)
        matches = matches_of(found, key)
        priority = _priority(options)
        return self._control.table_indirect_add_with_group(table, matches, group, priority)

    def _require_group(self, table: ir.Table, group: int) -> None:
        assert table.action_profile is not None
        profile = self._program.action_profiles[table.action_profile].name
        if not self._control.act_prof_group(profile, group):
            raise RefusedError(Refusal.EMPTY_GROUP)

    def _bm_mt_indirect_ws_modify_entry(self, _: int, table: str, handle: int, group: int) -> None:
        self._control.table_entry(self._with_selector(table).name, handle)
        self._control.table_indirect_modify_with_group(table, handle, group)

    # ── Action profiles ──

    def _profile(self, name: str) -> int:
        """Its position."""
        for position, profile in enumerate(self._program.action_profiles):
            if profile.name == name:
                return position
        raise RefusedError(Refusal.UNKNOWN_PROFILE)

    def _group_profile(self, name: str) -> None:
        if self._program.action_profiles[self._profile(name)].selector is None:
            raise RefusedError(Refusal.NO_SELECTOR)

    def _member_values(self, profile: str, action: str, data: Sequence[bytes]) -> list[int]:
        """The parameters of a member's action, one of those of the profile's tables."""
        position = self._profile(profile)
        tables = (table for table in self._program.tables if table.action_profile == position)
        possible = [action for table in tables for action in table.actions]
        return _values(self._action(possible, action), data)

    def _bm_mt_act_prof_add_member(
        self, _: int, profile: str, action: str, data: Sequence[bytes]
    ) -> int:
        values = self._member_values(profile, action, data)
        return self._control.act_prof_create_member(profile, action, values)

    def _bm_mt_act_prof_modify_member(
        self, _: int, profile: str, member: int, action: str, data: Sequence[bytes]
    ) -> None:
        values = self._member_values(profile, action, data)
        self._control.act_prof_modify_member(profile, action, member, values)

    def _bm_mt_act_prof_get_members(self, _: int, profile: str) -> list[dict[str, Any]]:
        if profile not in {each.name for each in self._program.action_profiles}:
            return []  # as simple_switch
        members = self._control.act_prof_members(profile)
        return [self._sent_member(*each) for each in members.items()]

    def _bm_mt_act_prof_get_member(self, _: int, profile: str, member: int) -> dict[str, Any]:
        self._profile(profile)
        return self._sent_member(member, self._control.act_prof_member(profile, member))

    def _sent_member(self, handle: int, entry: ir.ActionEntry) -> dict[str, Any]:
        action = self._program.actions[entry.action]
        return {"handle": handle, "name": action.name, "arguments": _data(entry.arguments)}

    def _bm_mt_act_prof_get_groups(self, _: int, profile: str) -> list[dict[str, Any]]:
        if profile not in {each.name for each in self._program.action_profiles}:
            return []  # as simple_switch
        groups = self._control.act_prof_groups(profile)
        return [{"handle": handle, "members": members} for handle, members in groups.items()]

    def _bm_mt_act_prof_get_group(self, _: int, profile: str, group: int) -> dict[str, Any]:
        self._profile(profile)
        found = self._control.act_prof_groups(profile)
        if group not in found:
            raise RefusedError(Refusal.UNKNOWN_GROUP)
        return {"handle": group, "members": found[group]}

    # ── Reading tables ──

    def _bm_mt_get_entries(self, _: int, table: str) -> list[dict[str, Any]]:
        try:
            found = self._table(table)
        except RefusedError:
            return []  # as simple_switch
        return [self._sent_entry(found, each) for each in self._control.table_entries(found.name)]

    def _bm_mt_get_entry(self, _: int, table: str, handle: int) -> dict[str, Any]:
        try:
            found = self._table(table)
        except RefusedError:  # as simple_switch
            return _no_entry()
        return self._sent_entry(found, self._control.table_entry(table, handle))

    def _bm_mt_get_entry_from_key(
        self, _: int, table: str, key: Sequence[Mapping[str, Any]], options: Mapping[str, int]
    ) -> dict[str, Any]:
        if not key:  # whatever the table is, as simple_switch
            default = self._bm_mt_get_default_entry(0, table)
            return {"matches": [], "options": {}, "handle": 0, "action": default}
        try:
            found = self._table(table)
        except RefusedError:  # as simple_switch
            return _no_entry()
        matches = matches_of(found, key)
        entry = self._control.table_find(table, matches, _priority(options))
        return self._sent_entry(found, entry)

    def _bm_mt_get_default_entry(self, _: int, table: str) -> dict[str, Any]:
        try:
            target = self._control.table_default(self._table(table).name)
        except RefusedError as refused:
            if refused.code == Refusal.UNKNOWN_TABLE:
                return {"type": _NO_TARGET}  # as simple_switch
            raise
        return {"type": _NO_TARGET} if target is None else self._sent_target(target)

    def _sent_entry(self, table: ir.Table, entry: InstalledEntry) -> dict[str, Any]:
        pairs = zip(entry.matches, table.keys, strict=True)
        has_priority = any(
            key.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE) for key in table.keys
        )
        sent: dict[str, Any] = {
            "matches": [sent_match(*each) for each in pairs],
            "options": {"priority": entry.priority if has_priority else -1},
            "handle": entry.handle,
            "action": self._sent_target(entry.action),
        }
        if entry.life is not None:
            sent["life"] = entry.life._asdict()
        return sent

    def _sent_target(self, target: Target) -> dict[str, Any]:
        if isinstance(target, ProfileRef):
            if target.group:
                return {"type": _GROUP, "group": target.handle}
            return {"type": _MEMBER, "member": target.handle}
        name = self._program.actions[target.action].name
        return {"type": _ACTION, "name": name, "arguments": _data(target.arguments)}

    # ── Counters, meters and registers ──

    def _direct(self, arrays: Sequence[Any], table: str, missing: Refusal) -> str:
        """The name of the array that belongs to a table."""
        found = self._table(table)
        for array in arrays:
            if array.table is not None and self._program.tables[array.table] is found:
                return str(array.name)
        raise RefusedError(missing)

    def _direct_counter(self, table: str) -> str:
        return self._direct(self._program.counters, table, Refusal.NO_COUNTERS)

    def _direct_meter(self, table: str) -> str:
        return self._direct(self._program.meters, table, Refusal.NO_METERS)

    def _bm_mt_read_counter(self, _: int, table: str, handle: int) -> dict[str, int]:
        return _sent_counter(self._control.counter_read(self._direct_counter(table), handle))

    def _bm_mt_write_counter(
        self, _: int, table: str, handle: int, value: Mapping[str, int]
    ) -> None:
        self._control.counter_write(self._direct_counter(table), handle, *_counter(value))

    def _bm_mt_reset_counters(self, _: int, table: str) -> None:
        self._control.counter_reset(self._direct_counter(table))

    def _bm_mt_set_meter_rates(
        self, _: int, table: str, handle: int, rates: Sequence[Mapping[str, Any]]
    ) -> None:
        meter = self._direct_meter(table)
        self._control.table_entry(table, handle)
        try:
            self._control.meter_set_rates(meter, handle, _rates(rates))
        except ControlError:
            raise RefusedError(Refusal.BAD_METER_OPERATION) from None

    def _bm_mt_get_meter_rates(self, _: int, table: str, handle: int) -> list[dict[str, Any]]:
        return _sent_rates(self._control.meter_get_rates(self._direct_meter(table), handle))

    def _array(self, arrays: Sequence[Any], name: str, index: int = 0) -> Any:
        """The array of this full name, whose cells are numbered; refused if it ends before."""
        for array in arrays:
            if array.name == name and getattr(array, "table", None) is None:
                if not 0 <= index < array.size:
                    raise RefusedError(_BAD_INDEX)
                return array
        raise RefusedError(_BAD_NAME)

    def _counter_array(self, name: str, index: int = 0) -> Any:
        return self._array(self._program.counters, name, index)

    def _register_array(self, name: str, index: int = 0) -> Any:
        return self._array(self._program.registers, name, index)

    def _bm_counter_read(self, _: int, counter: str, index: int) -> dict[str, int]:
        self._counter_array(counter, index)
        return _sent_counter(self._control.counter_read(counter, index))

    def _bm_counter_write(self, _: int, counter: str, index: int, value: Mapping[str, int]) -> None:
        self._counter_array(counter, index)
        self._control.counter_write(counter, index, *_counter(value))

    def _meter(self, name: str, index: int = 0, rates: int | None = None) -> int:
        """The position of a meter array, which may be that of a table, here by plain index."""
        for position, array in enumerate(self._program.meters):
            if array.name == name:
                if not 0 <= index < array.size:
                    raise RefusedError(_BAD_INDEX)
                if rates is not None and rates != array.rates:
                    raise RefusedError(_BAD_RATES)
                return position
        raise RefusedError(_BAD_NAME)

    def _bm_meter_set_rates(
        self, _: int, meter: str, index: int, rates: Sequence[Mapping[str, Any]]
    ) -> None:
        position = self._meter(meter, index, len(rates))
        check_rates(self._program.meters[position], _rates(rates))
        assert self._device.switch is not None
        self._device.switch.state.meters[position].set_rates([index], _rates(rates))

    def _bm_meter_array_set_rates(
        self, _: int, meter: str, rates: Sequence[Mapping[str, Any]]
    ) -> None:
        self._meter(meter, rates=len(rates))
        self._control.meter_array_set_rates(meter, _rates(rates))

    def _bm_meter_get_rates(self, _: int, meter: str, index: int) -> list[dict[str, Any]]:
        position = self._meter(meter, index)
        assert self._device.switch is not None
        return _sent_rates(self._device.switch.state.meters[position].get_rates(index))

    def _bm_register_read(self, _: int, register: str, index: int) -> int:
        self._register_array(register, index)
        return _signed(self._control.register_read(register, index))

    def _bm_register_read_all(self, _: int, register: str) -> list[int]:
        self._register_array(register)
        return [_signed(each) for each in self._control.register_read_all(register)]

    def _bm_register_write(self, _: int, register: str, index: int, value: int) -> None:
        array = self._register_array(register, index)
        self._control.register_write(register, index, value & ((1 << array.width) - 1))

    def _bm_register_write_range(
        self, _: int, register: str, start: int, end: int, value: int
    ) -> None:
        array = self._register_array(register)
        if not 0 <= start <= end <= array.size:
            raise RefusedError(_BAD_INDEX)
        value &= (1 << array.width) - 1
        self._control.register_write_range(register, start, end, value)

    # ── Parser value sets and hash parameters ──

    def _value_set(self, name: str) -> ir.ValueSet:
        for each in self._program.value_sets:
            if each.name == name:
                return each
        raise RefusedError(_BAD_NAME)

    def _bm_parse_vset_add(self, _: int, name: str, value: bytes) -> None:
        self._value_set(name)
        self._control.value_set_add(name, int.from_bytes(value, "big"))

    def _bm_parse_vset_remove(self, _: int, name: str, value: bytes) -> None:
        self._value_set(name)
        self._control.value_set_remove(name, int.from_bytes(value, "big"))

    def _bm_parse_vset_get(self, _: int, name: str) -> list[bytes]:
        width = self._value_set(name).width
        return [bytes_of(each, width) for each in sorted(self._control.value_set(name))]

    def _calculation(self, name: str) -> str:
        if name not in {each.name for each in self._program.calculations}:
            raise RefusedError(_BAD_NAME)
        return name

    def _set_crc(self, width: int, _: int, name: str, given: Mapping[str, Any]) -> None:
        self._calculation(name)
        every = (1 << width) - 1
        parameters = CrcParameters(
            width,
            given.get("polynomial", 0) & every,
            given.get("initial", 0) & every,
            given.get("final_xor", 0) & every,
            bool(given.get("reflect_data", False)),
            bool(given.get("reflect_remainder", False)),
        )
        try:
            self._control.set_crc(name, parameters)
        except ControlError:
            raise RefusedError(_BAD_TYPE) from None

    _bm_set_crc16_custom_parameters = partialmethod(_set_crc, 16)
    _bm_set_crc32_custom_parameters = partialmethod(_set_crc, 32)

    def _bm_set_toeplitz_hash_key(self, _: int, name: str, key: bytes) -> None:
        found = self._program.calculations
        algorithm = {each.name: each.algorithm for each in found}.get(self._calculation(name))
        try:
            self._control.set_toeplitz_key(name, key)
        except ControlError:
            right = algorithm == "toeplitz"
            raise RefusedError(_BAD_CONFIG if right else _BAD_TYPE) from None

    # ── The switch as a whole ──

    def _bm_dev_mgr_show_ports(self) -> list[dict[str, Any]]:
        return [
            {"port": each.number, "interface": each.interface, "up": each.is_up, "extra": {}}
            for each in self._device.ports()
        ]

    def _bm_mgmt_get_info(self) -> dict[str, Any]:
        device = self._device
        return {
            "device_id": device.device_id,
            "thrift_port": device.thrift_port,
            "notifications_socket": device.notifications,
        }

    def _bm_get_config(self) -> str:
        return self._device.config

    def _bm_get_config_md5(self) -> bytes:
        return hashlib.md5(self._device.config.encode(), usedforsecurity=False).digest()

    def _bm_get_id_from_name(self, _: int, kind: int, name: str) -> int:
        if not 0 <= kind < len(_RESOURCES):
            raise RefusedError(0)
        config = json.loads(self._device.config)
        lists = [config.get(_RESOURCES[kind], [])]
        if _RESOURCES[kind] in ("tables", "action_profiles"):
            lists = [each.get(_RESOURCES[kind], []) for each in config.get("pipelines", [])]
        for each in (each for found in lists for each in found):
            if each["name"] == name and not (_is_counter(kind) and each.get("is_direct")):
                return int(each["id"])
        raise RefusedError(1)

    def _bm_serialize_state(self) -> NoReturn:
        raise ControlError(
            "the state is not serialized: read tables and arrays, or keep the commands"
        )

    # ── Replication ──

    def _bm_mc_mgrp_create(self, _: int, group: int) -> int:
        if not 0 <= group <= MAX_GROUP:
            raise RefusedError(_NO_GROUP)
        groups = self._control.replication().groups
        if len(groups) >= self._device.most_groups:
            raise RefusedError(_FULL)
        self._control.mc_mgrp_create(group)
        return group

    def _bm_mc_mgrp_destroy(self, _: int, group: int) -> None:
        if group in self._control.replication().groups:  # any other is ignored
            self._control.mc_mgrp_destroy(group)

    def _bm_mc_node_create(self, _: int, rid: int, ports: str, lags: str) -> int:
        if len(self._control.replication().nodes) >= self._device.most_nodes:
            raise RefusedError(_FULL)
        return self._control.mc_node_create(rid & 0xFFFF, *_replicas(ports, lags))

    def _simple_pre_bm_mc_node_create(self, _: int, rid: int, ports: str) -> int:
        return self._bm_mc_node_create(0, rid, ports, "")

    def _bm_mc_node_update(self, _: int, node: int, ports: str, lags: str) -> None:
        self._require_node(node)
        self._control.mc_node_update(node, *_replicas(ports, lags))

    def _simple_pre_bm_mc_node_update(self, _: int, node: int, ports: str) -> None:
        self._bm_mc_node_update(0, node, ports, "")

    def _bm_mc_node_associate(self, _: int, group: int, node: int) -> None:
        self._require_node(node, group)
        if self._control.replication().nodes[node].group is not None:
            raise RefusedError(_OTHER_GROUP)
        self._control.mc_node_associate(group, node)

    def _bm_mc_node_dissociate(self, _: int, group: int, node: int) -> None:
        self._require_node(node, group)
        if self._control.replication().nodes[node].group != group:
            raise RefusedError(_OTHER_GROUP)
        self._control.mc_node_dissociate(group, node)

    def _bm_mc_node_destroy(self, _: int, node: int) -> None:
        self._require_node(node)
        self._control.mc_node_destroy(node)

    def _bm_mc_set_lag_membership(self, _: int, lag: int, ports: str) -> None:
        if not 0 <= lag <= MAX_LAG:
            raise RefusedError(_OTHER_GROUP)
        self._control.mc_set_lag_membership(lag, _set_bits(ports, MAX_REPLICATION_PORT))

    def _require_node(self, node: int, group: int | None = None) -> None:
        replication = self._control.replication()
        if node not in replication.nodes:
            raise RefusedError(_NO_NODE)
        if group is not None and group not in replication.groups:
            raise RefusedError(_NO_GROUP_HANDLE)

    def _bm_mc_get_entries(self, _: int) -> str:
        return self._control.replication().as_json()

    def _simple_pre_bm_mc_get_entries(self, _: int) -> str:
        return self._control.replication().as_json(with_lags=False)

    # ── Mirroring, queues and time ──

    def _mirroring_session_add(self, session: int, given: Mapping[str, int]) -> None:
        self._add_session(session, given.get("port"), given.get("group"))

    def _add_session(self, session: int, port: int | None, group: int | None) -> bool:
        """Whether there can be such a session. simple_switch cuts numbers to their widths."""
        if not 0 <= session <= MAX_SESSION:
            return False
        port = None if port is None else port & MAX_REPLICATION_PORT
        group = None if group is None else group & MAX_GROUP
        self._control.mirroring_add(session, port, group)
        return True

    def _session(self, session: int) -> MirrorSession | None:
        try:
            return self._control.mirroring_get(session)
        except ControlError:
            return None

    def _mirroring_session_delete(self, session: int) -> None:
        if self._session(session) is None:
            raise RefusedError(1)
        self._control.mirroring_delete(session)

    def _mirroring_session_get(self, session: int) -> dict[str, int]:
        found = self._session(session)
        if found is None:
            raise RefusedError(1)
        both = {"port": found.port, "group": found.group}
        return {name: value for name, value in both.items() if value is not None}

    def _mirroring_mapping_add(self, session: int, port: int) -> int:
        return int(self._add_session(session, port, None))

    def _mirroring_mapping_delete(self, session: int) -> int:
        if self._session(session) is None:
            return 0
        self._control.mirroring_delete(session)
        return 1

    def _mirroring_mapping_get_egress_port(self, session: int) -> int:
        found = self._session(session)
        return -1 if found is None or found.port is None else found.port

    def _get_time_since_epoch_us(self) -> int:
        return self._device.started + self._device.elapsed()


# ── Calls that are one operation ──

_ON_NAMED: Mapping[str, tuple[Callable[[Calls, str], object], str]] = {
    "bm_mt_get_num_entries": (Calls._table, "table_num_entries"),
    "bm_mt_reset_default_entry": (Calls._simple, "table_reset_default"),
    "bm_mt_delete_entry": (Calls._simple, "table_delete"),
    "bm_mt_indirect_delete_entry": (Calls._indirect, "table_indirect_delete"),
    "bm_mt_indirect_set_default_member": (Calls._indirect, "table_indirect_set_default"),
    "bm_mt_indirect_reset_default_entry": (Calls._indirect, "table_indirect_reset_default"),
    "bm_mt_indirect_ws_set_default_group": (
        Calls._with_selector,
        "table_indirect_set_default_with_group",
    ),
    "bm_mt_act_prof_delete_member": (Calls._profile, "act_prof_delete_member"),
    "bm_mt_act_prof_create_group": (Calls._group_profile, "act_prof_create_group"),
    "bm_mt_act_prof_delete_group": (Calls._group_profile, "act_prof_delete_group"),
    "bm_mt_act_prof_add_member_to_group": (Calls._group_profile, "act_prof_add_member_to_group"),
    "bm_mt_act_prof_remove_member_from_group": (
        Calls._group_profile,
        "act_prof_remove_member_from_group",
    ),
    "bm_counter_reset_all": (Calls._counter_array, "counter_reset"),
    "bm_register_reset": (Calls._register_array, "register_reset"),
    "bm_parse_vset_clear": (Calls._value_set, "value_set_clear"),
}
"""What finds the thing that a call names, or refuses the call; the control plane's operation on it,
which takes the name and the further arguments.
"""

_ON_QUEUES = {
    "set_all_egress_queue_depths": "set_queue_depth",
    "set_egress_queue_depth": "set_queue_depth",
    "set_egress_priority_queue_depth": "set_queue_depth",
    "set_all_egress_queue_rates": "set_queue_rate",
    "set_egress_queue_rate": "set_queue_rate",
    "set_egress_priority_queue_rate": "set_queue_rate",
}
"""The control plane's operation."""

_ON_DEVICE = {
    "bm_load_new_config": "load_config",
    "bm_swap_configs": "swap_configs",
    "bm_dev_mgr_add_port": "add_port",
    "bm_dev_mgr_remove_port": "remove_port",
    "bm_reset_state": "reset_state",
    "get_time_elapsed_us": "elapsed",
}
"""The operation of the ``ThriftDevice``, with the same arguments."""

_PORT_CALLS = ("bm_dev_mgr_add_port", "bm_dev_mgr_remove_port")


# ── Values as they travel ──


def _is_counter(kind: int) -> bool:
    return _RESOURCES[kind] == "counter_arrays"


def _no_entry() -> dict[str, Any]:
    return {"matches": [], "options": {}, "handle": 0, "action": {"type": _NO_TARGET}}


def _values(action: ir.Action, data: Sequence[bytes]) -> list[int]:
    """The parameters of an action, cut to their widths."""
    if len(data) != len(action.parameters):
        raise RefusedError(Refusal.BAD_PARAMETERS)
    return [
        int.from_bytes(value, "big") & ((1 << parameter.width) - 1)
        for value, parameter in zip(data, action.parameters, strict=True)
    ]


def matches_of(table: ir.Table, key: Sequence[Mapping[str, Any]]) -> list[ir.Match]:
    """The matches of a key; refused as a bad key where simple_switch does."""
    if not table.keys:
        raise RefusedError(Refusal.NO_KEY)
    if len(key) != len(table.keys):
        raise RefusedError(Refusal.BAD_KEY)
    return [_match(*each) for each in zip(key, table.keys, strict=True)]


_KINDS = {
    ir.MatchKind.EXACT: EXACT,
    ir.MatchKind.LPM: LPM,
    ir.MatchKind.TERNARY: TERNARY,
    ir.MatchKind.VALID: VALID,
    ir.MatchKind.RANGE: RANGE,
}


def _match(found: Mapping[str, Any], key: ir.TableKey) -> ir.Match:
    def value(name: str) -> int:
        """A key, mask or bound of the field's size; bits beyond the width are cut off."""
        sent = body.get(name, b"")
        if len(sent) != (key.width + 7) // 8:
            raise RefusedError(Refusal.BAD_KEY)
        return int.from_bytes(sent, "big") & ((1 << key.width) - 1)

    if found.get("type", EXACT) != _KINDS[key.match]:
        raise RefusedError(Refusal.BAD_KEY)
    body = found.get(key.match.value, {})
    match key.match:
        case ir.MatchKind.VALID:
            return ir.ExactMatch(int(bool(body.get("key", False))))
        case ir.MatchKind.EXACT:
            return ir.ExactMatch(value("key"))
        case ir.MatchKind.LPM:
            prefix = body.get("prefix", 0)
            if not 0 <= prefix <= key.width:
                raise RefusedError(Refusal.BAD_KEY)
            return ir.LpmMatch(value("key"), prefix)
        case ir.MatchKind.TERNARY:
            return ir.TernaryMatch(value("key"), value("mask"))
        case ir.MatchKind.RANGE:
            low, high = value("low"), value("high")
            if low > high:
                raise RefusedError(Refusal.BAD_KEY)
            return ir.RangeMatch(low, high)


def _data(values: Sequence[int]) -> list[bytes]:
    """Parameters as simple_switch sends them: in as few bytes as hold them."""
    return [value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big") for value in values]


def _signed(value: int) -> int:
    """The lower 64 bits of a register as a signed number."""
    value &= (1 << 64) - 1
    return value - (value >> 63 << 64)


def _priority(options: Mapping[str, int]) -> int:
    return max(0, options.get("priority", 0))


def _counter(value: Mapping[str, int]) -> tuple[int, int]:
    """Packets and bytes, which travel as signed numbers."""
    every = (1 << 64) - 1
    return value.get("packets", 0) & every, value.get("bytes", 0) & every


def _sent_counter(cell: tuple[int, int]) -> dict[str, int]:
    return {"packets": _signed(cell[0]), "bytes": _signed(cell[1])}


def _rates(given: Sequence[Mapping[str, Any]]) -> list[MeterRate]:
    return [MeterRate(each.get("per_microsecond", 0.0), each.get("burst", 0)) for each in given]


def _sent_rates(rates: Sequence[MeterRate]) -> list[dict[str, Any]]:
    return [{"per_microsecond": each.per_microsecond, "burst": each.burst} for each in rates]


def _set_bits(digits: str, last: int) -> list[int]:
    """The numbers of a set that travels as binary digits, number 0 last."""
    found = [number for number, digit in enumerate(reversed(digits)) if digit == "1"]
    if set(digits) - set("01") or (found and found[-1] > last):
        raise RefusedError(_OTHER_GROUP)
    return found


def _replicas(ports: str, lags: str) -> tuple[list[int], list[int]]:
    return _set_bits(ports, MAX_REPLICATION_PORT), _set_bits(lags, MAX_LAG)
