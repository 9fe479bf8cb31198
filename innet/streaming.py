"""A worker that takes and sends packets at a UDP socket without a step of Python for each batch.

What ``innet.fabric.drive`` does for any hosts and fabrics is done here for one worker at one
socket, in compiled code: receive what has arrived, take the results, fill the frames of the chunks
that may follow, send them, and so on until nothing is there. Only then, or where the socket takes
no more, does Python go on: with timers, with waiting, and with whoever has left the job.

What Python does between two batches costs more than what happens to them where they are as small
as a processor's cache wants them.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Protocol, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.errors import StateError
from innet.fabric import Fabric
from innet.fabric.messages import failed
from innet.fabric.system_calls import (
    Arrival,
    Departure,
    Reception,
    Transmission,
    let_others_run,
    monotonic,
    receive_datagrams,
    send_packets,
)
from innet.fabric.udp import Link
from innet.packets import PacketBatch
from innet.plan import WorkerEnd
from innet.protocol import SlotState, SlotWorker
from innet.protocol.answers import take
from innet.protocol.chunks import fill
from innet.protocol.stream import Moved, Stream
from innet.protocol.verdicts import Tally

_TURNS = 64  # looks at the socket, before timers are looked at again
_YIELDS = 16  # in vain: what a process waits for is often being made on the same processor
_QUEUED, _WAITING = int(Tally.QUEUED), int(SlotState.WAITING)
_EAGAIN = errno.EAGAIN
_NO_NAMES = np.empty((0, 16), np.uint8)


class Linked(Fabric, Protocol):
    """A fabric over one UDP socket."""

    def link(self) -> Link:
        """The socket."""

    def heard(self) -> None:
        """Packets have come there."""


def streamer_of(end: WorkerEnd, fabric: Fabric) -> Streamer | None:
    """A ``Streamer``, where end and fabric need no Python between batches; otherwise None."""
    if isinstance(end, SlotWorker) and end.streams and hasattr(fabric, "link"):
        return Streamer(end, cast("Linked", fabric))
    return None


class Streamer:
    """Drives one worker at one socket.

    Args:
        end: one that ``streams``.
        fabric: its own.
    """

    def __init__(self, end: SlotWorker, fabric: Linked) -> None:
        self._end = end
        self._fabric = fabric
        window, size = end.member.window, end.layout.frame_size
        self._departure = Departure(
            data=np.empty((window, size), np.uint8),
            length=np.full(window, size, np.int32),
            offset=end.layout.header_offset,
            rows=np.arange(window),
            names=_NO_NAMES,
            name_of=np.zeros(window, np.int64),
        )
        with contextlib.suppress(StateError):  # who has left is told so when it is used
            self._turn(0.0, 0)  # compiled now, not when a packet waits

    def run(self, now: float) -> float:
        """Move packets until the worker is done; what is under way then stays there.

        Returns:
            the time at which it was done.

        Raises:
            StalledError: it gave up.
            NetworkError, MembershipError: from the fabric.
        """
        end, fabric = self._end, self._fabric
        while True:
            came = self._turn(now, _TURNS)
            if end.done:
                return now
            deadline = end.next_deadline()
            if deadline is not None and deadline <= now:
                frames = end.outgoing(now)
                if len(frames):
                    fabric.send(PacketBatch.uniform(frames, 0), now)
                deadline = end.next_deadline()
            assert deadline is not None  # it is not done, so a chunk waits
            now = fabric.wait(now, now if came else deadline)

    def _turn(self, now: float, most: int) -> bool:
        """Up to ``most`` batches; whether packets came."""
        end, link, departure = self._end, self._fabric.link(), self._departure
        outbox = link.outbox
        what = end.stream(now)
        means = link.arrival, link.reception, departure, outbox.transmission
        moved = Moved(*turns((link.descriptor, most, outbox.most), means, what))
        outbox.dropped += moved.lost
        end.streamed(moved, now)
        if moved.end > moved.first:  # the socket had no room, or cannot do it in this way
            frames = departure.data[moved.first : moved.end]
            self._fabric.send(PacketBatch.uniform(frames, 0), now)
        elif moved.error not in (0, _EAGAIN):
            raise failed("receiving", moved.error)
        if moved.received:
            self._fabric.heard()
        return moved.received > 0


@njit(cache=True, nogil=True)
def turns(
    socket: tuple[int, int, int],
    means: tuple[Arrival, Reception, Departure, Transmission],
    stream: Stream,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Receive, take, fill and send.

    Args:
        socket: its descriptor, how many batches at most, and how many packets go as one datagram.
        means: room for packets that come, and that go, and for the calls.
        stream: the worker's end.

    Returns:
        what ``Moved`` has.
    """
    descriptor, most, segments = socket
    arrival, reception, departure, transmission = means
    tally, clock = stream.notes
    outer, size = departure.offset, departure.data.shape[1]
    no_flags = np.zeros(len(departure.rows), np.uint8)
    words = np.zeros(2, np.int64)
    idle = 0
    answers, received, taken, sent, first, end, lost, error = 0, 0, 0, 0, 0, 0, 0, 0
    for _ in range(most):
        count, error = receive_datagrams(descriptor, arrival, reception, outer, size - outer)
        if count == 0:
            if idle == _YIELDS or error != _EAGAIN:
                break
            idle += 1
            let_others_run()
            continue
        idle = 0
        length = arrival.length[:count]
        for row in range(count):
            length[row] += outer
            taken += length[row]
        received += count
        clock[0] = monotonic(words)
        packets = arrival.data[:count], length
        answers += take(packets, stream.terms, stream.slots, stream.chunks, stream.notes)
        queued = tally[_QUEUED]
        if queued == 0:
            continue
        queue = stream.slots[2][:queued]
        _start(queue, clock[0], stream)
        which = queue, no_flags[:queued]
        where = stream.slots[0], stream.terms[1][4]
        fill(departure.data[:queued], stream.head, which, where, stream.message)
        tally[_QUEUED] = 0
        sent += queued
        leaving = Departure(
            departure.data[:queued],
            departure.length[:queued],
            outer,
            departure.rows[:queued],
            departure.names,
            departure.name_of[:queued],
        )
        first, missing, error = send_packets(descriptor, leaving, 0, segments, transmission)
        lost += missing
        end = queued
        if error != 0:
            break
    return answers, received, taken, sent, first, end, lost, error


@njit(cache=True, nogil=True)
def _start(slots: NDArray[np.int64], now: float, stream: Stream) -> None:
    """What ``SlotTimers.start`` does for chunks that wait for nothing but their result."""
    _, state, _, sends, first_sent, resend_at, give_up_at = stream.slots
    for slot in slots:
        state[slot] = _WAITING
        sends[slot] = 1
        first_sent[slot] = now
        stream.timeouts[slot] = stream.patience[0]
        resend_at[slot] = now + stream.patience[0]
        give_up_at[slot] = now + stream.patience[1]
