"""A batch of raw packets: the form in which bytes move between hosts, fabric and switch.

Nothing here knows what the bytes mean. ``innet.wire`` gives them meaning for workers; a P4 program
gives them meaning in the switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """``n`` packets in arrival order.

    Attributes:
        data: shape (n, stride), uint8, C-contiguous. Row i holds packet i; bytes past its length
            have no meaning.
        length: shape (n,), int32, bytes; 0 <= length <= stride.
        port: shape (n,), int32. The switch port a packet arrives at or leaves from.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    port: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.length)

    @classmethod
    def empty(cls, stride: int = 0) -> PacketBatch:
        return cls(np.empty((0, stride), np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))

    @classmethod
    def uniform(cls, data: NDArray[np.uint8], port: int | NDArray[np.int32]) -> PacketBatch:
        """Packets that all fill their row; ``port`` is one port for all or an array (n,)."""
        count, stride = data.shape
        return cls(
            np.ascontiguousarray(data),
            np.full(count, stride, np.int32),
            np.broadcast_to(np.asarray(port, np.int32), (count,)).copy(),
        )

    @classmethod
    def from_packets(cls, packets: Iterable[tuple[int, bytes]]) -> PacketBatch:
        """From (port, bytes) pairs of any lengths."""
        pairs = list(packets)
        stride = max((len(payload) for _, payload in pairs), default=0)
        data = np.zeros((len(pairs), stride), np.uint8)
        for row, (_, payload) in zip(data, pairs, strict=True):
            row[: len(payload)] = np.frombuffer(payload, np.uint8)
        length = np.array([len(payload) for _, payload in pairs], np.int32)
        return cls(data, length, np.array([port for port, _ in pairs], np.int32))

    @classmethod
    def concatenate(cls, batches: Sequence[PacketBatch]) -> PacketBatch:
        """One batch after the other; rows are widened to the widest stride."""
        filled = [batch for batch in batches if len(batch)]
        if not filled:
            return cls.empty(max((batch.data.shape[1] for batch in batches), default=0))
        if len(filled) == 1:
            return filled[0]
        stride = max(batch.data.shape[1] for batch in filled)
        data = np.zeros((sum(map(len, filled)), stride), np.uint8)
        row = 0
        for batch in filled:
            data[row : row + len(batch), : batch.data.shape[1]] = batch.data
            row += len(batch)
        return cls(
            data,
            np.concatenate([batch.length for batch in filled]),
            np.concatenate([batch.port for batch in filled]),
        )

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> PacketBatch:
        """The packets at ``rows`` (indices, in that order, or a mask)."""
        return PacketBatch(self.data[rows], self.length[rows], self.port[rows])

    def to_packets(self) -> list[tuple[int, bytes]]:
        """As (port, bytes) pairs, for tests and for people."""
        return [
            (int(port), row[:length].tobytes())
            for port, length, row in zip(self.port, self.length, self.data, strict=True)
        ]
