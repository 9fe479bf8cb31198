"""``innet net predict``: the same all-reduces in Mininet and in simulated time, side by side."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from innet._version import __version__
from innet.allreduce.worker import Worker, connect, connect_host
from innet.core.errors import NetworkError
from innet.mininet.allreduce import NetResult, Watch, run_jobs
from innet.mininet.inspect import program_of
from innet.mininet.nodes import network_namespace_of
from innet.mininet.settings import NetSettings
from innet.processes.parameter_server import serve
from innet.records import Machine, NetworkRun, PredictionRecord
from innet.scenarios.prediction import (
    Calibration,
    check_predictable,
    simulate_jobs,
    simulated_network,
)
from innet.sim.network import OVERHEAD
from innet.topology import Plan, PlannedHost, aggregation_of

_CHUNKS = 20  # of an idle all-reduce, one after the other
_TIMES = 9  # that it is repeated; the median counts


class _Links(NamedTuple):
    """What the kernel has counted at the links' ends since they were made.

    Attributes:
        packets, bytes: that were sent; bytes of frames without their check sequence.
        dropped: packets that found a queue full.
        from_hosts, to_hosts: packets of hosts' links, by direction.
    """

    packets: int
    bytes: int
    dropped: int
    from_hosts: int
    to_hosts: int

    def since(self, earlier: _Links) -> _Links:
        return _Links(*(now - then for now, then in zip(self, earlier, strict=True)))


def predict(
    settings: NetSettings,
    *,
    created: datetime | None = None,
    watch: Watch = lambda _: None,
    calibration: Calibration | None = None,
) -> PredictionRecord:
    """Run the all-reduces in Mininet, then simulate them.

    Before the workers begin, the time of a packet on idle links is measured. It is what the
    simulation knows of this machine.

    Args:
        settings: of the jobs and their network, with a rate and a queue.
        created: when the run began, for the record; by default now.
        watch: called with a line of text for each step.
        calibration: what packets take of the machine's cores; by default nothing.

    Raises:
        InputError: settings that Mininet and simulated time do not share, or not root.
        InnetError: a part of the network failed.
    """
    check_predictable(settings)
    created = created or datetime.now(UTC)
    gradients = {job: settings.of_job(job).gradients() for job in range(1, settings.jobs + 1)}
    settings = settings.with_workers(len(gradients[1])).completed()
    idle = 0.0
    before = after = _Links(0, 0, 0, 0, 0)

    def prepare(net: Any) -> None:
        nonlocal idle, before
        watch("measuring a packet's time on idle links")
        idle = _idle_seconds(net, settings)
        before = _links(net)

    def inspect(net: Any, _: list[NetResult]) -> None:
        nonlocal after
        after = _links(net)

    results = run_jobs(settings, watch=watch, prepare=prepare, inspect=inspect)
    watch("simulating (for the first time with a compilation of up to a minute)")
    shared = settings.shared_plan()
    network = simulated_network(settings, shared, idle, calibration)
    simulated = simulate_jobs(settings, shared, network, gradients, settings.timing())
    exact = [report.exact for result in results for report in result.reports]
    return PredictionRecord(
        innet=__version__,
        created=created,
        machine=Machine.here(),
        settings=settings.model_dump(mode="json"),
        workers=settings.workers,
        jobs=settings.jobs,
        elements=gradients[1][0].size,
        window=shared.jobs[0].window,
        idle_seconds=idle,
        network={name: getattr(network, name) for name in network.__dataclass_fields__},
        busy=fmean(results[0].busy),
        network_seconds=sum(
            max(report.seconds.network for report in each)
            for each in zip(*(result.reports for result in results), strict=True)
        ),
        processor_seconds=sum(results[0].processor),
        calibration=None if calibration is None else calibration._asdict(),
        exact=None if None in exact else all(exact),
        mininet=_measured(results, after.since(before), settings),
        simulated=simulated,
    )


def _measured(results: list[NetResult], links: _Links, settings: NetSettings) -> NetworkRun:
    rounds = zip(*(result.reports for result in results), strict=True)
    reports = [report for each in rounds for report in each]
    lost = 0
    if settings.loss:  # by the workers' own faults, before and behind the links
        lost = sum(each.packets_sent for each in reports) - links.from_hosts
        lost += links.to_hosts - sum(each.packets_received for each in reports)
    return NetworkRun.of(
        tuple(each.seconds.network for each in reports),
        reports[0].elements,
        packets=links.packets,
        bytes=links.bytes + OVERHEAD * links.packets,
        dropped=links.dropped,
        lost=lost,
        retransmissions=sum(each.retransmissions for each in reports),
    )


def _idle_seconds(net: Any, settings: NetSettings) -> float:
    """Seconds from a packet of the first job until its result is there, with one under way.

    The switches' registers are zero again afterwards.
    """
    plan = settings.model_copy(update={"window": 1, "jobs": 1}).plan()
    with contextlib.ExitStack() as stack:
        workers = []
        for index, host in enumerate(plan.workers):
            node = net.get(host.name)
            with network_namespace_of(node.pid):
                opened: Any = connect(plan, index, node.defaultIntf().name)
            transport = stack.enter_context(opened)
            timing = settings.timing()
            workers.append(Worker(plan, index, codec="dense", transport=transport, timing=timing))
        for host in plan.servers:
            stack.enter_context(_serving(net, plan, host))
        gradient = np.ones(_CHUNKS * settings.values_per_packet, np.float32)
        with ThreadPoolExecutor(len(workers)) as pool:
            found: list[float] = []
            for _ in range(_TIMES):
                reports = [
                    report for _, report in pool.map(lambda it: it.all_reduce(gradient), workers)
                ]
                packets = max(each.packets_sent - each.retransmissions for each in reports)
                found.append(max(each.seconds.network for each in reports) / packets)
    for switch in net.switches:
        for register in program_of(switch).registers:
            switch.command(f"register_reset {register.name}")
    return median(found)


@contextlib.contextmanager
def _serving(net: Any, plan: Plan, host: PlannedHost) -> Iterator[None]:
    """A parameter server in a thread of this process."""
    node = net.get(host.name)
    with network_namespace_of(node.pid):
        opened: Any = connect_host(plan, host, node.defaultIntf().name)
    end = aggregation_of(plan.aggregation).server_end(plan, host)
    ended = threading.Event()
    with opened as transport, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, end, transport, lambda: "" if ended.is_set() else None)
        try:
            yield
        finally:
            ended.set()
            serving.result()


def _links(net: Any) -> _Links:
    """The kernel's counts of all links' ends.

    Raises:
        NetworkError: they cannot be read.
    """
    counts: dict[str, dict[str, int]] = {}
    for node in (*net.switches, *net.hosts):
        said = node.cmd("tc -s -j qdisc show")
        try:
            queues = [each for each in json.loads(said) if each["kind"] == "pfifo"]
            counts |= {each["dev"]: each for each in queues}
        except (ValueError, KeyError):
            raise NetworkError(f"the queues of {node.name} cannot be read: {said}") from None
    ends = [end for link in net.links for end in (link.intf1, link.intf2)]
    hosts = {host.defaultIntf().name for host in net.hosts}
    to_hosts = {
        (link.intf2 if link.intf1.name in hosts else link.intf1).name
        for link in net.links
        if {link.intf1.name, link.intf2.name} & hosts
    }

    def total(what: str, names: set[str]) -> int:
        return sum(counts[name][what] for name in names)

    every = {end.name for end in ends}
    return _Links(
        total("packets", every),
        total("bytes", every),
        total("drops", every),
        total("packets", hosts),
        total("packets", to_hosts),
    )
