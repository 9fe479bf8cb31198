"""Several captures as one stream of batches, in the order of their time stamps.

Captures are read side by side, a block of each at a time, so that memory does not depend on their
length. A packet with an earlier time stamp than one before it in its own capture keeps its place
and counts as being of that one's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from innet.errors import InputError
from innet.packets import PacketBatch
from innet.switch.model import MAX_PORT
from innet.tools.capture_kernels import gather
from innet.tools.captures import Block, CaptureReader

MOST_BYTES = 1 << 26
"""Of a batch: one whose longest packet is very long has fewer packets."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Packets and when each was captured: int64 (n,), nanoseconds; and ``clock``, the same without
    steps back.
    """

    packets: PacketBatch
    time: NDArray[np.int64]
    clock: NDArray[np.int64]


@dataclass(slots=True)
class Source:
    """A capture, and where its packets arrive.

    Attributes:
        port: for every packet; None: the number of the interface by which it came.
        cut: how many packets were longer before they were captured.
    """

    capture: CaptureReader
    port: int | None
    cut: int = 0
    _blocks: Iterator[Block] = field(init=False)
    _block: Block | None = field(init=False, default=None)
    _clock: NDArray[np.int64] = field(init=False)
    _next: int = field(init=False, default=0)
    _latest: int = field(init=False, default=-(1 << 63))

    def __post_init__(self) -> None:
        self._blocks = self.capture.blocks()
        self.advance()

    @property
    def path(self) -> Path:
        return self.capture.path

    @property
    def ended(self) -> bool:
        return self._block is None

    @property
    def horizon(self) -> int:
        """Nothing that has not been read yet is earlier than this."""
        return int(self._clock[-1])

    def advance(self) -> None:
        """Read the next block, once the packets of the last were taken."""
        self._block = next(self._blocks, None)
        self._next = 0
        if self._block is not None:
            block = self._block
            self._clock = np.maximum(np.maximum.accumulate(block.time), self._latest)
            self._latest = int(self._clock[-1])
            self.cut += block.cut

    def take(self, until: int, *, inclusive: bool) -> _Piece | None:
        """The packets up to a time, with those of that time or not; None when there are none."""
        block = self._block
        if block is None:
            return None
        upto = np.searchsorted(self._clock, until, "right" if inclusive else "left")
        end = max(self._next, int(upto))
        rows = slice(self._next, end)
        self._next = end
        if rows.start == rows.stop:
            return None
        return _Piece(
            block.data,
            block.start[rows],
            block.length[rows],
            block.time[rows],
            self._clock[rows],
            self._ports(block.interface[rows]),
        )

    @property
    def spent(self) -> bool:
        """Everything that was read has been taken."""
        return self._block is not None and self._next == len(self._block)

    def _ports(self, interface: NDArray[np.int32]) -> NDArray[np.int32]:
        if self.port is not None:
            return np.full(len(interface), self.port, np.int32)
        if interface.max(initial=0) > MAX_PORT:
            raise InputError(
                f"{self.path} has packets of interface {interface.max()}, and a switch has ports "
                f"0..{MAX_PORT}; say with --port at which port its packets arrive."
            )
        return interface


@dataclass(frozen=True, slots=True)
class _Piece:
    """Packets of one source that come next."""

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    time: NDArray[np.int64]
    clock: NDArray[np.int64]
    port: NDArray[np.int32]


def merged(sources: list[Source], most: int) -> Iterator[Timed]:
    """Batches of up to ``most`` packets; of equal times, those of the first source come first.

    Raises:
        PacketError: a capture is damaged; what came before it has been given out.
    """
    while any(not source.ended for source in sources):
        open_sources = [source for source in sources if not source.ended]
        horizon = min(source.horizon for source in open_sources)
        limiting = next(source for source in open_sources if source.horizon == horizon)
        # At the horizon itself, only what no source before the limiting one can still add to.
        last = sources.index(limiting)
        pieces = [
            piece
            for place, source in enumerate(sources)
            if (piece := source.take(horizon, inclusive=place <= last)) is not None
        ]
        yield from _batches(pieces, most)
        for source in open_sources:
            if source.spent:
                source.advance()


def _batches(pieces: list[_Piece], most: int) -> Iterator[Timed]:
    """Packets of all pieces in order of time, cut into batches."""
    clock = np.concatenate([piece.clock for piece in pieces])
    order = np.argsort(clock, kind="stable")
    length = np.concatenate([piece.length for piece in pieces])[order]
    time = np.concatenate([piece.time for piece in pieces])[order]
    port = np.concatenate([piece.port for piece in pieces])[order]
    clock = clock[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    owners = np.split(place, np.cumsum([len(piece.start) for piece in pieces])[:-1])
    first = 0
    while first < len(order):
        count = _count(length[first:], most)
        chosen = slice(first, first + count)
        rows = np.zeros((count, int(length[chosen].max())), np.uint8)
        for piece, where in zip(pieces, owners, strict=True):
            mine = np.flatnonzero((where >= first) & (where < first + count))
            if len(mine):
                gather(piece.data, piece.start[mine], piece.length[mine], where[mine] - first, rows)
        yield Timed(PacketBatch(rows, length[chosen], port[chosen]), time[chosen], clock[chosen])
        first += count


def _count(length: NDArray[np.int32], most: int) -> int:
    """How many packets the next batch takes, at least one."""
    strides = np.maximum.accumulate(length[:most].astype(np.int64))
    sizes = strides * np.arange(1, len(strides) + 1)
    return max(1, int(np.searchsorted(sizes, MOST_BYTES, "right")))
