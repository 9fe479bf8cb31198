"""Calls of a compiled program with queues, and the packets that wait between calls.

The emitted function (``emit.queue``) allocates no memory. If it needs more it stops and returns
what it lacks; ``QueuedProgram`` allocates it and calls again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.jit.buffers import BufferPool, OutputBuffer, SizeEstimate
from innet.switch.jit.native import NativeProgram, Value
from innet.switch.jit.traits import (
    ENTRY_WORDS,
    NEED_BYTES,
    NEED_DIGESTS,
    NEED_ENTRIES,
    NEED_ROWS,
    NEED_SLOTS,
    ORIGIN_WORDS,
    decode_digests,
    digest_room,
)
from innet.switch.traffic_manager import FOREVER, MICROSECOND, TRAFFIC_WORDS

if TYPE_CHECKING:
    from innet.switch.record_sink import RecordSink

Received = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]
"""Data, lengths and ports of a batch."""


#: Positions of arguments, see ``emit.program.argument_types``.
OUT, STATISTICS_ARGUMENT, CLOCK, _PERSISTENT, RECORDS = 4, 10, 11, 20, 28
_ELEMENTS = 2  # the word of an array that says how many it has, see ``native``
_NOW, _ENTRIES, _FREE, _SPARE, _FREE_ORIGIN, _DIGESTED = map(
    TRAFFIC_WORDS.index, ("now", "entries", "free", "spare", "free_origin", "digested")
)
_FIRST_SLOTS, _FIRST_ENTRIES, _FIRST_SPAN = 16, 32, 256
_NO_TIMES = np.zeros(1, np.int64)


class QueuedProgram:
    """A compiled program with queues, and the packets that wait in them.

    Args:
        native: the program.
        state: of its switch.
        statistics: the array of emitted code's counters.
        recorder: of a recording build.

    Attributes:
        frame: the arguments of its function.
        buffers: the output buffers.
        traffic: int64, ``traffic_manager.TRAFFIC_WORDS``.
        heap: int64, flat: the waiting copies as a heap by departure, ``ENTRY_WORDS`` each.
        received: shape (1,): packets so far.
        prepared: who wrote the frame, for whoever may go on without writing it again.
    """

    prepared: object = None

    def __init__(
        self,
        native: NativeProgram,
        state: SwitchState,
        statistics: NDArray[np.int64],
        recorder: RecordSink | None = None,
    ) -> None:
        self._digests = np.zeros(2 * digest_room(state.program), np.int64)
        self.frame = native.frame()
        self._growth = native.compiled.growth
        self._row = native.compiled.row
        self._state = state
        self._recorder = recorder
        self.buffers = BufferPool(self.frame, OUT, timed=True)
        self._estimate = SizeEstimate()
        self.received = np.zeros(1, np.int64)  # packets of all calls
        self._moved = True  # arrays were replaced since the frame was written
        self.frame.put(STATISTICS_ARGUMENT, [statistics])
        if recorder is not None:
            self._record_words = self.frame.words(RECORDS, [recorder.buffer])
        self.forget()

    def forget(self) -> None:
        """Drop all waiting packets."""
        self._state.traffic_manager.clear()
        self.traffic = np.zeros(len(TRAFFIC_WORDS), np.int64)
        self._slots, self._span = 0, _FIRST_SPAN
        self._pool = np.zeros(0, np.int64)
        self._store = np.zeros(0, np.uint8)
        self._origins = np.zeros(0, np.int64)
        self.heap = np.zeros(_FIRST_ENTRIES * ENTRY_WORDS, np.int64)
        self._add_slots(_FIRST_SLOTS)

    @property
    def waiting(self) -> int:
        """The number of copies that wait for egress."""
        return int(self.traffic[_ENTRIES])

    @property
    def slots(self) -> tuple[NDArray[np.int64], int]:
        """The rows of slots, flat, and how many words each has."""
        return self._pool, self._row

    @property
    def store(self) -> NDArray[np.uint8]:
        """The bytes of slots' packets as they came, a row for each slot."""
        return self._store.reshape(self._slots, self._span)

    @property
    def next_departure(self) -> int | None:
        """The departure time of the next copy, in nanoseconds."""
        return int(self.heap[0]) if self.waiting else None

    def run(
        self,
        packets: Received,
        extra: NDArray[np.int32] | None,
        times: NDArray[np.int64] | None,
        until: int,
        room: int,
    ) -> PacketBatch:
        """Run packets, and the egress of due copies.

        Args:
            packets: the received packets.
            extra: bytes by which they are longer than what they carry.
            times: arrival times in nanoseconds; None to bypass the queues.
            until: run copies due by this time.
            room: most queue entries of one packet.
        """
        count, width = packets[0].shape
        timed, self.prepared = times is not None, None
        self.room_for(width)
        rows = self._estimate.rows(count, max(1, count), width + self._estimate.growth)
        growth = max(self._growth, self._estimate.growth_of(rows, width))
        out = self.buffers.take(rows, width + growth)
        serial, first, produced = int(self.received[0]), 0, 0
        self.received[0] += count
        manager = self._state.traffic_manager
        self.traffic[_NOW] = manager.now
        clock = self._state.time()
        longer = np.zeros(count, np.int32) if extra is None else extra
        segments = self._segments(count, times, until)
        end, limit = next(segments)
        while True:
            self.frame.put(0, [packets[0].reshape(-1), packets[1][:end], packets[2][:end], first])
            self.frame.write(OUT, out.words)
            self.write_persistent()
            given = _NO_TIMES if times is None else times
            numbers = [serial, limit, int(timed), produced, width]
            self.frame.put(CLOCK, [clock, room, given, longer, *numbers])
            first, produced, wanted, needed, *more = cast("list[int]", self.frame.call({}))
            if self._recorder is not None:
                self._recorder.take(*more)
            if wanted:
                out = self.make_room(wanted, needed, room, out, produced)
            elif (segment := next(segments, None)) is not None:
                end, limit = segment
            else:
                break
        self.hand_over_digests()
        if timed:
            if until < FOREVER:
                self.traffic[_NOW] = max(self.traffic[_NOW], until)
            self.take_time()
        self._estimate.note(count, max(count, produced), out.stride, out.stride - width)
        return out.batch(produced, timed=timed)

    def _segments(
        self, count: int, times: NDArray[np.int64] | None, until: int
    ) -> Iterator[tuple[int, int]]:
        """How many packets to receive and up to when to run what waits, until all is done.

        There is one part, unless entries have timeouts. Then each part ends at the time of a sweep
        for idle entries, which is done here.
        """
        ageing, first = self._state.ageing, 0
        while times is not None and ageing.has_timeouts:
            events = times[first : first + 1].tolist()
            if self.next_departure is not None:
                events.append(self.next_departure)
            if not events or min(events) > until:
                break
            ageing.advance(min(events) // MICROSECOND)
            due = ageing.due * MICROSECOND
            if due > until:
                break
            first = int(np.searchsorted(times, due))
            yield first, due - 1
        yield count, until

    def is_prepared(self, by: object) -> bool:
        """Whether the frame still is as it was when ``prepared`` was set."""
        return self.prepared == by and not self._moved

    def hand_over_digests(self) -> None:
        """Deliver digests to the control plane."""
        if digested := int(self.traffic[_DIGESTED]):
            words = self._digests[:digested]
            self._state.digests.extend(decode_digests(self._state.program, words))
            self.traffic[_DIGESTED] = 0

    def take_records(self) -> None:
        """Hand over records that ``inline.keep_records`` has kept."""
        if self._recorder is not None:
            left = int(self.frame.memory[self.frame.starts[RECORDS] + _ELEMENTS])
            self._recorder.take(len(self._recorder.buffer) - left)
            self.frame.write(RECORDS, self._record_words)

    def take_time(self) -> None:
        """Advance the switch's clocks."""
        manager = self._state.traffic_manager
        manager.now = int(self.traffic[_NOW])
        self._state.clock = manager.clock(manager.now)

    # ── Room ──

    def write_persistent(self) -> None:
        """Write the arrays that persist between calls to the frame, if they have moved."""
        if self._moved:
            arrays = (
                self.traffic,
                self._pool,
                self._store,
                self.heap,
                self._origins,
                self._digests,
            )
            values: list[Value] = [self._span, *arrays, self._state.traffic_manager.queues]
            if self._recorder is not None:
                values.append(self._recorder.buffer)
            self.frame.put(_PERSISTENT, values)
            self._moved = False

    def room_for(self, width: int) -> int:
        """Ensure slots for packets of ``width`` bytes; returns the width of output rows."""
        if width + self._growth > self._span:
            self._widen(width + self._growth)
        return self._span

    def make_room(
        self, wanted: int, needed: int, room: int, out: OutputBuffer, produced: int
    ) -> OutputBuffer:
        """Allocate what emitted code lacks; returns the output buffer to continue with."""
        rows, stride = out.data.shape
        match wanted:
            case _ if wanted == NEED_SLOTS:
                self._add_slots(self._slots)
            case _ if wanted == NEED_ENTRIES:
                size = 2 * len(self.heap) + (room + 2) * ENTRY_WORDS
                self.heap = _longer(self.heap, size)
                self._moved = True
            case _ if wanted == NEED_DIGESTS:
                self.hand_over_digests()
            case _ if wanted == NEED_ROWS:
                return out.copied_to(self.buffers.take(2 * rows + 1, stride), produced)
            case _ if wanted == NEED_BYTES:
                if needed > self._span:
                    self._widen(2 * needed)
                if needed > stride:
                    return out.copied_to(self.buffers.take(rows, 2 * needed), produced)
        return out

    def _add_slots(self, more: int) -> None:
        """Append free slots, and as many origins. Slot 0 is not for packets."""
        had, self._slots = self._slots, self._slots + more
        self._moved = True
        self._pool = _longer(self._pool, self._slots * self._row)
        self._store = _longer(self._store, self._slots * self._span)
        self._origins = _longer(self._origins, self._slots * ORIGIN_WORDS)
        # Free slots and origins are linked lists: each has the index of the next.
        slots = np.arange(max(1, had), self._slots)
        traffic = self.traffic
        self._pool[slots * self._row] = [*slots[1:], traffic[_FREE]]
        origins = slots * ORIGIN_WORDS
        self._origins[origins] = [*origins[1:], traffic[_FREE_ORIGIN]]
        traffic[_FREE], traffic[_FREE_ORIGIN] = slots[0], origins[0]
        traffic[_SPARE] += len(slots)

    def _widen(self, span: int) -> None:
        """Give each slot ``span`` bytes."""
        wider = np.zeros((self._slots, span), np.uint8)
        wider[:, : self._span] = self._store.reshape(self._slots, self._span)
        self._store, self._span = wider.reshape(-1), span
        self._moved = True


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
