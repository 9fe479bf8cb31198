"""Samples of a simulated network over time, as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from innet.core.errors import InputError
from innet.core.files import atomic_write
from innet.records import SimulationRecord


def write_samples(record: SimulationRecord, path: str | Path) -> None:
    """Write a line for each value: seconds, what was sampled, of what, the value, and with which
    baseline; that is empty for the job itself.

    Raises:
        InputError: nothing was sampled.
        OutputError: it cannot be written.
    """
    every = {"": record.samples, **{name: run.samples for name, run in record.baselines.items()}}
    found = {name: samples for name, samples in every.items() if samples is not None}
    if not found:
        raise InputError("the record has no samples over time; simulate with --samples 200.")
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("seconds", "quantity", "of", "value", "baseline"))
        for baseline, samples in found.items():
            for quantity, name, values in samples.lines():
                rows.writerows(
                    (seconds, quantity, name, value, baseline)
                    for seconds, value in zip(samples.seconds, values, strict=True)
                )
