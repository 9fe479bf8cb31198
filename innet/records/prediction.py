"""The record of ``innet net predict``: one description, in Mininet and in simulated time."""

from __future__ import annotations

from statistics import median
from typing import Any, ClassVar, Literal

from pydantic import Field, computed_field

from innet.records.record import Record
from innet.records.report import Fabric, Frozen

PREDICTION = "innet.prediction"
"""Format of the record of ``innet net predict``."""


class NetworkRun(Frozen):
    """What a network did in all rounds together.

    Attributes:
        seconds: of each all-reduce, round by round and in a round job by job; in Mininet of the
            slowest worker, without encoding and decoding.
        goodput_mbps: millions of bits of the gradient, 32 per element, that each worker got summed
            per second; by the median of ``seconds``.
        packets: put onto links, over all of them.
        bytes: of them, with preamble, frame check sequence and gap.
        dropped: packets that found a switch's queue full.
        lost: packets that were lost by chance.
        retransmissions: packets that workers sent again.
        fabric: of the simulated network; None of Mininet's, and in records of older versions.
    """

    seconds: tuple[float, ...]
    goodput_mbps: float
    packets: int
    bytes: int
    dropped: int
    lost: int
    retransmissions: int
    fabric: Fabric | None = None

    @classmethod
    def of(cls, seconds: tuple[float, ...], elements: int, **counts: Any) -> NetworkRun:
        """A run, whose goodput follows from the seconds.

        Args:
            seconds: of each all-reduce.
            elements: of the gradient.
            counts: the other fields.
        """
        middle = median(seconds)
        return cls(
            seconds=seconds,
            goodput_mbps=32 * elements / middle / 1e6 if middle else 0.0,
            **counts,
        )


class PredictionRecord(Record):
    """The same all-reduces in Mininet and in simulated time.

    ``simulated`` follows from ``settings``, ``network`` and ``idle_seconds`` alone.

    Attributes:
        workers: of each job.
        jobs: how many.
        elements: of the gradient.
        window: chunks of a worker under way at once.
        idle_seconds: from sending a packet until its result is there, in Mininet where nothing else
            is under way; measured.
        network: all settings of the simulated network.
        busy: part of all cores of the machine that was busy during the rounds in Mininet, by
            all processes; 1: none was idle.
        network_seconds: of the rounds in Mininet, in all, of the slowest worker of all jobs.
        processor_seconds: of all cores, that workers, servers and switches used in the rounds.
        calibration: ``packet_seconds`` and ``cores`` of the run by which the simulation knows what
            packets take of this machine's cores; None: it takes cores to be no limit.
        exact: whether every sum in Mininet equalled the oracle's; None where not compared.
        mininet: what Mininet's network did.
        simulated: what the simulated one did.
    """

    formats: ClassVar[tuple[str, ...]] = (PREDICTION,)

    format: Literal["innet.prediction"] = "innet.prediction"
    workers: int
    jobs: int
    elements: int
    window: int
    idle_seconds: float
    network: dict[str, Any] = Field(default_factory=dict)
    busy: float
    network_seconds: float = 0.0
    processor_seconds: float = 0.0
    calibration: dict[str, float] | None = None
    exact: bool | None
    mininet: NetworkRun
    simulated: NetworkRun

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def packet_seconds(self) -> float:
        """Seconds of a core for each packet that any process put onto a link in Mininet."""
        return self.processor_seconds / self.mininet.packets if self.mininet.packets else 0.0

    @computed_field  # type: ignore[prop-decorator]  # likewise
    @property
    def cores(self) -> float:
        """Cores that workers, servers and switches used, in the mean over the rounds."""
        return self.processor_seconds / self.network_seconds if self.network_seconds else 0.0

    @computed_field  # type: ignore[prop-decorator]  # likewise
    @property
    def difference_percent(self) -> dict[str, float | None]:
        """By how much the simulation is above Mininet, in per cent of Mininet's number; None where
        that is 0 and the simulation's is not.
        """
        return {
            name: _difference(getattr(self.mininet, name), getattr(self.simulated, name))
            for name in NetworkRun.model_fields
            if name not in {"seconds", "fabric"}
        }


def _difference(measured: float, predicted: float) -> float | None:
    if measured == predicted:
        return 0.0
    return 100 * (predicted / measured - 1) if measured else None
