"""The switch as a service over loopback: packets per second, and time per all-reduce against gloo.

    taskset -c 0,1 python -m benchmarks.service [--elements 6553600] [--alike] [--json]

First two processes send packets through the service, a window at a time, and count the answers:
through the program, through an echo in the same place that runs none, and through the program with
a datagram for each packet, all in turns. Then each of four processes is a worker of the service and
a rank of gloo, and all-reduces its gradient in turns: by gloo, which sums float32 without anything
else, and by each codec. Top-k and ScaleCom select of normal numbers; ``lhc`` without a selector is
given gradients that are sparse by themselves, as those of embeddings are. Three bounds are measured
beside them: what no codec with a residual can spare, to read the gradient and what was held back
and to write what is held back and the sum; the same with the peeling of a sketch, which no worker
of top-k by LHC can spare either; and with the sketch's way through the switch. Ratios are of
medians. Processor time is that of all processes, with the switch: it says how busy the cores were,
whatever else ran there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.service_cases import BOUNDS, CASES, SENDING, Bounds, Case, Kind, gradient
from innet.fabric.messages import widen_buffers
from innet.fabric.peers import Address, PeerPorts
from innet.fabric.udp import UdpFabric
from innet.packets import PacketBatch
from innet.participant import Participant
from innet.protocol import SlotWorker
from innet.record import Report
from innet.service import join
from innet.service.server import ServiceSettings, SwitchService
from innet.wire import Endpoint, Layout
from innet.words import Operation, Segment

LOOPBACK = Address("127.0.0.1", 0)
SENDERS = 2

_spawn = multiprocessing.get_context("spawn")


# ---------------------------------------------------------------------- the switch's process


def _serve(told: Connection, values: int, jobs: int, segments: bool) -> None:
    settings = ServiceSettings(listen=LOOPBACK, values=values, jobs=jobs, workers=4)
    service = SwitchService(settings)
    if not segments:
        service._ports._outbox.segments = False  # as by a kernel that cannot
    told.send(service.address)
    service.run()


def _echo(told: Connection, values: int, hosts: int) -> None:
    """Send back what comes, without a program."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(LOOPBACK)
    told.send(Address(*sock.getsockname()))
    ports = PeerPorts(sock, Layout(values, "raw"))
    for port in range(hosts):
        ports.admit(port, told.recv())
    while True:
        select.select([ports], [], [])
        ports.send(ports.receive())


class _Switch(NamedTuple):
    """A process with an address."""

    address: Address
    told: Connection
    pid: int

    def processor_time(self) -> float:
        """Seconds that it has used so far."""
        return time.clock_gettime(~self.pid << 3 | 2)  # Linux: the clock of another process


@contextlib.contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[_Switch]:
    """A process that tells its address; it is ended at the end."""
    here, there = _spawn.Pipe()
    process = _spawn.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    try:
        if not here.poll(60):
            raise TimeoutError("a switch process did not start within a minute.")
        assert process.pid is not None
        yield _Switch(here.recv(), here, process.pid)
    finally:
        process.terminate()
        process.join()


# ---------------------------------------------------------------------- packets per second


@dataclass(frozen=True, slots=True)
class _Sending:
    """What a sending process is told."""

    index: int
    where: Address
    values: int
    seconds: float
    echo: bool
    segments: bool


def _pump(told: Connection, task: _Sending) -> None:
    """Send the same window again and again; of each packet an answer is counted."""
    layout = Layout(task.values)
    here, switch = Endpoint.of_worker(0), Endpoint.of_switch()
    with contextlib.ExitStack() as stack:
        if task.echo:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(LOOPBACK)
            sock.connect(task.where)
            widen_buffers(sock)
            fabric: Any = UdpFabric(here, switch, layout, sock=sock, segments=task.segments)
            told.send(Address(*sock.getsockname()))
            frames = np.zeros((256, layout.frame_size), np.uint8)
        else:
            address = f"{task.where.ip}:{task.where.udp_port}"
            job = stack.enter_context(
                join(address, job=f"sender {task.index}", worker=0, workers=1)
            )
            fabric = job.fabric
            fabric._udp._outbox.segments = task.segments
            end = SlotWorker(
                layout, job.plan.membership(job.plan.workers[0]), source=here, switch=switch
            )
            words = np.arange(job.plan.window * task.values, dtype=np.int32)
            end.start([Segment(Operation.SUM, words)], fabric.now())
            frames = end.outgoing(fabric.now())  # a repeated packet gets its result again
            told.send(None)
        packets = PacketBatch.uniform(frames, 0)
        told.recv()  # all are ready
        answers, begun = 0, time.perf_counter()
        while (spent := time.perf_counter() - begun) < task.seconds:
            answers += _round(fabric, packets)
        told.send(answers / spent)


def _round(fabric: Any, packets: PacketBatch) -> int:
    """One window out; the answers that came within a while."""
    now = fabric.now()
    fabric.send(packets, now)
    answers = 0
    while answers < len(packets):
        before = now
        now = fabric.wait(now, now + 0.1)
        answers += (came := len(fabric.receive(now)))
        if not came and now - before >= 0.1:
            break  # one was lost
    return answers


def _rate(values: int, seconds: float, *, echo: bool, segments: bool) -> float:
    """Packets per second, of all senders together, through a process of its own."""
    server = (_echo, values, SENDERS) if echo else (_serve, values, SENDERS, segments)
    with _process(*server) as (where, to_switch, _):
        ends, processes = [], []
        for index in range(SENDERS):
            here, there = _spawn.Pipe()
            task = _Sending(index, where, values, seconds, echo, segments)
            processes.append(_spawn.Process(target=_pump, args=(there, task), daemon=True))
            processes[-1].start()
            ends.append(here)
        for here in ends:
            address = here.recv()
            if echo:
                to_switch.send(address)
        for here in ends:
            here.send("go")
        rates: list[float] = [here.recv() for here in ends]
        for process in processes:
            process.join()
    return sum(rates)


def _forwarding(values: int, seconds: float, rounds: int) -> list[Row]:
    kinds = {
        f"slots-{values}": (False, True),
        "an echo without a program": (True, True),
        f"slots-{values}, a datagram for each packet": (False, False),
        "an echo, a datagram for each packet": (True, False),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (echo, segments) in kinds.items():
            rates[name].append(_rate(values, seconds, echo=echo, segments=segments))
    found = {name: statistics.median(each) for name, each in rates.items()}
    base = found["an echo without a program"]
    return [Row(name, rate, "packets/s", "", rate / base) for name, rate in found.items()]


# ---------------------------------------------------------------------- time per all-reduce

# What has a service of its own; the bound uses no codec there.
_MEASURED = {SENDING: Case("dense"), **CASES}


@dataclass(frozen=True, slots=True)
class _Ranking:
    """What a worker's process is told; ``services`` are by case, ``store`` is gloo's file,
    ``alike`` says whether gradients have a part in common.
    """

    rank: int
    workers: int
    services: dict[str, Address]
    store: str
    size: int
    alike: bool


def _rank(told: Connection, task: _Ranking) -> None:
    """All-reduce as told, by gloo ("gloo") or a codec, until told None."""
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
            address = f"{where.ip}:{where.udp_port}"
            seat = join(address, job=name, worker=task.rank, workers=task.workers)
            stack.enter_context(seat)
            codec = _MEASURED[name].codec
            ends[name] = Participant(seat.plan, task.rank, codec=codec, fabric=seat.fabric)
        told.send(None)
        while (name := told.recv()) is not None:
            kind = CASES[name].kind if name in CASES else Kind.FULL
            own, tensor = gradients[kind], tensors[kind].clone()
            distributed.barrier()
            begun, used = time.perf_counter(), time.process_time()
            report = None
            if name == "gloo":
                distributed.all_reduce(tensor)
            elif name in BOUNDS:
                bounds.run(name, ends[SENDING])
            else:
                _, report = ends[name].all_reduce(own)
            spent = time.perf_counter() - begun
            told.send((spent, time.process_time() - used, report))
        told.send(None)
    distributed.destroy_process_group()


def _all_reduces(  # noqa: PLR0917 - options of the command
    size: int, workers: int, values: int, repeats: int, alike: bool, folder: str
) -> list[Row]:
    with contextlib.ExitStack() as stack:
        # A service for each, so that each has all slots; one works at a time.
        switches = {
            name: stack.enter_context(_process(_serve, case.values or values, 1, True))
            for name, case in _MEASURED.items()
        }
        services = {name: switch.address for name, switch in switches.items()}
        ends, processes = [], []
        for rank in range(workers):
            here, there = _spawn.Pipe()
            task = _Ranking(rank, workers, services, str(Path(folder) / "store"), size, alike)
            processes.append(_spawn.Process(target=_rank, args=(there, task), daemon=True))
            processes[-1].start()
            ends.append(here)
        for here in ends:
            here.recv()
        seconds: dict[str, list[float]] = {name: [] for name in ("gloo", *BOUNDS, *CASES)}
        used: dict[str, list[float]] = {name: [] for name in seconds}
        reports: dict[str, list[Report]] = {name: [] for name in CASES}
        for repeat in range(repeats + 2):
            for name, measured in seconds.items():
                for here in ends:
                    here.send(name)
                before = switches[name].processor_time() if name in switches else 0.0
                answers = [here.recv() for here in ends]
                after = switches[name].processor_time() if name in switches else 0.0
                if repeat < 2:
                    continue  # what is done once, at first
                measured.append(max(spent for spent, _, _ in answers))
                used[name].append(sum(busy for _, busy, _ in answers) + after - before)
                reports.get(name, []).extend(report for _, _, report in answers if report)
        for here in ends:
            here.send(None)
        for here in ends:
            here.recv()
        for process in processes:
            process.join()
    gloo = statistics.median(seconds["gloo"])
    rows = []
    for name, measured in seconds.items():
        spent = statistics.median(measured)
        busy = 1e3 * statistics.median(used[name])
        remark = f"{busy:.0f} ms of processor time; {_said(name, reports)}"
        rows.append(Row(name, 1e3 * spent, "ms", remark, gloo / spent))
    return rows


def _said(name: str, reports: dict[str, list[Report]]) -> str:
    if name in reports:
        return _parts(reports[name])
    return BOUNDS.get(name, "sums float32, lossless")


def _parts(reports: list[Report]) -> str:
    parts = {
        "encode": [each.seconds.encode for each in reports],
        "network": [each.seconds.network for each in reports],
        "decode": [each.seconds.decode for each in reports],
    }
    text = ", ".join(f"{part} {1e3 * statistics.median(each):.0f}" for part, each in parts.items())
    again = sum(each.retransmissions for each in reports)
    return f"{text} ms; {reports[-1].compression:.3g}x fewer bytes; {again} packets sent again"


def main(  # noqa: PLR0917 - options of a command
    elements: Annotated[int, typer.Option(help="Of each gradient; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet of all-reduces.")] = 1024,
    counted: Annotated[int, typer.Option(help="Values per packet where these are counted.")] = 256,
    repeats: Annotated[int, typer.Option(help="All-reduces of each kind.")] = 11,
    seconds: Annotated[float, typer.Option(help="Of sending packets, each time.")] = 2.0,
    rounds: Annotated[int, typer.Option(help="Turns of sending; 0 for none.")] = 3,
    alike: Annotated[bool, typer.Option(help="Half of the gradients' variance in common.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    if rounds:
        rows = _forwarding(counted, seconds, rounds)
        title = f"packets through one switch process, {SENDERS} senders"
        show(title, "against the echo", rows, as_json)
    with tempfile.TemporaryDirectory() as folder:
        rows = _all_reduces(elements, workers, values, repeats, alike, folder)
    kind = ", half of their variance in common" if alike else ""
    title = f"all-reduce of {elements:,} values{kind}, {workers} processes"
    show(title, "times as fast as gloo", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
