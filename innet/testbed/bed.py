"""``Testbed``: a network of P4 switches and hosts in one Python file, in simulated time.

    bed = Testbed("10g", seed=1)
    s1 = bed.switch("s1", "calc.json", commands="calc.commands")
    client, server = bed.host("h1"), bed.host("h2")
    bed.link(client, s1, port=1)
    bed.link(server, s1, port=2, rate="1g", delay=5e-6, loss=1e-3)

    @client.run
    async def ask():
        client.send(request)
        return await client.receive(timeout=1e-3)

    bed.run()
    assert ask.result() == expected

A run is the same on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from innet import programs
from innet.core.errors import (
    ControlError,
    InputError,
    StalledError,
    StateError,
    UnknownNameError,
)
from innet.core.numbers import is_int
from innet.core.packets import MAX_PORT
from innet.network import Faults
from innet.sim import Network, network_of
from innet.sim.captures import LinkCaptures
from innet.sim.flows import LONGEST_FRAME, Flow, FlowCounts, PacketFlow
from innet.sim.messages import transfers
from innet.sim.network import MOST_RATE, PRESETS, SECOND
from innet.sim.recording import MOST_PACKETS, NodeNames, RunRecorder, Watches
from innet.sim.simulation import Cable, FrameSize, LinkCounts, PacketLimitError, Simulation
from innet.sim.state import SHORTEST_FRAME
from innet.sim.transport import ReliableTransport, transport_of
from innet.switch import QueueState, Switch, ir
from innet.testbed.compiled import CompiledHost
from innet.testbed.controllers import BedController
from innet.testbed.hosts import BedHost
from innet.testbed.tasks import BedNode, HostTask, shown, ticks_of, waiting
from innet.testbed.watchdog import OutOfTimeError, Watchdog
from innet.tools.files import open_document, program_in, read_commands

if TYPE_CHECKING:
    from innet.testbed.jobs import BedJob

_SLACK = 256
"""Bytes by which programs may make packets longer than those that hosts send."""


Frames = Mapping[str, Sequence[tuple[float, bytes]]]
"""What hosts send, by name: (seconds, frame)."""


class BedLink:
    """A link between a host and a switch, or two switches; made by ``Testbed.link``."""

    def __init__(self, bed: Testbed, number: int, a: str, b: str) -> None:
        self._bed, self._number = bed, number
        self.ends = a, b

    @property
    def ports(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Its ends: names, and ports; those of a host are its links, from 0 on."""
        cable = self._bed._cables[self._number]
        here = cable.switch, cable.port
        if cable.host is None:
            there = cable.other, cable.other_port
        else:
            host = self._bed._ends[cable.host]
            there = host.name, host._numbers.index(cable.host)
        return (here, there) if self.ends[0] == cable.switch else (there, here)

    def down(self, since: float, until: float) -> None:
        """Let it lose all that is put onto it in a time, simulated seconds."""
        if not since < until:
            raise InputError(f"a link is down from {since!r} to {until!r} s; give a later end.")
        self._bed._outages.append((self._number, since, until))
        if (simulation := self._bed.simulation) is not None:
            simulation.add_outage(self._number, since, until)

    def counts(self) -> tuple[LinkCounts, LinkCounts]:
        """What it carried from its first end to its second, and back."""
        links = self._bed._simulated().link_counts()
        to_switch, from_switch = links[2 * self._number : 2 * self._number + 2]
        first_is_switch = self.ends[0] == self._bed._cables[self._number].switch
        pair = (from_switch, to_switch) if first_is_switch else (to_switch, from_switch)
        names = (self.ends, self.ends[::-1])
        forward, back = (
            each._replace(source=source, target=target)
            for each, (source, target) in zip(pair, names, strict=True)
        )
        return forward, back


class BedSwitch:
    """A switch; made by ``Testbed.switch``.

    Attributes:
        name: of the switch.
        program: its file or name, "" if it has none or it was given by its contents.
        document: the JSON of its program; None if it has none, or it was given as ``ir.Program``.
        commands: lines that were given for its tables.
    """

    def __init__(
        self, bed: Testbed, name: str, model: Switch | None, number: int, program: str
    ) -> None:
        self._bed, self.name, self._number = bed, name, number
        self._model, self.program = model, program
        self.document: Mapping[str, Any] | None = None
        self.commands: tuple[str, ...] = ()
        self._ports: dict[int, str] = {}

    @property
    def model(self) -> Switch:
        """The ``innet.Switch`` that runs the program.

        Raises:
            InputError: it has no program.
        """
        if self._model is None:
            raise InputError(
                f"switch {self.name} has no program and no tables; it forwards flows only."
            )
        return self._model

    def command(self, line: str) -> str:
        """Run a command of simple_switch_CLI now; returns what it prints.

        Raises:
            ControlError: it is refused.
        """
        return self.model.command(line)

    def at(self, seconds: float, call: str | Callable[[Switch], Any]) -> None:
        """Let something happen at the switch at a time, before the packets of that time.

        Args:
            seconds: simulated.
            call: a command of simple_switch_CLI, or what is called with the ``innet.Switch``.
        """
        model = self.model
        action = (lambda: model.command(call)) if isinstance(call, str) else (lambda: call(model))
        self._bed.at(seconds, action)

    def queue(self, port: int, priority: int = 0) -> QueueState | None:
        """What waits now in a port's egress queue; None if nothing ever did."""
        manager = self._bed._simulated().managers()[self._number]
        for queue in manager.used_queues():
            if (queue.port, queue.priority) == (port, priority):
                return queue
        return None

    def restart(self, seconds: float) -> None:
        """Let registers, counters and meters be lost at a time; tables stay."""
        self.at(seconds, _reset_state)

    def controller(self, *, latency: float, port: int | None = None) -> Callable[[Any], HostTask]:
        """A decorator of an ``async def`` with one argument, its ``BedController``.

        Args:
            latency: seconds from the switch to the controller, and back.
            port: of the switch, for packets to and from the controller; None: none.

        Raises:
            InputError: a latency below a nanosecond, or a port that has a link.
        """
        bed, model = self._bed, self.model
        ticks = ticks_of(latency, "a latency")
        if ticks < 1000:
            raise InputError(f"a latency is {latency!r} s; give at least 1e-9.")
        bed._require_not_built("controller")
        name = f"controller {len(bed._controllers) + 1} of {self.name}"
        controller = BedController(name, model, bed._schedule, ticks, bed._frame_size)
        cable = -1 if port is None else self._take_port(port, name)
        number = bed._new_end(controller)
        bed._cables.append(Cable(self.name, cable, number, rate=MOST_RATE, delay=latency, loss=0.0))
        bed._controllers.append((self._number, controller))

        def decorate(function: Any) -> HostTask:
            return controller._begin(function, (controller,), serves=True)

        return decorate

    def _take_port(self, port: int | None, end: str) -> int:
        if port is None:
            port = next(free for free in itertools.count(1) if free not in self._ports)
        if not is_int(port) or not 0 <= port <= MAX_PORT:
            raise InputError(f"port {port!r} of switch {self.name}; ports are 0 to {MAX_PORT}.")
        if port in self._ports:
            raise InputError(
                f"port {port} of switch {self.name} has two links, to {self._ports[port]} and to "
                f"{end}; use another port."
            )
        self._ports[port] = end
        return port


class BedFlow:
    """A flow of packets that a bed sends beside its hosts; made by ``Testbed.flow``."""

    def __init__(self, bed: Testbed, number: int) -> None:
        self._bed, self._number = bed, number

    def counts(self) -> FlowCounts:
        """What has become of its packets."""
        return self._bed._simulated().flow_counts()[self._number]


class BedTransfer:
    """Bytes that a host sends reliably; made by ``Testbed.transfer``."""

    def __init__(self, bed: Testbed, number: int) -> None:
        self._bed, self._number = bed, number

    @property
    def finished(self) -> float | None:
        """When the last byte was delivered, simulated seconds; None until then."""
        messenger = self._bed._simulated().messenger
        time = -1 if messenger is None else int(messenger.delivered[self._number])
        return None if time < 0 else time / SECOND


class Testbed:
    """A network of switches and hosts in simulated time.

    Args:
        network: rates, delays and queues: a preset such as "10g", settings, a TOML file, or a
            ``Network``.
        seed: of losses, faults and the programs' random numbers.
        frame_size: bytes of the longest frame that hosts send. Programs may add up to 256.
        faults: what links do to packets, beside losing them.
        transport: of all ``transfer``: "tcp", "dctcp", "roce" or "dcqcn", with or without settings.

    Attributes:
        network: as a ``Network``.
        simulation: the links, hosts and queues; None until time passes.
    """

    def __init__(
        self,
        network: str | Path | Network | Mapping[str, Any] = "10g",
        *,
        seed: int = 0,
        frame_size: int = 1514,
        faults: Faults | None = None,
        transport: str | ReliableTransport | Mapping[str, Any] = "tcp",
    ) -> None:
        self.network = network_of(network)
        self._transport = transport_of(transport)
        if not is_int(frame_size) or not SHORTEST_FRAME <= frame_size <= LONGEST_FRAME:
            raise InputError(
                f"frame_size is {frame_size!r}; give {SHORTEST_FRAME} to {LONGEST_FRAME} bytes."
            )
        self.simulation: Simulation | None = None
        self._seed, self._frame_size, self._faults = seed, frame_size, faults
        self._switches: dict[str, BedSwitch] = {}
        self._hosts: dict[str, BedHost] = {}
        self._programs: dict[str | int, ir.Program] = {}
        self._compiled: dict[BedHost, tuple[CompiledHost, bool]] = {}
        self._ends: list[BedHost] = []  # whose each host of the network is
        self._cables: list[Cable] = []
        self._links: list[BedLink] = []
        self._controllers: list[tuple[int, BedController]] = []
        self._flows: list[Flow | PacketFlow] = []
        self._outages: list[tuple[int, float, float]] = []
        self._scheduled: list[tuple[float, Callable[[], Any]]] = []
        self._transfers: list[tuple[int, int, int, float]] = []
        self._jobs: list[BedJob] = []
        self._job_groups: dict[int, BedJob] = {}  # by the number of their exchange
        self._captures: Path | None = None
        self._recording: tuple[Watches, int] | None = None
        self._recorder: RunRecorder | None = None
        self._now = 0.0

    @classmethod
    def read(cls, path: str | Path, *, seed: int | None = None) -> Testbed:
        """The network of a traffic file (docs/simulation.md), with its flows.

        Its hosts 0, 1, ... are h1, h2, ... here.

        Args:
            path: a TOML file.
            seed: in the place of the file's.

        Raises:
            ConfigError: the file cannot be read, or something in it cannot be used.
        """
        # Imported here: it takes longer than most beds run.
        from innet.scenarios.traffic_file import read_scenario  # noqa: PLC0415

        scenario = read_scenario(path)
        seed = scenario.seed or 0 if seed is None else seed
        frame_size = max(1514, scenario.longest)
        bed = cls(scenario.network, seed=seed, frame_size=frame_size, faults=scenario.faults)
        for name, files in scenario.switches.items():
            bed.switch(
                name,
                files.program,
                commands=files.commands,
                priority_queues=files.priority_queues,
            )
        hosts = [bed.host(f"h{number + 1}") for number in range(scenario.hosts)]
        for host in hosts:
            bed._new_end(host)
        bed._cables = list(scenario.cables)
        for number, cable in enumerate(scenario.cables):
            other = cable.other if cable.host is None else hosts[cable.host].name
            bed._switches[cable.switch]._ports[cable.port] = other
            if cable.host is None:
                bed._switches[other]._ports[cable.other_port] = cable.switch
            bed._links.append(BedLink(bed, number, cable.switch, other))
        bed._flows = list(scenario.flows)
        return bed

    # ------------------------------------------------------------------ what there is

    @property
    def hosts(self) -> Mapping[str, BedHost]:
        """Hosts by name."""
        return MappingProxyType(self._hosts)

    @property
    def switches(self) -> Mapping[str, BedSwitch]:
        """Switches by name."""
        return MappingProxyType(self._switches)

    @property
    def links(self) -> Sequence[BedLink]:
        """Links, in the order in which they were made."""
        return tuple(self._links)

    def switch(
        self,
        name: str,
        program: str | Path | Mapping[str, Any] | ir.Program | None = None,
        *,
        commands: str | Path | Sequence[str] | None = None,
        priority_queues: int | None = None,
    ) -> BedSwitch:
        """A switch.

        Args:
            name: of the switch.
            program: compiled P4 (BMv2 JSON): a file, its contents, or the name of one of innet's
                programs; or a ``.p4``, which needs p4c. None: it forwards flows without bytes.
            commands: for its tables: a file, or lines, as simple_switch_CLI has them.
            priority_queues: of each port; by default as many as the network has priorities.

        Raises:
            InputError, ProgramError: what cannot be used, or a name that exists.
            ControlError: a command is refused; names file and line.
            MissingToolError: p4c is not there.
        """
        self._require_not_built("switch")
        self._check_name(name)
        model = None
        document = None if isinstance(program, ir.Program | None) else _document(program)
        if program is not None:
            model = Switch(
                program if isinstance(program, ir.Program) else self._loaded(program, document),
                "jit",
                seed=self._seed + len(self._switches),
                priority_queues=priority_queues or self.network.priorities,
            )
        source = str(program) if isinstance(program, str | Path) else ""
        switch = BedSwitch(self, name, model, len(self._switches), source)
        switch.document = document
        self._switches[name] = switch
        if commands is not None:
            # After the network has set up the queues, so that commands may change them.
            lines = switch.commands = _lines_of(commands)
            self._scheduled.append((0.0, lambda: _run_commands(switch, commands, lines)))
        return switch

    def host(self, name: str, *, room: int = 1 << 16) -> BedHost:
        """A host: 10.0.0.1 and 02:00:00:00:00:01 for the first one.

        Args:
            name: of the host.
            room: frames that wait for its coroutines at most; what comes then is dropped.
        """
        self._require_not_built("host")
        self._check_name(name)
        host = BedHost(name, len(self._hosts) + 1, self._frame_size, room)
        self._hosts[name] = host
        return host

    def link(
        self,
        a: BedHost | BedSwitch,
        b: BedHost | BedSwitch,
        *,
        port: int | None = None,
        ports: tuple[int, int] | None = None,
        rate: float | str | None = None,
        delay: float | None = None,
        loss: float | None = None,
    ) -> BedLink:
        """A link, each way.

        Args:
            a: one end.
            b: the other one; at least one of them is a switch.
            port: of the switch, if the other end is a host; by default the first one that is free,
                from 1 on.
            ports: of ``a`` and ``b`` if both are switches.
            rate: bits per second, or as presets have it ("25g"); by default the network's.
            delay: seconds; likewise.
            loss: probability; likewise.

        Raises:
            InputError: two hosts, a port that has a link, or a number that no link has.
        """
        self._require_not_built("link")
        if isinstance(a, BedHost) and isinstance(b, BedHost):
            raise InputError(
                f"{a.name} and {b.name} are hosts; put a switch between them: at least one end of "
                "a link is a switch."
            )
        for end in (a, b):
            if (end.name, end) not in [*self._hosts.items(), *self._switches.items()]:
                raise InputError(f"{end.name} is of another bed.")
        settings = {"rate": _rate_of(rate), "delay": delay, "loss": loss}
        stated: dict[str, Any] = {n: value for n, value in settings.items() if value is not None}
        network_of(stated)  # checks the numbers
        if isinstance(a, BedSwitch) and isinstance(b, BedSwitch):
            if port is not None:
                raise InputError("both ends are switches; give ports=(a's, b's).")
            here, there = (None, None) if ports is None else ports
            cable = Cable(
                a.name, a._take_port(here, b.name), None, b.name, b._take_port(there, a.name)
            )
        else:
            switch, host = (a, b) if isinstance(a, BedSwitch) else (b, a)
            assert isinstance(switch, BedSwitch)
            assert isinstance(host, BedHost)
            if ports is not None:
                raise InputError(f"{host.name} is a host and has no port; give port=.")
            if host in self._compiled and host in self._ends:
                raise InputError(f"{host.name} has a compiled function, and so one link only.")
            number = self._new_end(host)
            cable = Cable(switch.name, switch._take_port(port, host.name), number)
        self._cables.append(cable._replace(**stated))
        link = BedLink(self, len(self._cables) - 1, a.name, b.name)
        self._links.append(link)
        return link

    def flow(self, source: BedHost, destination: BedHost, **settings: Any) -> BedFlow:
        """Packets without bytes from a host to another, which switches forward by shortest paths.

        Args:
            source: whose they are.
            destination: where they go.
            settings: those of ``innet.sim.flows.Flow``: ``size=1000, rate=1e9, packets=10``.
        """
        here, there = self._number_of(source), self._number_of(destination)
        return self._add_flow(Flow(source=here, destination=there, **settings))

    def packets(self, source: BedHost, frames: bytes | Sequence[bytes], **settings: Any) -> BedFlow:
        """Frames that a host sends at given times, for the switches' programs.

        Args:
            source: the host.
            frames: one for all, or each.
            settings: those of ``innet.sim.flows.PacketFlow``: ``interval=1e-6, packets=10``.
        """
        listed = (frames,) if isinstance(frames, bytes) else tuple(frames)
        return self._add_flow(PacketFlow(source=self._number_of(source), frames=listed, **settings))

    def transfer(
        self, source: BedHost, destination: BedHost, size: int, *, start: float = 0.0
    ) -> BedTransfer:
        """Bytes that a host sends by the bed's ``transport``; switches forward them as flows.

        Args:
            source: the host; it has no coroutines, nor has the destination.
            destination: where they go.
            size: bytes.
            start: simulated seconds.

        Raises:
            InputError: a host without a link, or a size or time that no transfer has.
        """
        self._require_not_built("transfer")
        ends = self._number_of(source), self._number_of(destination)
        transfers([0], [1], [size], [start])  # checks the numbers
        self._transfers.append((*ends, size, start))
        return BedTransfer(self, len(self._transfers) - 1)

    def compiled(
        self, host: BedHost, *, memory: ArrayLike | int = 0, rows: int = 16, serves: bool = True
    ) -> Callable[[Callable[..., tuple[int, int]]], CompiledHost]:
        """A decorator of a function under Numba that plays a host; see ``CompiledHost``.

        Args:
            host: that has no coroutines.
            memory: int64 words of the function's own: zeros of this number, or these.
            rows: frames that a call sends at most.
            serves: for ever; else ``run`` waits until it returns ``DONE``.
        """
        self._require_not_built("compiled host")
        if self._ends.count(host) > 1:
            raise InputError(f"{host.name} has a compiled function, and so one link only.")

        def decorate(function: Callable[..., tuple[int, int]]) -> CompiledHost:
            compiled = CompiledHost(host.name, function, memory, rows, self._frame_size)
            self._compiled[host] = (compiled, serves)
            return compiled

        return decorate

    def at(self, seconds: float, call: Callable[[], Any]) -> None:
        """Let a function be called at a time, before the packets of that time."""
        ticks_of(seconds, "a time")

        def act() -> None:
            self._now = seconds
            call()

        if self.simulation is None:
            self._scheduled.append((seconds, act))
        else:
            self.simulation.at(seconds, act)

    def every(self, seconds: float, call: Callable[[], Any]) -> None:
        """Let a function be called at 0, and again and again after a time, for measurements.

        It is no reason for a run to go on: it ends when nothing else will happen.
        """
        if ticks_of(seconds, "an interval") < 1:
            raise InputError("an interval is 0; give seconds above 0.")
        calls = itertools.count(1)

        def act() -> None:
            call()
            if self._now == 0 or not self._simulated().is_quiet:
                self.at(next(calls) * seconds, act)

        self.at(0.0, act)

    def job(
        self,
        switch: BedSwitch,
        hosts: Sequence[BedHost],
        gradients: Sequence[NDArray[np.float32]],
        *,
        codec: Any = "dense",
        start: float = 0.0,
    ) -> BedJob:
        """An all-reduce by innet's own workers at hosts, which have no coroutines.

        Args:
            switch: that runs one of innet's programs for one switch, by name, such as "slots-64".
            hosts: worker i is linked to port i + 1 of the switch.
            gradients: float32, of each of them, with as many elements.
            codec: a preset's name, or its settings.
            start: simulated seconds.

        Raises:
            InputError: another program, or a host at another port.
        """
        from innet.testbed.jobs import BedJob  # noqa: PLC0415 - codecs take long to import

        self._require_not_built("job")
        if self._jobs:
            raise InputError("a bed has one job for now; add other traffic as flows or hosts.")
        for port, host in enumerate(hosts, start=1):
            if switch._ports.get(port) != host.name:
                raise InputError(
                    f"worker {port - 1} is {host.name}, which is not at port {port} of "
                    f"{switch.name}; link workers to ports 1, 2, ... in their order."
                )
        job = BedJob(
            switch.program,
            self.network,
            hosts,
            gradients,
            codec=codec,
            start=start,
            number=1,
            seed=self._seed,
        )
        if job.plan.layout.frame_size > self._frame_size:
            raise InputError(
                f"the job's frames have {job.plan.layout.frame_size} bytes; make the bed with "
                f"frame_size={job.plan.layout.frame_size}."
            )
        for line in job.commands():
            self._scheduled.append((0.0, partial(switch.command, line)))
        self._jobs.append(job)
        return job

    def capture(self, folder: str | Path) -> None:
        """Write a pcap of each link in each direction to a folder, with times in nanoseconds."""
        self._require_not_built("capture")
        self._captures = Path(folder)

    def record(self, watch: Watches | None = None, *, limit: int = MOST_PACKETS) -> None:
        """Record what happens to each packet, for ``save`` and ``innet view``.

        Args:
            watch: cells of registers to record, too, such as ``{"s1": ["counts[3]"]}``; a name
                alone is the whole register, up to 64 cells.
            limit: packets to keep at most.
        """
        self._require_not_built("recording")
        self._recording = watch or {}, limit

    def save(self, path: str | Path) -> None:
        """Write what ``record`` recorded so far to a JSON file.

        Raises:
            StateError: nothing was recorded.
            OutputError: it cannot be written.
        """
        if self._recorder is None:
            raise StateError("nothing was recorded: call record() before run(), and save() after.")
        self._recorder.save(path, "A testbed")

    # ------------------------------------------------------------------ time

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self._now if self.simulation is None else max(self._now, self.simulation.now)

    def run(
        self,
        until: float | None = None,
        *,
        wall_limit: float = 60.0,
        step_limit: float = 10.0,
        most_packets: int | None = None,
    ) -> None:
        """Let simulated time pass until every host's ``run`` has returned.

        Without any, until nothing will ever happen. It may be called again, with new coroutines.

        Args:
            until: simulated seconds at which to stop at the latest.
            wall_limit: real seconds.
            step_limit: real seconds that a host may take without an ``await``.
            most_packets: that links may carry in all.

        Raises:
            InputError: there is nothing to run, or no link of a host.
            StalledError: nothing will ever happen, and hosts wait; or a limit was passed. It says
                who waits for what.
            Exception: what a coroutine raised, with a note that names it and the time.
        """
        nodes: list[BedNode] = [*self._hosts.values(), *(c for _, c in self._controllers)]
        try:
            simulation = self._build()
            groups = self._launch(simulation)
            stop = None if until is None else simulation.launch_timer(until)
            simulation.most_packets = most_packets
            self._compile(simulation)
            watchdog = Watchdog(wall_limit, step_limit, lambda: _progress(nodes))
            try:
                with watchdog:
                    self._wait(simulation, groups, stop)
            except OutOfTimeError:
                raise StalledError(self._told(simulation, f"{watchdog.why}.", nodes)) from None
            except PacketLimitError as error:
                raise StalledError(self._told(simulation, str(error), nodes)) from None
            except StalledError as error:
                if self._job_groups:
                    raise StalledError(self._told(simulation, str(error), nodes)) from None
                if waiting(nodes):
                    why = "nothing will ever happen."
                    raise StalledError(self._told(simulation, why, nodes)) from None
        except BaseException:
            self.close()
            raise
        self._settle(simulation, nodes)

    def _wait(self, simulation: Simulation, groups: set[int], stop: int | None) -> None:
        """Let time pass until all groups and jobs are done, or the time ``stop`` has come."""
        numbers = {host: number for number, host in enumerate(self._ends)}
        for job in self._jobs:
            if job.finished is None and not job.is_begun:
                self._job_groups[job.begin(simulation, numbers)] = job
        if self._transfers and simulation.messenger is None:
            columns = zip(*self._transfers, strict=True)
            groups.add(simulation.launch_messages(transfers(*columns), self._transport))
        while groups or self._job_groups:
            done = simulation.wait()
            if done == stop:
                return
            groups.discard(done)
            if done in self._job_groups:
                job = self._job_groups.pop(done)
                if (following := job.go_on(simulation, numbers)) is not None:
                    self._job_groups[following] = job

    def _compile(self, simulation: Simulation) -> None:
        """Compile what is not yet, in nobody's time."""
        simulation.compile()
        for host in self._ends:
            if host._ports:
                host._ports[0].compile()
                return

    def _settle(self, simulation: Simulation, nodes: list[BedNode]) -> None:
        """Let nodes have the time at which the run ended, and what compiled hosts have counted."""
        for node in nodes:
            node.ticks = max(node.ticks, round(simulation.now * SECOND))
        for host in self._compiled:
            counted = simulation.host_counts(self._ends.index(host))
            host.received, host.received_bytes, host.sent = counted

    def play(self, frames: Frames) -> dict[str, list[bytes]]:
        """Let hosts send frames at given times, and run; ``innet.mininet.play`` does so in Mininet.

        Args:
            frames: by a host's name: when it sends, simulated seconds, and what.

        Returns:
            what came to each host, by name, in order.
        """
        for name, listed in frames.items():
            if name not in self._hosts:
                raise UnknownNameError("host", name, self._hosts)
            for seconds, frame in listed:
                self._hosts[name].send(frame, at=seconds)
        found: dict[str, list[bytes]] = {name: [] for name in self._hosts}
        for name, host in self._hosts.items():
            host.serve(partial(_collect, host, found[name]))
        self.run()
        return found

    def close(self) -> None:
        """End all coroutines where they wait."""
        for host in self._hosts.values():
            host.close()
        for _, controller in self._controllers:
            controller.close()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _told(self, simulation: Simulation, why: str, nodes: list[BedNode]) -> str:
        """A stall, with who waits for what."""
        time = shown(max(node.ticks for node in nodes))
        carried = simulation.counts().packets
        lines = [f"after {time} of simulated time: {why} Links carried {carried} packets."]
        lines += waiting(nodes)
        if len(lines) > 1:
            lines.append("A coroutine that answers for ever is to be begun by @host.serve.")
        return "\n".join(lines)

    # ------------------------------------------------------------------ building

    def _build(self) -> Simulation:
        """The network, when time passes for the first time."""
        if self.simulation is not None:
            return self.simulation
        self._check()
        # Step 1: switches, links and queues.
        room = self._frame_size + _SLACK
        simulation = Simulation(
            self.network,
            FrameSize(room, room),
            {name: switch._model for name, switch in self._switches.items()},
            self._cables,
            len(self._ends),
            seed=self._seed,
        )
        if self._faults is not None:
            wires = [n for n, cable in enumerate(self._cables) if cable.port >= 0]
            simulation.set_faults(self._faults, wires)
        for number, since, until in self._outages:
            simulation.add_outage(number, since, until)
        self.simulation = simulation
        # Step 2: what happens at times, and who hears of it.
        for seconds, call in self._scheduled:
            if seconds > 0:
                simulation.at(seconds, call)
            else:
                call()
        if self._flows:
            simulation.add_flows(self._flows)
        for number, controller in self._controllers:
            simulation.learn(number, controller.learn, controller.latency)
        if self._captures is not None:
            LinkCaptures(simulation, self._captures)
        if self._recording is not None:
            names = NodeNames(
                list(self._switches),
                [end.name for end in self._ends],
                [each.program for each in self._switches.values()],
            )
            models = {name: switch._model for name, switch in self._switches.items()}
            watch, limit = self._recording
            self._recorder = RunRecorder(simulation, models, names, watch=watch, limit=limit)
        directory = {host.ip: host.mac for host in self._hosts.values()}
        for host in self._hosts.values():
            host._directory = directory
        return simulation

    def _check(self) -> None:
        """Refuse what is no network."""
        if not self._switches:
            raise InputError("the bed is empty; add switches, hosts and links to it.")
        if lost := [host.name for host in self._hosts.values() if host not in self._ends]:
            raise InputError(f"host {lost[0]} has no link; link it to a switch.")
        if not self._ends:
            raise InputError("the bed has no hosts; add some, and link them to switches.")

    def _launch(self, simulation: Simulation) -> set[int]:
        """Let hosts begin, or go on; returns the numbers of the groups that are waited for."""
        ends: dict[int, Any] = {}
        others: dict[int, Any] = {}
        working = {host for job in self._jobs for host in job.hosts}
        working |= {
            self._ends[n] for source, target, *_ in self._transfers for n in (source, target)
        }
        for number, end in enumerate(self._ends):
            if end in self._compiled or end in working:
                if end.tasks:
                    what = "a job or transfers" if end in working else "a compiled function"
                    raise InputError(f"{end.name} has coroutines and {what}; it can have one.")
                if end in self._compiled:
                    compiled, serves = self._compiled[end]
                    (others if serves else ends)[number] = compiled
                continue
            is_first = self._ends.index(end) == number
            if is_first:
                end._detach()
            (ends if is_first and not end.done else others)[number] = end
        beside = self._flows or self._jobs or self._transfers
        if not (ends or beside or any(end.tasks for end in self._ends)):
            raise InputError(
                "nothing is to run: give a host a coroutine by @host.run, or the bed flows."
            )
        group = simulation.launch(ends, others=others)
        if not (ends or self._jobs or self._transfers):
            simulation.hold(group)  # nobody is waited for: until nothing happens any more
        return {group}

    def _loaded(self, given: Any, document: Mapping[str, Any] | None) -> ir.Program:
        """A program, loaded once for all switches that have the same."""
        assert document is not None, "it is no ir.Program"
        name = "the program" if isinstance(given, Mapping) else str(given)
        key = id(given) if isinstance(given, Mapping) else name
        if key not in self._programs:
            self._programs[key] = program_in(dict(document), name)
        return self._programs[key]

    def _add_flow(self, flow: Flow | PacketFlow) -> BedFlow:
        self._flows.append(flow)
        if self.simulation is not None:
            self.simulation.add_flows([flow])
        return BedFlow(self, len(self._flows) - 1)

    def _new_end(self, host: BedHost) -> int:
        self._ends.append(host)
        host._numbers.append(len(self._ends) - 1)
        return len(self._ends) - 1

    def _number_of(self, host: BedHost) -> int:
        if host not in self._ends:
            raise InputError(f"{host.name} has no link yet; link it before it sends flows.")
        return self._ends.index(host)

    def _schedule(self, ticks: int, call: Callable[[], None]) -> None:
        self._simulated().at(ticks / SECOND, call)

    def _simulated(self) -> Simulation:
        if self.simulation is None:
            raise StateError("no time has passed yet: call run() first.")
        return self.simulation

    def _check_name(self, name: str) -> None:
        if name in self._switches or name in self._hosts:
            raise InputError(f"there is a {name} already; names are for one node each.")

    def _require_not_built(self, what: str) -> None:
        if self.simulation is not None:
            raise StateError(f"time has passed: add every {what} before run().")


async def _collect(host: BedHost, found: list[bytes]) -> None:
    while True:
        found.append(await host.receive())


def _progress(nodes: Iterable[BedNode]) -> tuple[str, int] | None:
    """Which coroutine runs, and how far it is."""
    for node in nodes:
        if (task := node._current) is not None:
            return str(task), node.steps
    return None


def _rate_of(rate: float | str | None) -> float | None:
    if not isinstance(rate, str):
        return rate
    if rate in PRESETS:
        return PRESETS[rate].rate
    number, unit = rate[:-1], rate[-1:].lower()
    try:
        return float(number) * {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[unit]
    except (ValueError, KeyError):
        raise InputError(f"a link's rate is {rate!r}; give bits per second, or '25g'.") from None


def _lines_of(commands: str | Path | Sequence[str]) -> tuple[str, ...]:
    if isinstance(commands, str | Path):
        return read_commands(Path(commands)).lines
    return tuple(commands)


def _document(program: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON of a program, compiled if need be."""
    if isinstance(program, Mapping):
        return program
    if str(program).endswith(".p4"):
        return programs.compile_p4(Path(program), p4c=programs.find_p4c())
    return open_document(program)


def _run_commands(
    switch: BedSwitch, commands: str | Path | Sequence[str], lines: Sequence[str]
) -> None:
    place = commands if isinstance(commands, str | Path) else "commands"
    for number, line in enumerate(lines, start=1):
        try:
            switch.command(line)
        except ControlError as error:
            raise type(error)(f"{place}:{number}, at switch {switch.name}: {error}") from None


def _reset_state(switch: Switch) -> None:
    switch.command("reset_state")


__all__ = ["BedFlow", "BedLink", "BedSwitch", "Testbed"]
