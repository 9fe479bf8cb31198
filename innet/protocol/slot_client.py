"""The worker's side of the slot pool (SwitchML, NSDI 2021, section 3), without socket or clock.

The caller passes in the time and the packets that arrived, and sends the outgoing packets:

    worker.start(segments, now)
    while not worker.done:
        send(worker.outgoing(now))
        ... until something arrives, or worker.next_deadline() has come ...
        worker.receive(packets, now)
    results = worker.results()

Chunk ``c`` (0, 1, 2, ... over all all-reduces of an epoch) has the sequence ``c + 1`` modulo 2**32.
It uses slot ``c mod W`` and its copy ``(c div W) mod 2``, and may be sent after the result of chunk
``c - W`` has arrived. So a packet of ``c`` proves to the switch that every worker has the result of
``c - 2W``, whose copy ``c`` reuses. As ``2W`` divides 2**32, slot and copy stay right when the
sequence wraps to 0.

Each slot is in one of three states. Rows are events, entries the next state:

    ============================  ==========================  =================  ================
    event                         IDLE                        QUEUED             WAITING
    ============================  ==========================  =================  ================
    start, and a chunk is left    QUEUED                      (refused)          (refused)
    outgoing                      IDLE                        WAITING, sent      WAITING
    outgoing, timeout passed      IDLE                        WAITING, sent      WAITING, resent
    outgoing, overtaken           IDLE                        WAITING, sent      WAITING, resent
    outgoing, the window is full  IDLE                        QUEUED             WAITING
    outgoing, give-up passed      IDLE                        QUEUED             StalledError
    its result, chunks left       IDLE, counted as duplicate  QUEUED, refused    QUEUED (c + W)
    its result, none left         IDLE, counted as duplicate  QUEUED, refused    IDLE
    an older chunk's result       IDLE, counted as duplicate  QUEUED, duplicate  WAITING, duplicate
    anything else                 unchanged, counted as refused with the reason
    ============================  ==========================  =================  ================
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StalledError, StateError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment
from innet.core.settings import WindowControl
from innet.protocol.counters import Counters, PacketVerdict, Stats
from innet.protocol.diagnosis import Diagnosis, SlotReader, Stall
from innet.protocol.message import Message, SizedMessage, sequence_of
from innet.protocol.settings import JobMembership, Timing
from innet.wire import (
    ETHERNET_HEADER,
    HEADER,
    Endpoint,
    FrameRefusal,
    Frames,
    HeaderFlag,
    PacketLayout,
    pack,
)
from innet.wire.layout import offset_of
from innet.wire.parsing import frames_of, rules

if TYPE_CHECKING:
    from innet.protocol.timers import SlotTimers

_TYPE_OF_SERVICE = ETHERNET_HEADER.itemsize + 1
_AT_TAG = offset_of("message") - HEADER.itemsize  # from the end of what stands before the values
_FIRST_CHUNK, _END_CHUNK = 4, 5  # of innet.protocol.compiled.MemberWords
_NOTHING = Message([], 1)
_FLAGS, _IN_QUEUE, _MARKED = int(Stats.FLAGS), int(Stats.QUEUED), int(Stats.MARKED)
_BARE, _SHORT = int(Stats.BARE), int(Stats.SHORT)
_RESULT, _PARTIAL = int(HeaderFlag.RESULT), int(HeaderFlag.PARTIAL)


class SlotState(enum.IntEnum):
    """State of a slot; see the table at the top."""

    IDLE = 0
    QUEUED = 1
    WAITING = 2


class Window:
    """The congestion window: how many chunks a worker may have under way.

    Additive increase, multiplicative decrease (Chiu and Jain, 1989) on marks instead of losses, as
    in ATP (NSDI 2021, section 3.6): a lost packet is sent again, but does not shrink the window. A
    window is halved once, however many marks it has, as all chunks under way at that moment met the
    same queue.

    Args:
        slots: slots of the job, the largest window.
        control: "fixed" or "aimd".

    Attributes:
        size: chunks that may be under way, 1 .. slots.
        halvings: how often it was halved.
    """

    def __init__(self, slots: int, control: WindowControl) -> None:
        self.size = slots
        self.halvings = 0
        self.adapts = control == "aimd"
        self._slots = slots
        self._exact = float(slots)
        self._deaf_until = 0  # marks of chunks before this one tell nothing new

    def heard(self, results: int, marked_chunk: int | None, next_chunk: int) -> None:
        """Update the window.

        Args:
            results: number of new results.
            marked_chunk: the newest chunk with a congestion mark; None if there was none.
            next_chunk: the first chunk that has not been sent.
        """
        if not self.adapts:
            return
        if marked_chunk is not None and marked_chunk >= self._deaf_until:
            self._exact = max(1.0, self._exact / 2)
            self._deaf_until = next_chunk
            self.halvings += 1
        elif marked_chunk is None:
            self._exact = min(float(self._slots), self._exact + results / self._exact)
        self.size = int(self._exact)


class ClientState(NamedTuple):
    """The client's state in one all-reduce, as arrays for compiled code.

    Attributes:
        terms, slots, chunks, notes: arguments of ``innet.protocol.compiled.take``.
        head: header of frames, see ``innet.protocol.compiled.fill``.
        message: words of all chunks, their operations and elements, and what words are made of,
            likewise.
        waiting: number of chunks that wait for their results.
        held: no new chunks may be sent.
        halts: flags of results that return control to Python before more is sent.
        last: the last chunk of the all-reduce if it has a tail probe; otherwise -1.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    message: tuple[Any, ...]
    waiting: int
    held: bool
    halts: int
    last: int


class LoopProgress(NamedTuple):
    """What compiled code did with a ``ClientState``.

    Attributes:
        answers: number of valid results.
        received: number of all packets.
        bytes: bytes of all packets.
        sent: frames of new chunks that were sent.
        waiting: number of chunks that wait for their results now.
        first, end: range of the last filled frames that the socket has not taken.
        lost: frames that did not fit the interface's queue.
        error: number of the error that stopped it, or 0.
    """

    answers: int
    received: int
    bytes: int
    sent: int
    waiting: int
    first: int
    end: int
    lost: int
    error: int


class SlotClient:
    """One worker of one job in one epoch.

    Args:
        layout: layout of the packets.
        member: the worker's membership: index, job, number of slots.
        source: addresses of the worker.
        switch: addresses of the switch.
        timing: timeouts.
        first_chunk: start of the chunk counter, the same for all workers of the epoch.

    Attributes:
        counters: packets sent, received and refused.
        label: a number that is part of the tag of the next all-reduce. Workers in separate
            processes count their all-reduces in it: after a failure the counts may differ, although
            chunks restart at 0 for all.
        all_or_none: stop sending new chunks after the first partial result; chunks in flight still
            complete.
        late: with ``all_or_none``, the workers that are missing in the first partial results. Later
            results may lack other workers that have stopped, too.
        window: the congestion window.
        round_trip: measured round trips.

    Raises:
        InputError: ``first_chunk`` is negative.
    """

    in_order: ClassVar[bool] = True  # results come in the order in which chunks were sent

    def __init__(
        self,
        layout: PacketLayout,
        member: JobMembership,
        *,
        source: Endpoint,
        switch: Endpoint,
        timing: Timing | None = None,
        first_chunk: int = 0,
    ) -> None:
        if first_chunk < 0:
            raise InputError(f"first_chunk is {first_chunk}; chunks count from 0.")
        self.layout = layout
        self.member = member
        self.timing = timing or Timing()
        self.counters = Counters()
        self.label = 0
        self.all_or_none = False
        self.late: tuple[int, ...] = ()
        self._source = source
        self._switch = switch
        # Imported here, as importing Numba takes longer than most commands run.
        self._compiled = importlib.import_module("innet.protocol.compiled")
        timers = importlib.import_module("innet.protocol.timers")
        window = member.window
        self._cursor = first_chunk  # the first chunk of the next all-reduce
        self._base = first_chunk  # the first chunk of this one
        # The chunk that a slot holds or held last. For a new worker it is the one before its first.
        slots = np.arange(window, dtype=np.int64)
        self._chunk = first_chunk - 1 - (first_chunk - 1 - slots) % window
        self._state = np.full(window, SlotState.IDLE, np.uint8)
        self._timers: SlotTimers = timers.SlotTimers(window, self.timing, in_order=self.in_order)
        self.window = Window(window, self.timing.window_control)
        self.round_trip = self._timers.round_trip
        self._present = member.bitmap
        self._who = np.empty(0, np.uint32)  # per chunk: bitmap of the workers in its result
        self._skipped: list[tuple[int, int]] = []  # see ``note_skipped``
        self._queue = np.zeros(window, np.int64)  # slots whose chunks may be sent
        self._queued = 0
        self._waiting = 0  # slots in that state
        self._held = False  # no chunk is sent that has not been sent before
        self._flags = 0  # see result_flags
        self._message: Message | None = None
        self._head = self._new_head()
        self._wire_size = layout.wire_size
        self._value_bytes = 4 * layout.elements
        self._unseen = layout.wire_size - layout.frame_size  # bytes that a thin frame stands for
        self._terms = rules(layout), self._me()
        self._slots = (self._chunk, self._state, self._queue), self._timers.state
        self._notes = np.zeros(Stats.LENGTH, np.int64), np.zeros(5)
        self._open = 0  # chunks without result
        self._now = 0.0

    # ------------------------------------------------------------------ one all-reduce

    def start(self, segments: Sequence[Segment] | Sequence[SizedSegment], now: float) -> None:
        """Begin an all-reduce of ``segments``, whose words must not change until it is done.

        All workers of the job start the same all-reduces, each with segments of the same
        operations and lengths, in the same order. With a thin layout they are thin segments.

        Raises:
            StateError: the previous one is not done.
            InputError: an invalid segment.
        """
        if self._open:
            raise StateError(
                f"{self._open} chunks of the previous all-reduce have no result yet; go on with "
                "it until it is done, or begin the next epoch with a new worker's end."
            )
        kind: Any = SizedMessage if self.layout.is_header_only else Message
        message: Message = kind(segments, self.layout.elements, self.member.worker)
        if len(message.owners) and not self.layout.has_owners:
            raise InputError(
                "chunks have owners, which the switch's program does not know; choose one that "
                "does, such as collectives."
            )
        owner = int(message.owners.max(initial=0))
        if owner >= self.member.workers:
            raise InputError(
                f"a chunk has the owner {owner}; the job's workers are 0 to "
                f"{self.member.workers - 1}."
            )
        self._message = message
        self._now = now
        self._open = message.chunks
        self._base = self._cursor
        self._cursor += self._open
        self._flags = 0
        self._who = self._no_results(self._open)
        self._skipped = []
        tag = message.tag(self._base, self.label)
        self._head[_AT_TAG], self._head[_AT_TAG + 1] = tag >> 8, tag & 0xFF
        member = self._terms[1]
        member[_FIRST_CHUNK], member[_END_CHUNK] = self._base, self._cursor
        self._queued = self._compiled.begin(
            self._base, self._cursor, self._chunk, self._state, self._queue
        )
        self.late, self._held = (), False

    def settle(self) -> None:
        """Have all words of the all-reduce made now; see ``Message.settle``."""
        if self._message is not None:
            self._message.settle()

    @property
    def done(self) -> bool:
        """Whether no result is outstanding: before the first start, after all results, or after an
        early stop (``all_or_none``).
        """
        return self._open == 0 or (self._held and not self._waiting)

    @property
    def result_flags(self) -> HeaderFlag:
        """Flags of all results since ``start``, combined (OVERFLOW, ECN and so on)."""
        return HeaderFlag(self._flags)

    @property
    def next_chunk(self) -> int:
        """The first chunk of the all-reduce after this one."""
        return self._cursor

    def results(self) -> list[NDArray[np.int32]]:
        """The combined words, one array per segment, each of its segment's shape (n,).

        They stay valid after the next ``start``.

        Raises:
            StateError: no all-reduce was started, results are missing, or packets are thin.
        """
        if self._message is None or self._open:
            raise StateError(f"no results: {self._open} chunks wait, or nothing was started.")
        return self._message.results()

    @property
    def bitmaps(self) -> NDArray[np.uint32]:
        """For each chunk of this all-reduce, shape (chunks,): the bits of the workers in its
        result, 0 without a result.
        """
        found = self._who.copy()
        for first, end in self._skipped:
            part = found[first:end]
            part[part == 0] = found[first - 1]
        return found

    @property
    def has_results(self) -> bool:
        """Whether all results are there; with ``all_or_none``, whether they are of all workers."""
        return self._open == 0 and not self._held

    @property
    def missing(self) -> tuple[int, ...]:
        """Workers that are missing in a result of this all-reduce, as far as results name them."""
        there = self._who[self._who != 0]
        lacking = self._present & ~int(np.bitwise_and.reduce(there)) if len(there) else 0
        if not lacking:
            return ()
        return tuple(index for index in self.member.present if lacking >> index & 1)

    def next_deadline(self) -> float | None:
        """When ``outgoing`` has something to do next; at once if the time has passed.

        None if nothing happens before ``start``.
        """
        if self.done:
            return None
        if self._queued and self._room() > 0:
            return self._now
        return self._timers.next_deadline()

    # ------------------------------------------------------------------ packets out

    def outgoing(self, now: float) -> Frames | PacketBatch:
        """The frames to send at ``now``: new chunks and retransmissions.

        Returns:
            uint8, (k, layout.frame_size); k may be 0. A batch, of port 0, if some of them end with
            the header.

        Raises:
            StalledError: a chunk has waited for its result for ``timing.give_up``. The state does
                not change; a later result is still accepted.
        """
        self._now = now
        if self._timers.has_given_up(now):
            raise StalledError(str(self.stall(now)))
        again = self._timers.due(self._chunk, now)
        fresh = self._next_turn()
        if not len(fresh) + len(again):
            return np.empty((0, self.layout.frame_size), np.uint8)
        slots = np.concatenate([again, fresh]) if len(again) else fresh
        self._state[fresh] = SlotState.WAITING
        self._waiting += len(fresh)
        self._timers.start(self._chunk, fresh, now, self._last)
        self._timers.again(again, now)
        flags = np.zeros(len(slots), np.uint8)
        flags[: len(again)] = HeaderFlag.RESEND
        if self.timing.partial_after is not None:
            asked = self._timers.impatience(again, now)
            request = np.uint8(HeaderFlag.PARTIAL) | (asked - np.uint8(1)) << np.uint8(6)
            flags[: len(again)] |= np.where(asked > 0, request, np.uint8(0))
        assert self._message is not None
        frames = np.empty((len(slots), self.layout.frame_size), np.uint8)
        lengths = np.empty(len(slots), np.int32)
        bare = self._compiled.fill(
            frames, lengths, self._head, (slots, flags), (self._chunk, self._base),
            self._words_sent(self._message),
        )  # fmt: skip
        self.counters.sent += len(frames)
        self.counters.bytes_sent += len(frames) * self._wire_size - bare * self._value_bytes
        self.counters.retransmissions += len(again)
        return PacketBatch(frames, lengths, np.zeros_like(lengths)) if bare else frames

    @staticmethod
    def _words_sent(message: Message) -> tuple[NDArray[Any], ...]:
        """What ``fill`` makes frames of."""
        floats, _, numbers = message.floats
        return (
            message.words, message.operation, message.elements, message.owners, floats, numbers,
            message.places,
        )  # fmt: skip

    def _room(self) -> int:
        """How many more chunks may be sent."""
        if self._held:
            return 0
        if not self.window.adapts:
            return self.member.window
        room = self.window.size - self._waiting
        return 1 if room < 1 and self._lacks_oldest() else room

    def _lacks_oldest(self) -> bool:
        """Whether the oldest unfinished chunk has not been sent.

        Other workers may have sent it and none of the chunks that fill this worker's window.
        Without an exception for it, they would wait for each other forever.
        """
        queued = self._chunk[self._queue[: self._queued]]
        waiting = self._chunk[self._state == SlotState.WAITING]
        return bool(queued.min(initial=self._cursor) < waiting.min(initial=self._cursor))

    def _next_turn(self) -> NDArray[np.int64]:
        """The slots of the new chunks to send now."""
        room = max(0, self._room())
        queued = self._queue[: self._queued].copy()
        if room >= len(queued):
            self._queued = 0
            return queued
        # The oldest first, as other workers may wait for the oldest chunk.
        queued = queued[np.argsort(self._chunk[queued])]
        self._queued = len(queued) - room
        self._queue[: self._queued] = queued[room:]
        return queued[:room]

    @property
    def _last(self) -> int:
        """The last chunk, if an early retransmission (a tail probe) can help; otherwise -1."""
        return self._cursor - 1 if self.in_order else -1

    def _new_head(self) -> Frames:
        """The header of frames for ``fill``, without a tag."""
        frame = pack(
            self.layout,
            self._source,
            self._switch,
            np.zeros((1, self.layout.values), np.int32),
            operation=ReduceOp.SUM,
            job=self.member.job,
            epoch=self.member.epoch,
            sequence=0,
            slot=0,
            slot_version=0,
            worker=self.member.worker,
            listens=self.window.adapts,
            priority=self.member.priority,
        )
        self.layout.view(frame)["innet"]["checksum"] = 0
        return frame[0, : self.layout.values_offset].copy()

    def _version(self, chunk: NDArray[np.int64]) -> NDArray[np.uint8]:
        return ((chunk // self.member.window) & 1).astype(np.uint8)

    # ------------------------------------------------------------------ packets in

    def receive(self, packets: Frames | PacketBatch, now: float) -> int:
        """Process arrived packets. Invalid ones are counted and raise no errors.

        Args:
            packets: frames, uint8 (k, bytes), or a batch of any lengths (its ports are ignored).
            now: the time.

        Returns:
            The number of new results.
        """
        unsent = self._next_unsent() if self.window.adapts else 0
        self._ready_notes(now)
        data, length = frames_of(packets)
        answers: int = self._compiled.receive(
            (data, length), self._terms, self._slots, self._chunks_asked(), self._notes
        )
        self._took(answers, len(length), int(length.sum()))
        if self.window.adapts and answers:
            marked = int(self._notes[0][_MARKED])
            self.window.heard(answers, marked if marked >= 0 else None, unsent)
        return answers

    def _ready_notes(self, now: float) -> None:
        """Reset the counts of compiled code."""
        self._now = now
        stats, clock = self._notes
        stats.fill(0)
        stats[_IN_QUEUE], stats[_MARKED] = self._queued, -1
        clock[:] = now, self.timing.timeout, -1.0, -np.inf, -1.0

    def _chunks_asked(self) -> tuple[NDArray[Any], ...]:
        """The state of this all-reduce for ``take``."""
        message = _NOTHING if self._message is None else self._message
        _, sums, numbers = message.floats
        return (
            message.operation, message.elements, message.combined, self._who, sums, numbers,
            message.places,
        )  # fmt: skip

    def _took(self, answers: int, received: int, size: int) -> None:
        """Add the counts of compiled code for ``received`` packets of ``size`` bytes."""
        counters = self.counters
        counters.received += received
        stats = self._notes[0]
        # A thin frame without values stands for itself.
        counters.bytes_received += size + (received - int(stats[_SHORT])) * self._unseen
        counters.results += answers
        counters.bytes_sent -= int(stats[_BARE]) * self._value_bytes
        self._queued = int(stats[_IN_QUEUE])
        if answers < received:
            self._count(stats.tolist())
        if answers:
            self._open -= answers
            self._waiting -= answers
            self._flags |= int(stats[_FLAGS]) & ~_RESULT
            if self.all_or_none and not self._held and self._flags & _PARTIAL:
                self._hold_if_partial()

    def _no_results(self, chunks: int) -> NDArray[np.uint32]:
        """What ``_who`` holds for chunks without a result."""
        return np.zeros(chunks, np.uint32)

    def _hold_if_partial(self) -> None:
        """A partial result came: send no new chunks if it lacks workers who take part."""
        self.late = self.missing
        self._held = bool(self.late)

    # ------------------------------------------------------------------ both in compiled code

    @property
    def runs_compiled(self) -> bool:
        """Whether compiled code alone can send and receive, as new chunks depend only on received
        results; see ``innet.transport.socket_loop``.
        """
        return not self.window.adapts and self.timing.partial_after is None

    def compiled_state(self, now: float) -> ClientState:
        """The state that compiled code needs to receive results and send chunks."""
        self._ready_notes(now)
        message = _NOTHING if self._message is None else self._message
        asks = self.all_or_none and not self._held
        return ClientState(
            self._terms,
            self._slots,
            self._chunks_asked(),
            self._notes,
            self._head,
            self._words_sent(message),
            self._waiting,
            self._held,
            _PARTIAL if asks else 0,
            self._last,
        )

    def apply_progress(self, progress: LoopProgress) -> None:
        """Update this client after compiled code has used ``compiled_state``."""
        self._waiting += progress.sent
        self._took(progress.answers, progress.received, progress.bytes)
        self.counters.sent += progress.sent
        self.counters.bytes_sent += progress.sent * self._wire_size

    def note_resent(self, frames: int) -> None:
        """Count frames that compiled code has sent again."""
        self.counters.sent += frames
        self.counters.bytes_sent += frames * self._wire_size
        self.counters.retransmissions += frames

    def note_skipped(self, first: int, end: int) -> None:
        """Note that results of chunks of this all-reduce have come of which compiled code was not
        told: they are like the result of the chunk before the ``first``, up to ``end``.
        """
        self._skipped.append((first, end))

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all give-up deadlines by the time for which this process was stopped."""
        self._timers.give_up_at += seconds

    def _me(self) -> NDArray[np.int64]:
        """As ``innet.protocol.compiled.MemberWords``, before the first all-reduce."""
        member = self.member
        tos = _TYPE_OF_SERVICE if self.layout.framing == "udp" else -1
        present = member.bitmap.bit_count()
        return np.array([member.job, member.epoch, member.worker, present, 0, 0, tos])

    def _count(self, stats: list[int]) -> None:
        """Count packets that are not results."""
        counters = self.counters
        counters.duplicates += stats[PacketVerdict.DUPLICATE]
        for verdict in set(PacketVerdict) - {
            PacketVerdict.ANSWER,
            PacketVerdict.UNREADABLE,
            PacketVerdict.DUPLICATE,
        }:
            if stats[verdict]:
                counters.refused[verdict.label] += stats[verdict]
        for refusal in FrameRefusal:
            if stats[Stats.REFUSED + refusal]:
                counters.refused[refusal.label] += stats[Stats.REFUSED + refusal]

    def _next_unsent(self) -> int:
        """The first chunk that has not been sent."""
        sent = self._chunk[self._state != SlotState.QUEUED]
        return int(sent.max()) + 1 if len(sent) else self._base

    # ------------------------------------------------------------------ stalls

    def stall(self, now: float) -> Stall | None:
        """The oldest chunk that waits for its result; None if there is none."""
        waiting = np.flatnonzero(self._state == SlotState.WAITING)
        if not len(waiting):
            return None
        slot = int(waiting[np.argmin(self._chunk[waiting])])
        chunk = self._chunk[slot : slot + 1]
        return Stall(
            member=self.member,
            slot=slot,
            slot_version=int(self._version(chunk)[0]),
            sequence=int(sequence_of(chunk)[0]),
            waited=self._timers.waited(slot, now),
            sends=int(self._timers.sends[slot]),
            stuck=len(waiting),
            silence=self._timers.silence(now),
            refused=dict(self.counters.refused),
        )

    def diagnose(self, read: SlotReader, now: float | None = None) -> Diagnosis | None:
        """The workers that the oldest waiting chunk lacks, from the switch's registers, or None.

        Args:
            read: reads the switch's registers. Bit ``i`` of the bitmap is worker ``i``.
            now: the time; by default that of the last call.
        """
        stall = self.stall(self._now if now is None else now)
        return None if stall is None else stall.diagnose(read)


class TreeClient(SlotClient):
    """A worker at a leaf of a tree of switches, whose results name its leaf's children only.

    Of other racks it knows how many workers are in a result, not which. So ``missing`` and ``late``
    name no worker but this one.
    """

    def _no_results(self, chunks: int) -> NDArray[np.uint32]:
        if self._are_whole:
            return super()._no_results(chunks)
        return np.full(chunks, 1 << self._bit, np.uint32)  # nothing says yet that it is missing

    @property
    def _are_whole(self) -> bool:
        """Whether no result lacks workers: in simulated time none does unless all may ask for it.

        Memory is then taken only for the chunks whose packets are simulated.
        """
        return self.layout.is_header_only and self.timing.partial_after is None

    @property
    def bitmaps(self) -> NDArray[np.uint32]:
        """For each chunk of this all-reduce: the bits of the leaf's children in its result; without
        a result, this worker's own bit.
        """
        found = super().bitmaps
        if self._are_whole:
            found[found == 0] = 1 << self._bit
        return found

    @property
    def _bit(self) -> int:
        return self.member.worker if self.member.bit is None else self.member.bit

    @property
    def missing(self) -> tuple[int, ...]:
        """This worker, if a result of this all-reduce lacks it."""
        if self._are_whole:
            return ()
        inside = np.all(self._who >> np.uint32(self._bit) & np.uint32(1))
        return () if inside else (self.member.worker,)

    def _hold_if_partial(self) -> None:
        self.late, self._held = self.missing, True


class HashedClient(SlotClient):
    """A worker whose results come from a parameter server.

    Chunks, window, timers and retransmission are those of ``SlotClient``. The server keeps two
    copies of a slot, as the slot pool does. Retransmitted contributions are marked RESEND.
    """

    in_order = False  # what meets another's aggregator goes a longer way, to the server

    def diagnose(self, read: SlotReader, now: float | None = None) -> Diagnosis | None:
        """As ``SlotClient.diagnose``. If no worker is missing, it names the server."""
        diagnosis = super().diagnose(read, now)
        if diagnosis is None or 0 < len(diagnosis.missing) < self.member.workers:
            return diagnosis
        hint = " Results come from the parameter server: see that it runs and can be reached."
        return replace(diagnosis, text=diagnosis.text + hint)
