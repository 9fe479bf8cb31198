"""The record of several jobs in simulated time, whose packets share switches, queues and links."""

from __future__ import annotations

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

    @property
    def times(self) -> tuple[float, ...]:
        """What each all-reduce took."""
        return tuple(end - begin for begin, end in zip(self.begins, self.ends, strict=True))

    @property
    def slowdown(self) -> float | None:
        """How many times as long as alone its all-reduces took."""
        return sum(self.times) / self.alone_seconds if self.alone_seconds else None


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
