"""Requests and answers a second on a testbed: coroutines, scapy, compiled hosts; BMv2 in Mininet.

    python -m benchmarks.testbed [--json]
    sudo python -m benchmarks.testbed --mininet

Two hosts at a switch with ``forward.json``: one sends requests, the other answers each. Every
request and every answer is a packet that a host has received and acted upon. Times are of the
processor, but for Mininet, whose packets wait for several processes. Ratios are to coroutines with
64 requests outstanding. The last rows are what a bed costs before its first packet.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.testbed import Testbed
from innet.testbed.hosts import BedHost

FORWARD = Path(__file__).parents[1] / "p4/examples/forward.json"
HEADS = [
    bytes.fromhex(f"02000000000{there}02000000000{here}88b5") for here, there in ((1, 2), (2, 1))
]
REQUEST, ANSWER = (head + bytes(46) for head in HEADS)


def make() -> tuple[Testbed, BedHost, BedHost]:
    """A bed, and its two hosts."""
    bed = Testbed("10g")
    lines = [f"table_add addresses forward 0x02000000000{n} => {n}" for n in (1, 2)]
    switch = bed.switch("s1", FORWARD, commands=lines)
    client, server = bed.host("h1"), bed.host("h2")
    bed.link(client, switch)
    bed.link(server, switch)
    return bed, client, server


def coroutines(requests: int, outstanding: int, *, scapy: bool = False) -> float:
    """Packets received and acted upon a second, by coroutines."""
    bed, client, server = make()
    request: Any = REQUEST
    answer: Any = ANSWER
    if scapy:
        from scapy.layers.l2 import Ether  # noqa: PLC0415 - it takes a second

        request, answer = Ether(REQUEST), Ether(ANSWER)

    @client.run
    async def ask() -> None:
        for _ in range(outstanding):
            client.send(request)
        for _ in range(requests - outstanding):
            await client.receive()
            client.send(request)
        for _ in range(outstanding):
            await client.receive()

    @server.serve
    async def reply() -> None:
        while True:
            frame = await server.receive()
            if scapy:
                Ether(frame)
            server.send(answer)

    begun = time.process_time()
    bed.run(wall_limit=600)
    return 2 * requests / (time.process_time() - begun)


def compiled(requests: int, outstanding: int) -> float:
    """The same by compiled hosts."""
    bed, client, server = make()
    request, answer = (np.frombuffer(frame, np.uint8).copy() for frame in (REQUEST, ANSWER))
    size = len(REQUEST)

    @bed.compiled(server)
    def reply(now, frame, memory, out, lengths):  # type: ignore[no-untyped-def] # noqa: ARG001
        if len(frame) == 0:
            return 0, -1
        out[0, :size] = answer
        lengths[0] = size
        return 1, -1

    @bed.compiled(client, memory=[requests], rows=outstanding, serves=False)
    def ask(now, frame, memory, out, lengths):  # type: ignore[no-untyped-def] # noqa: ARG001
        count = len(lengths) if len(frame) == 0 else 1
        if len(frame) > 0:
            memory[0] -= 1
            if memory[0] == 0:
                return 0, -2
        for row in range(count):
            out[row, :size] = request
            lengths[row] = size
        return count, -1

    begun = time.process_time()
    bed.run(wall_limit=600)
    return 2 * requests / (time.process_time() - begun)


def in_mininet(seconds: float, outstanding: int) -> float:
    """The same in Mininet with simple_switch, by one process with a raw socket in each host."""
    from innet.mininet.beds import BedTopo, sockets_of  # noqa: PLC0415 - it needs Mininet
    from innet.mininet.network import network, temporary_folder  # noqa: PLC0415

    bed, *_ = make()
    done = 0
    with temporary_folder() as folder, network(BedTopo(bed, folder, "bmv2")) as net:
        client, server = (sockets_of(net.get(name))[0] for name in ("h1", "h2"))
        for _ in range(outstanding):
            client.send(REQUEST)
        begun = time.monotonic()
        while (now := time.monotonic()) < begun + seconds:
            for ready in select.select([client, server], [], [], 0.5)[0]:
                _, address = ready.recvfrom(2048)
                if address[2] != socket.PACKET_OUTGOING:
                    done += 1
                    ready.send(ANSWER if ready is server else REQUEST)
        client.close()
        server.close()
    return done / (now - begun)


def begin() -> tuple[float, float]:
    """Seconds until the first bed of a process has run, with warm caches, and the second."""
    code = (
        "import time; begun = time.perf_counter()\n"
        "from benchmarks.testbed import coroutines\n"
        "coroutines(64, 64); first = time.perf_counter(); coroutines(64, 64)\n"
        "print(first - begun, time.perf_counter() - first)"
    )
    for _ in range(2):  # the first fills the caches
        done = subprocess.run(  # noqa: S603 - ours
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    first, second = map(float, done.stdout.split())
    return first, second


def main(
    mininet: Annotated[bool, typer.Option(help="BMv2 in Mininet, too; needs root.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each, of which the best.")] = 3,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    coroutines(1000, 64)
    compiled(1000, 64)
    measured: dict[str, Callable[[], float]] = {
        "coroutines, 64 outstanding": lambda: coroutines(50_000, 64),
        "coroutines, ping-pong": lambda: coroutines(5_000, 1),
        "coroutines with scapy, 64 outstanding": lambda: coroutines(5_000, 64, scapy=True),
        "compiled hosts, 64 outstanding": lambda: compiled(1_000_000, 64),
    }
    rates = {name: max(each() for _ in range(repeats)) for name, each in measured.items()}
    if mininet:
        name = "simple_switch in Mininet, 64 outstanding"
        rates[name] = max(in_mininet(3.0, 64) for _ in range(repeats))
    base = rates["coroutines, 64 outstanding"]
    rows = [Row(name, rate, "packets/s", "", rate / base) for name, rate in rates.items()]
    first, second = begin()
    note = (
        f"A process's first bed took {first:.2f} s with imports, its second {second:.3f} s "
        "(real time)."
    )
    show("Packets that hosts receive and answer", "of the first", rows, as_json, note)


if __name__ == "__main__":
    typer.run(main)
