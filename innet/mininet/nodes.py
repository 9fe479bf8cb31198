"""Mininet nodes for P4: hosts without offloads, and two kinds of switch.

Sources for the settings of their network namespaces: setns(2), network_namespaces(7), netdevice(7),
linux/ethtool.h.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from innet.bmv2.build import find_simple_switch, own_notifications
from innet.bmv2.cli import CommandClient
from innet.bmv2.session import refused
from innet.core import child_process
from innet.core.child_process import ChildProcess
from innet.core.errors import (
    ControlError,
    InputError,
    NetworkError,
    ProgramError,
    StalledError,
)
from innet.mininet.debian import Host, Switch, log_error
from innet.switch import load_program

_READY_SECONDS = 120.0  # a program that was never compiled here, on a busy machine
_EXACT = (["register_read"], ["queue_read"])  # simple_switch's own calls tell less
_QUIET = "for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $each; done 2>/dev/null"
_QUEUE = 1 << 20  # packets; simple_switch's default of 64 drops bursts of two workers

_CLONE_NEWNET = 0x40000000
_SIOCSIFMTU = 0x8922
_SIOCETHTOOL = 0x8946
_OFFLOADS = {  # ETHTOOL_S...: receive and transmit checksums, scatter-gather, segmentation
    "rx": 0x15,
    "tx": 0x17,
    "sg": 0x19,
    "tso": 0x1F,
    "gso": 0x24,
    "gro": 0x2C,
}

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def network_namespace_of(pid: int) -> Iterator[None]:
    """Enter the network namespace of process ``pid`` with this thread while the context is open.

    Sockets opened meanwhile stay in that namespace.

    Raises:
        NetworkError: there is no such process, or not root.
    """
    local = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _enter(f"/proc/{pid}/ns/net")
        try:
            yield
        finally:
            if _libc.setns(local, _CLONE_NEWNET):
                raise NetworkError("cannot return to the previous network namespace.")
    finally:
        os.close(local)


def _enter(path: str) -> None:
    try:
        namespace = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise NetworkError(f"no network namespace at {path}: {error.strerror}.") from None
    try:
        if _libc.setns(namespace, _CLONE_NEWNET):
            raise NetworkError(
                f"cannot enter {path}: {os.strerror(ctypes.get_errno())}; run as root."
            )
    finally:
        os.close(namespace)


def turn_offloads_off(interface: str) -> None:
    """Turn off the offloads of an interface of this namespace, so that frames are as on a cable.

    On a veth pair, the kernel would leave out checksums and segmentation, since both ends are its
    own. A P4 program would see frames that no cable carries. Offloads that the driver lacks are
    ignored.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value)).ljust(40)
            with contextlib.suppress(OSError):
                fcntl.ioctl(sock, _SIOCETHTOOL, request)


def set_mtu(interface: str, mtu: int) -> None:
    """Set the MTU of an interface of this namespace: bytes after the Ethernet header.

    Raises:
        NetworkError: its driver refuses it.
    """
    request = struct.pack("16si", interface.encode(), mtu).ljust(40)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, _SIOCSIFMTU, request)
        except OSError as error:
            raise NetworkError(
                f"interface {interface} takes no frames of {mtu} bytes: {error.strerror}."
            ) from None


def add_neighbors(pid: int, interface: str, neighbors: Mapping[str, str]) -> None:
    """Add static ARP entries to an interface in the network namespace of process ``pid``.

    Args:
        pid: of a process in the namespace.
        interface: its name there.
        neighbors: IPv4 address -> MAC address.

    Raises:
        NetworkError: the kernel refused one.
    """
    lines = [f"neigh replace {ip} lladdr {mac} dev {interface}" for ip, mac in neighbors.items()]
    # Not in the node's shell: its terminal cuts lines of more than 4,096 characters.
    done = subprocess.run(  # noqa: S603 - Mininet's and iproute2's programs, no shell
        ["mnexec", "-a", str(pid), "ip", "-batch", "-"],  # noqa: S607 - they are on PATH
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NetworkError(f"neighbors of {interface} cannot be set: {done.stderr.strip()}")


def listens(port: int) -> bool:
    """Whether something listens at a TCP port of this namespace's loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class P4Host(Host):
    """A host for P4 networks: offloads off, IPv6 off, static ARP.

    Mininet passes what a host is made with to ``config``.
    """

    def config(
        self,
        *,
        neighbors: Mapping[str, str] | None = None,
        interface: str | None = None,
        commands: Sequence[str] = (),
        mtu: int | None = None,
        **params: Any,
    ) -> Any:
        """Called by Mininet once the host has its interfaces.

        Args:
            neighbors: static ARP entries, IPv4 address -> MAC address.
            interface: name of its interface; by default Mininet's, such as h1-eth0.
            commands: run after it is configured; a failure is printed, and the next command is run.
            mtu: of its interfaces, bytes; None for the kernel's 1,500.
            params: of Mininet's hosts.
        """
        result = super().config(**params)
        default = self.defaultIntf()
        if interface is not None and default is not None:
            default.rename(interface)
        prepare(self, mtu)
        for command in commands:
            said = self.cmd(command).strip()
            status = self.cmd("echo $?").strip()
            if status != "0":  # for example a missing tool; the others may work
                why = said or "it said nothing"
                log_error(f"{self.name}: `{command}` failed with status {status}: {why}\n")
        if neighbors and default is not None:
            add_neighbors(self.pid, default.name, neighbors)
        return result


def prepare(node: Any, mtu: int | None = None) -> None:
    """Turn off the offloads and IPv6 of a node's interfaces, and set their MTU.

    Args:
        node: Mininet's.
        mtu: of its interfaces, bytes; None for the kernel's 1,500.
    """
    node.cmd(_QUIET)
    with network_namespace_of(node.pid):
        for interface in node.intfNames():
            turn_offloads_off(interface)
            if mtu is not None and interface != "lo":
                set_mtu(interface, mtu)


class P4Switch(Switch):
    """A switch that runs a compiled P4 program in a separate network namespace.

    Args:
        name: as everywhere in Mininet.
        program: BMv2 JSON.
        commands: commands of simple_switch_CLI.
        folder: for logs and captures; by default a temporary one while this process runs.
        pcap: write captures of every interface into this folder.
        priority_queues: egress queues per port.
        mtu: of its interfaces, bytes; None for the kernel's 1,500.
        deadline: seconds within which it must be ready.
        batch: ``start`` does not wait; ``batchStartup`` waits for all switches. Mininet sets it
            when it calls both, so that switches start in parallel.
        thrift_port: port of its control plane, in the switch's namespace.
        device_id: as simple_switch's option.
        log_level: "off", or simple_switch's log level; the log goes to the folder.
    """

    def __init__(
        self,
        name: str,
        *,
        program: str | Path,
        commands: Sequence[str] = (),
        folder: str | Path | None = None,
        pcap: str | Path | None = None,
        priority_queues: int = 1,
        mtu: int | None = None,
        deadline: float = _READY_SECONDS,
        batch: bool = False,
        thrift_port: int = 9090,
        device_id: int = 0,
        log_level: str = "off",
        **params: Any,
    ) -> None:
        params["inNamespace"] = True
        params.setdefault("dpid", "1")
        super().__init__(name, **params)
        self.program = Path(program)
        self.commands = tuple(commands)
        self.pcap = None if pcap is None else Path(pcap)
        self.priority_queues = priority_queues
        self.mtu = mtu
        self.deadline = deadline
        self.thrift_port = thrift_port
        self.device_id = device_id
        self.log_level = log_level
        self._batch = batch
        if folder is None:
            folder = tempfile.mkdtemp(prefix=f"innet-{name}-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.folder = Path(folder)
        self.process: ChildProcess | None = None
        self._control: CommandClient | None = None
        self._end = 0.0
        # For its notifications' address: that of all switches by default, which share the machine's
        # files, is the same. A socket's path is short.
        self._sockets = Path(tempfile.mkdtemp(prefix="innet-", dir="/tmp"))
        atexit.register(shutil.rmtree, self._sockets, ignore_errors=True)

    @property
    def notifications(self) -> str:
        """Its nanomsg address for digests, idle entries and ports."""
        return f"ipc://{self._sockets}/notifications.ipc"

    @abstractmethod
    def _executable(self) -> Sequence[str | Path]:
        """The words that begin the command of the switch; simple_switch's options follow."""

    def _own_options(self) -> Sequence[str]:
        """Options that only this kind of switch has."""
        return ()

    def _notification_options(self) -> Sequence[str]:
        """Options that give it a notifications address of its own."""
        return ["--notifications-addr", self.notifications]

    #: Environment variables of the process.
    _environment: Mapping[str, str] = {}

    def start(self, controllers: Sequence[Any]) -> None:  # noqa: ARG002 - Mininet's interface
        """Called by Mininet. Start the program, and wait until it takes packets.

        Raises:
            InputError: there is no such program.
            ProgramError: the file is not a compiled P4 program.
            NetworkError: the switch ended; quotes its output.
            StalledError: it was not ready in time.
            ControlError: a command was refused.
        """
        self._check_program()
        self.cmd("ip link set lo up")
        prepare(self, self.mtu)
        self._launch({port: each.name for port, each in self.intfs.items() if each.name != "lo"})
        if not self._batch:
            self._wait()

    def _check_program(self) -> None:
        """Refuse a wrong program, and name its file, before anything is started."""
        if not self.program.is_file():
            raise InputError(f"switch {self.name}: there is no program {self.program}.")
        try:
            load_program(self.program)  # once for all switches with this program
        except ProgramError as error:
            message = str(error).removeprefix(f"{self.program}: ")
            raise ProgramError(
                f"switch {self.name}: {self.program}: {message}. Give the JSON that p4c writes: "
                "innet p4 compile PROGRAM.p4"
            ) from None

    @classmethod
    def batchStartup(cls, switches: Sequence[Any]) -> Sequence[Any]:  # noqa: N802 - Mininet's name
        """Called by Mininet when all switches have been started; see ``start`` for errors."""
        for switch in switches:
            switch._wait()
        return switches

    def _launch(self, interfaces: Mapping[int, str]) -> None:
        """Start the program."""
        words = [*self._executable()]
        for port, interface in interfaces.items():
            words += ["-i", f"{port}@{interface}"]
        words += ["--thrift-port", str(self.thrift_port), "--device-id", str(self.device_id)]
        self._sockets.mkdir(mode=0o700, exist_ok=True)  # if it was stopped before
        words += self._notification_options()
        if self.log_level != "off":
            words += ["--log-file", self.folder / f"{self.name}-packets", "--log-flush"]
            words += ["--log-level", self.log_level]
        if self.pcap is not None:
            words += [f"--pcap={self.pcap}"]
        with network_namespace_of(self.pid):
            if listens(self.thrift_port):
                raise NetworkError(
                    f"switch {self.name}: TCP port {self.thrift_port} is in use already; choose "
                    "another thrift_port."
                )
        words += [self.program, "--", "--priority-queues", str(self.priority_queues)]
        self.process = ChildProcess(
            f"switch {self.name}",
            [*words, *self._own_options()],
            self.folder / f"{self.name}.log",
            node=self.pid,
            environment=self._environment,
            talks=False,
        )
        self._end = time.monotonic() + self.deadline

    def _wait(self) -> None:
        """Wait until it takes packets and commands."""
        self._wait_until_it_listens()
        try:
            self._control = CommandClient(
                json.loads(self.program.read_text(encoding="utf-8")),
                self.thrift_port,
                inside=lambda: network_namespace_of(self.pid),
                seconds=max(1.0, self._end - time.monotonic()),
            )
        except StalledError:
            raise self._not_ready() from None
        except ControlError:
            self.check()  # it ended before it answered
            raise
        for line in (f"set_queue_depth {_QUEUE}", *self.commands):
            self.command(line)

    def _wait_until_it_listens(self) -> None:
        while True:
            self.check()
            with network_namespace_of(self.pid):
                if listens(self.thrift_port):
                    return
            if time.monotonic() > self._end:
                raise self._not_ready()
            time.sleep(0.02)

    def _not_ready(self) -> StalledError:
        return StalledError(
            f"switch {self.name} was not ready within {self.deadline:g} s. Its process runs; on a "
            "busy machine it may still compile the program, which it keeps for the next time: try "
            "again."
        )

    def command(self, line: str) -> str:
        """Run one command of simple_switch_CLI; returns what it prints.

        Raises:
            ControlError: it was refused.
            NetworkError: the switch is not running.
            StalledError: it did not answer in time.
        """
        with self._asked(line) as control:
            answer = control.run([line])[0]
        if refused(answer):
            raise ControlError(f"{self.name}: {line}: {answer.strip()}")
        return answer.strip()

    @contextlib.contextmanager
    def _asked(self, what: str) -> Iterator[CommandClient]:
        """The control plane, whose errors name the switch."""
        self.check()
        if self._control is None:
            raise NetworkError(f"{self.name} is not ready.")
        try:
            yield self._control
        except ControlError as error:  # the connection is gone
            self.check()
            said = str(error).removeprefix("command: ")  # the call that took it
            raise ControlError(f"{self.name}: {what}: {said}") from error

    def check(self) -> None:
        """Raise NetworkError if the switch has ended."""
        if self.process is None or not self.process.running:
            raise self.process.death() if self.process else NetworkError(f"{self.name} is off.")

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Called by Mininet."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.process is not None:
            self.process.end()
            self.process = None
        shutil.rmtree(self._sockets, ignore_errors=True)
        super().stop(deleteIntfs)


class BuiltinSwitch(P4Switch):
    """innet's own switch: ``innet simple-switch``.

    Args:
        name: as everywhere in Mininet.
        engine: "jit" waits for the compiler before it takes packets, "auto" begins with the
            interpreter, "interpret" goes on with it.
        seed: of the program's random().
        params: see ``P4Switch``.
    """

    def __init__(self, name: str, *, engine: str = "jit", seed: int = 0, **params: Any) -> None:
        super().__init__(name, **params)
        self.engine = engine
        self.seed = seed
        self._environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def _executable(self) -> Sequence[str | Path]:
        return [child_process.PYTHON, "-m", "innet.simple_switch.start"]

    def _own_options(self) -> Sequence[str]:
        return ["--engine", self.engine, "--seed", str(self.seed)]

    def command(self, line: str) -> str:
        """As ``P4Switch.command``; register cells of more than 63 bits and queues, too."""
        if line.split(maxsplit=1)[:1] not in _EXACT:
            return super().command(line)
        with self._asked(line) as control:
            return str(control.call("command", line)).strip()

    def statistics(self) -> dict[str, int]:
        """The switch's packet counts; those that its interfaces lost, too."""
        with self._asked("statistics") as control:
            found: dict[str, int] = json.loads(control.call("statistics"))
        return found


class Bmv2Switch(P4Switch):
    """BMv2's simple_switch.

    Args:
        name: as everywhere in Mininet.
        simple_switch: the executable; by default the one on PATH.
        params: see ``P4Switch``.
    """

    def __init__(
        self, name: str, *, simple_switch: str | Path | None = None, **params: Any
    ) -> None:
        self._switch, _ = find_simple_switch(simple_switch)
        super().__init__(name, **params)

    def _executable(self) -> Sequence[str | Path]:
        return [self._switch]

    def _notification_options(self) -> Sequence[str]:
        return own_notifications(self._switch, self.notifications)
