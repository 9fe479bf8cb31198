"""Partitions of one switch, equal parts for the jobs of a service."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from innet import programs
from innet.core.errors import InputError, NetworkError
from innet.core.packets import MAX_PORT
from innet.core.settings import MAX_WORKERS, too_many_workers
from innet.programs import CompiledProgram
from innet.protocol.admission import Job, WorkerPort
from innet.service.coordinator import JobCoordinator
from innet.topology import (
    AGGREGATIONS,
    Plan,
    PlannedHost,
    PlannedSwitch,
    Request,
    aggregation_of,
    make_plan,
)
from innet.topology.plan import PlannedLink, Port
from innet.topology.slots import SWITCH, SlotsAggregation
from innet.topology.tree import TreeAggregation
from innet.wire import Endpoint, PacketLayout

_UNDER_WAY = 9 << 18  # bytes of a job's packets: some two MiB, or more where that would be
_OF_A_WORKER = 1 << 17  # less than this of each worker's
_PLANNING = threading.Lock()
_TREE_PORTS = 1 << 15  # workers of all jobs together


@dataclass(frozen=True, slots=True)
class SlotPartitions:
    """How a switch is divided; with program tree each job has its own switches.

    Attributes:
        program: the program of the switch.
        jobs: number of partitions, one for each job.
        workers: ports of each partition, the most workers of a job.
        slots: slots of each partition, a power of two.
        max_queued: packets that may wait at the switch; None for no limit.
        max_window: packets of a worker under way at once; None for as many as slots.

    Raises:
        InputError: more than the program or the switch has.
    """

    program: CompiledProgram
    jobs: int
    workers: int
    slots: int
    max_queued: int | None = None
    max_window: int | None = None

    @classmethod
    def divide(cls, program: CompiledProgram, jobs: int, workers: int) -> SlotPartitions:
        """Divide the slots and ports of ``program`` into equal parts.

        Raises:
            InputError: the program needs several switches, or has too few slots or ports.
        """
        check_servable(program.program)
        size = program.dimensions()
        is_tree = is_of_trees(program.program)
        limit = MAX_WORKERS if is_tree else size.workers
        if workers > limit:
            raise InputError(too_many_workers(workers, program.name, limit))
        if workers < 1:
            raise InputError(f"{workers} workers in a job; {program.name} takes 1 to {limit}.")
        if is_tree:
            most = _TREE_PORTS // workers
            if not 1 <= jobs <= most:
                raise InputError(
                    f"{jobs} jobs of up to {workers} workers; a service takes {_TREE_PORTS} "
                    f"workers in all, which is room for 1 to {most} jobs."
                )
            return cls(program, jobs, workers, size.slots)
        most = min(size.slots, MAX_PORT // workers)
        if not 1 <= jobs <= most:
            raise InputError(
                f"{jobs} jobs of up to {workers} workers; a switch has {MAX_PORT} ports for "
                f"workers and {program.name} has {size.slots} slots, which is room for 1 to {most}."
            )
        slots = 1 << (size.slots // jobs).bit_length() - 1
        return cls(program, jobs, workers, slots)

    def window(self, workers: int) -> int:
        """How many slots a job uses.

        No more packets may be under way than the socket's memory and the caches hold. A window
        larger than needed to hide the latency makes all accesses to the packets slower.
        """
        size = PacketLayout(self.program.parameters["VALUES"]).frame_size
        room = max(_UNDER_WAY // size, workers * (_OF_A_WORKER // size))
        if self.max_queued is not None:
            room = min(room, self.max_queued)
        slots = self.slots if self.max_window is None else min(self.max_window, self.slots)
        while slots > 1 and workers * slots > room:
            slots //= 2
        return slots

    def port(self, partition: int, worker: int) -> int:
        """The switch port of a worker."""
        return 1 + partition * self.workers + worker

    @property
    def ports(self) -> int:
        """How many ports the service needs: those of workers from 1 on, and two more."""
        return max(MAX_PORT, self.port(self.jobs, 0)) + 2

    def job(self, partition: int) -> Job:
        """A job with as many workers as the partition has ports."""
        return Job(
            [
                WorkerPort(self.port(partition, each), Endpoint.of_worker(each))
                for each in range(self.workers)
            ],
            slot_base=partition * self.slots,
            slots=self.slots,
            group=partition + 1,
        )

    def describe(self, job: JobCoordinator) -> dict[str, Any]:
        """The description from which a worker makes ``plan_of``."""
        common = {
            "program": self.program.program,
            "values": self.program.parameters["VALUES"],
            "job": job.number,
            "epoch": job.epoch,
            "workers": job.workers,
            "absent": sorted(job.absent),
            "slots": self.window(job.workers),
        }
        if is_of_trees(self.program.program):
            return common
        partition = self.job(job.partition)
        return common | {
            "slot_base": partition.slot_base,
            "group": partition.group,
            "port": self.port(job.partition, 0),
        }


def check_servable(program: str) -> None:
    """Refuse programs that a service cannot run.

    Raises:
        InputError: the program needs a parameter server.
    """
    servable = (SlotsAggregation, TreeAggregation)
    if program in AGGREGATIONS and not isinstance(aggregation_of(program), servable):
        raise InputError(
            f"{program} takes more than switches and workers, such as a parameter server; serve "
            f"slots, harvest or tree, and run {program} in memory or by innet net."
        )


def is_of_trees(program: str) -> bool:
    """Whether ``program`` runs on a tree of switches, which each job has for itself."""
    return program in AGGREGATIONS and isinstance(aggregation_of(program), TreeAggregation)


@lru_cache(maxsize=8)
def _planned(program: str, values: int, request: Request) -> Plan:
    """The plan of a large job takes a tenth of a second; a process may have many of its workers."""
    return make_plan(program, values, request)


def plan_of(description: Mapping[str, Any]) -> Plan:
    """The plan of a job on a service, as its workers see it: with default addresses, a star or a
    tree with a rack for every 32 workers.

    Raises:
        NetworkError: the description cannot be used.
    """
    try:
        name, values = str(description["program"]), int(description["values"])
        if is_of_trees(name):
            request = Request(
                workers=int(description["workers"]),
                window=int(description["slots"]),
                job=int(description["job"]),
                epoch=int(description["epoch"]),
                absent=frozenset(map(int, description["absent"])),
                allow_partial=True,
            )
            with _PLANNING:  # the first to come plans for all of this process
                return _planned(name, values, request)
        program = programs.find(name, values)
        first, workers = int(description["port"]), int(description["workers"])
        job = Job(
            [WorkerPort(first + each, Endpoint.of_worker(each)) for each in range(workers)],
            number=int(description["job"]),
            epoch=int(description["epoch"]),
            slot_base=int(description["slot_base"]),
            slots=int(description["slots"]),
            group=int(description["group"]),
            absent=frozenset(map(int, description["absent"])),
        )
        return Plan(
            aggregation=program.program,
            switches=(PlannedSwitch(SWITCH, program, ()),),
            hosts=tuple(
                PlannedHost(f"h{each + 1}", member.endpoint, Endpoint.of_switch(), "worker", each)
                for each, member in enumerate(job.members)
            ),
            links=tuple(
                PlannedLink(Port(f"h{each + 1}", 0), Port(SWITCH, member.port))
                for each, member in enumerate(job.members)
            ),
            job=job,
            layout=PacketLayout(
                values, "udp", has_owners=program.has_owners, adds_floats=program.adds_floats
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NetworkError(f"the switch describes a job that cannot be: {error}") from None
