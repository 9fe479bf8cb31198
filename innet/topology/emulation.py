"""Emulation of a plan in this process: built-in switches, links in memory, hosts.

The simulator is imported where a network is simulated: its compiled code takes a second to load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from innet.core.engines import EngineName
from innet.core.errors import InputError, StalledError
from innet.core.numbers import is_int, is_real
from innet.core.packets import PacketBatch
from innet.network import Faults, FaultyTransport, Host, Process, Transport, drive
from innet.protocol import Timing
from innet.sim import Network
from innet.sim.network import OVERHEAD, SHORTEST
from innet.switch import Switch
from innet.switch.engine import cell_value
from innet.switch.frontend.loader import load_text
from innet.switch.ir import Program
from innet.switch.state.tables import RuntimeEntry
from innet.topology.aggregation import Probe, WorkerEnd, aggregation_of
from innet.topology.plan import Plan
from innet.transport.memory import MemoryTransport, NetworkTransport, SwitchPort

if TYPE_CHECKING:
    from innet.sim.simulation import Cable, Simulation


@dataclass(slots=True)
class _Spent:
    """Real seconds in switches."""

    seconds: float = 0.0

    def timed(self, switch: Switch) -> Process:
        """What a switch makes of packets, with its time."""

        def process(packets: PacketBatch) -> PacketBatch:
            begun = time.perf_counter()
            leaving = switch.process_batch(packets)
            self.seconds += time.perf_counter() - begun
            return leaving

        return process


class Emulation:
    """The emulated network of a plan. Nothing is sent by the constructor.

    Args:
        plan: the plan.
        engine: "jit" or "interpret": how the switches run their programs.
        faults: faults of every link, in both directions; None for none.
        timing: timeouts of the workers, in virtual seconds. By default, with ``network``, a
            millisecond, or more on links that are slow for the window.
        seed: seed of the faults and of the programs' random numbers.
        network: rates, delays and queues of links, switches and hosts: packets take simulated time.
            None: they take none, but for ``faults``.
        racks: let each rack sum for itself, too, as a separate job at its switch.

    Attributes:
        simulation: the network in simulated time; None without ``network``.
        plan: the current plan.
        switches: switches by name.
        workers: the workers' clients, by index.
        racks: the jobs of the racks, in their current epoch; none unless asked for.
        rack_workers: the workers' clients in their racks' jobs, by index in the job of all.
        hosts: all hosts by their number in the transport, workers first.
        edge: the transport without the faults of the hosts' links. Its ``tap`` gets packets between
            hosts and switches.
        transport: the transport that hosts use.
        now: virtual seconds.

    Raises:
        InputError: with ``network``: an engine, a program, faults or timing that simulated time
            does not have yet.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        engine: EngineName = "jit",
        faults: Faults | None = None,
        timing: Timing | None = None,
        seed: int = 0,
        network: Network | None = None,
        racks: bool = False,
    ) -> None:
        if network is not None:
            timing = usual_timing(plan, network) if timing is None else timing
            _check_engine(engine)
        self.plan = plan
        self.now = 0.0
        # What is kept here has no reference to this object: its memory, that of all registers, then
        # goes with it, and not when Python next looks for cycles.
        self._spent = _Spent()
        self.switches: dict[str, Switch] = {}
        loaded: dict[str, Program] = {}
        for number, planned in enumerate(plan.switches):
            name = planned.program.name
            if name not in loaded:
                loaded[name] = load_text(planned.program.text())
            queues = 1 if network is None else network.priorities
            switch = Switch(loaded[name], engine, seed=seed + number, priority_queues=queues)
            for command in planned.commands:
                switch.command(command)
            self.switches[planned.name] = switch
        self._timing = timing
        self._aggregation = aggregation = aggregation_of(plan.aggregation)
        self.racks = aggregation.racks(plan) if racks else ()
        for rack in self.racks:
            for planned in rack.plan.switches:
                for command in planned.commands:
                    self.switches[planned.name].command(command)
        self.workers: list[WorkerEnd] = []
        self.hosts: dict[int, Host] = {}
        for index, host in enumerate(plan.hosts, start=1):
            if host.role == "worker":
                end = aggregation.worker_end(plan, host, timing)
                self.workers.append(end)
                self.hosts[index] = end
        self.rack_workers: dict[int, WorkerEnd] = {}
        self._begin_racks()
        self._begin_servers()
        self.simulation: Simulation | None = None
        self._starts: dict[int, float] = {}
        if network is not None:
            from innet.sim.simulation import Simulation  # noqa: PLC0415

            cables = _cables(plan)
            self.simulation = Simulation(
                network, plan.layout, self.switches, cables, len(plan.hosts), seed=seed
            )
            if faults is not None:
                _check_damage(plan, faults)
                self._add_faults(self.simulation, faults, network.loss, cables)
                faults = None
        # The trunks have a generator of their own: the faults on the workers' links are then the
        # same with any switches behind them.
        self.edge = self._build(faults, np.random.default_rng([seed, 1]))
        self.transport: Transport = self.edge
        if faults is not None:
            self.transport = FaultyTransport(
                self.edge, faults, np.random.default_rng(seed), on_restart=self._restart()
            )

    @property
    def starts(self) -> Mapping[int, float]:
        """With ``network``: when workers begin the next exchange, by index, in virtual seconds.

        Whoever is not named begins at ``now``; it is empty afterwards. Times count from the begin
        of the network, not of the exchange: give ``{1: network.now + 1e-3}`` for a millisecond
        later than the others.

        Raises:
            InputError: when set: there is no simulated time, no such worker, or the time is over.
        """
        return MappingProxyType(self._starts)

    @starts.setter
    def starts(self, starts: Mapping[int, float]) -> None:
        if self.simulation is None:
            raise InputError("workers begin together in memory; give a network, such as '100g'.")
        for worker, seconds in starts.items():
            if not (is_int(worker) and 0 <= worker < len(self.workers)):
                raise InputError(
                    f"there is no worker {worker!r} to begin later; the job has 0 to "
                    f"{len(self.workers) - 1}."
                )
            if not (is_real(seconds) and self.now <= seconds < math.inf):
                raise InputError(
                    f"worker {worker} is to begin at {seconds!r} s, but the network's time is "
                    f"{self.now!r} s already; starts count from its begin: give "
                    f"network.now + {seconds!r} to begin that much later than the others."
                )
        self._starts = dict(starts)

    def start_each(self, starts: Mapping[int, float]) -> None:
        """Set ``starts`` of workers who may be ahead of ``now``, as they had the last sum sooner.

        Nobody begins before the network was idle.
        """
        self._starts = dict(starts)

    def _add_faults(
        self, simulation: Simulation, faults: Faults, loss: float, cables: Sequence[Cable]
    ) -> None:
        """Let a simulated network have losses, outages and restarts."""
        both = 1 - (1 - loss) * (1 - faults.loss)
        for number, cable in enumerate(cables):
            simulation.set_loss(number, both)
            for outage in faults.outages:
                if not outage.hosts or (cable.host is not None and cable.host + 1 in outage.hosts):
                    simulation.add_outage(number, outage.begin, outage.end)
        for seconds in faults.restarts:
            simulation.at(seconds, self._restart())
        simulation.set_faults(faults)

    def _build(
        self, faults: Faults | None, rng: np.random.Generator
    ) -> MemoryTransport | NetworkTransport:
        positions = self.plan.attachments()
        processes = {name: self._spent.timed(switch) for name, switch in self.switches.items()}
        if len(processes) == 1 and all(
            position.port == each for each, position in positions.items()
        ):
            (process,) = processes.values()  # hosts are numbered as its ports: nothing to translate
            return MemoryTransport(process, list(positions))
        return NetworkTransport(
            processes,
            {number: SwitchPort(*position) for number, position in positions.items()},
            [(SwitchPort(*link.a), SwitchPort(*link.b)) for link in self.plan.trunks()],
            faults=None if faults is None else faults.of_packets(),
            rng=rng,
        )

    @property
    def switch_seconds(self) -> float:
        """Real seconds that the switches have used; 0 with ``network``."""
        return self._spent.seconds

    @property
    def name(self) -> str:
        """What carries the packets, for reports."""
        if self.simulation is not None:
            return "simulated time"
        return "memory" if self.transport is self.edge else "memory with faults"

    @property
    def has_epochs(self) -> bool:
        """Whether ``begin_epoch`` is possible."""
        return self._aggregation.has_epochs

    @property
    def has_partials(self) -> bool:
        """Whether workers may request partial results."""
        return self._aggregation.has_partials

    def begin_epoch(self, absent: Iterable[int] = ()) -> None:
        """Continue in the next epoch, on the same switches, with new clients and the same counters.

        Packets under way and values in registers belong to the previous epoch and are ignored.

        Args:
            absent: indices of the workers who do not take part.

        Raises:
            InputError: no worker would be left.
            StateError: the protocol has no epochs.
        """
        absent = frozenset(absent)
        self.plan = self._next_epoch(self.plan, absent)
        # A rack without workers does not change and sends nothing.
        self.racks = tuple(
            rack
            if absent.issuperset(rack.workers)
            else rack._replace(plan=self._next_epoch(rack.plan, rack.absent(absent)))
            for rack in self.racks
        )
        for index, host in enumerate(self.plan.workers):
            self.hosts.pop(index + 1, None)
            if index not in self.plan.job.absent:
                end = self._aggregation.worker_end(self.plan, host, self._timing)
                end.counters = self.workers[index].counters
                self.workers[index] = self.hosts[index + 1] = end
        self._begin_racks()
        self._begin_servers()

    def _next_epoch(self, plan: Plan, absent: frozenset[int]) -> Plan:
        """Begin the next epoch of a job on the switches."""
        number = plan.job.number

        def entries(switch: str, table: str) -> list[int]:
            """Handles of this job's entries."""
            found = self.switches[switch].table_entries(table)
            if not self.racks:
                return [entry.handle for entry in found]
            return [entry.handle for entry in found if _job_of(entry) == number]

        following, commands = self._aggregation.next_epoch(plan, absent, entries)
        for name, lines in commands.items():
            for line in lines:
                self.switches[name].command(line)
        return following

    def _begin_racks(self) -> None:
        for rack in self.racks:
            for host in rack.plan.workers:
                assert host.worker is not None
                if host.worker in rack.plan.job.absent:
                    continue
                index = rack.workers[host.worker]
                end = self._aggregation.worker_end(rack.plan, host, self._timing)
                end.counters = self.workers[index].counters
                self.rack_workers[index] = end

    def _begin_servers(self) -> None:
        servers: dict[str, Host] = {}
        for number, host in enumerate(self.plan.hosts, start=1):
            if host.role == "server":
                servers[host.name] = self._aggregation.server_end(self.plan, host)
                self.hosts[number] = servers[host.name]
        self._servers = servers

    def _restart(self) -> Callable[[], None]:
        switches = tuple(self.switches.values())

        def lose_registers() -> None:
            for switch in switches:
                for cells in switch.registers.values():
                    cells[:] = 0

        return lose_registers

    def _read_register(self, switch: str, register: str, index: int) -> int:
        return cell_value(self.switches[switch].registers[register], index)

    @property
    def packets_in(self) -> int:
        """Packets that all switches have received."""
        return sum(switch.statistics.packets_in for switch in self.switches.values())

    def run(self, starts: Mapping[int, float] | None = None) -> None:
        """Move packets until all hosts are done.

        Args:
            starts: with ``network``: when workers begin, by index, seconds; others begin now.

        Raises:
            StalledError: a worker has waited too long; names the missing workers, from the
                switches' registers.
        """
        ends = {index: self.workers[index] for index in self.plan.job.present}
        try:
            self._run(self.hosts, ends, starts)
        except StalledError as error:
            probe = Probe(self._read_register, self._servers)
            read = self._aggregation.slot_reader(self.plan, probe)
            found = (end.diagnose(read) for end in ends.values())
            said = next((str(each) for each in found if each is not None), str(error))
            raise StalledError(said) from error

    def resume(self, begun: float) -> None:
        """Go on after a stall with the workers who are done, which have not waited for the others.

        Args:
            begun: when the exchange that stalled began. In memory the next one begins then; in
                simulated time when the last of those who are done was done.
        """
        if self.simulation is None:
            self.now = begun
            return
        self.simulation.resume(each for each in self.plan.job.present if self.workers[each].done)
        self.now = self.simulation.now

    def run_racks(self, racks: Iterable[int]) -> None:
        """Move packets until the workers of these racks are done with their racks' sums.

        Args:
            racks: positions in ``racks``.

        Raises:
            StalledError: as ``run``; names the switch of the rack, and workers by their index in
                the rack.
        """
        chosen = [self.racks[index] for index in racks]
        present = [[rack.workers[i] for i in rack.plan.job.present] for rack in chosen]
        ends = {worker: self.rack_workers[worker] for workers in present for worker in workers}
        try:
            self._run({index + 1: end for index, end in ends.items()}, ends)
        except StalledError as error:
            for rack, workers in zip(chosen, present, strict=True):
                read = self._aggregation.slot_reader(rack.plan, Probe(self._read_register))
                for worker in workers:
                    if (found := ends[worker].diagnose(read)) is not None:
                        where = rack.plan.switches[0].name
                        said = f"in the rack of {where}, whose workers are {list(rack.workers)}"
                        raise StalledError(f"{said}: {found}") from error
            raise

    def _run(
        self,
        hosts: Mapping[int, Host],
        ends: Mapping[int, WorkerEnd],
        starts: Mapping[int, float] | None = None,
    ) -> None:
        """Move packets until all hosts, by number, are done: these workers, and servers."""
        try:
            if self.simulation is None:
                self.now = drive(hosts, self.transport, self.now)
            else:
                servers = {
                    number - 1: end
                    for number, end in hosts.items()
                    if number > len(self.plan.workers)
                }
                try:
                    self.simulation.run(ends, servers, starts or self._starts)
                finally:
                    self.now, self._starts = self.simulation.now, {}
        except StalledError as error:
            if error.at is not None:  # at a further attempt an outage may be over
                self.now = error.at
            raise


def _job_of(entry: RuntimeEntry) -> int:
    """The job that an entry of an admission table is for."""
    column = [key.name for key in entry.keys].index("hdr.innet.job")
    return entry.values[column]


def usual_timing(plan: Plan, network: Network) -> Timing:
    """The workers' time-outs in simulated time, unless others are given.

    A millisecond; more where links take longer than that for what a worker has under way.
    Otherwise workers would send again what only waits for its turn.
    """
    from innet.sim.simulation import TIMING  # noqa: PLC0415

    rate = network.slowest
    frame = max(plan.layout.wire_size, SHORTEST) + OVERHEAD
    window = plan.window * 8 * frame / rate
    least = max(TIMING.min_timeout, 2 * window)
    return replace(TIMING, timeout=max(TIMING.timeout, 4 * window), min_timeout=least)


def _cables(plan: Plan) -> list[Cable]:
    """All links of a plan; the workers' come first."""
    from innet.sim.simulation import Cable  # noqa: PLC0415

    attached = plan.attachments()
    cables = [
        Cable(attached[number].node, attached[number].port, number - 1)
        for number in range(1, len(plan.hosts) + 1)
    ]
    return cables + [Cable(*link.a, None, *link.b) for link in plan.trunks()]


def _check_engine(engine: EngineName) -> None:
    if engine != "jit":
        raise InputError(
            f"a network in simulated time does not have the engine {engine}; choose jit."
        )


def _check_damage(plan: Plan, faults: Faults) -> None:
    """Refuse wrong bits in values that thin packets do not carry."""
    named = [name for name in ("corrupt", "truncate") if getattr(faults, name)]
    if named and plan.layout.is_thin:
        raise InputError(
            f"thin packets carry no values that could be wrong, so {' and '.join(named)} would "
            "mean nothing; leave thin out."
        )
