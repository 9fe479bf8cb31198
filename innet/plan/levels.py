"""A network of switches in levels, planned: what programs that know several levels share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from innet.plan.aggregation import Request, checked
from innet.plan.network import Link, Plan, PlannedHost, PlannedSwitch, Port
from innet.plan.shape import Node
from innet.plan.sharing import Taken, job_for
from innet.plan.topologies import shape
from innet.plan.wiring import UP_PORT, address, wire
from innet.programs import CompiledProgram
from innet.protocol.admission import MAX_PORT, Job
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
