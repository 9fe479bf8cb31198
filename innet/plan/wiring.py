"""Cables, addresses and ports of a tree of switches: what programs of several levels share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from innet.plan.aggregation import EntryFinder
from innet.plan.network import Link, Plan, PlannedHost, Port
from innet.plan.shape import Node
from innet.protocol.admission import Job, Member
from innet.wire import Endpoint

UP_PORT = 100  # towards the root; of the root, towards the server if there is one
_FIRST_CHILD_PORT = 101  # switches below; worker w is at port w + 1 of its leaf


class Neighbour(NamedTuple):
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


def below(node: Node, members: Sequence[Member]) -> Iterator[Neighbour]:
    """Who is right below ``node``: its workers, or the switches there."""
    for position, child in enumerate(node.children):
        port = _FIRST_CHILD_PORT + position
        yield Neighbour(port, child, child.identity, child.mask, address(child))
    for worker in node.own:
        member = members[worker]
        yield Neighbour(member.port, None, worker, 1 << worker, member.endpoint)


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
