"""What admission, epochs, overflow detection and partial results cost: slots.p4 beside a bare form.

    python -m benchmarks.protection [--json]

``programs/bare.p4`` is slots.p4 without them; both verify and set checksums, and both get the same
packets, as ``benchmarks.switch`` makes them. Their batches are timed in turn, so that whatever else
the machine does strikes both alike.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.switch import BATCH, BATCHES, SLOTS, WORKERS, contributions
from innet import programs
from innet.core.packets import PacketBatch
from innet.protocol.admission import Job, Member
from innet.switch import Switch
from innet.wire import Endpoint

BARE = Path(__file__).parent / "programs" / "bare.json.gz"
VALUES = 64


def main(
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 15,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    job = Job([Member(i + 1, Endpoint.of_worker(i)) for i in range(WORKERS)], slots=SLOTS)
    switches = {
        "without protection (bare.p4)": bare_switch(job),
        "slots.p4": ready(programs.find("slots", VALUES).json(), job.commands()),
    }
    compare(job)
    best = dict.fromkeys(switches, float("inf"))
    for repeat in range(repeats + 1):
        batches = batches_of(job, repeat * BATCH * BATCHES // WORKERS)
        for name, switch in switches.items():
            begun = time.perf_counter()
            for batch in batches:
                switch.process_batch(batch)
            spent = time.perf_counter() - begun
            if repeat:  # the first warms up
                best[name] = min(best[name], spent)
    rates = {name: BATCH * BATCHES / seconds for name, seconds in best.items()}
    fastest = max(rates.values())
    rows = [Row(name, rate, "packets/s", "", fastest / rate) for name, rate in rates.items()]
    show(f"{VALUES} values, {WORKERS} workers", "the faster is", rows, as_json, "")


def bare_switch(job: Job) -> Switch:
    """The bare program with what it needs of a control plane."""
    commands = [
        line.replace("SlotsEgress", "BareEgress")
        for line in job.commands()
        if "admission" not in line
    ]
    return ready(json.loads(gzip.decompress(BARE.read_bytes())), commands)


def ready(document: dict[str, Any], commands: list[str]) -> Switch:
    """The built-in switch on the JIT, its tables filled."""
    switch = Switch.load(document, engine="jit")
    for command in commands:
        switch.command(command)
    return switch


def batches_of(job: Job, first_chunk: int) -> list[PacketBatch]:
    """All packets of one measurement."""
    everything = contributions(job, VALUES, first_chunk)
    return [everything.take(rows) for rows in np.split(np.arange(len(everything)), BATCHES)]


def compare(job: Job) -> None:
    """Both send the same packets in the same order, where no sum overflows."""
    batch = contributions(job, VALUES, 0, 2 * BATCH)
    one = ready(programs.find("slots", VALUES).json(), job.commands()).process_batch(batch)
    if one.to_packets() != bare_switch(job).process_batch(batch).to_packets():
        raise AssertionError("bare.p4 does not do what slots.p4 does")


if __name__ == "__main__":
    typer.run(main)
