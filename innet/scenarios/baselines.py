"""Baselines beside a codec: all-reduces without a switch that sums, over the same network.

A baseline's name is that of its algorithm, with the type or number format of its elements if that
is not float32: "ring", "ring-bfloat16", "ring-mxfp8-e4m3". Settings may follow, as in
"all-gather:ratio=0.001" and "ring:lossless=1.3".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from innet.core.errors import InputError, UnknownNameError
from innet.core.registry import split_name
from innet.core.settings import Settings, SimulateSettings, validate
from innet.records import Report, Simulated
from innet.scenarios.samples import Sampler
from innet.scenarios.timeline import Times
from innet.sim.flows import Flow
from innet.sim.gpu_hosts import (
    GpuHosts,
    gpu_hierarchical_all_reduce,
    gpu_ring_all_reduce,
    gpu_tree_all_reduce,
)
from innet.sim.messages import (
    ALGORITHMS,
    ELEMENTS,
    TREE_CHUNK,
    MessageGraph,
    SentElements,
    all_gather,
    parameter_server,
    with_protocol,
)
from innet.sim.network import OVERHEAD, SECOND, Network
from innet.sim.simulation import Cable, LinkCounts, NetworkCounts, Simulation
from innet.sim.transport import ReliableTransport, transport_of
from innet.switch.traffic_manager import PORTS
from innet.topology import Plan
from innet.topology.plan import Port, SharedPlan
from innet.wire import PacketLayout

MEASURED = "measured"
"""Of the setting ``lossless``: the ratio is that of the gradients."""
_INDEX_BYTES = 4  # of a sparse gradient's element, beside the value
_LAYOUT = PacketLayout(1)  # of a program's packets; there are none


class _Dense(Settings):
    """Settings of an algorithm that sums all elements.

    Attributes:
        reduce_cost: picoseconds that a host takes to sum a byte that came.
        lossless: by how many times a coder without loss shortens the elements; "measured" in
            trainings, of their gradients.
        rounding: of sums, where there are some: in trainings.
        hop_cost: picoseconds that a host takes for an element to decode what came and to encode the
            sum; None: as long as workers take to encode and decode one, of number formats with
            scales and with a coder, and otherwise 0.
    """

    reduce_cost: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    lossless: Annotated[float, Field(ge=1, le=1000)] | Literal["measured"] = 1.0
    rounding: Literal["nearest", "stochastic"] = "nearest"
    hop_cost: Annotated[float, Field(ge=0, le=1e9)] | None = None


class _OfNccl(_Dense):
    """Settings of NCCL's algorithms.

    Attributes:
        protocol: by which its kernels hand data on, and take their time for each hop; None: hops
            take what links do.
    """

    protocol: Literal["ll", "ll128", "simple"] | None = None


class _Chunked(_OfNccl):
    """Settings of NCCL's tree."""

    chunk: Annotated[int, Field(ge=4, le=1 << 30)] = TREE_CHUNK


class _Server(_Dense):
    """Settings of a parameter server on separate hosts."""

    servers: Annotated[int, Field(ge=1, le=256)] = 1


class _Sparse(_Dense):
    """Settings of an algorithm that sends the largest elements, with their indices."""

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01


_OPTIONS: Mapping[str, type[_Dense]] = {
    "ring": _OfNccl,
    "hierarchical-ring": _OfNccl,
    "nvls-ring": _Dense,
    "halving-doubling": _Dense,
    "parameter-server": _Server,
    "sharded-parameter-server": _Dense,
    "all-gather": _Sparse,
    "gtopk-tree": _Sparse,
    "nccl-tree": _Chunked,
}


_OF_GPUS: Mapping[str, Callable[..., MessageGraph]] = {
    "ring": gpu_ring_all_reduce,
    "nccl-tree": gpu_tree_all_reduce,
    "hierarchical-ring": gpu_hierarchical_all_reduce,
    "nvls-ring": partial(gpu_hierarchical_all_reduce, nvls=True),
}
"""Algorithms that know which GPUs are of one host; to the others all are alike."""


def names() -> list[str]:
    """Names of all baselines, without settings."""
    types = ["", *(f"-{dtype}" for dtype in ELEMENTS if dtype != "float32")]
    return [f"{algorithm}{dtype}" for algorithm in _OPTIONS for dtype in types]


@dataclass(frozen=True, slots=True)
class Baseline:
    """An all-reduce between hosts.

    Attributes:
        name: as the user gave it.
        algorithm: "ring", "hierarchical-ring", "nvls-ring", "halving-doubling", "nccl-tree",
            "parameter-server", "sharded-parameter-server", "all-gather" or "gtopk-tree".
        dtype: of the elements that are sent, a name of ``innet.sim.messages.ELEMENTS``.
        options: of the algorithm: ``reduce_cost``, ``lossless`` and ``hop_cost``; ``servers``,
            hosts of the parameter server; ``ratio``, the share of the elements that each worker
            sends, with indices of 32 bits; ``chunk``, bytes of a message of the tree; ``protocol``,
            of NCCL's algorithms.
    """

    name: str
    algorithm: str
    dtype: str
    options: _Dense

    @classmethod
    def of(cls, text: str) -> Baseline:
        """The baseline that a user wrote.

        Raises:
            UnknownNameError: no such baseline.
            ConfigError: a setting that it does not have, or out of range.
        """
        full, given = split_name(text)
        # The longest name, as some begin with others.
        starts = [each for each in _OPTIONS if full == each or full.startswith(f"{each}-")]
        if not starts:
            raise UnknownNameError("baseline", full, _OPTIONS)
        algorithm = max(starts, key=len)
        given_type = full[len(algorithm) + 1 :]
        types = [each for each in ELEMENTS if each != "float32"]
        if full != algorithm and given_type not in types:
            raise UnknownNameError(f"element type of the baseline {algorithm}", given_type, types)
        dtype = given_type or "float32"
        options = validate(_OPTIONS[algorithm], given, source=f"baseline {full}")
        return cls(text, algorithm, dtype, options)

    @property
    def is_encoded(self) -> bool:
        """Whether workers do something with each element before they send it."""
        options = self.options
        return self.dtype != "float32" or options.lossless != 1 or isinstance(options, _Sparse)

    @property
    def title(self) -> str:
        """For people, of its sums: "bfloat16 (ring)"."""
        given = {"lossless": self.options.lossless, "rounding": self.options.rounding}
        said = [f"{name} {value}" for name, value in given.items() if value not in {1, "nearest"}]
        return f"{', '.join([self.dtype, *said])} ({self.algorithm})"

    def elements(self, hop_cost: float = 0.0, lossless: float = 1.0) -> SentElements:
        """How the elements travel.

        Args:
            hop_cost: of the elements that have to be decoded to be summed, unless set.
            lossless: by how many times they are coded shorter, where that is measured.
        """
        kind, options = ELEMENTS[self.dtype], self.options
        is_coded = kind.scale_bytes > 0 or options.lossless != 1
        given = options.hop_cost
        return replace(
            kind,
            lossless=lossless if options.lossless == MEASURED else float(options.lossless),
            index_bytes=_INDEX_BYTES if isinstance(options, _Sparse) else 0,
            hop_cost=given if given is not None else hop_cost if is_coded else 0.0,
        )

    @property
    def servers(self) -> int:
        """Hosts beside the workers."""
        return self.options.servers if isinstance(self.options, _Server) else 0

    def check_hosts(self, gpus: GpuHosts | None) -> None:
        """Refuse hosts that the algorithm is not for.

        Raises:
            InputError: names what it needs.
        """
        if gpus is None and self.algorithm in _OF_GPUS and self.algorithm not in ALGORITHMS:
            raise InputError(
                f"the baseline {self.name} is for hosts with several GPUs; give gpus_per_host, or "
                "choose ring."
            )
        if gpus is not None and self.servers:
            raise InputError(
                f"the baseline {self.name} has servers beside the workers, and hosts with several "
                "GPUs have none; choose sharded-parameter-server."
            )

    def graph(
        self,
        workers: int,
        elements: int,
        density: float = 1.0,
        hop_cost: float = 0.0,
        lossless: float = 1.0,
        *,
        gpus: GpuHosts | None = None,
    ) -> MessageGraph:
        """What hosts send. Workers are hosts 0, 1, ...; servers come after them.

        Args:
            workers: how many.
            elements: of the gradient.
            density: share of them that is not zero. Sparse algorithms send no more than those.
            hop_cost: as ``self.elements`` takes it.
            lossless: likewise.
            gpus: which the workers are; None where each worker is a host.

        Raises:
            InputError: hosts that the algorithm is not for.
        """
        cost, kind = self.options.reduce_cost, self.elements(hop_cost, lossless)
        if isinstance(self.options, _Sparse):
            elements = math.ceil(min(self.options.ratio, density) * elements)
        self.check_hosts(gpus)
        if self.algorithm == "all-gather":
            return all_gather(workers, [elements] * workers, dtype=kind)
        if "parameter-server" in self.algorithm:
            hosts = range(workers, workers + self.servers) if self.servers else range(workers)
            return parameter_server(workers, hosts, elements, dtype=kind, reduce_cost=cost)
        more = {"chunk": self.options.chunk} if isinstance(self.options, _Chunked) else {}
        of_gpus = gpus is not None and self.algorithm in _OF_GPUS
        build = (_OF_GPUS if of_gpus else ALGORITHMS)[self.algorithm]
        where = gpus if of_gpus else workers
        graph = build(where, elements, dtype=kind, reduce_cost=cost, **more)
        protocol = getattr(self.options, "protocol", None)
        if protocol is None:
            return graph
        is_local = np.zeros(len(graph), np.bool_) if gpus is None else gpus.is_local(graph)
        return with_protocol(graph, protocol, is_local, tree=self.algorithm == "nccl-tree")


def baselines_of(settings: SimulateSettings) -> list[Baseline]:
    """The baselines of a simulation.

    Raises:
        UnknownNameError, ConfigError: as ``Baseline.of``.
        InputError: one is given twice, or is to be measured, or the transport is none.
    """
    twice = {name for name in settings.baselines if settings.baselines.count(name) > 1}
    if twice:
        raise InputError(f"the baseline {min(twice)!r} is given twice; give each once.")
    transport_of(settings.transport)
    found = [Baseline.of(name) for name in settings.baselines]
    for each in found:
        if each.options.lossless == MEASURED:
            raise InputError(
                f"the baseline {each.name!r} is measured on a training's gradients, which a "
                "simulation does not have; give a number, as in ring:lossless=1.2."
            )
    return found


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What an all-reduce took.

    Attributes:
        ends: when each worker had the sum, picoseconds since the first worker could send.
        simulated: what the network did.
        bytes_sent: by the worker that sent most, as ``Report`` counts them, with acknowledgements.
        exact, without: as in ``Bucket``; of a baseline there is no sum, and nobody was left out.
    """

    ends: tuple[int, ...]
    simulated: Simulated
    bytes_sent: int
    exact: bool | None = None
    without: tuple[int, ...] = ()


class MessageNetwork:
    """The workers of a plan, and its switches, which only forward.

    Servers are at ports of the first switch, the root of a tree, that nothing else uses.

    Args:
        baseline: what the workers send.
        plan: where they are; of GPUs, a job for each network card of a host, whose workers are
            these cards.
        network: rates, delays and queues.
        transport: of all messages.
        gpus: which the workers are; None where each worker is a host.
        flows: packets beside them. Without any, each all-reduce begins with an idle network.
        density, hop_cost: as ``Baseline.graph`` takes them.
        seed: of losses and flows.

    Attributes:
        simulation: the network as it is now.
        sampler: samples it over time; None: nobody does.

    Raises:
        InputError: the first switch has no port for a server.
    """

    simulation: Simulation
    sampler: Sampler | None = None

    def __init__(
        self,
        baseline: Baseline,
        plan: Plan | SharedPlan,
        network: Network,
        transport: ReliableTransport,
        *,
        gpus: GpuHosts | None = None,
        flows: Sequence[Flow] = (),
        density: float = 1.0,
        hop_cost: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._baseline, self._network, self._transport = baseline, network, transport
        self._flows, self._density, self._seed = flows, density, seed
        self._hop_cost, self._gpus = hop_cost, gpus
        hosts = [worker for job in plan.jobs for worker in job.workers]
        self._cards, self._workers = len(hosts), len(hosts) if gpus is None else gpus.total
        self._switches = [switch.name for switch in plan.switches]
        self._cables = _cables(plan, baseline)
        self._begun = 0
        self._begin()

    def _begin(self) -> None:
        """Make a new network, with another seed than before."""
        hosts = sum(cable.host is not None for cable in self._cables)
        self.simulation = Simulation(
            self._network,
            _LAYOUT,
            dict.fromkeys(self._switches),
            self._cables,
            hosts,
            seed=self._seed + (self._begun << 32),
        )
        self._begun += 1
        self._origin = 0.0  # its time 0, in seconds of the run
        if self._flows:
            self.simulation.add_flows(self._flows)

    def all_reduce(self, elements: int, starts: Times) -> Exchanged:
        """Sum a gradient.

        Args:
            elements: of it.
            starts: when each worker can send, seconds, none before the last all-reduce was done.
        """
        first = float(starts.min())
        if not self._flows:
            self._begin()
            self._origin = first
        graph = self._baseline.graph(
            self._workers, elements, self._density, self._hop_cost, gpus=self._gpus
        )
        if not (graph.source != graph.destination).any():
            ends = tuple(round((each - first) * SECOND) for each in starts.tolist())
            fields = network_fields(elements, max(ends), max(ends), _NOTHING, 0)
            return Exchanged(ends, self._simulated(fields, 0), 0)
        simulation = self.simulation
        # Of a worker that is ahead of the last all-reduce's end, messages begin with that.
        since = np.zeros(max(2, graph.hosts))
        since[: self._workers] = np.maximum(starts - self._origin - simulation.now, 0.0)
        begun = round((first - self._origin) * SECOND)
        before = Snapshot(simulation, first - self._origin)
        if self.sampler is not None:
            self.sampler.begin(simulation, first, self._origin)
        started = graph.starting(since)
        group = simulation.launch_messages(started, self._transport, self._gpus)
        while simulation.wait() != group:
            pass
        messenger = simulation.messenger
        assert messenger is not None, "it was launched"
        done = np.full(max(2, graph.hosts), begun)
        np.maximum.at(done, graph.destination, messenger.delivered)
        done[: self._workers] = np.maximum(
            done[: self._workers], np.rint((starts - self._origin) * SECOND).astype(np.int64)
        )
        ends = tuple((done[: self._workers] - begun).tolist())
        counts = simulation.counts().since(before.counts)
        ticks = max(ends)
        sent = map(_sent, before.links[::2], simulation.link_counts()[::2])
        waited = round((float(starts.max()) - first) * SECOND)
        queue_bytes_max = simulation.queue_bytes_max()
        fields = network_fields(elements, ticks, waited, counts, queue_bytes_max)
        simulated = self._simulated(fields, messenger.counts()[1])
        return Exchanged(ends, simulated, max(list(sent)[: self._cards]))

    def _simulated(self, fields: Mapping[str, Any], retransmissions: int) -> Simulated:
        return Simulated(
            **fields,
            retransmissions=retransmissions,
            assumed=self.simulation.assumed,
            fabric=self.simulation.fabric,
        )


def _places(plan: Plan) -> list[Port]:
    """Switch ports of a plan's workers, which are its first hosts."""
    return list(plan.attachments().values())[: len(plan.workers)]


class Snapshot:
    """What a network has counted until a time; its longest queue is forgotten then.

    Args:
        simulation: the network.
        seconds: the time. Where it has passed, now.

    Attributes:
        counts, links: of that time, once it has come.
    """

    counts: NetworkCounts
    links: list[LinkCounts]

    def __init__(self, simulation: Simulation, seconds: float) -> None:
        self._simulation = simulation
        simulation.at(seconds, self._take)

    def _take(self) -> None:
        self.counts = self._simulation.counts()
        self.links = self._simulation.link_counts()
        self._simulation.forget_queues()


def _cables(plan: Plan | SharedPlan, baseline: Baseline) -> list[Cable]:
    """Those of the workers, in order, then of servers, then between switches."""
    # Of several jobs, whose workers are the cards of hosts, all those of a host follow each other.
    places = zip(*(_places(job) for job in plan.jobs), strict=True)
    ports = itertools.chain.from_iterable(places)
    cables = [Cable(port.node, port.port, host) for host, port in enumerate(ports)]
    trunks = [Cable(*link.a, None, *link.b) for link in plan.trunks()]
    root = plan.switches[0].name
    used = {(cable.switch, cable.port) for cable in cables + trunks}
    used |= {(cable.other, cable.other_port) for cable in trunks}
    free = (port for port in range(1, PORTS) if (root, port) not in used)
    # A network has two hosts at least; a single worker has no destination.
    for server in range(max(baseline.servers, 2 - len(cables))):
        port = next(free, None)
        if port is None:
            raise InputError(
                f"switch {root} has no port left for {baseline.name}'s server {server}; give fewer "
                "servers, or racks."
            )
        cables.append(Cable(root, port, len(cables)))
    return cables + trunks


def _sent(before: LinkCounts, after: LinkCounts) -> int:
    """Bytes of frames without check sequence that were put onto a link between two counts."""
    return after.bytes - before.bytes - OVERHEAD * (after.packets - before.packets)


_NOTHING = NetworkCounts(0, 0, 0, 0, 0, 0, 0, {}, {})


def network_fields(
    elements: int, ticks: int, waited: int, counts: NetworkCounts, queue_bytes_max: int
) -> dict[str, Any]:
    """Fields of ``Simulated`` about an all-reduce, from the first packet to the last result.

    Args:
        elements: of the gradient.
        ticks: picoseconds.
        waited: the part in which the slowest worker could not send.
        counts: what the network did in that time.
        queue_bytes_max: likewise.
    """
    waited = min(waited, ticks)
    rate = elements / (ticks - waited) * SECOND if ticks > waited else 0.0
    return {
        "seconds": ticks / SECOND,
        "waited": waited / SECOND,
        "goodput_gbps": 32 * rate / 1e9,
        "elements_per_second": rate,
        "packets": counts.packets,
        "bytes": counts.bytes,
        "lost": counts.lost,
        "dropped": counts.dropped,
        "marked": counts.marked,
        "queue_bytes_max": queue_bytes_max,
        "pauses": counts.pauses,
        "paused": counts.longest_pause,
        "trimmed": counts.trimmed,
        "utilization": {
            name: busy / (links * ticks) if ticks else 0.0
            for name, (busy, links) in counts.busy.items()
        },
        "busiest": counts.busiest(ticks - waited),
    }


def with_fields(report: Report, fields: Mapping[str, Any]) -> Report:
    """The report of an all-reduce in simulated time, with other fields of its ``simulated``."""
    assert report.simulated is not None
    simulated = report.simulated.model_copy(update=fields)
    seconds = report.seconds.model_copy(update={"simulated": simulated.seconds})
    return report.model_copy(update={"simulated": simulated, "seconds": seconds})
