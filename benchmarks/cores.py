"""The switch on several threads: packets a second through shared memory, while workers are idle.

    python -m benchmarks.cores [--values 256] [--threads 2] [--repeats 100] [--json]

A service runs for each number of threads. The packets of all workers for all slots are written into
the rings before; only what the switch does with them is timed, and meanwhile workers sleep. The
services take turns, so that whatever else the machine does meets all. All sums are checked.
As many separate services with one thread each, at once, say how much the machine's cores can do.

On a machine that does other things, too: ``chrt -f 1 python -m benchmarks.cores``, as root.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Row, show
from innet.core.numba_cache import njit
from innet.core.reduce_op import ReduceOp
from innet.core.settings import ServiceSettings, validate
from innet.service import join
from innet.service.server import SwitchService
from innet.transport.rings import (
    HEADER_AT,
    WorkerRing,
    arrived,
    publish,
    release,
    row_of,
)
from innet.transport.system_calls import monotonic, wait_readable
from innet.wire import pack

# Where they are in the innet header; the slot's version follows it.
_SEQUENCE, _SLOT, _CHECKSUM = 8, 12, 30
_SECONDS = 20.0
_FIRST = 3  # turns that are not counted


class _Served:
    """A service in this process, with workers that share memory with it."""

    def __init__(
        self, stack: contextlib.ExitStack, threads: int, values: int, jobs: int, workers: int
    ):
        settings = {
            "listen": "127.0.0.1:0",
            "values_per_packet": values,
            "jobs": jobs,
            "workers_max": workers,
            "threads": threads,
            "transport": "shm",
        }
        self.service = SwitchService(validate(ServiceSettings, settings))
        running = threading.Thread(target=self.service.run)
        running.start()
        stack.callback(running.join)
        stack.callback(self.service.stop)
        address = str(self.service.address)
        everybody = list(itertools.product(range(jobs), range(workers)))
        with ThreadPoolExecutor(len(everybody)) as pool:
            members = list(
                pool.map(
                    lambda who: join(address, job=f"{who[0]}", worker=who[1], workers=workers),
                    everybody,
                )
            )
        for each in members:
            stack.callback(each.leave)
        self.plans = [(each.plan, each.worker) for each in members]
        self.layout, self.slots = self.plans[0][0].layout, self.plans[0][0].job.slots
        links: list[Any] = [each.transport._link for each in members]
        self.links: list[Any] = [each.ring for each in links]
        rng = np.random.default_rng(0)
        shape = (workers, self.slots, values)
        self.words = rng.integers(-1000, 1000, shape, dtype=np.int32)
        self.packets = 2 * self.slots * len(members)
        self._scratch = np.zeros(4, np.int64)
        self._write()

    def _write(self) -> None:
        """A packet of each worker for each slot, as often as the rings have room for."""
        slot = np.arange(self.slots)
        for (plan, worker), ring in zip(self.plans, self.links, strict=True):
            host = plan.workers[worker]
            frames = pack(
                self.layout, host.endpoint, host.peer, self.words[worker],
                operation=ReduceOp.SUM, job=plan.job.number, epoch=plan.job.epoch,
                sequence=slot.astype(np.uint32), slot=slot.astype(np.uint16),
                slot_version=np.zeros(self.slots, np.uint8), worker=worker,
            )[:, self.layout.header_offset :]  # fmt: skip
            assert ring.rows % (2 * self.slots) == 0
            for number in range(ring.rows):
                frame = frames[number % self.slots]
                at = row_of(ring.rows, ring.stride, number, False)
                ring.memory[at : at + 4].view(np.int32)[0] = len(frame)
                ring.memory[at + HEADER_AT : at + HEADER_AT + len(frame)] = frame

    def prepare(self) -> None:
        """Write two packets of each worker for each slot, of which the switch knows nothing yet."""
        for ring in self.links:
            renumber(ring, self.slots)

    def turn(self) -> tuple[float, float]:
        """The packets of ``prepare``; seconds that passed, and those of processors."""
        count, rings = 2 * self.slots, tuple(self.links)
        used, begun = time.process_time(), time.perf_counter()
        for ring in rings:
            publish(ring, int(ring.state[0]) + count, self._scratch)
        done = wait(rings, count, self._scratch, _SECONDS)
        passed, used = time.perf_counter() - begun, time.process_time() - used
        if not done:
            raise TimeoutError(f"the switch did not answer within {_SECONDS:g} s")
        return passed, used

    def check(self) -> None:
        """Take the results, and compare them with the sums."""
        expected = self.words.sum(0)
        at = HEADER_AT + self.layout.values_offset - self.layout.header_offset
        for ring in self.links:
            seen = []
            for number in range(int(ring.state[2]), int(ring.state[2]) + 2 * self.slots):
                begin = row_of(ring.rows, ring.stride, number, True)
                slot_at = begin + HEADER_AT + _SLOT
                slot = int(ring.memory[slot_at : slot_at + 2].view(">u2")[0])
                found = ring.memory[begin + at : begin + at + 4 * self.words.shape[2]].view(">i4")
                assert np.array_equal(found, expected[slot]), f"the sum of slot {slot}"
                seen.append(slot)
            assert sorted(seen) == sorted([*range(self.slots)] * 2), "two results for each slot"
            release(ring, 2 * self.slots)


@njit(cache=True, nogil=True)
def _set_words(memory: NDArray[np.uint8], at: int, high: int, low: int, version: int) -> None:
    """Give a packet another chunk number and slot version, and its checksum (RFC 1624)."""
    total = ~(np.int64(memory[at + _CHECKSUM]) << 8 | memory[at + _CHECKSUM + 1]) & 0xFFFF
    words = (high, low, version << 8)
    places = (_SEQUENCE, _SEQUENCE + 2, _SLOT + 2)
    for each in range(3):
        place = at + places[each]
        total += ~(np.int64(memory[place]) << 8 | memory[place + 1]) & 0xFFFF
        total += words[each]
        memory[place], memory[place + 1] = words[each] >> 8, words[each] & 0xFF
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    memory[at + _CHECKSUM], memory[at + _CHECKSUM + 1] = total >> 8, total & 0xFF


@njit(cache=True, nogil=True)
def renumber(ring: WorkerRing, slots: int) -> None:
    """Make the rows that follow new chunks, two for each slot."""
    first = ring.state[0]
    for number in range(first, first + 2 * slots):
        at = row_of(ring.rows, ring.stride, number, False) + HEADER_AT
        chunk = number + 1
        _set_words(ring.memory, at, chunk >> 16, chunk & 0xFFFF, number // slots & 1)


@njit(cache=True, nogil=True)
def wait(
    rings: tuple[WorkerRing, ...], count: int, scratch: NDArray[np.int64], seconds: float
) -> bool:
    """Wait until all workers have so many results; whether they have."""
    until = monotonic(scratch) + seconds
    for ring in rings:
        while arrived(ring) < count:
            if monotonic(scratch) > until:
                return False
            wait_readable(-1, -1, 20e-6, scratch)
    return True


def main(  # noqa: PLR0917 - options of a command
    values: Annotated[int, typer.Option(help="Values per packet.")] = 256,
    threads: Annotated[int, typer.Option(help="Threads of the second service.")] = 2,
    jobs: Annotated[int, typer.Option(help="How many jobs.")] = 4,
    workers: Annotated[int, typer.Option(help="Workers of each.")] = 4,
    repeats: Annotated[int, typer.Option(help="Turns of each.")] = 100,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print the rate of each and the ratio."""
    names = {"1 thread": [1], f"{threads} threads": [threads], f"{threads} services": [1] * threads}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(threads) as pool:
        services = {
            name: [_Served(stack, each, values, jobs, workers) for each in counts]
            for name, counts in names.items()
        }
        for number in range(repeats + _FIRST):
            for name in names if number % 2 else reversed(names):
                for each in services[name]:
                    each.prepare()
                spent = list(pool.map(_Served.turn, services[name]))
                for each in services[name]:
                    each.check()
                passed, used = (max(each) for each in zip(*spent, strict=True))
                if number >= _FIRST:
                    found[name].append((passed, used))
        packets = {name: sum(each.packets for each in services[name]) for name in names}
    rates = {}
    table: list[Row] = []
    for name, spent in found.items():
        passed, used = (statistics.median(each) for each in zip(*spent, strict=True))
        rates[name] = packets[name] / passed
        what = f"{1e6 * used / packets[name]:.3g} us of a processor for a packet"
        ratio = rates[name] / rates["1 thread"]
        table.append(Row(name, rates[name] / 1e6, "million packets/s", what, ratio))
    title = f"slots-{values}, {jobs} jobs of {workers} workers"
    show(title, "times as fast as one thread", table, as_json)


if __name__ == "__main__":
    typer.run(main)
