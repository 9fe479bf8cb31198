"""Links with faults from a seed: corruption, loss, delay, duplication, marks, outages."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import is_real
from innet.core.packets import PacketBatch
from innet.core.settings import HOLD
from innet.network.event_loop import Transport

LONGEST_BURST = 15  # bits; what the Internet checksum is sure to catch

_ETHERTYPE = slice(12, 14)
_IPV4 = np.array([0x08, 0x00], np.uint8)
_TOS = 15  # of IPv4 behind Ethernet: the second byte of its header
_CHECKSUM = 24
_ETHERNET_AND_IPV4 = 34
_CONGESTED = 3  # in the last two bits of the type of service (RFC 3168)


def corrupt(packets: PacketBatch, rows: NDArray[np.int64], rng: np.random.Generator) -> PacketBatch:
    """``packets`` with a burst of 1 to 15 bits flipped anywhere in each of ``rows``."""
    data = packets.data.copy()
    for row in rows.tolist():
        length = 8 * int(packets.length[row])
        if not length:
            continue
        # A burst begins and ends with a flipped bit.
        size = int(rng.integers(1, min(LONGEST_BURST, length) + 1))
        inside = int(rng.integers(0, 1 << max(0, size - 2))) << 1
        burst = (1 << (size - 1)) | inside | 1
        begin = int(rng.integers(0, length - size + 1))
        for bit in range(size):
            if burst >> (size - 1 - bit) & 1:
                position = begin + bit
                data[row, position // 8] ^= np.uint8(0x80 >> position % 8)
    return PacketBatch(data, packets.length, packets.port)


def truncate(
    packets: PacketBatch, rows: NDArray[np.int64], rng: np.random.Generator
) -> PacketBatch:
    """``packets``, with each of ``rows`` truncated to 0 .. its length - 1 bytes."""
    length = packets.length.copy()
    length[rows] = (rng.random(len(rows)) * packets.length[rows]).astype(np.int32)
    return PacketBatch(packets.data, length, packets.port)


def mark(packets: PacketBatch, rows: NDArray[np.int64]) -> tuple[PacketBatch, int]:
    """``packets``, with "congestion experienced" in those of ``rows`` that may carry it.

    These are IPv4 packets with ECT. The header's checksum is updated, as a router does (RFC 1624).
    Also returns how many there were.
    """
    if packets.data.shape[1] < _ETHERNET_AND_IPV4:
        return packets, 0
    header = packets.data[rows, :_ETHERNET_AND_IPV4]
    able = (header[:, _ETHERTYPE] == _IPV4).all(axis=1) & (header[:, _TOS] & _CONGESTED > 0)
    able &= packets.length[rows] >= _ETHERNET_AND_IPV4
    rows = rows[able]
    data = packets.data.copy()
    before = data[rows, _TOS].astype(np.int64)
    data[rows, _TOS] |= _CONGESTED
    added = data[rows, _TOS].astype(np.int64) - before
    checksum = data[rows, _CHECKSUM].astype(np.int64) << 8 | data[rows, _CHECKSUM + 1]
    total = (~checksum & 0xFFFF) + added
    total = (total & 0xFFFF) + (total >> 16)
    data[rows, _CHECKSUM] = (~total >> 8) & 0xFF
    data[rows, _CHECKSUM + 1] = ~total & 0xFF
    return PacketBatch(data, packets.length, packets.port), len(rows)


_FUZZ = 1e-6  # ticks, by which a time that is a sum of floats may be late


def _is_duration(seconds: float) -> bool:
    return is_real(seconds) and math.isfinite(seconds) and seconds >= 0


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of hosts or switches: a partition, or a machine that is down.

    Packets from and to them are lost.

    Args:
        begin: seconds.
        end: seconds; infinity for a permanent outage.
        hosts: numbers of the hosts in the transport (for workers index + 1); by default all, or
            none if switches are named.
        switches: names of switches. They keep their registers.

    Raises:
        InputError: the outage ends before it begins, or begins before 0.
    """

    begin: float
    end: float = math.inf
    hosts: tuple[int, ...] = ()
    switches: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = is_real(self.begin) and is_real(self.end)
        if not (numbers and 0 <= self.begin <= self.end):
            raise InputError(
                f"an outage from {self.begin!r} to {self.end!r} s; it ends after it begins, and "
                "begins at 0 or later."
            )

    def covers(self, now: float) -> bool:
        """Whether it lasts at a time."""
        return self.begin <= now < self.end

    def cuts_off(self, port: NDArray[np.int32], now: float) -> NDArray[np.bool_]:
        """Which of the packets, by ``port``, are lost."""
        if not self.covers(now):
            return np.zeros(len(port), np.bool_)
        named = self.hosts or self.switches
        return np.isin(port, self.hosts) if named else np.ones(len(port), np.bool_)


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of one direction, independent for each packet.

    Args:
        loss: probability that a packet is lost.
        duplicate: probability that a packet that is not lost is duplicated. The two copies are
            delayed independently.
        reorder: probability that a copy is held back for a uniform time up to ``hold``, so that
            later ones overtake it.
        delay: seconds of delay of every copy.
        jitter: seconds; every copy has an additional uniform delay up to this.
        hold: seconds; longest time for which ``reorder`` holds a copy back.
        tick: seconds; times of arrival are rounded up to multiples, so that packets arrive in
            batches, which saves time. 0 disables it.
        corrupt: probability that a copy arrives with a burst of 1 to 15 wrong bits.
        truncate: probability that a copy is truncated.
        mark: probability that a copy with ECT gets a congestion mark.
        outages: outages of hosts and switches.
        restarts: times in seconds at which the switches lose all their registers.

    Raises:
        InputError: a probability outside 0 .. 1, a duration that is negative or not finite, or a
            value of the wrong type.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0
    hold: float = HOLD
    tick: float = 1e-5
    corrupt: float = 0.0
    truncate: float = 0.0
    mark: float = 0.0
    outages: tuple[Outage, ...] = ()
    restarts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt", "truncate", "mark"):
            probability = getattr(self, name)
            if not (is_real(probability) and 0 <= probability <= 1):
                raise InputError(f"{name} is {probability!r}; a probability is in 0 .. 1.")
        for name in ("delay", "jitter", "hold", "tick"):
            seconds = getattr(self, name)
            if not _is_duration(seconds):
                raise InputError(f"{name} is {seconds!r} s; give 0 or a positive number.")
        for name in ("outages", "restarts"):
            if not isinstance(each := getattr(self, name), Iterable):
                raise InputError(f"{name} is {each!r}; give a tuple, of one where there is one.")
        for outage in self.outages:
            if not isinstance(outage, Outage):
                raise InputError(f"an outage is {outage!r}; give innet.network.Outage(begin, end).")
        for seconds in self.restarts:
            if not _is_duration(seconds):
                raise InputError(f"a restart at {seconds!r} s; give 0 or a positive number.")

    def of_packets(self) -> Faults:
        """The faults of single packets only, without outages and restarts, for trunks."""
        return replace(self, outages=(), restarts=())


@dataclass(slots=True)
class FaultCounters:
    """Counts of the faults of one direction.

    Attributes:
        entered: packets that were sent.
        lost: packets that were lost.
        duplicated: packets that were duplicated.
        held: copies that were held back.
        arrived: copies that arrived.
        cut_off: packets lost in an outage; ``lost`` does not include them.
        corrupted: copies with wrong bits.
        truncated: truncated copies.
        marked: copies with a congestion mark.
    """

    entered: int = 0
    lost: int = 0
    duplicated: int = 0
    held: int = 0
    arrived: int = 0
    cut_off: int = 0
    corrupted: int = 0
    truncated: int = 0
    marked: int = 0


class FaultyLink:
    """One direction of a link with faults."""

    def __init__(self, faults: Faults, rng: np.random.Generator) -> None:
        self.faults = faults
        self.counters = FaultCounters()
        self._rng = rng
        # A separate generator, so that damage does not change which packets are lost or late.
        (self._damage,) = rng.spawn(1)
        # Packets pushed together stay in one batch, sorted by time of arrival, of which a prefix
        # has left. A heap orders the batches by their next arrival, so that batches that are not
        # due cost nothing: a packet may be held back while thousands of batches pass.
        self._under_way: list[tuple[float, int, int]] = []  # first time, number, how many have left
        self._pushed: dict[int, tuple[NDArray[np.float64], PacketBatch]] = {}
        self._number = 0

    def push(self, packets: PacketBatch, now: float) -> None:
        """Send packets at time ``now``."""
        count = len(packets)
        if not count:
            return
        faults = self.faults
        gone = np.zeros(count, np.bool_)
        for outage in faults.outages:
            gone |= outage.cuts_off(packets.port, now)
        # The number of random values does not depend on the settings, so that changing one setting
        # does not change the effect of others.
        lost, twice = self._rng.random((2, count)) < [[faults.loss], [faults.duplicate]]
        chance, share, spread = self._rng.random((3, 2, count))
        lost &= ~gone
        twice &= ~(lost | gone)
        held = chance < faults.reorder
        latency = faults.delay + faults.jitter * spread + held * (faults.hold * share)
        due = self._rounded(now + latency)
        travels = np.stack([~(lost | gone), twice])
        copies = np.flatnonzero(travels.T)  # a packet's second copy follows its first
        rows, which = np.divmod(copies, 2)
        arrival = due[which, rows]
        order = np.argsort(arrival, kind="stable")
        if len(order):
            self._pushed[self._number] = arrival[order], self._damaged(packets.take(rows[order]))
            heapq.heappush(self._under_way, (float(arrival[order[0]]), self._number, 0))
            self._number += 1
        self.counters.entered += count
        self.counters.cut_off += int(gone.sum())
        self.counters.lost += int(lost.sum())
        self.counters.duplicated += int(twice.sum())
        self.counters.held += int((held & travels).sum())

    def _damaged(self, copies: PacketBatch) -> PacketBatch:
        faults, counters = self.faults, self.counters
        wrong, short, marked = self._damage.random((3, len(copies))) < [
            [faults.corrupt], [faults.truncate], [faults.mark]
        ]  # fmt: skip
        if marked.any():
            copies, number = mark(copies, np.flatnonzero(marked))
            counters.marked += number
        if wrong.any():
            copies = corrupt(copies, np.flatnonzero(wrong), self._damage)
            counters.corrupted += int(wrong.sum())
        if short.any():
            copies = truncate(copies, np.flatnonzero(short), self._damage)
            counters.truncated += int(short.sum())
        return copies

    def _rounded(self, due: NDArray[np.float64]) -> NDArray[np.float64]:
        """Times rounded up to the next tick, with a tolerance for the rounding of floats."""
        tick = self.faults.tick
        return np.ceil(due / tick - _FUZZ) * tick if tick else due

    def pop(self, now: float) -> PacketBatch:
        """The packets that have arrived by ``now``, in order of arrival, then of entry."""
        moved = []
        while self._under_way and self._under_way[0][0] <= now:
            _, number, left = heapq.heappop(self._under_way)
            moved.append((number, left))
        times, arrived = [], []
        for number, left in sorted(moved):
            due, packets = self._pushed[number]
            gone = int(np.searchsorted(due, now, side="right"))
            times.append(due[left:gone])
            arrived.append(packets.take(np.arange(left, gone)))
            if gone < len(due):
                heapq.heappush(self._under_way, (float(due[gone]), number, gone))
            else:
                del self._pushed[number]
        if not arrived:
            return PacketBatch.empty()
        together = PacketBatch.concatenate(arrived)
        self.counters.arrived += len(together)
        if len(arrived) == 1:
            return together
        return together.take(np.argsort(np.concatenate(times), kind="stable"))

    def next_due(self) -> float:
        """The time of the next arrival; infinity if no packet is under way."""
        return self._under_way[0][0] if self._under_way else math.inf


class FaultyTransport:
    """A transport with faults in both directions.

    Equal seeds, settings and traffic give equal results, byte for byte.

    Args:
        inner: the transport without faults.
        faults: faults of both directions.
        rng: random generator, from which two are spawned.
        to_hosts: faults of the direction to the hosts, if they differ.
        on_restart: function that resets the switches' registers, for ``faults.restarts``.

    Raises:
        InputError: restarts without ``on_restart``.
    """

    def __init__(
        self,
        inner: Transport,
        faults: Faults,
        rng: np.random.Generator,
        to_hosts: Faults | None = None,
        on_restart: Callable[[], None] | None = None,
    ) -> None:
        if faults.restarts and on_restart is None:
            raise InputError("the faults restart the switches; pass on_restart, which does it.")
        self.inner = inner
        up, down = rng.spawn(2)
        self._up = FaultyLink(faults, up)
        self._down = FaultyLink(to_hosts or faults, down)
        self._restarts: Sequence[float] = sorted(faults.restarts)
        self._on_restart = on_restart

    @property
    def to_switch_faults(self) -> FaultCounters:
        """Fault counts of packets to the switch."""
        return self._up.counters

    @property
    def to_hosts_faults(self) -> FaultCounters:
        """Fault counts of packets to the hosts."""
        return self._down.counters

    def send(self, packets: PacketBatch, now: float) -> None:
        """Send packets to the switch."""
        self._up.push(packets, now)

    def receive(self, now: float) -> PacketBatch:
        """Move packets that are due by ``now`` through the inner transport; returns arrivals."""
        while self._on_restart is not None and self._restarts and self._restarts[0] <= now:
            self._restarts = self._restarts[1:]
            self._on_restart()
        self.inner.send(self._up.pop(now), now)
        self._down.push(self.inner.receive(now), now)
        return self._down.pop(now)

    def wait(self, now: float, until: float) -> float:
        """Wait until a packet is due in either direction, or in the inner transport."""
        return self.inner.wait(now, min(until, self._up.next_due(), self._down.next_due()))
