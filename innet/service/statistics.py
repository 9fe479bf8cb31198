"""Statistics of a service, as one document or for Prometheus over HTTP.

``docs/service.md`` lists the keys.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import MissingToolError, NetworkError
from innet.core.numba_cache import njit
from innet.core.packets import MAX_PORT, PacketBatch
from innet.protocol import SlotReader
from innet.protocol.message import serial_distance
from innet.service.coordinator import JobCoordinator, Jobs
from innet.service.hosted_switch import Hosted
from innet.service.slot_partition import SlotPartitions, is_of_trees, plan_of
from innet.transport.peers import Address, PeerPorts

Document = dict[str, Any]

_REMEDY = "Install it with `pip install 'innet[metrics]'`."

DROP_REASONS = (
    "not_innet",
    "truncated",
    "checksum",
    "malformed",
    "not_admitted",
    "slot_range",
    "stale",
    "mismatch",
    "late",
    "overtaken",
)
"""The constants ``DROP_*`` of slots.p4 and harvest.p4, in lower case: names of the indices of the
counter ``dropped``, from 1 on. Only harvest.p4 has the last one."""

TREE_DROP_REASONS = (*DROP_REASONS[:8], "not_below", "late", "lost_state")
"""The same of tree.p4."""


class PortCounts(NamedTuple):
    """The arrays of ``PortTraffic``, for compiled code.

    Attributes:
        arrived, left, heard: as in ``PortTraffic``.
        bytes: shape (2,), int64: in and out.
    """

    arrived: NDArray[np.int64]
    left: NDArray[np.int64]
    heard: NDArray[np.float64]
    bytes: NDArray[np.int64]


@njit(cache=True, nogil=True, allocates=False)
def count_arrived(
    port: NDArray[np.int32],
    length: NDArray[np.int32],
    offset: int,
    now: float,
    counts: PortCounts,
) -> None:
    """Count packets that arrived at ``now``, without their first ``offset`` bytes."""
    for row in range(len(port)):
        counts.arrived[port[row]] += 1
        counts.heard[port[row]] = now
        counts.bytes[0] += length[row] - offset


@njit(cache=True, nogil=True, allocates=False)
def count_left(
    port: NDArray[np.int32], length: NDArray[np.int32], offset: int, counts: PortCounts
) -> None:
    """Count packets that leave, without their first ``offset`` bytes."""
    for row in range(len(port)):
        counts.left[port[row]] += 1
        counts.bytes[1] += length[row] - offset


class PortTraffic:
    """Packets by port.

    Args:
        offset: bytes before the innet header of a packet.
        ports: how many ports there are.

    Attributes:
        arrived, left: shape (ports,), int64: frames of the port's worker, and frames to it.
        heard: shape (ports,): when the last frame arrived from the port, by ``time.monotonic``; 0
            for never.
        bytes_in, bytes_out: of all frames, with the innet header and without those before it.
        counts: the same arrays for compiled code.
    """

    def __init__(self, offset: int, ports: int = MAX_PORT + 2) -> None:
        self.arrived = np.zeros(ports, np.int64)
        self.left = np.zeros(ports, np.int64)
        self.heard = np.zeros(ports)
        self._bytes = np.zeros(2, np.int64)
        self.counts = PortCounts(self.arrived, self.left, self.heard, self._bytes)
        self._offset = offset

    @property
    def bytes_in(self) -> int:
        return int(self._bytes[0])

    @property
    def bytes_out(self) -> int:
        return int(self._bytes[1])

    def arrive(self, packets: PacketBatch) -> None:
        """Count packets that arrived."""
        count_arrived(packets.port, packets.length, self._offset, time.monotonic(), self.counts)

    def leave(self, packets: PacketBatch) -> None:
        """Count packets that leave."""
        count_left(packets.port, packets.length, self._offset, self.counts)

    def beside(self) -> PortTraffic:
        """Counts of another thread, to be added."""
        return PortTraffic(self._offset, len(self.arrived))

    def add(self, other: PortTraffic) -> None:
        """Add what another thread has counted, which it counts from 0 again."""
        self.arrived += other.arrived
        self.left += other.left
        self._bytes += other._bytes
        np.maximum(self.heard, other.heard, out=self.heard)
        for counted in other.counts:
            counted[:] = 0

    def reset(self, port: int) -> None:
        """Reset the counts of ``port``, which another worker gets."""
        self.arrived[port] = self.left[port] = 0
        self.heard[port] = 0


class OpenSlots(NamedTuple):
    """Slots of a job whose chunk is not complete.

    Attributes:
        number: how many slots.
        sequence: sequence number of the oldest chunk; None if there is none.
        missing: workers whose packets the oldest chunk lacks.
    """

    number: int
    sequence: int | None
    missing: tuple[int, ...]


def open_slots(read: SlotReader, slots: int, workers: Sequence[int]) -> OpenSlots:
    """The slots that wait for workers, from the switch's registers.

    Args:
        read: reads the job's slots.
        slots: how many slots the job has.
        workers: the workers that take part.
    """
    full_bitmap = sum(1 << worker for worker in workers)
    number, oldest, members = 0, None, 0
    for slot in range(slots):
        for version in (0, 1):
            held = read(slot, version)
            if held.bitmap in (0, full_bitmap):
                continue
            number += 1
            if oldest is None or serial_distance(held.sequence, oldest) < 0:
                oldest, members = held.sequence, held.bitmap
    lacking = full_bitmap & ~members if number else 0
    missing = tuple(worker for worker in workers if lacking >> worker & 1)
    return OpenSlots(number, oldest, missing)


class Parts(NamedTuple):
    """The parts of a service that statistics are read from."""

    switch: Hosted
    partitions: SlotPartitions
    ports: PeerPorts
    jobs: Jobs
    traffic: PortTraffic


def statistics(parts: Parts, now: float) -> dict[str, Any]:
    """Packets, drops by reason, and jobs, as ``docs/service.md`` names them."""
    switch, traffic, counts = parts.switch.counts(), parts.traffic, parts.ports.counts
    dropped = switch.dropped[1:].tolist()
    return {
        "packets": {
            "in": switch.packets_in,
            "out": switch.packets_out,
            "bytes_in": traffic.bytes_in,
            "bytes_out": traffic.bytes_out,
        },
        "drops": {
            "lost_on_arrival": parts.ports.lost,
            "lost_on_departure": parts.ports.dropped,
            "unknown_sender": counts.unknown_senders,
            "wrong_length": counts.wrong_length - counts.hellos,
            **dict(zip(_reasons(parts), dropped, strict=False)),
        },
        "jobs": [_job(parts, job, now) for job in parts.jobs],
    }


def _reasons(parts: Parts) -> tuple[str, ...]:
    is_tree = is_of_trees(parts.partitions.program.program)
    return TREE_DROP_REASONS if is_tree else DROP_REASONS


def _job(parts: Parts, job: JobCoordinator, now: float) -> dict[str, Any]:
    partitions, traffic = parts.partitions, parts.traffic
    held = OpenSlots(0, None, ())
    if job.epochs:
        plan = plan_of(partitions.describe(job))
        held = open_slots(
            parts.switch.reader(job.partition, plan), plan.job.slots, plan.job.present
        )
    members = []
    for worker, member in sorted(job.members.items()):
        port = partitions.port(job.partition, worker)
        heard = float(traffic.heard[port])
        members.append(
            {
                "worker": worker,
                "state": member.state.value,
                "address": "" if member.address is None else str(member.address),
                "packets_in": int(traffic.arrived[port]),
                "packets_out": int(traffic.left[port]),
                "silent_seconds": round(now - heard, 3) if heard else None,
            }
        )
    return {
        "name": job.name,
        "number": job.number,
        "workers": job.workers,
        "epoch": job.epoch,
        "epochs": job.epochs,
        "absent": sorted(job.absent),
        "running": job.is_running,
        "awaited": [] if job.is_running else job.awaited,
        "slots": partitions.window(job.workers),
        "slots_open": held.number,
        "oldest_open_sequence": held.sequence,
        "missing": list(held.missing),
        "members": members,
    }


class Collector:
    """A collector for the Prometheus client library, called at every scrape.

    Args:
        ask: returns the document of ``SwitchService.statistics``, from any thread.
    """

    def __init__(self, ask: Callable[[], Document]) -> None:
        self._ask = ask
        self._core = _library("core")

    def describe(self) -> list[Any]:
        """No metrics before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Metric families, from one document."""
        document = self._ask()
        yield from self._switch(document)
        yield from self._jobs(document["jobs"])

    def _switch(self, document: Document) -> Iterator[Any]:
        counter, gauge = self._core.CounterMetricFamily, self._core.GaugeMetricFamily
        packets = counter(
            "innet_switch_packets", "Frames of workers in, and to workers out.", labels=["way"]
        )
        size = counter(
            "innet_switch_bytes", "Bytes of them, innet headers included.", labels=["way"]
        )
        for way in ("in", "out"):
            packets.add_metric([way], document["packets"][way])
            size.add_metric([way], document["packets"][f"bytes_{way}"])
        dropped = counter(
            "innet_switch_dropped_packets", "Datagrams not taken or not sent.", labels=["reason"]
        )
        for reason, number in document["drops"].items():
            dropped.add_metric([reason], number)
        switch = document["switch"]
        yield packets
        yield size
        yield dropped
        yield counter(
            "innet_switch_refused_requests",
            "Control requests that were refused.",
            value=switch["refused_requests"],
        )
        yield gauge("innet_switch_clients", "Control connections.", value=switch["clients"])
        yield gauge("innet_switch_jobs_max", "Room for jobs.", value=switch["jobs_max"])

    def _jobs(self, jobs: list[Document]) -> Iterator[Any]:
        gauge = self._core.GaugeMetricFamily
        of_jobs = {
            "workers": "Workers that the job has.",
            "running": "1 while all workers are in the present epoch.",
            "epoch": "The present epoch.",
            "slots": "Slots of the job.",
            "slots_open": "Slots that wait for a worker.",
        }
        for name, text in of_jobs.items():
            family = gauge(f"innet_job_{name}", text, labels=["job"])
            for job in jobs:
                family.add_metric([job["name"]], job[name])
            yield family
        epochs = self._core.CounterMetricFamily(
            "innet_job_epochs", "Epochs that have begun.", labels=["job"]
        )
        awaited = gauge(
            "innet_job_awaited",
            "1 for each worker that the job's next epoch, or its oldest open slot, waits for.",
            labels=["job", "worker"],
        )
        packets = self._core.CounterMetricFamily(
            "innet_worker_packets", "Frames of a worker and to it.", labels=["job", "worker", "way"]
        )
        silent = gauge(
            "innet_worker_silent_seconds", "Since its last frame.", labels=["job", "worker"]
        )
        for job in jobs:
            epochs.add_metric([job["name"]], job["epochs"])
            for worker in sorted({*job["awaited"], *job["missing"]}):
                awaited.add_metric([job["name"], str(worker)], 1)
            for member in job["members"]:
                labels = [job["name"], str(member["worker"])]
                packets.add_metric([*labels, "in"], member["packets_in"])
                packets.add_metric([*labels, "out"], member["packets_out"])
                if member["silent_seconds"] is not None:
                    silent.add_metric(labels, member["silent_seconds"])
        yield from (epochs, awaited, packets, silent)


@contextmanager
def exporting(where: Address, ask: Callable[[], Document]) -> Iterator[Address]:
    """Serve metrics at http://ADDRESS/metrics while the context is open.

    Yields:
        The address; port 0 takes a free one.

    Raises:
        MissingToolError: the library is not installed.
        NetworkError: the address is not this machine's, or the port is in use.
    """
    library = _library("exposition")
    registry = _library("registry").CollectorRegistry()
    registry.register(Collector(ask))
    try:
        server, thread = library.start_http_server(where.udp_port, where.ip, registry)
    except OSError as error:
        raise NetworkError(f"cannot serve metrics at {where}: {error.strerror or error}.") from None
    try:
        yield Address(*server.server_address[:2])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _library(part: str) -> Any:
    try:
        return importlib.import_module(f"prometheus_client.{part}")
    except ImportError:
        raise MissingToolError("prometheus_client", "--metrics", _REMEDY) from None
