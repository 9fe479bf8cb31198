"""Points of a throughput sweep on a Mininet network."""

from __future__ import annotations

from innet.core.settings import ThroughputSettings
from innet.experiments.throughput import SHAPES, all_reduce_settings
from innet.mininet.allreduce import run
from innet.mininet.settings import NetSettings
from innet.records import Report
from innet.records.throughput import Point

_TIMEOUT = 1.0  # seconds: packets that are only late are not sent again


def measure(point: Point, settings: ThroughputSettings) -> list[Report]:
    """The all-reduces of a point; see ``innet.experiments.throughput.Measure``."""
    gradients = all_reduce_settings(point, settings)
    result = run(
        NetSettings.model_validate(
            {
                "switch": point.switch,
                "workers": point.workers,
                "codec": point.codec,
                "values_per_packet": point.values_per_packet,
                "window": point.window,
                "size": gradients.size,
                "density": settings.density,
                "seed": settings.seed,
                "rounds": 1 + settings.rounds,
                "framing": settings.framing,
                "timeout": _TIMEOUT,
                **SHAPES[point.topology],
            }
        )
    )
    return list(result.reports)
