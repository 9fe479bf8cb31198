"""Flows of packets beside a job: at a constant rate, at random, or at given times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import is_int, is_real
from innet.sim.network import RESOLUTION, SECOND

HEADERS = 42
"""Bytes of Ethernet's, IPv4's and UDP's headers."""
MOST_PAYLOAD = 0xFFFF - 28  # that UDP over IPv4 can say


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

    def __post_init__(self) -> None:
        for name in ("source", "destination"):
            host = getattr(self, name)
            if not is_int(host) or host < 0:
                raise InputError(f"{name} of a flow is {host!r}; give the number of a host.")
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
        return np.round(np.asarray(self.times or (), np.float64) * SECOND).astype(np.int64)


class FlowCounts(NamedTuple):
    """What has become of a flow's packets.

    Attributes:
        sent, received: packets.
        dropped: by full queues.
        lost: on links.
        marked: of the received ones, those that met congestion.
        mean_delay, longest_delay: seconds, of those that were received, from when they were due to
            be sent until their last bit arrived; 0 if there are none.
        delays: int64 (sent,), picoseconds, -1 for packets that were not received; None if they
            were not recorded.
    """

    sent: int
    received: int
    dropped: int
    lost: int
    marked: int
    mean_delay: float
    longest_delay: float
    delays: NDArray[np.int64] | None
