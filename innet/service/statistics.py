"""What a service has done and what its jobs wait for: counted as it runs, told as one document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.protocol import SlotReader
from innet.protocol.message import serial_distance
from innet.service.coordinator import Jobs, RunningJob
from innet.service.hosted_switch import Board
from innet.service.slot_partition import plan_of
from innet.transport.peers import PeerPorts

_PORTS = 512

REFUSALS = (
    "foreign",
    "truncated",
    "damaged",
    "malformed",
    "stranger",
    "slot",
    "stale",
    "disagrees",
    "late",
)
"""Why slots.p4 refuses packets: the names of the indices 1 to 9 of its counter ``refused``."""


class Counts(NamedTuple):
    """What ``Traffic`` counts in; compiled code does, too.

    Attributes:
        arrived, left, heard: as in ``Traffic``.
        bytes: shape (2,), int64: in and out.
    """

    arrived: NDArray[np.int64]
    left: NDArray[np.int64]
    heard: NDArray[np.float64]
    bytes: NDArray[np.int64]


@njit(cache=True, nogil=True)
def count_arrived(port: NDArray[np.int32], size: int, now: float, counts: Counts) -> None:
    """Count packets of ``size`` bytes that came from ports below 512 at ``now``."""
    for each in port:
        counts.arrived[each] += 1
        counts.heard[each] = now
    counts.bytes[0] += len(port) * size


@njit(cache=True, nogil=True)
def count_left(
    port: NDArray[np.int32], length: NDArray[np.int32], offset: int, counts: Counts
) -> None:
    """Count packets that leave by ports below 512, without their first ``offset`` bytes."""
    for row in range(len(port)):
        counts.left[port[row]] += 1
        counts.bytes[1] += length[row] - offset


class Traffic:
    """Packets by port.

    Args:
        size: bytes of a packet that arrives, from the innet header on.
        offset: bytes before the innet header of one that leaves.

    Attributes:
        arrived, left: shape (512,), int64: frames of the port's worker, and frames to it.
        heard: shape (512,): when the last frame came from there, by ``time.monotonic``; 0 for
            never.
        bytes_in, bytes_out: of all frames, with the innet header and without those before it.
        counts: all of it.
    """

    def __init__(self, size: int, offset: int) -> None:
        self.arrived = np.zeros(_PORTS, np.int64)
        self.left = np.zeros(_PORTS, np.int64)
        self.heard = np.zeros(_PORTS)
        self._bytes = np.zeros(2, np.int64)
        self.counts = Counts(self.arrived, self.left, self.heard, self._bytes)
        self._size = size
        self._offset = offset

    @property
    def bytes_in(self) -> int:
        return int(self._bytes[0])

    @property
    def bytes_out(self) -> int:
        return int(self._bytes[1])

    def arrive(self, packets: PacketBatch) -> None:
        """Take up what came."""
        count_arrived(packets.port, self._size, time.monotonic(), self.counts)

    def leave(self, packets: PacketBatch) -> None:
        """Take up what became of it."""
        count_left(packets.port, packets.length, self._offset, self.counts)

    def reset(self, port: int) -> None:
        """Somebody else is at ``port`` from now on."""
        self.arrived[port] = self.left[port] = 0
        self.heard[port] = 0


class OpenSlots(NamedTuple):
    """Slots of a job whose chunk is not complete.

    Attributes:
        number: how many.
        sequence: of the oldest chunk; None if there is none.
        missing: workers who are not in that one.
    """

    number: int
    sequence: int | None
    missing: tuple[int, ...]


def open_slots(read: SlotReader, slots: int, workers: Sequence[int]) -> OpenSlots:
    """Which slots wait for workers, by what the switch holds.

    Args:
        read: of the job.
        slots: how many it has.
        workers: those who take part.
    """
    everybody = sum(1 << worker for worker in workers)
    number, oldest, members = 0, None, 0
    for slot in range(slots):
        for version in (0, 1):
            held = read(slot, version)
            if held.bitmap in (0, everybody):
                continue
            number += 1
            if oldest is None or serial_distance(held.sequence, oldest) < 0:
                oldest, members = held.sequence, held.bitmap
    lacking = everybody & ~members if number else 0
    missing = tuple(worker for worker in workers if lacking >> worker & 1)
    return OpenSlots(number, oldest, missing)


class Parts(NamedTuple):
    """Of a service, what statistics are read from."""

    board: Board
    ports: PeerPorts
    jobs: Jobs
    traffic: Traffic


def statistics(parts: Parts, now: float) -> dict[str, Any]:
    """Packets, drops by reason, and jobs, as ``docs/service.md`` names them."""
    switch, traffic, counts = parts.board.switch, parts.traffic, parts.ports.counts
    refused = switch.counters["refused"].packets
    return {
        "packets": {
            "in": switch.statistics.packets_in,
            "out": switch.statistics.packets_out,
            "bytes_in": traffic.bytes_in,
            "bytes_out": traffic.bytes_out,
        },
        "drops": {
            "lost_on_arrival": parts.ports.lost,
            "lost_on_departure": parts.ports.dropped,
            "unknown_sender": counts.strangers,
            "wrong_length": counts.misfits - counts.greetings,
            **{name: int(refused[index]) for index, name in enumerate(REFUSALS, start=1)},
        },
        "jobs": [_job(parts, job, now) for job in parts.jobs],
    }


def _job(parts: Parts, job: RunningJob, now: float) -> dict[str, Any]:
    places, traffic = parts.board.places, parts.traffic
    held = OpenSlots(0, None, ())
    if job.epochs:
        plan = plan_of(places.describe(job))
        held = open_slots(parts.board.reader(plan), plan.job.slots, plan.job.present)
    seats = []
    for worker, session in sorted(job.seats.items()):
        port = places.port(job.place, worker)
        heard = float(traffic.heard[port])
        seats.append(
            {
                "worker": worker,
                "state": session.state.value,
                "address": "" if session.address is None else ":".join(map(str, session.address)),
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
        "slots": places.window(job.workers),
        "slots_open": held.number,
        "oldest_open_sequence": held.sequence,
        "missing": list(held.missing),
        "seats": seats,
    }
