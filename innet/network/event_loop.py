"""What every transport can do, and the loop that moves hosts' packets through one.

A transport joins hosts to a switch. Seen from the hosts it has three methods, chosen so that one
loop serves transports in memory, in simulated time and over sockets, and so that wrappers (faults)
compose:

* ``send`` and ``receive`` move whole batches, with the port of the host in ``PacketBatch.port``,
  since a call per packet would cost more than all else that happens to a packet. Neither waits.
* ``wait`` is the only place where time passes. A transport in virtual time answers at once with the
  moment at which something happens next; one over sockets sleeps until a packet comes and answers
  with its clock. Hosts and wrappers are passed the time and never read one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.wire import Frames

_IDLE_TURNS = 1000  # in which neither a packet moved nor time passed: nothing ever will


class Transport(Protocol):
    """How packets move between hosts and switch."""

    def send(self, packets: PacketBatch, now: float) -> None:
        """Take packets from the hosts at ``packets.port``. The arrays must not change any more."""

    def receive(self, now: float) -> PacketBatch:
        """The packets that have reached hosts by ``now``, each once; ``port`` tells whose.

        The next call may overwrite the arrays: copy packets to keep them.
        """

    def wait(self, now: float, until: float) -> float:
        """Let time pass until there may be something to receive, at most to ``until``.

        Returns:
            the new time, at least ``now``. ``until`` may be infinity; a transport in virtual time
            with nothing under way then returns infinity.
        """


class ClockedTransport(Transport, Protocol):
    """A transport in real time, over a socket: of one worker, whose port is 0.

    Frames begin with the Ethernet header; see ``innet.wire``. They may be lost, doubled and in
    another order. docs/extending.md has an example.

    Attributes:
        name: for reports.
    """

    name: str

    def now(self) -> float:
        """Its clock, seconds."""


class Host(Protocol):
    """A sender and receiver at a port: a worker's end of a protocol, or a parameter server."""

    @property
    def done(self) -> bool:
        """Needs nothing more."""

    def outgoing(self, now: float) -> Frames:
        """Frames to send at ``now``, uint8 (k, frame bytes)."""

    def receive(self, packets: PacketBatch, now: float) -> int:
        """Take packets that arrived."""

    def next_deadline(self) -> float | None:
        """When ``outgoing`` has something to do if nothing arrives; None for never."""


def drive(hosts: Mapping[int, Host], transport: Transport, now: float) -> float:
    """Move packets between ``hosts`` (port -> host) and the transport until all hosts are done.

    Packets that have arrived are delivered before anything is sent at the same moment, so that no
    packet is sent again whose answer is there. Packets for a port without a host are dropped. What
    is under way at the end stays in the transport.

    Returns:
        the time at which the last host was done.

    Raises:
        StalledError: a host gave up; or nothing is under way and no host has a deadline; or a host
            asks for its turn again and again without sending anything. Its ``at`` is the time.
    """
    idle = 0
    # Ask a host only when something came for it or its deadline has passed: under faults most
    # moments concern few hosts.
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
                        transport.send(PacketBatch.uniform(frames, port), now)
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
    """Give each host its packets, in order of arrival; returns the ports that got some."""
    if not len(arrived):
        return []
    # 16-bit keys make numpy's stable sort a radix sort; switch ports are small numbers.
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
