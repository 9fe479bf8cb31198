"""A worker that takes and sends packets at a UDP socket without a step of Python for each batch.

What ``innet.network.drive`` does for any hosts and transports is done here for one worker at one
socket, in compiled code: fill the frames of the chunks that may follow, send them, receive what has
arrived, take the results, and so on, sleeping where nothing is there. Python goes on when all
results are in, and where there is something that it knows better: a timer has run out, the first
results come after a silence, results lack workers, the switch has something to say, or the socket
takes no more.

What Python does between two batches costs more than what happens to them where they are as small
as a processor's cache wants them.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import StateError
from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.network import Transport
from innet.protocol import SlotClient, SlotState
from innet.protocol.compiled import Stats, fill, overtaken, take
from innet.protocol.timers import COUNTS, Moved, Stream
from innet.topology import WorkerEnd
from innet.transport.messages import failed
from innet.transport.system_calls import (
    LONGEST_DATAGRAM,
    MOST_SEGMENTS,
    Arrival,
    Departure,
    Reception,
    Transmission,
    let_others_run,
    monotonic,
    receive_datagrams,
    send_packets,
    wait_readable,
)
from innet.transport.udp import Link, Watch

_TURNS = 1024  # looks at the socket, before Python may see that somebody has pressed Ctrl-C
_STOPPED = 1.0  # seconds too late: this process was stopped, and the others may have been with it
_YIELDS = 4  # in vain: what a process waits for is often being made on the same processor
_BATCH = 1 << 18  # bytes filled at once: they are in a processor's cache when they are sent
_QUEUED, _FLAGS, _UNDER_WAY = int(Stats.QUEUED), int(Stats.FLAGS), int(SlotState.WAITING)
_ANSWERS, _RECEIVED, _BYTES, _SENT, _WAITING, _FIRST, _END, _LOST, _ERROR = range(COUNTS)
_SINCE, _UNTIL, _NOW, _SILENT_FROM, _BOUND = range(_TIMES := len(Moved._fields) - COUNTS)
_EAGAIN = errno.EAGAIN
_END_CHUNK = 5  # of answers.Member


class Linked(Transport, Protocol):
    """A transport over one UDP socket."""

    def link(self, head: NDArray[np.uint8]) -> Link:
        """The socket, for frames that begin with ``head``."""

    def heard(self) -> None:
        """Packets have come there."""

    def watch(self, now: float) -> Watch:
        """What else may end a wait, which ``wait`` then looks at."""


def streamer_of(end: WorkerEnd, transport: Transport) -> Streamer | None:
    """A ``Streamer``, where end and transport need no Python between batches; otherwise None."""
    if isinstance(end, SlotClient) and end.streams and hasattr(transport, "link"):
        return Streamer(end, cast("Linked", transport))
    return None


class Streamer:
    """Drives one worker at one socket.

    Args:
        end: one that ``streams``.
        transport: its own.
    """

    def __init__(self, end: SlotClient, transport: Linked) -> None:
        self._end = end
        self._transport = transport
        size, self._offset = end.layout.frame_size, end.layout.header_offset
        at_once = min(MOST_SEGMENTS, LONGEST_DATAGRAM // (size - self._offset))
        rows = min(end.member.window, at_once * max(1, _BATCH // (at_once * size)))
        self._frames = np.empty((rows, size), np.uint8)
        self._moved = np.empty(COUNTS, np.int64), np.empty(_TIMES)
        with contextlib.suppress(StateError):  # who has left is told so when it is used
            self._turn(0.0, Watch(-1, 0.0, True))  # compiled now, not when a packet waits

    def run(self, now: float) -> float:
        """Move packets until the worker is done; what is under way then stays there.

        Returns:
            the time at which it was done.

        Raises:
            StalledError: it gave up.
            NetworkError, MembershipError: from the transport.
        """
        end, transport = self._end, self._transport
        while True:
            watch = transport.watch(now)
            now = self._turn(now, watch)
            if end.done:
                return now
            if now - watch.until > _STOPPED:
                end.excuse(now - watch.until)
            now = transport.wait(now, now)
            deadline = end.next_deadline()
            assert deadline is not None  # it is not done, so a chunk waits
            if deadline <= now:
                frames = end.outgoing(now)
                if len(frames):
                    transport.send(PacketBatch.uniform(frames, 0), now)

    def _turn(self, now: float, watch: Watch) -> float:
        """Until Python has something to do; the time then."""
        end, frames = self._end, self._frames
        what = end.stream(now)
        link = self._transport.link(what.head)
        outbox = link.outbox
        means = link.arrival, link.reception, frames, outbox.transmission
        socket = link.descriptor, self._offset, outbox.most
        # Nothing is returned: to make an array of it runs Python, which a signal would break off.
        counts, times = self._moved
        turns(socket, means, what, watch, self._moved)
        moved = Moved(*counts.tolist(), *times.tolist())
        outbox.dropped += moved.lost
        end.streamed(moved)
        if moved.end > moved.first:  # the socket had no room, or cannot do it in this way
            left = PacketBatch.uniform(frames[moved.first : moved.end], 0)
            self._transport.send(left, now)
        elif moved.error:
            raise failed("receiving", moved.error)
        if moved.received:
            self._transport.heard()
        return max(now, moved.now)


@njit(cache=True, nogil=True)
def turns(
    socket: tuple[int, int, int],
    means: tuple[Arrival, Reception, NDArray[np.uint8], Transmission],
    stream: Stream,
    watch: Watch,
    moved: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> None:
    """Fill, send, receive, take, and sleep, until there is something for Python to do.

    Args:
        socket: its descriptor, how many bytes of a frame do not pass it, and how many packets go
            as one datagram.
        means: room for packets that come, and for frames that go, and for the calls.
        stream: the worker's end.
        watch: what else there may be to do.
        moved: counts and times, filled in: the numbers of a ``Moved``.
    """
    descriptor, offset, _ = socket
    arrival, reception, frames, transmission = means
    stats, clock = stream.notes
    size = frames.shape[1]
    room = np.zeros(4, np.int64)
    counts, times = moved
    counts[:] = 0
    times[:] = np.inf
    counts[_WAITING] = stream.waiting
    times[_BOUND], times[_SILENT_FROM] = -np.inf, stream.patience[2]
    idle = 0
    ends = False
    for _ in range(_TURNS):
        if stats[_QUEUED] > 0 and not stream.held and stats[_FLAGS] & stream.halts == 0:
            _send_queued(socket, (frames, transmission), stream, counts, times)
        if ends or counts[_ERROR] != 0 or counts[_WAITING] == 0:
            break
        count, error = receive_datagrams(descriptor, arrival, reception, offset, size - offset)
        if count > 0:
            idle = 0
            clock[0] = monotonic(room)
            ends = _take(arrival, (count, offset), stream, counts, times)
            if error != 0 and clock[0] >= times[_BOUND]:  # what came before a deadline is taken
                ends = _due(stream, watch, times) or ends
        elif error != _EAGAIN:
            counts[_ERROR] = error
        elif idle < _YIELDS:
            idle += 1
            let_others_run()
        else:
            clock[0] = monotonic(room)
            if _due(stream, watch, times) or (counts[_RECEIVED] > 0 and not watch.lasting):
                break
            left = times[_BOUND] - clock[0]
            ends = wait_readable(descriptor, watch.descriptor, left, room) != 1
            clock[0] = monotonic(room)
    times[_NOW] = clock[0]


@njit(cache=True, nogil=True)
def _take(
    arrival: Arrival,
    which: tuple[int, int],
    stream: Stream,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
) -> bool:
    """Take so many packets that have come and lack so many bytes; whether Python is to know."""
    count, lacking = which
    stats, clock = stream.notes
    now = clock[0]
    length = arrival.length[:count]
    length += lacking
    counts[_RECEIVED] += count
    counts[_BYTES] += length.sum()
    packets = arrival.data[:count], length
    answers = take(packets, stream.terms, stream.slots, stream.chunks, stream.notes)
    if answers == 0:
        return False
    counts[_ANSWERS] += answers
    counts[_WAITING] -= answers
    after_silence = now >= times[_SILENT_FROM]
    times[_SINCE] = now if after_silence else min(times[_SINCE], now)
    times[_UNTIL] = now
    times[_SILENT_FROM] = now + stream.patience[0]
    reordering = stream.patience[3]
    if reordering < np.inf and overtaken(stream.slots, stream.timeouts, clock, reordering):
        times[_BOUND] = min(times[_BOUND], now + reordering)
    return bool(after_silence or stats[_FLAGS] & stream.halts != 0)


@njit(cache=True, nogil=True)
def _send_queued(
    socket: tuple[int, int, int],
    room: tuple[NDArray[np.uint8], Transmission],
    stream: Stream,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
) -> None:
    """Send the chunks in the queue, as many at once as the frames have room for."""
    descriptor, offset, segments = socket
    frames, transmission = room
    stats, clock = stream.notes
    queue, queued = stream.slots[2], stats[_QUEUED]
    operation, elements, _, _ = stream.chunks
    rows, size = frames.shape
    no_flags, order = np.zeros(rows, np.uint8), np.arange(rows)
    length, nobody = np.full(rows, size, np.int32), np.empty((0, 16), np.uint8)
    where, message = (stream.slots[0], stream.terms[1][4]), (stream.words, operation, elements)
    sent = 0
    while sent < queued and counts[_ERROR] == 0:
        end = min(queued - sent, rows)
        slots = queue[sent : sent + end]
        _start(slots, clock[0], stream)
        fill(frames[:end], stream.head, (slots, no_flags[:end]), where, message)
        leaving = Departure(frames[:end], length[:end], offset, order[:end], nobody, order[:end])
        first, lost, error = send_packets(descriptor, leaving, 0, segments, transmission)
        sent += end
        counts[_FIRST], counts[_END], counts[_ERROR] = first, end, error
        counts[_LOST] += lost
    for index in range(sent, queued):
        queue[index - sent] = queue[index]
    stats[_QUEUED] = queued - sent
    counts[_SENT] += sent
    counts[_WAITING] += sent
    patience = min(stream.patience[0], stream.patience[1], stream.patience[4])
    times[_BOUND] = min(times[_BOUND], clock[0] + patience)


@njit(cache=True, nogil=True)
def _due(stream: Stream, watch: Watch, times: NDArray[np.float64]) -> bool:
    """Whether a timer has run out; before ``times[_BOUND]`` none will."""
    times[_BOUND] = min(watch.until, _next_deadline(stream.slots))
    return bool(stream.notes[1][0] >= times[_BOUND])


@njit(cache=True, nogil=True)
def _next_deadline(slots: tuple[NDArray[Any], ...]) -> float:
    """As ``SlotTimers.next_deadline``."""
    _, _, _, _, _, resend_at, give_up_at = slots
    earliest = np.inf
    for slot in range(len(resend_at)):
        earliest = min(earliest, resend_at[slot], give_up_at[slot])
    return earliest


@njit(cache=True, nogil=True)
def _start(slots: NDArray[np.int64], now: float, stream: Stream) -> None:
    """What ``SlotTimers.start`` does for chunks that wait for nothing but their result."""
    chunk, state, _, sends, first_sent, resend_at, give_up_at = stream.slots
    timeouts, last_sent = stream.timeouts
    last = stream.terms[1][_END_CHUNK] - 1
    for slot in slots:
        timeout = stream.patience[4 if chunk[slot] == last else 0]
        state[slot] = _UNDER_WAY
        sends[slot] = 1
        first_sent[slot] = last_sent[slot] = now
        timeouts[slot] = timeout
        resend_at[slot] = now + timeout
        give_up_at[slot] = now + stream.patience[1]
