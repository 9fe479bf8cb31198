"""Reduce-scatter, all-gather and the others: in processes beside gloo, and in simulated time.

    python -m benchmarks.collectives [--elements N] [--json]
    python -m benchmarks.collectives --simulated [--json]

Each of four processes is a worker of one switch service, over shared memory, and a rank of gloo. A
collective by gloo and by the switch take turns; the time is that of the slowest process, and ratios
are of medians. gloo sums float32 as they are, the switch sums fixed-point words (codec dense).

With --simulated packets of 256 values, without their values, take simulated time; beside them a
ring takes the same steps with 4 and with 2 bytes for each value (roce, packets of 4 KiB).
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.ranks import KEY, Serving, dismiss, heard, ranks_of, running, serve
from innet.allreduce.worker import Worker
from innet.service import join

PROGRAM = "collectives"
NAMES = ("reduce-scatter", "all-gather", "broadcast", "all-reduce", "barrier")
_FIRST = 2  # repetitions that are not counted


@dataclass(frozen=True, slots=True)
class _Rank:
    """What a process is told."""

    rank: int
    ranks: int
    elements: int
    switch: str
    store: str


def _rank(told: Connection, task: _Rank) -> None:
    """Do what is told, by gloo or by the switch, until told None."""
    import torch  # noqa: PLC0415 - only here; the rest runs without it
    from torch import distributed  # noqa: PLC0415 - as torch

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{task.store}", rank=task.rank, world_size=task.ranks
    )
    rng = np.random.default_rng(task.rank)
    tensor = torch.from_numpy(rng.standard_normal(task.elements, np.float32)).clone()
    shard = tensor[: task.elements // task.ranks].clone()
    whole = tensor.clone()
    values, part = tensor.numpy(), shard.numpy()
    with join(
        task.switch, job="job", worker=task.rank, workers=task.ranks, key=KEY, transport="shm"
    ) as session:
        worker = Worker(session.plan, task.rank, codec="dense", transport=session.transport)
        of_gloo: dict[str, Callable[[], Any]] = {
            "reduce-scatter": lambda: distributed.reduce_scatter_tensor(shard, tensor),
            "all-gather": lambda: distributed.all_gather_into_tensor(whole, shard),
            "broadcast": lambda: distributed.broadcast(whole, 0),
            "all-reduce": lambda: distributed.all_reduce(whole),
            "barrier": distributed.barrier,
        }
        of_switch: dict[str, Callable[[], Any]] = {
            "reduce-scatter": lambda: worker.reduce_scatter(values),
            "all-gather": lambda: worker.all_gather(part),
            "broadcast": lambda: worker.broadcast(values),
            "all-reduce": lambda: worker.all_reduce(values),
            "barrier": worker.barrier,
        }
        told.send(None)
        while (asked := told.recv()) is not None:
            by_switch, name = asked
            doing = (of_switch if by_switch else of_gloo)[name]
            distributed.barrier()
            begun = time.perf_counter()
            doing()
            told.send((begun, time.perf_counter()))
        told.send(None)
    distributed.destroy_process_group()


def _beside_gloo(elements: int, ranks: int, values: int, repeats: int) -> list[Row]:
    taken: dict[tuple[bool, str], list[float]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        task = Serving(values, workers=ranks, program=PROGRAM)
        switch = stack.enter_context(running(serve, task))
        tasks = [
            _Rank(rank, ranks, elements, str(switch.address), f"{folder}/store")
            for rank in range(ranks)
        ]
        ends = stack.enter_context(ranks_of(_rank, tasks))
        for repeat in range(repeats + _FIRST):
            for name in NAMES:
                for by_switch in (False, True):
                    for here in ends:
                        here.send((by_switch, name))
                    times = heard(ends)
                    if repeat >= _FIRST:
                        seconds = max(end for _, end in times) - max(begun for begun, _ in times)
                        taken.setdefault((by_switch, name), []).append(seconds)
        dismiss(ends)
    rows = []
    for name in NAMES:
        gloo, switched = (statistics.median(taken[by_switch, name]) for by_switch in (False, True))
        rows.append(Row(name, 1e3 * switched, "ms", f"gloo {1e3 * gloo:.3g} ms", gloo / switched))
    return rows


def main(
    elements: Annotated[int, typer.Option(help="Of each vector; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="Processes.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 1024,
    repeats: Annotated[int, typer.Option(help="Collectives of each kind.")] = 11,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    rows = _beside_gloo(elements, workers, values, repeats)
    title = f"collectives of {elements:,} values over shared memory, {workers} processes"
    show(title, "times as fast as gloo", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
