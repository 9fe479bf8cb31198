"""Hashed aggregators: switches in one or more levels, and a parameter server behind the root."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from innet.core.errors import InputError
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters, Timing
from innet.protocol.admission import Job
from innet.protocol.parameter_server import ALL_WORKERS, ParameterServer
from innet.protocol.slot_client import HashedClient
from innet.topology.aggregation import Aggregation, Probe, Request, newest
from innet.topology.plan import EntryFinder, Plan, PlannedHost, Port, UsedResources
from innet.topology.topologies import TreeNode
from innet.topology.tree import (
    WayUp,
    address,
    below,
    delivery,
    next_epoch,
    plan_levels,
    server_address,
    server_port,
    with_defaults,
)

_ADMISSION = "HashedIngress.admission"
_FORWARDING = "HashedIngress.result_forwarding"
_AGGREGATORS = "HashedIngress.aggregators"
_TABLES = (
    f"{_ADMISSION}.worker_admission",
    f"{_ADMISSION}.switch_admission",
    f"{_ADMISSION}.position",
    f"{_FORWARDING}.route",
)


class HashedAggregation(Aggregation):
    """Worker i is host h(i+1), at its rack's switch; s1 has the server, host ps."""

    has_epochs = True
    has_partials = True
    shares = True
    partitioned = False

    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """See ``Aggregation``. By default there is one switch; with racks there are two levels.

        The default window is a quarter of the aggregators. As CRC-32 is linear, hardly any two
        of these consecutive chunks have the same aggregator.
        """
        if not request.job:
            raise InputError("the job's number is 0, which marks a free aggregator; give another.")
        request = with_defaults(
            request,
            window=program.dimensions().slots // 2,
            depth=1 if request.racks in (None, 1) else 2,
        )
        return plan_levels(program, request, commands, served=True, partitioned=False)

    def worker_end(
        self, plan: Plan, host: PlannedHost, timing: Timing | None = None
    ) -> HashedClient:
        """See ``Aggregation``."""
        return HashedClient(
            plan.layout,
            plan.membership(host),
            source=host.endpoint,
            switch=host.peer,
            timing=timing,
        )

    def server_end(self, plan: Plan, host: PlannedHost) -> ParameterServer:
        """See ``Aggregation``."""
        job = plan.job
        return ParameterServer(
            plan.layout,
            workers=len(job.members),
            job=job.number,
            epoch=job.epoch,
            window=job.slots,
            absent=job.absent,
            priority=job.priority,
            source=host.endpoint,
            switch=host.peer,
        )

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """See ``Aggregation``."""
        server = next(host.name for host in plan.hosts if host.role == "server")
        (port,) = (link.b.port for link in plan.links if link.a.node == server)
        return next_epoch(plan, absent, entries, _TABLES, partial(admissions, server=port))

    def slot_reader(self, plan: Plan, probe: Probe) -> SlotReader:
        """See ``Aggregation``. A worker is present if the server or an aggregator has it."""
        job = plan.job
        owner = job.number << 16 | job.epoch
        size = 2 * plan.switches[0].program.dimensions().slots

        def reader(slot: int, slot_version: int) -> SlotRegisters:
            found = [
                server.registers(slot, slot_version)
                for server in probe.servers.values()
                if isinstance(server, ParameterServer)
            ]
            for switch in plan.switches:
                for index in range(size):  # a hash leads to an aggregator, but not back
                    key = probe.register(switch.name, f"{_AGGREGATORS}.key", index)
                    chunk = (key - 1) & 0xFFFF_FFFF
                    position = (chunk % job.slots, chunk // job.slots & 1)
                    if key >> 32 == owner and position == (slot, slot_version):
                        bitmap = probe.register(switch.name, f"{_AGGREGATORS}.bitmap", index)
                        found.append(SlotRegisters(key & 0xFFFF_FFFF, bitmap))
            return newest(found)

        return reader


def commands(
    node: TreeNode, ways: Sequence[WayUp], job: Job, used: UsedResources
) -> tuple[str, ...]:
    """The commands for a switch, in simple_switch_CLI's language; see ``tree.commands``."""
    lines = [f"mc_mgrp_create {job.group}"]
    first = used.nodes.get(node.name, 0)
    for number, each in enumerate(below(node, job.members), start=first):
        name = each.worker if each.node is None else ALL_WORKERS
        if Port(node.name, each.port) not in used.ports:
            lines.append(delivery(each.port, each.endpoint))
        lines += [
            f"mc_node_create {name} {each.port}",
            f"mc_node_associate {job.group} {number}",
        ]
    server = server_port(node, used)
    if not ways:
        lines.append(delivery(server, server_address(job, used)))
    elif Port(node.name, ways[0].port) not in used.ports:
        lines.append(delivery(ways[0].port, address(ways[0].parent)))
    return (*lines, *admissions(node, ways, job, server))


def admissions(node: TreeNode, ways: Sequence[WayUp], job: Job, server: int) -> list[str]:
    """The commands of an epoch: which workers are admitted, and which are required.

    Args:
        node: the switch.
        ways: what leads up from it; nothing from the root.
        job: the job.
        server: the root's port to the job's server.
    """
    up_port = ways[0].port if ways else server
    spoken = f"{job.number} {job.epoch}"
    lines = []
    for each in below(node, job.members):
        there = [worker for worker in each.workers if worker not in job.absent]
        bitmap = sum(1 << worker for worker in there)
        if each.node is not None:
            who = f"switch_admission {_ADMISSION}.admit_switch {each.port} {spoken}"
        else:
            who = f"worker_admission {_ADMISSION}.admit_worker {each.port} {spoken} {each.worker}"
        if there:
            lines.append(f"table_add {_ADMISSION}.{who} => {bitmap}")
        lines += [
            f"table_add {_FORWARDING}.route {_FORWARDING}.forward {spoken} {worker} => {each.port}"
            for worker in there
        ]
    full_bitmap = node.mask & job.bitmap
    return [
        *lines,
        f"table_add {_ADMISSION}.switch_admission {_ADMISSION}.admit_parent {up_port} {spoken} =>",
        f"table_add {_ADMISSION}.position {_ADMISSION}.set_position {spoken} => {full_bitmap} "
        f"{job.group} {up_port} {2 * job.slots}",
    ]
