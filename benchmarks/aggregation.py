"""Packets per second through each aggregation program on the JIT, side by side.

    python -m benchmarks.aggregation [--values 64] [--json]

All get four workers' contributions, chunk by chunk, as a switch with the workers at its ports sees
them; the tree's leaf sends its sums up instead of results down. No server answers here: aggregators
of hashed.p4 are freed between batches, untimed, and what collides within a batch is passed on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Row, show
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.programs import catalogue
from innet.switch import Switch
from innet.topology import EmulatedNetwork, Plan, Request, make_plan
from innet.wire import pack

WORKERS = 4
SLOTS = 512
BATCH = 4096  # packets in one call
BATCHES = 16


@dataclass(frozen=True, slots=True)
class Case:
    """A switch of a network, and the plan that it is of."""

    name: str
    plan: Plan
    switch: Switch


def main(
    values: Annotated[int, typer.Option(help="Values per packet: 32, 64, 256 or 1024.")] = 64,
    repeats: Annotated[int, typer.Option(help="Of each batch the best of so many.")] = 10,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    star = Request(workers=WORKERS, window=SLOTS)
    there = {each.program for each in catalogue().values() if each.parameters["VALUES"] == values}
    cases = [
        _case(name, program, values, switch, request)
        for name, program, switch, request in (
            ("slots", "slots", "s1", star),
            ("harvest", "harvest", "s1", star),
            ("tree, one switch", "tree", "s1", _levels(WORKERS, 1)),
            ("tree, a leaf", "tree", "s2", _levels(2 * WORKERS, 2)),
            ("hashed", "hashed", "s1", star),
        )
        if program in there
    ]
    batches = {case.name: np.full(BATCHES, np.inf) for case in cases}
    sent = dict.fromkeys(batches, 0)
    for turn in range(repeats + 1):
        for case in cases:
            seconds, leaving = _run(case, turn * BATCHES * BATCH // WORKERS)
            if turn:  # the first one warms up
                np.minimum(batches[case.name], seconds, out=batches[case.name])
                sent[case.name] = leaving
    # Other work on the machine strikes a batch here and there, and seldom the same one each time.
    best = {name: float(seconds.sum()) for name, seconds in batches.items()}
    frames = BATCH * BATCHES
    rows = [
        Row(
            case.name,
            frames / best[case.name],
            "packets/s",
            f"{sent[case.name] / frames:.2f} sent for each",
            best[case.name] / best["slots"],
        )
        for case in cases
    ]
    title = f"{values} values, {WORKERS} workers at the switch, batches of {BATCH}"
    show(title, "time of slots", rows, as_json)


def _levels(workers: int, levels: int) -> Request:
    return Request(workers=workers, window=SLOTS, racks=levels, depth=levels)


def _case(name: str, program: str, values: int, switch: str, request: Request) -> Case:
    plan = make_plan(program, values, request)
    return Case(name, plan, EmulatedNetwork(plan).switches[switch])


def _run(case: Case, first_chunk: int) -> tuple[NDArray[np.float64], int]:
    """Seconds for each of ``BATCHES`` batches, and how many packets left."""
    seconds, leaving = np.zeros(BATCHES), 0
    for number in range(BATCHES):
        batch = _batch(case.plan, first_chunk + number * BATCH // WORKERS)
        begun = time.perf_counter()
        leaving += len(case.switch.process_batch(batch))
        seconds[number] = time.perf_counter() - begun
        if case.plan.aggregation == "hashed":
            case.switch.registers["aggregators.key"][:] = 0
    return seconds, leaving


def _batch(plan: Plan, first_chunk: int) -> PacketBatch:
    """Every chunk from each of the first workers, the workers in turn."""
    layout, job = plan.layout, plan.job
    chunk = first_chunk + np.arange(BATCH // WORKERS)
    rng = np.random.default_rng(0)
    words = rng.integers(-1000, 1000, (len(chunk), layout.values), dtype=np.int32)
    frames = np.empty((BATCH, layout.frame_size), np.uint8)
    for worker, host in enumerate(plan.workers[:WORKERS]):
        frames[worker::WORKERS] = pack(
            layout,
            host.endpoint,
            host.peer,
            words,
            operation=ReduceOp.SUM,
            job=job.number,
            epoch=job.epoch,
            sequence=(chunk + 1).astype(np.uint32),
            slot=(chunk % SLOTS).astype(np.uint16),
            slot_version=(chunk // SLOTS & 1).astype(np.uint8),
            worker=worker,
        )
    return PacketBatch.uniform(
        frames, np.tile(np.arange(1, WORKERS + 1, dtype=np.int32), len(chunk))
    )


if __name__ == "__main__":
    typer.run(main)
