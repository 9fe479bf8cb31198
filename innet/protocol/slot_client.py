"""The worker's end of the slot pool (SwitchML, NSDI 2021, section 3): no socket, no clock.

The caller passes in the time and the packets that came, and takes the packets that are to go:

    worker.start(segments, now)
    while not worker.done:
        send(worker.outgoing(now))
        ... until something arrives, or worker.next_deadline() has come ...
        worker.receive(packets, now)
    results = worker.results()

Chunk ``c`` (0, 1, 2, ... over the whole epoch, all-reduce after all-reduce) has the sequence
``c + 1`` modulo 2**32, lives in slot ``c mod W`` and in its copy ``(c div W) mod 2``, and may be
sent once the result of chunk ``c - W`` is in. So a worker's sending ``c`` proves to the switch that
every worker has had the result of ``c - 2W``, whose copy ``c`` takes over. ``2W`` divides 2**32, so
slot and copy go on evenly where the sequence wraps to 0.

Each slot is in one of three states. Rows are what happens, entries the next state:

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
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import WindowControl
from innet.protocol.counters import Counters, Stats, Verdict
from innet.protocol.diagnosis import Diagnosis, SlotReader, Stall
from innet.protocol.message import Message, sequence_of
from innet.protocol.settings import Membership, Timing
from innet.wire import ETHERNET_HEADER, HEADER, Endpoint, Flag, Frames, Layout, Refusal, pack
from innet.wire.layout import offset_of
from innet.wire.parsing import frames_of, rules

if TYPE_CHECKING:
    from innet.protocol.timers import SlotTimers

_TYPE_OF_SERVICE = ETHERNET_HEADER.itemsize + 1
_AT_TAG = offset_of("message") - HEADER.itemsize  # from the end of what stands before the values
_FIRST_CHUNK, _END_CHUNK = 4, 5  # of innet.protocol.compiled.Member
_NOTHING = Message([], 1)
_FLAGS, _IN_QUEUE, _MARKED = int(Stats.FLAGS), int(Stats.QUEUED), int(Stats.MARKED)
_RESULT, _PARTIAL = int(Flag.RESULT), int(Flag.PARTIAL)


class SlotState(enum.IntEnum):
    """What a slot of the worker is doing; see the table at the top."""

    IDLE = 0
    QUEUED = 1
    WAITING = 2


class Window:
    """How many chunks a worker has under way: all slots of the job, or what congestion allows.

    Additive increase, multiplicative decrease (Chiu and Jain, 1989) on marks instead of losses, as
    in ATP (NSDI 2021, section 3.6): a lost packet is repeated, but does not shrink the window. A
    window with a mark in it is halved once, however many marks it has: chunks that were under way
    at that moment tell of the same queue.

    Args:
        slots: of the job, the largest window.
        control: "fixed" or "aimd".

    Attributes:
        size: chunks that may be under way, 1 .. slots.
        halvings: how often it shrank.
    """

    def __init__(self, slots: int, control: WindowControl) -> None:
        self.size = slots
        self.halvings = 0
        self.adapts = control == "aimd"
        self._slots = slots
        self._exact = float(slots)
        self._deaf_until = 0  # marks of chunks before this one tell nothing new

    def heard(self, results: int, marked_chunk: int | None, next_chunk: int) -> None:
        """Take up what came.

        Args:
            results: how many results.
            marked_chunk: the newest chunk of those that were marked; None if none was.
            next_chunk: the first chunk that was not sent yet.
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
    """Arrays of a worker's end in one all-reduce, for compiled code that moves its packets.

    Attributes:
        terms, slots, chunks, notes: what ``innet.protocol.compiled.take`` wants.
        head: of frames, see ``innet.protocol.compiled.fill``.
        words: of all chunks, likewise.
        waiting: how many chunks wait for their results.
        held: no chunk may be sent for the first time.
        halts: flags of results after which Python is asked before more is sent.
        last: the all-reduce's last chunk, if it is to be sent again early; otherwise -1.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    words: NDArray[np.int32]
    waiting: int
    held: bool
    halts: int
    last: int


class Progress(NamedTuple):
    """What compiled code did with a ``ClientState``.

    Attributes:
        answers: packets that were.
        received: all that came.
        bytes: theirs.
        sent: frames of chunks whose turn had come.
        waiting: chunks that wait for their results now.
        first, end: from this one of the frames that were filled last to the one before that one,
            the socket has not taken them.
        lost: frames that the interface's queue had no room for.
        error: the number of the error that stopped it, or 0.
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
        layout: of the packets.
        member: who this worker is, in which job, with how many slots.
        source: its own addresses.
        switch: those of the switch.
        timing: when to send again and when to give up.
        first_chunk: where the chunk counter starts; the same for all workers of the epoch.

    Attributes:
        counters: what was sent, received and refused.
        label: a number that the tag of the next all-reduce covers, too. Workers in separate
            processes count their all-reduces in it: after a failure the counts may differ, while
            chunks begin at 0 again for all.
        all_or_none: stop sending new chunks after the first partial result; chunks in flight still
            complete.
        late: with ``all_or_none``, the workers whom the first partial results lack. Later results
            may lack others, who have stopped by then.
        window: how many chunks may be under way.
        round_trip: what the timers have measured.

    Raises:
        InputError: ``first_chunk`` is negative.
    """

    in_order: ClassVar[bool] = True  # results come in the order in which chunks were sent

    def __init__(
        self,
        layout: Layout,
        member: Membership,
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
        # Imported when it is needed: Numba takes longer to import than most commands to run.
        self._compiled = importlib.import_module("innet.protocol.compiled")
        timers = importlib.import_module("innet.protocol.timers")
        window = member.window
        self._cursor = first_chunk  # the first chunk of the next all-reduce
        self._base = first_chunk  # the first chunk of this one
        # The chunk that a slot holds or held last; of a new worker's, the one before its first.
        slots = np.arange(window, dtype=np.int64)
        self._chunk = first_chunk - 1 - (first_chunk - 1 - slots) % window
        self._state = np.full(window, SlotState.IDLE, np.uint8)
        self._timers: SlotTimers = timers.SlotTimers(window, self.timing, in_order=self.in_order)
        self.window = Window(window, self.timing.window_control)
        self.round_trip = self._timers.round_trip
        self._present = sum(1 << index for index in member.present)
        self._who = np.empty(0, np.uint32)  # per chunk of this all-reduce: who is in its result
        self._queue = np.zeros(window, np.int64)  # slots whose chunks may be sent
        self._queued = 0
        self._waiting = 0  # slots in that state
        self._held = False  # no chunk is sent that has not been sent before
        self._flags = 0  # see result_flags
        self._message: Message | None = None
        self._head = self._new_head()
        self._frame_size = layout.frame_size
        self._terms = rules(layout), self._me()
        self._slots = (self._chunk, self._state, self._queue), self._timers.state
        self._notes = np.zeros(Stats.LENGTH, np.int64), np.zeros(5)
        self._open = 0  # chunks without result
        self._now = 0.0

    # ------------------------------------------------------------------ one all-reduce

    def start(self, segments: Sequence[Segment], now: float) -> None:
        """Begin an all-reduce of ``segments``, whose words stay as they are until it is done.

        All workers of the job start the same all-reduces, each with segments of the same
        operations and lengths, in the same order.

        Raises:
            StateError: the one before is not done.
            InputError: a segment that cannot be sent.
        """
        if self._open:
            raise StateError(
                f"{self._open} chunks of the previous all-reduce have no result yet; go on with "
                "it until it is done, or begin the next epoch with a new worker's end."
            )
        message = self._message = Message(segments, self.layout.values)
        self._now = now
        self._open = message.chunks
        self._base = self._cursor
        self._cursor += self._open
        self._flags = 0
        self._who = np.zeros(self._open, np.uint32)
        tag = message.tag(self._base, self.label)
        self._head[_AT_TAG], self._head[_AT_TAG + 1] = tag >> 8, tag & 0xFF
        member = self._terms[1]
        member[_FIRST_CHUNK], member[_END_CHUNK] = self._base, self._cursor
        self._queued = self._compiled.begin(
            self._base, self._cursor, self._chunk, self._state, self._queue
        )
        self.late, self._held = (), False

    @property
    def done(self) -> bool:
        """Whether nothing is waited for: before the first start, once all results are in, or
        once it stopped early (``all_or_none``).
        """
        return self._open == 0 or (self._held and not self._waiting)

    @property
    def result_flags(self) -> Flag:
        """Flags that any result since ``start`` carried (Flag.OVERFLOW, Flag.ECN, ...)."""
        return Flag(self._flags)

    @property
    def next_chunk(self) -> int:
        """The first chunk of the all-reduce after this one."""
        return self._cursor

    def results(self) -> list[NDArray[np.int32]]:
        """The combined words, one array per segment, each of its segment's shape (n,).

        They stay valid after the next ``start``.

        Raises:
            StateError: nothing was started, or results are missing.
        """
        if self._message is None or self._open:
            raise StateError(f"no results: {self._open} chunks wait, or nothing was started.")
        return self._message.results()

    @property
    def bitmaps(self) -> NDArray[np.uint32]:
        """Per chunk of this all-reduce, shape (chunks,): the bits of the workers in its result; 0
        without one.
        """
        return self._who.copy()

    @property
    def missing(self) -> tuple[int, ...]:
        """Workers without whom a result of this all-reduce was closed."""
        there = self._who[self._who != 0]
        lacking = self._present & ~int(np.bitwise_and.reduce(there)) if len(there) else 0
        return tuple(index for index in self.member.present if lacking >> index & 1)

    def next_deadline(self) -> float | None:
        """When ``outgoing`` has something to do next; a time gone by means at once.

        None when only ``start`` can change anything.
        """
        if self.done:
            return None
        if self._queued and self._room() > 0:
            return self._now
        return self._timers.next_deadline()

    # ------------------------------------------------------------------ packets out

    def outgoing(self, now: float) -> Frames:
        """The frames to send at ``now``: chunks whose turn has come, and those to be sent again.

        Returns:
            uint8, (k, layout.frame_size); k may be 0.

        Raises:
            StalledError: a chunk has lacked its result for ``timing.give_up``. Nothing is changed;
                a result that comes later is still accepted.
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
        flags[: len(again)] = Flag.RESEND
        if self.timing.partial_after is not None:
            asked = self._timers.impatience(again, now)
            request = np.uint8(Flag.PARTIAL) | (asked - np.uint8(1)) << np.uint8(6)
            flags[: len(again)] |= np.where(asked > 0, request, np.uint8(0))
        assert self._message is not None
        frames = np.empty((len(slots), self.layout.frame_size), np.uint8)
        message = self._message
        self._compiled.fill(
            frames,
            self._head,
            (slots, flags),
            (self._chunk, self._base),
            (message.words, message.operation, message.elements),
        )
        self.counters.sent += len(frames)
        self.counters.bytes_sent += frames.size
        self.counters.retransmissions += len(again)
        return frames

    def _room(self) -> int:
        """How many more chunks may be under way."""
        if self._held:
            return 0
        if not self.window.adapts:
            return self.member.window
        room = self.window.size - self._waiting
        return 1 if room < 1 and self._lacks_oldest() else room

    def _lacks_oldest(self) -> bool:
        """Whether the oldest chunk that is left waits for its turn.

        Others may have it under way and none of those that fill this worker's window; then each
        would wait for the other for ever.
        """
        queued = self._chunk[self._queue[: self._queued]]
        waiting = self._chunk[self._state == SlotState.WAITING]
        return bool(queued.min(initial=self._cursor) < waiting.min(initial=self._cursor))

    def _next_turn(self) -> NDArray[np.int64]:
        """The slots whose chunks are sent now for the first time."""
        room = max(0, self._room())
        queued = self._queue[: self._queued].copy()
        if room >= len(queued):
            self._queued = 0
            return queued
        # The oldest first: other workers may wait for the oldest chunk of all.
        queued = queued[np.argsort(self._chunk[queued])]
        self._queued = len(queued) - room
        self._queue[: self._queued] = queued[room:]
        return queued[:room]

    @property
    def _last(self) -> int:
        """The last chunk, if an early retransmission (a tail probe) can help; otherwise -1."""
        return self._cursor - 1 if self.in_order else -1

    def _new_head(self) -> Frames:
        """What stands before the values in frames, as ``fill`` wants it; without a tag."""
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
        )
        self.layout.view(frame)["innet"]["checksum"] = 0
        return frame[0, : self.layout.values_offset].copy()

    def _version(self, chunk: NDArray[np.int64]) -> NDArray[np.uint8]:
        return ((chunk // self.member.window) & 1).astype(np.uint8)

    # ------------------------------------------------------------------ packets in

    def receive(self, packets: Frames | PacketBatch, now: float) -> int:
        """Take what came; whatever does not fit is counted, never raised.

        Args:
            packets: frames, uint8 (k, bytes), or a batch of any lengths (its ports are ignored).
            now: the time.

        Returns:
            How many results were new.
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
        """What compiled code counts begins anew."""
        self._now = now
        stats, clock = self._notes
        stats.fill(0)
        stats[_IN_QUEUE], stats[_MARKED] = self._queued, -1
        clock[:] = now, self.timing.timeout, -1.0, -np.inf, -1.0

    def _chunks_asked(self) -> tuple[NDArray[Any], ...]:
        """Of this all-reduce, as ``take`` wants it."""
        message = _NOTHING if self._message is None else self._message
        return message.operation, message.elements, message.combined, self._who

    def _took(self, answers: int, received: int, size: int) -> None:
        """Take up what compiled code noted of ``received`` packets of ``size`` bytes."""
        counters = self.counters
        counters.received += received
        counters.bytes_received += size
        counters.results += answers
        stats = self._notes[0]
        self._queued = int(stats[_IN_QUEUE])
        if answers < received:
            self._count(stats.tolist())
        if answers:
            self._open -= answers
            self._waiting -= answers
            self._flags |= int(stats[_FLAGS]) & ~_RESULT
            if self.all_or_none and not self._held and self._flags & _PARTIAL:
                self.late = self.missing
                self._held = bool(self.late)

    # ------------------------------------------------------------------ both in compiled code

    @property
    def runs_compiled(self) -> bool:
        """Whether what may be sent follows from what came alone, so that compiled code can send and
        receive by itself; see ``innet.transport.socket_loop``.
        """
        return not self.window.adapts and self.timing.partial_after is None

    def compiled_state(self, now: float) -> ClientState:
        """All that compiled code needs to take what comes and to send what may follow."""
        self._ready_notes(now)
        message = _NOTHING if self._message is None else self._message
        asks = self.all_or_none and not self._held
        return ClientState(
            self._terms,
            self._slots,
            self._chunks_asked(),
            self._notes,
            self._head,
            message.words,
            self._waiting,
            self._held,
            _PARTIAL if asks else 0,
            self._last,
        )

    def take_up(self, progress: Progress) -> None:
        """Take up what compiled code did with ``compiled_state``."""
        self._waiting += progress.sent
        self._took(progress.answers, progress.received, progress.bytes)
        self.counters.sent += progress.sent
        self.counters.bytes_sent += progress.sent * self._frame_size

    def extend_deadlines(self, seconds: float) -> None:
        """Give chunks up so much later: this process was stopped meanwhile."""
        self._timers.give_up_at += seconds

    def _me(self) -> NDArray[np.int64]:
        """As ``innet.protocol.compiled.Member``, before the first all-reduce."""
        member = self.member
        tos = _TYPE_OF_SERVICE if self.layout.framing == "udp" else -1
        present = len(member.present)
        return np.array([member.job, member.epoch, member.worker, present, 0, 0, tos])

    def _count(self, stats: list[int]) -> None:
        """Count packets that are no answers."""
        counters = self.counters
        counters.duplicates += stats[Verdict.DUPLICATE]
        for verdict in set(Verdict) - {Verdict.ANSWER, Verdict.UNREADABLE, Verdict.DUPLICATE}:
            if stats[verdict]:
                counters.refused[verdict.label] += stats[verdict]
        for refusal in Refusal:
            if stats[Stats.REFUSED + refusal]:
                counters.refused[refusal.label] += stats[Stats.REFUSED + refusal]

    def _next_unsent(self) -> int:
        """The first chunk that was not sent yet."""
        sent = self._chunk[self._state != SlotState.QUEUED]
        return int(sent.max()) + 1 if len(sent) else self._base

    # ------------------------------------------------------------------ when nothing comes

    def stall(self, now: float) -> Stall | None:
        """The oldest chunk that waits for its result; None if none does."""
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
        """Whom the oldest waiting chunk waits for, by what the switch holds; None if none waits.

        Args:
            read: reads the switch's registers; worker ``i`` must own bit ``i`` of the bitmap.
            now: the time; that of the last call if not given.
        """
        stall = self.stall(self._now if now is None else now)
        return None if stall is None else stall.diagnose(read)


class HashedClient(SlotClient):
    """A worker whose results come from a parameter server.

    Chunks, window, timers and retransmission are those of ``SlotClient``: the server keeps two
    copies of a slot as the slot pool does, and a contribution that is sent again is marked RESEND.
    """

    in_order = False  # what meets another's aggregator goes a longer way, to the server

    def diagnose(self, read: SlotReader, now: float | None = None) -> Diagnosis | None:
        """As ``SlotClient.diagnose``; where no worker is missing, it points to the server."""
        diagnosis = super().diagnose(read, now)
        if diagnosis is None or 0 < len(diagnosis.missing) < self.member.workers:
            return diagnosis
        hint = " Results come from the parameter server: see that it runs and can be reached."
        return replace(diagnosis, text=diagnosis.text + hint)
