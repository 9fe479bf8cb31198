"""Trees of switches of a service, one for each job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from innet.core.engines import EngineName
from innet.core.packets import PacketBatch
from innet.protocol import SlotReader
from innet.service.hosted_switch import ServiceCounts, Spread
from innet.service.slot_partition import SlotPartitions
from innet.switch import Switch, load_text
from innet.switch.engine import cell_value
from innet.switch.inline import InlineSwitch
from innet.topology import Plan, Probe, aggregation_of
from innet.transport.memory import NetworkTransport, SwitchPort


@dataclass(slots=True)
class _Tree:
    """The switches of a job, joined in memory."""

    plan: Plan
    switches: dict[str, Switch]
    transport: NetworkTransport


class HostedTrees:
    """Runs the program on a tree of switches for each job, as large as the job needs.

    The switches are joined in this process, and packets between them take no time.

    Args:
        partitions: how many jobs, of how many workers.
        engine: "jit" or "interpret".

    Attributes:
        begun: when the switches' clocks began, by ``time.monotonic``.
    """

    def __init__(self, partitions: SlotPartitions, engine: EngineName = "jit") -> None:
        self.partitions = partitions
        self.begun = time.monotonic()
        self._engine = engine
        self._program = load_text(partitions.program.text())
        self._trees: dict[int, _Tree] = {}
        ready = Switch(self._program, engine)  # compiled now, not when a packet waits
        ready.process_batch(PacketBatch.empty())
        self._ended = np.zeros_like(ready.counters["dropped"].packets)
        self._packets = np.zeros(2, np.int64)

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> InlineSwitch | None:
        """None: which switch a packet goes to is decided in Python."""
        del packets, beside
        return None

    def spread(self, head: bytes, size: int) -> Spread:
        """See ``Hosted``."""
        del head, size
        return Spread("each job has switches of its own, and Python joins them")

    def begin(self, partition: int, plan: Plan) -> None:
        """See ``Hosted``. The switches of a job stay the same over its epochs."""
        tree = self._trees.get(partition)
        aggregation = aggregation_of(plan.aggregation)
        if (
            tree is None
            or tree.plan.job.number != plan.job.number
            or len(tree.plan.job.members) != len(plan.job.members)
        ):
            self.end(partition)
            self._trees[partition] = self._build(plan)
            return
        switches = tree.switches
        tree.plan, commands = aggregation.next_epoch(
            tree.plan,
            plan.job.absent,
            lambda switch, table: [each.handle for each in switches[switch].table_entries(table)],
        )
        assert tree.plan.job.epoch == plan.job.epoch  # one by one
        for name, lines in commands.items():
            switches[name].commands("\n".join(lines))

    def _build(self, plan: Plan) -> _Tree:
        switches = {planned.name: Switch(self._program, self._engine) for planned in plan.switches}
        for planned in plan.switches:
            switches[planned.name].commands("\n".join(planned.commands))
        transport = NetworkTransport(
            {name: switch.process_batch for name, switch in switches.items()},
            {number: SwitchPort(*port) for number, port in plan.attachments().items()},
            [(SwitchPort(*link.a), SwitchPort(*link.b)) for link in plan.trunks()],
        )
        return _Tree(plan, switches, transport)

    def end(self, partition: int) -> None:
        """See ``Hosted``."""
        tree = self._trees.pop(partition, None)
        if tree is not None:
            self._ended += _dropped(tree)

    def process(self, packets: PacketBatch) -> PacketBatch:
        """See ``Hosted``. Packets to a partition without a job are lost."""
        clock = int((time.monotonic() - self.begun) * 1e6)
        leaving = []
        partition, worker = np.divmod(packets.port - 1, self.partitions.workers)
        for number, tree in self._trees.items():
            rows = partition == number
            if not rows.any():
                continue
            for switch in tree.switches.values():
                switch.state.clock = clock
            there = packets if rows.all() else packets.take(rows)
            hosts = (worker if rows.all() else worker[rows]).astype(np.int32) + 1
            tree.transport.send(PacketBatch(there.data, there.length, hosts), 0.0)
            out = tree.transport.receive(0.0)
            port = out.port - 1 + self.partitions.port(number, 0)
            leaving.append(PacketBatch(out.data, out.length, port.astype(np.int32)))
            self._packets += len(there), len(out)
        return PacketBatch.concatenate(leaving) if leaving else PacketBatch.empty()

    def read_register(self, partition: int, switch: str, name: str, index: int) -> int | None:
        """See ``Hosted``."""
        tree = self._trees.get(partition)
        if tree is None or switch not in tree.switches:
            return None
        registers = tree.switches[switch].registers
        if name not in set(registers):
            return None
        cells = registers[name]
        return cell_value(cells, index) if 0 <= index < len(cells) else None

    def reader(self, partition: int, plan: Plan) -> SlotReader:
        """See ``Hosted``."""
        switches = self._trees[partition].switches
        cells = cache(lambda switch, name: switches[switch].registers[name])
        probe = Probe(lambda switch, name, index: cell_value(cells(switch, name), index))
        return aggregation_of(plan.aggregation).slot_reader(plan, probe)

    def late_workers(self, partition: int) -> frozenset[int]:
        """See ``Hosted``."""
        tree = self._trees.get(partition)
        if tree is None:
            return frozenset()

        def read(switch: str, register: str) -> Sequence[int]:
            cells: Sequence[int] = tree.switches[switch].registers[register].tolist()
            return cells

        return aggregation_of(tree.plan.aggregation).late_workers(tree.plan, read)

    def counts(self) -> ServiceCounts:
        """See ``Hosted``."""
        dropped = self._ended.copy()
        for tree in self._trees.values():
            dropped += _dropped(tree)
        return ServiceCounts(int(self._packets[0]), int(self._packets[1]), dropped)


def _dropped(tree: _Tree) -> NDArray[np.uint64]:
    total: NDArray[np.uint64] = np.sum(
        [switch.counters["dropped"].packets for switch in tree.switches.values()], axis=0
    )
    return total
