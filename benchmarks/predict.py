"""Mininet beside the simulated network: ``innet net predict`` over rates, workers and queues.

    sudo python -m benchmarks.predict [--case CASE ...] [--workers 2 ...] [--rounds 5] [--json FILE]

Each case is one description, run in Mininet and then in simulated time. A row shows the goodput of
both, and the ratio of simulated to measured time, of the fastest of Mininet's all-reduces: whatever
else runs on the machine makes Mininet slower, and never faster. ``median`` is that of all of them.
``busy`` is the part of the machine's cores that was busy; where it is 1, links are not what limits
Mininet. ``cores`` are those that workers and switches used, ``µs`` what a packet on a link took of
one. Sums are exact in all rows, or the benchmark fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from innet.core.errors import InnetError
from innet.mininet.prediction import predict
from innet.mininet.settings import NetSettings
from innet.records import Machine, PredictionRecord
from innet.scenarios.prediction import Calibration
from innet.sim.network import goodput_bound

_SECONDS = 1.5  # that an all-reduce takes by the links' rate, many times what passes at once


@dataclass(frozen=True, slots=True)
class Case:
    """A network, for any number of workers.

    Attributes:
        rate: Mbit/s.
        values: of a packet.
        queue, window: packets.
        others: of the settings.
    """

    rate: float
    values: int
    queue: int = 1024
    window: int = 512
    others: dict[str, Any] = field(default_factory=dict)

    def settings(self, workers: int, rounds: int) -> NetSettings:
        """The settings; a job's elements take the links ``_SECONDS``, or jobs share them."""
        jobs = self.others.get("jobs", 1)
        given: dict[str, Any] = {
            "workers": workers,
            "rate": float(self.rate),
            "values_per_packet": self.values,
            "queue": self.queue,
            "window": self.window,
            "rounds": rounds,
        }
        chosen = NetSettings(**given, **self.others)
        frame = chosen.plan().layout.frame_size
        bits = _SECONDS * goodput_bound(self.values, frame, self.rate * 1e6) / jobs
        elements = round(bits / 32 / self.values) * self.values
        return chosen.model_copy(update={"size": elements})


_TWO_JOBS = {"topology": "dumbbell", "jobs": 2}

CASES = {
    "5m": Case(5, 64),
    "20m": Case(20, 64),
    "50m": Case(50, 64),
    "100m": Case(100, 64),
    "100m-1024": Case(100, 1024, queue=256, window=128),
    "1g-1024": Case(1000, 1024),
    "200m-1024": Case(200, 1024, queue=256, window=128),
    "10m": Case(10, 64),
    # Jobs that meet at a trunk, and queues that hold half of a window or of two windows.
    "5m-short": Case(5, 64, queue=32, window=64),
    "5m-loss": Case(5, 64, window=64, others={"loss": 0.001}),
    "5m-trunk": Case(5, 64, queue=256, window=64, others=_TWO_JOBS),
    "5m-trunk-short": Case(5, 64, queue=64, window=64, others=_TWO_JOBS),
    "20m-short": Case(20, 64, queue=32, window=64),
    "20m-loss": Case(20, 64, window=64, others={"loss": 0.001}),
    "20m-trunk": Case(20, 64, queue=256, window=64, others=_TWO_JOBS),
    "20m-trunk-short": Case(20, 64, queue=64, window=64, others=_TWO_JOBS),
}


def row(name: str, record: PredictionRecord) -> str:
    """A line of the table."""
    mininet, simulated = record.mininet, record.simulated
    bits = 32 * record.elements / 1e6
    best, middle = min(mininet.seconds), median(mininet.seconds)
    predicted = median(simulated.seconds)
    return (
        f"{name:<16} {record.workers:>3} {bits / best:>9.1f} {bits / predicted:>9.1f} "
        f"{predicted / best:>6.3f} {predicted / middle:>7.3f} {record.busy:>5.0%} "
        f"{record.cores:>5.2f} {record.packet_seconds * 1e6:>5.1f} "
        f"{mininet.dropped + mininet.lost:>7,} {simulated.dropped + simulated.lost:>7,} "
        f"{mininet.retransmissions:>7,} {simulated.retransmissions:>7,} {mininet.packets:>9,} "
        f"{record.idle_seconds * 1e6:>6.0f}"
    )


_HEAD = (
    f"{'case':<16} {'w':>3} {'Mininet':>9} {'simulated':>9} {'best':>6} {'median':>7} {'busy':>5} "
    f"{'cores':>5} {'µs':>5} "
    f"{'lost M':>7} {'lost s':>7} {'again M':>7} {'again s':>7} {'packets':>9} {'idle':>6}"
)


def main(
    case: Annotated[list[str], typer.Option(help="Only these, by name.")] = [],  # noqa: B006
    workers: Annotated[list[int], typer.Option(min=1, max=32)] = [2, 4, 8],  # noqa: B006
    rounds: Annotated[int, typer.Option(min=1, help="All-reduces of each case.")] = 5,
    calibrate: Annotated[
        int | None,
        typer.Option(
            help="Run each case with so many workers first, and predict the others by what packets "
            "took of the cores there."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File for the records, one a line, appended.")
    ] = None,
) -> None:
    """Run the cases, and print a row for each."""
    if unknown := set(case) - CASES.keys():
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}.")
    console = Console(width=120, highlight=False)
    console.print(
        "goodput in Mbit/s; lost = lost or dropped, M in Mininet, s simulated; idle in µs"
    )
    console.print(_HEAD, style="bold")
    for name in case or CASES:
        known = None
        if calibrate is not None:
            first = predict(CASES[name].settings(calibrate, rounds))
            known = Calibration(first.packet_seconds, first.cores)
            console.print(
                f"{name:<16} {calibrate:>3} {1e6 * known.packet_seconds:.2f} µs of a core per "
                f"packet, {known.cores:.2f} cores",
                highlight=False,
            )
        for number in workers:
            try:
                record = predict(CASES[name].settings(number, rounds), calibration=known)
            except InnetError as error:
                console.print(f"{name:<16} {number:>3} {error}", markup=False)
                continue
            if record.exact is False:
                raise SystemExit(f"{name}, {number} workers: a sum in Mininet is wrong.")
            console.print(row(name, record))
            if json_file is not None:
                with json_file.open("a", encoding="utf-8") as file:
                    document = json.loads(record.model_dump_json())
                    file.write(json.dumps({"case": name, **document}) + "\n")
    machine = Machine.here().model_dump(mode="json")
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()), style="dim")


if __name__ == "__main__":
    typer.run(main)
