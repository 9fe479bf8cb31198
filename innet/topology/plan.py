"""Jobs on a network, as data: switches with their programs and tables, hosts, and links.

A plan runs nothing. The same plan is used in memory (``innet.topology.emulation``) and for networks
of real interfaces (``innet.mininet``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from innet.core.errors import InputError, UnknownNameError
from innet.core.packets import MAX_PORT
from innet.programs import CompiledProgram
from innet.protocol import JobMembership
from innet.protocol.admission import Job
from innet.wire import Endpoint, PacketLayout

_DELIVER = "Egress.deliver "  # the table that has the addresses behind ports, of all programs
Role: TypeAlias = Literal["worker", "server"]


class Port(NamedTuple):
    """One end of a link: a switch and one of its ports, or a host and 0."""

    node: str
    port: int


class PlannedLink(NamedTuple):
    """A link, in both directions."""

    a: Port
    b: Port

    @property
    def ends(self) -> tuple[str, str]:
        """The nodes at both ends."""
        return self.a.node, self.b.node


EntryFinder: TypeAlias = Callable[[str, str], Sequence[int]]
"""(name of a switch, name of a table) -> handles of its entries."""


@dataclass(frozen=True, slots=True)
class PlannedSwitch:
    """A switch.

    Attributes:
        name: unique among the nodes.
        program: the program that it runs.
        commands: commands of simple_switch_CLI, run before the first packet.
    """

    name: str
    program: CompiledProgram
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A machine with one interface.

    Attributes:
        name: unique among the nodes.
        endpoint: its addresses.
        peer: the addresses that it sends to, those of its switch.
        role: worker, or the job's parameter server.
        worker: index of the worker; None for a server.
    """

    name: str
    endpoint: Endpoint
    peer: Endpoint
    role: Role = "worker"
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One job on one network.

    Attributes:
        aggregation: the protocol, a name in ``innet.topology.AGGREGATIONS``.
        switches: in no particular order.
        hosts: the workers by index, then the servers.
        links: between ports of switches, or a switch and port 0 of a host.
        job: the job. ``members[i].port`` is the port of worker ``i`` on its switch.
        layout: layout of all packets.
        roots: the switches that are roots of the job's trees, if it has several: a slot belongs to
            one of them. Links between switches then lead from the lower to the upper one.
        down: switches that do not answer; the next epoch uses the trees without them.

    Raises:
        InputError: a duplicate name, a link to an invalid node or port, a port with two links, or a
            host without exactly one link to a switch.
    """

    aggregation: str
    switches: tuple[PlannedSwitch, ...]
    hosts: tuple[PlannedHost, ...]
    links: tuple[PlannedLink, ...]
    job: Job
    layout: PacketLayout
    roots: tuple[str, ...] = ()
    down: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = Counter([each.name for each in self.switches] + [each.name for each in self.hosts])
        if twice := [name for name, number in names.items() if number > 1]:
            raise InputError(f"two nodes are called {twice[0]!r}; give them different names.")
        ends = Counter(end for link in self.links for end in link)
        for end, number in ends.items():
            if end.node not in names:
                raise UnknownNameError("node", end.node, names)
            if number > 1:
                raise InputError(f"port {end.port} of {end.node} has {number} links; it takes one.")
        switches = {each.name for each in self.switches}
        for link in self.links:
            if switches.isdisjoint(link.ends):
                raise InputError(
                    f"{link.a.node} and {link.b.node} are hosts; join them to a switch."
                )
        for end in ends:
            high = MAX_PORT if end.node in switches else 0
            if not 0 <= end.port <= high:
                raise InputError(f"{end.node} has no port {end.port}; it has 0 .. {high}.")
        for host in self.hosts:
            if not ends[Port(host.name, 0)]:
                raise InputError(f"host {host.name} has no link to a switch.")

    @property
    def jobs(self) -> tuple[Plan, ...]:
        """This job alone; ``SharedPlan`` has several."""
        return (self,)

    @property
    def window(self) -> int:
        """Chunks of a worker that may be under way at once."""
        return self.job.slots

    @property
    def workers(self) -> tuple[PlannedHost, ...]:
        """The workers, by index."""
        return tuple(host for host in self.hosts if host.role == "worker")

    @property
    def servers(self) -> tuple[PlannedHost, ...]:
        """The parameter servers; none for most protocols."""
        return tuple(host for host in self.hosts if host.role == "server")

    def membership(self, host: PlannedHost) -> JobMembership:
        """The membership of a worker.

        Raises:
            InputError: the host is not a worker.
        """
        if host.worker is None:
            raise InputError(f"{host.name} is no worker of job {self.job.number}.")
        job = self.job
        size = len(job.members)
        bit = job.members[host.worker].bit
        return JobMembership(
            host.worker, size, job.number, job.epoch, job.slots, job.absent, bit, job.priority
        )

    def attachment(self, host: PlannedHost) -> Port:
        """The switch and port of ``host``."""
        local = Port(host.name, 0)
        for one, other in _both_ways(self.links):
            if one == local:
                return other
        raise UnknownNameError("host", host.name, [each.name for each in self.hosts])

    def distance(self, host: PlannedHost) -> int:
        """Number of links on the shortest path between ``host`` and the first switch."""
        first = self.switches[0].name
        distances = self.distances()
        if host.name not in distances:
            raise InputError(f"no way leads from {host.name} to {first}.")
        return distances[host.name]

    def distances(self) -> dict[str, int]:
        """The same for every node from which a path leads there."""
        neighbors: dict[str, set[str]] = defaultdict(set)
        for one, other in _both_ways(self.links):
            neighbors[one.node].add(other.node)
        found = {self.switches[0].name: 0}
        reached = [*found]
        for node in reached:
            for name in neighbors[node] - found.keys():
                found[name] = found[node] + 1
                reached.append(name)
        return found

    def attachments(self) -> dict[int, Port]:
        """Switch ports of hosts, by the number of the host in a transport, from 1.

        With several switches a transport cannot number hosts by ports.
        """
        where = dict(_both_ways(self.links))
        return {
            number: where[Port(host.name, 0)] for number, host in enumerate(self.hosts, start=1)
        }

    def without_job(self) -> Plan:
        """The same network with no job: switches know what is behind their ports, and no more."""
        return replace(
            self,
            switches=tuple(
                replace(
                    switch,
                    commands=tuple(line for line in switch.commands if _DELIVER in line),
                )
                for switch in self.switches
            ),
        )

    def at_hosts(self, hosts: Sequence[int]) -> Plan:
        """The same network with workers only at these hosts, numbered in this order from 0."""
        chosen = tuple(replace(self.hosts[host], worker=i) for i, host in enumerate(hosts))
        nodes = {each.name for each in self.switches} | {each.name for each in chosen}
        links = tuple(link for link in self.links if nodes.issuperset(link.ends))
        return replace(self, hosts=chosen, links=links)

    def trunks(self) -> tuple[PlannedLink, ...]:
        """The links between switches."""
        switches = {each.name for each in self.switches}
        return tuple(link for link in self.links if switches.issuperset(link.ends))


def _both_ways(links: tuple[PlannedLink, ...]) -> Iterator[tuple[Port, Port]]:
    for link in links:
        yield link.a, link.b
        yield link.b, link.a


# ----------------------------------------------------------------------------
# Several jobs on one network: each has its own plan, hosts, ports and slots.


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """A network and the jobs on it.

    Attributes:
        jobs: plans on the same switches; each has only the commands of its job.

    Raises:
        InputError: a port leads elsewhere in one job's tree than in another's, as on a fat-tree
            with jobs of different sizes.
    """

    jobs: tuple[Plan, ...]

    def __post_init__(self) -> None:
        ends = Counter(end for link in self.links for end in link)
        if twice := [end for end, number in ends.items() if number > 1]:
            raise InputError(
                f"port {twice[0].port} of {twice[0].node} leads elsewhere in one job's tree than "
                "in another's; give all jobs the same number of workers, or choose another "
                "topology."
            )

    @property
    def switches(self) -> tuple[PlannedSwitch, ...]:
        """The switches, with the commands of all jobs."""
        together: dict[str, PlannedSwitch] = {}
        for plan in self.jobs:
            for each in plan.switches:
                before = together.get(each.name)
                commands = each.commands if before is None else before.commands + each.commands
                together[each.name] = replace(each, commands=commands)
        return tuple(together.values())

    @property
    def hosts(self) -> tuple[PlannedHost, ...]:
        """The hosts of all jobs."""
        return tuple(host for plan in self.jobs for host in plan.hosts)

    @property
    def links(self) -> tuple[PlannedLink, ...]:
        """The links of all jobs, each once."""
        return tuple(dict.fromkeys(link for plan in self.jobs for link in plan.links))

    def attachments(self) -> dict[int, Port]:
        """Switch ports of the hosts of all jobs, by number from 1; see ``Plan``."""
        ports = [port for plan in self.jobs for port in plan.attachments().values()]
        return dict(enumerate(ports, start=1))

    def trunks(self) -> tuple[PlannedLink, ...]:
        """The links between switches."""
        return tuple(dict.fromkeys(link for plan in self.jobs for link in plan.trunks()))

    def with_job(self, plan: Plan) -> SharedPlan:
        """The same network with ``plan`` instead of the job with its number."""
        number = plan.job.number
        return SharedPlan(tuple(plan if each.job.number == number else each for each in self.jobs))


class Rack(NamedTuple):
    """The workers at one switch, as a job of their own beside that of all workers.

    Attributes:
        plan: of that job: one switch, which has only the commands of this job, and its workers,
            numbered from 0.
        workers: the same workers' indices in the job of all, ascending.
    """

    plan: Plan
    workers: tuple[int, ...]

    def absent(self, absent: Collection[int]) -> frozenset[int]:
        """Of workers of the job of all, those of this rack by their index in it."""
        return frozenset(i for i, worker in enumerate(self.workers) if worker in absent)


@dataclass(frozen=True, slots=True)
class UsedResources:
    """Resources of a network that jobs use.

    Attributes:
        hosts: number of hosts, from h1.
        slots: number of slots of the pool, from the first.
        nodes: handle of the next multicast node, by switch.
        ports: switch ports whose neighbors are known to the switch.
    """

    hosts: int
    slots: int
    nodes: Mapping[str, int]
    ports: frozenset[Port]

    @classmethod
    def by(cls, jobs: Sequence[Plan]) -> UsedResources:
        """The resources that ``jobs`` use."""
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
