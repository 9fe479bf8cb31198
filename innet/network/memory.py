"""The transport in memory: a switch is a function from packets to packets, and nothing takes
time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.packets import PacketBatch

MAX_PORT = 510  # v1model has 9-bit ports, and 511 means "drop"

# Batches smaller than this are joined before they go to the switch: its cost per call is that of
# some ten packets. Larger ones go as they are: joining would copy them.
_WORTH_A_CALL = 512


class Direction(enum.Enum):
    """Which way a packet goes."""

    TO_SWITCH = "to switch"
    TO_HOST = "to host"


Tap: TypeAlias = Callable[[Direction, PacketBatch, float], None]
Process: TypeAlias = Callable[[PacketBatch], PacketBatch]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has passed one direction of a transport's links.

    Attributes:
        packets: shape (highest port + 1,), int64, by port.
        bytes: of the same shape: Ethernet frames without preamble, check sequence and gap.
    """

    packets: NDArray[np.int64]
    bytes: NDArray[np.int64]

    @classmethod
    def none(cls, ports: int) -> Traffic:
        """Nothing yet, at ports 0 .. ports - 1."""
        return cls(np.zeros(ports, np.int64), np.zeros(ports, np.int64))

    def add(self, packets: PacketBatch) -> None:
        """Count these packets, by their port."""
        self.packets[:] += np.bincount(packets.port, minlength=len(self.packets))
        volume = np.bincount(packets.port, weights=packets.length, minlength=len(self.bytes))
        self.bytes[:] += volume.astype(np.int64)  # exact: float64 holds integers up to 2**53


class MemoryTransport:
    """Hosts at ``ports`` of a switch that lives in this process. Deterministic.

    The switch sees the packets in the order in which they were sent, in batches as large as is
    good for it; its answers keep their order. All happens at the time of the call.

    Args:
        process: the switch: takes packets by ingress port and returns packets by egress port, in
            arrays of its own.
        ports: where hosts are attached, each 0 .. 510.
        tap: called with each batch that enters or leaves the switch, for captures; also settable
            later, to record one round.

    Attributes:
        to_switch: packets and bytes from hosts, by port.
        to_hosts: packets and bytes to hosts, by port.
        undelivered: packets that the switch sent to ports where no host is.

    Raises:
        InputError: no port, a port twice, or one that is no port.
    """

    def __init__(self, process: Process, ports: Iterable[int], tap: Tap | None = None) -> None:
        numbers = sorted(ports)
        if not numbers or len(set(numbers)) != len(numbers):
            raise InputError(f"ports are {numbers}; give at least one, each once.")
        if numbers[0] < 0 or numbers[-1] > MAX_PORT:
            raise InputError(f"ports are {numbers}; each must be in 0 .. {MAX_PORT}.")
        self.tap = tap
        self._process = process
        self._attached = np.zeros(numbers[-1] + 1, np.bool_)
        self._attached[numbers] = True
        self.to_switch = Traffic.none(len(self._attached))
        self.to_hosts = Traffic.none(len(self._attached))
        self.undelivered = 0
        self._sent: list[PacketBatch] = []

    def send(self, packets: PacketBatch, now: float) -> None:
        """Take packets from hosts.

        Raises:
            InputError: from a port where no host is attached.
        """
        if not len(packets):
            return
        if not self._is_attached(packets.port).all():
            strange = packets.port[~self._is_attached(packets.port)][0]
            known = np.flatnonzero(self._attached).tolist()
            raise InputError(f"no host is attached to port {strange}; hosts are at {known}.")
        self.to_switch.add(packets)
        if self.tap is not None:
            self.tap(Direction.TO_SWITCH, packets, now)
        self._sent.append(packets)

    def receive(self, now: float) -> PacketBatch:
        """Run the switch on what was sent and return what leaves it."""
        answers = []
        for batch in joined(self._sent):
            leaving = self._process(batch)
            attached = self._is_attached(leaving.port)
            if not attached.all():
                self.undelivered += len(leaving) - int(attached.sum())
                leaving = leaving.take(attached)
            answers.append(leaving)
        self._sent = []
        arrived = PacketBatch.concatenate(answers) if answers else PacketBatch.empty()
        if len(arrived):
            self.to_hosts.add(arrived)
            if self.tap is not None:
                self.tap(Direction.TO_HOST, arrived, now)
        return arrived

    def wait(self, now: float, until: float) -> float:
        """``now`` if something was sent that the switch has not seen, else ``until``."""
        return now if self._sent else max(now, until)

    def _is_attached(self, port: NDArray[np.int32]) -> NDArray[np.bool_]:
        known = (port >= 0) & (port < len(self._attached))
        if known.all():
            return self._attached[port]
        return known & self._attached[np.where(known, port, 0)]


def joined(batches: list[PacketBatch]) -> list[PacketBatch]:
    """``batches`` in order, small ones put together until they are worth a call."""
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
