"""The record of several jobs in simulated time, whose packets share switches, queues and links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field

from innet.records.record import Record
from innet.records.report import Frozen, Simulated
from innet.records.simulation import BackgroundTraffic

JOBS = "innet.jobs"  # format of the record of ``innet simulate jobs``
"""Format of the record of ``innet simulate jobs``."""


class JobRun(Frozen):
    """What a job took, in simulated seconds.

    Attributes:
        name: as the file has it.
        workers: how many.
        codec: name or description.
        window: chunks of a worker under way at once; the job has as many slots of each switch.
        elements: of the gradient.
        sizes: "codec" if the codec itself said what each round sends; otherwise "modelled".
        begin: when its first iteration began.
        begins: of each all-reduce, when its workers could send.
        ends: likewise, when the last worker had the sum.
        end: when its last iteration was over.
        goodput_gbps: bits of the gradient, 32 per element, that each worker got summed per second
            of its all-reduces, in units of 1e9.
        retransmissions: packets that its workers sent again.
        alone_seconds: of its all-reduces together, if no other job were there; None if that was
            not simulated.
        arrival: of a job of a cluster, when it began to wait for hosts and slots.
        hosts: of a job of a cluster, those that it got, from 0.
    """

    name: str
    workers: int
    codec: str
    window: int
    elements: int
    sizes: str
    begin: float
    begins: tuple[float, ...]
    ends: tuple[float, ...]
    end: float
    goodput_gbps: float
    retransmissions: int
    alone_seconds: float | None
    arrival: float | None = None
    hosts: tuple[int, ...] = ()

    @property
    def waited(self) -> float:
        """Seconds from its arrival to its begin."""
        return self.begin - self.arrived

    @property
    def arrived(self) -> float:
        """When it arrived: at its begin, if it did not have to wait for a cluster."""
        return self.begin if self.arrival is None else self.arrival

    @property
    def completion(self) -> float:
        """Its completion time: seconds from its arrival to the end of its last iteration."""
        return self.end - self.arrived

    @property
    def stretch(self) -> float | None:
        """How many times its completion time is what it would take if no other job were there."""
        if self.alone_seconds is None:
            return None
        return self.completion / (self.end - self.begin - sum(self.times) + self.alone_seconds)

    @property
    def times(self) -> tuple[float, ...]:
        """What each all-reduce took."""
        return tuple(end - begin for begin, end in zip(self.begins, self.ends, strict=True))

    @property
    def slowdown(self) -> float | None:
        """How many times as long as alone its all-reduces took."""
        return sum(self.times) / self.alone_seconds if self.alone_seconds else None


class ClusterUse(Frozen):
    """A cluster over time, which jobs shared as they came and went.

    Attributes:
        hosts: how many.
        slots: of each switch.
        placement: which hosts jobs got.
        memory: which slots jobs got.
        queueing: which of the waiting jobs began.
        seconds: when what follows changed, ascending.
        hosts_busy: hosts that had a worker, from then on.
        slots_used: slots that running jobs had, likewise.
        waiting: jobs that waited, likewise.
    """

    hosts: int
    slots: int
    placement: str
    memory: str
    queueing: str
    seconds: tuple[float, ...]
    hosts_busy: tuple[int, ...]
    slots_used: tuple[int, ...]
    waiting: tuple[int, ...]

    def mean(self, counts: Sequence[int]) -> float:
        """The mean over time of one of the last three, up to the last change."""
        spans = [after - before for before, after in pairwise(self.seconds)]
        total = sum(count * span for count, span in zip(counts, spans, strict=False))
        return total / sum(spans)


class JobsRecord(Record):
    """Several jobs on one network in simulated time. No sums are compared, as packets are thin.

    ``jobs`` and ``simulated`` are the same in all runs of the same settings and seed.

    Attributes:
        program: name of the P4 program that all switches run.
        values_per_packet: of the packets that thin ones stand for.
        network: all settings of the network.
        jobs: in the order of the file.
        simulated: of the network, from its begin to the end of the last all-reduce. Goodput and
            elements are those of all jobs together.
        background: packets beside the jobs.
        wall_seconds: wall time of the run.
        cluster: the hosts and slots that jobs shared; None if each had its own all the time.
    """

    formats: ClassVar[tuple[str, ...]] = (JOBS,)

    format: Literal["innet.jobs"] = "innet.jobs"
    program: str
    values_per_packet: int
    network: dict[str, Any] = Field(default_factory=dict)
    jobs: tuple[JobRun, ...]
    simulated: Simulated
    background: tuple[BackgroundTraffic, ...] = ()
    wall_seconds: float
    cluster: ClusterUse | None = None

    @property
    def makespan(self) -> float:
        """Seconds from the first job's arrival to the end of the last one."""
        return max(job.end for job in self.jobs) - min(job.arrived for job in self.jobs)
