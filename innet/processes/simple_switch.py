"""The built-in switch in the place of BMv2's simple_switch: its flags, its control plane.

    python -m innet.processes.simple_switch -i 1@veth1 -i 2@veth2 --thrift-port 9090 program.json

It is ready at once: the interpreter runs the packets until the program is compiled, which a process
of its own does, and then the machine code goes on with the same state.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from innet.bmv2.notifications import LearnLists, Notifications
from innet.bmv2.thrift_calls import PortState, SwapError
from innet.bmv2.thrift_server import ThriftServer
from innet.core.child_process import PYTHON, die_with_parent
from innet.core.errors import InnetError, InputError, ProgramError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.core.settings import EngineName
from innet.processes import port_forwarding
from innet.processes.port_forwarding import PortForwarding
from innet.processes.switch import Captures, interfaces_of
from innet.switch import Switch, is_compiled, load_program, unsupported
from innet.switch.state.ageing import IdleTimeout
from innet.tools.files import open_document
from innet.transport.raw import Ports

BMV2_VERSION = "1.15.5"
"""The version of simple_switch whose answers this gives."""

JSON_VERSION = "2.24"
LEVELS = ("trace", "debug", "info", "warn", "error", "off")

_POLL_SECONDS = 1.0  # between two looks at interfaces, and at idle entries
_COMPILING_SECONDS = 0.1  # between two looks at the process that compiles
_NANOSECONDS = 1_000_000_000
_OF_QUEUES = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")
_REFUSED = {
    "--debugger": "there is no debugger; `innet switch explain` and Switch.trace tell every step",
    "--debugger-addr": "there is no debugger; Switch.trace tells every step of a packet",
    "--nanolog": "events are not logged over nanomsg; --log-console and --log-file log them",
    "--use-files": "packets do not come from files; `innet switch replay` runs captures",
    "--dump-packet-data": "packets are not logged; --pcap captures them",
    "--log-file-max-size": "the log is one file of any length",
    "--log-file-max-files": "the log is one file of any length",
    "--packet-in": "packets do not come over nanomsg; give interfaces by -i",
    "--restore-state": "no state is restored; send the commands again",
}


class Log:
    """Lines as simple_switch writes them: time, level and text.

    Args:
        level: the least of ``LEVELS`` that is written.
        console: write to standard output.
        path: write to this file, with .txt behind its name.
        flush: write each line at once.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(
        self,
        level: str = "trace",
        *,
        console: bool = False,
        path: str | None = None,
        flush: bool = False,
    ) -> None:
        self._least = LEVELS.index(level)
        self._flush = flush or console
        self._file: Any = sys.stdout if console else None
        if path is not None:
            try:
                self._file = Path(f"{path}.txt").open("w", encoding="utf-8")  # noqa: SIM115 - closed by close()
            except OSError as error:
                raise InputError(f"--log-file {path}: {error.strerror}.") from None

    def __call__(self, level: str, text: str) -> None:
        """Write a line."""
        if self._file is None or LEVELS.index(level) < self._least:
            return
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        letter = level[0].upper()
        stamp = f"[{clock}.{int(now * 1000) % 1000:03d}] [bmv2] [{letter}] [thread {os.getpid()}]"
        print(stamp, text, file=self._file, flush=self._flush)

    def close(self) -> None:
        if self._file not in (None, sys.stdout):
            self._file.close()


class Compilation:
    """A process that compiles a program for the jit engine.

    Of several that compile the same program, one does, and the others wait for its result.
    """

    def __init__(self, config: str) -> None:
        self._result: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="innet-compile-")
        path = Path(self._folder.name) / "program.json"
        path.write_text(config, encoding="utf-8")
        words = [PYTHON, "-m", "innet.processes.simple_switch", "--compile", str(path)]
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


class SimpleSwitch:
    """The switch process: a ``thrift_server.Device`` between interfaces.

    Args:
        config: JSON of the program; None for ``--no-p4``.
        interfaces: by port.
        log: takes lines.
        thrift_port: TCP port of the control plane; 0 takes a free one.
        device_id: as simple_switch's option.
        notifications: nanomsg address; None for none.
        captures: folder for captures of the interfaces; None for none.
        priority_queues: egress queues per port.
        enable_swap: another program may be loaded while it runs.
        engine: "auto" begins with the interpreter where the program is not compiled yet; "jit"
            waits for the compiler.

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
        notifications: str | None = None,
        captures: Path | None = None,
        priority_queues: int = 1,
        enable_swap: bool = False,
        engine: str = "auto",
    ) -> None:
        self.log = log
        self.device_id = device_id
        self.notifications = notifications or ""
        self.started = int(time.time() * 1e6)
        self._begun = time.monotonic_ns()
        self._priority_queues = priority_queues
        self._enable_swap = enable_swap
        self._engine = engine
        self._compilation: Compilation | None = None
        self._next_config: str | None = None
        self._running = True
        self.switch: Switch | None = None
        self.config = ""
        self.learning = LearnLists(None, self._digest)
        self._table_ids: dict[str, int] = {}
        self._publisher: Notifications | None = None
        self._reads_queues = self._is_timed = False
        self._forwarding: PortForwarding | None = None
        self._has_loop = engine == "jit" or port_forwarding.is_compiled()
        with contextlib.ExitStack() as opened:
            # Doors first: calls and packets that come while the rest is made wait in them.
            log("info", f"Starting Thrift server on port {thrift_port}")
            self._server = ThriftServer(self, thrift_port, lambda text: log("warn", text))
            opened.callback(self._server.close)
            log("info", "Thrift server was started")
            for port, name in interfaces.items():
                log("debug", f"Adding interface {name} as port {port}")
            self._ports = Ports(interfaces, self._port_changed)
            opened.callback(self._ports.close)
            self._publisher = Notifications(notifications, device_id) if notifications else None
            if self._publisher is not None:
                opened.callback(self._publisher.close)
            if config is not None:
                self._load(config)
            self._captures = None if captures is None else Captures(captures, interfaces)
            opened.pop_all()
        self.thrift_port = self._server.port

    def stop(self) -> None:
        """Let ``run`` return."""
        self._running = False
        self._server.wake()

    def run(self) -> None:
        """Forward packets and answer calls until ``stop``."""
        self._ports.watch(self._server.fileno())
        poll = time.monotonic() + _POLL_SECONDS
        try:
            while self._running:
                timeout = self._timeout(poll)
                if self._is_compiled():
                    assert self._forwarding is not None
                    bell = self._server.fileno()
                    self._forward(self._forwarding.run(bell, timeout))
                    timeout = 0.0
                self._forward(self._ports.receive(timeout))
                if self._ports.woken:
                    self._answer_calls()
                if time.monotonic() >= poll:
                    poll = time.monotonic() + _POLL_SECONDS
                    self._ports.poll_interfaces()
                    self._set_clock()
                if self._compilation is not None:
                    self._take_over()
                self._notify()
        finally:
            self._close()

    def _is_compiled(self) -> bool:
        """Whether packets need no Python now."""
        switch = self.switch
        if switch is None or switch.engine_name != "jit" or self._captures is not None:
            return False
        if self._is_timed or switch.waiting or not self._has_loop:
            return False
        if self._forwarding is None or not self._forwarding.fits:
            self._forwarding = PortForwarding(self._ports, switch, self._begun / _NANOSECONDS)
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
        self._server.run_calls()
        if self.switch is not None:
            self._is_timed = self._reads_queues or self.switch.traffic_manager.has_limits

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
        try:
            if self._is_timed or switch.waiting:
                times = np.full(len(arrived), now, np.int64)
                leaving = switch.process_batch(arrived, times=times, until=now)
            else:  # no queue would ever fill, and the program would not see it
                switch.state.clock = now // 1000
                leaving = switch.process_batch(arrived)
        except InnetError as error:  # a packet that makes the program run for ever
            self.log("error", str(error))
            return
        if self._captures is not None and len(arrived):
            self._captures.write(arrived, leaving)
        self._send(leaving)

    def _send(self, leaving: PacketBatch) -> None:
        """Send what left the program."""
        self._ports.send(leaving)

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
        if self._publisher is not None:
            self._publisher.port(port, is_up)

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
        program = load_program(document)
        reasons = unsupported(program, "jit")
        is_ready = self._engine == "jit" or (self._engine == "auto" and is_compiled(program))
        engine: EngineName = "jit" if is_ready and not reasons else "interpret"
        switch = made or Switch(program, engine, priority_queues=self._priority_queues)
        if switch.engine_name != engine:
            switch.use_engine(engine)
        _warm(switch)
        self.switch, self.config = switch, config
        self._forwarding = None
        self._reads_queues = self._is_timed = reads_queues(document)
        self.learning = LearnLists(program, self._digest)
        pipelines = document.get("pipelines", [])
        self._table_ids = {e["name"]: e["id"] for p in pipelines for e in p.get("tables", [])}
        if self._compilation is not None:
            self._compilation.stop()
            self._compilation = None
        waits = engine == "interpret" or not self._has_loop
        if waits and not reasons and self._engine == "auto":
            if engine == "interpret":
                self.log("info", "The interpreter runs packets until the program is compiled")
            self._compilation = Compilation(config)
        for reason in reasons if self._engine != "interpret" else ():
            self.log("warn", f"The interpreter runs packets, as it cannot be compiled: {reason}")

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
        switch = Switch(before.program, before.engine_name, priority_queues=self._priority_queues)
        before.traffic_manager.clear()
        switch.traffic_manager.take_settings(before.traffic_manager)
        for table in switch.program.tables:
            switch.control.table_clear(table.name)
        switch.state.clock = before.state.clock
        for session, where in before.state.replication.sessions.items():
            switch.control.mirroring_add(session, where.port, where.group)
        _warm(switch)
        self.switch = switch
        self._forwarding = None
        self.learning = LearnLists(switch.program, self._digest)

    def elapsed(self) -> int:
        return self._now() // 1000


def reads_queues(document: Mapping[str, Any]) -> bool:
    """Whether a program names depths or times of egress queues, not only declares them."""
    declared = ("header_types", "field_aliases")
    rest = json.dumps({key: each for key, each in document.items() if key not in declared})
    return any(f'"{name}"' in rest for name in _OF_QUEUES)


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


def compile_program(path: Path) -> None:
    """Compile a program into the cache, for the processes that wait for it."""
    os.nice(5)
    switch = Switch(load_program(_parsed(path.read_text(encoding="utf-8"))), "jit")
    _warm(switch)
    ports = Ports({}, lambda *_: None)
    PortForwarding(ports, switch, 0.0)
    ports.close()


# ----------------------------------------------------------------------------
# The command line.


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """simple_switch's options; those of the target may stand behind ``--``, as there.

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
    add("--thrift-port", type=int, default=9090, help="of the control plane (9090)")
    add("--device-id", type=int, default=0, help="names the device in notifications (0)")
    add("--log-console", action="store_true", help="log to standard output")
    add("--log-file", metavar="FILE", help="log to FILE.txt")
    add("-L", "--log-level", choices=LEVELS, default="trace", help="least level (trace)")
    add("--log-flush", action="store_true", help="write each line of --log-file at once")
    add("--notifications-addr", metavar="ADDRESS", help="nanomsg address of notifications")
    add("--max-port-count", type=int, default=512, help="most interfaces (512)")
    add("-v", "--version", action="store_true", help="simple_switch's version")
    add("--json-version", action="store_true", help="the newest version of JSON")
    target = parser.add_argument_group("options of the target, also behind --")
    add = target.add_argument
    add("--enable-swap", action="store_true", help="programs may be swapped at run time")
    add("--drop-port", type=int, default=511, help="511, the only one that works here")
    add("--priority-queues", type=int, default=1, help="egress queues per port (1)")
    extra = parser.add_argument_group("options that simple_switch does not have")
    extra.add_argument(
        "--engine",
        choices=("auto", "jit", "interpret"),
        default="auto",
        help="auto: the interpreter until the program is compiled",
    )
    extra.add_argument("--compile", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(_with_pcap(words))


def _with_pcap(words: Sequence[str]) -> Iterator[str]:
    """``--pcap`` without a folder means this one; its folder stands behind a ``=`` only."""
    for word in words:
        yield "--pcap=." if word == "--pcap" else word


def config_of(name: str) -> str:
    """The JSON of a program, as it is in its file if that is not compressed."""
    document = open_document(name)  # errors name the file
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(name).read_text(encoding="utf-8")
    return json.dumps(document)


def run(options: argparse.Namespace, make: Callable[..., SimpleSwitch] = SimpleSwitch) -> None:
    """Run the switch, as ``make`` makes it, until SIGTERM or SIGINT.

    Raises:
        InnetError: an option cannot be used.
    """
    if options.drop_port != 511:
        raise InputError(f"--drop-port {options.drop_port}: only 511 works here.")
    if options.no_p4 == (options.program is not None):
        raise InputError(
            "--no-p4 and a program exclude each other."
            if options.no_p4
            else "name the JSON of a program, or start with --no-p4."
        )
    if options.pcap is not None and not Path(options.pcap).is_dir():
        raise InputError(f"--pcap={options.pcap}: there is no such folder.")
    interfaces = interfaces_of(options.interface)
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
    )
    process = make(
        config,
        interfaces,
        log,
        thrift_port=options.thrift_port,
        device_id=options.device_id,
        notifications=options.notifications_addr,
        captures=None if options.pcap is None else Path(options.pcap),
        priority_queues=options.priority_queues,
        enable_swap=options.enable_swap or options.no_p4,
        engine=options.engine,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        process.run()
    finally:
        log.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    try:
        options = options_of(sys.argv[1:] if arguments is None else arguments)
        if options.version:
            print(BMV2_VERSION)
        elif options.json_version:
            print(JSON_VERSION)
        elif options.compile is not None:
            compile_program(options.compile)
        else:
            run(options)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
