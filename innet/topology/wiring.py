"""The shape of a tree of switches: who is below whom."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from innet.core.errors import InputError
from innet.protocol.admission import Job, Member
from innet.topology.plan import EntryFinder, Link, Plan, PlannedHost, Port
from innet.wire import Endpoint

MAX_DEPTH = 8
MAX_SWITCHES = 200  # addresses and switch ports that are kept for them


@dataclass(frozen=True, slots=True)
class Node:
    """A switch with what is below it.

    Attributes:
        name: s1 is the root; then level by level, from left to right.
        index: 0 for the root, in the same order.
        workers: indices of all workers below, in order, without gaps.
        children: the switches right below; empty for a leaf.
    """

    name: str
    index: int
    workers: range
    children: tuple[Node, ...] = ()

    @property
    def mask(self) -> int:
        """The workers below, as bits of the header's bitmap."""
        return sum(1 << worker for worker in self.workers)

    @property
    def own(self) -> tuple[int, ...]:
        """The workers at its own ports: of a leaf all, else those that no child has."""
        theirs = {worker for child in self.children for worker in child.workers}
        return tuple(worker for worker in self.workers if worker not in theirs)

    @property
    def height(self) -> int:
        """Levels of switches below this one."""
        return max((1 + child.height for child in self.children), default=0)

    @property
    def identity(self) -> int:
        """What the switch above calls this one: the index of the first worker below."""
        return self.workers.start

    def descend(self) -> Iterator[Node]:
        """This switch and all below, each before its children."""
        yield self
        for child in self.children:
            yield from child.descend()

    def with_parents(self, parent: Node | None = None) -> Iterator[tuple[Node, Node | None]]:
        """This switch and all below with the one right above each, by index of the switch."""
        pairs = [(self, parent)]
        for node, _ in pairs:
            pairs += [(child, node) for child in node.children]
        yield from sorted(pairs, key=lambda pair: pair[0].index)


def tree_of(workers: int, racks: int | None = None, depth: int | None = None) -> Node:
    """The root of a tree with ``racks`` leaves and ``depth`` levels, as even as can be.

    Args:
        workers: spread over the leaves in order.
        racks: leaves, 1 .. workers; 2 if there are workers for it and the depth allows it.
        depth: levels of switches, 1 .. 8; by default 2. A tree of one level is one switch.

    Raises:
        InputError: more racks than workers, several in one level, or too many switches.
    """
    if depth is None:
        depth = 2
    if not 1 <= depth <= MAX_DEPTH:
        raise InputError(f"a depth of {depth}; a tree has 1 to {MAX_DEPTH} levels.")
    if racks is None:
        racks = min(2, workers) if depth > 1 else 1
    if not 1 <= racks <= workers:
        raise InputError(f"{racks} racks for {workers} workers; give 1 to {workers}.")
    if depth == 1 and racks > 1:
        raise InputError(f"{racks} racks need at least 2 levels; the depth is 1.")
    # From the root downwards, each level grows by the same factor.
    sizes = (
        [math.ceil(racks ** (level / (depth - 1))) for level in range(depth)]
        if racks > 1
        else [1] * depth
    )
    if sum(sizes) > MAX_SWITCHES:
        raise InputError(f"a tree of {sum(sizes)} switches; at most {MAX_SWITCHES} have addresses.")
    below: Sequence[Node] = ()
    first = sum(sizes)
    for size in reversed(sizes):
        first -= size
        level = []
        for position in range(size):
            index = first + position
            if below:
                children = tuple(below[i] for i in _part(len(below), size, position))
                spread = range(children[0].workers.start, children[-1].workers.stop)
            else:
                children, spread = (), _part(workers, size, position)
            level.append(Node(f"s{index + 1}", index, spread, children))
        below = level
    return below[0]


def _part(total: int, parts: int, position: int) -> range:
    """The ``position``-th of ``parts`` nearly equal parts of ``range(total)``."""
    return range(total * position // parts, total * (position + 1) // parts)


# ----------------------------------------------------------------------------
# Cables, addresses and ports of a tree of switches: what programs of several levels share.

UP_PORT = 100  # towards the root; of the root, towards the server if there is one
_FIRST_CHILD_PORT = 101  # switches below; worker w is at port w + 1 of its leaf


class Neighbor(NamedTuple):
    """Who is right below a switch.

    Attributes:
        port: of the switch, where it is.
        node: the switch below; None for a worker.
        worker: the worker; of a switch, the first one below it.
        mask: all workers there, as bits of the header's bitmap.
        endpoint: its addresses.
    """

    port: int
    node: Node | None
    worker: int
    mask: int
    endpoint: Endpoint


def address(node: Node) -> Endpoint:
    """Where a switch listens."""
    return Endpoint.of_switch(node.index)


def below(node: Node, members: Sequence[Member]) -> Iterator[Neighbor]:
    """Who is right below ``node``: its workers, or the switches there."""
    for position, child in enumerate(node.children):
        port = _FIRST_CHILD_PORT + position
        yield Neighbor(port, child, child.identity, child.mask, address(child))
    for worker in node.own:
        member = members[worker]
        yield Neighbor(member.port, None, worker, 1 << worker, member.endpoint)


def members_of(workers: int, first: int = 0) -> list[Member]:
    """Where workers are: host ``first + i``, with its default address, at that port of its leaf."""
    hosts = range(first, first + workers)
    return [Member(host + 1, Endpoint.of_worker(host)) for host in hosts]


def wire(root: Node, members: Sequence[Member]) -> tuple[list[PlannedHost], list[Link]]:
    """The workers, called h1, h2, ... by their ports, and all cables of the tree."""
    hosts: dict[int, PlannedHost] = {}
    links: list[Link] = []
    for node in root.descend():
        for each in below(node, members):
            name = f"h{each.port}" if each.node is None else each.node.name
            if each.node is None:
                host = PlannedHost(name, each.endpoint, address(node), "worker", each.worker)
                hosts[each.worker] = host
            end = Port(name, 0 if each.node is None else UP_PORT)
            links.append(Link(end, Port(node.name, each.port)))
    return [hosts[worker] for worker in sorted(hosts)], links


def shape_of(plan: Plan) -> Node:
    """The tree that ``wire`` made the plan's cables of; the first of its switches is the root."""
    index = {switch.name: number for number, switch in enumerate(plan.switches)}
    racks: dict[str, list[int]] = defaultdict(list)
    for host in plan.workers:
        assert host.worker is not None
        racks[plan.attachment(host).node].append(host.worker)
    children: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for link in plan.links:
        for low, high in (link, (link.b, link.a)):
            if low.port == UP_PORT and {low.node, high.node} <= set(index):
                children[high.node].append((high.port, low.node))

    def node(name: str) -> Node:
        below = tuple(node(child) for _, child in sorted(children[name]))
        workers = [*racks[name], *(worker for child in below for worker in child.workers)]
        return Node(name, index[name], range(min(workers), max(workers) + 1), below)

    return node(plan.switches[0].name)


def next_epoch(
    plan: Plan,
    absent: frozenset[int],
    entries: EntryFinder,
    tables: Sequence[str],
    admissions: Callable[[Node, Node | None, Job], list[str]],
) -> tuple[Plan, dict[str, list[str]]]:
    """See ``Aggregation.next_epoch``: the entries of ``tables`` give way to new ``admissions``.

    Who is absent stays in the multicast groups: results reach a host that does not look at them.
    """
    job = replace(plan.job, epoch=(plan.job.epoch + 1) % 0x10000, absent=absent)
    commands: dict[str, list[str]] = {}
    for node, parent in shape_of(plan).with_parents():
        commands[node.name] = [
            f"table_delete {table} {entry}"
            for table in tables
            for entry in entries(node.name, table)
        ]
        commands[node.name] += admissions(node, parent, job)
    return replace(plan, job=job), commands


def present(mask: int, job: Job) -> int:
    """Those of the workers in ``mask`` that take part in the job's epoch."""
    return mask & sum(1 << worker for worker in job.present)


def delivery(port: int, endpoint: Endpoint) -> str:
    """The command by which what leaves at ``port`` is addressed to ``endpoint``."""
    return (
        f"table_add NetworkEgress.deliver NetworkEgress.address {port} => "
        f"0x{endpoint.mac_bytes.hex()} {endpoint.ip_number} {endpoint.udp_port}"
    )
