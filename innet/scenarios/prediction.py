"""The network of ``innet net`` in simulated time: same plan, rates, queues, window and timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from innet.allreduce.loop import Vector
from innet.allreduce.sizes import RoundSizes, round_sizes
from innet.codecs import Codec, build_codec
from innet.core.errors import InputError
from innet.core.reduce_op import Segment
from innet.core.settings import MininetSettings
from innet.protocol import Timing
from innet.records import NetworkRun, PredictionRecord, Record
from innet.sim.network import OVERHEAD, SHORTEST, Network
from innet.topology import EmulatedNetwork, SharedPlan

_WITHOUT = (
    ("rate", "give it, in Mbit/s: without a rate the machine is the limit"),
    ("queue", "give it: the packets that a switch's port holds"),
)
_SATURATED = 0.85  # busy cores, from which on they are the limit
_HAS_NO = (
    ("duplicate", "it has loss"),
    ("reorder", "it has loss"),
    ("partial_after", "leave it out: all workers of a prediction take part"),
)


def check_predictable(settings: MininetSettings) -> None:
    """Refuse settings that Mininet and a simulated network do not share.

    Raises:
        InputError: names the setting, and what to do.
    """
    for name, why in _WITHOUT:
        if getattr(settings, name) is None:
            raise InputError(f"a prediction needs {name}; {why}.")
    for name, why in _HAS_NO:
        if getattr(settings, name):
            raise InputError(f"a prediction has no {name}; {why}.")
    if settings.switch != "builtin":
        raise InputError(
            f"switch = {settings.switch!r}: a prediction is of the built-in switch; what takes "
            "simple_switch its time is no link."
        )
    if settings.engine != "jit":
        raise InputError(f"engine = {settings.engine!r}: simulated time has the engine jit only.")
    if settings.priority_queues != 1:
        raise InputError(
            f"priority_queues = {settings.priority_queues}: a prediction has one queue per port."
        )


class Calibration(NamedTuple):
    """Processor time of packets, measured by a run of Mininet that kept the machine's cores busy.

    Attributes:
        packet_seconds: seconds of a core for each packet on a link, of workers, servers and
            switches together.
        cores: how many of them they had.
    """

    packet_seconds: float
    cores: float


def calibration_of(path: str | Path) -> Calibration:
    """The calibration by an earlier prediction.

    Args:
        path: its record.

    Raises:
        InputError: another record, or the cores were not what limited it.
    """
    record = Record.load(path)
    if not isinstance(record, PredictionRecord) or not record.processor_seconds:
        raise InputError(f"{path} is no record of innet net predict with processor times.")
    if record.busy < _SATURATED:
        raise InputError(
            f"{path}: the cores were busy for {record.busy:.0%} of the time, so what packets take "
            "of them when they are the limit is not known; calibrate by a run at a higher rate."
        )
    return Calibration(record.packet_seconds, record.cores)


def simulated_network(
    settings: MininetSettings,
    shared: SharedPlan,
    idle: float,
    calibration: Calibration | None = None,
) -> Network:
    """The simulated network like Mininet's.

    Links have the rate, switches' ports the queue. What a packet takes in Mininet with idle links
    is the time of the machine's processors. It becomes the latency of the switches, less what the
    wire takes in simulated time: the kernel's token bucket sends a single packet at once.

    With a calibration, hosts take as long for a packet as all processes together have cores for it:
    in Mininet they share the machine's cores, so that a chunk takes what its packets on all links
    take, over the number of cores. Links and cores then limit in the simulation what limits here.

    Several jobs' workers are late by chance (``host_jitter``), as processes that wake up are: by
    half of the time on idle links in the mean, all of which is processor time. Otherwise equally
    fast ones would lock each other out where queues are short.

    Args:
        settings: of the network in Mininet.
        shared: its plan.
        idle: seconds from sending a packet until its result is there, while nothing else is under
            way.
        calibration: see above.
    """
    assert settings.rate is not None
    assert settings.queue is not None
    rate = settings.rate * 1e6
    plan = shared.jobs[0]
    distances = plan.distances()
    links = max(distances[host.name] for host in plan.workers)  # one way, up to the root
    passes = 2 * links - 1  # of switches' pipelines
    if plan.servers:  # behind the root
        passes, links = 2 * links, links + 1
    wire = 8 * (max(plan.layout.wire_size, SHORTEST) + OVERHEAD) / rate
    delay = settings.link_delay / 1e3
    measured_delay = delay if settings.delay_by == "netem" else 0.0
    rest = max(0.0, idle - 2 * links * (wire + measured_delay))
    host = 0.0
    if calibration is not None:
        # Packets that the chunks of all jobs put onto links, each way. A worker has two of them.
        packets = sum(2 * (len(each.hosts) + len(each.trunks())) for each in shared.jobs)
        host = packets * calibration.packet_seconds / calibration.cores / 2
    jitter = idle / 2 if len(shared.jobs) > 1 else 0.0
    return Network(
        rate=rate,
        trunk_rate=rate,
        delay=delay,
        switch_latency=max(0.0, rest - 2 * host - jitter) / passes,
        queue_packets=settings.queue,
        host_receive=host,
        host_send=host,
        host_cores=1,
        host_jitter=jitter,
    )


def simulate_jobs(
    settings: MininetSettings,
    shared: SharedPlan,
    network: Network,
    gradients: Mapping[int, Sequence[Vector]],
    timing: Timing,
) -> NetworkRun:
    """Let all jobs do their rounds in simulated time.

    Packets are full, and their values are 0. Their number is what the codec sends for these
    gradients.

    Args:
        settings: of the rounds, the codec and the loss.
        shared: the plan of all jobs.
        network: rates and queues.
        gradients: by job, from 1, of each worker.
        timing: the workers' timers.

    Raises:
        StalledError: a worker gave up.
    """
    emulation = EmulatedNetwork(shared, network=network, timing=timing, seed=settings.seed)
    simulation = emulation.timed
    if settings.loss:
        for cable in range(len(shared.hosts)):  # theirs come first
            simulation.set_loss(cable, settings.loss)
    codecs: dict[int, list[Codec]] = {
        job: [build_codec(settings.codec, seed=settings.seed, worker=worker) for worker in each]
        for job, each in ((job, range(len(of_job))) for job, of_job in gradients.items())
    }
    flat = {job: [each.reshape(-1) for each in of_job] for job, of_job in gradients.items()}
    seconds: list[float] = []
    for _ in range(settings.rounds):
        sizes = [round_sizes(codecs[job], flat[job]) for job in gradients]
        begun = simulation.now
        # The last round of a job comes last, and is what remains of it.
        ends = {
            done.job: done.end for done in emulation.run_rounds([_segments(each) for each in sizes])
        }
        seconds += [ends.get(job, begun) - begun for job in range(len(sizes))]
    counts = simulation.counts()
    return NetworkRun.of(
        tuple(seconds),
        flat[1][0].size,
        packets=counts.packets,
        bytes=counts.bytes,
        fabric=simulation.fabric,
        dropped=counts.dropped,
        lost=counts.lost,
        retransmissions=sum(
            end.counters.retransmissions for workers in emulation.job_workers for end in workers
        ),
    )


def _segments(sizes: RoundSizes) -> list[list[Segment]]:
    return [
        [Segment(each.operation, np.zeros(each.size, np.int32)) for each in one]
        for one in sizes.rounds
    ]
