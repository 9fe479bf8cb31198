"""End to end: gradient values per second through codec, protocol, switch and back.

    python -m benchmarks.allreduce [--size 1000000] [--workers 4] [--threads 1] [--json]

Four workers, the switch and both ends of the protocol share one core here, or with ``--threads``
the workers' codecs several: this is the speed of the emulator, not of a network. The ratio is to
dense, in the same run.
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.allreduce.collective import Collective
from innet.records import Report
from innet.scenarios.allreduce import generate

CASES = {
    "dense": ("dense", 1.0),
    "lhc, 1 % non-zero": ("lhc", 0.01),
    "topk 1 % of a dense gradient": ("topk", 1.0),
}


def main(  # noqa: PLR0917 - options of a command
    size: Annotated[int, typer.Option(help="Elements of each gradient.")] = 1_000_000,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 64,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 5,
    threads: Annotated[int, typer.Option(help="That run the workers' codecs.")] = 1,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    rates: dict[str, float] = {}
    remarks: dict[str, str] = {}
    for name, (codec, density) in CASES.items():
        gradients = generate(workers, size, density, np.random.default_rng(0))
        collective = Collective(
            workers=workers,
            codec=codec,
            values_per_packet=values,
            verify=False,
            threads=threads,
        )
        best: Report | None = None
        for _ in range(repeats + 1):
            _, report = collective.all_reduce(gradients)
            if best is None or report.seconds.total < best.seconds.total:
                best = report
        assert best is not None
        rates[name] = size / best.seconds.total
        seconds = best.seconds
        shares = {
            "encode, mean of the workers": seconds.encode,
            "switch": seconds.switch or 0.0,
            "protocol and transport": seconds.network - (seconds.switch or 0.0),
            "decode, mean of the workers": seconds.decode,
        }
        parts = ", ".join(f"{part} {each / seconds.total:.0%}" for part, each in shares.items())
        remarks[name] = f"{best.compression:.3g}x fewer bytes; {parts}"
    begun = time.perf_counter()
    np.sum(gradients, axis=0)
    rates["numpy sum, no network"] = size / (time.perf_counter() - begun)
    rows = [
        Row(name, rate, "values/s", remarks.get(name, ""), rate / rates["dense"])
        for name, rate in rates.items()
    ]
    title = f"all-reduce of {size:,} values, {workers} workers, {threads} threads for codecs"
    show(title, "against dense", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
