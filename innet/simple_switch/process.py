"""The built-in switch in the place of BMv2's simple_switch: its flags, its control plane.

    python -m innet.simple_switch.process -i 1@veth1 -i 2@veth2 --thrift-port 9090 program.json

It is ready at once: the interpreter runs the packets until the program is compiled, which a process
of its own does, and then the machine code goes on with the same state.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from innet.core.engines import EngineName
from innet.core.errors import InnetError, InputError, NetworkError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.simple_switch import nanomsg, port_forwarding
from innet.simple_switch.captures import Captures
from innet.simple_switch.control_log import ControlLog
from innet.simple_switch.engines import (
    Compilation,
    choose_engine,
    choose_threads,
    parse_config,
    warm,
)
from innet.simple_switch.log import Log
from innet.simple_switch.notifications import LearnLists, Notifications
from innet.simple_switch.open_sockets import OpenSockets
from innet.simple_switch.options import (
    BMV2_VERSION,
    JSON_VERSION,
    SwitchOptions,
    check_options,
    config_of,
    hint_of_interface,
    options_of,
)
from innet.simple_switch.port_forwarding import PortForwarding
from innet.simple_switch.ports import FilePorts, MessagePorts
from innet.simple_switch.thrift_calls import PortState, SwapError
from innet.simple_switch.thrift_server import ThriftServer
from innet.switch import Switch, ir, is_compiled, load_program, unsupported
from innet.switch.state.ageing import IdleTimeout
from innet.transport.raw import Ports

_POLL_SECONDS = 1.0  # between two looks at interfaces, and at idle entries
_MANY_CHANGES = 32  # of tables, which are then taken over together
_QUIET_SECONDS = 0.1  # without packets and calls, until many changes are taken over
_COMPILING_SECONDS = 0.1  # between two looks at the process that compiles
_NANOSECONDS = 1_000_000_000


class SimpleSwitch:
    """The switch process: a ``thrift_calls.ThriftDevice`` between interfaces.

    Args:
        config: JSON of the program; None for ``--no-p4``.
        options: what else it is started with.
        log: takes lines.
        notifications: where digests, idle entries and ports are reported; None: not at all.
        opened: the sockets of the control plane and of the interfaces, where they were opened
            before.

    Raises:
        InnetError: an argument cannot be used.
    """

    def __init__(
        self,
        config: str | None,
        options: SwitchOptions,
        log: Log,
        notifications: Notifications | None = None,
        opened: OpenSockets | None = None,
    ) -> None:
        self.log = log
        self.options = options
        self.device_id = options.device_id
        self.notifications = "" if notifications is None else notifications.address
        self.most_groups, self.most_nodes = options.most_groups, options.most_nodes
        self._dumped = options.dumped if log.takes("info") else 0
        self._logs_packets = log.takes("debug")
        self._control_log: ControlLog | None = None
        self.started = int(time.time() * 1e6)
        self._begun = time.monotonic_ns()
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
        self._has_loop = options.engine == "jit" or self._is_loop_compiled()
        with contextlib.ExitStack() as stack:
            # Sockets first: calls and packets that come while the rest is made wait in them.
            log("info", f"Starting Thrift server on port {options.thrift_port}")
            self._server = ThriftServer(
                self,
                options.thrift_port,
                lambda text: log("warn", text),
                None if opened is None else opened.listener,
                told=lambda: self._control_log,
            )
            stack.callback(self._server.close)
            log("info", "Thrift server was started")
            for port, name in options.interfaces.items():
                log("debug", f"Adding interface {name} as port {port}")
            self._ports = self._open_ports(None if opened is None else opened.interfaces)
            stack.callback(self._ports.close)
            if config is not None:
                self._load(config)
            self._captures = None
            if options.captures is not None:
                self._captures = Captures(options.captures, options.interfaces)
            stack.pop_all()
        self.thrift_port = self._server.port
        log.flush()

    def _open_ports(
        self, early: dict[int, socket.socket] | None
    ) -> Ports | FilePorts | MessagePorts:
        """Where packets come from.

        Args:
            early: the interfaces' sockets, where they were opened before.
        """
        interfaces, packets = self.options.interfaces, self.options.packets
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

    cpu_port: int | None = None
    """The port whose packets ``_send`` takes, and no interface."""

    def _is_compiled(self) -> bool:
        """Whether packets need no Python now."""
        switch = self.switch
        if switch is None or switch.engine_name != "jit":
            return False
        if self._is_timed or switch.waiting or not self._has_loop or self._dumped:
            return False
        if not isinstance(self._ports, Ports):
            return False
        if self._forwarding is None or not self._forwarding.fits:
            self._end_forwarding()
            is_plain = not (self._logs_packets or self._captures or self.cpu_port is not None)
            ports = len(self.options.interfaces) if is_plain else 1
            threads, reason = choose_threads(switch.program, self.options.threads, ports)
            many = "1 thread forwards" if threads == 1 else f"{threads} threads forward"
            self.log("info", f"{many}: {reason}")
            self._forwarding = PortForwarding(
                *(self._ports, switch, self._begun / _NANOSECONDS, self.cpu_port, self._send),
                write_log=self._write_log if self._logs_packets else None,
                is_late=not self.log.is_flushed,
                captures=self._captures,
                threads=threads,
                left=self._server.wake,
            )
        return self._forwarding.works

    def _end_forwarding(self) -> None:
        if self._forwarding is not None:
            self._forwarding.close()
        self._forwarding = None

    def _is_loop_compiled(self) -> bool:
        return port_forwarding.is_compiled(is_logged=self._logs_packets)

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
        # Lines take time. Packets do not wait for them, unless somebody reads each at once.
        is_late = self._logs_packets and not (self.log.is_flushed or self._dumped)
        if self._logs_packets and not is_late:
            self._write_log()
        if self._dumped:
            self._dump(leaving, "Sending packet")
        self._send(leaving)
        if is_late:
            self._write_log()

    def _write_log(self) -> None:
        assert self.switch is not None
        self.switch.write_log()
        self.log.flush()

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
        self._end_forwarding()
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
        # Step 1: choose the engine.
        document = parse_config(config)
        if made is None:
            program = load_program(document).with_drop_port(self.options.drop_port)
        else:
            program = made.program
        choice = choose_engine(
            self.options.engine,
            uncompilable=unsupported(program, "jit"),
            is_compiled=self.options.engine == "auto"
            and is_compiled(program, logged=self._logs_packets),
            has_loop=self._has_loop,
        )
        # Step 2: make the switch. The present one goes on if this fails.
        switch = made or self._new_switch(program, choice.engine)
        if self._logs_packets:
            self._log_packets(switch, document, choice.engine)
            self._log_defaults(switch)
        elif switch.engine_name != choice.engine:
            switch.use_engine(choice.engine)
        warm(switch)
        # Step 3: put it in the place of the present one. Packets of files wait for the first.
        if self.switch is None and isinstance(self._ports, FilePorts):
            self._ports.start()
        self.switch, self.config = switch, config
        self._end_forwarding()
        self._needs_times = self._is_timed = reads_enqueue_time(document)
        self.learning = LearnLists(program, self._digest)
        pipelines = document.get("pipelines", [])
        self._table_ids = {e["name"]: e["id"] for p in pipelines for e in p.get("tables", [])}
        # Step 4: compile this program, no longer the one before.
        if self._compilation is not None:
            self._compilation.stop()
            self._compilation = None
        for level, line in choice.told:
            self.log(level, line)
        if choice.compiles:
            drop_port, logged = self.options.drop_port, self._logs_packets
            self._compilation = Compilation(config, drop_port, logged=logged)

    def _new_switch(self, program: ir.Program, engine: EngineName) -> Switch:
        """With the engine, unless packets are logged: then ``_log_packets`` gives it another."""
        if self._logs_packets:
            engine = "interpret"
        return Switch(
            program, engine, seed=self.options.seed, priority_queues=self.options.priority_queues
        )

    def _log_packets(self, switch: Switch, document: Mapping[str, Any], engine: EngineName) -> None:
        log = switch.log_packets(document, self.log, engine=engine, writer=self.log, is_late=True)
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
        self._has_loop = self._is_loop_compiled()
        if self.switch.engine_name == "jit":
            return
        if self._logs_packets:
            self._log_packets(self.switch, parse_config(self.config), "jit")
        else:
            self.switch.use_engine("jit")
        self._end_forwarding()
        warm(self.switch)
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
        if not self.options.enable_swap:
            raise SwapError(
                "the program cannot be swapped; --enable-swap allows it", SwapError.DISABLED
            )
        if self._next_config is not None:
            raise SwapError("a program waits to be swapped in already", SwapError.ONGOING)
        load_program(parse_config(config))
        self._next_config = config

    def swap_configs(self) -> None:
        if not self.options.enable_swap:
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
        warm(switch)
        if self._logs_packets:
            self._log_packets(switch, parse_config(self.config), before.engine_name)
            self._log_defaults(switch)
        self.switch = switch
        self._end_forwarding()
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


# ----------------------------------------------------------------------------
# The command line.


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
    check_options(options)
    if options.ignored:
        words = " ".join(options.ignored)
        hint = hint_of_interface(words)
        print(f"warning: ignored, as simple_switch does: {words}{hint}", file=sys.stderr)
    if options.program is None and not options.no_p4:
        raise InputError("name the JSON of a program, or start with --no-p4.")
    switch_options = SwitchOptions.of(options)
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
    notifications = notifications_of(options.notifications_addr, options.device_id, log)
    process = make(config, switch_options, log, notifications, opened)
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
        else:
            run(options, opened)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
