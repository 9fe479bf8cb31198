"""One worker at one UDP socket or pair of rings, without running Python for each batch.

This compiled loop does for one worker what ``innet.network.drive`` does for any hosts and
transports. It fills the frames of the next chunks, sends them, receives what has arrived, takes the
results, advances the timers, and sleeps when there is nothing to do. It returns to Python when all
results are in, or when Python must decide: a timer has expired, results are partial, the switch
service has a message, or the socket accepts no more.

For small batches, Python would cost more than everything else that happens to them.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import StateError
from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.network import Host, Transport, at_port
from innet.protocol import SlotClient, SlotState
from innet.protocol.compiled import fill, fill_frame, receive, take_frame
from innet.protocol.counters import Stats
from innet.protocol.slot_client import ClientState, LoopProgress
from innet.protocol.timers import hear, next_deadline, overtake, shortest_wait, start
from innet.transport.atomics import load_half, store_half
from innet.transport.messages import failed
from innet.transport.rings import (
    HEADER_AT,
    MY_READ,
    MY_WRITTEN,
    WorkerRing,
    arrived,
    begin_sleep,
    end_sleep,
    free_tx_slots,
    publish,
    release,
    row_of,
)
from innet.transport.system_calls import (
    LONGEST_DATAGRAM,
    MOST_SEGMENTS,
    Arrival,
    Reception,
    SendBatch,
    Transmission,
    monotonic,
    receive_datagrams,
    send_packets,
    wait_readable,
    yield_processor,
)
from innet.transport.udp import SocketLink, Watch, is_compiled

_TURNS = 1024  # iterations before the return to Python, which then handles Ctrl-C
_STOPPED = 1.0  # seconds late: this process was stopped, and the others perhaps with it
_YIELDS = 4  # before it sleeps: the peer often runs on the same processor
_WRITTEN_AT_ONCE = 8  # packets in a ring before the switch sees them
_RESULTS_AT_ONCE = 16  # read before the next chunks are sent
_BATCH = 1 << 18  # bytes filled at once; they are still in the CPU cache when they are sent
_BARE = int(Stats.BARE)
_QUEUED, _FLAGS, _UNDER_WAY = int(Stats.QUEUED), int(Stats.FLAGS), int(SlotState.WAITING)
_ANSWERS, _RECEIVED, _BYTES, _SENT, _WAITING, _FIRST, _END, _LOST, _ERROR = range(
    _COUNTS := len(LoopProgress._fields)
)
_NOW, _BOUND = range(2)  # the time at the end, and a time before which no timer expires
_EAGAIN = errno.EAGAIN


class SocketTransport(Transport, Protocol):
    """A transport over one UDP socket, or over rings in shared memory.

    Attributes:
        is_compiled: True; a class that does not say so itself needs Python for each batch.
    """

    is_compiled: bool

    def link(self, head: NDArray[np.uint8]) -> SocketLink | WorkerRing:
        """The socket, for frames that begin with ``head``, or the rings."""

    def heard(self) -> None:
        """Note that packets have arrived."""

    def watch(self, now: float) -> Watch:
        """What else may end a wait; ``wait`` then handles it."""


def socket_loop(end: Host, transport: Transport) -> SocketLoop | None:
    """A loop if end and transport need no Python between batches, else None."""
    if isinstance(end, SlotClient) and end.runs_compiled and is_compiled(transport):
        return SocketLoop(end, cast("SocketTransport", transport))
    return None


class SocketLoop:
    """Drives one worker at one socket or pair of rings.

    Args:
        end: one that ``runs_compiled``.
        transport: its own.
    """

    def __init__(self, end: SlotClient, transport: SocketTransport) -> None:
        self._end = end
        self._transport = transport
        size, self._offset = end.layout.frame_size, end.layout.header_offset
        at_once = min(MOST_SEGMENTS, LONGEST_DATAGRAM // (size - self._offset))
        rows = min(end.member.window, at_once * max(1, _BATCH // (at_once * size)))
        self._frames, self._lengths = np.empty((rows, size), np.uint8), np.empty(rows, np.int32)
        self._counts, self._times = np.empty(_COUNTS, np.int64), np.empty(2)
        self._done = self._counts, self._times, np.zeros(4, np.int64)
        with contextlib.suppress(StateError):  # a worker that left gets it at its next call
            self._turn(0.0, Watch(-1, 0.0, True))  # compiled now, not when a packet waits

    def run(self, now: float) -> float:
        """Move packets until the worker is done; packets that arrive later stay in the socket.

        Returns:
            The time at which it was done.

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
                end.extend_deadlines(now - watch.until)
            now = transport.wait(now, now)
            deadline = end.next_deadline()
            assert deadline is not None  # it is not done, so a chunk waits
            if deadline <= now:
                frames = end.outgoing(now)
                if len(frames):
                    transport.send(at_port(frames, 0), now)

    def _turn(self, now: float, watch: Watch) -> float:
        """Run compiled code until Python has something to do; returns the time then."""
        end, frames = self._end, self._frames
        state = end.compiled_state(now)
        link = self._transport.link(state.head)
        if isinstance(link, WorkerRing):
            poll_rings(link, state, watch, self._done)
            progress = LoopProgress(*self._counts.tolist())
            end.apply_progress(progress)
            if progress.received:
                self._transport.heard()
            return max(now, float(self._times[_NOW]))
        outbox = link.outbox
        leaving = frames, self._lengths
        room = link.arrival, link.reception, leaving, outbox.transmission
        socket = link.descriptor, self._offset, outbox.most
        # Results go into arrays: returning one would run Python, which a signal could interrupt.
        poll_socket(socket, room, state, watch, self._done)
        progress = LoopProgress(*self._counts.tolist())
        outbox.dropped += progress.lost
        end.apply_progress(progress)
        if progress.end > progress.first:  # the socket was full, or refuses segments
            unsent = slice(progress.first, progress.end)
            ports = np.zeros(progress.end - progress.first, np.int32)
            left = PacketBatch(frames[unsent], self._lengths[unsent], ports)
            self._transport.send(left, now)
        elif progress.error:
            raise failed("receiving", progress.error)
        if progress.received:
            self._transport.heard()
        return max(now, float(self._times[_NOW]))


@njit(cache=True, nogil=True, allocates=False)
def poll_socket(
    socket: tuple[int, int, int],
    means: tuple[Arrival, Reception, tuple[NDArray[np.uint8], NDArray[np.int32]], Transmission],
    state: ClientState,
    watch: Watch,
    done: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]],
) -> None:
    """Fill, send, receive, take, and sleep, until there is something for Python to do.

    Args:
        socket: its descriptor, how many leading bytes of a frame are not sent, and how many packets
            go as one datagram.
        means: buffers for received packets, for frames to send and their lengths, and for the
            system calls.
        state: the worker's end.
        watch: what else may end the wait.
        done: filled in: the numbers of a ``LoopProgress``; the time at the end, and a time before
            which no timer expires; and (4,), scratch memory.
    """
    descriptor, offset, _ = socket
    arrival, reception, leaving, transmission = means
    stats, clock = state.notes
    size = leaving[0].shape[1]
    counts, times, room = done
    counts[:] = 0
    counts[_WAITING] = state.waiting
    times[_BOUND] = -np.inf
    idle = 0
    ends = False
    for _ in range(_TURNS):
        # Step 1: send the chunks whose slots are free, unless Python has to decide first.
        if stats[_QUEUED] > 0 and not state.held and stats[_FLAGS] & state.halts == 0:
            _send_queued(socket, (leaving, transmission), state, counts, times)
        if ends or counts[_ERROR] != 0 or counts[_WAITING] == 0:
            break
        # Step 2: take results, and look at the timers once nothing is left in the socket.
        count, error = receive_datagrams(descriptor, arrival, reception, offset, size - offset)
        if count > 0:
            idle = 0
            clock[0] = monotonic(room)
            ends = _take(arrival, (count, offset), state, counts, times)
            if error != 0 and clock[0] >= times[_BOUND]:  # take earlier packets first
                ends = _due(state, watch, times) or ends
        elif error != _EAGAIN:
            counts[_ERROR] = error
        # Step 3: nothing came: let the peer run, then sleep until a packet, a timer or a message.
        elif idle < _YIELDS:
            idle += 1
            yield_processor()
        else:
            clock[0] = monotonic(room)
            if _due(state, watch, times) or (counts[_RECEIVED] > 0 and not watch.lasting):
                break
            left = times[_BOUND] - clock[0]
            ends = wait_readable(descriptor, watch.descriptor, left, room) != 1
            clock[0] = monotonic(room)
    times[_NOW] = clock[0]


@njit(cache=True, nogil=True, allocates=False)
def _take(
    arrival: Arrival,
    which: tuple[int, int],
    state: ClientState,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
) -> bool:
    """Take received packets, by count and by the header bytes they lack; whether to return."""
    count, lacking = which
    stats = state.notes[0]
    length = arrival.length[:count]
    length += lacking
    counts[_RECEIVED] += count
    counts[_BYTES] += length.sum()
    packets = arrival.data[:count], length
    answers = receive(packets, state.terms, state.slots, state.chunks, state.notes)
    counts[_ANSWERS] += answers
    counts[_WAITING] -= answers
    if answers > 0:
        times[_BOUND] = -np.inf  # a timer may now expire earlier
    return bool(stats[_FLAGS] & state.halts != 0)


@njit(cache=True, nogil=True)
def _send_queued(
    socket: tuple[int, int, int],
    room: tuple[tuple[NDArray[np.uint8], NDArray[np.int32]], Transmission],
    state: ClientState,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
) -> None:
    """Send the chunks in the queue, as many at once as fit into ``frames``."""
    descriptor, offset, segments = socket
    (frames, length), transmission = room
    stats, clock = state.notes
    (chunk, doing, queue), timers = state.slots
    queued = stats[_QUEUED]
    rows = len(frames)
    no_flags, order = np.zeros(rows, np.uint8), np.arange(rows)
    nobody = np.empty((0, 16), np.uint8)
    where, message = (chunk, state.terms[1][4]), state.message
    sent = 0
    while sent < queued and counts[_ERROR] == 0:
        end = min(queued - sent, rows)
        slots = queue[sent : sent + end]
        for slot in slots:
            doing[slot] = _UNDER_WAY
        start(timers, chunk, slots, clock[0], state.last)
        which = slots, no_flags[:end]
        stats[_BARE] += fill(frames[:end], length[:end], state.head, which, where, message)
        leaving = SendBatch(frames[:end], length[:end], offset, order[:end], nobody, order[:end])
        first, lost, error = send_packets(descriptor, leaving, 0, segments, transmission, False)
        sent += end
        counts[_FIRST], counts[_END], counts[_ERROR] = first, end, error
        counts[_LOST] += lost
    for index in range(sent, queued):
        queue[index - sent] = queue[index]
    stats[_QUEUED] = queued - sent
    counts[_SENT] += sent
    counts[_WAITING] += sent
    times[_BOUND] = min(times[_BOUND], clock[0] + shortest_wait(timers))


# ----------------------------------------------------------------------------
# The same over rings. Frames are made in the ring itself, and results are read there.


@njit(cache=True, nogil=True, allocates=False)
def poll_rings(
    ring: WorkerRing,
    state: ClientState,
    watch: Watch,
    done: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]],
) -> None:
    """``poll_socket`` with a pair of rings."""
    stats, clock = state.notes
    counts, times, room = done
    counts[:] = 0
    counts[_WAITING] = state.waiting
    times[_BOUND] = -np.inf
    idle = 0
    ends = False
    for _ in range(_TURNS):
        # Steps 1 to 3 are those of ``poll_socket``.
        if stats[_QUEUED] > 0 and not state.held and stats[_FLAGS] & state.halts == 0:
            _write_queued(ring, state, counts, times, room)
        if ends or counts[_WAITING] == 0:
            break
        count = arrived(ring)
        if count > 0:
            idle = 0
            clock[0] = monotonic(room)
            ends = _read(ring, min(count, _RESULTS_AT_ONCE), state, counts, times)
            if clock[0] >= times[_BOUND]:
                ends = _due(state, watch, times) or ends
        elif idle < _YIELDS:
            idle += 1
            yield_processor()
        else:
            clock[0] = monotonic(room)
            if _due(state, watch, times) or (counts[_RECEIVED] > 0 and not watch.lasting):
                break
            left = times[_BOUND] - clock[0]
            found = 1
            if begin_sleep(ring):
                found = wait_readable(ring.woken, watch.descriptor, left, room)
                ends = found != 1
            end_sleep(ring, found & 1 != 0, room)
            clock[0] = monotonic(room)
    times[_NOW] = clock[0]


@njit(cache=True, nogil=True, allocates=False)
def _write_queued(
    ring: WorkerRing,
    state: ClientState,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
    room: NDArray[np.int64],
) -> None:
    """Write the frames of the chunks in the queue into the ring; those without room are lost."""
    stats, clock = state.notes
    (chunk, doing, queue), timers = state.slots
    queued = stats[_QUEUED]
    where, message = (chunk, state.terms[1][4]), state.message
    for slot in queue[:queued]:
        doing[slot] = _UNDER_WAY
    start(timers, chunk, queue[:queued], clock[0], state.last)
    written = ring.state[MY_WRITTEN]
    base, memory = ring.memory.ctypes.data, ring.memory
    size = ring.outer + ring.packet
    for index in range(queued):
        if free_tx_slots(ring) <= 0:
            counts[_LOST] += 1
            continue
        at = row_of(ring.rows, ring.stride, written, False)
        begin = at + HEADER_AT - ring.outer
        frame = memory[begin : begin + size]
        length = fill_frame(frame, state.head, queue[index], 0, where, message)
        store_half(base + at, length - ring.outer)
        stats[_BARE] += length < size
        written += 1
        ring.state[MY_WRITTEN] = written
        if (index + 1) % _WRITTEN_AT_ONCE == 0:
            publish(ring, written, room)
    publish(ring, written, room)
    stats[_QUEUED] = 0
    counts[_SENT] += queued
    counts[_WAITING] += queued
    times[_BOUND] = min(times[_BOUND], clock[0] + shortest_wait(timers))


@njit(cache=True, nogil=True, allocates=False)
def _read(
    ring: WorkerRing,
    count: int,
    state: ClientState,
    counts: NDArray[np.int64],
    times: NDArray[np.float64],
) -> bool:
    """Take results where they lie in the ring; whether to return."""
    stats = state.notes[0]
    base, memory = ring.memory.ctypes.data, ring.memory
    most = ring.outer + ring.packet
    answers, size = 0, 0
    for index in range(ring.state[MY_READ], ring.state[MY_READ] + count):
        at = row_of(ring.rows, ring.stride, index, True)
        length = load_half(base + at) + ring.outer
        begin = at + HEADER_AT - ring.outer
        frame = memory[begin : begin + most]
        answers += take_frame(frame, length, state.terms, state.slots, state.chunks, state.notes)
        size += length
    release(ring, count)
    if answers > 0:
        clock = state.notes[1]
        overtake(state.slots[0], state.slots[1], clock)
        hear(state.slots[1], clock[0], clock[2])
        clock[2] = -1.0
    counts[_RECEIVED] += count
    counts[_BYTES] += size
    counts[_ANSWERS] += answers
    counts[_WAITING] -= answers
    if answers > 0:
        times[_BOUND] = -np.inf  # a timer may now expire earlier
    return bool(stats[_FLAGS] & state.halts != 0)


@njit(cache=True, nogil=True, allocates=False)
def _due(state: ClientState, watch: Watch, times: NDArray[np.float64]) -> bool:
    """Whether a timer has expired; sets ``times[_BOUND]``, before which none will."""
    times[_BOUND] = min(watch.until, next_deadline(state.slots[1]))
    return bool(state.notes[1][0] >= times[_BOUND])
