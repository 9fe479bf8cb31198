"""Packet replication: multicast groups made of nodes, and mirror sessions for clones.

Like simple_switch's replication engine: a node is a replication id with a set of ports and link
aggregation groups. A group is a list of nodes in the order of association. A node belongs to at
most one group.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from innet.core.errors import ControlError
from innet.switch.state.tables import Generation

MAX_GROUP = 65535
MAX_RID = 0xFFFF
MAX_REPLICATION_PORT = 511
"""Ports are 9 bits wide in v1model."""
MAX_LAG = 255
_LAG_HASH = 0xFF
"""simple_switch does not hash packets here: each aggregation group always uses the same port."""
MAX_SESSION = 0x7FFF


@dataclass(slots=True)
class MulticastNode:
    """Copies with replication id ``rid`` to ``ports`` and to one port of each of ``lags``."""

    rid: int
    ports: tuple[int, ...]
    lags: tuple[int, ...] = ()
    group: int | None = None


@dataclass(frozen=True, slots=True)
class MirrorSession:
    """The destination of a session's clones: a port, a multicast group, or both."""

    port: int | None
    group: int | None


@dataclass(slots=True)
class Replication:
    """Groups, nodes, ports of aggregation groups (``lags``), mirror sessions.

    The control plane checks numbers and sorts ports and lags. This class refuses unknown groups,
    nodes and sessions. Every change increments ``generation``.
    """

    generation: Generation
    groups: dict[int, list[int]] = field(default_factory=dict)
    nodes: dict[int, MulticastNode] = field(default_factory=dict)
    lags: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sessions: dict[int, MirrorSession] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    """A heap of the free handles below the greatest handle so far."""

    def replicas(self, group: int) -> tuple[tuple[int, int], ...]:
        """(port, rid) of each copy, in the order in which they leave; none for an unknown group."""
        nodes = (self.nodes[handle] for handle in self.groups.get(group, ()))
        return tuple((port, node.rid) for node in nodes for port in self._ports_of(node))

    def _ports_of(self, node: MulticastNode) -> tuple[int, ...]:
        """A node's ports, then one port of each of its nonempty aggregation groups."""
        aggregated = (self.lags.get(lag, ()) for lag in node.lags)
        return (*node.ports, *(ports[_LAG_HASH % len(ports)] for ports in aggregated if ports))

    def set_lag(self, lag: int, ports: Iterable[int]) -> None:
        """Set the ports of a link aggregation group."""
        self.lags[lag] = tuple(ports)
        self.generation.bump()

    def create_group(self, group: int) -> None:
        self.groups.setdefault(group, [])
        self.generation.bump()

    def destroy_group(self, group: int) -> None:
        """Remove a group; its nodes stay, without a group."""
        self._group(group)
        for handle in self.groups.pop(group):
            self.nodes[handle].group = None
        self.generation.bump()

    def create_node(self, rid: int, ports: Iterable[int], lags: Iterable[int] = ()) -> int:
        """Returns the node's handle, the lowest that is free.

        Ports and lags are distinct and ascending, as the control plane makes them.
        """
        node = MulticastNode(rid, tuple(ports), tuple(lags))
        handle = heapq.heappop(self._free) if self._free else len(self.nodes)
        self.nodes[handle] = node
        self.generation.bump()
        return handle

    def update_node(self, handle: int, ports: Iterable[int], lags: Iterable[int] = ()) -> None:
        """Change the ports and aggregation groups of a node."""
        node = self._node(handle)
        node.ports, node.lags = tuple(ports), tuple(lags)
        self.generation.bump()

    def associate(self, group: int, handle: int) -> None:
        """Put a node at the end of a group."""
        node = self._node(handle)
        members = self._group(group)
        if node.group is not None:
            raise ControlError(f"multicast node {handle} already belongs to group {node.group}")
        members.append(handle)
        node.group = group
        self.generation.bump()

    def dissociate(self, group: int, handle: int) -> None:
        """Take a node out of its group."""
        node = self._node(handle)
        members = self._group(group)
        if node.group != group:
            raise ControlError(f"multicast node {handle} does not belong to group {group}")
        members.remove(handle)
        node.group = None
        self.generation.bump()

    def destroy_node(self, handle: int) -> None:
        """Remove a node, also from its group."""
        node = self._node(handle)
        if node.group is not None:
            self.groups[node.group].remove(handle)
        del self.nodes[handle]
        heapq.heappush(self._free, handle)
        self.generation.bump()

    def set_session(self, session: int, port: int | None, group: int | None) -> None:
        """Set the destination of ``session``'s clones; the group may be created later."""
        self.sessions[session] = MirrorSession(port, group)
        self.generation.bump()

    def delete_session(self, session: int) -> None:
        """Remove ``session``: clones to it are no longer made."""
        self.session(session)
        del self.sessions[session]
        self.generation.bump()

    def session(self, session: int) -> MirrorSession:
        """The destination of ``session``'s clones."""
        if session not in self.sessions:
            known = _listed(self.sessions)
            raise ControlError(f"no mirror session {session}. Sessions: {known}.")
        return self.sessions[session]

    def as_json(self, *, with_lags: bool = True) -> str:
        """Everything but mirror sessions as simple_switch tells it (``bm_mc_get_entries``).

        Each node has one entry of level 2, with its ports and aggregation groups, of its number.
        """
        groups = [{"id": id_, "l1_handles": nodes} for id_, nodes in sorted(self.groups.items())]
        first = [
            {"handle": handle, "rid": node.rid, "l2_handle": handle}
            for handle, node in sorted(self.nodes.items())
        ]
        second: list[dict[str, object]] = [
            {"handle": handle, "ports": list(node.ports)}
            | ({"lags": list(node.lags)} if with_lags else {})
            for handle, node in sorted(self.nodes.items())
        ]
        told: dict[str, object] = {"mgrps": groups, "l1_handles": first, "l2_handles": second}
        if with_lags:
            told["lags"] = [{"id": id_, "ports": list(p)} for id_, p in sorted(self.lags.items())]
        return json.dumps(told, separators=(",", ":"))

    def _group(self, group: int) -> list[int]:
        if group not in self.groups:
            known = _listed(self.groups)
            raise ControlError(f"no multicast group {group}. Groups: {known}.")
        return self.groups[group]

    def _node(self, handle: int) -> MulticastNode:
        if handle not in self.nodes:
            known = _listed(self.nodes)
            raise ControlError(f"no multicast node with handle {handle}. Handles: {known}.")
        return self.nodes[handle]


def _listed(known: Collection[int]) -> str:
    """The first ten, for messages."""
    more = f", ... ({len(known)} in all)" if len(known) > 10 else ""
    return (", ".join(map(str, sorted(known)[:10])) or "none") + more
