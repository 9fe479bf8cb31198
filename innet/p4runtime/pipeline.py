"""A forwarding pipeline: a program that is loaded, its P4Info, and updates and reads of entities.

Everything here is called by the thread that runs the switch, between two batches of packets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from innet.core.errors import InnetError
from innet.p4runtime.action_profiles import ActionProfiles
from innet.p4runtime.arrays import Arrays
from innet.p4runtime.context import (
    DELETE,
    INSERT,
    MODIFY,
    PipelineContext,
    PortStates,
    Undo,
    only_modify,
)
from innet.p4runtime.digests import Digests
from innet.p4runtime.messages import P4DeviceConfig, p4
from innet.p4runtime.p4info import P4Index
from innet.p4runtime.replication import ReplicationEntries
from innet.p4runtime.status import (
    Code,
    StatusError,
    already_exists,
    invalid,
    resource_exhausted,
    status_of,
    unimplemented,
)
from innet.p4runtime.table_entries import TableEntries, key_of
from innet.switch import Switch

_ROLLED_BACK = "not applied, as another update of the batch failed"
_RECONCILED = (
    "action_profile_member",
    "action_profile_group",
    "table_entry",
    "counter_entry",
    "meter_entry",
    "register_entry",
    "value_set_entry",
    "digest_entry",
)


class ForwardingPipeline:
    """The entities of a program.

    Args:
        switch: runs the program.
        forwarding: the ForwardingPipelineConfig that it came with.
        ports: of the device.
        send: takes DigestList messages.

    Attributes:
        switch, config, index: as given, and the ids of its P4Info.

    Raises:
        StatusError: INVALID_ARGUMENT where P4Info and program do not belong together.
    """

    def __init__(
        self,
        switch: Switch,
        forwarding: Any,
        ports: PortStates,
        send: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.switch = switch
        self.config = forwarding
        self.index = P4Index(forwarding.p4info, switch.program, ports.cpu_port)
        context = PipelineContext(switch, self.index, ports)
        self._control = context.control
        self._profiles = ActionProfiles(context)
        self._tables = TableEntries(context, self._profiles)
        self._arrays = Arrays(context)
        self._replication = ReplicationEntries(context)
        self.digests = Digests(context, send)
        self._writers: dict[str, Callable[[int, Any, bool], Undo | None]] = {
            "table_entry": self._tables.write,
            "action_profile_member": self._profiles.write_member,
            "action_profile_group": self._profiles.write_group,
            "meter_entry": self._arrays.write_meter,
            "direct_meter_entry": self._tables.write_meter,
            "counter_entry": self._arrays.write_counter,
            "direct_counter_entry": self._tables.write_counter,
            "packet_replication_engine_entry": self._replication.write,
            "value_set_entry": self._write_value_set,
            "register_entry": self._arrays.write_register,
            "digest_entry": self.digests.write,
        }
        self._readers: dict[str, Callable[[Any], Iterator[Any]]] = {
            "table_entry": self._tables.read,
            "action_profile_member": self._profiles.read_members,
            "action_profile_group": self._profiles.read_groups,
            "meter_entry": self._arrays.read_meters,
            "direct_meter_entry": self._tables.read_meters,
            "counter_entry": self._arrays.read_counters,
            "direct_counter_entry": self._tables.read_counters,
            "packet_replication_engine_entry": self._replication.read,
            "value_set_entry": self._read_value_sets,
            "register_entry": self._arrays.read_registers,
            "digest_entry": self.digests.read,
        }

    # ── Updates ──

    def apply(self, update: Any, want_undo: bool = False) -> Undo | None:
        """Carry out one Update; it is applied whole or not at all.

        Args:
            update: an Update message.
            want_undo: return what takes it back.

        Raises:
            InnetError: it is refused; ``status_of`` has the code.
        """
        kind = update.type
        if kind not in (INSERT, MODIFY, DELETE):
            raise invalid("the type of an update is INSERT, MODIFY or DELETE")
        entity = update.entity
        name = entity.WhichOneof("entity")
        writer = self._writers.get(name)
        if writer is None:
            if name is None:
                raise invalid("an update has no entity")
            raise unimplemented("v1model defines no further kinds of externs")
        return writer(kind, getattr(entity, name), want_undo)

    def write(
        self, updates: Sequence[Any], *, all_or_nothing: bool
    ) -> Generator[None, None, list[Any]]:
        """Carry out a batch; yields after each update, and returns the p4.v1.Error of each.

        Args:
            updates: Update messages.
            all_or_nothing: take back the others where one fails; what follows it is not tried.

        Returns:
            nothing where none failed.
        """
        # Step 1: one after the other ("Batching and Ordering of Updates").
        failures: dict[int, StatusError] = {}
        undos: list[Undo] = []
        for place, update in enumerate(updates):
            try:
                undo = self.apply(update, all_or_nothing)
                if undo is not None:
                    undos.append(undo)
            except InnetError as reason:
                failures[place] = status_of(reason)
                if all_or_nothing:
                    break
            yield
        if not failures:
            return []
        # Step 2: the last of them is taken back first ("Batch Atomicity").
        if all_or_nothing:
            for undo in reversed(undos):
                undo()
        # Step 3: an error for each update, in their order ("Error Reporting" of Write).
        other = p4.Error()
        if all_or_nothing:
            other.canonical_code, other.message = Code.ABORTED, _ROLLED_BACK
        return [
            p4.Error(canonical_code=failures[place].code, message=str(failures[place]))
            if place in failures
            else other
            for place in range(len(updates))
        ]

    # ── Reads ──

    def read(self, entity: Any) -> Iterator[Any]:
        """The Entity messages that an Entity asks for.

        Raises:
            InnetError: it cannot be read so.
        """
        name = entity.WhichOneof("entity")
        reader = self._readers.get(name)
        if reader is None:
            if name is None:
                raise invalid("an entity that is read must be of some kind")
            if not entity.extern_entry.extern_type_id:
                return  # all of the externs that there are not
            raise unimplemented("v1model defines no further kinds of externs")
        for found in reader(getattr(entity, name)):
            made = p4.Entity()
            getattr(made, name).CopyFrom(found)
            yield made

    # ── Value sets ──

    def _write_value_set(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        only_modify(kind, "a value set")
        found = self.index.find("value set", self.index.value_sets, entry.value_set_id)
        if len(entry.members) > found.size:
            raise resource_exhausted(f"value set {found.name} holds {found.size} members")
        places = {field.id: place for place, field in enumerate(found.fields)}
        values = []
        for member in entry.members:
            value = 0
            key = key_of(f"value set {found.name}", found.fields, places, member.match)
            for part, field in zip(key.values, found.fields, strict=True):
                value = value << field.codec.width | part
            if value in values:
                raise already_exists(f"a member of value set {found.name} is there twice")
            values.append(value)
        before = self._control.value_set(found.name)
        self._replace_values(found.name, values)
        return (lambda: self._replace_values(found.name, before)) if want_undo else None

    def _replace_values(self, name: str, values: Any) -> None:
        self._control.value_set_clear(name)
        for value in values:
            self._control.value_set_add(name, value)

    def _read_value_sets(self, wanted: Any) -> Iterator[Any]:
        among = self.index.value_sets
        if wanted.value_set_id:
            among = {0: self.index.find("value set", among, wanted.value_set_id)}
        for found in among.values():
            message = p4.ValueSetEntry(value_set_id=found.id)
            for value in sorted(self._control.value_set(found.name)):
                member, left = message.members.add(), value
                parts = []
                for field in reversed(found.fields):
                    parts.append((field, left & ((1 << field.codec.width) - 1)))
                    left >>= field.codec.width
                for field, part in reversed(parts):
                    member.match.add(field_id=field.id).exact.value = field.codec.encode(part)
            yield message

    # ── What happens beside requests ──

    def ports_changed(self) -> None:
        """Follow the states of ports that groups and replicas watch."""
        self._profiles.ports_changed()
        self._replication.ports_changed()

    def idle_entries(self, table: str, handles: Sequence[int]) -> list[Any]:
        """The TableEntry messages of a notification."""
        return self._tables.idle_message(table, handles)

    def take_state_of(self, other: ForwardingPipeline) -> None:
        """Write everything that another pipeline holds into this one.

        Raises:
            StatusError: INVALID_ARGUMENT, something of it does not fit.
        """
        # Step 1: entities that a wildcard reads whole, members before groups before entries.
        for name in _RECONCILED:
            entity = p4.Entity()
            getattr(entity, name).SetInParent()
            if name == "table_entry":
                entity.table_entry.counter_data.SetInParent()
                entity.table_entry.meter_config.SetInParent()
            # The cells of arrays and value sets are always there.
            kind = MODIFY if name.startswith(("counter", "meter", "register", "value")) else INSERT
            for found in other.read(entity):
                if name == "table_entry" and found.table_entry.is_const:
                    continue
                self._take(kind, found)
        # Step 2: what one asks for in another way.
        self._take_replication(other)
        self._take_defaults(other)

    def _take(self, kind: int, entity: Any) -> None:
        try:
            self.apply(p4.Update(type=kind, entity=entity))
        except InnetError as error:
            raise invalid(f"the switch's state does not fit the new program: {error}") from None

    def _take_replication(self, other: ForwardingPipeline) -> None:
        for which in ("multicast_group_entry", "clone_session_entry"):
            entity = p4.Entity()
            getattr(entity.packet_replication_engine_entry, which).SetInParent()
            for found in other.read(entity):
                self._take(INSERT, found)

    def _take_defaults(self, other: ForwardingPipeline) -> None:
        for table in other.index.tables.values():
            if table.profile or table.info.const_default_action_id:
                continue
            state = other._control.table_state(table.name)
            if state.default == state.table.default:
                continue
            entity = p4.Entity()
            entity.table_entry.table_id = table.id
            entity.table_entry.is_default_action = True
            for found in other.read(entity):
                self._take(MODIFY, found)


def device_config(data: bytes) -> str:
    """The program's JSON in a ``p4_device_config``: itself, or in BMv2's P4DeviceConfig.

    Raises:
        StatusError: INVALID_ARGUMENT, it is neither.
    """
    if data.lstrip()[:1] != b"{":
        with contextlib.suppress(DecodeError):
            data = P4DeviceConfig.FromString(data).device_data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.lstrip().startswith("{"):
        raise invalid("p4_device_config is not the JSON that p4c makes for BMv2")
    return text
