"""Aggregation protocols: how networks run each P4 program, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet import programs
from innet.codecs import Codec
from innet.core.errors import CompositionError, ConfigError, InputError, StateError
from innet.core.packets import MAX_PORT
from innet.core.reduce_op import Segment, SizedSegment
from innet.core.registry import Registry
from innet.core.settings import too_many_workers
from innet.network import Faults, Host
from innet.programs import CompiledProgram
from innet.protocol import Counters, Diagnosis, SlotClient, SlotReader, SlotRegisters, Timing
from innet.protocol.admission import Job, WorkerPort
from innet.protocol.message import serial_distance
from innet.protocol.slot_client import Window
from innet.topology.plan import EntryFinder, Plan, PlannedHost, Rack, SharedPlan, UsedResources
from innet.wire import Endpoint, Framing, HeaderFlag

RegisterReader: TypeAlias = Callable[[str, str, int], int]
"""(name of a switch, name of a register, index) -> value of the cell."""


CellsReader: TypeAlias = Callable[[str, str], Sequence[int]]
"""(name of a switch, name of a register) -> the values of all its cells."""


class Probe(NamedTuple):
    """Access to the state of a running network.

    Attributes:
        register: reads the switches' registers.
        servers: parameter servers by name, if they run in this process.
    """

    register: RegisterReader
    servers: Mapping[str, Host] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Parameters of a network.

    Attributes:
        workers: number of workers: 1 to the bits of the bitmap, with program tree to 32,768.
        window: chunks of a worker under way at once, a power of two; by default all slots.
        framing: "udp" or "raw".
        job, epoch: as in the header.
        absent: indices of workers who take no part in this epoch.
        allow_partial: workers may request results that lack late workers; program tree has to know.
        topology: name of a topology, with or without options, such as "leaf-spine:spines=3"; by
            default one switch, or a tree for programs with several levels.
        racks: switches with workers; None lets the topology choose.
        depth: levels of switches of a tree, likewise.
        ports: ports of each switch of a fat-tree, likewise.
        thin: packets carry next to no values, and stand for ones that do, in time and bytes; for
            networks in simulated time.
        priority: of the job's packets, 0 to 7; only with framing udp, whose headers say it.
        existing_jobs: jobs that are already on the network, with the same parameters. This job gets
            other hosts, ports and slots.
    """

    workers: int
    window: int | None = None
    framing: Framing = "udp"
    job: int = 1
    epoch: int = 0
    absent: frozenset[int] = frozenset()
    allow_partial: bool = False
    racks: int | None = None
    depth: int | None = None
    topology: str | None = None
    ports: int | None = None
    thin: bool = False
    priority: int = 0
    existing_jobs: tuple[Plan, ...] = ()


class WorkerEnd(Host, Protocol):
    """A worker's side of a protocol; see ``innet.protocol.SlotClient``."""

    counters: Counters
    window: Window
    label: int
    all_or_none: bool
    late: tuple[int, ...]

    @property
    def result_flags(self) -> HeaderFlag: ...

    @property
    def has_results(self) -> bool: ...

    @property
    def missing(self) -> tuple[int, ...]: ...

    def start(self, segments: Sequence[Segment] | Sequence[SizedSegment], now: float) -> None: ...

    def results(self) -> list[NDArray[np.int32]]: ...

    def diagnose(self, read: SlotReader, now: float | None = None) -> Diagnosis | None: ...


class Aggregation(ABC):
    """How a network runs one P4 program. It is stateless, as plans hold the state.

    Attributes:
        has_epochs: a job can continue after a failure, or with other workers; see ``next_epoch``.
        has_partials: switches give partial results on request.
        saturates: sums beyond int32 saturate instead of wrapping modulo 2**32.
        shares: switches serve several jobs of one network at the same time.
        partitioned: each of these has its own slots; otherwise any may use all of the memory.
        sequences: by the program's name, the register with the sequence number of the chunk in each
            slot and version, in its low 32 bits. For programs that keep nothing else of a chunk's
            number or its time, so that ``innet.sim.fast_forward`` may skip what repeats itself.
    """

    has_epochs: ClassVar[bool] = False
    has_partials: ClassVar[bool] = False
    saturates: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    partitioned: ClassVar[bool] = True
    sequences: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @abstractmethod
    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """The plan of a network for ``request``, with ``program`` on all switches.

        Raises:
            InputError: a number that exceeds the program's resources.
        """

    def worker_end(self, plan: Plan, host: PlannedHost, timing: Timing | None = None) -> WorkerEnd:
        """The worker's side of the protocol; by default a ``SlotClient``."""
        return SlotClient(
            plan.layout,
            plan.membership(host),
            source=host.endpoint,
            switch=host.peer,
            timing=timing,
        )

    def server_end(self, plan: Plan, host: PlannedHost) -> Host:
        """The parameter server. In Mininet, ``innet.processes.parameter_server`` supports only
        ``innet.protocol.parameter_server.ParameterServer``.
        """
        raise InputError(f"{plan.aggregation} has no parameter server, so {host.name} is none.")

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """The job's next epoch on the same switches, without the workers who are ``absent``.

        Args:
            plan: the plan of the previous epoch.
            absent: indices of the workers who do not take part.
            entries: finds the handles of entries in a switch's table.

        Returns:
            The new plan, and the commands for each switch.

        Raises:
            StateError: the protocol has no epochs.
        """
        del absent, entries
        raise StateError(
            f"a job on {plan.aggregation} cannot go on under another epoch; begin a new one."
        )

    def placed(self, network: Plan, hosts: Sequence[int], job: Job) -> Plan:
        """A job on some hosts of a network whose ports the switches know already.

        Args:
            network: a plan of one job with a worker at each host.
            hosts: indices of its workers, ascending; worker i of the job is at ``hosts[i]``.
            job: number, epoch, priority and slots of the job; its members do not count.

        Returns:
            The plan, whose commands number the job's multicast nodes from 0 on each switch.

        Raises:
            InputError: the program does not take jobs that come and go.
        """
        del hosts, job
        raise InputError(
            f"jobs do not come and go on {network.aggregation}; choose program slots or tree."
        )

    def racks(self, plan: Plan) -> tuple[Rack, ...]:
        """A job for each rack of a plan: that of the workers at one switch, which sums for them
        alone. Its commands go to that switch after those of the plan.

        Raises:
            InputError: the protocol has one level of switches, or no slots are left.
        """
        raise InputError(
            f"{plan.aggregation} has one level of switches, so there are no racks that sum for "
            "themselves; choose program tree."
        )

    def late_workers(self, plan: Plan, read: CellsReader) -> frozenset[int]:
        """Workers that results of this epoch lack, where results do not name them themselves.

        The coordinator asks when a worker requests the next epoch.
        """
        del plan, read
        return frozenset()

    @abstractmethod
    def slot_reader(self, plan: Plan, probe: Probe) -> SlotReader:
        """Reads which workers a chunk has, for ``WorkerEnd.diagnose``."""


AGGREGATIONS: Registry[type[Aggregation]] = Registry("aggregation", "innet.aggregations")
"""Aggregations by program: how its tables are filled. Entry points: "innet.aggregations"."""
AGGREGATIONS.register("slots", "innet.topology.slots:SlotsAggregation")
AGGREGATIONS.register("collectives", "innet.topology.slots:SlotsAggregation")
AGGREGATIONS.register("harvest", "innet.topology.slots:SlotsAggregation")
AGGREGATIONS.register("fpisa", "innet.topology.slots:SlotsAggregation")
AGGREGATIONS.register("tree", "innet.topology.tree:TreeAggregation")
AGGREGATIONS.register("collectives-tree", "innet.topology.tree:TreeAggregation")
AGGREGATIONS.register("adaptive-tree", "innet.topology.tree:TreeAggregation")
AGGREGATIONS.register("hashed", "innet.topology.hashed:HashedAggregation")


def aggregation_of(program: str) -> Aggregation:
    """The aggregation protocol of ``program``.

    Raises:
        UnknownNameError: no such program, or it does not aggregate.
        ConfigError: another distribution's program without a valid aggregation class.
    """
    if program not in AGGREGATIONS:
        own = {each.program for each in programs.catalogue().values()}
        if program in programs.FOLDERS or program in own:
            place = f"by an entry point {program!r} in the group {AGGREGATIONS.group!r}"
            if program in own:
                place = "in AGGREGATIONS of innet/topology/aggregation.py"
            raise ConfigError(
                f"nothing says how a network runs program {program!r}; name an Aggregation for it, "
                f"such as innet.topology.slots:SlotsAggregation, {place}."
            )
    found: object = AGGREGATIONS.get(program)
    if not (isinstance(found, type) and issubclass(found, Aggregation)):
        raise ConfigError(
            f"aggregation {program!r} is registered as {found!r}; it has to be a class derived "
            "from innet.topology.Aggregation."
        )
    if lacking := sorted(found.__abstractmethods__):
        raise ConfigError(
            f"aggregation {program!r}: its class {found.__qualname__} lacks {lacking}."
        )
    return found()


def make_plan(program: str, values_per_packet: int, request: Request) -> Plan:
    """The plan for a program by its name.

    Args:
        program: its name.
        values_per_packet: values in a packet; of a thin plan, in the packet that it stands for.
        request: parameters of the network.

    Raises:
        UnknownNameError: no such program, or it does not aggregate.
        ConfigError, ProgramError: another distribution's program is incomplete.
        InputError: not compiled for this number of values, or the request exceeds its resources.
    """
    compiled = _compiled(program, values_per_packet, request)
    plan = aggregation_of(program).plan(compiled, request)
    if not request.thin:
        return plan
    return replace(plan, layout=replace(plan.layout, stands_for=values_per_packet))


def _compiled(program: str, values_per_packet: int, request: Request) -> CompiledProgram:
    find = programs.find_header_only if request.thin else programs.find
    return find(program, values_per_packet)


def plan_jobs(program: str, values_per_packet: int, request: Request, jobs: int = 1) -> SharedPlan:
    """A network with several equal jobs, numbered from the job in ``request``.

    Without a window each job gets an equal share of the slots; where jobs share them all, the
    program's default.

    Raises:
        UnknownNameError: no such program, or it does not aggregate.
        InputError: not compiled for these values, the request exceeds its resources, or the
            program supports only one job.
    """
    if jobs > 1 and not aggregation_of(program).shares:
        raise InputError(
            f"{jobs} jobs: {program} serves one job of a network; choose slots, tree or, in "
            "simulated time, hashed for several."
        )
    if jobs > 1 and request.window is None and aggregation_of(program).partitioned:
        slots = _compiled(program, values_per_packet, request).dimensions().slots
        request = replace(request, window=1 << (slots // jobs).bit_length() - 1)
    planned: list[Plan] = []
    for number in range(jobs):
        each = replace(request, job=request.job + number, existing_jobs=tuple(planned))
        planned.append(make_plan(program, values_per_packet, each))
    return SharedPlan(tuple(planned))


def next_epoch_plan(plan: Plan, absent: Iterable[int]) -> Plan:
    """The job's next epoch for its hosts; the coordinator uses ``Aggregation.next_epoch``.

    Args:
        plan: the plan of the previous epoch.
        absent: indices of the workers who do not take part.

    Raises:
        InputError: no worker would be left.
        StateError: the protocol has no epochs.
    """
    after, _ = aggregation_of(plan.aggregation).next_epoch(
        plan, frozenset(absent), lambda _switch, _table: ()
    )
    return after


def check_codec(plan: Plan, codec: Codec) -> None:
    """Refuse a codec whose sums would be wrong on the network of ``plan``.

    Raises:
        CompositionError: it needs sums modulo 2**32, and the switches' sums saturate; or it sends
            floats, and the program adds integers only.
        InputError: its integers leave no room for this number of workers.
    """
    codec.value_bits(len(plan.job.members))
    if codec.sends_floats and not plan.layout.adds_floats:
        raise CompositionError(
            f"the codec {codec.describe()} sends floats to be added, and {plan.aggregation} adds "
            "integers only; choose program fpisa, or another codec, such as dense or bf16."
        )
    if codec.wraps and aggregation_of(plan.aggregation).saturates:
        raise CompositionError(
            f"the codec {codec.describe()} needs sums modulo 2**32, but those of "
            f"{plan.aggregation} stay at the ends of int32; choose another program, such as slots, "
            "or the carrier dense."
        )


def check_conditions(faults: Faults | None, timing: Timing | None) -> None:
    """Refuse faults and timing of the wrong type.

    Raises:
        InputError: names the right type.
    """
    if not isinstance(faults, Faults | None):
        raise InputError(
            f"faults is {faults!r}; give innet.network.Faults, such as Faults(loss=0.1)."
        )
    if not isinstance(timing, Timing | None):
        raise InputError(
            f"timing is {timing!r}; give innet.protocol.Timing, such as Timing(timeout=0.1)."
        )


def checked(
    program: CompiledProgram, request: Request, most: int | None = None
) -> tuple[programs.Dimensions, int]:
    """The program's dimensions and the window, checked against ``request``.

    Args:
        program: the program.
        request: parameters of the network.
        most: the most workers; by default as many as its bitmap has bits.

    Raises:
        InputError: the request does not fit.
    """
    size = program.dimensions()
    most = size.workers if most is None else most
    if request.workers > most:
        raise InputError(too_many_workers(request.workers, program.name, most))
    if request.workers < 1:
        raise InputError(f"{request.workers} workers; {program.name} takes 1 to {most}.")
    window = size.slots if request.window is None else request.window
    if not 1 <= window <= size.slots:
        raise InputError(f"a window of {window}; {program.name} has {size.slots} slots.")
    if request.window is not None and window & (window - 1):
        raise InputError(f"a window of {window} chunks; it must be a power of two.")
    return size, window


def job_for(
    request: Request,
    slots: int,
    window: int,
    members: Sequence[WorkerPort] | None = None,
    *,
    partitioned: bool = True,
) -> Job:
    """The job, with resources beside those of other jobs.

    Args:
        request: parameters of the network.
        slots: slots of the program's pool.
        window: window of the job.
        members: its workers; by default all at one switch, at the ports behind other jobs'.
        partitioned: see ``Aggregation``.

    Raises:
        InputError: too few slots or ports are left, or the job's number is taken.
    """
    used = UsedResources.by(request.existing_jobs)
    if members is None:
        if used.hosts + request.workers > MAX_PORT:
            raise InputError(
                f"{request.workers} workers beside the {used.hosts} of other jobs; this network "
                f"has ports for {MAX_PORT}. Choose fewer jobs, or fewer workers in each."
            )
        members = members_of(request.workers, used.hosts)
    base = -(-used.slots // window) * window if partitioned else 0  # a multiple of the window
    if base + window > slots:
        raise InputError(
            f"a window of {window} beside the {used.slots} slots of other jobs; the program has "
            f"{slots}. Choose a smaller window."
        )
    if request.priority and request.framing != "udp":
        raise InputError(
            f"priority = {request.priority}, but packets of framing {request.framing!r} have no "
            "field for it; choose framing udp."
        )
    if request.job in {plan.job.number for plan in request.existing_jobs}:
        raise InputError(f"there is a job {request.job} already; give each job a different number.")
    return Job(
        members,
        number=request.job,
        epoch=request.epoch,
        slots=window,
        slot_base=base,
        group=1 + len(request.existing_jobs),
        absent=request.absent,
        allow_partial=request.allow_partial,
        priority=request.priority,
    )


def members_of(workers: int, first: int = 0) -> list[WorkerPort]:
    """Members of a job: host ``first + i``, with its default address, at that port of its leaf."""
    hosts = range(first, first + workers)
    return [WorkerPort(host + 1, Endpoint.of_worker(host)) for host in hosts]


def newest(found: Iterable[SlotRegisters]) -> SlotRegisters:
    """One slot's registers in several switches, merged: the newest chunk and all its workers."""
    found = list(found)
    sequence = newest_of(found)
    bitmap = 0
    for here in found:
        bitmap |= here.bitmap if here.sequence == sequence else 0
    return SlotRegisters(sequence, bitmap)


def newest_of(found: Iterable[SlotRegisters]) -> int:
    """The newest chunk among the registers of a slot in several switches, in serial arithmetic."""
    sequences = [each.sequence for each in found if any(each)]  # others were never used
    newest = sequences[0] if sequences else 0
    for each in sequences:
        if serial_distance(each, newest) > 0:
            newest = each
    return newest
