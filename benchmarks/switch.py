"""Packets per second through slots.p4: the built-in switch, simple_switch, a loop written by hand.

    python -m benchmarks.switch [--values 64] [--json]

All get the same compiled program and the same packets: four workers' contributions, chunk by chunk,
so of four packets three are combined and dropped and one is answered to all four. simple_switch
takes part where it is installed; it reads and writes capture files, and its time is that between
the first and the last packet that it sends. The hand-written loop does all that the program does
(``slots_by_hand``); before anything is timed, its packets are compared with the JIT's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Row, show
from benchmarks.slots_by_hand import SlotsByHand
from innet import programs
from innet.bmv2 import simple_switch
from innet.core.engines import EngineName
from innet.core.errors import MissingToolError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch
from innet.wire import Endpoint, PacketLayout, pack

WORKERS = 4
SLOTS = 512
BATCH = 4096  # packets in one call
BATCHES = 16


def main(
    values: Annotated[int, typer.Option(help="Values per packet: 32, 64, 256 or 1024.")] = 64,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    program = programs.find("slots", values)
    document = program.json()
    job = job_of()
    frames = BATCH * BATCHES
    _compare(document, job, values)
    jit = ready(document, job, "jit")
    rates = {
        "built-in switch, jit": frames / _timed(jit.process_batch, job, values, repeats),
        "a loop written by hand": frames
        / _timed(SlotsByHand(job, values).process_batch, job, values, repeats),
    }
    few = 2048
    rates["built-in switch, interpret"] = few / _interpreted(document, job, values, few)
    try:
        rates[f"simple_switch {simple_switch.version()}"] = _simple_switch(document, job, values)
        note = ""
    except MissingToolError as error:
        note = str(error)
    size = PacketLayout(values, "udp").frame_size
    rates["copying the packets in memory"] = frames / _copying(
        contributions(job, values, 0), repeats
    )
    fastest = rates["built-in switch, jit"]
    rows = [
        Row(name, rate, "packets/s", f"{rate * size * 8 / 1e9:.3g} Gb/s in", fastest / rate)
        for name, rate in rates.items()
    ]
    show(f"{program.name}, {WORKERS} workers, batches of {BATCH}", "jit is", rows, as_json, note)


def job_of() -> Job:
    """The workers."""
    return Job([WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(WORKERS)], slots=SLOTS)


def contributions(
    job: Job, values: int, first_chunk: int, count: int = BATCH * BATCHES
) -> PacketBatch:
    """``count`` packets: every chunk from every worker, the workers in turn."""
    layout = PacketLayout(values, "udp")
    chunk = first_chunk + np.arange(count // WORKERS)
    rng = np.random.default_rng(0)
    frames = np.empty((count, layout.frame_size), np.uint8)
    for worker, member in enumerate(job.members):
        frames[worker::WORKERS] = pack(
            layout,
            member.endpoint,
            Endpoint.of_switch(),
            rng.integers(-(2**28), 2**28, (len(chunk), values), dtype=np.int32),
            operation=int(ReduceOp.SUM),
            job=job.number,
            epoch=job.epoch,
            sequence=(chunk + 1).astype(np.uint32),
            slot=(chunk % job.slots).astype(np.uint16),
            slot_version=(chunk // job.slots % 2).astype(np.uint8),
            worker=worker,
        )
    ports = np.array([member.port for member in job.members], np.int32)
    return PacketBatch.uniform(frames, np.tile(ports, len(chunk)))


def ready(document: dict[str, Any], job: Job, engine: EngineName) -> Switch:
    """A switch that has admitted the job."""
    switch = Switch.load(document, engine=engine)
    for command in job.commands():
        switch.command(command)
    return switch


def _best(action: Callable[[], object], prepare: Callable[[int], object], repeats: int) -> float:
    best = float("inf")
    for repeat in range(repeats + 1):
        prepare(repeat)
        begun = time.perf_counter()
        action()
        if repeat:  # the first warms up
            best = min(best, time.perf_counter() - begun)
    return best


def _compare(document: dict[str, Any], job: Job, values: int) -> None:
    """The hand-written loop and the compiled program send the same packets in the same order."""
    jit, hand = ready(document, job, "jit"), SlotsByHand(job, values)
    packets = contributions(job, values, 0, 2 * BATCH)
    one, other = jit.process_batch(packets), hand.process_batch(packets)
    if one.to_packets() != other.to_packets():
        raise AssertionError("the hand-written loop does not do what slots.p4 does")


def _timed(
    process: Callable[[PacketBatch], PacketBatch], job: Job, values: int, repeats: int
) -> float:
    batches: list[PacketBatch] = []

    def prepare(repeat: int) -> None:
        everything = contributions(job, values, repeat * BATCH * BATCHES // WORKERS)
        rows: NDArray[np.int64] = np.arange(len(everything))
        batches[:] = [everything.take(part) for part in np.split(rows, BATCHES)]

    def action() -> None:
        sent = sum(len(process(batch)) for batch in batches)
        assert sent == BATCH * BATCHES, sent

    return _best(action, prepare, repeats)


def _interpreted(document: dict[str, Any], job: Job, values: int, count: int) -> float:
    switch = ready(document, job, "interpret")
    packets = contributions(job, values, 0, count)
    begun = time.perf_counter()
    switch.process_batch(packets)
    return time.perf_counter() - begun


def _simple_switch(document: dict[str, Any], job: Job, values: int) -> float:
    count = 40_000
    answer = simple_switch.run(
        document, contributions(job, values, 0, count).to_packets(), job.commands()
    )
    assert sum(map(len, answer.packets.values())) == count
    return count / answer.seconds


def _copying(packets: PacketBatch, repeats: int) -> float:
    target = np.empty_like(packets.data)
    return _best(lambda: np.copyto(target, packets.data), lambda _: None, repeats)


if __name__ == "__main__":
    typer.run(main)
