"""A network of switches in levels, planned: what programs that know several levels share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from innet.core.packets import MAX_PORT
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters
from innet.protocol.admission import Job
from innet.topology.aggregation import Aggregation, Probe, Request, checked, newest
from innet.topology.plan import EntryFinder, Link, Plan, PlannedHost, PlannedSwitch, Port
from innet.topology.sharing import Taken, job_for
from innet.topology.topologies import shape
from innet.topology.wiring import UP_PORT, Node, address, below, delivery, next_epoch, present, wire
from innet.wire import Endpoint, Layout

SERVER = "ps"


def plan_levels(
    program: CompiledProgram,
    request: Request,
    commands: Callable[[Node, Node | None, Job, Taken], tuple[str, ...]],
    *,
    served: bool = False,
) -> Plan:
    """The network that ``request`` asks for.

    Args:
        program: what all switches run.
        request: what is wanted.
        commands: (switch, the one above it, job, what of the network other jobs have) -> what the
            switch is told.
        served: the job has a parameter server behind the root.

    Raises:
        InputError: a number that the program has no room for, or a network that cannot be.
    """
    size, window = checked(program, request)
    network = shape(
        request.topology,
        request.workers,
        racks=request.racks,
        depth=request.depth,
        ports=request.ports,
    )
    root = network.root
    # Above these are the ports that lead to other switches.
    last_port = UP_PORT - 1 if root.children or served else MAX_PORT
    job = job_for(request, size.slots, window, last_port)
    hosts, links = wire(root, job.members)
    if served:
        hosts.append(PlannedHost(SERVER, Endpoint.of_server(), address(root), "server"))
        links.append(Link(Port(SERVER, 0), Port(root.name, UP_PORT)))
    taken = Taken.by(request.beside)
    return Plan(
        aggregation=program.program,
        switches=(
            *(
                PlannedSwitch(node.name, program, commands(node, parent, job, taken))
                for node, parent in root.with_parents()
            ),
            *(PlannedSwitch(name, program, ()) for name in network.spare),
        ),
        hosts=tuple(hosts),
        links=(*links, *network.cables),
        job=job,
        layout=Layout(size.values, request.framing),
    )


def with_defaults(request: Request, *, window: int, depth: int) -> Request:
    """``request`` with these where it leaves the choice to the program."""
    if request.window is None:
        request = replace(request, window=window)
    if request.depth is None and request.topology is None:
        request = replace(request, depth=depth)
    return request


# ----------------------------------------------------------------------------
# Hierarchical aggregation: a tree of switches, the workers below its leaves.

_FAMILY = "TreeIngress.family"
_SUBTREE = "TreeIngress.subtree"
_TABLES = (f"{_FAMILY}.admission", f"{_FAMILY}.position")


class Tree(Aggregation):
    """Worker i is host h(i+1), at port i+1 of its leaf; s1 is the root. A second job's follow."""

    has_epochs = True
    has_partials = True
    shares = True

    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """See ``Aggregation``. By default there are two levels and two racks."""
        return plan_levels(program, request, commands)

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """See ``Aggregation``."""
        return next_epoch(plan, absent, entries, _TABLES, admissions)

    def slot_reader(self, plan: Plan, probe: Probe) -> SlotReader:
        """See ``Aggregation``. Who is in the newest chunk at any switch counts as in."""
        base = plan.job.slot_base

        def reader(slot: int, slot_version: int) -> SlotRegisters:
            index = (base | slot) << 1 | slot_version
            return newest(
                SlotRegisters(
                    probe.register(switch.name, f"{_SUBTREE}.sequence", index),
                    probe.register(switch.name, f"{_SUBTREE}.bitmap", index),
                )
                for switch in plan.switches
            )

        return reader


def commands(node: Node, parent: Node | None, job: Job, taken: Taken) -> tuple[str, ...]:
    """What a switch of the tree is told, in the dialect of simple_switch_CLI.

    Args:
        node: the switch.
        parent: the one above.
        job: whose tree it is.
        taken: what jobs that it serves already have told it.
    """
    lines = [f"mc_mgrp_create {job.group}"]
    first = taken.nodes.get(node.name, 0)
    for number, each in enumerate(below(node, job.members), start=first):
        if Port(node.name, each.port) not in taken.ports:
            lines.append(delivery(each.port, each.endpoint))
        lines += [
            f"mc_node_create {each.worker} {each.port}",
            f"mc_node_associate {job.group} {number}",
        ]
    if parent is not None and Port(node.name, UP_PORT) not in taken.ports:
        lines.append(delivery(UP_PORT, address(parent)))
    return (*lines, *admissions(node, parent, job))


def admissions(node: Node, parent: Node | None, job: Job) -> list[str]:
    """The part of it that is the epoch's: who may speak, and who must."""
    spoken = f"{job.number} {job.epoch}"
    lines = []
    for each in below(node, job.members):
        mask = present(each.mask, job)
        action = "below" if each.node else "worker"
        if mask:
            lines.append(
                f"table_add {_FAMILY}.admission {_FAMILY}.{action} {each.port} {spoken} "
                f"{each.worker} => {mask}"
            )
    members = present(node.mask, job)
    height = min(node.height, 3)
    place = f"{spoken} => {members} {job.group} {job.slot_base} {job.slots - 1} {height}"
    if parent is None:
        lines.append(f"table_add {_FAMILY}.position {_FAMILY}.root {place}")
    elif members:
        lines += [
            f"table_add {_FAMILY}.admission {_FAMILY}.parent {UP_PORT} {spoken} {node.identity} =>",
            f"table_add {_FAMILY}.position {_FAMILY}.inner {place} {UP_PORT} {node.identity}",
        ]
    return lines
