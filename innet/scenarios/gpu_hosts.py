"""Workers that are GPUs, several of a host: who they are, and in-network sums of what they have.

The GPUs of a host first sum among themselves, each a part of the gradient. Each network card then
takes part in an all-reduce of its own, of the part that its GPUs have. At last the GPUs of a host
give each other the sums. Pieces of the gradient follow each other through these three steps, so
that local links and the network are busy at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from innet.allreduce.report import PacketCounts, Rounds, build_report, simulated
from innet.allreduce.sizes import RoundSizes
from innet.codecs import build_codec
from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, SizedSegment
from innet.core.settings import FaultSettings, SimulateSettings
from innet.records import Report
from innet.records.simulation import BackgroundTraffic, NetworkSamples
from innet.scenarios.background import Background
from innet.scenarios.baselines import Exchanged, Snapshot, network_fields, with_fields
from innet.scenarios.fixed_function import ELEMENT_TYPES, check_ports
from innet.scenarios.jobs import sizes_of
from innet.scenarios.samples import Sampler
from innet.scenarios.timeline import Times
from innet.scenarios.workload import BucketShape
from innet.sim import Network
from innet.sim.captures import LinkCaptures
from innet.sim.fast_forward import Forwarded
from innet.sim.flows import Flow
from innet.sim.gpu_hosts import GpuHosts
from innet.sim.messages import ELEMENTS
from innet.sim.network import SECOND, is_steady
from innet.topology import EmulatedNetwork, Request, plan_jobs
from innet.topology.plan import SharedPlan


def gpu_hosts_of(settings: SimulateSettings, network: Network) -> GpuHosts | None:
    """The hosts of a simulation whose workers are GPUs; None where each worker is a host.

    Raises:
        InputError: workers that do not fill hosts, or network cards that GPUs cannot share.
    """
    gpus = settings.gpus_per_host
    if gpus == 1:
        if settings.nics_per_host not in {None, 1}:
            raise InputError(
                f"nics_per_host = {settings.nics_per_host}, but a host has one GPU; give "
                "gpus_per_host, or leave it out."
            )
        return None
    if settings.workers % gpus:
        raise InputError(
            f"{settings.workers} workers do not fill hosts of {gpus} GPUs; give a multiple of "
            "gpus_per_host."
        )
    return GpuHosts(
        settings.workers // gpus,
        gpus,
        settings.nics_per_host or gpus,
        network.local_rate,
        network.local_latency,
    )


def plan_of_hosts(settings: SimulateSettings, gpus: GpuHosts) -> SharedPlan:
    """A job for each network card of a host, whose workers are these cards. Packets are thin.

    Raises:
        InputError: the request exceeds the program's resources.
    """
    network = settings.with_workers(gpus.hosts)
    request = Request(
        **network.model_dump(
            include={"workers", "window", "framing", "topology", "racks", "depth", "ports"}
        ),
        thin=True,
    )
    values = settings.elements_per_packet or settings.values_per_packet
    return plan_jobs(network.program, values, request, gpus.nics)


class LocalSteps:
    """What the GPUs of a host take to sum among themselves, and to give each other the sums.

    Args:
        gpus: how they are joined.
        size: bytes of the gradient, which goes through all steps in pieces.
        nvls: their switch sums and multicasts; otherwise there is a ring.

    Attributes:
        step: picoseconds of a piece's reduce-scatter, or of its all-gather.
        busy: picoseconds for which a local link is busy with all pieces but one, each way.
    """

    def __init__(self, gpus: GpuHosts, size: int, *, nvls: bool = False) -> None:
        if gpus.gpus == 1:
            self.step = self.busy = 0
            return
        pieces = gpus.pieces(size)
        whole, part = (int(gpus.ticks(size / pieces / each)) for each in (1, gpus.gpus))
        if nvls:
            self.step = whole + part + gpus.latency_ticks
            self.busy = (pieces - 1) * (whole + part)
        else:
            self.step = (gpus.gpus - 1) * (part + gpus.latency_ticks)
            self.busy = (pieces - 1) * 2 * (gpus.gpus - 1) * part

    def around(self, ticks: int) -> int:
        """Picoseconds of an all-reduce whose network takes so many."""
        return self.step + max(ticks, self.busy) + self.step


class HostsNetwork:
    """Hosts with several GPUs, or switches without a program, that sum one bucket after the other.

    Packets are thin, and a card's part of a bucket is coded as one vector. As with other networks,
    what takes equally long is simulated once. Switches without a program add elements as they are,
    and so do those within the hosts (``innet.scenarios.fixed_function``).

    Args:
        settings: of the simulation.
        network: rates, delays and queues.
        buckets: what is summed.
        gpus: which the workers are.
        background: packets beside the all-reduces.

    Attributes:
        plan: a job for each network card of a host.
        all_reduces: how many were simulated.
        last: report of the last of them, of the cards' words.

    Raises:
        InputError: settings that such hosts do not have.
    """

    last: Report

    def __init__(
        self,
        settings: SimulateSettings,
        network: Network,
        buckets: Sequence[BucketShape],
        gpus: GpuHosts,
        background: Background,
    ) -> None:
        for name, usual in (
            ("faults", FaultSettings()), ("partial_after", None), ("window_control", "fixed"),
        ):  # fmt: skip
            if getattr(settings, name) != usual:
                raise InputError(
                    f"{name} is not for hosts with several GPUs, nor for switches without a "
                    "program; leave it out."
                )
        self._settings, self._buckets, self._gpus = settings, buckets, gpus
        self.plan = plan_of_hosts(settings, gpus)
        self._is_fixed = settings.switch != "p4"
        if self._is_fixed:
            check_ports(self.plan)
        self._emulation = EmulatedNetwork(self.plan, seed=settings.seed, network=network)
        self._emulation.timed.fast_forward = settings.fast_forward
        self._background = background
        if background.flows:
            self._emulation.timed.add_flows([self._renumbered(flow) for flow in background.flows])
        self._steady = is_steady(network) and not background.flows
        self._cards = [end for job in self._emulation.job_workers for end in job]
        self._sampler: Sampler | None = None
        if settings.samples:
            self._sampler = Sampler(
                network,
                workers=gpus.hosts,
                background=background,
                wanted=settings.samples,
                elements=max(bucket.elements for bucket in buckets),
                interval=settings.sample_interval,
                switches=self._emulation.switches,
                ends=self._cards,
            )
        self._known: dict[int, Exchanged] = {}
        self.all_reduces = 0
        self.present = list(range(settings.workers))

    @property
    def forwarded(self) -> Forwarded:
        """What was skipped."""
        return self._emulation.timed.forwarded

    def _renumbered(self, flow: Flow) -> Flow:
        """A flow between cards, which are numbered host by host, as the jobs number them."""
        gpus = self._gpus
        source, destination = (
            card % gpus.nics * gpus.hosts + card // gpus.nics
            for card in (flow.source, flow.destination)
        )
        return replace(flow, source=source, destination=destination)

    def capture(self, folder: Path) -> None:
        """Write a capture of each link in each direction into a folder from now on."""
        LinkCaptures(self._emulation.timed, folder)

    @property
    def recirculates(self) -> bool:
        """Whether packets have passed a switch again."""
        switches = self._emulation.switches.values()
        return any(switch.statistics.recirculated for switch in switches)

    def end_samples(self) -> NetworkSamples | None:
        """Sample the network no longer; what was sampled, if it was."""
        sampler, self._sampler = self._sampler, None
        return None if sampler is None else sampler.end()

    def background(self) -> tuple[BackgroundTraffic, ...]:
        """What became of the packets beside the all-reduces."""
        return self._background.results(self._emulation.timed.flow_counts())

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, Exchanged]:
        """Sum a bucket.

        Args:
            bucket: its number.
            starts: when each GPU can send, simulated seconds.

        Returns:
            When each GPU has the sum, and what it took.
        """
        size, begin = self._buckets[bucket].elements, float(starts.min())
        together = begin == float(starts.max())
        if together and size in self._known and self._sampler is None:
            taken = self._known[size]
        else:
            taken = self._simulated(size, starts, begin)
            if together and self._steady and not taken.simulated.retransmissions:
                self._known[size] = taken
        return begin + np.array(taken.ends) / SECOND, taken

    def _simulated(self, size: int, starts: Times, begin: float) -> Exchanged:
        """What the all-reduce of so many elements takes."""
        gpus, emulation, began = self._gpus, self._emulation, time.perf_counter()
        simulation = emulation.timed
        cards = self._cards
        before = [PacketCounts.of(end.counters) for end in cards]
        switch_packets = emulation.packets_in
        # Step 1: a host's cards begin when its GPUs have summed the first piece among themselves.
        kind = ELEMENTS[ELEMENT_TYPES[str(self._settings.codec)] if self._is_fixed else "float32"]
        local = LocalSteps(gpus, int(kind.bytes(size)), nvls=self._is_fixed)
        last_gpu = starts.reshape(gpus.hosts, gpus.gpus).max(axis=1)
        later = (last_gpu - last_gpu.min()).tolist()
        since = max(float(last_gpu.min()) + local.step / SECOND, simulation.now)
        counted = Snapshot(simulation, since)
        if self._sampler is not None:
            self._sampler.begin(simulation, since)
        # Step 2: each card has an equal part, as NCCL pads it.
        part = -(-size // gpus.nics)
        if self._is_fixed:
            words = -(-int(kind.bytes(part)) // 4)
            sizes = RoundSizes(part, ((SizedSegment(ReduceOp.SUM, words),),))
        else:
            sizes = sizes_of(
                self._settings.model_copy(update={"workers": gpus.hosts, "size": part})
            )
        rounds = [[list(each) for each in sizes.rounds]] * gpus.nics
        done = emulation.run_rounds(
            rounds,
            dict.fromkeys(range(gpus.nics), since - simulation.now),
            later=lambda _job, number: [0.0] * gpus.hosts if number else later,
        )
        # Step 3: a GPU has the sum when all cards of its host have theirs, and all GPUs gave on
        # what they have.
        ended = round(max(each.end for each in done) * SECOND)
        first = round(begin * SECOND)
        of_cards = [simulation.finished(card) for card in range(gpus.hosts * gpus.nics)]
        of_hosts = np.array(of_cards).reshape(gpus.nics, gpus.hosts).max(axis=0)
        taken = np.rint((of_hosts - since) * SECOND).astype(np.int64)
        ends = np.rint(since * SECOND) - local.step - first
        ends = ends.astype(np.int64) + [local.around(int(each)) for each in taken]
        # Step 4: the report, of all cards together.
        counts = simulation.counts().since(counted.counts)
        report = build_report(
            self.plan.jobs[0],
            build_codec(self._settings.codec),
            Rounds(
                elements=size,
                rounds=len(sizes.rounds),
                network=time.perf_counter() - began,
                details={"sizes": sizes.source},
            ),
            [
                PacketCounts.of(end.counters).since(then)
                for end, then in zip(cards, before, strict=True)
            ],
            engine="jit",
            transport=emulation.name,
            total_seconds=time.perf_counter() - began,
            simulated_seconds=(ended - round(since * SECOND)) / SECOND,
            switch_packets=emulation.packets_in - switch_packets,
        )
        window = self.plan.jobs[0].window
        report = report.model_copy(
            update={
                "workers": self._settings.workers,
                **({"program": self._settings.switch} if self._is_fixed else {}),
                "simulated": simulated(report, counts, 0.0, window, simulation),
            }
        )
        waited = round((float(starts.max()) - begin) * SECOND)
        longest = simulation.queue_bytes_max()
        fields = network_fields(size, int(ends.max()), waited, counts, longest)
        self.last = with_fields(report, fields)
        self.all_reduces += 1
        assert self.last.simulated is not None
        each_end = np.repeat(ends, gpus.gpus).tolist()
        return Exchanged(tuple(each_end), self.last.simulated, report.bytes_sent)
