"""Packets a second between two interfaces: innet simple-switch, simple_switch, a bare forwarder.

    sudo python -m benchmarks.drop_in [--turns 5] [--window 512] [--size 100] [--json]

All three forward the same frames by p4/examples/forward.p4's rules (the bare forwarder: without a
program), between two cables of this machine. They are measured in turns. The sender has at most so
many frames under way, so that nothing is lost and the rate is the forwarder's. With ``--window 1``
it is the time of a lone packet. simple_switch is measured where it is on PATH.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.bmv2.simple_switch import find_simple_switch
from innet.core.errors import InnetError, MissingToolError
from innet.core.packets import PacketBatch
from innet.transport.raw import Ports

PROGRAM = Path(__file__).parents[1] / "p4" / "examples" / "forward.json"
NEAR, FAR = ("innet-a0", "innet-a1"), ("innet-b0", "innet-b1")
HEADER = bytes.fromhex("020000000002 020000000001 88b5")
READY_SECONDS = 60.0
LOST_SECONDS = 5.0


@contextlib.contextmanager
def cables() -> Iterator[None]:
    """Two cables; the switch has the second end of each."""
    with contextlib.ExitStack() as stack:
        for near, far in (NEAR, FAR):
            _ip(f"link add {near} type veth peer name {far}")
            stack.callback(_ip, f"link del {near}")
            for each in (near, far):
                Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
                _ip(f"link set {each} up")
        yield


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, timeout=30)  # noqa: S603, S607 - iproute2


def _words(name: str, port: int) -> list[str]:
    """The command that starts a forwarder."""
    if name == "bare forwarder":
        return [sys.executable, "-m", "benchmarks.drop_in", "--forward"]
    options = ["-i", f"1@{NEAR[1]}", "-i", f"2@{FAR[1]}", "--thrift-port", str(port)]
    if name == "simple_switch":
        return [str(find_simple_switch(None)[0]), *options, "-L", "off", str(PROGRAM)]
    module = [sys.executable, "-m", "innet.processes.simple_switch"]
    return [*module, *options, "--engine", "jit", str(PROGRAM)]


def forward() -> None:
    """Forward packets between the two interfaces until the process is killed."""
    ports = Ports({0: NEAR[1], 1: FAR[1]})
    while True:
        arrived = ports.receive(60)
        ports.send(PacketBatch(arrived.data, arrived.length, 1 - arrived.port))


def measured(name: str, window: int, size: int, seconds: float) -> float:
    """Packets a second through one forwarder."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    process = subprocess.Popen(_words(name, port))  # noqa: S603 - this Python, or simple_switch from PATH; no shell
    try:
        if name != "bare forwarder":
            _install(port)
        hosts = Ports({0: NEAR[0], 1: FAR[0]})
        try:
            end = time.monotonic() + READY_SECONDS
            while not _turn(hosts, 1, size, 0.2):
                if time.monotonic() > end:
                    raise InnetError(f"{name} forwards nothing")
            _turn(hosts, window, size, LOST_SECONDS)
            begun, count = time.perf_counter(), 0
            while (taken := time.perf_counter() - begun) < seconds:
                if not _turn(hosts, window, size, LOST_SECONDS):
                    raise InnetError(f"{name} lost packets; take a smaller --window")
                count += window
            return count / taken
        finally:
            hosts.close()
    finally:
        process.kill()
        process.wait()


def _install(port: int) -> None:
    from innet.bmv2 import shell  # noqa: PLC0415 - needs Thrift's library

    end = time.monotonic() + READY_SECONDS
    lines = PROGRAM.with_suffix(".commands").read_text(encoding="utf-8").splitlines()
    with contextlib.redirect_stdout(None):
        while True:
            try:
                shell.run("127.0.0.1", port, ["set_queue_depth 100000", *lines])
            except InnetError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return


def _turn(hosts: Ports, window: int, size: int, patience: float) -> bool:
    """Send a window of frames; whether all of them came out at the other cable."""
    frame = np.frombuffer(HEADER + bytes(size - len(HEADER)), np.uint8)
    data = np.ascontiguousarray(np.broadcast_to(frame, (window, size)))
    full = np.full(window, size, np.int32)
    hosts.send(PacketBatch(data, full, np.zeros(window, np.int32)))
    came, end = 0, time.monotonic() + patience
    while came < window:
        came += int(np.count_nonzero(hosts.receive(0.05).port == 1))
        if time.monotonic() > end:
            return False
    return True


def main(  # noqa: PLR0917 - options of a command
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    window: Annotated[int, typer.Option(min=1, help="Most frames under way.")] = 512,
    size: Annotated[int, typer.Option(min=60, max=1500, help="Bytes of a frame.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement.")] = 2.0,
    forwarding: Annotated[bool, typer.Option("--forward", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure and print."""
    if forwarding:
        forward()
    names = ["bare forwarder", "innet simple-switch"]
    try:
        find_simple_switch(None)
        names.append("simple_switch")
    except MissingToolError:
        pass
    found: dict[str, list[float]] = {name: [] for name in names}
    with cables():
        for name in names * turns:
            try:
                found[name].append(measured(name, window, size, seconds))
            except InnetError as error:
                print(f"error: {error}", file=sys.stderr)
                raise typer.Exit(1) from None
    ours = statistics.median(found["innet simple-switch"])
    rows = [
        Row(
            name,
            statistics.median(rates),
            "packets/s",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            ours / statistics.median(rates),
        )
        for name, rates in found.items()
    ]
    title = f"Frames of {size} bytes, {window} under way, medians of {turns} turns"
    show(title, "innet's rate over it", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
