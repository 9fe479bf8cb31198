"""Reduce-scatter, all-gather and the others: in processes beside gloo, and in simulated time.

    python -m benchmarks.collectives [--elements N] [--json]
    python -m benchmarks.collectives --simulated 100g --workers 64 [--json]

Each of four processes is a worker of one switch service, over shared memory, and a rank of gloo. A
collective by gloo and by the switch take turns; the time is that of the slowest process, and ratios
are of medians. gloo sums float32 as they are, the switch sums fixed-point words (codec dense).

With --simulated, thin packets that stand for those with values take simulated time; beside them
rings and NCCL's algorithms (direct and PAT; for all-reduces its double tree) with 4 and with 2
bytes a value (roce). More than 32 workers are in racks of 32, with trunks that carry all that they
send. A direct collective of more than 256 workers has too many messages, and is left out.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.ranks import KEY, Serving, dismiss, heard, ranks_of, running, serve
from innet.allreduce.collective import Collective
from innet.allreduce.sizes import RoundSizes
from innet.allreduce.worker import Worker
from innet.core.reduce_op import CollectiveOp, ReduceOp, SizedSegment
from innet.core.settings import default_program
from innet.core.shards import Shards
from innet.service import join
from innet.sim.baselines import simulate_messages
from innet.sim.messages import (
    ALGORITHMS,
    ALL_GATHERS,
    REDUCE_SCATTERS,
    MessageGraph,
    ring_all_reduce,
)

PROGRAM = "collectives"
NAMES = ("reduce-scatter", "all-gather", "broadcast", "all-reduce", "barrier")
BOTH = "both at the same time"  # a reduce-scatter and an all-gather, as in FSDP's backward pass
_MOST_DIRECT = 256  # workers, each of which sends to each
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


def _sizes(name: str, workers: int, elements: int) -> RoundSizes:
    """One round in which values travel as the collective asks."""
    if name == "all-reduce":
        return RoundSizes(elements, ((SizedSegment(ReduceOp.SUM, elements),),))
    operations = {
        "reduce-scatter": [CollectiveOp.REDUCE],
        "all-gather": [CollectiveOp.BROADCAST],
        BOTH: [CollectiveOp.REDUCE, CollectiveOp.BROADCAST],
    }
    segments = [
        SizedSegment(operation, each.stop - each.start, owner)
        for operation in operations[name]
        for owner, each in Shards.of(elements, range(workers)).pieces()
    ]
    return RoundSizes(elements, (tuple(segments),))


def _of_hosts(name: str, workers: int, elements: int, dtype: str) -> dict[str, MessageGraph]:
    """The same between hosts, by algorithm. A ring's two halves are its all-reduce."""
    if name == BOTH:
        return {"ring": ring_all_reduce(workers, elements, dtype=dtype)}
    if name == "all-reduce":
        builds: Mapping[str, Callable[..., MessageGraph]] = {
            each: ALGORITHMS[each] for each in ("ring", "nccl-tree")
        }
    else:
        builds = REDUCE_SCATTERS if name == "reduce-scatter" else ALL_GATHERS
        if workers > _MOST_DIRECT:
            builds = {each: build for each, build in builds.items() if each != "direct"}
    return {each: build(workers, elements, dtype=dtype) for each, build in builds.items()}


def _simulated(elements: int, workers: int, values: int, network: str) -> list[Row]:
    rows = []
    program = default_program(None, workers, "all-gather")
    for name in ("reduce-scatter", "all-gather", BOTH, "all-reduce"):
        collective = Collective(
            workers=workers, program=program, network=network, thin=True, values_per_packet=values
        )
        report = collective.all_reduce_sizes(_sizes(name, workers, elements))
        assert report.simulated is not None
        switched = report.simulated.seconds
        times = {
            (algorithm, dtype): simulate_messages(
                graph, network, transport="roce", racks=-(-workers // 32)
            ).seconds
            for dtype in ("float32", "bfloat16")
            for algorithm, graph in _of_hosts(name, workers, elements, dtype).items()
        }
        said = [
            f"{algorithm} {1e3 * wide:.4g} and {1e3 * times[algorithm, 'bfloat16']:.4g}"
            for (algorithm, dtype), wide in times.items()
            if dtype == "float32"
        ]
        remark = f"{', '.join(said)} ms; {report.bytes_sent:,} bytes"
        ratio = times["ring", "float32"] / switched
        rows.append(Row(name, 1e3 * switched, "ms", remark, ratio))
    return rows


def main(  # noqa: PLR0917 - options of a command
    elements: Annotated[int, typer.Option(help="Of each vector; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="Processes.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 1024,
    repeats: Annotated[int, typer.Option(help="Collectives of each kind.")] = 11,
    simulated: Annotated[str | None, typer.Option(help="A network instead, such as 100g.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    if simulated is not None:
        rows = _simulated(elements, workers, values, simulated)
        title = f"collectives of {elements:,} values, {workers} workers, {simulated}"
        show(title, "times as fast as a ring of float32", rows, as_json)
        return
    rows = _beside_gloo(elements, workers, values, repeats)
    title = f"collectives of {elements:,} values over shared memory, {workers} processes"
    show(title, "times as fast as gloo", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
