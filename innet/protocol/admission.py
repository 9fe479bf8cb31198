"""The control plane of a job: commands by which a switch that runs slots.p4 admits its workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from innet.core.errors import InputError
from innet.core.packets import MAX_PORT
from innet.core.settings import BITMAP_BITS, MAX_WINDOW, MAX_WORKERS, too_many_workers
from innet.protocol.settings import bitmap_of
from innet.wire import Endpoint

_ADMISSION = "SlotsIngress.admission.admission"
_ADMIT = "SlotsIngress.admission.admit"
_DELIVER = "SlotsEgress.deliver"
_ADDRESS = "SlotsEgress.address"


@dataclass(frozen=True, slots=True)
class WorkerPort:
    """One worker of a job: the switch port it is behind and its address.

    Attributes:
        switch: name of that switch; it may be left out where all workers are at the same one.
        bit: which bit of that switch's bitmaps names the worker; by default its index in the job,
            if the job has up to 32 workers.
    """

    port: int
    endpoint: Endpoint
    switch: str = ""
    bit: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job's place on the switch.

    Attributes:
        members: the workers, by index.
        number, epoch: as in the innet header.
        slot_base: the first slot of the job's part of the pool, a multiple of ``slots``.
        slots: how many, a power of two; base and slots together at most those of the program.
        group: the multicast group of the job.
        absent: indices of members who take part in no all-reduce of this epoch.
        allow_partial: workers may request results that lack late workers. Program tree asks for it
            to be said beforehand; the others allow it always.
        priority: of the job's packets, 0 to 7; switches may serve higher ones first.

    Raises:
        InputError: no workers or too many, two behind one port, slots that are no power of two, or
            a number out of range.
    """

    members: Sequence[WorkerPort]
    number: int = 1
    epoch: int = 0
    slot_base: int = 0
    slots: int = 1024
    group: int = 1
    absent: frozenset[int] = frozenset()
    allow_partial: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        if len(self.members) > MAX_WORKERS:
            raise InputError(too_many_workers(len(self.members)))
        if len(self.members) > BITMAP_BITS and any(each.bit is None for each in self.members):
            raise InputError(too_many_workers(len(self.members), most=BITMAP_BITS))
        _within("the number of workers", len(self.members), 1, MAX_WORKERS)
        for member in self.members:
            _within("a worker's port", member.port, 0, MAX_PORT)
        if len({(each.switch, each.port) for each in self.members}) != len(self.members):
            raise InputError("two workers of a job share a switch port; give each its own.")
        _within("the job's number", self.number, 0, 0xFFFF)
        _within("the epoch", self.epoch, 0, 0xFFFF)
        _within("the multicast group", self.group, 1, 0xFFFF)
        _within("the number of slots", self.slots, 1, MAX_WINDOW)
        _within("the slot base", self.slot_base, 0, 0xFFFF)
        if not set(self.present):
            raise InputError("all workers of the job are absent; one must take part.")
        if self.slots & (self.slots - 1):
            raise InputError(f"a job has {self.slots} slots; it must be a power of two.")
        if self.slot_base % self.slots:
            raise InputError(
                f"slot base {self.slot_base} is no multiple of the job's {self.slots} slots."
            )

    @property
    def present(self) -> tuple[int, ...]:
        """Indices of the members who take part, ascending."""
        return tuple(i for i in range(len(self.members)) if i not in self.absent)

    @property
    def bitmap(self) -> int:
        """The same members as bits; those of the header's bitmap in jobs of up to 32 members."""
        return bitmap_of(len(self.members), self.absent)

    @property
    def following_epoch(self) -> int:
        """The number of the next epoch."""
        return epoch_after(self.number, self.epoch)

    def commands(self, first_node: int = 0, *, new_ports: bool = True) -> list[str]:
        """The commands that admit the job, in the language of simple_switch_CLI.

        Args:
            first_node: the handle that the switch gives the next multicast node; 0 when fresh.
            new_ports: the switch does not know yet what is behind the ports; False if another job
                with the same ports is there already.
        """
        commands = [f"mc_mgrp_create {self.group}"]
        full_bitmap = self.bitmap
        for worker, member in enumerate(self.members):
            if worker not in self.absent:
                commands.append(self._admit(worker, full_bitmap))
            if new_ports:
                commands.append(
                    f"table_add {_DELIVER} {_ADDRESS} {member.port} => "
                    f"0x{member.endpoint.mac_bytes.hex()} {member.endpoint.ip_number} "
                    f"{member.endpoint.udp_port}"
                )
            # The replication id is the worker's index: the egress pipeline addresses it by that.
            commands.append(f"mc_node_create {worker} {member.port}")
            if worker not in self.absent:
                commands.append(f"mc_node_associate {self.group} {first_node + worker}")
        return commands

    def next_epoch(
        self,
        entries: Sequence[int],
        absent: Iterable[int] | None = None,
        first_node: int = 0,
    ) -> tuple[Job, list[str]]:
        """The job after a failure, or with other workers, on the same switch.

        What its slots held counts no more.

        Args:
            entries: handles of the job's entries in the admission table, as the switch gave them.
            absent: indices of the members who take no part from now on; by default the same.
            first_node: as ``commands`` was given it.

        Returns:
            The job with its new epoch, for new workers' ends, and the commands that let its
            packets in and those of the old epoch no longer.
        """
        following = replace(
            self,
            epoch=self.following_epoch,
            absent=self.absent if absent is None else frozenset(absent),
        )
        commands = [f"table_delete {_ADMISSION} {entry}" for entry in entries]
        for worker in range(len(self.members)):
            node = f"{self.group} {first_node + worker}"
            if worker in following.absent and worker not in self.absent:
                commands.append(f"mc_node_dissociate {node}")
            elif worker in self.absent and worker not in following.absent:
                commands.append(f"mc_node_associate {node}")
        commands += [following._admit(worker, following.bitmap) for worker in following.present]
        return following, commands

    def _admit(self, worker: int, full_bitmap: int) -> str:
        return (
            f"table_add {_ADMISSION} {_ADMIT} {self.members[worker].port} {self.number} "
            f"{self.epoch} {worker} => {1 << worker} {full_bitmap} {self.group} "
            f"{self.slot_base} {self.slots - 1}"
        )


def epoch_after(job: int, epoch: int) -> int:
    """The number of a job's next epoch.

    Job 65,535 has no epoch 65,535: its fence (docs/tree.md) would be what a register holds that was
    lost.
    """
    following = (epoch + 1) % 0x10000
    return 0 if (job, following) == (0xFFFF, 0xFFFF) else following


def _within(what: str, number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise InputError(f"{what} is {number}; it must be in {low} .. {high}.")
