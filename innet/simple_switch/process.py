"""The built-in switch in the place of BMv2's simple_switch: its flags, its control plane.

    python -m innet.simple_switch.process -i 1@veth1 -i 2@veth2 --thrift-port 9090 program.json

It is ready at once: the interpreter runs the packets until the program is compiled, which a process
of its own does, and then the machine code goes on with the same state.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from innet.core.child_process import PYTHON, die_with_parent
from innet.core.engines import EngineName
from innet.core.errors import InnetError, InputError, NetworkError, ProgramError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.simple_switch import nanomsg, port_forwarding
from innet.simple_switch.captures import Captures
from innet.simple_switch.control_log import ControlLog
from innet.simple_switch.log import LEVELS, MOST_BYTES, MOST_FILES, Log
from innet.simple_switch.notifications import LearnLists, Notifications
from innet.simple_switch.open_sockets import OpenSockets
from innet.simple_switch.port_forwarding import PortForwarding
from innet.simple_switch.ports import FilePorts, MessagePorts, SwitchPorts
from innet.simple_switch.thrift_calls import PortState, SwapError
from innet.simple_switch.thrift_server import ThriftServer
from innet.switch import Switch, ir, is_compiled, load_program, unlogged, unsupported
from innet.switch.state.ageing import IdleTimeout
from innet.tools.files import open_document
from innet.transport.raw import Ports

BMV2_VERSION = "1.15.5"
"""The version of simple_switch whose answers this gives."""

JSON_VERSION = "2.24"
MOST_GROUPS = 4096
"""Multicast groups, and nodes, by default."""

_POLL_SECONDS = 1.0  # between two looks at interfaces, and at idle entries
_MANY_CHANGES = 32  # of tables, which are then taken over together
_QUIET_SECONDS = 0.1  # without packets and calls, until many changes are taken over
_COMPILING_SECONDS = 0.1  # between two looks at the process that compiles
_NANOSECONDS = 1_000_000_000
_REFUSED = {
    "--debugger": "there is no debugger; `innet switch explain` and Switch.trace tell every step",
    "--debugger-addr": "there is no debugger; Switch.trace tells every step of a packet",
    "--restore-state": "state files are not read; send the commands again",
    "--load-modules": "there are no modules of externs; v1model's own are built in",
}


class Compilation:
    """A process that compiles a program for the jit engine.

    Of several that compile the same program, one does, and the others wait for its result.
    """

    def __init__(self, config: str, drop_port: int) -> None:
        self._result: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="innet-compile-")
        path = Path(self._folder.name) / "program.json"
        path.write_text(config, encoding="utf-8")
        words = [PYTHON, "-m", "innet.simple_switch.process", "--compile", str(path)]
        words += ["--drop-port", str(drop_port)]
        self._process = subprocess.Popen(  # noqa: S603 - this Python, no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread holds a lock it needs
        )

    def result(self) -> str | None:
        """None while it runs; then why it failed, "" if it did not."""
        if self._result is None and self._process.poll() is not None:
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip()
            self._process.stderr.close()
            self._folder.cleanup()
            self._result = "" if self._process.returncode == 0 else said or "it was killed"
        return self._result

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.result()  # which removes its files


@dataclass(frozen=True, slots=True)
class PacketInput:
    """Where packets come from if not from interfaces: at most one of these.

    Attributes:
        files: seconds to wait before capture files are read.
        messages: nanomsg address.
    """

    files: float | None = None
    messages: str | None = None


class SimpleSwitch:
    """The switch process: a ``thrift_calls.ThriftDevice`` between interfaces.

    Args:
        config: JSON of the program; None for ``--no-p4``.
        interfaces: by port.
        log: takes lines.
        thrift_port: TCP port of the control plane; 0 takes a free one.
        device_id: as simple_switch's option.
        notifications: where digests, idle entries and ports are reported; None: not at all.
        captures: folder for captures of the interfaces; None for none.
        priority_queues: egress queues per port.
        enable_swap: another program may be loaded while it runs.
        engine: "auto" begins with the interpreter where the program is not compiled yet; "jit"
            waits for the compiler.
        seed: of the program's random().
        opened: the sockets of the control plane and of the interfaces, where they were opened
            before.
        packets: where they come from if not from interfaces.
        drop_port: what egress_spec is of a packet that is to be dropped.
        dumped: how many bytes of each packet that comes or goes are logged.
        most_groups, most_nodes: of multicast.

    Raises:
        InnetError: an argument cannot be used.
    """

    def __init__(
        self,
        config: str | None,
        interfaces: Mapping[int, str],
        log: Log,
        *,
        thrift_port: int = 9090,
        device_id: int = 0,
        notifications: Notifications | None = None,
        captures: Path | None = None,
        priority_queues: int = 1,
        enable_swap: bool = False,
        engine: str = "auto",
        seed: int = 0,
        opened: OpenSockets | None = None,
        packets: PacketInput = PacketInput(),
        drop_port: int = ir.DROP_PORT,
        dumped: int = 0,
        most_groups: int = MOST_GROUPS,
        most_nodes: int = MOST_GROUPS,
    ) -> None:
        self.log = log
        self.device_id = device_id
        self.notifications = "" if notifications is None else notifications.address
        self.most_groups, self.most_nodes = most_groups, most_nodes
        self._drop_port = drop_port
        self._dumped = dumped if log.takes("info") else 0
        self._logs_packets = log.takes("debug")
        self._control_log: ControlLog | None = None
        self.started = int(time.time() * 1e6)
        self._begun = time.monotonic_ns()
        self._priority_queues = priority_queues
        self._enable_swap = enable_swap
        self._engine = engine
        self._seed = seed
        self._compilation: Compilation | None = None
        self._next_config: str | None = None
        self._running = True
        self.switch: Switch | None = None
        self.config = ""
        self.learning = LearnLists(None, self._digest)
        self._table_ids: dict[str, int] = {}
        self._publisher = notifications
        self._announced: dict[int, bool] = {}
        self._needs_times = self._is_timed = False
        self._forwarding: PortForwarding | None = None
        self._has_loop = engine == "jit" or port_forwarding.is_compiled()
        with contextlib.ExitStack() as stack:
            # Sockets first: calls and packets that come while the rest is made wait in them.
            log("info", f"Starting Thrift server on port {thrift_port}")
            self._server = ThriftServer(
                self,
                thrift_port,
                lambda text: log("warn", text),
                None if opened is None else opened.listener,
                told=lambda: self._control_log,
            )
            stack.callback(self._server.close)
            log("info", "Thrift server was started")
            for port, name in interfaces.items():
                log("debug", f"Adding interface {name} as port {port}")
            early = None if opened is None else opened.interfaces
            self._ports = self._open_ports(interfaces, packets, early)
            stack.callback(self._ports.close)
            if config is not None:
                self._load(config)
            self._captures = None if captures is None else Captures(captures, interfaces)
            stack.pop_all()
        self.thrift_port = self._server.port
        log.flush()

    def _open_ports(
        self,
        interfaces: Mapping[int, str],
        packets: PacketInput,
        early: dict[int, socket.socket] | None,
    ) -> SwitchPorts:
        if packets.files is not None:
            return FilePorts(interfaces, packets.files)
        if packets.messages is not None:
            return MessagePorts(packets.messages, self.log)
        return Ports(interfaces, self._port_changed, early)

    def stop(self) -> None:
        """Let ``run`` return."""
        self._running = False
        self._server.wake()

    def run(self) -> None:
        """Forward packets and answer calls until ``stop``."""
        self._ports.watch(self._server.fileno())
        # Before the first call is answered: who asks where to subscribe wants later changes.
        self._announce_ports()
        poll = time.monotonic() + _POLL_SECONDS
        woken = False
        try:
            while self._running:
                timeout = self._timeout(poll)
                forwarding = self._forwarding if self._is_compiled() else None
                if forwarding is not None and not (woken and forwarding.behind > _MANY_CHANGES):
                    self._forward(forwarding.run(self._server.fileno(), timeout))
                    woken = self._server.is_woken
                else:
                    if forwarding is not None:
                        # More may follow. Look-ups are prepared once for all, or when a packet
                        # comes.
                        timeout = min(timeout, _QUIET_SECONDS)
                    self._forward(self._ports.receive(timeout))
                    woken = self._ports.woken
                if woken:
                    self._answer_calls()
                if time.monotonic() >= poll:
                    poll = time.monotonic() + _POLL_SECONDS
                    self._ports.poll_interfaces()
                    self._announce_ports()
                    self._set_clock()
                    self.log.flush()
                if self._compilation is not None:
                    self._take_over()
                self._notify()
        finally:
            self._close()

    _cpu_port: int | None = None
    """The port whose packets ``_send`` takes, and no interface."""

    def _is_compiled(self) -> bool:
        """Whether packets need no Python now."""
        switch = self.switch
        if switch is None or switch.engine_name != "jit" or self._captures is not None:
            return False
        if self._is_timed or switch.waiting or not self._has_loop or self._dumped:
            return False
        if self._logs_packets:
            return False
        if not isinstance(self._ports, Ports):
            return False
        if self._forwarding is None or not self._forwarding.fits:
            self._forwarding = PortForwarding(
                self._ports, switch, self._begun / _NANOSECONDS, self._cpu_port, self._send
            )
        return self._forwarding.works

    def _timeout(self, poll: float) -> float:
        """Seconds until something is to be done without packets and calls."""
        waits = [poll - time.monotonic()]
        if self._compilation is not None:
            waits.append(_COMPILING_SECONDS)
        if self.switch is not None and (due := self.switch.next_departure) is not None:
            waits.append((due - self._now()) / _NANOSECONDS)
        if (timeout := self.learning.run_due()) is not None:
            waits.append(timeout)
        return max(0.0, min(waits))

    def _now(self) -> int:
        """Nanoseconds since the start."""
        return time.monotonic_ns() - self._begun

    def _answer_calls(self) -> None:
        self._set_clock()
        if self._server.run_calls() and self.switch is not None:
            self._is_timed = self._needs_times or self.switch.traffic_manager.has_limits
        self.log.flush()

    def _set_clock(self) -> None:
        """Let the control plane and idle entries see the present time."""
        if self.switch is not None and not self.switch.waiting:
            self.switch.state.clock = self._now() // 1000

    def _forward(self, arrived: PacketBatch) -> None:
        """Run what has arrived, and what is due in the egress queues."""
        switch = self.switch
        if switch is None or not (len(arrived) or switch.waiting):
            return
        now = max(self._now(), switch.traffic_manager.now)
        if self._dumped:
            self._dump(arrived, "Received packet")
        try:
            if self._is_timed or switch.waiting:
                times = np.full(len(arrived), now, np.int64)
                leaving = switch.process_batch(arrived, times=times, until=now)
            else:  # no packet waits in a queue, with or without times
                switch.state.clock = now // 1000
                leaving = switch.process_batch(arrived)
        except InnetError as error:  # a packet that makes the program run for ever
            self.log("error", str(error))
            return
        if self._captures is not None and (len(arrived) or len(leaving)):
            self._captures.write(arrived, leaving)
        if self._dumped:
            self._dump(leaving, "Sending packet")
        if self._logs_packets:
            self.log.flush()
        self._send(leaving)

    def _send(self, leaving: PacketBatch) -> None:
        """Send what left the program."""
        self._ports.send(leaving)

    def _dump(self, packets: PacketBatch, what: str) -> None:
        for port, data in packets.to_packets():
            size = f"of length {len(data)} on port {port}"
            self.log("info", f"{what} {size}: {data[: self._dumped].hex()}")

    def _notify(self) -> None:
        """Pass on digests and idle entries."""
        if self.switch is None:
            return
        state = self.switch.state
        if state.digests:
            taken, state.digests[:] = list(state.digests), []
            self.learning.take(taken)
        for each in self.switch.take_idle_timeouts():
            self._idle(each)

    def _idle(self, idle: IdleTimeout) -> None:
        if self._publisher is not None:
            self._publisher.idle(self._table_ids.get(idle.table, 0), idle.handles)

    def _digest(self, learn_list: int, buffer: int, samples: Sequence[bytes]) -> None:
        if self._publisher is not None:
            self._publisher.digest(learn_list, buffer, samples)

    def _port_changed(self, port: int, text: str, is_up: bool) -> None:
        self.log("info" if is_up else "warn", f"port {port} is {'up' if is_up else 'down'}: {text}")

    def _announce_ports(self) -> None:
        """Tell which ports went up or down since the last call; all are down at first."""
        ports = self._ports
        if self._publisher is None or not isinstance(ports, Ports):
            return
        present = {port: ports.is_up(port) for port in ports.interfaces}
        changed = {p: up for p, up in present.items() if up != self._announced.get(p, False)}
        if changed:
            self._publisher.ports(changed)
        self._announced = present

    def _close(self) -> None:
        self._server.close()
        if self._compilation is not None:
            self._compilation.stop()
        if self._captures is not None:
            self._captures.close()
        if self._publisher is not None:
            self._publisher.close()
        self._ports.close()

    # ── The program ──

    def _load(self, config: str, made: Switch | None = None) -> None:
        """Run another program, from an empty state, or from that of the switch ``made`` for it."""
        document = _parsed(config)
        if made is None:
            program = load_program(document).with_drop_port(self._drop_port)
        else:
            program = made.program
        reasons = unsupported(program, "jit")
        why = unlogged(program) if self._logs_packets else None
        is_ready = self._engine == "jit" or (self._engine == "auto" and is_compiled(program))
        compiles = not reasons and why is None and self._engine != "interpret"
        engine: EngineName = "jit" if is_ready and compiles else "interpret"
        switch = made or self._new_switch(program, engine)
        if switch.engine_name != engine:
            switch.use_engine(engine)
        _warm(switch)
        if self._logs_packets:
            self._log_packets(switch, document, engine)
            self._log_defaults(switch)
        if self.switch is None and isinstance(self._ports, FilePorts):
            self._ports.start()
        self.switch, self.config = switch, config
        self._forwarding = None
        self._needs_times = self._is_timed = reads_enqueue_time(document)
        self.learning = LearnLists(program, self._digest)
        pipelines = document.get("pipelines", [])
        self._table_ids = {e["name"]: e["id"] for p in pipelines for e in p.get("tables", [])}
        if self._compilation is not None:
            self._compilation.stop()
            self._compilation = None
        waits = engine == "interpret" or not self._has_loop
        if waits and compiles and self._engine == "auto":
            if engine == "interpret":
                self.log("info", "The interpreter runs packets until the program is compiled")
            self._compilation = Compilation(config, self._drop_port)
        for reason in reasons if self._engine != "interpret" else ():
            self.log("warn", f"The interpreter runs packets, as it cannot be compiled: {reason}")
        if why is not None and not reasons and self._engine != "interpret":
            self.log("info", f"The interpreter runs packets, as lines about them depend on {why}")

    def _new_switch(self, program: ir.Program, engine: EngineName) -> Switch:
        return Switch(program, engine, seed=self._seed, priority_queues=self._priority_queues)

    def _log_packets(self, switch: Switch, document: Mapping[str, Any], engine: EngineName) -> None:
        log = switch.log_packets(document, self.log, engine=engine, prepare=self.log.prepare)
        self._control_log = ControlLog(switch, log)

    def _log_defaults(self, switch: Switch) -> None:
        assert self._control_log is not None
        for table in switch.program.tables:
            if table.default is not None:
                entry = self._control_log.packets.action_entry(table.default)
                self.log("debug", f"Set default default entry for table '{table.name}': {entry}")

    def _take_over(self) -> None:
        """Go over to the machine code when it is there and no packet is on its way."""
        assert self._compilation is not None
        assert self.switch is not None
        failed = self._compilation.result()
        if failed is None or self.switch.waiting:
            return
        self._compilation = None
        if failed:
            self.log("warn", f"The interpreter goes on, as the program was not compiled: {failed}")
            return
        self._has_loop = port_forwarding.is_compiled()
        if self.switch.engine_name == "jit":
            return
        if self._logs_packets:
            self._log_packets(self.switch, _parsed(self.config), "jit")
        else:
            self.switch.use_engine("jit")
        self._forwarding = None
        _warm(self.switch)
        self.log("info", "The compiled program runs packets")

    # ── What the control plane asks for ──

    def ports(self) -> list[PortState]:
        ports = self._ports
        return [PortState(p, name, ports.is_up(p)) for p, name in sorted(ports.interfaces.items())]

    def add_port(self, interface: str, port: int, pcap: str) -> None:
        if not 0 <= port <= MAX_PORT:
            raise InputError(f"port {port}: a switch has ports 0 to {MAX_PORT}.")
        self._ports.add(port, interface)
        if pcap:
            self.log("warn", f"no capture {pcap}: only --pcap makes captures")

    def remove_port(self, port: int) -> None:
        self._ports.remove(port)

    def load_config(self, config: str) -> None:
        if not self._enable_swap:
            raise SwapError(
                "the program cannot be swapped; --enable-swap allows it", SwapError.DISABLED
            )
        if self._next_config is not None:
            raise SwapError("a program waits to be swapped in already", SwapError.ONGOING)
        load_program(_parsed(config))
        self._next_config = config

    def swap_configs(self) -> None:
        if not self._enable_swap:
            raise SwapError(
                "the program cannot be swapped; --enable-swap allows it", SwapError.DISABLED
            )
        if self._next_config is None:
            raise SwapError("there is no program to swap in", SwapError.NOT_ONGOING)
        config, self._next_config = self._next_config, None
        self._load(config)

    def reset_state(self) -> None:
        """As simple_switch: also the program's own entries go, and mirror sessions stay."""
        if self.switch is None:
            return
        before = self.switch
        switch = self._new_switch(before.program, before.engine_name)
        before.traffic_manager.clear()
        switch.traffic_manager.take_settings(before.traffic_manager)
        for table in switch.program.tables:
            switch.control.table_clear(table.name)
        switch.state.clock = before.state.clock
        for session, where in before.state.replication.sessions.items():
            switch.control.mirroring_add(session, where.port, where.group)
        _warm(switch)
        if self._logs_packets:
            self._log_packets(switch, _parsed(self.config), switch.engine_name)
            self._log_defaults(switch)
        self.switch = switch
        self._forwarding = None
        self.learning = LearnLists(switch.program, self._digest)

    def elapsed(self) -> int:
        return self._now() // 1000

    def statistics(self) -> dict[str, int]:
        """The switch's counts of packets, and those that its interfaces lost."""
        ports = self._ports
        counted = {} if self.switch is None else self.switch.statistics.as_dict()
        return counted | {
            "lost_on_arrival": ports.lost(),
            "lost_on_departure": ports.dropped,
            "undelivered": ports.undelivered,
        }


def reads_enqueue_time(document: Mapping[str, Any]) -> bool:
    """Whether a program names the time at which a packet entered its queue, not only declares it.

    Depths and delays are 0 where no queue has a limit, with or without times.
    """
    declared = ("header_types", "field_aliases")
    rest = json.dumps({key: each for key, each in document.items() if key not in declared})
    return '"enq_timestamp"' in rest


def _warm(switch: Switch) -> None:
    """Load both forms of the program now, not when a packet waits."""
    switch.process_batch(PacketBatch.empty())
    switch.process_batch(PacketBatch.empty(), times=[], until=switch.traffic_manager.now)


def _parsed(config: str) -> dict[str, Any]:
    try:
        found = json.loads(config)
    except ValueError as error:
        raise ProgramError(f"that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProgramError("that is no compiled P4 program: it holds no JSON object")
    return found


def compile_program(path: Path, drop_port: int) -> None:
    """Compile a program into the cache, for the processes that wait for it."""
    os.nice(5)
    program = load_program(_parsed(path.read_text(encoding="utf-8")))
    switch = Switch(program.with_drop_port(drop_port), "jit")
    _warm(switch)
    ports = Ports({}, lambda *_: None)
    PortForwarding(ports, switch, 0.0)
    ports.close()


# ----------------------------------------------------------------------------
# The command line.


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """simple_switch's options; those of the target may stand behind ``--``, as there.

    As there, the first word that is no option is the program. ``ignored`` holds the others.

    Raises:
        InputError: an option that does not work here, named with what to do instead.
    """
    words = [word for word in arguments if word != "--"]
    for word in words:
        if (why := _REFUSED.get(word.partition("=")[0])) is not None:
            raise InputError(f"{word.partition('=')[0]}: {why}.")
    parser = argparse.ArgumentParser(
        prog="innet simple-switch",
        description="The built-in switch in the place of BMv2's simple_switch.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("program", nargs="?", help="JSON from p4c, or a program's name such as slots-32")
    add("-i", "--interface", action="append", default=[], metavar="PORT@NAME", help="repeatable")
    add("--no-p4", action="store_true", help="start without a program; needs --enable-swap")
    add("--pcap", nargs="?", const=".", metavar="DIR", help="captures of all interfaces")
    add("--use-files", type=_seconds, metavar="N", help="packets of NAME_in.pcap, after N s")
    add("--packet-in", metavar="ADDRESS", help="packets over nanomsg, in place of interfaces")
    add("--thrift-port", type=int, default=9090, help="of the control plane (9090)")
    add("--device-id", type=int, default=0, help="names the device in notifications (0)")
    add("--log-console", action="store_true", help="log to standard output")
    add("--log-file", metavar="FILE", help="log to FILE.txt")
    add("-L", "--log-level", choices=LEVELS, default="trace", help="least level (trace)")
    add("--log-flush", action="store_true", help="write each line of --log-file at once")
    add("--log-file-max-size", type=int, default=MOST_BYTES, help="bytes of a log file (5 MiB)")
    add("--log-file-max-files", type=int, default=MOST_FILES, help="older log files kept (3)")
    add("--dump-packet-data", type=int, default=0, metavar="BYTES", help="of each packet, logged")
    add("--notifications-addr", metavar="ADDRESS", help="nanomsg address of notifications")
    add("--nanolog", metavar="ADDRESS", help="taken, as p4-utils gives it; no events are sent")
    add("--max-port-count", type=int, default=512, help="most interfaces (512)")
    add("-v", "--version", action="store_true", help="simple_switch's version")
    add("--json-version", action="store_true", help="the newest version of JSON")
    target = parser.add_argument_group("options of the target, also behind --")
    add = target.add_argument
    add("--enable-swap", action="store_true", help="programs may be swapped at run time")
    add("--drop-port", type=int, default=511, help="egress_spec that means drop (511)")
    add("--priority-queues", type=int, default=1, help="egress queues per port (1)")
    add("--max-mc-groups", type=int, default=MOST_GROUPS, help="multicast groups (4096)")
    add("--max-l1-entries", type=int, default=MOST_GROUPS, help="multicast nodes (4096)")
    add("--max-l2-entries", type=int, default=2 * MOST_GROUPS, help="likewise (8192)")
    extra = parser.add_argument_group("options that simple_switch does not have")
    extra.add_argument(
        "--engine",
        choices=("auto", "jit", "interpret"),
        default="auto",
        help="auto: the interpreter until the program is compiled",
    )
    extra.add_argument("--seed", type=int, default=0, help="of the program's random() (0)")
    extra.add_argument("--compile", type=Path, help=argparse.SUPPRESS)
    options, others = parser.parse_known_args(_with_pcap(words))
    if any(word.startswith("-") for word in others):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if options.no_p4 and options.program is not None:
        others.insert(0, options.program)
        options.program = None
    options.ignored = others
    return options


def _seconds(word: str) -> int:
    """A whole number of seconds; as in simple_switch a negative one is 0."""
    return max(0, int(word))


def _with_pcap(words: Sequence[str]) -> Iterator[str]:
    """``--pcap`` without a folder means this one. Its folder stands behind a ``=`` or is the next
    word; simple_switch takes any next word for it, also the program, which is never intended.
    """
    following = iter([*words[1:], ""])
    taken = False
    for word, then in zip(words, following, strict=True):
        if taken:
            taken = False
        elif word == "--pcap":
            taken = Path(then).is_dir() if then else False
            yield f"--pcap={then if taken else '.'}"
        else:
            yield word


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


def config_of(name: str) -> str:
    """The JSON of a program, as it is in its file if that is not compressed."""
    try:
        document = open_document(name)  # errors name the file
    except InnetError as error:
        if "@" not in name:
            raise
        raise ProgramError(f"{str(error).rstrip('.')}{_hint(name)}.") from None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(name).read_text(encoding="utf-8")
    return json.dumps(document)


def notifications_of(address: str | None, device_id: int, log: Log) -> Notifications | None:
    """Notifications at an address; without one at simple_switch's own, where that can be used.

    Raises:
        MissingToolError, NetworkError: the address that was given cannot be used.
    """
    if address is not None:
        return Notifications(address, device_id)
    if not nanomsg.is_installed():
        log("info", "No notifications are sent, as there is no nanomsg")
        return None
    try:
        return Notifications(f"ipc:///tmp/bmv2-{device_id}-notifications.ipc", device_id)
    except NetworkError as error:
        log("warn", f"No notifications are sent: {error} --device-id N gives another address")
        return None


def _hint(words: str) -> str:
    return ". Each interface needs an -i of its own: -i PORT@NAME" if "@" in words else ""


def _check_numbers(options: argparse.Namespace) -> None:
    """Refuse options that have no meaning, or none together."""
    if not 0 <= options.drop_port <= ir.DROP_PORT:
        raise InputError(f"--drop-port {options.drop_port}: egress_spec is 0 to {ir.DROP_PORT}.")
    if options.use_files is not None and options.packet_in is not None:
        raise InputError("--use-files and --packet-in exclude each other.")
    if options.log_console and options.log_file is not None:
        raise InputError("--log-console and --log-file exclude each other.")
    if options.dump_packet_data < 0:
        raise InputError("--dump-packet-data is a number of bytes, at least 0.")
    for name in ("max_mc_groups", "max_l1_entries", "max_l2_entries"):
        if (most := getattr(options, name)) < 1:
            raise InputError(f"--{name.replace('_', '-')} {most}: it is at least 1.")
    if options.log_file_max_size <= 0 or options.log_file_max_files < 0:
        raise InputError("--log-file-max-size is at least 1, and --log-file-max-files at least 0.")


def run(
    options: argparse.Namespace,
    opened: OpenSockets | None = None,
    make: Callable[..., SimpleSwitch] = SimpleSwitch,
) -> None:
    """Run the switch, as ``make`` makes it, until SIGTERM or SIGINT.

    Args:
        options: the command line.
        opened: sockets that were opened before.
        make: makes the switch; its arguments are those of ``SimpleSwitch``.

    Raises:
        InnetError: an option cannot be used.
    """
    _check_numbers(options)
    if options.ignored:
        words = " ".join(options.ignored)
        print(f"warning: ignored, as simple_switch does: {words}{_hint(words)}", file=sys.stderr)
    if options.program is None and not options.no_p4:
        raise InputError("name the JSON of a program, or start with --no-p4.")
    if options.pcap is not None and not Path(options.pcap).is_dir():
        raise InputError(f"--pcap={options.pcap}: there is no such folder.")
    interfaces = {} if options.packet_in is not None else interfaces_of(options.interface)
    if len(interfaces) > options.max_port_count:
        raise InputError(
            f"--max-port-count {options.max_port_count} is less than the {len(interfaces)} "
            "interfaces given by -i."
        )
    config = None if options.no_p4 else config_of(options.program)
    log = Log(
        options.log_level,
        console=options.log_console,
        path=options.log_file,
        flush=options.log_flush,
        most_bytes=options.log_file_max_size,
        most_files=options.log_file_max_files,
    )
    if options.nanolog is not None:
        log("warn", f"--nanolog {options.nanolog}: no events are sent; the log has them")
    process = make(
        config,
        interfaces,
        log,
        thrift_port=options.thrift_port,
        device_id=options.device_id,
        notifications=notifications_of(options.notifications_addr, options.device_id, log),
        captures=None if options.pcap is None else Path(options.pcap),
        priority_queues=options.priority_queues,
        enable_swap=options.enable_swap or options.no_p4,
        engine=options.engine,
        seed=options.seed,
        opened=opened,
        packets=PacketInput(options.use_files, options.packet_in),
        drop_port=options.drop_port,
        dumped=options.dump_packet_data,
        most_groups=options.max_mc_groups,
        # A node is an entry at both levels.
        most_nodes=min(options.max_l1_entries, options.max_l2_entries),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        process.run()
    finally:
        log.close()


def main(arguments: Sequence[str] | None = None, opened: OpenSockets | None = None) -> int:
    """Run the command line; its exit status.

    Args:
        arguments: by default this process's.
        opened: sockets that were opened before; closed with the switch.
    """
    try:
        options = options_of(sys.argv[1:] if arguments is None else arguments)
        if options.version:
            print(BMV2_VERSION)
        elif options.json_version:
            print(JSON_VERSION)
        elif options.compile is not None:
            compile_program(options.compile, options.drop_port)
        else:
            run(options, opened)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
