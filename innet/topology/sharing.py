"""Several jobs on one network: each a plan of its own, with hosts, ports and slots of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from innet import programs
from innet.core.errors import InputError
from innet.core.packets import MAX_PORT
from innet.protocol.admission import Job
from innet.topology.aggregation import Request, aggregation_of, make_plan
from innet.topology.plan import Link, Plan, PlannedHost, PlannedSwitch, Port
from innet.topology.wiring import members_of


@dataclass(frozen=True, slots=True)
class Taken:
    """What of a network its jobs have.

    Attributes:
        hosts: so many, from h1 on.
        slots: of the pool, from the first on.
        nodes: multicast nodes by switch: the handle that the next one gets.
        ports: of switches, whose neighbors are known.
    """

    hosts: int
    slots: int
    nodes: Mapping[str, int]
    ports: frozenset[Port]

    @classmethod
    def by(cls, jobs: Sequence[Plan]) -> Taken:
        """What ``jobs`` have together."""
        nodes: Counter[str] = Counter()
        for plan in jobs:
            for switch in plan.switches:
                nodes[switch.name] += sum(
                    line.startswith("mc_node_create ") for line in switch.commands
                )
        return cls(
            hosts=sum(len(plan.hosts) for plan in jobs),
            slots=max((plan.job.slot_base + plan.job.slots for plan in jobs), default=0),
            nodes=nodes,
            ports=frozenset(end for plan in jobs for link in plan.links for end in link),
        )


def job_for(request: Request, slots: int, window: int, last_port: int = MAX_PORT) -> Job:
    """The job's place beside those that are there already.

    Args:
        request: what is wanted.
        slots: of the program's whole pool.
        window: of the job.
        last_port: that a worker can be at; all jobs' workers are at ports from 1 on.

    Raises:
        InputError: the pool or the ports have no room for it, or there is a job of its number.
    """
    taken = Taken.by(request.beside)
    if taken.hosts + request.workers > last_port:
        raise InputError(
            f"{request.workers} workers beside the {taken.hosts} of other jobs; this network has "
            f"ports for {last_port}. Choose fewer jobs, or fewer workers in each."
        )
    base = -(-taken.slots // window) * window  # a multiple of the window
    if base + window > slots:
        raise InputError(
            f"a window of {window} beside the {taken.slots} slots of other jobs; the program has "
            f"{slots}. Choose a smaller window."
        )
    if request.job in {plan.job.number for plan in request.beside}:
        raise InputError(f"there is a job {request.job} already; give each a number of its own.")
    return Job(
        members_of(request.workers, taken.hosts),
        number=request.job,
        epoch=request.epoch,
        slots=window,
        slot_base=base,
        group=1 + len(request.beside),
    )


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """A network and the jobs on it.

    Attributes:
        jobs: plans on the same switches; each tells of the switches what is the job's own.
    """

    jobs: tuple[Plan, ...]

    @property
    def switches(self) -> tuple[PlannedSwitch, ...]:
        """With what all jobs tell them."""
        together: dict[str, PlannedSwitch] = {}
        for plan in self.jobs:
            for each in plan.switches:
                before = together.get(each.name)
                commands = each.commands if before is None else before.commands + each.commands
                together[each.name] = replace(each, commands=commands)
        return tuple(together.values())

    @property
    def hosts(self) -> tuple[PlannedHost, ...]:
        """Of all jobs."""
        return tuple(host for plan in self.jobs for host in plan.hosts)

    @property
    def links(self) -> tuple[Link, ...]:
        """Of all jobs, each once."""
        return tuple(dict.fromkeys(link for plan in self.jobs for link in plan.links))

    def with_job(self, plan: Plan) -> SharedPlan:
        """The same with ``plan`` for the job of its number, such as its next epoch."""
        number = plan.job.number
        return SharedPlan(tuple(plan if each.job.number == number else each for each in self.jobs))


def plan_jobs(program: str, values_per_packet: int, request: Request, jobs: int = 1) -> SharedPlan:
    """A network with several jobs, all as ``request`` says, numbered from its job on.

    Without a window each gets an equal share of the slots.

    Raises:
        UnknownNameError: no such program, or none that aggregates.
        InputError: not compiled for so many values, no room for what is requested, or a program
            that serves one job only.
    """
    if jobs > 1 and not aggregation_of(program).shares:
        raise InputError(
            f"{jobs} jobs: {program} serves one job of a network; choose slots or tree for several."
        )
    if jobs > 1 and request.window is None:
        slots = programs.find(program, values_per_packet).dimensions().slots
        request = replace(request, window=1 << (slots // jobs).bit_length() - 1)
    planned: list[Plan] = []
    for number in range(jobs):
        each = replace(request, job=request.job + number, beside=tuple(planned))
        planned.append(make_plan(program, values_per_packet, each))
    return SharedPlan(tuple(planned))
