"""Processes that all-reduce in turns: by gloo, and by codecs through switch services.

Each is a worker of every service and a rank of gloo. They may have networks of their own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.common import Row
from benchmarks.service_cases import BOUNDS, SENDING, Bounds, Case, Kind, gradient
from benchmarks.star import INTERFACE, Place, enter
from innet.allreduce.worker import Worker
from innet.core.settings import ServiceSettings, validate
from innet.records import Report
from innet.service import join
from innet.service.server import SwitchService
from innet.transport.peers import Address

LOOPBACK = Address("127.0.0.1", 0)
GLOO = "gloo"
KEY = "of these processes"
_DEADLINE = 120.0  # seconds that a process takes at most to start
_PATIENCE = 600.0  # and for an all-reduce
_SHORT = 10.0  # and to end
_FIRST = 2  # all-reduces of each kind that are not counted, for what is done once

spawn = multiprocessing.get_context("spawn")


class Switch(NamedTuple):
    """A process with an address."""

    address: Address
    told: Connection
    pid: int

    def processor_time(self) -> float:
        """Seconds that it has used so far."""
        return time.clock_gettime(~self.pid << 3 | 2)  # Linux: the clock of another process


@dataclass(frozen=True, slots=True)
class Serving:
    """What the switch's process is told: values in a packet, jobs, workers of each, whether many
    packets may be one datagram, its network, none for this one, and packets of each worker under
    way at most.
    """

    values: int
    jobs: int = 1
    workers: int = 4
    segments: bool = True
    place: Place | None = None
    window: int | None = None
    program: str = "slots"


def serve(told: Connection, task: Serving) -> None:
    """A switch service."""
    listen = str(LOOPBACK)
    if task.place is not None:
        enter(task.place)
        listen = f"{task.place.ip}:0"
    service = SwitchService(
        validate(
            ServiceSettings,
            {
                "listen": listen,
                "values_per_packet": task.values,
                "jobs": task.jobs,
                "workers_max": task.workers,
                "key": KEY,
                "window": task.window,
                "program": task.program,
            },
        )
    )
    if not task.segments:
        service.ports._outbox.segments = False  # as by a kernel that cannot
    told.send(service.address)
    service.run()


@contextlib.contextmanager
def running(target: Any, *arguments: Any) -> Iterator[Switch]:
    """A process that tells its address; it is ended at the end."""
    here, there = spawn.Pipe()
    started = spawn.Process(target=target, args=(there, *arguments), daemon=True)
    started.start()
    try:
        if not here.poll(_DEADLINE):
            raise TimeoutError("a switch process did not start within two minutes.")
        assert started.pid is not None
        yield Switch(here.recv(), here, started.pid)
    finally:
        started.terminate()
        started.join()


@dataclass(frozen=True, slots=True)
class _Ranking:
    """What a worker's process is told; ``services`` are by case, ``store`` is gloo's file,
    ``alike`` says whether gradients have a part in common.
    """

    rank: int
    workers: int
    cases: Mapping[str, Case]
    services: dict[str, Address]
    store: str
    size: int
    alike: bool
    place: Place | None


def _rank(told: Connection, task: _Ranking) -> None:
    """All-reduce as told, by gloo or a codec, until told None."""
    if task.place is not None:
        enter(task.place)
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    import torch  # noqa: PLC0415 - only here; the rest runs without it
    from torch import distributed  # noqa: PLC0415 - as torch

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{task.store}", rank=task.rank, world_size=task.workers
    )
    tensors = {
        # In PyTorch's own memory, where buckets are; a clone's begins at a cache line, NumPy's may
        # begin within one.
        kind: torch.from_numpy(each).clone()
        for kind in Kind
        for each in [gradient(kind, task.size, task.rank, task.workers, task.alike)]
    }
    gradients = {kind: tensor.numpy() for kind, tensor in tensors.items()}
    bounds = Bounds(gradients[Kind.FULL], task.workers)
    with contextlib.ExitStack() as stack:
        ends = {}
        for name, where in task.services.items():
            address = str(where)
            case = task.cases[name]
            session = join(
                address, job=name, worker=task.rank, workers=task.workers, key=KEY,
                transport=case.transport,
            )  # fmt: skip
            stack.enter_context(session)
            ends[name] = Worker(
                session.plan, task.rank, codec=case.codec, transport=session.transport
            )
        told.send(os.getpid())
        while (name := told.recv()) is not None:
            kind = task.cases[name].kind if name in task.cases else Kind.FULL
            own, tensor = gradients[kind], tensors[kind].clone()
            distributed.barrier()
            begun, used = time.perf_counter(), time.process_time()
            report = None
            if name == GLOO:
                distributed.all_reduce(tensor)
            elif name in BOUNDS:
                bounds.run(name, ends[SENDING])
            else:
                _, report = ends[name].all_reduce(own)
            told.send((begun, time.perf_counter(), time.process_time() - used, report))
        told.send(None)
    distributed.destroy_process_group()


@contextlib.contextmanager
def ranks_of(
    target: Any, tasks: Iterable[Any], first: list[Any] | None = None
) -> Iterator[list[Connection]]:
    """A process for each task, once all have said that they are ready; their ends at the end.
    ``first`` is extended by what they have said.

    Those who are left alone notice that their other end is closed.
    """
    with contextlib.ExitStack() as stack:
        ends: list[Connection] = []
        for task in tasks:
            here, there = spawn.Pipe()
            started = spawn.Process(target=target, args=(there, task), daemon=True)
            started.start()
            there.close()  # so that its end is noticed
            stack.callback(_end, started, here)
            ends.append(here)
        found = heard(ends)
        if first is not None:
            first += found
        yield ends


def heard(ends: list[Connection]) -> list[Any]:
    """What each rank says next."""
    found = []
    for rank, here in enumerate(ends):
        if not here.poll(_PATIENCE):
            raise TimeoutError(f"rank {rank} has said nothing for {_PATIENCE:g} s.")
        try:
            found.append(here.recv())
        except EOFError:
            raise RuntimeError(f"rank {rank} has ended; it said why above.") from None
    return found


def dismiss(ends: list[Connection]) -> None:
    """Tell all ranks that it is over, and wait until they have heard it."""
    for here in ends:
        here.send(None)
    heard(ends)


def _end(process: Any, here: Connection) -> None:
    """Have a rank that was told so, or that was left alone, end."""
    here.close()
    process.join(_SHORT)
    process.terminate()
    process.join()


class Measured(NamedTuple):
    """What one kind of all-reduce took: seconds from when the last rank began to when the slowest
    was done, processor time of all, and the workers' reports, none for gloo and the bounds.
    """

    seconds: list[float]
    used: list[float]
    reports: list[Report]

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


class Ranks:
    """The processes, in turns; used as a context.

    Args:
        cases: what goes through services. Each has one of its own, so that each has all slots; one
            works at a time.
        size: of the gradients.
        workers: how many processes.
        values: in a packet, where a case does not say.
        alike: whether half of the gradients' variance is common to all.
        folder: where gloo's file may be.
        places: networks of the workers, and of the switch at the end; none means this one.
        window: packets of each worker under way at most, if not as many as the service thinks.

    Attributes:
        pids: of all processes, the workers' first.
    """

    def __init__(
        self,
        cases: Mapping[str, Case],
        *,
        size: int,
        workers: int,
        values: int,
        alike: bool,
        folder: str,
        places: tuple[Place, ...] = (),
        window: int | None = None,
    ) -> None:
        self._cases, self._size, self._values = cases, size, values
        self._workers, self._alike, self._store = workers, alike, f"{folder}/store"
        self._window = window
        self._places = places or (None,) * (workers + 1)
        self._stack = contextlib.ExitStack()
        self._switches: dict[str, Switch] = {}
        self._ends: list[Connection] = []
        self.pids: list[int] = []

    def __enter__(self) -> Ranks:
        with contextlib.ExitStack() as stack:
            for name, case in self._cases.items():
                values = case.values or self._values
                task = Serving(
                    values, workers=self._workers, place=self._places[-1], window=self._window
                )
                self._switches[name] = stack.enter_context(running(serve, task))
            services = {name: switch.address for name, switch in self._switches.items()}
            tasks = [
                _Ranking(
                    rank,
                    self._workers,
                    self._cases,
                    services,
                    self._store,
                    self._size,
                    self._alike,
                    self._places[rank],
                )
                for rank in range(self._workers)
            ]
            self._ends = stack.enter_context(ranks_of(_rank, tasks, self.pids))
            self.pids += [switch.pid for switch in self._switches.values()]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if kind is not None:
                return  # those who are left notice that their other end is closed
            dismiss(self._ends)

    def measure(self, names: list[str], repeats: int) -> dict[str, Measured]:
        """All-reduces of these kinds, in turns."""
        found = {name: Measured([], [], []) for name in names}
        for repeat in range(repeats + _FIRST):
            for name, measured in found.items():
                once = self.once(name)
                if repeat >= _FIRST:
                    measured.seconds.extend(once.seconds)
                    measured.used.extend(once.used)
                    measured.reports.extend(once.reports)
        return found

    def once(self, name: str) -> Measured:
        """One all-reduce of a kind."""
        for here in self._ends:
            here.send(name)
        switch = self._switches.get(name)
        before = switch.processor_time() if switch else 0.0
        begun, done, busy, reports = zip(*heard(self._ends), strict=True)
        after = switch.processor_time() if switch else 0.0
        # The barrier lets ranks go on one after the other, at times with a loss between.
        return Measured(
            [max(done) - max(begun)],
            [sum(busy) + after - before],
            [report for report in reports if report],
        )


def rows(found: Mapping[str, Measured]) -> list[Row]:
    """How many times as fast as gloo, and milliseconds."""
    gloo = found[GLOO].median
    return [
        Row(name, 1e3 * each.median, "ms", _said(name, each), gloo / each.median)
        for name, each in found.items()
    ]


def _said(name: str, measured: Measured) -> str:
    busy = f"{1e3 * statistics.median(measured.used):.0f} ms of processor time"
    slow = f"mean {1e3 * statistics.fmean(measured.seconds):.3g}"
    slow += f", slowest {1e3 * max(measured.seconds):.3g} ms; {busy}"
    if not measured.reports:
        return f"{slow}; {BOUNDS.get(name, 'sums float32, lossless')}"
    return f"{slow}; {_parts(measured.reports)}"


def _parts(reports: list[Report]) -> str:
    parts = {
        "encode": [each.seconds.encode for each in reports],
        "network": [each.seconds.network for each in reports],
        "decode": [each.seconds.decode for each in reports],
    }
    text = ", ".join(f"{part} {1e3 * statistics.median(each):.0f}" for part, each in parts.items())
    again = sum(each.retransmissions for each in reports)
    return f"{text} ms; {reports[-1].compression:.3g}x fewer bytes; {again} packets sent again"
