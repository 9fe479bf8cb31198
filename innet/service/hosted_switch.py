"""The switches of a service and the jobs that are admitted to them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from innet.core.engines import EngineName
from innet.core.packets import PacketBatch
from innet.protocol import SlotReader
from innet.protocol.admission import Job
from innet.service.slot_partition import SlotPartitions
from innet.switch import Switch, load_text
from innet.switch.engine import cell_value
from innet.switch.inline import InlineSwitch
from innet.switch.sharding import Sharding, offset_in, sharding_of
from innet.topology import Plan, Probe, aggregation_of

_TABLE = "admission"


class Hosted(Protocol):
    """What a service needs of its switches."""

    begun: float

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> InlineSwitch | None:
        """The program for compiled callers; None if packets have to go through ``process``.

        ``beside``: for one more thread, as in ``Switch.inline``.
        """

    def spread(self, head: bytes, size: int) -> Spread:
        """How packets of at least ``size`` bytes that begin with ``head`` spread over threads."""

    def begin(self, partition: int, plan: Plan) -> None:
        """Admit exactly this job and epoch to its partition."""

    def end(self, partition: int) -> None:
        """Admit no workers at this partition."""

    def process(self, packets: PacketBatch) -> PacketBatch:
        """Run packets that workers sent through the program; returns those for workers, by port."""

    def read_register(self, partition: int, switch: str, name: str, index: int) -> int | None:
        """The value of a cell; None if there is no such switch, register or cell."""

    def reader(self, partition: int, plan: Plan) -> SlotReader:
        """Reads the slots of a job; see ``innet.protocol.SlotReader``."""

    def late_workers(self, partition: int) -> frozenset[int]:
        """Workers that results of the job lack, if results do not name them themselves."""

    def counts(self) -> ServiceCounts:
        """Packets since the start."""


class Spread(NamedTuple):
    """Which packets may be run side by side: those that differ in some bits of a byte.

    Attributes:
        reason: why none may, as the end of a sentence; empty if some may.
        bit: where the byte begins in a packet.
        shift: by how many bits it is shifted to the right.
        mask: which of the bits that are left count.
        field: the name of the field that they are of.
    """

    reason: str
    bit: int = 0
    shift: int = 0
    mask: int = 0
    field: str = ""


class ServiceCounts(NamedTuple):
    """Packets since the start of a service.

    Attributes:
        packets_in, packets_out: from workers, and to them.
        dropped: by reason, as the program numbers them.
    """

    packets_in: int
    packets_out: int
    dropped: NDArray[np.uint64]


class HostedSwitch:
    """One switch: runs the program, and admits jobs to its partitions.

    Args:
        partitions: how the switch is divided.
        engine: "jit" or "interpret".

    Attributes:
        switch: the built-in switch.
        begun: when its clock began, by ``time.monotonic``.
    """

    def __init__(self, partitions: SlotPartitions, engine: EngineName = "jit") -> None:
        self.partitions = partitions
        self.switch = Switch(load_text(partitions.program.text()), engine)
        self.begun = time.monotonic()
        copies = 2 * partitions.program.dimensions().slots
        registers = self.switch.registers
        self._names = set(registers)
        # If packets carry their values in parts, the cells of the parts follow each other.
        self._slot_registers = [
            cells.reshape(-1, copies, *cells.shape[1:])
            for cells in registers.values()
            if len(cells) % copies == 0
        ]
        self._sharding, self._spread_bits = Sharding(), 0
        self._entries: dict[int, list[int]] = {}
        self._jobs: dict[int, Job] = {}
        for partition in range(partitions.jobs):
            job = self._jobs[partition] = partitions.job(partition)
            self.switch.commands(
                "\n".join(job.commands(self._first_node(partition), new_ports=False))
            )
            self.switch.table_clear(_TABLE)  # ports and group exist, but no worker is admitted yet
        self.switch.process_batch(PacketBatch.empty())  # made ready now, not when a packet waits

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> InlineSwitch | None:
        """See ``Hosted``."""
        return self.switch.inline(packets, beside=beside)

    def spread(self, head: bytes, size: int) -> Spread:
        """See ``Hosted``. Some slots side by side go to one thread, as they share cache lines."""
        if self.switch.engine_name != "jit":
            return Spread("the interpreter runs packets")
        program = self.switch.program
        found = self._sharding = sharding_of(program)
        if found.reason:
            return Spread(found.reason)
        if found.field is None:
            return Spread("no state tells packets apart")
        name, width = program.name_of(found.field), program.field(found.field).width
        at = offset_in(program, found.field, head, size)
        if at is None or (at + width) % 8 or width < 8:
            return Spread(f"field {name} is not at one place in all packets")
        # A job has a power of two of slots, and the bits above are its part of the pool.
        inside = min(self.partitions.slots, 256) - 1
        bits = sum(1 << bit for bit in found.bits) & inside
        shift = min(4, max(0, bits.bit_length() - 4))
        self._spread_bits = bits >> shift << shift
        return Spread("", at + width - 8, shift, bits >> shift, name)

    def begin(self, partition: int, plan: Plan) -> None:
        """Admit exactly this job and epoch to its partition; clear its slots."""
        job = plan.job
        nobody = range(len(job.members), self.partitions.workers)
        before = replace(
            self._jobs[partition],
            number=job.number,
            epoch=(job.epoch - 1) % 0x10000,
            slots=job.slots,
        )
        self._jobs[partition], commands = before.next_epoch(
            self._entries.pop(partition, []), job.absent.union(nobody), self._first_node(partition)
        )
        self.switch.commands("\n".join(commands))
        table = self._sharding.broken_by(self.switch.state, self._spread_bits)
        assert table is None, f"an entry of {table} lets slots of several threads share cells"
        others = {handle for handles in self._entries.values() for handle in handles}
        there = [entry.handle for entry in self.switch.table_entries(_TABLE)]
        for cells in self._slot_registers:
            cells[
                :,
                2 * partition * self.partitions.slots : 2 * (partition + 1) * self.partitions.slots,
            ] = 0
        self._entries[partition] = [handle for handle in there if handle not in others]

    def end(self, partition: int) -> None:
        """Admit no workers at this partition."""
        for handle in self._entries.pop(partition, []):
            self.switch.table_delete(_TABLE, handle)

    def process(self, packets: PacketBatch) -> PacketBatch:
        """Run packets through the program, at the current time."""
        # Timestamps are microseconds since the start of the program, as in simple_switch.
        self.switch.state.clock = int((time.monotonic() - self.begun) * 1e6)
        return self.switch.process_batch(packets)

    def read_register(self, partition: int, switch: str, name: str, index: int) -> int | None:
        """The value of a cell; None if there is no such register or cell."""
        del partition, switch  # there is one
        if name not in self._names:
            return None
        cells = self.switch.registers[name]
        return cell_value(cells, index) if 0 <= index < len(cells) else None

    def late_workers(self, partition: int) -> frozenset[int]:
        """No workers: results name the workers in them."""
        del partition
        return frozenset()

    def counts(self) -> ServiceCounts:
        """See ``Hosted``."""
        statistics = self.switch.statistics
        dropped = self.switch.counters["dropped"].packets
        return ServiceCounts(statistics.packets_in, statistics.packets_out, dropped)

    def reader(self, partition: int, plan: Plan) -> SlotReader:
        """Reads the slots of a job; see ``innet.protocol.SlotReader``."""
        del partition  # the plan says where its slots are
        cells = cache(self.switch.registers.__getitem__)  # looked up by name once, not per slot
        probe = Probe(lambda _, name, index: cell_value(cells(name), index))
        return aggregation_of(plan.aggregation).slot_reader(plan, probe)

    def _first_node(self, partition: int) -> int:
        return partition * self.partitions.workers
