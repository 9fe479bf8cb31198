"""All-reduces of the processes of one machine: shared memory and UDP beside gloo.

    taskset -c 0,1 python -m benchmarks.shared_memory [--elements 6553600] [--json]

Each of four processes is a rank of gloo and a worker of a switch service for each row, as in
``benchmarks.service``. They all-reduce in turns, so that whatever else the machine does meets all.
Goals are those of dense sums as fast as gloo, LHC of 1 % of independent supports twice, and
ScaleCom three times as fast.

Then one process does the parts of each codec's all-reduce one after the other, so that it never
waits for another one: the codecs of all workers, the switch's program, and as many copies as
packets are written and copied. Two cores cannot be done with their sum sooner than in half of it.
And two threads copy as many arrays as gradients, sums and residuals are: no implementation moves
less.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.ranks import GLOO, Ranks, rows
from benchmarks.service_cases import Case, Kind, gradient
from innet.codecs import CodecSpec, build_codec
from innet.codecs.decode_once import DecodeOnce
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, combine
from innet.core.settings import ServiceTransport
from innet.topology import EmulatedNetwork, Request, make_plan
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


def _seconds(work: Callable[[], float], repeats: int) -> float:
    """The median of what ``work`` says."""
    found = [work() for _ in range(repeats + 1)]
    return statistics.median(found[1:])  # the first one warms up


class _Coding:
    """Encodes and decodes for all workers, one by one. What is equal is decoded once, as it is by
    workers of one machine.

    Attributes:
        words: of a worker in the last all-reduce.
    """

    def __init__(self, codec: CodecSpec, kind: Kind, elements: int, workers: int) -> None:
        self.words = 0
        decoding = DecodeOnce(workers)
        self._given = [gradient(kind, elements, each, workers, False) for each in range(workers)]
        self._codecs = [
            build_codec(codec, worker=each, decoding=decoding) for each in range(workers)
        ]

    def __call__(self) -> float:
        """Seconds of a processor."""
        workers, self.words, seconds = len(self._codecs), 0, 0.0
        steps = [
            each.exchange(mine, workers)
            for each, mine in zip(self._codecs, self._given, strict=True)
        ]
        answers: list[Any] = [None] * workers
        while True:
            begun = time.process_time()
            sent = [_next(each, answer) for each, answer in zip(steps, answers, strict=True)]
            seconds += time.process_time() - begun
            if sent[0] is None:
                return seconds
            combined = [
                combine(parts[0].operation, [part.words for part in parts])
                for parts in zip(*sent, strict=True)
            ]
            self.words += sum(each.size for each in combined)
            answers = [[each.copy() for each in combined] for _ in range(workers)]


def _next(steps: Any, answer: Any) -> Any:
    """The next segments; None at the end."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _switching(words: int, workers: int, values: int) -> Callable[[], float]:
    """Run the switch's program for all packets of so many words of each worker, and return how long
    it ran: packets are made in between.
    """
    plan = make_plan("slots", values, Request(workers=workers, window=_WINDOW))
    switch = EmulatedNetwork(plan).switches["s1"]
    layout, job = plan.layout, plan.job
    numbers = np.random.default_rng(0).integers(-1000, 1000, (_WINDOW, values), dtype=np.int32)
    ports = np.repeat(np.arange(1, workers + 1, dtype=np.int32), _WINDOW)
    batches = -(-words // (values * _WINDOW))
    begun = 0  # chunks

    def work() -> float:
        nonlocal begun
        seconds = 0.0
        for _ in range(batches):
            chunks = begun + np.arange(_WINDOW)
            begun += _WINDOW
            frames = np.concatenate([
                pack(
                    layout, host.endpoint, host.peer, numbers,
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
        return seconds * words / (batches * values * _WINDOW)  # the last batch is not full

    return work


def _copying(words: int, workers: int) -> Callable[[], float]:
    """Copy all words as often as packets must be."""
    source, target = (np.zeros(workers * words, np.int32) for _ in range(2))

    def work() -> float:
        begun = time.process_time()
        for _ in range(_COPIES):
            target[:] = source
        return time.process_time() - begun

    return work


def _moving(elements: int, workers: int, times: int) -> Callable[[], float]:
    """Copy an array for each worker so many times, on two cores at once; seconds that pass."""
    pairs = [[np.zeros(elements, np.float32) for _ in range(2)] for _ in range(workers)]

    def copy(pair: list[Any]) -> None:
        for _ in range(times):
            np.copyto(pair[1], pair[0])

    pool = ThreadPoolExecutor(2)

    def work() -> float:
        begun = time.perf_counter()
        list(pool.map(copy, pairs))
        return time.perf_counter() - begun

    return work


def _alone(  # noqa: PLR0917 - what a command was told
    codec: CodecSpec,
    kind: Kind,
    elements: int,
    workers: int,
    values: int,
    repeats: int,
    gloo: float,
) -> list[Row]:
    """The parts of a codec's all-reduce; ``gloo`` is its time in ms."""
    coding = _Coding(codec, kind, elements, workers)
    encoded = 1e3 * _seconds(coding, repeats)
    words = coding.words
    found = {
        "encode and decode of all workers": encoded,
        "the switch's program": 1e3 * _seconds(_switching(words, workers, values), repeats),
        f"{_COPIES} copies of all packets": 1e3 * _seconds(_copying(words, workers), repeats),
    }
    total = sum(found.values())
    rows = [Row(name, each, "ms", "", each / total) for name, each in found.items()]
    half = f"no more than {2 * gloo / total:.3g} times as fast as gloo here"
    rows.append(Row("half of the sum, for two cores", total / 2, "ms", half, 0.5))
    # A gradient is read and a sum written; a residual is read and written, too.
    times = 2 if build_codec(codec).keeps_state else 1
    moved = 1e3 * _seconds(_moving(elements, workers, times), repeats)
    least = f"no more than {gloo / moved:.3g} times as fast as gloo"
    rows.append(Row("gradients, sums and residuals moved", moved, "ms", least, moved / total))
    return rows


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
        found = ranks.measure([GLOO, *cases], repeats)
    title = f"all-reduce of {elements:,} values, {workers} processes of one machine"
    table = rows(found)
    show(title, "times as fast as gloo", table, as_json)
    for name, (codec, kind) in _CODECS.items():
        if any(case.startswith(f"{name}, ") for case in cases):
            bound = _alone(codec, kind, elements, workers, values, repeats, table[0].rate)
            show(f"{name}, part by part in one process", "of the sum", bound, as_json)


if __name__ == "__main__":
    typer.run(main)
