"""The parameter server behind hashed aggregators (ATP, NSDI 2021): no socket, no clock, no timer.

Switches send it partial sums, or single contributions if they had no free aggregator; the header's
bitmap names the workers. The server adds contributions that it has not counted, and sends the
result when all are in. It only answers: a worker without a result sends its contribution again.

Workers put chunk ``c`` into slot ``c mod W`` and its copy ``(c div W) mod 2``. For every copy the
server holds the chunk's sequence number, the workers counted, and their sum. A packet for that
chunk is handled as follows:

    ========================================  ===============================================
    the packet's workers, and those counted   the packet is
    ========================================  ===============================================
    have none in common                       added; once complete, the result goes to all
    are those counted, and more               put in place of what was counted
    are all counted, the chunk is closed      answered with the result, if it was sent again
    are all counted, the chunk is open        ignored as a duplicate
    are not all counted, the chunk is closed  refused as late, and answered with the result
    overlap otherwise                         refused, since a sum cannot be split
    ========================================  ===============================================

A chunk is closed when all workers are in. It is closed without missing workers when a worker
requests a partial result again: by then the workers' first requests have flushed the aggregators on
their paths to the server. The result of a closed chunk never changes.

A packet of a newer chunk takes the copy over: a worker sends it only when all workers have the
result of the chunk that was there. A packet of an older chunk is stale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.protocol.counters import Counters
from innet.protocol.diagnosis import SlotRegisters
from innet.protocol.message import serial_distances
from innet.protocol.settings import JobMembership
from innet.wire import Batch, Endpoint, Frames, HeaderFlag, PacketLayout, Records, pack, parse

ALL_WORKERS = 0xFFFF
"""The addressee of a result for all workers of the job."""

_MARKS = int(HeaderFlag.OVERFLOW | HeaderFlag.ECN)  # set in a result if any of its parts had them


class ParameterServer:
    """The server of one job in one epoch.

    Args:
        layout: of the packets.
        workers: how many the job has, 1 .. 32.
        job, epoch: as in the header.
        window: slots of the job, a power of two.
        absent: indices of workers that do not take part in this epoch.
        priority: of the job's packets.
        source: the server's addresses.
        switch: the switch's addresses.

    Attributes:
        counters: what was sent, received and refused; ``results`` counts complete chunks, and
            ``retransmissions`` results that were sent again.
        collisions: packets for which no aggregator was free.

    Raises:
        InputError: a number outside its range.
    """

    def __init__(
        self,
        layout: PacketLayout,
        *,
        workers: int,
        job: int,
        epoch: int,
        window: int,
        absent: frozenset[int] = frozenset(),
        priority: int = 0,
        source: Endpoint,
        switch: Endpoint,
    ) -> None:
        self.layout = layout
        first = min(set(range(workers)) - absent, default=0)
        self.member = JobMembership(  # checks the numbers
            first, workers, job, epoch, window, absent, priority=priority
        )
        self.counters = Counters()
        self.collisions = 0
        self._source = source
        self._switch = switch
        self._full_bitmap = np.uint32(self.member.bitmap)
        copies = 2 * window
        self._used = np.zeros(copies, np.bool_)
        self._sequence = np.zeros(copies, np.uint32)
        self._bitmap = np.zeros(copies, np.uint32)
        self._closed = np.zeros(copies, np.bool_)
        self._operation = np.zeros(copies, np.uint8)
        self._elements = np.zeros(copies, np.uint16)
        self._message = np.zeros(copies, np.uint16)
        self._exponent = np.zeros(copies, np.uint16)
        self._marks = np.zeros(copies, np.uint8)
        self._sums = np.zeros((copies, layout.values), np.int32)
        self._answers: list[Frames] = []

    # ------------------------------------------------------------------ a host of a transport

    @property
    def done(self) -> bool:
        """Whether there is nothing to send; then the server does nothing until a packet arrives."""
        return not self._answers

    def next_deadline(self) -> float | None:
        """None: the server has no timer."""
        return None

    def outgoing(self, now: float) -> Frames:
        """The results to send since the last call, uint8 (k, layout.frame_size)."""
        del now
        if not self._answers:
            return np.empty((0, self.layout.frame_size), np.uint8)
        frames = np.concatenate(self._answers)
        self._answers.clear()
        self.counters.sent += len(frames)
        self.counters.bytes_sent += len(frames) * self.layout.wire_size
        return frames

    def receive(self, packets: Frames | PacketBatch, now: float) -> int:
        """Take packets that arrived; invalid ones are counted and raise nothing.

        Returns:
            How many packets were added to a sum.
        """
        del now
        batch = parse(self.layout, packets)
        self.counters.received += len(batch)
        self.counters.bytes_received += int(
            packets.length.sum() if isinstance(packets, PacketBatch) else packets.size
        )
        self.counters.bytes_received += len(batch) * (
            self.layout.wire_size - self.layout.frame_size
        )
        for why, number in batch.refusals().items():
            self.counters.refused[why.label] += number
        rows = np.flatnonzero(batch.valid)
        for reason, holds in self._fitting(batch.header[rows]):
            self.counters.refuse(reason, ~holds)
            rows = rows[holds]
        if not len(rows):
            return 0
        header = batch.header[rows]
        self.collisions += int(np.count_nonzero(header["flags"] & np.uint8(HeaderFlag.COLLISION)))
        copies = header["slot"].astype(np.int64) << 1 | header["slot_version"]
        added = 0
        while len(rows):
            # One packet for each copy at a time, in order of arrival.
            _, first = np.unique(copies, return_index=True)
            added += self._take(copies[first], rows[first], batch)
            later = np.ones(len(rows), np.bool_)
            later[first] = False
            rows, copies = rows[later], copies[later]
        return added

    def registers(self, slot: int, slot_version: int) -> SlotRegisters:
        """The state of one copy of a slot, for a diagnosis."""
        copy = slot << 1 | slot_version
        return SlotRegisters(int(self._sequence[copy]), int(self._bitmap[copy]))

    # ------------------------------------------------------------------ packets in

    def _fitting(self, header: Records) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """The checks of a contribution to this job. Each is about those that passed so far."""
        member = self.member
        full_bitmap = self._full_bitmap

        def narrowed(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
            nonlocal header
            header = header[holds]
            return holds

        yield "a result", narrowed(header["flags"] & np.uint8(HeaderFlag.RESULT) == 0)
        yield "job", narrowed(header["job"] == member.job)
        yield "epoch", narrowed(header["epoch"] == member.epoch)
        yield "worker", narrowed(header["worker"] < member.workers)
        bitmap = header["bitmap"].astype(np.uint32)
        yield "bitmap", narrowed((bitmap != 0) & (bitmap & ~full_bitmap == 0))
        bitmap = header["bitmap"].astype(np.uint32)
        yield "count", narrowed(header["count"] == np.bitwise_count(bitmap))
        chunk = header["sequence"].astype(np.uint32) - np.uint32(1)
        slot, version = chunk % member.window, chunk // member.window & 1
        yield "slot", narrowed((header["slot"] == slot) & (header["slot_version"] == version))

    def _take(self, copies: NDArray[np.int64], rows: NDArray[np.int64], batch: Batch) -> int:
        """Take packets for distinct copies; returns how many were added."""
        header = batch.header[rows]
        sequence = header["sequence"].astype(np.uint32)
        ahead = serial_distances(sequence, self._sequence[copies])
        fresh = (ahead > 0) | ~self._used[copies]
        stale = ~fresh & (ahead < 0)
        differs = ~fresh & ~stale & ~self._agreeing(copies, header)
        bits = header["bitmap"].astype(np.uint32)
        have = np.where(fresh, np.uint32(0), self._bitmap[copies])
        known = bits & ~have == 0
        apart = bits & have == 0
        more = ~known & (have & ~bits == 0)  # the workers counted, and others
        live = ~stale & ~differs
        was_closed = live & ~fresh & self._closed[copies]
        late = was_closed & ~known
        open_ = live & ~was_closed
        self.counters.refuse("stale", stale)
        self.counters.refuse("mismatch", differs)
        self.counters.refuse("overlap", open_ & ~known & ~more & ~apart)
        self.counters.refuse("late", late)
        self.counters.duplicates += int((live & known).sum())

        replaced = open_ & more  # also the first packet: nothing was counted
        self._replace(copies[replaced], header[replaced], batch, rows[replaced])
        added = open_ & apart & ~more
        self._add(copies[added], header[added], batch, rows[added])
        taken = replaced | added
        complete = open_ & (self._bitmap[copies] == self._full_bitmap)
        asks = header["flags"] & np.uint8(HeaderFlag.PARTIAL) != 0
        complete |= open_ & asks & (header["flags"] & np.uint8(HeaderFlag.URGENCY) != 0)
        self._closed[copies] |= complete
        self.counters.results += int(complete.sum())
        self._answer(copies[complete], ALL_WORKERS)
        again = was_closed & known & (header["flags"] & np.uint8(HeaderFlag.RESEND) != 0)
        self.counters.retransmissions += int((again | late).sum())
        for asking in (again, late):
            self._answer(copies[asking], header["worker"][asking].astype(np.uint16))
        return int(taken.sum())

    def _agreeing(self, copies: NDArray[np.int64], header: Records) -> NDArray[np.bool_]:
        """Whether packets agree with the first one of their chunk."""
        same: NDArray[np.bool_] = (
            (header["operation"] == self._operation[copies])
            & (header["elements"] == self._elements[copies])
            & (header["message"] == self._message[copies])
        )
        return same

    def _replace(
        self, copies: NDArray[np.int64], header: Records, batch: Batch, rows: NDArray[np.int64]
    ) -> None:
        self._closed[copies] = False
        self._used[copies] = True
        self._sequence[copies] = header["sequence"]
        self._bitmap[copies] = header["bitmap"]
        self._operation[copies] = header["operation"]
        self._elements[copies] = header["elements"]
        self._message[copies] = header["message"]
        self._exponent[copies] = header["exponent"]
        self._marks[copies] = header["flags"] & np.uint8(_MARKS)
        self._sums[copies] = batch.frames["values"][rows]

    def _add(
        self, copies: NDArray[np.int64], header: Records, batch: Batch, rows: NDArray[np.int64]
    ) -> None:
        if not len(copies):
            return
        held = self._sums[copies]
        values = batch.frames["values"][rows].astype(np.int32)
        result = held + values  # modulo 2**32, as the switches add
        # A sum has overflowed int32 if its sign differs from those of both summands.
        left = ((held ^ result) & (values ^ result) < 0).any(axis=1)
        over = left & (header["operation"] == ReduceOp.SUM)
        chosen = header["operation"] == ReduceOp.OR
        result[chosen] = held[chosen] | values[chosen]
        chosen = header["operation"] == ReduceOp.MAX
        result[chosen] = np.maximum(held[chosen], values[chosen])
        self._sums[copies] = result
        self._bitmap[copies] |= header["bitmap"].astype(np.uint32)
        self._exponent[copies] = np.maximum(self._exponent[copies], header["exponent"])
        self._marks[copies] |= header["flags"] & np.uint8(_MARKS) | over * np.uint8(
            HeaderFlag.OVERFLOW
        )

    # ------------------------------------------------------------------ results out

    def _answer(self, copies: NDArray[np.int64], addressee: int | NDArray[np.uint16]) -> None:
        if not len(copies):
            return
        self._answers.append(
            pack(
                self.layout,
                self._source,
                self._switch,
                self._sums[copies],
                operation=self._operation[copies],
                job=self.member.job,
                epoch=self.member.epoch,
                sequence=self._sequence[copies],
                slot=(copies >> 1).astype(np.uint16),
                slot_version=(copies & 1).astype(np.uint8),
                worker=addressee,
                elements=self._elements[copies],
                flags=self._marks[copies]
                | np.uint8(HeaderFlag.RESULT)
                | (self._bitmap[copies] != self._full_bitmap) * np.uint8(HeaderFlag.PARTIAL),
                bitmap=self._bitmap[copies],
                count=np.bitwise_count(self._bitmap[copies]).astype(np.uint16),
                exponent=self._exponent[copies],
                message=self._message[copies],
                priority=self.member.priority,
            )
        )
