"""Where the time of the slowest all-reduces goes: running, ready to run, or asleep.

    python -m benchmarks.slowest [--repeats 200] [--codec dense] [--transport shm]

Four processes and a switch service all-reduce many times. Linux counts for each process how long it
ran and how long it was ready but had no processor (``/proc/PID/schedstat``). What is left of an
all-reduce it slept. On a machine with too few processors most of that is waiting for each other: at
any time somebody runs or is ready. An all-reduce in which the processors were idle, on the other
hand, waited for a timer or for a wake-up that did not come. ``/proc/stat`` has the idle time.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.ranks import Ranks
from benchmarks.service_cases import Case, Kind
from innet.core.settings import ServiceTransport

_BINS = (1.2, 1.5, 2, 3, 5, 10, np.inf)  # times the median
_SHOWN = 10


class Sample(NamedTuple):
    """What all processes together have done so far, in seconds, and packets sent again."""

    wall: float
    running: float
    ready: float
    idle: float
    again: int = 0


def taken(pids: list[int]) -> Sample:
    """A sample of these processes."""
    running, ready = 0, 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            each = (task / "schedstat").read_text(encoding="ascii").split()
            running += int(each[0])
            ready += int(each[1])
    first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    idle = int(first[4]) / os.sysconf("SC_CLK_TCK")
    return Sample(time.perf_counter(), running / 1e9, ready / 1e9, idle)


def main(  # noqa: PLR0917 - options of a command
    repeats: Annotated[int, typer.Option(help="All-reduces.")] = 200,
    codec: Annotated[str, typer.Option(help="Which codec.")] = "dense",
    transport: Annotated[str, typer.Option(help="shm or udp.")] = "shm",
    elements: Annotated[int, typer.Option(help="Of each gradient; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 1024,
) -> None:
    """Measure, and print a histogram and the slowest ones."""
    carried: ServiceTransport = "udp" if transport == "udp" else "shm"
    kind = Kind.OWN_PLACES if codec == "lhc" else Kind.FULL
    cases = {codec: Case(codec, kind, transport=carried)}
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Ranks(
            cases, size=elements, workers=workers, values=values, alike=False, folder=folder
        ) as ranks,
    ):
        pids = ranks.pids
        ranks.measure([codec], 0)  # what is done once
        for _ in range(repeats):
            before = taken(pids)
            found = ranks.once(codec)
            after = taken(pids)
            again = sum(report.retransmissions for report in found.reports)
            samples.append(
                Sample(
                    found.seconds[0],
                    after.running - before.running,
                    after.ready - before.ready,
                    after.idle - before.idle,
                    again,
                )
            )
    show(samples, os.cpu_count() or 1)


def show(samples: list[Sample], cores: int) -> None:
    """Print them."""
    wall = np.array([each.wall for each in samples])
    median = float(np.median(wall))
    print(f"{len(wall)} all-reduces, {cores} processors, median {1e3 * median:.0f} ms")
    before = 0.0
    for end in _BINS:
        count = int(np.sum((wall > before * median) & (wall <= end * median)))
        print(f"  {before:4g} to {end:4g} medians: {count}")
        before = end
    print("the slowest: ms; of all processes together: ms running, ms ready to run, and how many ")
    print("were so on average; ms in which processors were idle; packets sent again")
    for each in sorted(samples, reverse=True)[:_SHOWN]:
        awake = (each.running + each.ready) / each.wall
        seconds, running, ready, idle = (f"{1e3 * part:7.0f}" for part in each[:4])
        print(f"  {seconds} {running} {ready} {awake:5.1f} {idle} {each.again:5d}")


if __name__ == "__main__":
    typer.run(main)
