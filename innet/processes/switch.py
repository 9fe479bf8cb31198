"""The built-in switch as a process on network interfaces, as ``innet switch run``.

    python -m innet.processes.switch program.json -i 1@s1-eth1 -i 2@s1-eth2 --commands rules.txt

It prints ``ready`` when it takes packets, and runs until SIGTERM, SIGINT or the command ``stop`` on
its control socket. The control socket (--control PATH, a UNIX socket) takes one command of
simple_switch_CLI a line, or ``statistics``. It answers each by one line of JSON: {"answer": text}
or {"error": text}.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from innet.core.errors import InnetError, InputError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.core.settings import EngineName
from innet.switch import Switch
from innet.tools.files import open_program, read_commands
from innet.transport.raw import Ports

_ANSWER_SECONDS = 0.5  # seconds for a client to read its answer; packets wait meanwhile
_LINE = 1 << 16  # bytes of the longest command
_LONGEST = 107  # bytes of a socket's path without its final zero: unix(7)


class SwitchProcess:
    """A switch between interfaces, and its control socket.

    Args:
        switch: the switch model.
        ports: its interfaces.
        control: path of the control socket; None for none.
        captures: writes the packets of the interfaces; None for none.
    """

    def __init__(
        self,
        switch: Switch,
        ports: Ports,
        control: Path | None = None,
        captures: Captures | None = None,
    ) -> None:
        self._switch = switch
        self._ports = ports
        self._captures = captures
        self._running = True
        self._begun = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._selector.register(ports.fileno(), selectors.EVENT_READ)
        self._clients: dict[socket.socket, bytes] = {}
        self._control = control
        if control is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            try:
                self._listener.bind(str(control))
            except OSError as error:
                self._listener.close()
                why = error.strerror or str(error)
                if len(os.fsencode(control)) > _LONGEST:
                    why = f"a socket's path has at most {_LONGEST} bytes; TMPDIR names the folder"
                raise InputError(f"cannot listen at {control}: {why}.") from None
            self._listener.listen(8)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        """Forward packets and answer commands until ``stop``.

        Raises:
            NetworkError: an interface disappeared.
        """
        try:
            while self._running:
                for key, _ in self._selector.select():
                    if key.fileobj == self._ports.fileno():
                        self._forward()
                    elif isinstance(key.fileobj, socket.socket):
                        self._listen(key.fileobj)
        finally:
            self._close()

    def _forward(self) -> None:
        arrived = self._ports.receive(0)
        if len(arrived):
            # The program's timestamps are microseconds since the start, as in simple_switch.
            self._switch.state.clock = int((time.monotonic() - self._begun) * 1e6)
            leaving = self._switch.process_batch(arrived)
            if self._captures is not None:
                self._captures.write(arrived, leaving)
            self._ports.send(leaving)

    def _listen(self, sock: socket.socket) -> None:
        if sock is self._listener:
            client, _ = sock.accept()
            client.settimeout(_ANSWER_SECONDS)
            self._clients[client] = b""
            self._selector.register(client, selectors.EVENT_READ)
            return
        try:
            read = sock.recv(_LINE)
            *lines, rest = (self._clients[sock] + read).split(b"\n")
            for line in lines:
                sock.sendall(json.dumps(self._answer(line.decode(errors="replace"))).encode())
                sock.sendall(b"\n")
        except OSError:
            read, rest = b"", b""
        self._clients[sock] = rest
        if not read or len(rest) > _LINE:
            self._selector.unregister(sock)
            del self._clients[sock]
            sock.close()

    def _answer(self, line: str) -> dict[str, object]:
        if line.strip() == "stop":
            self.stop()
            return {"answer": "stopping"}
        if line.strip() == "statistics":
            return {"answer": self.statistics()}
        try:
            return {"answer": self._switch.command(line)}
        except InnetError as error:
            return {"error": str(error)}

    def statistics(self) -> dict[str, int]:
        """The switch's counters, and the packets that its interfaces lost."""
        ports = self._ports
        return self._switch.statistics.as_dict() | {
            "lost_on_arrival": ports.lost(),
            "lost_on_departure": ports.dropped,
            "undelivered": ports.undelivered,
        }

    def _close(self) -> None:
        for client in self._clients:
            client.close()
        if self._control is not None:
            self._listener.close()
            self._control.unlink(missing_ok=True)
        if self._captures is not None:
            self._captures.close()
        self._selector.close()
        self._ports.close()


class Captures:
    """Captures of every interface, separate for arriving and leaving packets, named as by
    simple_switch.

    Args:
        folder: for s1-eth1_in.pcap, s1-eth1_out.pcap and so on; existing files are replaced.
        interfaces: by port.

    Raises:
        InputError: a file cannot be written.
    """

    def __init__(self, folder: Path, interfaces: Mapping[int, str]) -> None:
        from innet.tools.captures import CaptureWriter  # noqa: PLC0415 - it compiles

        self._writers: dict[tuple[str, int], CaptureWriter] = {}
        self._clock = 0
        for port, name in interfaces.items():
            for way in ("in", "out"):
                path = folder / f"{name}_{way}.pcap"
                path.unlink(missing_ok=True)
                self._writers[way, port] = CaptureWriter(path, nano=True)

    def write(self, arrived: PacketBatch, left: PacketBatch) -> None:
        """Append a batch and its output. All arriving packets have different time stamps.

        So a replay of the captures has the order in which the switch took the packets.
        """
        self._clock = max(time.time_ns(), self._clock)
        times = self._clock + np.arange(len(arrived), dtype=np.int64)
        self._clock += len(arrived)
        for way, packets in (("in", arrived), ("out", left)):
            when = times if way == "in" else np.full(len(packets), times[-1], np.int64)
            for port in np.unique(packets.port).tolist():
                if (way, port) in self._writers:
                    rows = np.flatnonzero(packets.port == port)
                    self._writers[way, port].write(packets.data, packets.length, when, rows)

    def close(self) -> None:
        for each in self._writers.values():
            each.close()


def run(
    program: str | Path,
    interfaces: Sequence[str],
    *,
    commands: Path | None = None,
    control: Path | None = None,
    pcap: Path | None = None,
    engine: EngineName = "jit",
    seed: int = 0,
    priority_queues: int = 1,
) -> None:
    """Forward packets between network interfaces until SIGTERM or SIGINT.

    Args:
        program: BMv2 JSON, plain or compressed, or the name of a shipped program.
        interfaces: such as "1@s1-eth1", for port 1.
        commands: a file of simple_switch_CLI's commands, run first.
        control: path of the control socket.
        pcap: folder for captures of all interfaces.
        engine: "jit" or "interpret".
        seed: of the program's random().
        priority_queues: egress queues per port.

    Raises:
        InnetError: an argument is invalid, or an interface disappeared.
    """
    named = interfaces_of(interfaces)
    switch = Switch(
        open_program(program), engine=engine, seed=seed, priority_queues=priority_queues
    )
    read_commands(commands).run(switch)
    switch.process_batch(PacketBatch.empty())  # compiled now, not when a packet waits
    captures = None if pcap is None else Captures(pcap, named)
    process = SwitchProcess(switch, Ports(named), control, captures)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))  # by way of the process's own end
    print("ready", flush=True)
    process.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    options = vars(_options(arguments))
    try:
        run(options.pop("program"), options.pop("interface"), **options)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def interfaces_of(given: Sequence[str]) -> dict[int, str]:
    """Port -> interface, from arguments such as "1@s1-eth1"; InputError for any other."""
    interfaces: dict[int, str] = {}
    for word in given:
        port, at, name = word.partition("@")
        if not (at and name and port.isdigit()):
            raise InputError(f"--interface {word}: write it as PORT@NAME, such as 1@s1-eth1.")
        if int(port) > MAX_PORT:
            raise InputError(f"--interface {word}: a switch has ports 0 to {MAX_PORT}.")
        if int(port) in interfaces:
            raise InputError(f"--interface {word}: port {port} has an interface already.")
        interfaces[int(port)] = name
    return interfaces


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m innet.processes.switch",
        description="The built-in switch on network interfaces.",
    )
    parser.add_argument("program", help="BMv2 JSON, plain or compressed, or slots-64 and so on")
    parser.add_argument(
        "-i", "--interface", action="append", default=[], metavar="PORT@NAME", help="repeatable"
    )
    parser.add_argument("--commands", type=Path, help="a file of simple_switch_CLI's commands")
    parser.add_argument("--control", type=Path, help="where to listen for commands")
    parser.add_argument("--pcap", type=Path, help="write captures of all interfaces to this folder")
    parser.add_argument("--engine", default="jit", choices=("jit", "interpret"))
    parser.add_argument("--seed", type=int, default=0, help="of the program's random()")
    parser.add_argument("--priority-queues", type=int, default=1, help="egress queues per port")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
