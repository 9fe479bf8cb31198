"""Packets a second with a log of each packet: innet simple-switch and simple_switch, side by side.

    sudo python -m benchmarks.logged [--turns 5] [--window 16] [--captures] [--console] [--json]
        [PROGRAM ...]

Both write a log file at level trace. With ``--console`` they write the log to standard output,
which is a file, and with ``--captures`` what passes each interface, too; p4-utils asks for both.
simple_switch needs a build with logging macros, as ``simple_switch_logging`` on PATH. Hosts send a
window of frames through cables, and the next window when all frames that the program sends have
come; so ``--window 1`` is the time of a lone packet. Both switches are there all the time, and are
measured in turns, each for the seconds given.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks import l3, switch
from benchmarks.common import Row, show
from benchmarks.drop_in import (
    LOST_SECONDS,
    PROGRAM,
    Found,
    cables,
    enter_namespace,
    install,
    processor_time,
)
from innet import programs
from innet.bmv2.build import own_notifications
from innet.core.errors import InnetError, MissingToolError
from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.transport.raw import Ports

EXAMPLES = PROGRAM.parent
COPIES = Path(__file__).parents[1] / "tests" / "programs" / "switch_copies.json"
ROUTES = 1000
LOGGING = "simple_switch_logging"


@dataclass(frozen=True, slots=True)
class Case:
    """A program, its control plane, and windows of frames that are sent in turn."""

    document: Mapping[str, Any]
    commands: list[str]
    windows: list[PacketBatch]

    def expected(self, ports: set[int]) -> list[int]:
        """How many frames come back from each window, at the second time."""
        model = Switch.load(self.document)
        model.commands("\n".join(self.commands))
        for _ in range(2):
            sent = [model.process_batch(each).port.tolist() for each in self.windows]
        return [sum(port in ports for port in each) for each in sent]

    @property
    def ports(self) -> set[int]:
        """Where frames come in and leave."""
        model = Switch.load(self.document)
        model.commands("\n".join(self.commands))
        both = [port for each in self.windows for port in each.port.tolist()]
        return {*both, *(port for w in self.windows for port in model.process_batch(w).port)}


def _example(name: str, commands: list[str], frames: list[tuple[int, bytes]]) -> Case:
    document = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return Case(document, commands, [PacketBatch.from_packets(frames)])


def _forward(window: int) -> Case:
    lines = (EXAMPLES / "forward.commands").read_text(encoding="utf-8").splitlines()
    frame = bytes.fromhex("020000000002 020000000001 88b5").ljust(100, b"\0")
    return _example("forward", lines, [(1, frame)] * window)


def _ecn(window: int) -> Case:
    head = "020000000001 020000000002 0800 4502005a %04x0000 40110000 0a000002 0a000001"
    frames = [(2, bytes.fromhex(head % number).ljust(104, b"\0")) for number in range(window)]
    route = "table_add EcnIngress.routes EcnIngress.forward 10.0.0.0/8 => 1"
    return _example("ecn", [route, "register_write EcnEgress.threshold 0 2"], frames)


def _balance(window: int) -> Case:
    """A leaf: data of many flows to another leaf, by the port that a probe once found."""
    head = "020000000003 020000000001 0800 45000048 00000000 40110000 0a000001 0a000003 %04x1f90"
    frames = [(1, bytes.fromhex(head % number).ljust(100, b"\0")) for number in range(window)]
    lines = ["table_add hosts to_leaf 10.0.0.3/32 => 2", "register_write best_port 2 3"]
    return _example("balance", lines, frames)


def _cache(window: int) -> Case:
    """Reads of eight keys that the switch answers, and of others that it passes to a server."""
    head = bytes.fromhex("020000000001 020000000002 88b6 0100 00000000")
    frames = [(2, head + (number % 16).to_bytes(8, "big") + bytes(72)) for number in range(window)]
    lines = [f"table_add hosts forward 02:00:00:00:00:0{port} => {port}" for port in (1, 2)]
    for key in range(8):
        lines += [f"table_add cache cached {key} => {key}", f"register_write filled {key} 1"]
    return _example("cache", lines, frames)


def _telemetry(window: int) -> Case:
    frame = bytes.fromhex("020000000002 020000000001 88b5").ljust(100, b"\0")
    lines = [
        "table_add hosts forward 02:00:00:00:00:02 => 2",
        "table_set_default identity number 7",
    ]
    return _example("telemetry", lines, [(1, frame)] * window)


def _l3(window: int) -> Case:
    commands, networks = l3.control_plane(ROUTES)
    packets = l3.traffic(networks, 64 * window)
    rows = np.arange(len(packets)).reshape(64, window)
    document = json.loads(l3.PROGRAM.read_text(encoding="utf-8"))
    return Case(document, commands, [packets.take(each) for each in rows])


def _copies(window: int) -> Case:
    """Packets that are cloned, come again before and after egress, and go to a multicast group."""
    clone, resubmit, multicast, recirculate = 0, 3, 4, 9
    operations = [clone, resubmit, multicast, recirculate] * window
    frames = [(1, bytes([each]).ljust(100, b"\0")) for each in operations[:window]]
    lines = [
        *("mirroring_add 5 4", "mc_mgrp_create 3", "mc_node_create 7 3 2", "mc_node_create 9 7"),
        *("mc_node_associate 3 1", "mc_node_associate 3 0"),
    ]
    document = json.loads(COPIES.read_text(encoding="utf-8"))
    return Case(document, lines, [PacketBatch.from_packets(frames)])


def _slots(window: int) -> Case:
    """Contributions of four workers, whose sums are sent to all of them."""
    job, count = switch.job_of(), 2 * job_packets()
    packets = switch.contributions(job, 32, 0, count)
    rows = np.arange(count).reshape(-1, min(window, count))
    document = programs.find("slots", 32).json()
    return Case(document, list(job.commands()), [packets.take(each) for each in rows])


def job_packets() -> int:
    """Packets of all workers that fill each slot once."""
    return switch.SLOTS * switch.WORKERS


CASES: dict[str, Callable[[int], Case]] = {
    "forward": _forward,
    "l3": _l3,
    "ecn": _ecn,
    "balance": _balance,
    "cache": _cache,
    "telemetry": _telemetry,
    "copies": _copies,
    "slots-32": _slots,
}


class Written(NamedTuple):
    """What switches write: the log to their standard output, or else to files; captures."""

    console: bool
    captures: bool


class Running:
    """A switch process between cables, and the hosts at their other ends."""

    def __init__(self, name: str, case: Case, number: int, folder: Path, written: Written) -> None:
        self.name = name
        self._stack = contextlib.ExitStack()
        self._case = case
        ports = case.ports
        expected = case.expected(ports)
        self._turns = cycle(zip(case.windows, expected, strict=True))
        near = {port: (f"h{number}-{port}", f"s{number}-{port}") for port in sorted(ports)}
        self._stack.enter_context(cables(*near.values()))
        program = folder / "program.json"
        program.write_text(json.dumps(case.document), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        words = [word for p, (_, end) in near.items() for word in ("-i", f"{p}@{end}")]
        words += ["--thrift-port", str(port), "--device-id", str(number)]
        words += ["--log-console"] if written.console else ["--log-file", str(folder / name)]
        if written.captures:
            words += [f"--pcap={folder}"]
        if name == "simple_switch":
            found = Path(str(shutil.which(LOGGING)))
            words += own_notifications(found, f"ipc:///tmp/innet-{port}.ipc")
            words = [str(found), *words]
        else:
            words = [sys.executable, "-m", "innet.simple_switch.start", *words, "--engine", "jit"]
        with (folder / f"{name}.console").open("wb") as console:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, or simple_switch; no shell
                [*words, str(program)], stdout=console, stderr=subprocess.DEVNULL
            )
        self._stack.callback(self._end)
        install(port, case.commands)
        self._hosts = Ports({port: host for port, (host, _) in near.items()})
        self._stack.callback(self._hosts.close)
        time.sleep(1.0)  # simple_switch answers calls before it listens at its interfaces
        for _ in case.windows:
            self._turn(LOST_SECONDS)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it."""
        self._stack.close()

    def _turn(self, patience: float) -> int:
        """Send a window, and wait for what comes back; returns how many were sent."""
        window, expected = next(self._turns)
        self._hosts.send(window)
        came, end = 0, time.monotonic() + patience
        while came < expected:
            came += len(self._hosts.receive(0.05))
            if time.monotonic() > end:
                raise InnetError(f"{self.name}: {came} of {expected} frames came")
        return len(window)

    def measure(self, seconds: float) -> Found:
        """The rate, and the process's processor time for a packet."""
        used, begun, count = processor_time(self._process.pid), time.perf_counter(), 0
        while (taken := time.perf_counter() - begun) < seconds:
            count += self._turn(LOST_SECONDS)
        used = processor_time(self._process.pid) - used
        return Found(count / taken, used * 1e6 / count)


def measured(case: Case, turns: int, seconds: float, written: Written) -> dict[str, list[Found]]:
    """Both switches, in turns."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = []
        for number, name in enumerate(("innet", "simple_switch")):
            running.append(Running(name, case, number, Path(folder), written))
            stack.callback(running[-1].close)
        found: dict[str, list[Found]] = {each.name: [] for each in running}
        for _ in range(turns):
            for each in running:
                found[each.name].append(each.measure(seconds))
        return found


def main(  # noqa: PLR0917 - options of a command
    names: Annotated[list[str] | None, typer.Argument(help="Programs; by default all.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    window: Annotated[int, typer.Option(min=1, help="Most frames under way.")] = 16,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement.")] = 1.0,
    captures: Annotated[bool, typer.Option(help="Both also write captures.")] = False,
    console: Annotated[bool, typer.Option(help="The log goes to the standard output.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure and print."""
    rows = []
    try:
        if shutil.which(LOGGING) is None:
            remedy = "build simple_switch with --enable-logging-macros, and link it by that name"
            raise MissingToolError(LOGGING, "the comparison", remedy)
        enter_namespace()
        for name in names or CASES:
            found = measured(CASES[name](window), turns, seconds, Written(console, captures))
            rates = {each: [f.rate for f in found[each]] for each in found}
            used = {each: statistics.median(f.microseconds for f in found[each]) for each in found}
            ours, theirs = (statistics.median(rates[each]) for each in ("innet", "simple_switch"))
            spread = f"{min(rates['innet']):,.0f} to {max(rates['innet']):,.0f}"
            other = f"{min(rates['simple_switch']):,.0f} to {max(rates['simple_switch']):,.0f}"
            times = f"{used['innet']:.1f} and {used['simple_switch']:.1f} us of processor time"
            remark = f"{spread}; simple_switch {theirs:,.0f} ({other}); {times}"
            rows.append(Row(name, ours, "packets/s", remark, ours / theirs))
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    title = f"Packets that are logged, {window} under way, medians of {turns} turns"
    show(title, "innet's rate over simple_switch's", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
