"""Several jobs in simulated time, whose packets share switches, queues and links.

Each has hosts and slots of its own all the time, or they share those of a cluster as they come and
go.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from innet._version import __version__
from innet.allreduce.sizes import RoundSizes, modelled_sizes, round_sizes
from innet.codecs import build_codec
from innet.core.errors import InputError, StalledError
from innet.core.files import read_toml
from innet.core.settings import (
    AllReduceSettings,
    Codec,
    Density,
    Duration,
    JobsSettings,
    Priority,
    Settings,
    SimulateSettings,
    Size,
    StartJitter,
    Window,
    Workers,
    validate,
)
from innet.records import Machine, Simulated
from innet.records.jobs import ClusterUse, JobRun, JobsRecord
from innet.scenarios import workload as workloads
from innet.scenarios.allreduce import gradients
from innet.scenarios.arrivals import ArrivalTable, drawn, read_csv
from innet.scenarios.background import Background, read_tables
from innet.scenarios.cluster import Cluster, Demand, Share
from innet.sim.network import MOST_RATE, OVERHEAD, SECOND, SHORTEST, Network, network_of
from innet.topology import (
    AdmittedJob,
    EmulatedNetwork,
    JobRound,
    Plan,
    Request,
    aggregation_of,
    default_timing,
    make_plan,
    plan_jobs,
    with_bottleneck,
)
from innet.topology.plan import SharedPlan
from innet.wire import PacketLayout

if TYPE_CHECKING:
    from innet.sim.simulation import Simulation

_CODEC_ELEMENTS = 1 << 26  # of all workers of a job together; with more, sizes are modelled
_SAMPLE = 1 << 17
_CLUSTER = ("hosts", "placement", "memory", "queueing")
_COMMON = frozenset(
    {
        "network", "program", "values_per_packet", "elements_per_packet", "topology", "racks",
        "depth", "ports", "framing", "seed", "thin", "background", "encode_time", "decode_time",
        *_CLUSTER,
    }
)  # fmt: skip
"""Settings of all jobs together."""


class JobTable(Settings):
    """``[[job]]``: what is not stated is that of the command line, or its default.

    Switches have as many queues per port as the priorities of all jobs need.

    Attributes:
        name: for people; by default its number, from 1.
        workers: how many; each has its own host.
        codec: of the gradients.
        size: elements of the gradient.
        density: share of them that is not zero.
        iterations: all-reduces, one after the other.
        compute: seconds that workers compute before each of them.
        start: seconds before the first iteration. A job of a cluster arrives then, and waits for
            hosts and slots.
        start_jitter: by how much later each worker begins each all-reduce, at random.
        window: chunks of a worker under way at once, and slots of each switch; a power of two. By
            default an equal share of the program's.
        priority: of the job's packets, 0 to 7; switches serve the highest first.
        pace: bits per second at which packets of each worker leave; by default the network's
            ``host_pace``.
        weight: of a kind of jobs that arrive at random: how often it is drawn.
    """

    name: str | None = None
    workers: Workers | None = None
    codec: Codec | None = None
    size: Size | None = None
    density: Density | None = None
    iterations: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    compute: Duration | None = None
    start: Duration = 0.0
    start_jitter: StartJitter | None = None
    window: Window = None
    priority: Priority = 0
    pace: Annotated[int | float | None, Field(ge=1e3, le=MOST_RATE)] = None
    weight: Annotated[int | float, Field(gt=0)] = 1.0


class JobFile(Settings):
    """A file of jobs, or of kinds of jobs that arrive at random."""

    job: tuple[JobTable, ...] = Field(strict=False, min_length=1)
    arrivals: ArrivalTable | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A job with all settings."""

    name: str
    settings: SimulateSettings
    start: float
    sizes: RoundSizes
    jitter: workloads.StartJitter
    priority: int
    pace: float | None

    @property
    def before(self) -> float:
        """Seconds from an iteration's begin to its all-reduce."""
        return (self.settings.compute or 0.0) + self.settings.encode_time * self.settings.size

    @property
    def after(self) -> float:
        """Seconds from an all-reduce's end to the iteration's."""
        return self.settings.decode_time * self.settings.size

    def delay(self, done: int) -> float:
        """Seconds before a round when ``done`` were before it: at an iteration's begin."""
        return 0.0 if done % len(self.sizes.rounds) else self.before + self.after

    def later(self, done: int) -> list[float]:
        """By how much later each worker begins that round: the first one of an all-reduce."""
        iteration, one = divmod(done, len(self.sizes.rounds))
        found: list[float] = self.jitter.seconds(iteration + 1).tolist()
        return [0.0] * len(found) if one else found


def read_jobs(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file with ``[[job]]``, or of a CSV file with a line for each job.

    Returns:
        "job", a list of tables, and "arrivals" if the file has that table.

    Raises:
        ConfigError: the file cannot be read or is none of these, or something in it cannot be used.
    """
    path = Path(path)
    document = {"job": read_csv(path)} if path.suffix == ".csv" else read_toml(path)
    validate(JobFile, document, str(path))
    return document


def simulate_jobs(
    jobs: str | Path | Sequence[Mapping[str, Any]],
    *,
    network: str | Path | Mapping[str, Any] | Network = "100g",
    alone: bool = True,
    arrivals: Mapping[str, Any] | None = None,
    created: datetime | None = None,
    **settings: Any,
) -> JobsRecord:
    """Let several jobs sum gradients over one network.

    Args:
        jobs: path of a TOML file with ``[[job]]`` or of a CSV file, or what such tables hold; see
            ``JobTable``.
        network: as for ``innet.simulate``.
        alone: simulate each job once more without the others.
        arrivals: with ``hosts``: let jobs arrive at random, of the kinds in ``jobs``; see
            ``ArrivalTable``. A file may have it, too.
        created: when the run began, for the record; by default now.
        settings: of ``innet.simulate``, by name: of the network, and what jobs do not state. With
            ``hosts`` jobs share the hosts of a cluster; see ``JobsSettings``.

    Raises:
        InputError: a setting that is unknown or cannot be used, by name.
        StalledError: a worker gave up, as too many packets were lost.

    Example:
        >>> record = simulate_jobs([{"workers": 2}, {"workers": 2, "start": 1e-5}], size=10_000)
        >>> [job.name for job in record.jobs]
        ['1', '2']
    """
    begun = time.perf_counter()
    # Step 1: the jobs, and the network.
    if isinstance(jobs, str | Path):
        file = read_jobs(jobs)
        tables, arrivals = file["job"], file.get("arrivals", arrivals)
    else:
        tables = [dict(each) for each in jobs]
    resolved = network_of(network)
    plain = str(network) if isinstance(network, str | Path) else asdict(resolved)
    common = validate(JobsSettings, {**settings, "network": plain})
    used = _COMMON | set(JobTable.model_fields)
    for name in sorted(common.model_fields_set - used):
        raise InputError(f"{name} is for one job; leave it out, or the jobs.")
    if common.hosts is None:
        _check_no_cluster(common, arrivals)
    found = _jobs(_arriving(tables, arrivals, common.seed), common)
    queues = 1 + max(job.priority for job in found)
    if queues > resolved.priorities:
        resolved = replace(resolved, priorities=queues)
    resolved = with_bottleneck(resolved, common.topology)
    # Step 2: time passes.
    run: _JobsRun | _ClusterRun
    if common.hosts is None:
        shared = _plan(found, common)
        background = _background(common, resolved, len(shared.hosts))
        run = _JobsRun(found, common, shared, resolved, background)
        runs = run.all(alone=alone)
    else:
        background = _background(common, resolved, common.hosts)
        run = _ClusterRun(found, common, resolved, background)
        runs = run.all(alone=alone)
    return JobsRecord(
        innet=__version__,
        created=created or datetime.now(UTC),
        machine=Machine.here(),
        settings={
            "jobs": tables,
            "alone": alone,
            **({} if arrivals is None else {"arrivals": dict(arrivals)}),
            **common.model_dump(mode="json", include=set(used), exclude=_unused(common)),
        },
        program=common.program,
        values_per_packet=common.elements_per_packet or common.values_per_packet,
        network=asdict(resolved),
        jobs=runs,
        simulated=_simulated(run.simulation, found, runs, run.layout),
        background=background.results(run.simulation.flow_counts()),
        wall_seconds=time.perf_counter() - begun,
        cluster=run.use() if isinstance(run, _ClusterRun) else None,
    )


def _unused(common: JobsSettings) -> set[str]:
    """Settings that a record does not need: those of a cluster, where there is none."""
    return set(_CLUSTER) if common.hosts is None else set()


def _check_no_cluster(common: JobsSettings, arrivals: Mapping[str, Any] | None) -> None:
    """Refuse what only jobs that share hosts have."""
    stated = sorted({*_CLUSTER} & common.model_fields_set - {"hosts"})
    if arrivals is not None:
        stated.append("arrivals")
    if stated:
        raise InputError(
            f"{' and '.join(stated)}: for jobs that share the hosts of a cluster; give hosts, such "
            "as hosts = 8."
        )


def _arriving(
    tables: Sequence[Mapping[str, Any]], arrivals: Mapping[str, Any] | None, seed: int
) -> Sequence[Mapping[str, Any]]:
    """The jobs themselves; drawn, if they arrive at random."""
    checked = validate(JobFile, {"job": list(tables), "arrivals": arrivals})
    for number, kind in enumerate(tables, start=1):
        if checked.arrivals is None and "weight" in kind:
            raise InputError(f"job {number}: weight is for kinds of jobs; add [arrivals].")
        if checked.arrivals is not None and "start" in kind:
            raise InputError(f"job {number}: start is drawn, as jobs arrive at random; omit it.")
    return tables if checked.arrivals is None else drawn(tables, checked.arrivals, seed)


def _background(common: JobsSettings, network: Network, hosts: int) -> Background:
    tables = {} if common.background is None else read_tables(common.background)
    return Background(tables, network, hosts, common.seed)


def _jobs(tables: Sequence[Mapping[str, Any]], common: JobsSettings) -> list[_Job]:
    given = validate(JobFile, {"job": list(tables)}).job
    usual = common.model_dump(exclude_unset=True, exclude=set(_CLUSTER))
    known: dict[str, RoundSizes] = {}  # jobs of one kind send the same
    found = []
    for number, table in enumerate(given, start=1):
        stated = {
            name: value
            for name in JobTable.model_fields
            if name in SimulateSettings.model_fields and (value := getattr(table, name)) is not None
        }
        try:
            settings = validate(SimulateSettings, {**usual, **stated})
            key = settings.model_dump_json(include={"codec", "workers", "size", "density", "seed"})
            if key not in known:
                known[key] = sizes_of(settings)
            jitter = workloads.StartJitter(
                settings.start_jitter, settings.workers, settings.seed, number
            )
        except InputError as error:
            raise InputError(f"job {number}: {error}") from None
        found.append(
            _Job(
                table.name or str(number),
                settings,
                table.start,
                known[key],
                jitter,
                table.priority,
                table.pace,
            )
        )
    (name, times), *_ = Counter(job.name for job in found).most_common(1)
    if times > 1:
        raise InputError(f"two jobs are called {name!r}; give them different names.")
    return found


def sizes_of(settings: SimulateSettings) -> RoundSizes:
    """What the workers of a job send in an all-reduce.

    Raises:
        InputError: there is nothing to sum, or no such codec.
    """
    if not settings.size:
        raise InputError("size = 0; a job needs at least 1 element to sum.")

    def made(size: int) -> list[Any]:
        return gradients(
            AllReduceSettings(
                workers=settings.workers, size=size, density=settings.density, seed=settings.seed
            )
        )

    build_codec(settings.codec, layers=((settings.size,),))
    if settings.workers * settings.size <= _CODEC_ELEMENTS:
        return round_sizes(settings.codec, made(settings.size), seed=settings.seed)
    sample = max(1 << 12, min(_CODEC_ELEMENTS // settings.workers, _SAMPLE))
    return modelled_sizes(settings.codec, made, settings.size, sample=sample, seed=settings.seed)


def _plan(jobs: Sequence[_Job], common: JobsSettings) -> SharedPlan:
    """The jobs on one network of thin packets."""
    values = common.elements_per_packet or common.values_per_packet
    request = _request(common, max(job.settings.workers for job in jobs))
    usual = plan_jobs(common.program, values, request, len(jobs)).jobs[0].window
    planned: list[Plan] = []
    for number, job in enumerate(jobs, start=1):
        mine = replace(
            request,
            workers=job.settings.workers,
            window=job.settings.window or usual,
            job=number,
            priority=job.priority,
            existing_jobs=tuple(planned),
        )
        try:
            planned.append(make_plan(common.program, values, mine))
        except InputError as error:
            raise InputError(f"job {job.name}: {error}") from None
    return SharedPlan(tuple(planned))


def _request(common: JobsSettings, workers: int) -> Request:
    """The network, with thin packets."""
    return Request(
        workers=workers,
        framing=common.framing,
        topology=common.topology,
        racks=common.racks,
        depth=common.depth,
        ports=common.ports,
        thin=True,
    )


class _JobsRun:
    """The jobs on a new network, each with hosts and slots of its own."""

    def __init__(
        self,
        jobs: Sequence[_Job],
        common: JobsSettings,
        shared: SharedPlan,
        network: Network,
        background: Background,
    ) -> None:
        self._jobs, self._given = jobs, (jobs, common, shared, network, background)
        self._plans, self.layout = shared.jobs, shared.jobs[0].layout
        paces = [job.pace for job in jobs if job.pace is not None]
        timing = default_timing(shared, network, paces)
        self.emulation = EmulatedNetwork(shared, timing=timing, seed=common.seed, network=network)
        self.simulation = self.emulation.timed
        self.simulation.fast_forward = common.fast_forward
        for number, job in enumerate(jobs):
            if job.pace is not None:
                self.emulation.set_pace(number, job.pace)
        if background.flows:
            self.simulation.add_flows(background.flows)

    def all(self, *, alone: bool) -> tuple[JobRun, ...]:
        """All jobs; with ``alone`` each once more without the others."""
        taken = self.jobs(range(len(self._jobs)))
        apart: list[float | None] = [None] * len(taken)
        if alone and len(taken) > 1:
            for number in range(len(taken)):
                spans = _JobsRun(*self._given).jobs([number])[number]
                apart[number] = sum(end - begin for begin, end in spans)
        return tuple(
            _recorded(
                job, plan.window, taken[number], resent=self.resent(number), alone=apart[number]
            )
            for number, (job, plan) in enumerate(zip(self._jobs, self._plans, strict=True))
        )

    def jobs(self, chosen: Sequence[int]) -> list[list[tuple[float, float]]]:
        """Begin and end of each all-reduce, of each job; none of jobs that are not chosen."""
        rounds: list[list[Any]] = []
        delays: list[list[float]] = []
        for number, job in enumerate(self._jobs):
            count = job.settings.iterations if number in chosen else 0
            rounds.append([list(each) for each in job.sizes.rounds] * count)
            delays.append([job.delay(each) for each in range(1, len(rounds[-1]))])

        def later(number: int, done: int) -> list[float]:
            return self._jobs[number].later(done)

        starts = {number: job.start + job.before for number, job in enumerate(self._jobs)}
        done = self.emulation.run_rounds(rounds, starts, delays, later)
        return [
            _all_reduces([each for each in done if each.job == number], len(job.sizes.rounds))
            for number, job in enumerate(self._jobs)
        ]

    def resent(self, job: int) -> int:
        """Packets that the workers of a job have sent again."""
        return sum(end.counters.retransmissions for end in self.emulation.job_workers[job])


@dataclass(slots=True)
class _Running:
    """A job of a cluster that has begun.

    Attributes:
        number: of the job, from 0.
        admitted: on the switches.
        begin: when, seconds.
        rounds: begin and end of each round that is done.
        at: when the current one began.
    """

    number: int
    admitted: AdmittedJob
    begin: float
    rounds: list[JobRound]
    at: float = 0.0


class _ClusterRun:
    """Jobs that come and go on a new network, whose hosts and slots they share."""

    def __init__(
        self,
        jobs: Sequence[_Job],
        common: JobsSettings,
        network: Network,
        background: Background,
    ) -> None:
        assert common.hosts is not None
        self._jobs, self._common, self._network = jobs, common, network
        self._background = background
        # Step 1: the switches and links, and what jobs ask for.
        values = common.elements_per_packet or common.values_per_packet
        self._plan = make_plan(common.program, values, _request(common, common.hosts))
        self.layout = self._plan.layout
        self._aggregation = aggregation_of(self._plan.aggregation)
        self._aggregation.placed(self._plan, (0,), self._plan.job)  # refused before all else
        self._demands = [Demand(job.settings.workers, self._slots_of(job)) for job in jobs]
        for job, demand in zip(jobs, self._demands, strict=True):
            _check_demand(job, demand, common.hosts, self._plan.window)
        # Step 2: the network, and who shares it.
        racks = [port.node for port in self._plan.attachments().values()]
        self._racks = racks
        self._cluster = Cluster(
            racks, self._plan.window, common.placement, common.queueing, common.seed
        )
        paces = [job.pace for job in jobs if job.pace is not None]
        self.emulation = EmulatedNetwork(
            self._plan.without_job(),
            timing=default_timing(self._plan, network, paces),
            seed=common.seed,
            network=network,
        )
        self.simulation = self.emulation.timed
        self.simulation.fast_forward = common.fast_forward
        if background.flows:
            self.simulation.add_flows(background.flows)
        # Step 3: what will be known of it.
        self._rounds: dict[int, _Running] = {}  # by the number of what ``wait`` waits for
        self._ends: dict[int, _Running] = {}  # likewise: jobs that decode their last sum
        self._done: dict[int, tuple[_Running, int]] = {}  # with packets sent again
        self._usage: dict[float, tuple[int, int, int]] = {0.0: (0, 0, 0)}

    def all(self, *, alone: bool) -> tuple[JobRun, ...]:
        """All jobs; with ``alone`` each once more without the others, on the same hosts."""
        self._run(dict.fromkeys(range(len(self._jobs))))
        known: dict[tuple[object, ...], float] = {}  # equal jobs take the same
        found = []
        for number, job in enumerate(self._jobs):
            running, resent = self._done[number]
            slots = self._demands[number].slots
            hosts = tuple(sorted(running.admitted.ends))
            share = Share(hosts, running.admitted.plan.job.slot_base)
            apart = None
            if alone and len(self._jobs) > 1:
                differs = job.settings.start_jitter != "none" or self._background.flows
                key = (
                    job.settings.model_dump_json(), job.pace, job.priority, slots,
                    tuple(self._racks[host] for host in hosts), number if differs else None,
                )  # fmt: skip
                if key not in known:
                    other = _ClusterRun(self._jobs, self._common, self._network, self._background)
                    other._run({number: share})
                    known[key] = sum(end - begin for begin, end in other._spans(number))
                apart = known[key]
            taken = self._spans(number)
            found.append(
                _recorded(
                    job, slots, taken, resent=resent, alone=apart, begin=running.begin, hosts=hosts
                )
            )
        return tuple(found)

    def _spans(self, number: int) -> list[tuple[float, float]]:
        """Begin and end of a job's all-reduces."""
        return _all_reduces(self._done[number][0].rounds, len(self._jobs[number].sizes.rounds))

    def _slots_of(self, job: _Job) -> int:
        """The slots that a job asks for, a power of two."""
        common, network, total = self._common, self._network, self._plan.window
        assert common.hosts is not None
        if job.settings.window is not None:
            return job.settings.window
        wanted = total
        if common.memory == "shares":
            fewest = min(each.settings.workers for each in self._jobs)
            wanted = total // max(1, min(len(self._jobs), common.hosts // fewest))
        elif common.memory == "bandwidth":
            # What fills the links from a host to the root and back, while the first packet of it
            # is under way.
            rate = job.pace or network.host_pace or network.rate
            frame = 8 * (max(self.layout.wire_size, SHORTEST) + OVERHEAD)
            links = 2 * max(map(self._plan.distances().__getitem__, self._hosts()))
            trip = links * (network.delay + frame / network.rate)
            trip += (links - 1) * network.switch_latency + network.host_send + network.host_receive
            wanted = min(total, 1 << (math.ceil(trip * rate / frame) - 1).bit_length())
        return 1 << max(1, wanted).bit_length() - 1

    def _hosts(self) -> list[str]:
        return [host.name for host in self._plan.hosts]

    def _run(self, chosen: Mapping[int, Share | None]) -> None:
        """Let these jobs come and go; those with a share begin as they arrive, with that."""
        due = deque(sorted(chosen, key=lambda number: (self._jobs[number].start, number)))
        timer: int | None = None
        while due or self._rounds or self._ends or self._cluster.waiting:
            # Step 1: jobs that arrive now.
            now = self.simulation.now
            while due and self._jobs[due[0]].start <= now + 1 / SECOND:
                number = due.popleft()
                share = chosen[number]
                if share is None:
                    self._cluster.arrive(number, self._demands[number])
                else:
                    self._cluster.take(number, share, self._demands[number].slots)
                    self._begin(number, share, now)
            # Step 2: jobs that begin now.
            for number, share in self._cluster.begin():
                self._begin(number, share, now)
            self._note()
            if due and timer is None:
                timer = self.simulation.launch_timer(self._jobs[due[0]].start)
            # Step 3: time passes until something is over.
            group = self._wait()
            if group == timer:
                timer = None
            elif group in self._ends:
                self._end(self._ends.pop(group))
            else:
                self._round_done(self._rounds.pop(group))
        self._note()

    def _note(self) -> None:
        """Note what is in use from now on."""
        cluster = self._cluster
        now = cluster.hosts_busy, cluster.slots_used, cluster.waiting
        if self._usage[next(reversed(self._usage))] != now:
            self._usage[self.simulation.now] = now

    def _wait(self) -> int:
        try:
            return self.simulation.wait()
        except StalledError as error:
            names = sorted(self._jobs[each.number].name for each in self._rounds.values())
            raise StalledError(f"jobs {names}: {error}") from error

    def _begin(self, number: int, share: Share, now: float) -> None:
        """Let a job begin with its share."""
        job = self._jobs[number]
        planned = replace(
            self._plan.job,
            number=number + 1,
            slot_base=share.slot_base,
            slots=self._demands[number].slots,
            group=share.slot_base + 1,  # of no other job that runs
            priority=job.priority,
        )
        admitted = self.emulation.admit(self._aggregation.placed(self._plan, share.hosts, planned))
        self.simulation.set_pace(share.hosts, job.pace or self._network.host_pace or 0.0)
        running = _Running(number, admitted, now, [])
        self._launch(running, now + job.before)

    def _launch(self, running: _Running, at: float) -> None:
        """Let a job begin its next round."""
        job, done = self._jobs[running.number], len(running.rounds)
        running.at = at
        segments = list(job.sizes.rounds[done % len(job.sizes.rounds)])
        group = self.emulation.launch(running.admitted.ends, segments, at, job.later(done))
        self._rounds[group] = running

    def _round_done(self, running: _Running) -> None:
        """Let a job begin its next round, or end."""
        job = self._jobs[running.number]
        end = max(map(self.simulation.finished, running.admitted.ends))
        running.rounds.append(JobRound(running.number, running.at, end))
        done = len(running.rounds)
        if done < job.settings.iterations * len(job.sizes.rounds):
            self._launch(running, end + job.delay(done))
        elif end + job.after > self.simulation.now:
            self._ends[self.simulation.launch_timer(end + job.after)] = running
        else:
            self._end(running)

    def _end(self, running: _Running) -> None:
        """Let others have what a job had."""
        ends = running.admitted.ends.values()
        resent = sum(end.counters.retransmissions for end in ends)
        self._done[running.number] = running, resent
        self.emulation.dismiss(running.admitted)
        self._cluster.end(running.number)

    def use(self) -> ClusterUse:
        """The cluster over time."""
        busy, slots, waiting = zip(*self._usage.values(), strict=True)
        return ClusterUse(
            hosts=len(self._racks),
            slots=self._plan.window,
            placement=self._common.placement,
            memory=self._common.memory,
            queueing=self._common.queueing,
            seconds=tuple(self._usage),
            hosts_busy=busy,
            slots_used=slots,
            waiting=waiting,
        )


def _check_demand(job: _Job, demand: Demand, hosts: int, slots: int) -> None:
    """Refuse a job that could never begin."""
    if demand.workers > hosts:
        raise InputError(
            f"job {job.name}: {demand.workers} workers, but the cluster has {hosts} hosts; give "
            f"hosts = {demand.workers} or more."
        )
    if demand.slots > slots:
        raise InputError(
            f"job {job.name}: a window of {demand.slots}, but the program has {slots} slots; "
            "choose a smaller window."
        )


def _all_reduces(rounds: Sequence[JobRound], each: int) -> list[tuple[float, float]]:
    """Begin and end of the all-reduces of a job; each has this number of rounds."""
    return [
        (rounds[first].begin, rounds[first + each - 1].end) for first in range(0, len(rounds), each)
    ]


def _recorded(
    job: _Job,
    window: int,
    taken: Sequence[tuple[float, float]],
    *,
    resent: int,
    alone: float | None,
    begin: float | None = None,
    hosts: tuple[int, ...] = (),
) -> JobRun:
    """What a job took; of a cluster's with its begin and its hosts."""
    begins, ends = zip(*taken, strict=True)
    seconds = sum(end - begin for begin, end in taken)
    return JobRun(
        name=job.name,
        workers=job.settings.workers,
        codec=build_codec(job.settings.codec).describe(),
        window=window,
        elements=job.settings.size,
        sizes=job.sizes.source,
        begin=job.start if begin is None else begin,
        begins=begins,
        ends=ends,
        end=ends[-1] + job.after,
        goodput_gbps=32e-9 * job.settings.size * len(taken) / seconds,
        retransmissions=resent,
        alone_seconds=alone,
        arrival=None if begin is None else min(job.start, begin),  # time has whole picoseconds
        hosts=hosts,
    )


def _simulated(
    simulation: Simulation, jobs: Sequence[_Job], runs: Sequence[JobRun], layout: PacketLayout
) -> Simulated:
    """What the network did, up to the end of the last all-reduce."""
    counts, seconds = simulation.counts(), max(run.ends[-1] for run in runs)
    elements = sum(job.settings.size * job.settings.iterations for job in jobs)
    rate = elements / seconds
    return Simulated(
        seconds=seconds,
        goodput_gbps=32 * rate / 1e9,
        elements_per_second=rate,
        packets=counts.packets,
        bytes=counts.bytes,
        lost=counts.lost,
        dropped=counts.dropped,
        marked=counts.marked,
        retransmissions=sum(run.retransmissions for run in runs),
        queue_bytes_max=simulation.queue_bytes_max(),
        utilization={
            name: busy / (links * seconds * SECOND) for name, (busy, links) in counts.busy.items()
        },
        busiest=counts.busiest(round(seconds * SECOND)),
        pauses=counts.pauses,
        paused=counts.longest_pause,
        windows_max=max(
            words / layout.elements / run.window
            for job, run in zip(jobs, runs, strict=True)
            for words in (sum(each.size for each in one) for one in job.sizes.rounds)
        ),
        assumed=simulation.assumed,
        fabric=simulation.fabric,
    )
