"""What a service has done and what its jobs wait for: counted as it runs, told as one document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from innet.fabric.peers import PeerPorts
from innet.packets import PacketBatch
from innet.protocol import SlotReader
from innet.protocol.serial import serial_distance
from innet.service.board import Board
from innet.service.jobs import Jobs, RunningJob
from innet.service.places import plan_of

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


class Traffic:
    """Packets by port.

    Attributes:
        arrived, left: shape (512,), int64: frames of the port's worker, and frames to it.
        heard: shape (512,): when the last frame came from there, by ``time.monotonic``; 0 for
            never.
        bytes_in, bytes_out: of all frames, with the innet header and without those before it.
    """

    def __init__(self, header: int) -> None:
        self.arrived = np.zeros(_PORTS, np.int64)
        self.left = np.zeros(_PORTS, np.int64)
        self.heard = np.zeros(_PORTS)
        self.bytes_in = 0
        self.bytes_out = 0
        self._header = header

    def count(self, arrived: PacketBatch, left: PacketBatch) -> None:
        """Take up a batch and what became of it."""
        came = np.bincount(arrived.port, minlength=_PORTS)
        self.arrived += came
        self.heard[came != 0] = time.monotonic()
        self.left += np.bincount(left.port, minlength=_PORTS)
        self.bytes_in += int(arrived.length.sum()) - self._header * len(arrived)
        self.bytes_out += int(left.length.sum()) - self._header * len(left)

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
    for worker, seat in sorted(job.seats.items()):
        port = places.port(job.place, worker)
        heard = float(traffic.heard[port])
        seats.append(
            {
                "worker": worker,
                "state": seat.state.value,
                "address": "" if seat.address is None else ":".join(map(str, seat.address)),
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
