"""Cables, addresses and ports of a tree of switches: what programs of several levels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from innet.plan.aggregation import EntryFinder
from innet.plan.network import Link, Plan, PlannedHost, Port
from innet.plan.shape import Node, tree_of
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
    for worker in () if node.children else node.workers:
        member = members[worker]
        yield Neighbour(member.port, None, worker, 1 << worker, member.endpoint)


def members_of(workers: int) -> list[Member]:
    """Worker i with its default address, at port i + 1 of its leaf."""
    return [Member(worker + 1, Endpoint.of_worker(worker)) for worker in range(workers)]


def wire(root: Node, members: Sequence[Member]) -> tuple[list[PlannedHost], list[Link]]:
    """The workers, called h1, h2, ... by index, and all cables of the tree."""
    hosts: dict[int, PlannedHost] = {}
    links: list[Link] = []
    for node in root.descend():
        for each in below(node, members):
            name = f"h{each.worker + 1}" if each.node is None else each.node.name
            if each.node is None:
                host = PlannedHost(name, each.endpoint, address(node), "worker", each.worker)
                hosts[each.worker] = host
            end = Port(name, 0 if each.node is None else UP_PORT)
            links.append(Link(end, Port(node.name, each.port)))
    return [hosts[worker] for worker in sorted(hosts)], links


def shape_of(plan: Plan) -> Node:
    """The tree that ``wire`` made the plan's cables of."""
    where = {a: b for link in plan.links for a, b in (link, (link.b, link.a))}
    racks = {plan.attachment(host).node for host in plan.workers}
    switches = {switch.name for switch in plan.switches}
    depth, node = 1, min(racks)
    while (above := where.get(Port(node, UP_PORT))) is not None and above.node in switches:
        depth, node = depth + 1, above.node
    return tree_of(len(plan.workers), len(racks), depth)


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
