"""Transports in memory: a switch is a function from packets to packets.

``MemoryTransport`` has one switch. ``NetworkTransport`` has several, joined by links that may lose,
delay and duplicate packets. ``innet.network.FaultyTransport`` adds faults of the hosts' links to
any transport.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StalledError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.network.faults import FaultCounters, Faults, FaultyLink, Outage
from innet.network.traffic import Direction, Process, Tap, Traffic, joined

_HOPS = 10_000  # calls of switches at one moment; more means a forwarding loop
_MAX_HOST = 0xFFFF  # ``innet.network.drive`` sorts packets by 16 bits of it


class MemoryTransport:
    """Hosts at ``ports`` of a switch that lives in this process. Deterministic.

    The switch gets the packets in the order in which they were sent, joined into larger batches.
    Its answers keep their order. Everything happens at the time of the call.

    Args:
        process: the switch: takes packets by ingress port and returns packets by egress port, in
            its own arrays.
        ports: where hosts are attached, each 0 .. 510.
        tap: called with each batch that enters or leaves the switch, for captures; also settable
            later, to record one round.

    Attributes:
        to_switch: packets and bytes from hosts, by port.
        to_hosts: packets and bytes to hosts, by port.
        undelivered: packets that the switch sent to ports without a host.

    Raises:
        InputError: no port, a port twice, or one out of range.
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
        """``now`` if the switch has packets to process, else ``until``."""
        return now if self._sent else max(now, until)

    def _is_attached(self, port: NDArray[np.int32]) -> NDArray[np.bool_]:
        known = (port >= 0) & (port < len(self._attached))
        if known.all():
            return self._attached[port]
        return known & self._attached[np.where(known, port, 0)]


class SwitchPort(NamedTuple):
    """A port of the switch called ``switch``."""

    switch: str
    port: int


class _Switch:
    """One switch, the packets that wait for it, and what its ports are connected to.

    ``host[port]`` is the number of the host at a port, ``way[port]`` the direction of a trunk that
    begins there; both are -1 for none.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.waiting: list[PacketBatch] = []
        self.outages: list[Outage] = []
        self.host = np.full(MAX_PORT + 1, -1, np.int32)
        self.way = np.full(MAX_PORT + 1, -1, np.int32)


class _Way(NamedTuple):
    """One direction of a trunk: where it ends, and what it does to packets."""

    switch: _Switch
    port: int
    line: FaultyLink | None


class NetworkTransport:
    """Hosts at the ports of switches that are joined by trunks. Deterministic.

    Each host has a number. It is the ``PacketBatch.port`` of the packets that the host sends and
    receives. Packets take time only on trunks with faults. Packets that leave by a port to
    which nothing is attached are counted and dropped.

    Args:
        switches: name -> what the switch does with a batch: ingress ports in, egress ports out.
        hosts: number of a host -> where it is; numbers are 0 .. 65535.
        trunks: pairs of switch ports.
        faults: of every trunk, both ways; None for links without faults.
        rng: the faults' source of randomness; a generator is spawned for each direction.
        tap: called with each batch that hosts send or receive; also settable later.
        outages: of switches, which lose all that reaches them meanwhile.

    Attributes:
        to_switch: packets and bytes from hosts, by number of the host.
        to_hosts: packets and bytes to hosts, by number.
        undelivered: packets that left by ports to which nothing is attached.
        cut_off: packets that switches lost in an outage.

    Raises:
        InputError: no host, a number out of range, a port used twice, an unknown switch, or faults
            without ``rng``.
    """

    def __init__(
        self,
        switches: Mapping[str, Process],
        hosts: Mapping[int, SwitchPort],
        trunks: Sequence[tuple[SwitchPort, SwitchPort]] = (),
        *,
        faults: Faults | None = None,
        rng: np.random.Generator | None = None,
        tap: Tap | None = None,
        outages: Sequence[Outage] = (),
    ) -> None:
        if not hosts or not 0 <= min(hosts) <= max(hosts) <= _MAX_HOST:
            raise InputError(
                f"hosts have the numbers {sorted(hosts)}; give at least one, in 0 .. {_MAX_HOST}."
            )
        if faults is not None and rng is None:
            raise InputError("faults need rng, such as numpy.random.default_rng(0).")
        self.tap = tap
        self.to_switch = Traffic.none(max(hosts) + 1)
        self.to_hosts = Traffic.none(max(hosts) + 1)
        self.undelivered = self.cut_off = 0
        self._switches = {name: _Switch(process) for name, process in switches.items()}
        for outage in outages:
            for name in outage.switches:
                self._known(SwitchPort(name, 0)).outages.append(outage)
        self._ways: list[_Way] = []
        self._hosts = sorted(hosts)
        self._entered = list(self._switches.values())
        index = {id(switch): number for number, switch in enumerate(self._entered)}
        # Of each host: which switch it is at (-1: there is no such host), and the port.
        self._entrance = np.full(max(hosts) + 1, -1, np.int32)
        self._entrance_port = np.zeros(max(hosts) + 1, np.int32)
        for number, end in hosts.items():
            switch = self._free(end)
            switch.host[end.port] = number
            self._entrance[number] = index[id(switch)]
            self._entrance_port[number] = end.port
        generators = iter(rng.spawn(2 * len(trunks)) if rng is not None else [])
        for a, b in trunks:
            for begin, end in ((a, b), (b, a)):
                line = None if faults is None else FaultyLink(faults, next(generators))
                self._free(begin).way[begin.port] = len(self._ways)
                self._ways.append(_Way(self._known(end), end.port, line))

    def _known(self, end: SwitchPort) -> _Switch:
        if end.switch not in self._switches:
            raise InputError(
                f"there is no switch {end.switch!r}; known: {', '.join(self._switches)}."
            )
        if not 0 <= end.port <= MAX_PORT:
            raise InputError(f"{end.switch} has no port {end.port}; it has 0 .. {MAX_PORT}.")
        return self._switches[end.switch]

    def _free(self, end: SwitchPort) -> _Switch:
        switch = self._known(end)
        if switch.host[end.port] >= 0 or switch.way[end.port] >= 0:
            raise InputError(f"port {end.port} of {end.switch} is used twice.")
        return switch

    @property
    def trunk_faults(self) -> FaultCounters:
        """What happened to packets on all trunks together."""
        total = FaultCounters()
        for way in self._ways:
            if way.line is not None:
                for name in FaultCounters.__slots__:
                    more = getattr(total, name) + getattr(way.line.counters, name)
                    setattr(total, name, more)
        return total

    # ------------------------------------------------------------------ what every transport does

    def send(self, packets: PacketBatch, now: float) -> None:
        """Take packets from hosts.

        Raises:
            InputError: from a number that no host has.
        """
        if not len(packets):
            return
        possible = (packets.port >= 0) & (packets.port < len(self._entrance))
        host = np.where(possible, packets.port, 0)
        entrance = np.where(possible, self._entrance[host], -1)
        if (entrance < 0).any():
            number = packets.port[entrance < 0][0]
            raise InputError(f"there is no host {number}; the hosts are {self._hosts}.")
        self.to_switch.add(packets)
        if self.tap is not None:
            self.tap(Direction.TO_SWITCH, packets, now)
        inside = PacketBatch(packets.data, packets.length, self._entrance_port[host])
        for number, part in _split(inside, entrance):
            self._entered[number].waiting.append(part)

    def receive(self, now: float) -> PacketBatch:
        """Run the switches until no packet waits at any of them; returns what reached hosts.

        Raises:
            StalledError: packets loop between the switches.
        """
        reached: list[PacketBatch] = []
        for way in self._ways:
            if way.line is not None and way.line.next_due() <= now:
                way.switch.waiting.append(_at(way.line.pop(now), way.port))
        hops = 0
        while busy := [switch for switch in self._switches.values() if switch.waiting]:
            for switch in busy:
                batches, switch.waiting = joined(switch.waiting), []
                if any(outage.covers(now) for outage in switch.outages):
                    self.cut_off += sum(map(len, batches))
                    batches = []
                for batch in batches:
                    self._leave(switch, switch.process(batch), now, reached)
                hops += 1
            if hops > _HOPS:
                raise StalledError(
                    f"packets loop between the switches {', '.join(self._switches)} at {now:g} s; "
                    "check which ports of the trunks their tables forward to."
                )
        arrived = PacketBatch.concatenate(reached) if reached else PacketBatch.empty()
        if len(arrived):
            self.to_hosts.add(arrived)
            if self.tap is not None:
                self.tap(Direction.TO_HOST, arrived, now)
        return arrived

    def wait(self, now: float, until: float) -> float:
        """``now`` if a switch has packets to process, else when a trunk delivers the next."""
        if any(switch.waiting for switch in self._switches.values()):
            return now
        due = min((way.line.next_due() for way in self._ways if way.line), default=math.inf)
        return max(now, min(until, due))

    # ------------------------------------------------------------------ from switch to switch

    def _leave(
        self, switch: _Switch, leaving: PacketBatch, now: float, reached: list[PacketBatch]
    ) -> None:
        """Deliver what a switch sent to hosts and trunks."""
        if not len(leaving):
            return
        possible = (leaving.port >= 0) & (leaving.port <= MAX_PORT)
        port = np.where(possible, leaving.port, 0)
        host = np.where(possible, switch.host[port], -1).astype(np.int32)
        to_hosts = host >= 0
        if to_hosts.all():
            reached.append(PacketBatch(leaving.data, leaving.length, host))
            return
        if to_hosts.any():
            reached.append(_with_ports(leaving, host, to_hosts))
        way = np.where(possible, switch.way[port], -1)
        self.undelivered += int((~to_hosts & (way < 0)).sum())
        trunk = way >= 0
        for index, part in _split(leaving.take(trunk), way[trunk]):
            self._travel(self._ways[index], part, now)

    def _travel(self, way: _Way, packets: PacketBatch, now: float) -> None:
        if way.line is not None:
            way.line.push(packets, now)
            packets = way.line.pop(now)
        if len(packets):
            way.switch.waiting.append(_at(packets, way.port))


def _distinct(numbers: NDArray[np.int32]) -> list[int]:
    first = int(numbers[0])
    if (numbers == first).all():
        return [first]
    found: list[int] = np.unique(numbers).tolist()
    return found


def _split(packets: PacketBatch, by: NDArray[np.int32]) -> list[tuple[int, PacketBatch]]:
    """The packets grouped by ``by``, ascending; each group keeps their order."""
    if not len(packets):
        return []
    distinct = _distinct(by)
    if len(distinct) == 1:
        return [(distinct[0], packets)]
    return [(number, packets.take(by == number)) for number in distinct]


def _at(packets: PacketBatch, port: int) -> PacketBatch:
    return PacketBatch(packets.data, packets.length, np.full(len(packets), port, np.int32))


def _with_ports(
    packets: PacketBatch, port: NDArray[np.int32], rows: NDArray[np.bool_]
) -> PacketBatch:
    return PacketBatch(packets.data[rows], packets.length[rows], port[rows])
