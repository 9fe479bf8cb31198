"""The record of a throughput sweep: measured points, each with the reports of its rounds."""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Literal

from innet.records.record import Record
from innet.records.report import Frozen, Report

THROUGHPUT = "innet.throughput"  # format of the record of ``innet experiment throughput``
"""Format of the record of ``innet experiment throughput``."""
_FLOAT = 4  # bytes of a float32


class Point(Frozen):
    """One combination of what a sweep varies.

    Attributes:
        switch: "memory", "builtin" or "bmv2".
        workers: how many.
        codec: as the person wrote it.
        values_per_packet: int32 values in each packet.
        window: chunks of a worker under way at once.
        topology: "star" or "tree".
    """

    switch: str
    workers: int
    codec: str
    values_per_packet: int
    window: int
    topology: str = "star"


class Measurement(Frozen):
    """What was measured at a point.

    Attributes:
        point: where.
        reports: of the rounds that count, at least one.
    """

    point: Point
    reports: tuple[Report, ...]

    @property
    def goodput(self) -> float:
        """Bytes of summed float32 gradient that each worker got per second; median of the rounds.

        Encoding and decoding count as well.
        """
        return median(each.elements * _FLOAT / each.seconds.total for each in self.reports)

    @property
    def packet_rate(self) -> float:
        """Packets per second that the switches took in; median of the rounds."""
        return median(each.switch_packets / each.seconds.network for each in self.reports)

    @property
    def retransmissions(self) -> int:
        """Packets that were sent again, in all rounds."""
        return sum(each.retransmissions for each in self.reports)

    @property
    def exact(self) -> bool:
        """Whether every round's sum was the oracle's."""
        return all(each.exact is True for each in self.reports)


class ThroughputRecord(Record):
    """A sweep, finished or not.

    Attributes:
        settings: what all points share.
        measurements: in the order in which they were made.
    """

    formats: ClassVar[tuple[str, ...]] = (THROUGHPUT,)

    format: Literal["innet.throughput"] = "innet.throughput"
    measurements: tuple[Measurement, ...] = ()

    def at(self, point: Point) -> Measurement | None:
        """What was measured there; None if nothing was yet."""
        return next((each for each in self.measurements if each.point == point), None)

    def ratio(self, measurement: Measurement, to: str = "bmv2") -> float | None:
        """How many times the goodput of the same point with another switch; None if not measured.

        Args:
            measurement: one of this record's.
            to: the other switch.
        """
        other = self.at(measurement.point.model_copy(update={"switch": to}))
        return None if other is None else measurement.goodput / other.goodput

    def with_measurement(self, measurement: Measurement) -> ThroughputRecord:
        return self.model_copy(update={"measurements": (*self.measurements, measurement)})
