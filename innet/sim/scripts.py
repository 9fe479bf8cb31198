"""Hosts of a simulated network that somebody else's code plays, in Python or compiled.

A ``ScriptedHost`` handles all its events of a window in one call: a call for each packet would take
most of the time. Packets go to it and come from it in batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.sim.hosts import close_host, draw_late, put_frames, take_frames
from innet.sim.links import wire_time
from innet.switch.traffic_manager import FOREVER

_FRAMES = 256  # packets that a host takes at once, at most


class ScriptedHost(ABC):
    """A host whose events of a window are handled all at once, with its ``ScriptPort``."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the network need not wait for it."""

    @abstractmethod
    def attach(self, ports: ScriptPort) -> None:
        """Its ports are these from now on."""

    @abstractmethod
    def run_window(self, until: int) -> None:
        """Do all that happens before ``until``, picoseconds; then ``ScriptPort.plan`` the next."""


class CalledHost(ABC):
    """A host with a compiled function.

    Attributes:
        name: for errors.
        entry: the address of its C function, ``int32 (int64)``, of the address of ``call``.
        call: (1,) CALL.
    """

    name: str
    entry: int
    call: NDArray[Any]

    @property
    def done(self) -> bool:
        """Whether the network need not wait for it; compiled code notices that later."""
        return False


class ScriptPort:
    """A scripted host's end of its link.

    Args:
        memory: that of the network.
        host: its number.
        handle: does what a link needs before it can take more packets.

    Attributes:
        number: of the host.
        receives, sends: picoseconds that a packet takes of the host.
        byte: 1/65,536 picoseconds that a byte takes of it, both ways.
        jitter: picoseconds by which a packet is late at most.
        rate: bits per second of the link from it.
    """

    def __init__(self, memory: Any, host: int, handle: Callable[[int, int], None]) -> None:
        self._memory, self.number, self._handle = memory, host, handle
        here = memory.hosts[host]
        self.receives, self.sends = int(here["receives"]), int(here["sends"])
        self.byte, self.jitter = int(here["byte"]), int(here["jitter"])
        self._up = int(here["up"])
        self.rate = int(memory.links["rate"][self._up])
        self._here = here
        self._stride = memory.data.shape[1]
        self._frames = np.zeros(_FRAMES * self._stride, np.uint8)
        self._ends, self._times = np.zeros(_FRAMES, np.int64), np.zeros(_FRAMES, np.int64)

    def _states(self) -> NDArray[Any]:
        """The STATE of the host's part of the network, (1,)."""
        states: NDArray[Any] = self._memory.of_host(self.number)
        return states

    def take(self, until: int) -> list[tuple[int, bytes]]:
        """The packets that come before ``until``: when their last bits have, and their bytes."""
        taken: list[tuple[int, bytes]] = []
        frames, ends, times = self._frames, self._ends, self._times
        states, host = self._states(), self.number
        while count := take_frames(states, host, until, frames, ends, times):
            stops = ends[:count].tolist()
            data = frames[: stops[-1]].tobytes()
            begins = [0, *stops]
            pairs = zip(times[:count].tolist(), begins, stops, strict=False)
            taken += [(time, data[begin:end]) for time, begin, end in pairs]
            if count < _FRAMES and stops[-1] + self._stride <= len(frames):
                break
        return taken

    def put(self, times: list[int], frames: list[bytes]) -> None:
        """Put packets onto the link, when their first bits may leave; in order of these times."""
        data = np.frombuffer(b"".join(frames), np.uint8)
        ends = np.fromiter(accumulate(map(len, frames)), np.int64, len(frames))
        leaves = np.array(times, np.int64)
        first, states = 0, self._states()
        while True:
            first, why = put_frames(states, self.number, data, ends, leaves, first)
            if why == 0:
                return
            self._handle(why, self._up)

    def compile(self) -> None:
        """Compile what takes and puts packets, where no kept code is."""
        self.take(0)
        self.put([], [])

    def plan(self, time: int) -> None:
        """Say when the host's next own event is; FOREVER: none is planned."""
        here = self._here
        here["start"], here["timer"] = FOREVER, time

    def wake(self, time: int) -> None:
        """Let the host have an event at a time, which is not in a window that has begun."""
        self._here["timer"] = min(int(self._here["timer"]), time)

    def worked(self, ticks: int) -> None:
        """Count the time that the host has worked on packets."""
        self._here["worked"] += ticks

    def late(self) -> int:
        """By how many picoseconds the next packet is late in the host, drawn at random."""
        return int(draw_late(self._states(), self.number))

    def wire_time(self, length: int, rate: int) -> int:
        """Picoseconds that a frame takes at a rate, bits per second."""
        return int(wire_time(length, rate))

    def close(self, now: int) -> None:
        """The network need not wait for this host any more."""
        if self._here["is_open"]:
            close_host(self._states(), self.number, now)
