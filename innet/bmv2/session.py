"""A session with a running simple_switch: packets and commands in any order, with waiting.

simple_switch reads packets from capture files in the order of their time stamps. It takes a packet
only when it knows the next one at the same port. Here the files are pipes: simple_switch takes a
packet when the next packet of its port is written. So commands can run between any two packets.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from innet.bmv2.build import own_notifications
from innet.bmv2.cli import CliProcess, CommandClient
from innet.bmv2.control_plane import ThriftControlPlane
from innet.core.errors import ControlError, ProgramError, StalledError
from innet.core.pcap import pcap_header, pcap_record

Packets = Sequence[tuple[int, bytes]]

_STOP_SECONDS = 5.0
_FILE_HEADER = pcap_header(nano=False)
_RECORD = struct.Struct("=IIII")


class Session:
    """A new simple_switch that receives ``packets``. As a context manager it starts and ends it.

    Args:
        switch, cli: the executables; without simple_switch_CLI, commands run over Thrift.
        program: p4c's JSON, as text.
        packets: (port, bytes) of all packets in order of arrival; ``play`` sends them.
        ports: additional output ports; simple_switch sends only to ports that it has.
        deadline: seconds for the whole session.
        thrift: run commands over Thrift even if simple_switch_CLI is installed.
        priority_queues: egress queues per port.

    Raises:
        ControlError: a command was refused; says why.
        ProgramError: simple_switch ended, because it refuses the program or failed an assertion;
            quotes its output.
        StalledError: the deadline passed; says what it waited for.
    """

    def __init__(
        self,
        switch: Path,
        cli: Path | None,
        program: str,
        packets: Packets,
        *,
        ports: Iterable[int] = (),
        deadline: float = 120.0,
        thrift: bool = False,
        priority_queues: int = 1,
    ) -> None:
        self._switch, self._cli = switch, cli
        self._thrift = thrift or cli is None
        self._priority_queues = priority_queues
        self._program = program
        self._packets = packets
        self._ports = sorted({port for port, _ in packets} | set(ports))
        self._end = time.monotonic() + deadline
        self._handed = 0
        #: For each packet, the position of the next packet at the same port.
        self._successors = _successors(packets)
        self._read = dict.fromkeys(self._ports, len(_FILE_HEADER))

    # ── Start and end ──

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name)
        self._pipes: dict[int, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: CommandClient | CliProcess | None = None
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        (self._path / "program.json").write_text(self._program, encoding="utf-8")
        thrift = _free_port()
        command = [str(self._switch), "--use-files", "0", "--thrift-port", str(thrift)]
        # Relative to the folder that it runs in: a socket's path has at most 107 bytes.
        command += own_notifications(self._switch, "ipc://notifications.ipc")
        heard = {port for port, _ in self._packets}
        for port in self._ports:
            command += ["-i", f"{port}@p{port}"]
            path = self._path / f"p{port}_in.pcap"
            if port in heard:
                os.mkfifo(path)
                # Open for reading too, so that opening does not block.
                self._pipes[port] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                os.write(self._pipes[port], _FILE_HEADER)
            else:
                path.write_bytes(_FILE_HEADER)
        # Options after -- are those of the target rather than of BMv2.
        command += ["program.json", "--", "--priority-queues", str(self._priority_queues)]
        with (self._path / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own tool, no shell
                command, cwd=self._path, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait(lambda: _listening(thrift), "simple_switch to listen")
        if self._cli is None or self._thrift:
            self._control = CommandClient(json.loads(self._program), thrift)
        else:  # the reference
            self._control = CliProcess(self._cli, thrift)
        # By default the egress queues of simple_switch hold 64 packets and drop further ones.
        self.command("set_queue_depth 10000000")

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()  # its output is in the files already
            self._process.wait(_STOP_SECONDS)
        for pipe in self._pipes.values():
            os.close(pipe)
        self._folder.cleanup()

    # ── Control ──

    @property
    def control(self) -> ThriftControlPlane:
        """Its control plane, for a session with ``thrift`` or without simple_switch_CLI."""
        assert isinstance(self._control, CommandClient), "a session over Thrift, once begun"
        return self._control.control

    def command(self, line: str) -> str:
        """Run one command; returns its output, or raises ControlError."""
        return self.commands([line])[0]

    def commands(self, lines: Sequence[str]) -> list[str]:
        """Run several commands up to the first refused one."""
        answers = self.attempt(lines)
        for line, answer in zip(lines, answers, strict=True):
            if refused(answer):
                raise ControlError(f"simple_switch: {line}: {answer.strip()}")
        return answers

    def attempt(self, lines: Sequence[str]) -> list[str]:
        """The output of each command; ``refused`` detects refusals."""
        assert self._control is not None, "commands belong into the with statement"
        try:
            return self._control.run(lines)
        except ControlError:
            self._check_alive()
            raise

    # ── Packets ──

    def play(self, count: int | None = None) -> dict[int, list[bytes]]:
        """Send the next ``count`` packets to the switch (None: all remaining ones).

        Waits until simple_switch is idle. Returns its output since the last call, by port and in
        order, without ports that sent nothing.
        """
        self.send(count)
        self._wait(self._idle, "simple_switch to come to rest")
        return {port: sent for port in self._ports if (sent := self._sent(port))}

    def send(self, count: int | None = None) -> None:
        """Send the next ``count`` packets to the switch, without waiting for what it does."""
        end = len(self._packets) if count is None else self._handed + count
        for position in range(self._handed, end):
            if position == 0:
                self._write_first()
            else:
                self._release(position - 1)
        self._handed = end

    def _write_first(self) -> None:
        """Write the first packet of each port; simple_switch needs all of them to choose the next
        one.
        """
        first = {port: position for position, (port, _) in reversed([*enumerate(self._packets)])}
        for position in first.values():
            self._write(position)

    def _release(self, position: int) -> None:
        """Write the packet after that at ``position`` at the same port; the switch waits for it."""
        following = self._successors[position]
        if following is not None:
            self._write(following)
        else:
            os.close(self._pipes.pop(self._packets[position][0]))

    def _write(self, position: int) -> None:
        """A packet as a capture record; the time stamps define the order."""
        port, data = self._packets[position]
        pipe = self._pipes[port]
        rest = memoryview(pcap_record(1000 * position, data, nano=False))
        while rest:
            try:
                rest = rest[os.write(pipe, rest) :]
            except BlockingIOError:
                self._wait(lambda: _writable(pipe), "simple_switch to read its packets")

    def _sent(self, port: int) -> list[bytes]:
        """The output at ``port`` since the last call."""
        with (self._path / f"p{port}_out.pcap").open("rb") as file:
            file.seek(self._read[port])
            content = file.read()
        self._read[port] += len(content)
        return [data for _, data in _records(content)]

    def departures(self) -> dict[int, list[tuple[float, bytes]]]:
        """The complete output by port and in order, with times in seconds since the epoch."""
        return {
            port: _records((self._path / f"p{port}_out.pcap").read_bytes()[len(_FILE_HEADER) :])
            for port in self._ports
        }

    # ── What it is doing ──

    def _idle(self) -> bool:
        """Whether all threads sleep and all input is read.

        It checks every thread twice. If each sleeps both times and was not scheduled in between,
        all slept at the time between the two checks. Pending work would have woken one.
        """
        if any(_unread(pipe) for pipe in self._pipes.values()):
            return False
        first = self._threads()
        return all(state == "S" for state, *_ in first.values()) and first == self._threads()

    def _threads(self) -> dict[str, tuple[str, str, str]]:
        """State and context switches, voluntary and involuntary, of each thread."""
        assert self._process is not None
        self._check_alive()
        threads = {}
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            try:
                lines = (task / "status").read_text(encoding="ascii").splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread ended after it was listed
            known = dict(line.split(":", 1) for line in lines)
            threads[task.name] = (
                known["State"].split()[0],
                known["voluntary_ctxt_switches"],
                known["nonvoluntary_ctxt_switches"],
            )
        return threads

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        pause = 0.0
        while not ready():
            self._check_alive()
            if time.monotonic() > self._end:
                raise StalledError(f"deadline passed while waiting for {what}.")
            time.sleep(pause)
            pause = min(0.01, pause + 0.0002)

    def _check_alive(self) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            return
        log = (self._path / "log").read_text(encoding="utf-8", errors="replace").strip()
        ending = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        raise ProgramError(
            f"simple_switch ended with {ending}; it may not accept the program or an option. Its "
            f"last words: {log[-500:]}"
        )


def refused(answer: str) -> bool:
    """Whether the output of a command is an error."""
    return bool(re.search(r"^(?:.*Error|Invalid|\*\*\* Unknown|Could not)", answer, re.MULTILINE))


def _successors(packets: Packets) -> list[int | None]:
    following: list[int | None] = [None] * len(packets)
    latest: dict[int, int] = {}
    for position, (port, _) in enumerate(packets):
        if port in latest:
            following[latest[port]] = position
        latest[port] = position
    return following


def _records(content: bytes) -> list[tuple[float, bytes]]:
    """(time, data) of the complete records of a capture file without its header."""
    records = []
    offset = 0
    while offset + _RECORD.size <= len(content):
        seconds, micros, length, _ = _RECORD.unpack_from(content, offset)
        offset += _RECORD.size + length
        if offset <= len(content):
            records.append((seconds + micros * 1e-6, content[offset - length : offset]))
    return records


def _unread(pipe: int) -> int:
    """Bytes in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


def _writable(pipe: int) -> bool:
    return bool(select.select([], [pipe], [], 0)[1])


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
