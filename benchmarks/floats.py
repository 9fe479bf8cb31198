"""Packets per second of float32 through fpisa.p4, beside integers and a loop written by hand.

    python -m benchmarks.floats [--values 64] [--json]

The packets are those of ``benchmarks.switch``: four workers' contributions, chunk by chunk. The
hand-written loop does all that the program does with float32 (``slots_by_hand``); before anything
is timed, its packets are compared with the JIT's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.slots_by_hand import SlotsByHand
from benchmarks.switch import BATCH, BATCHES, WORKERS, job_of, ready
from innet import programs
from innet.core.float_sums import FORMATS, FloatFormat, of_floats, to_words
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.protocol.admission import Job
from innet.wire import Endpoint, PacketLayout, pack

_COUNT = BATCH * BATCHES


def main(
    values: Annotated[int, typer.Option(help="Values per packet: 32 or 64.")] = 64,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    job = job_of()
    switch = ready(programs.find("fpisa", values).json(), job, "jit")
    slots = ready(programs.find("slots", values).json(), job, "jit")
    hand = SlotsByHand(job, values, floats=True)
    float32 = FORMATS["float32"]
    packets = contributions(job, values, float32, 0)
    if switch.process_batch(packets).to_packets() != hand.process_batch(packets).to_packets():
        raise AssertionError("the hand-written loop does not do what fpisa.p4 does")
    cases = {
        "fpisa, float32": (switch.process_batch, float32),
        "a loop written by hand, float32": (hand.process_batch, float32),
        "fpisa, bf16, two in a word": (switch.process_batch, FORMATS["bf16"]),
        "fpisa, fp16, two in a word": (switch.process_batch, FORMATS["fp16"]),
        "fpisa, integers": (switch.process_batch, None),
        "slots, integers": (slots.process_batch, None),
    }
    best = dict.fromkeys(cases, np.inf)
    first_chunk = 0
    for _ in range(repeats + 1):  # in turns, as other work on the machine strikes all alike
        for name, (process, form) in cases.items():
            first_chunk += _COUNT // WORKERS
            packets = contributions(job, values, form, first_chunk)
            best[name] = min(best[name], _seconds(process, packets))
    first = best["fpisa, float32"]
    rows = [
        Row(
            name,
            _COUNT / seconds,
            "packets/s",
            f"{_COUNT * values * (1 if form is None else form.per_word) / seconds / 1e6:.0f} M/s",
            seconds / first,
        )
        for (name, (_, form)), seconds in zip(cases.items(), best.values(), strict=True)
    ]
    show(f"{values} words, {WORKERS} workers, batches of {BATCH}", "float32 is", rows, as_json)


def contributions(job: Job, values: int, form: FloatFormat | None, first_chunk: int) -> PacketBatch:
    """Every chunk from every worker, the workers in turn; of normal numbers, or of integers."""
    layout = PacketLayout(values, "udp", adds_floats=True)
    chunk = first_chunk + np.arange(_COUNT // WORKERS)
    rng = np.random.default_rng(0)
    frames = np.empty((_COUNT, layout.frame_size), np.uint8)
    for worker, member in enumerate(job.members):
        words = rng.integers(-(2**28), 2**28, (len(chunk), values), dtype=np.int32)
        if form is not None:
            numbers = rng.standard_normal(words.size * form.per_word, np.float32)
            words = to_words(form, of_floats(form, numbers)).reshape(words.shape)
        frames[worker::WORKERS] = pack(
            layout,
            member.endpoint,
            Endpoint.of_switch(),
            words,
            operation=int(ReduceOp.SUM if form is None else form.operation),
            job=job.number,
            epoch=job.epoch,
            sequence=(chunk + 1).astype(np.uint32),
            slot=(chunk % job.slots).astype(np.uint16),
            slot_version=(chunk // job.slots % 2).astype(np.uint8),
            worker=worker,
        )
    ports = np.array([member.port for member in job.members], np.int32)
    return PacketBatch.uniform(frames, np.tile(ports, len(chunk)))


def _seconds(process: Callable[[PacketBatch], PacketBatch], packets: PacketBatch) -> float:
    parts = [packets.take(part) for part in np.split(np.arange(_COUNT), BATCHES)]
    begun = time.perf_counter()
    sent = sum(len(process(part)) for part in parts)
    seconds = time.perf_counter() - begun
    assert sent == _COUNT, sent
    return seconds


if __name__ == "__main__":
    typer.run(main)
