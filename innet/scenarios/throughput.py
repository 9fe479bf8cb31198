"""Throughput sweep over workers, codec, values per packet, window, topology and switch.

Functions that measure on Mininet are passed in, as Mininet is a higher layer. Points in memory are
measured here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from innet._version import __version__
from innet.core.errors import InputError
from innet.core.settings import AllReduceSettings, ThroughputSettings, default_program
from innet.records import Machine, Report
from innet.records.throughput import Measurement, Point, ThroughputRecord
from innet.scenarios.allreduce import gradients

Measure = Callable[[Point, ThroughputSettings], list[Report]]
"""The reports of ``1 + rounds`` all-reduces at a point; the first one warms up."""

Watch = Callable[[int, int, Point], None]
"""Called before each point is measured, with its number from 1, the number of points, the point."""


def points(settings: ThroughputSettings) -> Iterator[Point]:
    """All combinations. Points that are compared with each other are measured in sequence."""
    for workers, codec, values, window, topology, switch in itertools.product(
        settings.workers,
        settings.codecs,
        settings.values_per_packet,
        settings.windows,
        settings.topologies,
        settings.switches,
    ):
        yield Point(
            switch=switch,
            workers=workers,
            codec=codec,
            values_per_packet=values,
            window=window,
            topology=topology,
        )


def run(
    settings: ThroughputSettings,
    path: Path,
    *,
    created: datetime,
    measures: Mapping[str, Measure],
    watch: Watch = lambda *_: None,
) -> ThroughputRecord:
    """Measure the points that the record at ``path`` lacks. It is written after each point.

    Args:
        settings: what to measure.
        path: the record. An existing one must be of this sweep.
        created: when the sweep begins.
        measures: by switch.
        watch: called for each point that is measured.

    Raises:
        InputError: the existing record is of another machine or has other settings.
        InnetError: an invalid point, before any is measured; or an error of a measurement, with the
            earlier points in the record.
    """
    record = _begun(settings, path, created)
    wanted = list(points(settings))
    for point in wanted:
        check(point)
    for number, point in enumerate(wanted, start=1):
        if record.at(point) is None:
            watch(number, len(wanted), point)
            reports = measures[point.switch](point, settings)
            record = record.with_measurement(Measurement(point=point, reports=tuple(reports[1:])))
            record.save(path)
    return record


def check(point: Point) -> None:
    """Raise InnetError if the program does not support the workers, the window or the codec."""
    from innet.codecs import build_codec  # noqa: PLC0415 - it brings Numba
    from innet.topology import Request, check_codec, make_plan  # noqa: PLC0415 - likewise

    request = Request(workers=point.workers, window=point.window, topology=point.topology)
    plan = make_plan(
        default_program(point.topology, point.workers), point.values_per_packet, request
    )
    check_codec(plan, build_codec(point.codec))


def in_memory(point: Point, settings: ThroughputSettings) -> list[Report]:
    """The all-reduces of a point in this process, on the built-in switch."""
    from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba

    collective = Collective(
        workers=point.workers,
        codec=point.codec,
        values_per_packet=point.values_per_packet,
        window=point.window,
        seed=settings.seed,
        topology=point.topology,
    )
    given = gradients(all_reduce_settings(point, settings))
    return [collective.all_reduce(given)[1] for _ in range(1 + settings.rounds)]


def all_reduce_settings(point: Point, settings: ThroughputSettings) -> AllReduceSettings:
    """Settings for the gradients of a point, equal for all switches."""
    size = settings.size_bmv2 if point.switch == "bmv2" else settings.size
    return AllReduceSettings(
        workers=point.workers, size=size, density=settings.density, seed=settings.seed
    )


def _begun(settings: ThroughputSettings, path: Path, created: datetime) -> ThroughputRecord:
    """The record at ``path`` if it can be continued, or a new one."""
    machine = Machine.here()
    shared = settings.model_dump(
        mode="json", include={"size", "size_bmv2", "density", "rounds", "framing", "seed"}
    )
    if not path.exists():
        return ThroughputRecord(
            innet=__version__, created=created, machine=machine, settings=shared
        )
    record = ThroughputRecord.load(path)
    for what, found, wanted in (
        ("machine", record.machine.model_dump(), machine.model_dump()),
        ("settings", record.settings, shared),
    ):
        if found != wanted:
            differ = [name for name in wanted if found.get(name) != wanted[name]]
            raise InputError(
                f"{path} was measured with another {what} ({', '.join(differ)}); times of both in "
                "one record would compare nothing. Choose another --out, or remove the file."
            )
    return record
