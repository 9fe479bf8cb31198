"""What egress queues cost: slots.p4 in calls with times against calls without.

    python -m benchmarks.queues [--values 64] [--batch 1024] [--json]

The same packets of four workers, in turns. With times each packet arrives 150 ns after the one
before, nothing has a rate, and each result goes through its port's queue.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.switch import contributions, job_of, ready
from innet import programs
from innet.core.packets import PacketBatch

BATCHES = 32
GAP = 150  # nanoseconds between two packets


def main(
    values: Annotated[int, typer.Option(help="Values per packet.")] = 64,
    batch: Annotated[int, typer.Option(help="Packets in one call.")] = 1024,
    repeats: Annotated[int, typer.Option(help="The median of so many, in turns.")] = 15,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    program, job = programs.find("slots", values), job_of()
    plain, timed = (ready(program.json(), job, "jit") for _ in range(2))
    everything = contributions(job, values, 0, batch * BATCHES)
    rows = np.split(np.arange(len(everything)), BATCHES)
    batches: list[PacketBatch] = [everything.take(part) for part in rows]
    gaps = GAP * np.arange(1, batch + 1)

    def without_times() -> None:
        for each in batches:
            plain.process_batch(each)

    def with_times() -> None:
        for each in batches:
            timed.process_batch(each, times=timed.traffic_manager.now + gaps)

    ways = {"without times": without_times, "with times": with_times}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, run in ways.items():
            begun = time.thread_time()  # of this process: others may run beside it
            run()
            spent[name].append(time.thread_time() - begun)
    rates = {name: len(everything) / statistics.median(each[1:]) for name, each in spent.items()}
    rows_shown = [
        Row(name, rate, "packets/s", "", rate / rates["without times"])
        for name, rate in rates.items()
    ]
    show(f"{program.name}, batches of {batch}", "against no times", rows_shown, as_json, "")


if __name__ == "__main__":
    typer.run(main)
