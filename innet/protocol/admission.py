"""The control plane of a job: commands by which a switch running slots.p4 admits its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from innet.errors import InputError
from innet.wire import Endpoint

_ADMISSION = "SlotsIngress.admission.admission"
_ADMIT = "SlotsIngress.admission.admit"
_DELIVER = "SlotsEgress.deliver"
_ADDRESS = "SlotsEgress.address"


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of a job: the switch port it is behind and its address."""

    port: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Job:
    """A job's place on the switch.

    Attributes:
        members: the workers, by index.
        number, epoch: as in the innet header.
        slot_base: the first slot of the job's part of the pool, a multiple of ``slots``.
        slots: how many, a power of two.
        group: the multicast group of the job.

    Raises:
        InputError: no workers, two workers behind one port, or slots that are no power of two.
    """

    members: Sequence[Member]
    number: int = 1
    epoch: int = 0
    slot_base: int = 0
    slots: int = 1024
    group: int = field(default=1)

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("a job needs at least one worker.")
        if len({member.port for member in self.members}) != len(self.members):
            raise InputError("two workers of a job share a switch port; give each its own.")
        if self.slots < 1 or self.slots & (self.slots - 1):
            raise InputError(f"a job has {self.slots} slots; it must be a power of two.")
        if self.slot_base % self.slots:
            raise InputError(
                f"slot base {self.slot_base} is no multiple of the job's {self.slots} slots."
            )

    def commands(self, first_node: int = 0) -> list[str]:
        """In the dialect of simple_switch_CLI.

        Args:
            first_node: the handle that the switch gives the next multicast node; 0 when fresh.
        """
        commands = [f"mc_mgrp_create {self.group}"]
        for worker, member in enumerate(self.members):
            node = first_node + worker
            # The replication id is the worker's index: the egress pipeline addresses it by that.
            commands += [
                f"table_add {_ADMISSION} {_ADMIT} {member.port} {self.number} {self.epoch} "
                f"{worker} => {1 << worker} {len(self.members)} {self.group} {self.slot_base} "
                f"{self.slots - 1}",
                f"table_add {_DELIVER} {_ADDRESS} {member.port} => "
                f"0x{member.endpoint.mac_bytes.hex()} {member.endpoint.ip_number} "
                f"{member.endpoint.udp_port}",
                f"mc_node_create {worker} {member.port}",
                f"mc_node_associate {self.group} {node}",
            ]
        return commands
