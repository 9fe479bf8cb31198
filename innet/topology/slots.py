"""The slot pool on one switch: all workers at its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from innet.core.errors import InputError
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters
from innet.protocol.admission import Job
from innet.topology.aggregation import Aggregation, Probe, Request, checked, job_for
from innet.topology.plan import (
    EntryFinder,
    Plan,
    PlannedHost,
    PlannedLink,
    PlannedSwitch,
    Port,
    UsedResources,
)
from innet.topology.shapes.star import Star
from innet.topology.topologies import topology_of
from innet.wire import Endpoint, PacketLayout

SWITCH = "s1"
_CHUNK = "SlotsIngress.pool.chunk"  # a register
_WORD = 0xFFFFFFFF  # the low one of the pair that a cell is of it


class SlotsAggregation(Aggregation):
    """Worker i is host h(i+1), at port i+1 of switch s1; those of a second job follow."""

    has_epochs = True
    has_partials = True
    shares = True
    sequences = MappingProxyType({"slots": _CHUNK})

    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """See ``Aggregation``; there is one rack and one level."""
        one_switch = isinstance(topology_of(request.topology), Star)
        given = {
            "topology": None if one_switch else request.topology,
            "racks": request.racks,
            "depth": request.depth,
            "ports": request.ports,
        }
        for name, value in given.items():
            if value not in (None, 1):
                raise InputError(
                    f"{name} is {value}; {program.program} knows one switch only. "
                    "Leave it out, or choose a program for several, such as tree."
                )
        size, window = checked(program, request)
        job = job_for(request, size.slots, window)
        hosts = [
            PlannedHost(f"h{member.port}", member.endpoint, Endpoint.of_switch(), "worker", i)
            for i, member in enumerate(job.members)
        ]
        used = UsedResources.by(request.existing_jobs)
        commands = job.commands(used.nodes.get(SWITCH, 0))
        return Plan(
            aggregation=program.program,
            switches=(PlannedSwitch(SWITCH, program, tuple(commands)),),
            hosts=tuple(hosts),
            links=tuple(
                PlannedLink(Port(host.name, 0), Port(SWITCH, member.port))
                for host, member in zip(hosts, job.members, strict=True)
            ),
            job=job,
            layout=PacketLayout(
                size.values,
                request.framing,
                has_owners=program.has_owners,
                adds_floats=program.adds_floats,
            ),
        )

    def placed(self, network: Plan, hosts: Sequence[int], job: Job) -> Plan:
        """See ``Aggregation``."""
        job = replace(job, members=tuple(network.job.members[host] for host in hosts))
        (switch,) = network.switches
        commands = tuple(job.commands(new_ports=False))
        return replace(
            network.at_hosts(hosts), switches=(replace(switch, commands=commands),), job=job
        )

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """See ``Aggregation``."""
        (switch,) = plan.switches
        first_node = plan.job.members[0].port - 1  # each worker has one, in the order of the ports
        job, commands = plan.job.next_epoch(entries(switch.name, "admission"), absent, first_node)
        return replace(plan, job=job), {switch.name: commands}

    def slot_reader(self, plan: Plan, probe: Probe) -> SlotReader:
        """See ``Aggregation``."""
        switch = plan.switches[0].name
        base = plan.job.slot_base

        def reader(slot: int, slot_version: int) -> SlotRegisters:
            index = (base | slot) << 1 | slot_version
            return SlotRegisters(
                sequence=probe.register(switch, _CHUNK, index) & _WORD,
                bitmap=probe.register(switch, "SlotsIngress.pool.worker_bitmap", index) & _WORD,
            )

        return reader
