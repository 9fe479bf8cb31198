"""Several jobs in simulated time, whose packets share switches, queues and links."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from innet._version import __version__
from innet.allreduce.sizes import RoundSizes, modelled_sizes, round_sizes
from innet.codecs import build_codec
from innet.core.errors import InputError
from innet.core.files import read_toml
from innet.core.settings import (
    AllReduceSettings,
    Codec,
    Density,
    Duration,
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
from innet.records.jobs import JobRun, JobsRecord
from innet.scenarios import workload as workloads
from innet.scenarios.allreduce import gradients
from innet.scenarios.background import Background, read_tables
from innet.sim.network import MOST_RATE, SECOND, Network, network_of
from innet.topology import (
    EmulatedNetwork,
    JobRound,
    Plan,
    Request,
    default_timing,
    make_plan,
    plan_jobs,
    with_bottleneck,
)
from innet.topology.plan import SharedPlan

_CODEC_ELEMENTS = 1 << 26  # of all workers of a job together; with more, sizes are modelled
_SAMPLE = 1 << 17
_COMMON = frozenset(
    {
        "network", "program", "values_per_packet", "elements_per_packet", "topology", "racks",
        "depth", "ports", "framing", "seed", "thin", "background", "encode_time", "decode_time",
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
        start: seconds before the first iteration.
        start_jitter: by how much later each worker begins each all-reduce, at random.
        window: chunks of a worker under way at once, and slots of each switch; a power of two. By
            default an equal share of the program's.
        priority: of the job's packets, 0 to 7; switches serve the highest first.
        pace: bits per second at which packets of each worker leave; by default the network's
            ``host_pace``.
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


class JobFile(Settings):
    """A file of jobs."""

    job: tuple[JobTable, ...] = Field(strict=False, min_length=1)


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


def read_jobs(path: str | Path) -> list[dict[str, Any]]:
    """The tables of a TOML file with ``[[job]]``.

    Raises:
        ConfigError: the file cannot be read or is no TOML, or something in it cannot be used.
    """
    document = read_toml(Path(path))
    validate(JobFile, document, str(path))
    found: list[dict[str, Any]] = document["job"]
    return found


def simulate_jobs(
    jobs: str | Path | Sequence[Mapping[str, Any]],
    *,
    network: str | Path | Mapping[str, Any] | Network = "100g",
    alone: bool = True,
    created: datetime | None = None,
    **settings: Any,
) -> JobsRecord:
    """Let several jobs sum gradients over one network.

    Args:
        jobs: path of a TOML file with ``[[job]]``, or what such tables hold; see ``JobTable``.
        network: as for ``innet.simulate``.
        alone: simulate each job once more without the others.
        created: when the run began, for the record; by default now.
        settings: of ``innet.simulate``, by name: of the network, and what jobs do not state.

    Raises:
        InputError: a setting that is unknown or cannot be used, by name.
        StalledError: a worker gave up, as too many packets were lost.

    Example:
        >>> record = simulate_jobs([{"workers": 2}, {"workers": 2, "start": 1e-5}], size=10_000)
        >>> [job.name for job in record.jobs]
        ['1', '2']
    """
    begun = time.perf_counter()
    tables = read_jobs(jobs) if isinstance(jobs, str | Path) else [dict(each) for each in jobs]
    resolved = network_of(network)
    plain = str(network) if isinstance(network, str | Path) else asdict(resolved)
    common = validate(SimulateSettings, {**settings, "network": plain})
    used = _COMMON | set(JobTable.model_fields)
    for name in sorted(common.model_fields_set - used):
        raise InputError(f"{name} is for one job; leave it out, or the jobs.")
    found = _jobs(tables, common)
    queues = 1 + max(job.priority for job in found)
    if queues > resolved.priorities:
        resolved = replace(resolved, priorities=queues)
    resolved = with_bottleneck(resolved, common.topology)
    shared = _plan(found, common)
    background = Background(
        {} if common.background is None else read_tables(common.background),
        resolved,
        len(shared.hosts),
        common.seed,
    )
    run = _JobsRun(found, shared, resolved, background, common.seed)
    taken = run.jobs(range(len(found)))
    apart: list[float | None] = [None] * len(found)
    if alone and len(found) > 1:
        for number in range(len(found)):
            other = _JobsRun(found, shared, resolved, background, common.seed)
            apart[number] = sum(end - begin for begin, end in other.jobs([number])[number])
    return JobsRecord(
        innet=__version__,
        created=created or datetime.now(UTC),
        machine=Machine.here(),
        settings={
            "jobs": tables,
            "alone": alone,
            **common.model_dump(mode="json", include=set(used)),
        },
        program=common.program,
        values_per_packet=common.elements_per_packet or common.values_per_packet,
        network=asdict(resolved),
        jobs=tuple(
            _recorded(job, plan, taken[number], run.resent(number), apart[number])
            for number, (job, plan) in enumerate(zip(found, shared.jobs, strict=True))
        ),
        simulated=run.simulated([times[-1][1] for times in taken]),
        background=background.results(run.simulation.flow_counts()),
        wall_seconds=time.perf_counter() - begun,
    )


def _jobs(tables: Sequence[Mapping[str, Any]], common: SimulateSettings) -> list[_Job]:
    given = validate(JobFile, {"job": list(tables)}).job
    found = []
    for number, table in enumerate(given, start=1):
        stated = {
            name: value
            for name in JobTable.model_fields
            if name in SimulateSettings.model_fields and (value := getattr(table, name)) is not None
        }
        try:
            settings = validate(
                SimulateSettings, {**common.model_dump(exclude_unset=True), **stated}
            )
            sizes = sizes_of(settings)
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
                sizes,
                jitter,
                table.priority,
                table.pace,
            )
        )
    names = [job.name for job in found]
    for name in names:
        if names.count(name) > 1:
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


def _plan(jobs: Sequence[_Job], common: SimulateSettings) -> SharedPlan:
    """The jobs on one network of thin packets."""
    values = common.elements_per_packet or common.values_per_packet
    request = Request(
        workers=max(job.settings.workers for job in jobs),
        framing=common.framing,
        topology=common.topology,
        racks=common.racks,
        depth=common.depth,
        ports=common.ports,
        thin=True,
    )
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


class _JobsRun:
    """The jobs on a new network."""

    def __init__(
        self,
        jobs: Sequence[_Job],
        shared: SharedPlan,
        network: Network,
        background: Background,
        seed: int,
    ) -> None:
        self._jobs, self._plans = jobs, shared.jobs
        paces = [job.pace for job in jobs if job.pace is not None]
        timing = default_timing(shared, network, paces)
        self.emulation = EmulatedNetwork(shared, timing=timing, seed=seed, network=network)
        self.simulation = self.emulation.timed
        for number, job in enumerate(jobs):
            if job.pace is not None:
                self.emulation.set_pace(number, job.pace)
        if background.flows:
            self.simulation.add_flows(background.flows)

    def jobs(self, chosen: Sequence[int]) -> list[list[tuple[float, float]]]:
        """Begin and end of each all-reduce, of each job; none of jobs that are not chosen."""
        rounds: list[list[Any]] = []
        delays: list[list[float]] = []
        for number, job in enumerate(self._jobs):
            count = job.settings.iterations if number in chosen else 0
            first = [job.before + job.after] + [0.0] * (len(job.sizes.rounds) - 1)
            rounds.append([list(each) for each in job.sizes.rounds] * count)
            delays.append((first * count)[1:])  # before all rounds but the first
        starts = {number: job.start + job.before for number, job in enumerate(self._jobs)}
        done = self.emulation.run_rounds(rounds, starts, delays, self._later)
        return [
            _all_reduces([each for each in done if each.job == number], len(job.sizes.rounds))
            for number, job in enumerate(self._jobs)
        ]

    def _later(self, number: int, done: int) -> list[float]:
        """By how much later each worker of a job begins a round: the first one of an all-reduce."""
        job, (iteration, one) = (
            self._jobs[number],
            divmod(done, len(self._jobs[number].sizes.rounds)),
        )
        found: list[float] = job.jitter.seconds(iteration + 1).tolist()
        return [0.0] * len(found) if one else found

    def resent(self, job: int) -> int:
        """Packets that the workers of a job have sent again."""
        return sum(end.counters.retransmissions for end in self.emulation.job_workers[job])

    def simulated(self, ends: Sequence[float]) -> Simulated:
        """What the network did."""
        simulation = self.simulation
        counts, seconds = simulation.counts(), max(ends)
        elements = sum(job.settings.size * job.settings.iterations for job in self._jobs)
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
            retransmissions=sum(map(self.resent, range(len(self._jobs)))),
            queue_bytes_max=simulation.queue_bytes_max(),
            utilization={
                name: busy / (links * seconds * SECOND)
                for name, (busy, links) in counts.busy.items()
            },
            busiest=counts.busiest(round(seconds * SECOND)),
            pauses=counts.pauses,
            paused=counts.longest_pause,
            windows_max=max(
                words / plan.layout.elements / plan.window
                for job, plan in zip(self._jobs, self._plans, strict=True)
                for words in (sum(each.size for each in one) for one in job.sizes.rounds)
            ),
            assumed=simulation.assumed,
            fabric=simulation.fabric,
        )


def _all_reduces(rounds: Sequence[JobRound], each: int) -> list[tuple[float, float]]:
    """Begin and end of the all-reduces of a job; each has this number of rounds."""
    return [
        (rounds[first].begin, rounds[first + each - 1].end) for first in range(0, len(rounds), each)
    ]


def _recorded(
    job: _Job,
    plan: Plan,
    taken: Sequence[tuple[float, float]],
    resent: int,
    alone: float | None,
) -> JobRun:
    begins, ends = zip(*taken, strict=True)
    seconds = sum(end - begin for begin, end in taken)
    return JobRun(
        name=job.name,
        workers=job.settings.workers,
        codec=build_codec(job.settings.codec).describe(),
        window=plan.window,
        elements=job.settings.size,
        sizes=job.sizes.source,
        begin=job.start,
        begins=begins,
        ends=ends,
        end=ends[-1] + job.after,
        goodput_gbps=32e-9 * job.settings.size * len(taken) / seconds,
        retransmissions=resent,
        alone_seconds=alone,
    )
