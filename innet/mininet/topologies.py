"""Mininet topologies from innet's plans: hosts, switches and links."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import InputError, UnknownNameError
from innet.core.settings import SwitchKind, default_program
from innet.mininet.debian import Topo
from innet.mininet.nodes import Bmv2Switch, BuiltinSwitch, P4Host, P4Switch
from innet.programs import CompiledProgram
from innet.topology import TOPOLOGIES, Plan, Request, SharedPlan, plan_jobs, topology_of
from innet.wire import ETHERNET_HEADER

SWITCHES: Mapping[str, type[P4Switch]] = {"builtin": BuiltinSwitch, "bmv2": Bmv2Switch}

_UNDER_WAY = 100_000  # packets that a link with a delay can queue
_ETHERNET = 1500  # bytes after the Ethernet header: standard, and the usual size of jumbo frames
_JUMBO = 9000
_ADDED = 512  # bytes by which simple_switch can make a packet longer
_PREFIX = 15  # of the network with all hosts and switches: 10.0.0.0/15


@dataclass(frozen=True, slots=True)
class Links:
    """Properties of all links, in the units of Mininet's TCLink; None for no limit.

    Attributes:
        rate: Mbit/s.
        delay: such as "1ms", one way; needs netem.
        loss: per cent, one way; needs netem.
        queue: packets that a switch's port holds; needs a rate. See ``LimitedInterface``.
    """

    rate: float | None = None
    delay: str | None = None
    loss: float | None = None
    queue: int | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of TCLink; empty if a plain link is enough."""
        # TBF rather than HTB: its kernel module is the more common one.
        rate = {} if self.rate is None else {"bw": self.rate, "use_tbf": True}
        # netem queues delayed packets; by default it drops those beyond a thousand.
        under_way = None if self.delay is None else _UNDER_WAY
        others = {"delay": self.delay, "loss": self.loss, "max_queue_size": under_way}
        others["queue"] = self.queue
        return rate | {name: value for name, value in others.items() if value is not None}


class PlanTopo(Topo):
    """The network of a plan: its hosts and switches under their names, and their links."""

    def build(self, plan: Plan | SharedPlan, **options: Any) -> None:
        """Called by Mininet's ``Topo`` with the arguments of ``add_plan``."""
        add_plan(self, plan, **options)


def _topo(name: str) -> type[Any]:
    """The ``Topo`` of a registered topology, for ``mn --topo``."""

    def build(
        self: Any, *numbers: int, values: int = 64, switch: SwitchKind = "builtin", **named: int
    ) -> None:
        """Called by Mininet's ``Topo``, with the numbers that follow the name."""
        topology = topology_of(name)
        given = dict(zip(topology.arguments, numbers, strict=False)) | named
        if len(numbers) > len(topology.arguments) or given.keys() - {*topology.arguments}:
            raise InputError(f"innet's {name} takes {', '.join(topology.arguments)} of integers.")
        jobs = given.pop("jobs", topology.jobs)
        workers = given.pop("workers", None)
        number = topology.workers(**given) if workers is None else workers
        request = Request(
            workers=number,
            topology=":".join(
                [name, *filter(None, [",".join(f"{key}={it}" for key, it in given.items())])]
            ),
        )
        add_plan(
            self, plan_jobs(default_program(name, number), values, request, jobs), switch=switch
        )

    title = "Innet" + name.title().replace("-", "")
    text = f"``mn --topo {_topo_name(name)},...``: see ``innet.topology.Topology.arguments``."
    return type(title, (Topo,), {"build": build, "__doc__": text})


def _topo_name(name: str) -> str:
    return "innet_" + name.replace("-", "")


TOPOS: Mapping[str, type[Any]] = {_topo_name(name): _topo(name) for name in TOPOLOGIES}
"""All registered topologies, by their names in ``mn --topo``."""


def add_plan(
    topo: Any,
    plan: Plan | SharedPlan,
    *,
    switch: SwitchKind = "builtin",
    switch_options: Mapping[str, Any] | None = None,
    links: Links | None = None,
    folder: Path | None = None,
) -> None:
    """Add a plan's nodes and links to a Mininet ``Topo``.

    Args:
        topo: the Mininet topology.
        plan: innet's plan.
        switch: the kind of all switches.
        switch_options: arguments for all of them.
        links: properties of all links.
        folder: for programs, logs and sockets; by default a temporary one while this
            process runs.

    Raises:
        UnknownNameError: the kind of switch is unknown.
        InputError: simple_switch cannot make packets as long as a program does.
    """
    if switch not in SWITCHES:
        raise UnknownNameError("kind of switch", switch, SWITCHES)
    if switch == "bmv2":
        _check_growth(plan)
    topo.plan = SharedPlan(plan.jobs)
    if folder is None:  # Mininet does not remove it
        folder = Path(tempfile.mkdtemp(prefix="innet-mn-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    mtu = _mtu(topo.plan)
    for host in plan.hosts:
        topo.addHost(
            host.name,
            cls=P4Host,
            ip=f"{host.endpoint.ip}/{_PREFIX}",
            mac=host.endpoint.mac,
            neighbors={host.peer.ip: host.peer.mac},  # it sends to no other host
            mtu=mtu,
        )
    for number, each in enumerate(plan.switches, start=1):
        options = dict(switch_options or {})
        if switch == "bmv2":
            options.setdefault("device_id", number)
        topo.addSwitch(
            each.name,
            cls=SWITCHES[switch],
            program=write_program(each.program, folder),
            commands=each.commands,
            folder=folder,
            mtu=mtu,
            **options,
        )
    options = (links or Links()).options()
    for a, b in plan.links:
        topo.addLink(a.node, b.node, port1=a.port, port2=b.port, **options)


def _check_growth(plan: Plan | SharedPlan) -> None:
    """Raise InputError where simple_switch cannot add all values to a packet without."""
    for each in plan.switches:
        added = 4 * each.program.parameters["VALUES"] if each.program.has_owners else 0
        if added > _ADDED:
            raise InputError(
                f"simple_switch ends where a packet grows by more than {_ADDED} bytes, and results "
                f"of {each.program.name} are up to {added:,} bytes longer than the packet "
                "that they answer; take 64 values per packet, or the switch builtin."
            )


def _mtu(plan: SharedPlan) -> int | None:
    """The MTU of links, if the plan's frames need more than the default."""
    longest = max(job.layout.frame_size for job in plan.jobs) - ETHERNET_HEADER.itemsize
    return _JUMBO if longest > _ETHERNET else None


def write_program(program: CompiledProgram, folder: Path) -> Path:
    """Write the program to ``folder`` as plain JSON, which both kinds of switch read."""
    path = folder / f"{program.name}.json"
    if not path.exists():
        path.write_text(json.dumps(program.json()), encoding="utf-8")
    return path
