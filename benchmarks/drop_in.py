"""Packets a second between two interfaces: innet simple-switch, simple_switch, a bare forwarder.

    sudo python -m benchmarks.drop_in [--turns 5] [--window 512] [--size 100] [--json]
    sudo python -m benchmarks.drop_in --outside [--window 1]

All three forward the same frames by p4/examples/forward.p4's rules (the bare forwarder: without a
program). They are measured in turns. simple_switch is measured where it is on PATH.

By default frames circulate: both ends of a cable are ports of the forwarder, so that what leaves it
comes back, and no sender and receiver take processor time. It tells the rate, and the forwarder's
own processor time for a packet, which other programs on the machine hardly change.

With ``--outside`` a host sends a window of frames through two cables to another, and the next
window when all have come. So ``--window 1`` is the time of a lone packet.

    sudo python -m benchmarks.drop_in --minutes 60 [--window 64]

lets innet simple-switch run so long: ten windows of frames a second pass from host to host, and
each second an entry of the table is added and deleted. It prints the process's resident memory over
time, and ends with status 1 if a frame was lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.bmv2.build import find_simple_switch, own_notifications
from innet.core.errors import InnetError, MissingToolError
from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.transport.raw import CompiledInterfaces, Ports
from innet.transport.system_calls import (
    SendBatch,
    by_port,
    monotonic,
    receive_of_ports,
    send_packets,
    wait_readable,
)

PROGRAM = Path(__file__).parents[1] / "p4" / "examples" / "forward.json"
TABLE, UNUSED = "ForwardIngress.addresses", "0x020000009999"
NEAR, FAR = ("innet-a0", "innet-a1"), ("innet-b0", "innet-b1")
HEADER = bytes.fromhex("020000000002 020000000001 88b5")
READY_SECONDS = 60.0
LOST_SECONDS = 5.0
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace() -> None:
    """Go on in a network namespace of this process's own, where nothing else sends."""
    if _libc.unshare(_CLONE_NEWNET):
        raise InnetError(f"no network namespace: {os.strerror(ctypes.get_errno())}; run as root.")
    _ip("link set lo up")


@contextlib.contextmanager
def cables(*pairs: tuple[str, str]) -> Iterator[None]:
    """Cables between interfaces of these names."""
    with contextlib.ExitStack() as stack:
        for near, far in pairs:
            _ip(f"link add {near} type veth peer name {far}")
            stack.callback(_ip, f"link del {near}")
            for each in (near, far):
                Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
                _ip(f"link set {each} up")
        yield


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, timeout=30)  # noqa: S603, S607 - iproute2


def _words(name: str, ports: tuple[str, str], port: int) -> list[str]:
    """The command that starts a forwarder."""
    if name == "bare forwarder":
        return [sys.executable, "-m", "benchmarks.drop_in", "--forward", ",".join(ports)]
    options = ["-i", f"1@{ports[0]}", "-i", f"2@{ports[1]}", "--thrift-port", str(port)]
    address = f"ipc:///tmp/innet-{port}.ipc"
    if name == "simple_switch":
        switch, _ = find_simple_switch(None)
        options += own_notifications(switch, address)
        return [str(switch), *options, "-L", "off", str(PROGRAM)]
    options += ["--notifications-addr", address]
    module = [sys.executable, "-m", "innet.simple_switch.start"]
    return [*module, *options, "--engine", "jit", str(PROGRAM)]


def forward(interfaces: list[str]) -> None:
    """Forward packets between the two interfaces until the process is killed."""
    ports = Ports(dict(enumerate(interfaces)), lambda *_: None)
    while True:
        _forward(ports.compiled(), time.monotonic() + 1.0)


@njit(cache=True, nogil=True)
def _forward(ports: CompiledInterfaces, until: float) -> None:
    """What innet's switch does (``innet.simple_switch.port_forwarding``), without a program."""
    words = np.zeros(4, np.int64)
    while True:
        left = until - monotonic(words)
        if left <= 0:
            return
        received, _, _ = receive_of_ports(ports.sockets, ports.most, ports.frames, ports.port)
        if received == 0:
            wait_readable(ports.poll, -1, left, words)
            continue
        for row in range(received):
            ports.port[row] = 1 - ports.port[row]
        rows, positions, _ = by_port(ports.port[:received], ports.places)
        begin = 0
        while begin < len(rows):
            end = begin + 1
            while end < len(rows) and positions[end] == positions[begin]:
                end += 1
            part = rows[begin:end]
            leaving = SendBatch(ports.frames.data, ports.frames.length, 0, part, ports.names, part)
            send_packets(
                ports.sockets[positions[begin], 0], leaving, 0, 1, ports.transmission, True
            )
            begin = end


class Found(NamedTuple):
    """Packets a second, and processor time for a packet in microseconds."""

    rate: float
    microseconds: float


@contextlib.contextmanager
def running(name: str, ports: tuple[str, str], port: int | None = None) -> Iterator[int]:
    """A forwarder between two interfaces, with a Thrift port; its process id."""
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
    words = _words(name, ports, port)
    process = subprocess.Popen(  # noqa: S603 - this Python, or simple_switch from PATH; no shell
        words,
        stdout=subprocess.DEVNULL,
        # simple_switch looks for a file again and again, and says each time that it is missing.
        stderr=subprocess.DEVNULL if name == "simple_switch" else None,
    )
    try:
        if name != "bare forwarder":
            install(port, PROGRAM.with_suffix(".commands").read_text(encoding="utf-8").splitlines())
        yield process.pid
    finally:
        process.kill()
        process.wait()


def circulating(name: str, window: int, size: int, seconds: float) -> Found:
    """Frames go around through one forwarder: what it sends at one end arrives at the other."""
    frame = HEADER + bytes(size - len(HEADER))
    with cables(NEAR), running(name, NEAR) as process, _sender() as sock:
        end, sent = time.monotonic() + READY_SECONDS, 0
        while (before := _received()) < 1000:  # what is sent before the forwarder listens is lost
            time.sleep(0.3)
            if _received() == before:
                sock.send(frame)
                sent = 1
            if time.monotonic() > end:
                raise InnetError(f"{name} forwards nothing")
        for _ in range(window - sent):
            sock.send(frame)
        time.sleep(0.3)
        packets, used, begun = _received(), processor_time(process), time.perf_counter()
        time.sleep(seconds)
        packets, used = _received() - packets, processor_time(process) - used
        return Found(packets / (time.perf_counter() - begun), used * 1e6 / packets)


def _sender() -> socket.socket:
    """A socket that sends by the second end of the cable, and receives nothing."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((NEAR[1], 0))
    return sock


def _received() -> int:
    """Packets that arrived at the first end of the cable."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[2]) for line in lines if line.split()[0] == f"{NEAR[0]}:")


def processor_time(process: int) -> float:
    """Seconds of processor time that all threads of a process used."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks) / 1e9


def from_outside(name: str, window: int, size: int, seconds: float) -> Found:
    """A host sends frames through one forwarder to another host."""
    ports = (NEAR[1], FAR[1])
    with cables(NEAR, FAR), running(name, ports) as process:
        hosts = Ports({0: NEAR[0], 1: FAR[0]})
        try:
            end = time.monotonic() + READY_SECONDS
            while not _turn(hosts, 1, size, 0.2):
                if time.monotonic() > end:
                    raise InnetError(f"{name} forwards nothing")
            _turn(hosts, window, size, LOST_SECONDS)
            used, begun, count = processor_time(process), time.perf_counter(), 0
            while (taken := time.perf_counter() - begun) < seconds:
                if not _turn(hosts, window, size, LOST_SECONDS):
                    raise InnetError(f"{name} lost packets; take a smaller --window")
                count += window
            return Found(count / taken, (processor_time(process) - used) * 1e6 / count)
        finally:
            hosts.close()


def install(port: int, lines: list[str]) -> None:
    """Run commands at a Thrift port, as soon as somebody answers there."""
    from innet.bmv2 import shell  # noqa: PLC0415 - needs Thrift's library

    end = time.monotonic() + READY_SECONDS
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


class Soaked(NamedTuple):
    """What a long run came to.

    Attributes:
        frames: that passed.
        changes: of the table.
        memory: (minutes, resident kB), by time.
    """

    frames: int
    changes: int
    memory: list[tuple[float, int]]


def soak(window: int, size: int, minutes: float) -> Soaked:
    """Traffic and changes of the table for so many minutes, without a loss."""
    name, ports = "innet simple-switch", (NEAR[1], FAR[1])
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with cables(NEAR, FAR), running(name, ports, port) as process:
        hosts = Ports({0: NEAR[0], 1: FAR[0]})
        memory: list[tuple[float, int]] = []
        try:
            end = time.monotonic() + READY_SECONDS
            while not _turn(hosts, 1, size, 0.2):
                if time.monotonic() > end:
                    raise InnetError(f"{name} forwards nothing")
            begun = time.monotonic()
            seconds, frames, changes = 60 * minutes, 0, 0
            while (taken := time.monotonic() - begun) < seconds:
                if not _turn(hosts, window, size, READY_SECONDS):
                    raise InnetError(f"a frame was lost after {taken:.0f} s")
                frames += window
                if changes < 2 * int(taken):
                    _change(port)
                    changes += 2
                if taken >= 60 * len(memory):
                    memory.append((taken / 60, _resident(process)))
                    print(f"{taken / 60:.0f} min: {memory[-1][1]:,} kB", file=sys.stderr)
                time.sleep(max(0.0, 0.1 - (time.monotonic() - begun - taken)))
            memory.append((minutes, _resident(process)))
            return Soaked(frames, changes, memory)
        finally:
            hosts.close()


def _change(port: int) -> None:
    """Add an entry that no frame hits, and delete it."""
    from innet.bmv2 import shell  # noqa: PLC0415 - needs Thrift's library

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        shell.run("127.0.0.1", port, [f"table_add {TABLE} ForwardIngress.forward {UNUSED} => 1"])
        handle = said.getvalue().rsplit("handle", 1)[1].split()[0]
        shell.run("127.0.0.1", port, [f"table_delete {TABLE} {handle}"])


def _resident(process: int) -> int:
    """Resident memory of a process, kB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main(  # noqa: PLR0917 - options of a command
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    window: Annotated[int, typer.Option(min=1, help="Most frames under way.")] = 512,
    size: Annotated[int, typer.Option(min=60, max=1500, help="Bytes of a frame.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement.")] = 2.0,
    outside: Annotated[bool, typer.Option(help="Hosts send and receive the frames.")] = False,
    minutes: Annotated[float | None, typer.Option(min=1, help="Run so long instead.")] = None,
    forwarding: Annotated[str | None, typer.Option("--forward", hidden=True)] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure and print."""
    if forwarding is not None:
        forward(forwarding.split(","))
    if minutes is not None:
        try:
            enter_namespace()
            done = soak(window, size, minutes)
        except InnetError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        print(f"{done.frames:,} frames, {done.changes:,} changes, none lost; kB by minute:")
        print(", ".join(f"{at:.0f}: {kilobytes:,}" for at, kilobytes in done.memory))
        return
    names = ["bare forwarder", "innet simple-switch"]
    try:
        find_simple_switch(None)
        names.append("simple_switch")
    except MissingToolError:
        pass
    found: dict[str, list[Found]] = {name: [] for name in names}
    measured = from_outside if outside else circulating
    try:
        enter_namespace()
        for name in names * turns:
            found[name].append(measured(name, window, size, seconds))
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    ours = statistics.median(each.rate for each in found["innet simple-switch"])
    rows = []
    for name, measurements in found.items():
        rates = [each.rate for each in measurements]
        used = statistics.median(each.microseconds for each in measurements)
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}; {used:.2f} us of processor time"
        median = statistics.median(rates)
        rows.append(Row(name, median, "packets/s", spread, ours / median))
    way = "from host to host" if outside else "circulating"
    title = f"Frames of {size} bytes, {window} under way {way}, medians of {turns} turns"
    show(title, "innet's rate over it", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
