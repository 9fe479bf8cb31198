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
of top-k by LHC can spare either; with the sketch's way through the switch; and that without a
residual, which no worker of ``lhc`` alone can spare. Ratios are of medians. Processor time is that
of all processes, with the switch: it says how busy the cores were, whatever else ran there.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.ranks import GLOO, KEY, LOOPBACK, Ranks, Serving, rows, running, serve, spawn
from benchmarks.service_cases import BOUNDS, CASES, SENDING, Case
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import at_port
from innet.protocol import SlotClient
from innet.service import join
from innet.transport.packet_socket import widen_buffers
from innet.transport.peers import Address, PeerPorts
from innet.transport.udp import UdpTransport
from innet.wire import Endpoint, PacketLayout

SENDERS = 2


def _echo(told: Connection, values: int, hosts: int) -> None:
    """Send back what comes, without a program."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(LOOPBACK)
    told.send(Address(*sock.getsockname()))
    ports = PeerPorts(sock, PacketLayout(values, "raw"))
    for port in range(hosts):
        ports.admit(port, told.recv())
    while True:
        select.select([ports], [], [])
        ports.send(ports.receive())


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
    layout = PacketLayout(task.values)
    here, switch = Endpoint.of_worker(0), Endpoint.of_switch()
    with contextlib.ExitStack() as stack:
        if task.echo:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(LOOPBACK)
            sock.connect(task.where)
            widen_buffers(sock)
            transport: Any = UdpTransport(here, switch, layout, sock=sock, segments=task.segments)
            told.send(Address(*sock.getsockname()))
            packets = PacketBatch.uniform(np.zeros((256, layout.frame_size), np.uint8), 0)
        else:
            address = str(task.where)
            job = stack.enter_context(
                join(
                    address,
                    job=f"sender {task.index}",
                    worker=0,
                    workers=1,
                    key=KEY,
                    transport="udp",
                )
            )
            transport = job.transport
            transport._link._outbox.segments = task.segments
            end = SlotClient(
                layout, job.plan.membership(job.plan.workers[0]), source=here, switch=switch
            )
            words = np.arange(job.plan.window * task.values, dtype=np.int32)
            end.start([Segment(ReduceOp.SUM, words)], transport.now())
            # A repeated packet gets its result again.
            packets = at_port(end.outgoing(transport.now()), 0)
            told.send(None)
        told.recv()  # all are ready
        answers, begun = 0, time.perf_counter()
        while (spent := time.perf_counter() - begun) < task.seconds:
            answers += _round(transport, packets)
        told.send(answers / spent)


def _round(transport: Any, packets: PacketBatch) -> int:
    """One window out; the answers that came within a while."""
    now = transport.now()
    transport.send(packets, now)
    answers = 0
    while answers < len(packets):
        before = now
        now = transport.wait(now, now + 0.1)
        answers += (came := len(transport.receive(now)))
        if not came and now - before >= 0.1:
            break  # one was lost
    return answers


def _rate(values: int, seconds: float, *, echo: bool, segments: bool) -> float:
    """Packets per second, of all senders together, through a process of its own."""
    server = (
        (_echo, values, SENDERS) if echo else (serve, Serving(values, SENDERS, segments=segments))
    )
    with running(*server) as (where, to_switch, _):
        ends, processes = [], []
        for index in range(SENDERS):
            here, there = spawn.Pipe()
            task = _Sending(index, where, values, seconds, echo, segments)
            processes.append(spawn.Process(target=_pump, args=(there, task), daemon=True))
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


# What has a service of its own; the bound uses no codec there.
_MEASURED = {SENDING: Case("dense"), **CASES}


def _all_reduces(  # noqa: PLR0917 - options of the command
    size: int, workers: int, values: int, repeats: int, alike: bool, folder: str
) -> list[Row]:
    with Ranks(
        _MEASURED, size=size, workers=workers, values=values, alike=alike, folder=folder
    ) as ranks:
        return rows(ranks.measure([GLOO, *BOUNDS, *CASES], repeats))


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
        found = _forwarding(counted, seconds, rounds)
        title = f"packets through one switch process, {SENDERS} senders"
        show(title, "against the echo", found, as_json)
    with tempfile.TemporaryDirectory() as folder:
        found = _all_reduces(elements, workers, values, repeats, alike, folder)
    kind = ", half of their variance in common" if alike else ""
    title = f"all-reduce of {elements:,} values{kind}, {workers} processes"
    show(title, "times as fast as gloo", found, as_json)


if __name__ == "__main__":
    typer.run(main)
