"""Hierarchical aggregation: a tree of switches, the workers below its leaves."""

from __future__ import annotations

from innet.plan.aggregation import Aggregation, EntryFinder, Probe, Request, newest
from innet.plan.levels import plan_levels
from innet.plan.network import Plan, Port
from innet.plan.shape import Node
from innet.plan.sharing import Taken
from innet.plan.wiring import UP_PORT, address, below, delivery, next_epoch, present
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters
from innet.protocol.admission import Job

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
