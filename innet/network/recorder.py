"""A tap that remembers packets, for the capture of a round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.network.memory import Direction


class Recorder:
    """Remembers packets and times, both directions, in the order in which they pass the tap.

    Set it as ``MemoryTransport.tap``, run a round, take it off again;
    ``innet.wire.scapy_layers.write_pcap`` writes ``packets()`` and ``times()`` to a file.

    Args:
        limit: how many packets to remember at most; the rest is only counted.

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
        """The tap itself."""
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
        """All that was remembered, in order."""
        return PacketBatch.concatenate(self._batches)

    def times(self) -> NDArray[np.float64]:
        """When each of ``packets()`` passed, seconds, shape (n,)."""
        return np.concatenate([np.empty(0), *self._times])

    def to_switch(self) -> NDArray[np.bool_]:
        """Which of ``packets()`` went to the switch; the others left it. Shape (n,)."""
        return np.concatenate([np.empty(0, np.bool_), *self._upward])
