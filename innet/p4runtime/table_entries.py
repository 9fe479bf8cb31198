"""Entries of tables, their direct counters and meters, and their idle time-outs.

Priorities: for P4Runtime the highest wins, for BMv2 the lowest; an entry's priority in the switch
is 2^31 - 1 minus the controller's, as in simple_switch_grpc.

Source: P4Runtime 1.5, sections "TableEntry", "CounterEntry & DirectCounterEntry", "MeterEntry &
DirectMeterEntry".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from innet.core.errors import ControlError, Refusal
from innet.p4runtime.action_profiles import ActionProfiles
from innet.p4runtime.arrays import (
    counter_data,
    counter_values,
    meter_config,
    meter_rates,
    refuse_color_counts,
)
from innet.p4runtime.context import (
    DELETE,
    INSERT,
    MODIFY,
    PipelineContext,
    Undo,
    action_arguments,
    action_message,
    only_modify,
)
from innet.p4runtime.messages import copied, p4
from innet.p4runtime.p4info import EXACT, LPM, OPTIONAL, RANGE, TERNARY, MatchFieldInfo, TableInfo
from innet.p4runtime.status import (
    StatusError,
    invalid,
    not_found,
    permission_denied,
    unimplemented,
)
from innet.p4runtime.values import encode
from innet.switch import ir
from innet.switch.control.control_plane import InstalledEntry
from innet.switch.state.tables import Key, ProfileRef, RuntimeEntry, Target, prefix_mask

_HIGHEST = (1 << 31) - 1
_NANOSECONDS_PER_MS = 1_000_000
_MOST_MS = (1 << 31) - 1
_TYPE_OF_KIND = {
    EXACT: "exact",
    LPM: "lpm",
    TERNARY: "ternary",
    RANGE: "range",
    OPTIONAL: "optional",
}
_DEFAULT_ONLY, _TABLE_ONLY = 2, 1


@dataclass(slots=True)
class _Extra:
    """What controllers said of an entry and the switch does not keep."""

    metadata: bytes = b""
    controller_metadata: int = 0
    idle_timeout_ns: int = 0

    def __bool__(self) -> bool:
        return bool(self.metadata or self.controller_metadata or self.idle_timeout_ns)

    def add_to(self, message: Any) -> None:
        """Fill in a TableEntry."""
        message.metadata = self.metadata
        message.controller_metadata = self.controller_metadata
        message.idle_timeout_ns = self.idle_timeout_ns


class TableEntries:
    """Writes and reads table entries."""

    def __init__(self, context: PipelineContext, profiles: ActionProfiles) -> None:
        self._switch, self._index, self._ports = context
        self._control = context.control
        self._profiles = profiles
        self._extras: dict[int, dict[int, _Extra]] = {}  # by table's id, then by handle
        self._default_extras: dict[int, _Extra] = {}

    # ── Writing ──

    def write(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """Carry out an update of a TableEntry.

        Raises:
            StatusError: it is refused; then nothing has changed.
            ControlError: likewise.
        """
        # Step 1: the table, and what its kind allows ("Default Entry", "Constant Tables").
        table = self._index.tables.get(entry.table_id)
        if table is None:
            table = self._index.find("table", self._index.tables, entry.table_id)
        if entry.is_const:
            raise invalid("the switch sets is_const; it must be false in an update")
        if entry.is_default_action:
            return self._write_default(kind, table, entry, want_undo)
        if not table.fields:
            raise invalid(f"table {table.name} has no key, so only its default entry can change")
        if table.is_constant and (kind != MODIFY or entry.HasField("action")):
            raise permission_denied(
                f"the entries of table {table.name} are constant; only their direct counters and "
                "meters can be modified"
            )
        # Step 2: the key and the priority identify an entry ("TableEntry").
        key, priority = self._key(table, entry)
        if kind == INSERT:
            return self._insert(table, entry, key, priority, want_undo)
        state = self._switch.state.tables[table.position]
        try:
            handle = state.handle_of(key, priority)
        except ControlError as error:
            raise _no_entry(table, error) from None
        # Step 3: change it. The whole entry is made only where it is needed, as it takes as long as
        # all else.
        found = state.get(handle) if want_undo or table.profile else None
        if kind == DELETE:
            return self._delete(table, handle, found, want_undo)
        return self._modify(table, entry, handle, found, want_undo)

    def _insert(
        self, table: TableInfo, entry: Any, key: Key, priority: int, want_undo: bool
    ) -> Undo | None:
        # Step 1: check all that can be, as nothing may change if the update is refused.
        if not entry.HasField("action"):
            raise invalid(f"an entry inserted into table {table.name} needs an action")
        self._check_resources(table, entry)
        # Step 2: the entry. A group that was made of its action set goes if the key is taken.
        target = self._target(table, entry.action)
        try:
            # Not ``table_add``, which would check again what was checked against the P4Info.
            state = self._switch.state.tables[table.position]
            handle = state.add_key(key, target, priority, self._time_of(table))
        except ControlError:
            if isinstance(target, ProfileRef):
                self._profiles.release(table, target)
            raise
        # Step 3: direct counter, meter and time-out, which need its handle.
        try:
            self._set_resources(table, entry, handle, is_new=True)
        except (StatusError, ControlError):
            self._control.table_state(table.name).delete(handle)
            raise
        if not want_undo:
            return None
        inserted = copied(entry)
        return lambda: self.write(DELETE, inserted, False)

    def _modify(
        self,
        table: TableInfo,
        entry: Any,
        handle: int,
        found: RuntimeEntry | None,
        want_undo: bool,
    ) -> Undo | None:
        self._check_resources(table, entry)
        before = None
        if want_undo:
            assert found is not None
            before = self._message(table, found, everything=True)
        if entry.HasField("action"):
            target = self._target(table, entry.action)
            self._switch.state.tables[table.position].modify(handle, target)
            if found is not None:
                self._profiles.release(table, found.action)
        self._set_resources(table, entry, handle, is_new=False)
        if before is None:
            return None
        if not entry.HasField("counter_data"):
            before.ClearField("counter_data")  # packets may have counted since
        if table.is_constant:
            before.ClearField("action")
        return lambda: self.write(MODIFY, before, False)

    def _delete(
        self, table: TableInfo, handle: int, found: RuntimeEntry | None, want_undo: bool
    ) -> Undo | None:
        before = None
        if want_undo:
            assert found is not None
            before = self._message(table, found, everything=True)
        self._time_of(table)
        self._switch.state.tables[table.position].delete(handle)
        if extras := self._extras.get(table.id):
            extras.pop(handle, None)
        if found is not None:
            self._profiles.release(table, found.action)
        return None if before is None else lambda: self.write(INSERT, before, False)

    def _write_default(
        self, kind: int, table: TableInfo, entry: Any, want_undo: bool
    ) -> Undo | None:
        # Step 1: refuse what a default entry does not have ("Default Entry").
        if kind != MODIFY:
            raise invalid("a default entry is always there: it can be modified only")
        if entry.match or entry.priority:
            raise invalid("a default entry has neither match fields nor a priority")
        if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
            raise invalid("default entries have no idle time-out")
        if table.info.const_default_action_id:
            raise permission_denied(f"the default entry of table {table.name} is constant")
        if table.profile:
            raise permission_denied(
                f"the default entry of table {table.name} is NoAction, as its actions come from an "
                "action profile"
            )
        for name in ("meter_config", "counter_data", "meter_counter_data"):
            if entry.HasField(name):
                raise unimplemented(f"default entries have no {name}: only hits count in v1model")
        # Step 2: without an action the default is again the program's own.
        before = self._default_message(table) if want_undo else None
        had = self._default_extras.get(table.id)
        if entry.HasField("action"):
            if entry.action.WhichOneof("type") != "action":
                raise invalid(f"table {table.name} takes an action")
            action = self._action(table, entry.action.action, _TABLE_ONLY)
            arguments = action_arguments(entry.action.action, action)
            self._control.table_set_default(table.name, action.name, arguments)
            self._default_extras[table.id] = _Extra(entry.metadata, entry.controller_metadata)
        else:
            self._control.table_reset_default(table.name)
            self._default_extras.pop(table.id, None)
        if before is None:
            return None

        def undo() -> None:
            self._write_default(MODIFY, table, before, False)
            if had is not None:
                self._default_extras[table.id] = had

        return undo

    def _time_of(self, table: TableInfo) -> int:
        """The time at which an entry is added, after the sweeps due by then, if entries age."""
        return self._switch.state.time() if table.table.support_timeout else 0

    def _target(self, table: TableInfo, action: Any) -> Target:
        """What an entry runs: a member or group, or an action and its arguments."""
        kind = action.WhichOneof("type")
        if table.profile:
            return self._profiles.target(table, action)
        if kind != "action":
            raise invalid(f"table {table.name} takes an action, not {kind or 'nothing'}")
        found = self._action(table, action.action, _DEFAULT_ONLY)
        return ir.ActionEntry(table.positions[found.id], action_arguments(action.action, found))

    def _action(self, table: TableInfo, action: Any, forbidden: int) -> Any:
        found = table.actions.get(action.action_id)
        if found is None:
            raise invalid(f"table {table.name} has no action with id 0x{action.action_id:08x}")
        if table.scopes[found.id] == forbidden:
            where = "entries" if forbidden == _DEFAULT_ONLY else "the default entry"
            raise permission_denied(f"action {found.name} is not for {where} of table {table.name}")
        return found

    # ── Direct resources and time-outs ──

    def _check_resources(self, table: TableInfo, entry: Any) -> None:
        """Refuse what the table does not have, before anything changes."""
        refuse_color_counts(entry, "meter_counter_data")
        if entry.HasField("counter_data"):
            if table.counter is None:
                raise invalid(f"table {table.name} has no direct counter")
            counter_values(entry.counter_data)
        if entry.HasField("meter_config"):
            if table.meter is None:
                raise invalid(f"table {table.name} has no direct meter")
            meter_rates(table.meter, entry.meter_config)
        if entry.HasField("time_since_last_hit"):
            raise invalid("the switch sets time_since_last_hit; leave it unset in an update")
        if entry.idle_timeout_ns and not table.has_timeout:
            raise invalid(f"table {table.name} does not support idle time-outs")
        if entry.idle_timeout_ns < 0:
            raise invalid("an idle time-out cannot be negative")

    def _set_resources(self, table: TableInfo, entry: Any, handle: int, *, is_new: bool) -> None:
        if table.counter is not None and entry.HasField("counter_data"):
            packets, size = counter_values(entry.counter_data)
            self._control.counter_write(table.counter.preamble.name, handle, packets, size)
        if table.meter is not None:
            self._set_meter(table, handle, entry)
        if table.has_timeout:
            # For new entries always, as an index inherits the time-out of its last entry.
            milliseconds = min(-(-entry.idle_timeout_ns // _NANOSECONDS_PER_MS), _MOST_MS)
            had = self._extra(table, handle)
            if is_new or had.idle_timeout_ns != entry.idle_timeout_ns:
                self._control.table_set_timeout(table.name, handle, milliseconds)
        if entry.metadata or entry.controller_metadata or entry.idle_timeout_ns:
            extra = _Extra(entry.metadata, entry.controller_metadata, entry.idle_timeout_ns)
            self._extras.setdefault(table.id, {})[handle] = extra
        elif extras := self._extras.get(table.id):
            extras.pop(handle, None)

    def _set_meter(self, table: TableInfo, handle: int, entry: Any) -> None:
        name = table.meter.preamble.name
        if entry.HasField("meter_config"):
            rates = meter_rates(table.meter, entry.meter_config)
            self._control.meter_set_rates(name, handle, rates)
        else:
            self._control.meter_reset(name, handle)

    def _extra(self, table: TableInfo, handle: int) -> _Extra:
        return self._extras.get(table.id, {}).get(handle) or _Extra()

    # ── Keys ──

    def _key(self, table: TableInfo, entry: Any) -> tuple[Key, int]:
        """The key of an entry in the order of the table's, and its priority in the switch."""
        given = entry.priority
        if table.has_priority:
            if given <= 0:
                raise invalid(f"entries of table {table.name} need a priority above 0")
            priority = _HIGHEST - given
        elif given:
            raise invalid(
                f"entries of table {table.name} have no priority, as no field is ternary, range or "
                "optional"
            )
        else:
            priority = 0
        return key_of(table.name, table.fields, table.places, entry.match), priority

    def _find(self, table: TableInfo, key: Key, priority: int) -> RuntimeEntry:
        try:
            return self._switch.state.tables[table.position].find_key(key, priority)
        except ControlError as error:
            raise _no_entry(table, error) from None

    # ── Reading ──

    def read(self, wanted: Any) -> Iterator[Any]:
        """The entries that a TableEntry asks for, as TableEntry messages."""
        if not wanted.table_id:
            if wanted.match or wanted.action.WhichOneof("type") or wanted.priority:
                raise invalid("entries of all tables cannot be selected further")
            for table in self._index.tables.values():
                yield from self._read_table(table, wanted, lenient=True)
            return
        if wanted.table_id in self._index.removed:
            return
        table = self._index.find("table", self._index.tables, wanted.table_id)
        yield from self._read_table(table, wanted, lenient=False)

    def _read_table(self, table: TableInfo, wanted: Any, *, lenient: bool) -> Iterator[Any]:
        # Step 1: direct resources are read only where the message asks ("Direct Resources").
        if not lenient:
            self._check_read(table, wanted)
        resources = (
            table.counter is not None and wanted.HasField("counter_data"),
            table.meter is not None and wanted.HasField("meter_config"),
            table.has_timeout and wanted.HasField("time_since_last_hit"),
        )
        if wanted.is_default_action:
            yield self._default_message(table)
            return
        # Step 2: all set fields of the message select ("Wildcard Reads").
        action = wanted.action.action.action_id if wanted.action.HasField("action") else 0
        for entry in self._selected(table, wanted):
            if wanted.priority and _HIGHEST - entry.priority != wanted.priority:
                continue
            extra = self._extra(table, entry.handle)
            if wanted.metadata and extra.metadata != wanted.metadata:
                continue
            if (
                wanted.controller_metadata
                and extra.controller_metadata != wanted.controller_metadata
            ):
                continue
            if action and not self._runs(table, entry.action, action):
                continue
            yield self._message(table, entry, *resources)

    def _check_read(self, table: TableInfo, wanted: Any) -> None:
        refuse_color_counts(wanted, "meter_counter_data")
        if wanted.HasField("time_since_last_hit") and not table.has_timeout:
            raise invalid(f"table {table.name} does not support idle time-outs")
        kind = wanted.action.WhichOneof("type")
        if kind == "action" and wanted.action.action.action_id not in table.actions:
            number = wanted.action.action.action_id
            raise invalid(f"table {table.name} has no action with id 0x{number:08x}")
        if kind not in (None, "action"):
            raise unimplemented("entries are not selected by member or group")
        if wanted.is_default_action and (wanted.match or wanted.priority):
            raise invalid("a default entry has neither match fields nor a priority")

    def _selected(self, table: TableInfo, wanted: Any) -> Iterator[RuntimeEntry]:
        if not wanted.match:
            yield from self._entries(table)
            return
        key = key_of(table.name, table.fields, table.places, wanted.match)
        if not table.has_priority or wanted.priority:
            try:
                priority = _HIGHEST - wanted.priority if table.has_priority else 0
                yield self._find(table, key, priority)
            except StatusError:
                pass
            return
        for entry in self._entries(table):
            if (entry.values, entry.masks) == key[:2]:
                yield entry

    def _entries(
        self, table: TableInfo, handles: Sequence[int] | None = None
    ) -> Iterator[RuntimeEntry]:
        """Entries, all unless ``handles`` are given. Packets and other requests may come between
        two of them.
        """
        state = self._control.table_state(table.name)
        for handle in state.handles() if handles is None else handles:
            try:
                entry = state.get(handle)
            except ControlError:
                continue  # deleted since
            yield entry

    def _runs(self, table: TableInfo, target: Target, action: int) -> bool:
        if isinstance(target, ProfileRef):
            return False
        found = table.by_action.get(target.action)
        return found is not None and found.id == action

    def _message(
        self,
        table: TableInfo,
        entry: RuntimeEntry,
        with_counter: bool = False,
        with_meter: bool = False,
        with_time: bool = False,
        *,
        everything: bool = False,
    ) -> Any:
        message = _key_message(table, entry)
        if isinstance(entry.action, ProfileRef):
            self._profiles.describe(table, entry.action, message.action)
        elif (found := table.by_action.get(entry.action.action)) is not None:
            message.action.action.CopyFrom(action_message(entry.action, found))
        extra = self._extra(table, entry.handle)
        if extra:
            extra.add_to(message)
        if not everything:
            message.is_const = table.is_constant
        if table.counter is not None and (with_counter or everything):
            values = self._control.counter_read(table.counter.preamble.name, entry.handle)
            message.counter_data.CopyFrom(counter_data(table.counter.spec, *values))
        if table.meter is not None and (with_meter or everything):
            rates = self._control.meter_get_rates(table.meter.preamble.name, entry.handle)
            if rates:
                message.meter_config.CopyFrom(meter_config(rates))
        if with_time:
            message.time_since_last_hit.elapsed_ns = self._since_hit(table, entry)
        return message

    def _since_hit(self, table: TableInfo, entry: RuntimeEntry) -> int:
        """Nanoseconds since the last hit."""
        ages = self._control.table_state(table.name).ages
        assert ages is not None, "the table supports time-outs"
        return 1000 * max(0, self._switch.state.time() - int(ages.last_hits[entry.index]))

    def _default_message(self, table: TableInfo) -> Any:
        message = p4.TableEntry(table_id=table.id, is_default_action=True)
        default = self._control.table_default(table.name)
        if isinstance(default, ir.ActionEntry):
            found = table.by_action.get(default.action)
            if found is not None:
                message.action.action.CopyFrom(action_message(default, found))
        extra = self._default_extras.get(table.id)
        if extra is not None:
            extra.add_to(message)
        return message

    def idle_message(self, name: str, handles: Sequence[int]) -> list[Any]:
        """The entries of an idle time-out, for a notification."""
        table = self._index.table_of_name.get(name)
        if table is None:
            return []
        messages = []
        for entry in self._entries(table, handles):
            message = _key_message(table, entry)
            self._extra(table, entry.handle).add_to(message)
            messages.append(message)
        return messages

    # ── Direct counters and meters by their own entities ──

    def write_counter(self, kind: int, message: Any, want_undo: bool) -> Undo | None:
        """An update of a DirectCounterEntry."""
        only_modify(kind, "a direct counter")
        table, entry = self._of_resource(message, "counter")
        name = table.counter.preamble.name
        before = self._control.counter_read(name, entry.handle)
        if message.HasField("data"):
            packets, size = counter_values(message.data)
            self._control.counter_write(name, entry.handle, packets, size)
        if not want_undo:
            return None
        return lambda: self._control.counter_write(name, entry.handle, *before)

    def write_meter(self, kind: int, message: Any, want_undo: bool) -> Undo | None:
        """An update of a DirectMeterEntry."""
        only_modify(kind, "a direct meter")
        refuse_color_counts(message)
        table, entry = self._of_resource(message, "meter")
        name = table.meter.preamble.name
        before = self._control.meter_get_rates(name, entry.handle)
        if message.HasField("config"):
            rates = meter_rates(table.meter, message.config)
            self._control.meter_set_rates(name, entry.handle, rates)
        else:
            self._control.meter_reset(name, entry.handle)
        if not want_undo:
            return None
        if before:
            return lambda: self._control.meter_set_rates(name, entry.handle, before)
        return lambda: self._control.meter_reset(name, entry.handle)

    def read_counters(self, wanted: Any) -> Iterator[Any]:
        """DirectCounterEntry messages."""
        for table, entry in self._resources(wanted, "counter"):
            message = p4.DirectCounterEntry(table_entry=_key_message(table, entry))
            values = self._control.counter_read(table.counter.preamble.name, entry.handle)
            message.data.CopyFrom(counter_data(table.counter.spec, *values))
            yield message

    def read_meters(self, wanted: Any) -> Iterator[Any]:
        """DirectMeterEntry messages."""
        refuse_color_counts(wanted)
        for table, entry in self._resources(wanted, "meter"):
            message = p4.DirectMeterEntry(table_entry=_key_message(table, entry))
            rates = self._control.meter_get_rates(table.meter.preamble.name, entry.handle)
            if rates:
                message.config.CopyFrom(meter_config(rates))
            yield message

    def _entry_of(self, message: Any, kind: str) -> Any:
        if not message.HasField("table_entry"):
            raise invalid(f"the table_entry of a direct {kind} must be set")
        return message.table_entry

    def _table_with(self, number: int, kind: str) -> TableInfo:
        """The table of an id, which must have a direct ``kind``."""
        table: TableInfo = self._index.find("table", self._index.tables, number)
        if getattr(table, kind) is None:
            raise invalid(f"table {table.name} has no direct {kind}")
        return table

    def _of_resource(self, message: Any, kind: str) -> tuple[TableInfo, RuntimeEntry]:
        """The table and entry of a DirectCounterEntry or DirectMeterEntry."""
        wanted = self._entry_of(message, kind)
        table = self._table_with(wanted.table_id, kind)
        if wanted.is_default_action:
            raise unimplemented(f"default entries have no direct {kind}: only hits count here")
        key, priority = self._key(table, wanted)
        return table, self._find(table, key, priority)

    def _resources(self, message: Any, kind: str) -> Iterator[tuple[TableInfo, RuntimeEntry]]:
        """The tables and entries that a message asks for."""
        wanted = self._entry_of(message, kind)
        if wanted.table_id in self._index.removed:
            return
        if wanted.table_id and wanted.match:
            yield self._of_resource(message, kind)
            return
        tables = list(self._index.tables.values())
        if wanted.table_id:
            tables = [self._table_with(wanted.table_id, kind)]
        for table in tables:
            if getattr(table, kind) is not None:
                for entry in self._entries(table):
                    if not wanted.priority or _HIGHEST - entry.priority == wanted.priority:
                        yield table, entry


def _key_message(table: TableInfo, entry: InstalledEntry) -> Any:
    """A TableEntry with the key of an entry."""
    message = p4.TableEntry(table_id=table.id)
    for field, match in zip(table.fields, entry.matches, strict=True):
        _add_match(message.match, field, match)
    if table.has_priority:
        message.priority = _HIGHEST - entry.priority
    return message


def _no_entry(table: TableInfo, error: ControlError) -> Exception:
    """What is raised of the error of a search."""
    if error.reason is Refusal.BAD_KEY:
        return not_found(f"table {table.name} has no entry with this key")
    return error


# ----------------------------------------------------------------------------
# Matches.


def key_of(owner: str, fields: Sequence[MatchFieldInfo], places: dict[int, int], given: Any) -> Key:
    """The key of FieldMatch messages for all ``fields``, in their order.

    Raises:
        StatusError: a field that is unknown, named twice, missing, or has a bad value.
    """
    # Step 1: the fields that are given, each at most once, in any order ("Match Format").
    found: list[tuple[int, int] | None] = [None] * len(fields)
    prefix = 0
    for match in given:
        place = places.get(match.field_id)
        if place is None:
            raise invalid(f"{owner} has no match field with id {match.field_id}")
        field = fields[place]
        if found[place] is not None:
            raise invalid(f"{field.name} is given twice")
        if field.kind == LPM:
            found[place], prefix = _lpm(field, match)
        elif field.kind == EXACT and field.codec.is_plain and (data := match.exact.value):
            value = int.from_bytes(data, "big")  # as ``_match`` does it, for the most frequent
            if value >> field.codec.width:
                field.codec.decode(data, field.name)  # which raises
            found[place] = (value & field.static, field.every)
        else:
            found[place] = _match(field, match)
    # Step 2: those that are left out match everything, if their kind can.
    if None in found:
        for place, field in enumerate(fields):
            if found[place] is None:
                if field.anything is None:
                    raise invalid(f"{field.name} is exact, and cannot be left out")
                found[place] = field.anything
    values, masks = zip(*found, strict=True)
    return Key(values, masks, prefix)


def _require_kind(field: MatchFieldInfo, match: Any) -> None:
    kind = match.WhichOneof("field_match_type")
    if kind != _TYPE_OF_KIND[field.kind]:
        raise invalid(f"{field.name} is {_TYPE_OF_KIND[field.kind]}, not {kind or 'nothing'}")


def _match(field: MatchFieldInfo, match: Any) -> tuple[int, int]:
    """Value and mask of a field, or the ends of its range, as ``RuntimeEntry`` holds them."""
    _require_kind(field, match)
    codec, what, kind = field.codec, field.name, field.kind
    if kind == EXACT:
        return codec.decode(match.exact.value, what) & field.static, field.every
    if kind == OPTIONAL:
        return codec.decode(match.optional.value, what) & field.static, field.every
    if kind == TERNARY:
        ternary = match.ternary
        value = codec.decode(ternary.value, what)
        mask = codec.decode_mask(ternary.mask, what)
        if mask == 0:
            raise invalid(f"{what}: leave the field out instead of a mask of zeros")
        if value & ~mask:
            raise invalid(f"{what}: bits outside the mask must be 0")
        return value & field.static, mask
    low = codec.decode(match.range.low, what)
    high = codec.decode(match.range.high, what)
    if low > high:
        raise invalid(f"{what}: the low end {low} is above the high end {high}")
    if low == 0 and high == field.every:
        raise invalid(f"{what}: leave the field out instead of a range of everything")
    return low & field.static, high


def _lpm(field: MatchFieldInfo, match: Any) -> tuple[tuple[int, int], int]:
    """Value and mask of a field, and the length of its prefix as BMv2 counts it."""
    _require_kind(field, match)
    codec, what, lpm = field.codec, field.name, match.lpm
    given = lpm.prefix_len
    if given == 0:
        raise invalid(f"{what}: leave the field out instead of a prefix of length 0")
    length = given - (codec.sdn_width - codec.width)
    if not 0 < length <= codec.width:
        raise invalid(f"{what}: there is no prefix of {given} bits")
    value = codec.decode(lpm.value, what)
    if value & ((1 << codec.width - length) - 1):
        raise invalid(f"{what}: bits behind the prefix must be 0")
    prefix = length + field.padding
    return (value & field.static, prefix_mask(prefix, codec.width)), prefix


def _add_match(into: Any, field: MatchFieldInfo, match: ir.Match) -> None:
    """Add the FieldMatch of a match, unless it matches everything."""
    codec = field.codec
    if isinstance(match, ir.ExactMatch):
        into.add(field_id=field.id).exact.value = codec.encode(match.value)
    elif isinstance(match, ir.LpmMatch):
        length = max(0, match.prefix - field.padding)
        if length:
            lpm = into.add(field_id=field.id).lpm
            lpm.value = codec.encode(match.value)
            lpm.prefix_len = length + codec.sdn_width - codec.width
    elif isinstance(match, ir.RangeMatch):
        if (match.low, match.high) != (0, (1 << codec.width) - 1):
            found = into.add(field_id=field.id).range
            found.low, found.high = encode(match.low), encode(match.high)
    elif match.mask and field.kind == OPTIONAL:
        into.add(field_id=field.id).optional.value = codec.encode(match.value)
    elif match.mask:
        ternary = into.add(field_id=field.id).ternary
        ternary.value, ternary.mask = codec.encode(match.value), codec.encode_mask(match.mask)
