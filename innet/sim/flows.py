"""Flows of packets: at a constant rate, at random, or at given times.

``Flow``s have packets without bytes, which switches forward; ``PacketFlow``s have packets that run
the switches' program.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import is_int, is_real
from innet.sim.network import MOST_PRIORITIES, RESOLUTION, SECOND
from innet.sim.state import SHORTEST_FRAME, STAMP_BYTES, STAMPED_PACKETS

HEADERS = 42
"""Bytes of Ethernet's, IPv4's and UDP's headers."""
UDP_PORT = 9  # discard (RFC 863): of both ends, by default
_UDP = 17  # IPv4's protocol
MOST_PAYLOAD = 0xFFFF - 28  # that UDP over IPv4 can say
LONGEST_FRAME = MOST_PAYLOAD + HEADERS  # of packets with bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """UDP packets from one host to another.

    Give one of ``rate``, ``interval`` and ``times``.

    Args:
        source, destination: numbers of hosts.
        size: bytes of UDP payload in each packet; frames have 42 more.
        packets: how many; as many as ``times`` if that is given.
        rate: bits of payload per second.
        interval: seconds from one packet to the next.
        times: seconds at which packets are sent, in order.
        start: seconds before the first packet; 0 with ``times``.
        poisson: draw the intervals from an exponential distribution whose mean they are.
        record_delays: keep the delay of every packet.
        path: which of several shortest paths the packets take: at each switch with n ways, that of
            this number modulo n, by ports. None: by a hash (ECMP).
        priority: of the queue that they take at each port; the highest is served first.

    Raises:
        InputError: a number that no flow has, by the setting's name.
    """

    source: int
    destination: int
    size: int
    packets: int = 0
    rate: float | None = None
    interval: float | None = None
    times: Sequence[float] | None = None
    start: float = 0.0
    poisson: bool = False
    record_delays: bool = False
    path: int | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        if not is_int(self.priority) or not 0 <= self.priority < MOST_PRIORITIES:
            raise InputError(
                f"priority of a flow is {self.priority!r}; give 0 to {MOST_PRIORITIES - 1}."
            )
        for name in ("source", "destination"):
            host = getattr(self, name)
            if not is_int(host) or host < 0:
                raise InputError(f"{name} of a flow is {host!r}; give the number of a host.")
        if self.path is not None and (not is_int(self.path) or self.path < 0):
            raise InputError(f"path of a flow is {self.path!r}; give a number, 0 or more.")
        if self.source == self.destination:
            raise InputError(f"a flow goes from host {self.source} to itself; name another one.")
        if not is_int(self.size) or not 0 <= self.size <= MOST_PAYLOAD:
            raise InputError(
                f"size of a flow's packets is {self.size!r}; give 0 to {MOST_PAYLOAD} bytes."
            )
        given = [name for name in ("rate", "interval", "times") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(
                f"a flow has {' and '.join(given) or 'no rate'}; give one of rate, interval and "
                "times."
            )
        if not (is_real(self.start) and math.isfinite(self.start) and self.start >= 0):
            raise InputError(f"start of a flow is {self.start!r}; give seconds, 0 or more.")
        if self.times is not None:
            self._check_times(self.times)
        elif not is_int(self.packets) or self.packets < 1:
            raise InputError(f"packets of a flow is {self.packets!r}; give 1 or more.")
        else:
            self._check_interval()

    def _check_times(self, times: Sequence[float]) -> None:
        listed = np.asarray(times, np.float64)
        if not listed.size or not np.isfinite(listed).all() or (listed < 0).any():
            raise InputError("times of a flow are to be seconds, 0 or more, and at least one.")
        if (np.diff(listed) < 0).any():
            raise InputError("times of a flow are not in order; sort them.")
        if self.packets not in {0, listed.size}:
            raise InputError(
                f"packets of a flow is {self.packets}, but it has {listed.size} times; leave "
                "packets out."
            )
        if self.start or self.poisson:
            raise InputError("a flow with times has neither start nor poisson; leave them out.")

    def _check_interval(self) -> None:
        for name in ("rate", "interval"):
            number = getattr(self, name)
            if number is not None and not (
                is_real(number) and math.isfinite(number) and number > 0
            ):
                raise InputError(f"{name} of a flow is {number!r}; give a number above 0.")
        if self.rate is not None and self.size == 0:
            raise InputError("a flow of empty packets has no rate of payload; give its interval.")
        if not RESOLUTION <= self.mean_interval <= 1e6:
            raise InputError(
                f"a flow sends a packet every {self.mean_interval:g} s; the clock's resolution is "
                "a picosecond, and the longest interval 1e6 s."
            )

    @property
    def mean_interval(self) -> float:
        """Seconds from one packet to the next; 0 with ``times``."""
        if self.interval is not None:
            return self.interval
        return 0.0 if self.rate is None else 8 * self.size / self.rate

    @property
    def count(self) -> int:
        """Packets."""
        return self.packets if self.times is None else len(self.times)

    @property
    def frame_size(self) -> int:
        """Bytes of a frame, without check sequence."""
        return self.size + HEADERS

    def ticks(self) -> NDArray[np.int64]:
        """The listed times in picoseconds."""
        return np.round(
            np.asarray(() if self.times is None else self.times, np.float64) * SECOND
        ).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFlow:
    """Packets with bytes that a host sends, and that run the program at each switch.

    Give one of ``interval`` and ``times``.

    Args:
        source: number of the host.
        frames: bytes from the Ethernet header on, without check sequence: of all packets, or of
            each of them in turn.
        packets: how many; as many as ``times`` or ``frames`` if there are several of them.
        interval, times, start, poisson, record_delays: as for ``Flow``.
        stamp: replace the last 16 bytes of each packet by its flow, number and time
            (``state.STAMP_BYTES``). Hosts know it by them. So programs may change all before.
        extra: bytes by which each packet is longer on the wire than ``frames``: payload at its end
            that nobody reads.

    Raises:
        InputError: a number that no flow has, by the setting's name.
    """

    source: int
    frames: tuple[bytes, ...]
    packets: int = 0
    interval: float | None = None
    times: Sequence[float] | None = None
    start: float = 0.0
    poisson: bool = False
    record_delays: bool = False
    stamp: bool = False
    extra: int = 0

    def __post_init__(self) -> None:
        # Where ``Flow`` has the same settings, it checks them.
        Flow(
            source=self.source,
            destination=self.source + 1 if is_int(self.source) else 0,
            size=1,
            packets=self.packets,
            interval=self.interval,
            times=self.times,
            start=self.start,
            poisson=self.poisson,
        )
        lengths = [len(frame) for frame in self.frames]
        if not lengths or min(lengths) < SHORTEST_FRAME or max(lengths) > LONGEST_FRAME:
            raise InputError(
                f"packets of a flow of host {self.source} have {SHORTEST_FRAME} to {LONGEST_FRAME} "
                f"bytes, not {min(lengths, default=0)} to {max(lengths, default=0)}."
            )
        most = LONGEST_FRAME - max(lengths)
        if not is_int(self.extra) or not 0 <= self.extra <= most:
            raise InputError(
                f"extra bytes of the packets of host {self.source} are {self.extra!r}; give 0 to "
                f"{most}, as a packet has at most {LONGEST_FRAME} bytes."
            )
        if len(lengths) not in {1, self.count}:
            raise InputError(
                f"a flow of host {self.source} sends {self.count} packets and lists "
                f"{len(lengths)}; list one, or all of them."
            )
        if self.stamp and min(lengths) < STAMP_BYTES + SHORTEST_FRAME:
            raise InputError(
                f"a stamp takes the last {STAMP_BYTES} bytes of a packet, and one of host "
                f"{self.source} has {min(lengths)}; make it longer, or leave stamp out."
            )
        if self.stamp and self.count > STAMPED_PACKETS:
            raise InputError(f"a stamp counts {STAMPED_PACKETS} packets; leave stamp out.")

    @property
    def destination(self) -> int:
        """The source: where packets go is the program's matter."""
        return self.source

    @property
    def path(self) -> int | None:
        """None: likewise."""
        return None

    @property
    def mean_interval(self) -> float:
        """Seconds from one packet to the next; 0 with ``times``."""
        return self.interval or 0.0

    @property
    def count(self) -> int:
        """Packets."""
        return self.packets if self.times is None else len(self.times)

    @property
    def frame_size(self) -> int:
        """Bytes of the longest packet."""
        return max(map(len, self.frames))

    def ticks(self) -> NDArray[np.int64]:
        """The listed times in picoseconds."""
        listed = () if self.times is None else self.times
        return np.round(np.asarray(listed, np.float64) * SECOND).astype(np.int64)


def mac_of(host: int) -> int:
    """The default Ethernet address of a host: 02:00:00:00:00:01 for host 0."""
    return 0x0200_0000_0001 + host


def ip_of(host: int) -> int:
    """The default IPv4 address of a host: 10.0.0.1 for host 0."""
    return 0x0A00_0001 + host


def udp_frame(
    source: int,
    destination: int,
    size: int,
    *,
    ethernet: tuple[int | None, int | None] = (None, None),
    ipv4: tuple[int | None, int | None] = (None, None),
    ports: tuple[int, int] = (UDP_PORT, UDP_PORT),
    traffic_class: int = 0,
    ttl: int = 64,
    payload: bytes | None = None,
) -> bytes:
    """A UDP packet over IPv4 and Ethernet, without a UDP checksum.

    Args:
        source: host.
        destination: host.
        size: bytes of payload.
        ethernet: addresses of source and destination; None: the host's.
        ipv4: likewise.
        ports: of UDP, likewise.
        traffic_class: DSCP and, in its two lowest bits, ECN.
        ttl: IPv4's.
        payload: of ``size``; None: zeros.
    """
    sender, target = (
        mac_of(host) if given is None else given
        for host, given in zip((source, destination), ethernet, strict=True)
    )
    here, there = (
        ip_of(host) if given is None else given
        for host, given in zip((source, destination), ipv4, strict=True)
    )
    head = struct.pack(
        "!BBHHHBBHII", 0x45, traffic_class, 28 + size, 0, 0, ttl, _UDP, 0, here, there
    )
    total: int = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return (
        target.to_bytes(6, "big")
        + sender.to_bytes(6, "big")
        + b"\x08\x00"
        + head[:10]
        + checksum.to_bytes(2, "big")
        + head[12:]
        + struct.pack("!HHHH", *ports, 8 + size, 0)
        + (bytes(size) if payload is None else payload)
    )


class FlowCounts(NamedTuple):
    """What has become of a flow's packets.

    Attributes:
        sent, received: packets. Copies that faulty links make are received, too.
        dropped: by full queues.
        lost: on links.
        marked: of the received ones, those that met congestion.
        mean_delay, longest_delay: seconds, of those that were received, from when they were due to
            be sent until their last bit arrived; 0 if there are none.
        delays: int64 (sent,), picoseconds, -1 for packets that were not received; None if they
            were not recorded.
        duplicated: packets that faulty links have duplicated.
    """

    sent: int
    received: int
    dropped: int
    lost: int
    marked: int
    mean_delay: float
    longest_delay: float
    delays: NDArray[np.int64] | None
    duplicated: int = 0
