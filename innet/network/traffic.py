"""Traffic between hosts and switches in memory: counts, and a recorder."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.packets import PacketBatch

# Smaller batches are joined before they go to the switch, where a call costs as much as some ten
# packets. Larger ones are not joined, as that would copy them.
_WORTH_A_CALL = 512


class Direction(enum.Enum):
    """Direction of a packet."""

    TO_SWITCH = "to switch"
    TO_HOST = "to host"


Tap: TypeAlias = Callable[[Direction, PacketBatch, float], None]
"""A function that sees packets: direction, packets, time in seconds."""
Process: TypeAlias = Callable[[PacketBatch], PacketBatch]
"""A function that takes the packets at a switch and returns those that leave it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic counts of one direction of a transport.

    Attributes:
        packets: shape (highest port + 1,), int64, by port.
        bytes: of the same shape: bytes of Ethernet frames without preamble, check sequence and gap.
    """

    packets: NDArray[np.int64]
    bytes: NDArray[np.int64]

    @classmethod
    def none(cls, ports: int) -> Traffic:
        """Zero counts for ports 0 .. ports - 1."""
        return cls(np.zeros(ports, np.int64), np.zeros(ports, np.int64))

    def add(self, packets: PacketBatch) -> None:
        """Count these packets, by their port."""
        self.packets[:] += np.bincount(packets.port, minlength=len(self.packets))
        volume = np.bincount(packets.port, weights=packets.length, minlength=len(self.bytes))
        self.bytes[:] += volume.astype(np.int64)  # exact: float64 holds integers up to 2**53


def joined(batches: list[PacketBatch]) -> list[PacketBatch]:
    """``batches`` in order, with small ones joined."""
    together: list[PacketBatch] = []
    run: list[PacketBatch] = []
    size = 0
    for batch in batches:
        run.append(batch)
        size += len(batch)
        if size >= _WORTH_A_CALL:
            together.append(PacketBatch.concatenate(run))
            run, size = [], 0
    if run:
        together.append(PacketBatch.concatenate(run))
    return together


class Recorder:
    """Records packets and times of both directions, in the order in which they pass the tap.

    Set it as ``MemoryTransport.tap``, run a round, take it off again;
    ``innet.core.pcap.write_pcap`` writes ``packets()`` and ``times()`` to a file.

    Args:
        limit: the most packets to record; further ones are only counted.

    Attributes:
        missed: packets that passed after the limit was reached.

    Raises:
        InputError: a negative limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 0:
            raise InputError(f"the limit is {limit} packets; give 0 or more.")
        self.missed = 0
        self._limit = limit
        self._batches: list[PacketBatch] = []
        self._times: list[NDArray[np.float64]] = []
        self._upward: list[NDArray[np.bool_]] = []
        self._size = 0

    def __call__(self, direction: Direction, packets: PacketBatch, now: float) -> None:
        """The tap: record a batch."""
        room = len(packets) if self._limit is None else max(0, self._limit - self._size)
        kept = packets.take(np.arange(min(room, len(packets))))  # a copy: the owner may reuse his
        self.missed += len(packets) - len(kept)
        self._size += len(kept)
        self._batches.append(kept)
        self._times.append(np.full(len(kept), now))
        self._upward.append(np.full(len(kept), direction is Direction.TO_SWITCH))

    def __len__(self) -> int:
        return self._size

    def packets(self) -> PacketBatch:
        """All recorded packets, in order."""
        return PacketBatch.concatenate(self._batches)

    def times(self) -> NDArray[np.float64]:
        """Times of ``packets()`` in seconds, shape (n,)."""
        return np.concatenate([np.empty(0), *self._times])

    def to_switch(self) -> NDArray[np.bool_]:
        """Whether each of ``packets()`` went to the switch or left it, shape (n,)."""
        return np.concatenate([np.empty(0, np.bool_), *self._upward])
