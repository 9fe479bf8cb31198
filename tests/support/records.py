"""Records with made-up numbers, for tests of what reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from innet.records import DEMO, Machine, Report, Run, Seconds, Step, TrainingRecord

MACHINE = Machine(
    cpu="Example CPU", cores=2, system="Linux x86_64", python="CPython 3.11", numpy="2", numba="0"
)


def a_report(**changes: Any) -> Report:
    fields: dict[str, Any] = {
        "exact": True,
        "workers": 4,
        "codec": "dense",
        "program": "slots",
        "engine": "jit",
        "transport": "memory",
        "values_per_packet": 64,
        "elements": 55018,
        "rounds": 2,
        "packets_sent": 3444,
        "packets_received": 3444,
        "bytes_sent": 284000,
        "bytes_dense": 284000,
        "seconds": Seconds(encode=0.002, network=0.01, decode=0.001, total=0.014, switch=0.004),
        "switch_packets": 3444,
        "max_abs_error": 1e-9,
        "max_abs_error_sent": 1e-9,
    }
    return Report(**(fields | changes))


def a_run(
    name: str = "dense",
    steps: Sequence[Step] | None = None,
    report: Report | None = None,
    iterations: int = 22,
    renumber: bool = False,
) -> Run:
    """A run whose loss falls and whose accuracy rises, evaluated at every eleventh step."""
    if steps is None:
        steps = [
            Step.of(
                iteration,
                2.3 * math.exp(-iteration / 8),
                1 - math.exp(-iteration / 6) if iteration % 11 == 0 else None,
                report,
            )
            for iteration in range(1, iterations + 1)
        ]
    if renumber:
        steps = [
            step.model_copy(update={"iteration": index}) for index, step in enumerate(steps, 1)
        ]
    titles = {"plain": "plain float32", "dense": "dense", "topk": "top-k 1 %, LHC"}
    return Run(
        name=name,
        title=titles.get(name, name),
        codec="" if report is None else report.codec,
        elements=55018,
        steps=tuple(steps),
        wall_seconds=3.5,
    )


def a_record(**changes: Any) -> TrainingRecord:
    """The record of a demonstration: three runs, two of them over the network."""
    fields: dict[str, Any] = {
        "format": DEMO,
        "innet": "0.1.0",
        "created": datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
        "machine": MACHINE,
        "settings": {"workers": 4, "iterations": 22, "values_per_packet": 64, "seed": 0},
        "runs": [
            a_run("plain"),
            a_run("dense", report=a_report()),
            a_run("topk", report=a_report(codec="topk", bytes_sent=28000, packets_sent=340)),
        ],
    }
    fields |= changes
    fields["runs"] = tuple(fields["runs"])
    return TrainingRecord(**fields)
