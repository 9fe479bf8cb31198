"""Multicast groups and clone sessions.

A clone session is a mirror session whose clones go to a separate multicast group, number 32768
and the session's, as in simple_switch_grpc. Of a replica and its backups the first whose port is up
gets the copy; if none is, the replica's own port does.

Source: P4Runtime 1.5, section "PacketReplicationEngineEntry".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.p4runtime.context import DELETE, INSERT, MODIFY, PipelineContext, Undo
from innet.p4runtime.messages import copied, p4
from innet.p4runtime.status import (
    already_exists,
    invalid,
    not_found,
    resource_exhausted,
    unimplemented,
)
from innet.p4runtime.values import encode
from innet.switch.state.replication import MAX_RID, MAX_SESSION

_FIRST_OF_SESSIONS = 1 << 15
_MOST_GROUP = _FIRST_OF_SESSIONS - 1

_Ways = list[list[tuple[int, int]]]
"""For each replica (port, instance) of itself and its backups."""


class ReplicationEntries:
    """Writes and reads multicast groups and clone sessions."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._ports = context.ports
        self._control = context.control
        platform = context.ids.info.pkg_info.platform_properties
        self._most_groups = platform.multicast_group_table_size
        self._most_replicas = platform.multicast_group_table_max_replicas_per_entry
        self._most_in_all = platform.multicast_group_table_total_replicas
        self._groups: dict[int, tuple[Any, _Ways]] = {}
        self._sessions: dict[int, tuple[Any, _Ways]] = {}

    def write(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of a PacketReplicationEngineEntry."""
        which = entry.WhichOneof("type")
        if which == "multicast_group_entry":
            return self._write_group(kind, entry.multicast_group_entry, want_undo)
        if which == "clone_session_entry":
            return self._write_session(kind, entry.clone_session_entry, want_undo)
        raise invalid("an entry of the replication engine is a multicast group or a clone session")

    def _write_group(self, kind: int, given: Any, want_undo: bool) -> Undo | None:
        number = given.multicast_group_id
        if not 0 < number <= _MOST_GROUP:
            raise invalid(f"the id of a multicast group is 1 to {_MOST_GROUP}, not {number}")
        exists = number in self._control.replication().groups
        had = self._groups.get(number) if exists else None
        before = had[0] if had else self._found_group(number) if exists else None
        self._require(kind, exists, f"multicast group {number}")
        if kind == DELETE:
            self._clear(number)
            self._groups.pop(number, None)
            return self._undo(INSERT, "multicast_group_entry", before, want_undo)
        # Replicas that are given replace those before ("MulticastGroupEntry").
        ways = self._ways(given.replicas)
        self._check_sizes(number, ways, is_new=not exists)
        self._put(number, ways)
        self._groups[number] = (copied(given), ways)
        back = MODIFY if exists else DELETE
        return self._undo(back, "multicast_group_entry", before or given, want_undo)

    def _write_session(self, kind: int, given: Any, want_undo: bool) -> Undo | None:
        number = given.session_id
        if not 0 < number <= MAX_SESSION:
            raise invalid(f"the id of a clone session is 1 to {MAX_SESSION}, not {number}")
        exists = number in self._control.replication().sessions
        had = self._sessions.get(number) if exists else None
        before = had[0] if had else p4.CloneSessionEntry(session_id=number)
        self._require(kind, exists, f"clone session {number}")
        if kind == DELETE:
            self._control.mirroring_delete(number)
            self._clear(_FIRST_OF_SESSIONS + number)
            self._sessions.pop(number, None)
            return self._undo(INSERT, "clone_session_entry", before, want_undo)
        # What v1model cannot do with clones ("CloneSessionEntry").
        if given.class_of_service:
            raise unimplemented("clones have no class of service in v1model")
        if given.packet_length_bytes < 0:
            raise invalid("packet_length_bytes cannot be negative")
        if given.packet_length_bytes:
            raise unimplemented(
                "clones are not truncated here; a program can do it by truncate() in its egress"
            )
        ways = self._ways(given.replicas)
        self._put(_FIRST_OF_SESSIONS + number, ways)
        self._control.mirroring_add(number, group=_FIRST_OF_SESSIONS + number)
        self._sessions[number] = (copied(given), ways)
        back = MODIFY if exists else DELETE
        return self._undo(back, "clone_session_entry", before if exists else given, want_undo)

    def _undo(self, kind: int, name: str, message: Any, want_undo: bool) -> Undo | None:
        if not want_undo:
            return None
        entry = p4.PacketReplicationEngineEntry()
        getattr(entry, name).CopyFrom(message)
        return lambda: self.write(kind, entry, False)

    def _require(self, kind: int, exists: bool, what: str) -> None:
        if kind == INSERT and exists:
            raise already_exists(f"there is a {what} already")
        if kind != INSERT and not exists:
            raise not_found(f"there is no {what}")

    def _ways(self, replicas: Any) -> _Ways:
        """(port, instance) of each replica and its backups, checked."""
        ways: _Ways = []
        seen: set[tuple[int, int]] = set()
        for each in replicas:
            if each.WhichOneof("port_kind") == "egress_port":
                data = encode(each.egress_port)
            else:
                data = each.port
            way = [(self._context.port(data, "the port of a replica"), each.instance)]
            for backup in each.backup_replicas:
                port = self._context.port(backup.port, "the port of a backup replica")
                way.append((port, backup.instance))
            if any(port == way[0][0] for port, _ in way[1:]):
                raise invalid(f"a backup replica has the port {way[0][0]} of its replica")
            for port, instance in way:
                if instance > MAX_RID:
                    raise invalid(f"the instance of a replica is at most {MAX_RID}, not {instance}")
                if (port, instance) in seen:
                    raise invalid(f"port {port} with instance {instance} is there twice")
                seen.add((port, instance))
            ways.append(way)
        return ways

    def _check_sizes(self, number: int, ways: _Ways, *, is_new: bool) -> None:
        if self._most_groups and is_new and len(self._groups) >= self._most_groups:
            raise resource_exhausted(f"there are at most {self._most_groups} multicast groups")
        if self._most_replicas and len(ways) > self._most_replicas:
            raise resource_exhausted(f"a group has at most {self._most_replicas} replicas")
        others = sum(len(each[1]) for group, each in self._groups.items() if group != number)
        if self._most_in_all and others + len(ways) > self._most_in_all:
            raise resource_exhausted(f"there are at most {self._most_in_all} replicas in all")

    def _put(self, group: int, ways: _Ways) -> None:
        self._control.multicast_group(group, [self._working(way) for way in ways])

    def _working(self, way: list[tuple[int, int]]) -> tuple[int, int]:
        if len(way) == 1:
            return way[0]
        return next((each for each in way if self._ports.is_port_up(each[0])), way[0])

    def _clear(self, group: int) -> None:
        """Remove a group and its nodes."""
        replication = self._control.replication()
        for node in list(replication.groups.get(group, ())):
            self._control.mc_node_destroy(node)
        self._control.mc_mgrp_destroy(group)

    def ports_changed(self) -> None:
        """Send copies by backups, and no longer."""
        for first, among in ((0, self._groups), (_FIRST_OF_SESSIONS, self._sessions)):
            for number, (_, ways) in among.items():
                if any(len(way) > 1 for way in ways):
                    self._put(first + number, ways)

    # ── Reading ──

    def read(self, wanted: Any) -> Iterator[Any]:
        """PacketReplicationEngineEntry messages."""
        which = wanted.WhichOneof("type")
        if which is None:
            raise invalid("read multicast groups or clone sessions: one of them must be set")
        replication = self._control.replication()
        if which == "multicast_group_entry":
            number = wanted.multicast_group_entry.multicast_group_id
            for group in sorted(replication.groups):
                if number in (0, group) and group < _FIRST_OF_SESSIONS:
                    had = self._groups.get(group)
                    message = had[0] if had else self._found_group(group)
                    yield p4.PacketReplicationEngineEntry(multicast_group_entry=message)
            return
        number = wanted.clone_session_entry.session_id
        for session in sorted(replication.sessions):
            if number in (0, session):
                had = self._sessions.get(session)
                message = had[0] if had else self._found_session(session)
                yield p4.PacketReplicationEngineEntry(clone_session_entry=message)

    def _found_group(self, group: int) -> Any:
        """A group that was made over Thrift."""
        message = p4.MulticastGroupEntry(multicast_group_id=group)
        for port, instance in self._control.replication().replicas(group):
            message.replicas.add(port=encode(port), instance=instance)
        return message

    def _found_session(self, session: int) -> Any:
        message = p4.CloneSessionEntry(session_id=session)
        where = self._control.mirroring_get(session)
        if where.port is not None:
            message.replicas.add(port=encode(where.port))
        if where.group is not None:
            for port, instance in self._control.replication().replicas(where.group):
                message.replicas.add(port=encode(port), instance=instance)
        return message
