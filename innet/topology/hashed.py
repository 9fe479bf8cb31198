"""Hashed aggregators: switches in one or more levels, and a parameter server behind the root."""

from __future__ import annotations

from innet.core.errors import InputError
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters, Timing
from innet.protocol.admission import Job
from innet.protocol.parameter_server import ALL_WORKERS, ParameterServer
from innet.protocol.slot_client import HashedClient
from innet.topology.aggregation import Aggregation, Probe, Request, newest
from innet.topology.plan import EntryFinder, Plan, PlannedHost, UsedResources
from innet.topology.topologies import Node
from innet.topology.tree import (
    UP_PORT,
    address,
    below,
    delivery,
    next_epoch,
    plan_levels,
    with_defaults,
)
from innet.wire import Endpoint

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

    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """See ``Aggregation``. By default there is one switch; with racks there are two levels.

        The default window is a quarter of the aggregators. As CRC-32 is linear, hardly any two of
        so many consecutive chunks have the same aggregator.
        """
        if not request.job:
            raise InputError("the job's number is 0, which marks a free aggregator; give another.")
        request = with_defaults(
            request,
            window=program.dimensions().slots // 2,
            depth=1 if request.racks in (None, 1) else 2,
        )
        return plan_levels(program, request, commands, served=True)

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
            source=host.endpoint,
            switch=host.peer,
        )

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """See ``Aggregation``."""
        return next_epoch(plan, absent, entries, _TABLES, admissions)

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


def commands(node: Node, parent: Node | None, job: Job, used: UsedResources) -> tuple[str, ...]:
    """The commands for a switch, in simple_switch_CLI's language."""
    del used  # there is one job
    lines = [f"mc_mgrp_create {job.group}"]
    for number, each in enumerate(below(node, job.members)):
        name = each.worker if each.node is None else ALL_WORKERS
        lines += [
            delivery(each.port, each.endpoint),
            f"mc_node_create {name} {each.port}",
            f"mc_node_associate {job.group} {number}",
        ]
    lines.append(delivery(UP_PORT, Endpoint.of_server() if parent is None else address(parent)))
    return (*lines, *admissions(node, parent, job))


def admissions(node: Node, parent: Node | None, job: Job) -> list[str]:
    """The commands of an epoch: which workers are admitted, and which are required."""
    del parent  # results come from port UP_PORT, whoever is there
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
        f"table_add {_ADMISSION}.switch_admission {_ADMISSION}.admit_parent {UP_PORT} {spoken} =>",
        f"table_add {_ADMISSION}.position {_ADMISSION}.set_position {spoken} => {full_bitmap} "
        f"{job.group} {UP_PORT} {2 * job.slots}",
    ]
