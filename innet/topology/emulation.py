"""Emulation of a plan in this process: built-in switches, links, hosts; one job or several.

The simulator is imported where a network is simulated: its compiled code takes a second to load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from innet.core.engines import EngineName
from innet.core.errors import ControlError, InputError, StalledError, UnknownNameError
from innet.core.numbers import is_int, is_real
from innet.core.packets import PacketBatch
from innet.core.reduce_op import Segment, SizedSegment
from innet.network import Faults, FaultyTransport, Host, Outage, Process, Transport, drive
from innet.protocol import Timing
from innet.sim import Network
from innet.sim.network import OVERHEAD, SHORTEST
from innet.switch import Switch
from innet.switch.engine import cell_value
from innet.switch.frontend.loader import load_text
from innet.switch.ir import Program
from innet.switch.state.tables import RuntimeEntry
from innet.topology.aggregation import Probe, WorkerEnd, aggregation_of
from innet.topology.plan import Plan, PlannedSwitch, SharedPlan
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


Round = Sequence[Segment] | Sequence[SizedSegment]
Later = Callable[[int, int], Sequence[float]]
"""Of a job and its round, both from 0: by how many seconds later each worker begins."""


@dataclass(frozen=True, slots=True)
class JobRound:
    """A round of a job, in simulated seconds.

    Attributes:
        job: position in the plan.
        begin: when its workers began.
        end: when the last of them had its results.
    """

    job: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """A job on a network where jobs come and go; see ``EmulatedNetwork.admit``.

    Attributes:
        plan: of the job.
        ends: its workers' clients, by the number of their host.
        undo: (switch, command) that take back what the switches know of it, the last one first.
    """

    plan: Plan
    ends: dict[int, WorkerEnd]
    undo: list[tuple[str, str]]


class EmulatedNetwork:
    """The emulated network of a plan, with one job or several. Nothing is sent by the constructor.

    Several jobs take simulated time, and share its queues and links. ``run_rounds`` runs them all;
    what is not said to be of all jobs is of the first.

    Args:
        plan: the plan.
        engine: "jit" or "interpret": how the switches run their programs.
        faults: faults of every link, in both directions; None for none.
        timing: timeouts of the workers, in virtual seconds. By default, with ``network``, those of
            ``default_timing``.
        seed: seed of the faults and of the programs' random numbers.
        network: rates, delays and queues of links, switches and hosts: packets take simulated time.
            None: they take none, but for ``faults``.
        racks: let each rack sum for itself, too, as a separate job at its switch.

    Attributes:
        simulation: the network in simulated time; None without ``network``.
        plan: the current plan.
        switches: switches by name.
        workers: the workers' clients, by index.
        job_workers: the same of each job.
        racks: the jobs of the racks, in their current epoch; none unless asked for.
        rack_workers: the workers' clients in their racks' jobs, by index in the job of all.
        hosts: all hosts by their number in the transport, workers first.
        edge: the transport without the faults of the hosts' links. Its ``tap`` gets packets between
            hosts and switches.
        transport: the transport that hosts use.
        now: virtual seconds.

    Raises:
        InputError: with ``network``: an engine, a program, faults or timing that simulated time
            does not have yet, or a network that cannot carry the jobs' packets; several jobs
            without it, with packets of several layouts, or with ``racks``.
    """

    def __init__(
        self,
        plan: Plan | SharedPlan,
        *,
        engine: EngineName = "jit",
        faults: Faults | None = None,
        timing: Timing | None = None,
        seed: int = 0,
        network: Network | None = None,
        racks: bool = False,
    ) -> None:
        _check_jobs(plan, network, racks=racks)
        if network is not None:
            timing = default_timing(plan, network) if timing is None else timing
            _check_engine(engine)
        self.plan = plan.jobs[0]
        self.now = 0.0
        # What is kept here has no reference to this object: its memory, that of all registers, then
        # goes with it, and not when Python next looks for cycles.
        self._spent = _Spent()
        queues = 1 if network is None else network.priorities
        self.switches = _switches_of(plan, engine, queues, seed)
        self._timing = timing
        self._outages = _outages_of(faults, self.switches)
        self._aggregation = aggregation_of(self.plan.aggregation)
        self.racks = self._aggregation.racks(self.plan) if racks else ()
        for rack in self.racks:
            for planned in rack.plan.switches:
                for command in planned.commands:
                    self.switches[planned.name].command(command)
        # A group of hosts for each job, numbered one after the other; a rack's workers are those of
        # the first job once more, in a job of their own.
        self.job_workers = [
            [aggregation_of(job.aggregation).worker_end(job, host, timing) for host in job.workers]
            for job in plan.jobs
        ]
        self.workers = self.job_workers[0]
        self.hosts: dict[int, Host] = dict(enumerate(self.workers, start=1))
        self.rack_workers: dict[int, WorkerEnd] = {}
        self._begin_racks()
        # Of each job: the number of its first host in simulated time, and its servers by number.
        self._first = [0, *accumulate(len(job.hosts) for job in plan.jobs)]
        self._job_servers = [
            _servers_of(job, first) for job, first in zip(plan.jobs, self._first, strict=False)
        ]
        self.hosts |= {number + 1: end for number, end in self._job_servers[0].items()}
        self.simulation: Simulation | None = None
        self._starts: dict[int, float] = {}
        if network is not None:
            self.simulation = self._simulated(plan, network, faults, seed)
            sequences = self._aggregation.sequences
            self.simulation.sequences = sequences.get(self.plan.aggregation, "")
            faults = None
        # The trunks have a generator of their own: the faults on the workers' links are then the
        # same with any switches behind them.
        self.edge = self._build(plan, faults, np.random.default_rng([seed, 1]))
        self.transport: Transport = self.edge
        if faults is not None:
            self.transport = FaultyTransport(
                self.edge, faults, np.random.default_rng(seed), on_restart=self._restart()
            )

    def _simulated(
        self, plan: Plan | SharedPlan, network: Network, faults: Faults | None, seed: int
    ) -> Simulation:
        """The links, switches and hosts in simulated time, with faults."""
        from innet.sim.simulation import Simulation  # noqa: PLC0415

        cables = cables_of(plan)
        layout = self.plan.layout
        simulation = Simulation(network, layout, self.switches, cables, len(plan.hosts), seed=seed)
        if faults is not None:
            _check_damage(self.plan, faults)
            self._add_faults(simulation, faults, network.loss, cables)
        return simulation

    @property
    def timed(self) -> Simulation:
        """The network in simulated time.

        Raises:
            InputError: packets take no time.
        """
        if self.simulation is None:
            raise InputError("in memory nothing takes time; give a network, such as '100g'.")
        return self.simulation

    @property
    def servers(self) -> list[Host]:
        """The parameter servers of the jobs that have one."""
        return [end for servers in self._job_servers for end in servers.values()]

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
                everywhere = not (outage.hosts or outage.switches)
                at_host = cable.host is not None and cable.host + 1 in outage.hosts
                if everywhere or at_host or {cable.switch, cable.other} & {*outage.switches}:
                    simulation.add_outage(number, outage.begin, outage.end)
        for seconds in faults.restarts:
            simulation.at(seconds, self._restart())
        simulation.set_faults(faults)

    def _build(
        self, plan: Plan | SharedPlan, faults: Faults | None, rng: np.random.Generator
    ) -> MemoryTransport | NetworkTransport:
        positions = plan.attachments()
        processes = {name: self._spent.timed(switch) for name, switch in self.switches.items()}
        if (
            len(processes) == 1
            and not self._outages
            and all(position.port == each for each, position in positions.items())
        ):
            (process,) = processes.values()  # hosts are numbered as its ports: nothing to translate
            return MemoryTransport(process, list(positions))
        return NetworkTransport(
            processes,
            {number: SwitchPort(*position) for number, position in positions.items()},
            [(SwitchPort(*link.a), SwitchPort(*link.b)) for link in plan.trunks()],
            faults=None if faults is None else faults.of_packets(),
            rng=rng,
            outages=self._outages,
        )

    @property
    def down(self) -> frozenset[str]:
        """The switches that are down now."""
        now = self.now if self.simulation is None else self.simulation.reached
        return frozenset(
            name for outage in self._outages if outage.covers(now) for name in outage.switches
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

        Where the job has several trees, those with a switch that is down are left out.

        Raises:
            InputError: no worker would be left.
            StateError: the protocol has no epochs.
        """
        absent = frozenset(absent)
        self.plan = self._next_epoch(replace(self.plan, down=self.down), absent)
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
        self._job_servers[0] = _servers_of(self.plan, 0)
        self.hosts |= {number + 1: end for number, end in self._job_servers[0].items()}

    def _next_epoch(self, plan: Plan, absent: frozenset[int]) -> Plan:
        """Begin the next epoch of a job on the switches."""
        number = plan.job.number

        def entries(switch: str, table: str) -> list[int]:
            """Handles of this job's entries."""
            found = self.switches[switch].table_entries(table)
            if not self.racks and len(self.job_workers) == 1:
                return [entry.handle for entry in found]
            return [entry.handle for entry in found if _job_of(entry) == number]

        next_plan, commands = self._aggregation.next_epoch(plan, absent, entries)
        for name, lines in commands.items():
            for line in lines:
                self.switches[name].command(line)
        return next_plan

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
            servers = self._job_servers[0].values()
            names = [host.name for host in self.plan.servers]
            probe = Probe(self._read_register, dict(zip(names, servers, strict=True)))
            read = self._aggregation.slot_reader(self.plan, probe)
            found = (end.diagnose(read) for end in ends.values())
            said = next((str(each) for each in found if each is not None), str(error))
            if down := sorted(self.down):
                said += f" Switches that are down: {', '.join(down)}."
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

    def set_pace(self, job: int, rate: float) -> None:
        """Let packets of a job's hosts leave at a rate, bits per second; see ``Network``."""
        self.timed.set_pace(range(self._first[job], self._first[job + 1]), rate)

    def admit(self, plan: Plan) -> AdmittedJob:
        """Let a job of ``Aggregation.placed`` use the switches from now on, in simulated time.

        Raises:
            ControlError: a table of a switch is full; nothing is left of the job then.
        """
        number_of = {host.name: number for number, host in enumerate(self.plan.hosts)}
        undo: list[tuple[str, str]] = []
        admitted = AdmittedJob(plan, {}, undo)
        try:
            for planned in plan.switches:
                self._command(planned, undo)
        except ControlError:
            self.dismiss(admitted)
            raise
        for host in plan.workers:
            end = self._aggregation.worker_end(plan, host, self._timing)
            admitted.ends[number_of[host.name]] = end
        return admitted

    def _command(self, planned: PlannedSwitch, undo: list[tuple[str, str]]) -> None:
        """Give a switch the commands of a job, and note those that take them back."""
        nodes: list[int] = []  # the handles that it gives the nodes, which the job numbers from 0
        for line in planned.commands:
            name, first, *rest = line.split()
            if name == "mc_node_associate":
                line = f"{name} {first} {nodes[int(rest[0])]}"  # noqa: PLW2901
            said = self.switches[planned.name].command(line)
            match name:
                case "mc_mgrp_create":
                    undo.append((planned.name, f"mc_mgrp_destroy {first}"))
                case "mc_node_create":
                    nodes.append(int(said.split()[-1]))
                    undo.append((planned.name, f"mc_node_destroy {nodes[-1]}"))
                case "table_add":
                    undo.append((planned.name, f"table_delete {first} {said.split()[-1]}"))

    def dismiss(self, job: AdmittedJob) -> None:
        """Take back all that the switches know of a job. Packets of it are dropped from now on."""
        while job.undo:
            switch, line = job.undo.pop()
            self.switches[switch].command(line)

    def launch(
        self,
        ends: Mapping[int, WorkerEnd],
        segments: Round,
        at: float,
        later: Sequence[float] = (),
        servers: Mapping[int, Host] | None = None,
    ) -> int:
        """Let workers begin a round in simulated time, which ``timed.wait`` lets pass.

        Args:
            ends: workers' clients by the number of their host.
            segments: of the round.
            at: when, seconds.
            later: by how much later each of them begins; by default they begin together.
            servers: parameter servers, likewise.

        Returns:
            the number by which ``wait`` calls the round.
        """
        begins = dict.fromkeys(ends, at)
        if later:
            begins = {host: at + by for host, by in zip(ends, later, strict=True)}
        for host, end in ends.items():
            end.start(segments, begins[host])
        return self.timed.launch(ends, begins, servers)

    def run_rounds(
        self,
        rounds: Sequence[Sequence[Round]],
        starts: Mapping[int, float] | None = None,
        delays: Sequence[Sequence[float]] = (),
        later: Later | None = None,
    ) -> list[JobRound]:
        """In simulated time, let all jobs do their rounds, each one when the one before is done.

        Args:
            rounds: of each job.
            starts: when a job begins, by position, seconds from now; by default now.
            delays: of each job, seconds from a round's end to the begin of the next, one fewer than
                rounds; by default none.
            later: by how much later than the others workers begin; by default they do together.

        Returns:
            All rounds, in the order in which they ended.

        Raises:
            StalledError: a worker gave up.
            InputError: rounds of other than all jobs, or no simulated time.
        """
        simulation = self.timed
        if len(rounds) != len(self.job_workers):
            raise InputError(
                f"rounds of {len(rounds)} jobs, but there are {len(self.job_workers)}."
            )
        hosts = [
            dict(enumerate(workers, start=first))
            for workers, first in zip(self.job_workers, self._first, strict=False)
        ]
        left = [list(each) for each in rounds]
        waits = [list(each) for each in delays] or [[] for _ in rounds]
        running: dict[int, tuple[int, float]] = {}
        now = simulation.now

        def launch(job: int, at: float) -> None:
            number = len(rounds[job]) - len(left[job])
            segments = left[job].pop(0)
            by = () if later is None else later(job, number)
            group = self.launch(hosts[job], segments, at, by, self._job_servers[job])
            running[group] = job, at

        # Step 1: each job that has a round begins its first one.
        for job, each in enumerate(left):
            if each:
                launch(job, now + (starts or {}).get(job, 0.0))
        # Step 2: time passes until a round is done; the job's next one begins then, while those of
        # other jobs are under way.
        done: list[JobRound] = []
        while running:
            try:
                group = simulation.wait()
            except StalledError as error:
                waiting = sorted(job for job, _ in running.values())
                raise StalledError(f"jobs {waiting}: {error}") from error
            job, begin = running.pop(group)
            end = max(simulation.finished(host) for host in hosts[job])
            done.append(JobRound(job, begin, end))
            if left[job]:
                launch(job, end + (waits[job].pop(0) if waits[job] else 0.0))
        self.now = simulation.now
        return done

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
                workers = len(self.plan.workers)
                servers = {number - 1: end for number, end in hosts.items() if number > workers}
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


def default_timing(
    plan: Plan | SharedPlan, network: Network, paces: Iterable[float] = ()
) -> Timing:
    """The workers' time-outs in simulated time, unless others are given.

    A millisecond; more where links take longer than that for what a worker of each job has under
    way. Otherwise workers would send again what only waits for its turn.

    Args:
        plan: of one job or several.
        network: rates of links.
        paces: bits per second at which workers send, where they differ from the network's.
    """
    from innet.sim.simulation import TIMING  # noqa: PLC0415

    rate = min([network.slowest, *paces])
    frame = max(plan.jobs[0].layout.wire_size, SHORTEST) + OVERHEAD
    windows = sum(job.window for job in plan.jobs) * 8 * frame / rate
    least = max(TIMING.min_timeout, 2 * windows)
    return replace(TIMING, timeout=max(TIMING.timeout, 4 * windows), min_timeout=least)


def cables_of(plan: Plan | SharedPlan) -> list[Cable]:
    """All links of a plan for simulated time: those of hosts in their order, then the others."""
    from innet.sim.simulation import Cable  # noqa: PLC0415

    cables = [Cable(*port, number - 1) for number, port in plan.attachments().items()]
    return cables + [Cable(*link.a, None, *link.b) for link in plan.trunks()]


def _switches_of(
    plan: Plan | SharedPlan, engine: EngineName, queues: int, seed: int
) -> dict[str, Switch]:
    """The switches with the commands of all jobs, by name; each program is loaded once."""
    switches: dict[str, Switch] = {}
    loaded: dict[str, Program] = {}
    for number, planned in enumerate(plan.switches):
        name = planned.program.name
        if name not in loaded:
            loaded[name] = load_text(planned.program.text())
        switch = Switch(loaded[name], engine, seed=seed + number, priority_queues=queues)
        for command in planned.commands:
            switch.command(command)
        switches[planned.name] = switch
    return switches


def _servers_of(plan: Plan, first: int) -> dict[int, Host]:
    """New parameter servers of a job, by the numbers of its hosts from ``first`` on."""
    aggregation = aggregation_of(plan.aggregation)
    return {
        number: aggregation.server_end(plan, host)
        for number, host in enumerate(plan.hosts, start=first)
        if host.role == "server"
    }


def _check_jobs(plan: Plan | SharedPlan, network: Network | None, *, racks: bool) -> None:
    """Refuse several jobs that do not fit one network."""
    if any(job.layout != plan.jobs[0].layout for job in plan.jobs):
        raise InputError("jobs on one network have packets of the same layout.")
    if network is not None:
        for job in plan.jobs:
            network.check_priority(job.job.priority)
    elif len(plan.jobs) > 1:
        raise InputError(
            f"{len(plan.jobs)} jobs share a network in simulated time; give one, such as '100g'."
        )
    if racks and len(plan.jobs) > 1:
        raise InputError(f"racks sum for themselves in one job; there are {len(plan.jobs)}.")


def _outages_of(faults: Faults | None, switches: Mapping[str, Switch]) -> tuple[Outage, ...]:
    """The outages of switches.

    Raises:
        UnknownNameError: there is no such switch.
    """
    found = tuple(each for each in (faults.outages if faults else ()) if each.switches)
    for outage in found:
        for name in outage.switches:
            if name not in switches:
                raise UnknownNameError("switch", name, switches)
    return found


def _check_engine(engine: EngineName) -> None:
    if engine != "jit":
        raise InputError(
            f"a network in simulated time does not have the engine {engine}; choose jit."
        )


def _check_damage(plan: Plan, faults: Faults) -> None:
    """Refuse wrong bits in values that thin packets do not carry."""
    named = [name for name in ("corrupt", "truncate") if getattr(faults, name)]
    if named and plan.layout.is_header_only:
        raise InputError(
            f"thin packets carry no values that could be wrong, so {' and '.join(named)} would "
            "mean nothing; leave thin out."
        )
