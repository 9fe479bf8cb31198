"""All-reduces on a Mininet network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from innet.allreduce.loop import Vector
from innet.allreduce.report import assembled, comparison
from innet.codecs import check_gradient
from innet.core.errors import InnetError
from innet.core.settings import CollectiveName, ThroughputSettings
from innet.core.shards import Shards
from innet.mininet.network import make_folder, network, temporary_folder
from innet.mininet.nodes import BuiltinSwitch
from innet.mininet.settings import NetSettings
from innet.mininet.worker_pool import WorkerPool, interface_packets
from innet.processes.outcomes import load
from innet.records import Report, Seconds
from innet.records.throughput import Point
from innet.scenarios.throughput import all_reduce_settings

Watch = Callable[[str], None]
_SWEEP_TIMEOUT = 1.0  # seconds: packets that are only late are not retransmitted


@dataclass(frozen=True, slots=True)
class NetResult:
    """The result of an all-reduce on a network.

    Attributes:
        sum: float32, in the shape of the gradients.
        reports: one for each round.
        departed: workers that dropped out, and why; the others went on without them.
        busy: share of the machine's cores that was busy in each round, by any process.
        processor: seconds of all cores that workers, servers and switches used in each round.
    """

    sum: Vector
    reports: tuple[Report, ...]
    departed: Mapping[int, str]
    busy: tuple[float, ...] = ()
    processor: tuple[float, ...] = ()

    @property
    def report(self) -> Report:
        """The report of the last round."""
        return self.reports[-1]


def run(settings: NetSettings) -> NetResult:
    """``run_jobs`` for one job."""
    (result,) = run_jobs(settings)
    return result


def run_jobs(
    settings: NetSettings,
    *,
    watch: Watch = lambda _: None,
    prepare: Callable[[Any], None] | None = None,
    inspect: Callable[[Any, list[NetResult]], None] | None = None,
    on_failure: Callable[[Any, InnetError], None] | None = None,
) -> list[NetResult]:
    """Start a network, sum the gradients of all jobs over it at the same time, and stop it.

    Args:
        settings: the jobs and their network.
        watch: called with a line of text for each step.
        prepare: called with Mininet's network before the workers start.
        inspect: called with Mininet's network and the results before the network is stopped.
        on_failure: called with Mininet's network and the error, once the workers have ended.

    Returns:
        The result of each job. Packet counts of switches include all jobs.

    Raises:
        InnetError: something is missing or invalid, or a part of the network failed. The network is
            stopped.
    """
    jobs = range(1, settings.jobs + 1)
    gradients = {job: settings.of_job(job).gradients() for job in jobs}
    settings = settings.with_workers(len(gradients[1])).completed()
    settings.timing()  # an invalid codec is reported before anything is started
    shared = settings.shared_plan()
    for of_job in gradients.values():
        for worker, gradient in enumerate(of_job):
            check_gradient(gradient.reshape(-1), worker)
    if settings.pcap is not None:
        settings = settings.model_copy(update={"pcap": make_folder(settings.pcap)})
    with temporary_folder() as folder, contextlib.ExitStack() as running:
        some = "switch" if len(shared.switches) == 1 else "switches"
        watch(f"starting {len(shared.switches)} {some} and {len(shared.hosts)} hosts")
        topo = settings.mininet_topo(shared, folder)
        net = running.enter_context(network(topo, limited=settings.limited))
        if prepare is not None:
            prepare(net)
        watch("starting the workers")
        pools = {}
        busy: list[float] = []
        processor: list[float] = []
        reports: dict[int, list[Report]] = {job: [] for job in jobs}
        with _looked_at(net, on_failure), contextlib.ExitStack() as working:
            for job in jobs:
                local = folder / f"job{job}"
                local.mkdir()
                of_worker = settings.of_job(job).of_worker()
                pools[job] = WorkerPool(net, shared.jobs[job - 1], of_worker, local)
                for worker, gradient in enumerate(gradients[job]):
                    pools[job].write_gradient(worker, gradient)
                working.enter_context(pools[job])
            for number in range(settings.rounds):
                watch(f"{settings.collective} {number + 1} of {settings.rounds}")
                before = packets(net)
                cores = _core_times()
                pids = [pid for pool in pools.values() for pid in pool.pids()] + switch_pids(net)
                used = processor_seconds(pids)
                for pool in pools.values():
                    pool.begin()
                while not all([pool.poll() for pool in pools.values()]):  # noqa: C419 - all of them
                    pass
                events = {job: pool.finish() for job, pool in pools.items()}
                processor.append(processor_seconds(pids) - used)
                busy.append(_busy_since(cores))
                passed = packets(net) - before
                for job, pool in pools.items():
                    each = [Report.model_validate(event["report"]) for event in events[job]]
                    report = combined(gradients[job], pool, each, passed, settings.collective)
                    reports[job].append(with_links(report, settings))
        results = [
            NetResult(
                result_of(pools[job], settings.collective),
                tuple(reports[job]),
                dict(pools[job].departed),
                tuple(busy),
                tuple(processor),
            )
            for job in jobs
        ]
        if inspect is not None:
            inspect(net, results)
    return results


def result_of(pool: WorkerPool, name: CollectiveName) -> Vector:
    """What a collective gave: its parts one after the other, or what one worker has.

    Of an all-gather and a broadcast that is the last worker; of a barrier nothing.
    """
    if name == "barrier":
        return np.empty(0, np.float32)
    if name == "reduce-scatter":
        return np.concatenate([np.load(pool.output(worker)) for worker in pool.present])
    worker = pool.present[-1 if name in {"all-gather", "broadcast"} else 0]
    found: Vector = np.load(pool.output(worker))
    return found


def switch_pids(net: Any) -> list[int]:
    """The processes of a network's switches."""
    return [each.process.pid for each in net.switches if each.process is not None]


def processor_seconds(pids: list[int]) -> float:
    """Seconds of all cores that processes have used, in the kernel as well: proc(5)."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            # Behind the name, which may have any characters: fields 14 and 15.
            user, system = said.rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def _core_times() -> tuple[int, int]:
    """Ticks of all cores since the machine started, and those of them without work: proc(5)."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


def _busy_since(before: tuple[int, int]) -> float:
    """The part of all cores' time since ``before`` that was not idle."""
    total, idle = (now - then for now, then in zip(_core_times(), before, strict=True))
    return 1 - idle / total if total else 0.0


@contextlib.contextmanager
def _looked_at(net: Any, on_failure: Callable[[Any, InnetError], None] | None) -> Iterator[None]:
    """Calls ``on_failure`` with an error, and raises it again."""
    try:
        yield
    except InnetError as error:
        if on_failure is not None:
            on_failure(net, error)
        raise


def with_links(report: Report, settings: NetSettings) -> Report:
    """The report with a description of the links and of what limits them."""
    if not settings.links:
        return report
    return report.model_copy(update={"transport": f"{report.transport}, {settings.links}"})


def combined(
    gradients: list[Vector],
    workers: WorkerPool,
    reports: list[Report],
    switch_packets: int,
    name: CollectiveName = "all-reduce",
) -> Report:
    """One report from the workers' reports, with the verification of what they have.

    Verification is not possible if a worker died after its words were summed, before it wrote them.
    """
    report = combined_counts(reports, switch_packets)
    if name in {"all-gather", "broadcast", "barrier"}:
        return report.model_copy(update={"exact": _arrived(gradients, workers, name)})
    known = [worker for worker in workers.contributors if workers.outcome(worker).exists()]
    if len(known) < len(workers.contributors):
        return report
    outcomes = [load(workers.outcome(worker)) for worker in known]
    flat = [gradients[worker].reshape(-1) for worker in known]
    if name != "all-reduce":
        owners = tuple(known) if name == "reduce-scatter" else (0,)
        shards = Shards.of(flat[0].size, owners)
        whole = assembled(dict(zip(known, outcomes, strict=True)), shards)
        outcomes = list(whole.values())
    return report.model_copy(update=comparison(flat, outcomes))


def _arrived(gradients: list[Vector], workers: WorkerPool, name: CollectiveName) -> bool | None:
    """Whether all workers have what was gathered or broadcast; None of a barrier."""
    if name == "barrier":
        return None
    truth = gradients[0].reshape(-1)
    if name == "all-gather":
        shards = Shards.of(truth.size, workers.present)
        parts = [gradients[worker].reshape(-1)[shards.part(worker)] for worker in shards.owners]
        truth = np.concatenate(parts)
    return all(
        np.array_equal(np.load(workers.output(worker)).reshape(-1), truth)
        for worker in workers.present
    )


def combined_counts(reports: list[Report], switch_packets: int) -> Report:
    """One report from the workers' reports, without the parts that need their outcomes."""
    first = reports[0]
    return first.model_copy(
        update={
            "transport": f"Mininet, {first.transport}",
            "packets_sent": sum(each.packets_sent for each in reports),
            "packets_received": sum(each.packets_received for each in reports),
            "bytes_sent": max(each.bytes_sent for each in reports),
            "retransmissions": sum(each.retransmissions for each in reports),
            "seconds": Seconds(
                encode=fmean(each.seconds.encode for each in reports),
                network=max(each.seconds.network for each in reports),
                decode=fmean(each.seconds.decode for each in reports),
                total=max(each.seconds.total for each in reports),
            ),
            "switch_packets": switch_packets,
        }
    )


def packets(net: Any) -> int:
    """How many packets the switches have processed."""
    return sum(
        each.statistics()["packets_in"]
        if isinstance(each, BuiltinSwitch)
        else interface_packets(each)
        for each in net.switches
    )


def measure(point: Point, settings: ThroughputSettings) -> list[Report]:
    """The all-reduces of one point of a sweep; see ``innet.scenarios.throughput.Measure``."""
    gradients = all_reduce_settings(point, settings)
    result = run(
        NetSettings.model_validate(
            {
                "switch": point.switch,
                "workers": point.workers,
                "codec": point.codec,
                "values_per_packet": point.values_per_packet,
                "window": point.window,
                "size": gradients.size,
                "density": settings.density,
                "seed": settings.seed,
                "rounds": 1 + settings.rounds,
                "framing": settings.framing,
                "timeout": _SWEEP_TIMEOUT,
                "topology": point.topology,
            }
        )
    )
    return list(result.reports)
