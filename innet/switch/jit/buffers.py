"""Output buffers of compiled programs: their size, and their reuse when nothing references them."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.packets import PacketBatch
from innet.switch.jit.native import Frame

#: Output buffers kept for reuse; more are in use only while callers hold batches.
_POOL_SIZE = 4


@dataclass(slots=True)
class SizeEstimate:
    """The size of output buffers, estimated from batches that needed more than a row for each
    packet.

    It never exceeds the memory of one of those batches. Otherwise a few long packets, or one with
    very many copies, would enlarge both dimensions of all later buffers.
    """

    per_packet: float = 0.0
    growth: int = 0
    size: int = 0

    def rows(self, count: int, least: int, stride: int) -> int:
        """Rows of ``stride`` bytes for ``count`` packets, ``least`` or more."""
        return max(least, min(math.ceil(count * self.per_packet), self.size // max(1, stride)))

    def growth_of(self, rows: int, width: int) -> int:
        """Bytes by which ``rows`` should be longer than the packets received, of ``width``."""
        return self.growth if rows * (width + self.growth) <= self.size else 0

    def note(self, count: int, produced: int, stride: int, growth: int = 0) -> None:
        """Record that ``count`` packets became ``produced`` rows of ``stride`` bytes."""
        self.per_packet = max(self.per_packet, produced / max(1, count))
        self.growth = max(self.growth, growth)
        self.size = max(self.size, produced * stride)


class OutputBuffer:
    """A buffer for the emitted function; ``words`` are its arguments.

    Args:
        frame, first: of which arguments.
        rows: packets.
        stride: bytes of each.
        timed: the function also returns the time at which each packet leaves, and its extra bytes.
    """

    def __init__(self, frame: Frame, first: int, rows: int, stride: int, *, timed: bool) -> None:
        self.data = np.empty((rows, stride), np.uint8)
        self.length, self.port, self.origin = (np.empty(rows, np.int32) for _ in range(3))
        self.time = np.empty(rows, np.int64) if timed else None
        self.extra = np.empty(rows, np.int32) if timed else None
        self.stride = stride
        self.words = frame.words(first, self._arrays())
        self._unused = self._references()

    def _arrays(self) -> list[NDArray[Any]]:
        arrays: list[NDArray[Any]] = [self.data, self.length, self.port, self.origin]
        beside = [each for each in (self.time, self.extra) if each is not None]
        return [*arrays, *beside]

    def batch(self, count: int, *, timed: bool = False) -> PacketBatch:
        """Views of the first ``count`` packets."""
        extra = None if self.extra is None else self.extra[:count]
        return PacketBatch(
            self.data[:count],
            self.length[:count],
            self.port[:count],
            self.origin[:count],
            self.time[:count] if timed and self.time is not None else None,
            extra if extra is not None and extra.any() else None,
        )

    def copied_to(self, other: OutputBuffer, count: int) -> OutputBuffer:
        """``other``, with the first ``count`` packets of this one."""
        other.data[:count, : self.stride] = self.data[:count]
        for mine, its in zip(self._arrays()[1:], other._arrays()[1:], strict=True):
            its[:count] = mine[:count]
        return other

    def _references(self) -> int:
        return sum(map(sys.getrefcount, self._arrays()))

    def is_referenced(self) -> bool:
        """Whether views of the buffer's arrays exist."""
        return self._references() != self._unused


class BufferPool:
    """A pool of buffers. A buffer is reused when no view of it exists.

    Page faults of new memory for every batch would cost more than many programs do.
    """

    def __init__(self, frame: Frame, first: int, *, timed: bool = False) -> None:
        self._frame = frame
        self._first = first
        self._timed = timed
        self._pool: list[OutputBuffer] = []

    def take(self, rows: int, stride: int) -> OutputBuffer:
        """A free buffer of at least ``rows`` rows of ``stride`` bytes."""
        for output in self._pool:
            fits = output.data.shape[0] >= rows and output.stride == stride
            if fits and not output.is_referenced():
                return output
        output = OutputBuffer(self._frame, self._first, rows, stride, timed=self._timed)
        self._pool = [*self._pool[-(_POOL_SIZE - 1) :], output]
        return output
