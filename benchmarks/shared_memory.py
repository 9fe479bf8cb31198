"""All-reduces of the processes of one machine: shared memory and UDP beside gloo.

    taskset -c 0,1 python -m benchmarks.shared_memory [--elements 6553600] [--json]

Each of four processes is a rank of gloo and a worker of a switch service for each row, as in
``benchmarks.service``. They all-reduce in turns, so that whatever else the machine does meets all.
Goals are those of dense sums as fast as gloo, LHC of 1 % of independent supports twice, and
ScaleCom three times as fast.

Then one process does the parts of a dense all-reduce one after the other, with nobody to wait for:
the codecs of all workers, the switch's program, and as many copies as packets are written and
copied. Two cores cannot be done with their sum sooner than in half of it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.ranks import GLOO, Ranks, rows
from benchmarks.service_cases import Case, Kind, gradient
from innet.codecs import CodecSpec, build_codec
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.core.settings import ServiceTransport
from innet.topology import Emulation, Request, make_plan
from innet.wire import pack

_BITMAP = {"name": "lhc", "index": "bitmap"}
_CODECS: dict[str, tuple[CodecSpec, Kind]] = {
    "dense": ("dense", Kind.FULL),
    "LHC of 1 %, independent supports": ("lhc", Kind.OWN_PLACES),
    "LHC of 1 %, independent supports, a bitmap": (
        {"preset": "lhc", "carrier": _BITMAP},
        Kind.OWN_PLACES,
    ),
    "ScaleCom 100 x": ("scalecom", Kind.FULL),
}
_TRANSPORTS: tuple[ServiceTransport, ...] = ("shm", "udp")


# Each worker's packets are written into its ring and copied by the switch; and its results are
# written by the program, copied into its ring, and read into words.
_COPIES = 5
_WINDOW = 64


def _seconds(work: Callable[[], float | None], repeats: int) -> float:
    """The median of so many, of what ``work`` says or else of all of it."""
    found = []
    for _ in range(repeats + 1):  # the first one warms up
        begun = time.process_time()
        said = work()
        found.append(time.process_time() - begun if said is None else said)
    return statistics.median(found[1:])


def _coding(codec: CodecSpec, kind: Kind, elements: int, workers: int) -> Callable[[], None]:
    """Encode and decode for all workers, one by one, each of which is alone with its gradient."""
    given = [gradient(kind, elements, worker, workers, False) for worker in range(workers)]
    codecs = [build_codec(codec) for _ in range(workers)]

    def work() -> None:
        for each, mine in zip(codecs, given, strict=True):
            steps = each.exchange(mine, 1)
            try:
                segments = next(steps)
                while True:
                    segments = steps.send([segment.words for segment in segments])
            except StopIteration:
                pass

    return work


def _switching(elements: int, workers: int, values: int) -> Callable[[], float]:
    """Run the switch's program for all packets of a dense all-reduce, and return how long it ran:
    packets are made in between.
    """
    plan = make_plan("slots", values, Request(workers=workers, window=_WINDOW))
    switch = Emulation(plan).switches["s1"]
    layout, job = plan.layout, plan.job
    words = np.random.default_rng(0).integers(-1000, 1000, (_WINDOW, values), dtype=np.int32)
    ports = np.repeat(np.arange(1, workers + 1, dtype=np.int32), _WINDOW)
    batches = -(-elements // (values * _WINDOW))
    begun = 0  # chunks

    def work() -> float:
        nonlocal begun
        seconds = 0.0
        for _ in range(batches):
            chunks = begun + np.arange(_WINDOW)
            begun += _WINDOW
            frames = np.concatenate([
                pack(
                    layout, host.endpoint, host.peer, words,
                    operation=ReduceOp.SUM, job=job.number, epoch=job.epoch,
                    sequence=(chunks + 1).astype(np.uint32),
                    slot=(chunks % _WINDOW).astype(np.uint16),
                    slot_version=(chunks // _WINDOW & 1).astype(np.uint8), worker=worker,
                )
                for worker, host in enumerate(plan.workers)
            ])  # fmt: skip
            packets = PacketBatch.uniform(frames, ports)
            before = time.process_time()
            left = len(switch.process_batch(packets))
            seconds += time.process_time() - before
            assert left == len(frames), "each worker gets a result for each packet"
        return seconds

    return work


def _copying(elements: int, workers: int) -> Callable[[], None]:
    """Copy all gradients as often as packets of a dense all-reduce must be."""
    source, target = (np.zeros(workers * elements, np.int32) for _ in range(2))

    def work() -> None:
        for _ in range(_COPIES):
            target[:] = source

    return work


def _alone(elements: int, workers: int, values: int, repeats: int) -> list[Row]:
    parts: dict[str, Callable[[], float | None]] = {
        "encode and decode of all workers": _coding("dense", Kind.FULL, elements, workers),
        "the switch's program": _switching(elements, workers, values),
        f"{_COPIES} copies of all gradients": _copying(elements, workers),
    }
    found = {name: 1e3 * _seconds(work, repeats) for name, work in parts.items()}
    total = sum(found.values())
    rows = [Row(name, each, "ms", "", each / total) for name, each in found.items()]
    return [*rows, Row("half of the sum, for two cores", total / 2, "ms", "", 0.5)]


def main(  # noqa: PLR0917 - options of a command
    elements: Annotated[int, typer.Option(help="Of each gradient; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 1024,
    repeats: Annotated[int, typer.Option(help="All-reduces of each kind.")] = 11,
    window: Annotated[int | None, typer.Option(help="Packets under way, of each worker.")] = None,
    only: Annotated[str, typer.Option(help="Cases whose names contain this.")] = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print how many times as fast as gloo each is."""
    cases = {
        f"{name}, {transport}": Case(codec, kind, transport=transport)
        for name, (codec, kind) in _CODECS.items()
        for transport in _TRANSPORTS
        if only in f"{name}, {transport}"
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Ranks(
            cases,
            size=elements,
            workers=workers,
            values=values,
            alike=False,
            folder=folder,
            window=window,
        ) as ranks,
    ):
        found = rows(ranks.measure([GLOO, *cases], repeats))
    title = f"all-reduce of {elements:,} values, {workers} processes of one machine"
    show(title, "times as fast as gloo", found, as_json)
    if any(name.startswith("dense") for name in cases):
        bound = _alone(elements, workers, values, repeats)
        show("dense, part by part in one process", "of the sum", bound, as_json)


if __name__ == "__main__":
    typer.run(main)
