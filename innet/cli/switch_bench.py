"""What ``innet switch bench`` shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from innet.experiments import tables
from innet.tools.bench import Measurement, Rate


def watch(console: Console, steps: Iterator[Rate | Measurement]) -> Measurement:
    """Wait for the measurements; on a terminal, say what came so far."""
    with console.status("measuring"):
        for step in steps:
            if isinstance(step, Measurement):
                return step
            if console.is_terminal:
                console.print(f"{step.name}: {_rate(step)}", highlight=False, markup=False)
    raise AssertionError("the measurements end with a Measured")


def _rate(rate: Rate) -> str:
    return "-" if rate.per_second is None else tables.rate(rate.per_second)


def table(result: Measurement) -> Table:
    """A line for each way to run the program; ratios are of the fastest."""
    fastest = max((rate.per_second or 0.0 for rate in result.rates), default=0.0)
    shown = Table(box=None)
    for title in ("", "packets/s", "ns/packet", "slower by", "packets timed"):
        shown.add_column(title, justify="right" if title else "left")
    for rate in result.rates:
        if not rate.per_second:
            shown.add_row(rate.name, "-", "-", "-", "-")
            continue
        shown.add_row(
            rate.name,
            _rate(rate).removesuffix("/s"),
            f"{1e9 / rate.per_second:,.0f}",
            tables.times(fastest / rate.per_second),
            tables.count(rate.packets),
        )
    return shown


def remarks(result: Measurement) -> Iterator[str]:
    """What does not fit the table."""
    for rate in result.rates:
        if rate.note:
            yield f"{rate.name}: {rate.note}"
    yield f"{result.answered:.3g} packets leave for each that comes"
    if result.start is not None:
        start = result.start
        yield (
            f"a new process is ready after {tables.duration(start.warm)}, the first one, which "
            f"compiles, after {tables.duration(start.cold)}; it grows by "
            f"{tables.size(start.memory)}"
        )
    state_size = result.state_size
    yield (
        f"state: registers {tables.size(state_size.registers)}, counters "
        f"{tables.size(state_size.counters)}, meters {tables.size(state_size.meters)}, "
        f"{tables.count(state_size.entries)} table entries"
    )


def as_document(program: str, packets: int, batch: int, result: Measurement) -> dict[str, Any]:
    """The same for programs."""
    return {
        "program": program,
        "packets": packets,
        "batch": batch,
        "rates": [
            {**dataclasses.asdict(rate), "packets_per_second": rate.per_second}
            for rate in result.rates
        ],
        "start": None if result.start is None else dataclasses.asdict(result.start),
        "state": dataclasses.asdict(result.state_size),
        "answered": result.answered,
    }
