"""Packets through an installed simple_switch: the reference that the built-in switch is held to.

simple_switch reads its packets from capture files and writes what it sends into others, so neither
root nor network interfaces are needed. One run starts a fresh switch, loads its control plane,
plays the packets, reads registers back and stops it.

Source: BMv2's docs/simple_switch.md and docs/runtime_CLI.md.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.errors import ControlError, MissingToolError, ProgramError, StalledError

Packets = Sequence[tuple[int, bytes]]

_START_SECONDS = 6  # simple_switch waits this long for its control plane before it plays packets
_STOP_SECONDS = 5.0
_CONTROL_SECONDS = 60.0
_PCAP_HEADER = struct.Struct("=IHHiIII")
_PCAP_RECORD = struct.Struct("=IIII")
_REMEDY = (
    "Install BMv2 (https://github.com/p4lang/behavioral-model#installing-bmv2) so that "
    "simple_switch and simple_switch_CLI are on PATH. The built-in switch needs neither."
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What simple_switch did.

    Attributes:
        packets: what left, by port, in order.
        registers: those that were asked for, by name.
        seconds: between the first and the last packet that left, by simple_switch's own clock.
    """

    packets: dict[int, list[bytes]]
    registers: dict[str, NDArray[np.uint64]]
    seconds: float


def find_simple_switch() -> tuple[Path, Path]:
    """simple_switch and simple_switch_CLI on PATH.

    Raises:
        MissingToolError: one of them is not there; says how to get it.
    """
    found = [shutil.which(name) for name in ("simple_switch", "simple_switch_CLI")]
    if found[0] is None or found[1] is None:
        raise MissingToolError("simple_switch", "running a program on BMv2", _REMEDY)
    return Path(found[0]), Path(found[1])


def version() -> str:
    """Of the installed simple_switch, such as "1.15.5"."""
    switch, _ = find_simple_switch()
    result = subprocess.run(  # noqa: S603 - the user's own tool, no shell
        [switch, "--version"], capture_output=True, text=True, timeout=10, check=False
    )
    return result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "unknown"


def run(
    program: Mapping[str, Any],
    packets: Packets,
    commands: Iterable[str] = (),
    registers: Iterable[str] = (),
    deadline: float = 120.0,
) -> Reference:
    """Play ``packets`` through a fresh simple_switch.

    Args:
        program: p4c's JSON.
        packets: (port, bytes) in the order in which they arrive.
        commands: control plane, in the dialect of simple_switch_CLI.
        registers: names of the register arrays to read back at the end.
        deadline: seconds for the whole run.

    Raises:
        MissingToolError: simple_switch is not installed.
        ControlError: simple_switch_CLI reported an error.
        ProgramError: simple_switch refused the program.
        StalledError: the deadline passed; says what it waited for.
    """
    switch, cli = find_simple_switch()
    ports = sorted({port for port, _ in packets} | _ports_of(commands := list(commands)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.json").write_text(json.dumps(program), encoding="utf-8")
        for port in ports:
            _write_pcap(folder / f"p{port}_in.pcap", packets, port)
        thrift = _free_port()
        command = [str(switch), "--use-files", str(_START_SECONDS), "--thrift-port", str(thrift)]
        for port in ports:
            command += ["-i", f"{port}@p{port}"]
        end = time.monotonic() + deadline
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - the user's own tool, no shell
                [*command, "program.json"], cwd=folder, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                started = time.monotonic()
                _wait(lambda: _listening(thrift), process, end, "simple_switch to listen")
                # The egress queues of simple_switch hold 64 packets and drop what is more.
                _control(cli, thrift, ["set_queue_depth 10000000", *commands])
                if time.monotonic() - started > _START_SECONDS:
                    raise StalledError("simple_switch played packets before its control plane.")
                _wait_until_played(folder, ports, process, end)
                values = {each: _read_register(cli, thrift, each) for each in registers}
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        played = {port: _read_pcap(folder / f"p{port}_out.pcap") for port in ports}
    times = [time for records in played.values() for time, _ in records]
    return Reference(
        packets={port: [data for _, data in records] for port, records in played.items()},
        registers=values,
        seconds=max(times) - min(times) if times else 0.0,
    )


def _ports_of(commands: Sequence[str]) -> set[int]:
    """Ports that multicast nodes name: simple_switch sends only to ports that it has."""
    ports: set[int] = set()
    for command in commands:
        words = command.split()
        if words[:1] == ["mc_node_create"]:
            ports.update(map(int, words[2:]))
    return ports


def _wait(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], end: float, what: str
) -> None:
    while not ready():
        if process.poll() is not None:
            raise ProgramError(
                f"simple_switch ended with status {process.returncode} before the packets were "
                "played; it may not accept the program or an option."
            )
        if time.monotonic() > end:
            raise StalledError(f"deadline passed while waiting for {what}.")
        time.sleep(0.05)


def _wait_until_played(
    folder: Path, ports: Sequence[int], process: subprocess.Popen[bytes], end: float
) -> None:
    """Until all input is read and no output has grown for a second.

    simple_switch does not say when a capture is at its end, so look at how far it has read.
    """
    time.sleep(_START_SECONDS)
    inputs = {(folder / f"p{port}_in.pcap").resolve() for port in ports}
    _wait(lambda: _all_read(process.pid, inputs), process, end, "simple_switch to read its packets")
    outputs = [folder / f"p{port}_out.pcap" for port in ports]
    last: tuple[list[int], float] = ([], time.monotonic())

    def quiet() -> bool:
        nonlocal last
        sizes = [path.stat().st_size for path in outputs if path.exists()]
        if sizes != last[0]:
            last = (sizes, time.monotonic())
        return time.monotonic() - last[1] > 1.0

    _wait(quiet, process, end, "simple_switch to stop sending")


def _all_read(pid: int, inputs: set[Path]) -> bool:
    """Whether the process has read each of ``inputs`` to its end, or closed it."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            path = descriptor.resolve()
            if path not in inputs:
                continue
            info = Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text(encoding="ascii")
        except FileNotFoundError:
            continue  # closed since it was listed
        position = int(info.split("pos:", 1)[1].split(None, 1)[0])
        if position < path.stat().st_size:
            return False
    return True


def _control(cli: Path, thrift: int, commands: Sequence[str]) -> str:
    """Send commands; return what the CLI printed."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own tool, no shell
            [cli, "--thrift-port", str(thrift)],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=_CONTROL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StalledError(
            f"simple_switch_CLI did not answer {len(commands)} commands in {_CONTROL_SECONDS:g} s."
        ) from None
    wrong = re.search(r"^.*(?:Error|Invalid|Unknown|Could not).*$", result.stdout, re.MULTILINE)
    if wrong or result.returncode != 0:
        said = wrong.group() if wrong else result.stderr.strip()
        raise ControlError(f"simple_switch_CLI: {said}")
    return result.stdout


def _read_register(cli: Path, thrift: int, name: str) -> NDArray[np.uint64]:
    answer = _control(cli, thrift, [f"register_read {name}"])
    match = re.search(re.escape(name) + r"=\s*([\d, -]+)", answer)
    if match is None:
        raise ControlError(f"simple_switch_CLI did not answer register_read {name}: {answer}")
    return np.array([int(value) for value in match.group(1).split(",")], np.uint64)


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_pcap(path: Path, packets: Packets, port: int) -> None:
    """The packets of ``port``; time stamps carry the order among ports, which they decide."""
    with path.open("wb") as file:
        file.write(_PCAP_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for position, (each, data) in enumerate(packets):
            if each == port:
                seconds, micros = divmod(position, 1_000_000)
                file.write(_PCAP_RECORD.pack(seconds, micros, len(data), len(data)) + data)


def _read_pcap(path: Path) -> list[tuple[float, bytes]]:
    content = path.read_bytes() if path.exists() else b""
    records = []
    offset = _PCAP_HEADER.size
    while offset + _PCAP_RECORD.size <= len(content):
        seconds, micros, length, _ = _PCAP_RECORD.unpack_from(content, offset)
        offset += _PCAP_RECORD.size
        records.append((seconds + micros * 1e-6, content[offset : offset + length]))
        offset += length
    return records
