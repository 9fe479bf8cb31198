"""The interface of transports, and the loop that moves packets between hosts and a transport.

A transport connects hosts to a switch. It has three methods, so that one loop serves transports in
memory, in virtual time and over sockets, and wrappers (faults) can be stacked:

* ``send`` and ``receive`` move batches, with the port of the host in ``PacketBatch.port``. A call
  for each packet would cost more than all other processing of the packet. Neither of them waits.
* Time passes only in ``wait``. A transport in virtual time returns at once, with the time of the
  next event. A transport over sockets sleeps until a packet arrives, and returns the time of its
  clock. Hosts and wrappers get the time as an argument and never read a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.wire import Frames

_IDLE_TURNS = 1000  # in which neither a packet moved nor time passed: nothing ever will


class Transport(Protocol):
    """Moves packets between hosts and a switch."""

    def send(self, packets: PacketBatch, now: float) -> None:
        """Send packets of the hosts at ``packets.port``. The arrays must not change afterwards."""

    def receive(self, now: float) -> PacketBatch:
        """The packets that have reached hosts by ``now``, each once; ``port`` is the host's.

        The next call may overwrite the arrays: copy packets to keep them.
        """

    def wait(self, now: float, until: float) -> float:
        """Let time pass until there may be something to receive, at most until ``until``.

        Returns:
            The new time, at least ``now``. ``until`` may be infinity; a transport in virtual time
            without packets under way then returns infinity.
        """


class ClockedTransport(Transport, Protocol):
    """A transport of one worker over a socket, in real time. The worker's port is 0.

    Frames begin with the Ethernet header; see ``innet.wire``. They may be lost, duplicated and
    reordered. docs/extending.md has an example.

    Attributes:
        name: for reports.
    """

    name: str

    def now(self) -> float:
        """Its clock, seconds."""


class Host(Protocol):
    """A sender and receiver at a port: a worker's client, or a parameter server."""

    @property
    def done(self) -> bool:
        """Whether it expects no more packets."""

    def outgoing(self, now: float) -> Frames | PacketBatch:
        """Frames to send at ``now``, uint8 (k, frame bytes), or a batch if lengths differ."""

    def receive(self, packets: PacketBatch, now: float) -> int:
        """Process packets that arrived."""

    def next_deadline(self) -> float | None:
        """When ``outgoing`` has something to do if nothing arrives; None for never."""


def at_port(frames: Frames | PacketBatch, port: int) -> PacketBatch:
    """What a host sends, as packets of its port."""
    if not isinstance(frames, PacketBatch):
        return PacketBatch.uniform(frames, port)
    return replace(frames, port=np.full(len(frames), port, np.int32))


def drive(hosts: Mapping[int, Host], transport: Transport, now: float) -> float:
    """Move packets between ``hosts`` (port -> host) and the transport until all hosts are done.

    At one time, packets that arrived are delivered before any are sent, so that answered packets
    are not sent again. Packets for a port without a host are dropped. Packets under way at the end
    stay in the transport.

    Returns:
        The time at which the last host was done.

    Raises:
        StalledError: a host gave up; or no packet is under way and no host has a deadline; or a
            host's deadline passes repeatedly without packets. Its ``at`` is the time.
    """
    idle = 0
    # Hosts are asked only if packets arrived for them or their deadline has passed. With faults
    # most events concern few hosts.
    due = dict.fromkeys(hosts, -math.inf)
    try:
        while True:
            idle += 1
            for port in _deliver(hosts, transport.receive(now), now):
                due[port] = -math.inf
                idle = 0
            for port, host in hosts.items():
                if due[port] <= now:
                    frames = host.outgoing(now)
                    if len(frames):
                        transport.send(at_port(frames, port), now)
                        idle = 0
                    deadline = host.next_deadline()
                    due[port] = math.inf if deadline is None else deadline
            if all(host.done for host in hosts.values()):
                return now
            later = max(now, transport.wait(now, min(due.values())))
            if math.isinf(later):
                raise StalledError(
                    f"no packet is under way and no host has a deadline, but the hosts at ports "
                    f"{_waiting(hosts)} are not done; one of them waits without a timer."
                )
            idle = 0 if later > now else idle
            now = later
            if idle > _IDLE_TURNS:
                raise StalledError(
                    f"nothing was sent or received in {idle} turns at {now:g} s; the hosts at "
                    f"ports {_waiting(hosts)} ask for a turn and have nothing to send."
                )
    except StalledError as error:
        error.at = now
        raise


def _waiting(hosts: Mapping[int, Host]) -> str:
    return ", ".join(str(port) for port, host in hosts.items() if not host.done)


def _deliver(hosts: Mapping[int, Host], arrived: PacketBatch, now: float) -> list[int]:
    """Deliver packets to hosts in order of arrival; returns the ports that received some."""
    if not len(arrived):
        return []
    # With 16-bit keys NumPy's stable sort is a radix sort.
    order = np.argsort(arrived.port.astype(np.uint16), kind="stable")
    ports, begins = np.unique(arrived.port[order], return_index=True)
    ends = np.append(begins[1:], len(order))
    reached = []
    for port, begin, end in zip(ports.tolist(), begins, ends, strict=True):
        if port in hosts:
            its = arrived if len(ports) == 1 else arrived.take(order[begin:end])
            hosts[port].receive(its, now)
            reached.append(port)
    return reached
