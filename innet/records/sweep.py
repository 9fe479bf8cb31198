"""The record of a sweep: one run of a simulation at each combination of what is varied."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from innet.core.errors import InputError
from innet.core.numbers import is_real
from innet.records.record import Record
from innet.records.report import Frozen

SWEEP = "innet.sweep"  # format of the record of ``innet simulate sweep``
"""Format of the record of ``innet simulate sweep``."""
POINT = "innet.sweep-point"  # format of the files from which a sweep goes on
METRICS = (
    "iteration_seconds",
    "exposed_seconds",
    "seconds",
    "goodput_gbps",
    "dropped",
    "lost",
    "retransmissions",
    "packets",
)
"""What tables show of each point, where its record has it."""
_BASELINES = "baselines."
_PARTS = ("machine.", "report.", "settings.")  # of a record, whose numbers are not listed


class Axis(Frozen):
    """A setting that a sweep varies.

    Attributes:
        name: of the setting, such as "workers" or "network.loss".
        values: in the order in which they were given, no two alike.
    """

    name: str
    values: tuple[Any, ...]


class SweepPoint(Frozen):
    """A combination of values, and the record of its run.

    Attributes:
        values: of the axes, by their names.
        digest: of all settings of the run; the name of its file.
        record: the run's record as JSON, without its iterations, which are in the point's file.
        means: of the iterations of a model, in simulated seconds: "iteration_seconds",
            "compute_seconds", "encode_seconds", "network_seconds", "waited_seconds",
            "decode_seconds" and "exposed_seconds", over workers and iterations. Empty without.
    """

    values: dict[str, Any]
    digest: str
    record: dict[str, Any]
    means: dict[str, float] = Field(default_factory=dict)

    def metric(self, name: str) -> float:
        """A number of the run's record.

        Args:
            name: a field of the record or of its part ``simulated``, with dots for what is inside
                of others, such as "simulated.utilization.trunk".

        Raises:
            InputError: the record has no such number; says which it has.
        """
        known = self.metrics()
        if name in known:
            return known[name]
        if (inner := f"simulated.{name}") in known:
            return known[inner]
        baseline, rest = baseline_metric(name)
        if baseline and (inner := of_baseline(baseline, f"simulated.{rest}")) in known:
            return known[inner]
        names = ", ".join(
            each.removeprefix("simulated.") for each in sorted(known) if not each.startswith(_PARTS)
        )
        raise InputError(f"there is no metric {name!r} in the records; they have {names}.")

    def metrics(self) -> dict[str, float]:
        """The means, and all numbers of the record that are in no list, by names with dots."""
        return {**self.means, **dict(_numbers(self.record))}


class SweepFailure(Frozen):
    """A combination whose run failed.

    Attributes:
        values: of the axes, by their names.
        error: what happened in the last attempt.
        attempts: how often it was tried.
    """

    values: dict[str, Any]
    error: str
    attempts: int


class SweepRecord(Record):
    """A sweep. Its points are in the order of the product of the axes, the last axis fastest.

    Attributes:
        settings: what all points share.
        axes: what was varied.
        points: the runs that succeeded.
        failures: those that did not.
    """

    formats: ClassVar[tuple[str, ...]] = (SWEEP,)

    format: Literal["innet.sweep"] = "innet.sweep"
    axes: tuple[Axis, ...]
    points: tuple[SweepPoint, ...]
    failures: tuple[SweepFailure, ...] = ()

    def at(self, **values: Any) -> tuple[SweepPoint, ...]:
        """The points with these values, such as ``at(workers=8)``; by ``**`` for names with dots.

        Raises:
            InputError: no such axis.
        """
        names = [axis.name for axis in self.axes]
        for name in values:
            if name not in names:
                raise InputError(f"the sweep has no axis {name!r}; it has {', '.join(names)}.")
        return tuple(
            point
            for point in self.points
            if all(point.values[name] == value for name, value in values.items())
        )

    def shown_metrics(self) -> tuple[str, ...]:
        """Those of ``METRICS`` that every point has; of a model's run, the time of an iteration
        instead of the run's. Then one of each baseline that all have.
        """
        known = [
            {name.removeprefix("simulated.") for name in point.metrics()} for point in self.points
        ]
        found = [name for name in METRICS if known and all(name in each for each in known)]
        if "iteration_seconds" in found:
            found.remove("seconds")
        main = "iteration_seconds" if "iteration_seconds" in found else "goodput_gbps"
        return (*found, *(of_baseline(name, main) for name in self.baselines))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the baselines that every point has."""
        every = [list(point.record.get("baselines") or ()) for point in self.points]
        first = every[0] if every else []
        return tuple(name for name in first if all(name in each for each in every))


class PointRecord(Record):
    """The file that a sweep keeps of each point, to go on from there.

    Attributes:
        settings: all of the run, as far as they matter for its result.
        function: what ran, such as "innet.scenarios.simulate:simulate".
        record: what it returned, as JSON.
    """

    formats: ClassVar[tuple[str, ...]] = (POINT,)

    format: Literal["innet.sweep-point"] = "innet.sweep-point"
    function: str
    record: dict[str, Any] = Field(default_factory=dict)


def of_baseline(baseline: str, metric: str) -> str:
    """The name of a baseline's metric."""
    return f"{_BASELINES}{baseline}.{metric}"


def baseline_metric(name: str) -> tuple[str, str]:
    """The baseline and its metric that ``of_baseline`` has made a name of; two "" of another."""
    if not name.startswith(_BASELINES):
        return "", ""
    baseline, _, metric = name.removeprefix(_BASELINES).rpartition(".")
    return baseline.removesuffix(".simulated"), metric


def label(values: Mapping[str, Any]) -> str:
    """The values of a point for people: "workers=8, network.loss=0.001"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _numbers(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif is_real(value) and math.isfinite(value):
            yield prefix + name, value


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """What a sweep tells who watches it.

    Attributes:
        what: "kept" was in the folder, "begun" again after a failed attempt.
        point: values of the axes.
        number: points that are done, this one included.
        total: all points.
        error: of the attempt that failed.
    """

    what: Literal["kept", "done", "again", "failed"]
    point: Mapping[str, Any]
    number: int
    total: int
    error: str = ""
