"""Rings of packets in memory that a worker and the switch of one machine share.

A worker has a pair of rings: ``up`` for its packets, ``down`` for those of the switch. The switch
makes the memory (a memfd, which has no name and ends with its last user) and hands it to the worker
over a Unix socket. Its size is sealed: a worker that cut it would otherwise kill the switch.

Each ring has one writer and one reader. An index counts the packets written, another those read.
Both only grow, and each has a cache line of its own. The switch keeps copies of its own indices and
believes none of the worker's: it copies a packet before it looks at it, and what an impossible
index leads to is dropped. A ring that is full loses packets, as a queue of a network does.

The switch may have several threads, called lanes. Every lane looks at all packets of all workers,
in order, and takes those that are its own by a byte of the packet. Each has its own index of
packets read; the worker is told the least of them. A lane that writes into a worker's ring locks
it.

Who has nothing to do says so in the memory, looks once more, and sleeps at a socket. Who writes
then sends it a byte. Sockets and not an eventfd, since each process has its own end of them: what
a worker does to its end cannot block the switch.

Sources: memfd_create(2), unix(7), fcntl(2) on file seals.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
from typing import Any, NamedTuple, cast

import numpy as np
from numba import types
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.transport.atomics import (
    copy_bytes,
    exchange,
    fence,
    load_acquire,
    load_half,
    store_half,
    store_release,
)
from innet.transport.system_calls import yield_processor
from innet.wire import HEADER, PacketLayout

Words = NDArray[np.int64]

# The first page: an index or a flag at the beginning of every second cache line, as processors
# fetch them in pairs.
UP_WRITTEN, UP_READ, SWITCH_SLEEPS, DOWN_WRITTEN, DOWN_READ, WORKER_SLEEPS = range(0, 768, 128)
PAGE = 4096
#: Of a row: its first bytes are the packet's length. The innet header begins at a cache line, and
#: a worker's outer headers (Ethernet, IPv4, UDP) end there.
HEADER_AT = 64
_CACHE_LINE = 64
_SEALS = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_ADD_SEALS, _GET_SEALS = 1033, 1034  # of fcntl
_QUIET = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_MOST_BELLS = 64

_send: Any = types.ExternalFunction(
    "send", types.int64(types.int32, types.uint64, types.int64, types.int32)
)
_recv: Any = types.ExternalFunction(
    "recv", types.int64(types.int32, types.uint64, types.int64, types.int32)
)


class Geometry(NamedTuple):
    """The size of a pair of rings.

    Attributes:
        rows: packets of each ring, a power of two.
        packet: bytes of a packet, from the innet header on.
    """

    rows: int
    packet: int

    @classmethod
    def of(cls, layout: PacketLayout, window: int) -> Geometry:
        """Rings for a worker with up to ``window`` packets in flight, each perhaps sent twice."""
        packet = HEADER.itemsize + 4 * layout.values
        return cls(max(64, 1 << (2 * window - 1).bit_length()), packet)

    @property
    def stride(self) -> int:
        """Bytes of a row."""
        return HEADER_AT + -(-self.packet // _CACHE_LINE) * _CACHE_LINE

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return PAGE + 2 * self.rows * self.stride


class RingError(Exception):
    """The memory cannot be had, or is not what it should be."""


def create_sealed(size: int) -> int:
    """A sealed memfd of so many bytes; returns its descriptor.

    Raises:
        RingError: the system gives none.
    """
    try:
        descriptor = os.memfd_create("innet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise RingError(f"no memory to share: {error.strerror}") from None
    return descriptor


def map_sealed(descriptor: int, size: int, what: str) -> NDArray[np.uint8]:
    """Sealed memory of so many bytes, (size,) uint8, until the array is no longer used.

    Raises:
        RingError: it is of another size or not sealed, or cannot be mapped.
    """
    try:
        sealed = fcntl.fcntl(descriptor, _GET_SEALS) & _SEALS == _SEALS
        if not sealed or os.fstat(descriptor).st_size != size:
            raise RingError(f"what came is no memory {what} of that size")
        return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
    except (OSError, ValueError) as error:
        raise RingError(f"the shared memory cannot be mapped: {error}") from None


# ----------------------------------------------------------------------------
# The switch's end: a table of all rings, a row of words for each pair.

BASE, PORT, WRITTEN, SEEN, BELL, ROWS, STRIDE, LOCK = range(8)
LINE_WORDS = 16  # a pair of cache lines, so that lanes do not wait for each other's
PORT_IN_ROW = -2  # as the port of a pair of rings: each row says its own, behind its length
PORT_AT = 4
#: Words of ``Lanes.words``: whether all lanes but the first are to stop; and of the line of a lane
#: whether it sleeps, and the socket that wakes it.
STOPS, SLEEPS, WAKER = 0, 0, 1


class Lanes(NamedTuple):
    """The threads of a switch, and which of them has a packet.

    Attributes:
        mine: the number of this one.
        total: how many there are.
        key: the byte of a packet that says so, by its place behind the beginning of the packet; by
            how many bits it is shifted to the right, and which of the others count.
        words: (total + 1, ``LINE_WORDS``): one line for all of them, and one for each.
    """

    mine: int
    total: int
    key: tuple[int, int, int]
    words: Words


class SwitchRings(NamedTuple):
    """The rings of all workers, as compiled code of one lane uses them.

    Attributes:
        table: (n, ``LINE_WORDS``): of each pair the address of its memory (0: none), the switch
            port (-1: none), how many packets were written, how many the worker had read when it was
            last asked, the socket that wakes it, rows and stride, and whether a lane writes.
        read: (lanes, n or more): how many packets of each pair every lane has read.
        of_port: (ports,): the row of a port, or -1.
        bell: the socket at which this lane is woken, by workers if it is the first.
        turn: (1,): the pair that is read first.
        lanes: of the switch.
    """

    table: Words
    read: Words
    of_port: Words
    bell: int
    turn: Words
    lanes: Lanes


@njit(cache=True, nogil=True, allocates=False)
def notify(descriptor: int, words: Words) -> None:
    """Wake who sleeps at the other end of a socket; ``words`` is scratch memory."""
    _send(descriptor, words.ctypes.data, 1, _QUIET)  # a full queue wakes as well


@njit(cache=True, nogil=True, allocates=False)
def drain_notifications(descriptor: int, words: Words) -> None:
    """Take the bytes that have woken this process."""
    for _ in range(_MOST_BELLS):
        if _recv(descriptor, words.ctypes.data, 8, _QUIET) < 0:
            break


@njit(cache=True, nogil=True, allocates=False)
def must_stop(lanes: Lanes) -> bool:
    """Whether this lane has to stop: the first one stops by itself."""
    return lanes.mine > 0 and load_acquire(lanes.words.ctypes.data + 8 * STOPS) != 0


@njit(cache=True, nogil=True, allocates=False)
def _line(lanes: Lanes, lane: int) -> int:
    """The address of a lane's line."""
    return int(lanes.words.ctypes.data + 8 * LINE_WORDS * (lane + 1))


@njit(cache=True, nogil=True, allocates=False)
def wake_lanes(lanes: Lanes, which: int, words: Words) -> None:
    """Wake those that sleep of the lanes with a bit in ``which``; there is something for them."""
    fence()
    for lane in range(1, lanes.total):
        if which >> lane & 1 and lane != lanes.mine:
            line = _line(lanes, lane)
            if load_acquire(line + 8 * SLEEPS) != 0 and exchange(line + 8 * SLEEPS, 0) != 0:
                notify(load_acquire(line + 8 * WAKER), words)


@njit(cache=True, nogil=True, allocates=False)
def rings_are_empty(rings: SwitchRings) -> bool:
    """Whether no worker has written a packet that this lane has not seen."""
    table, read = rings.table, rings.read[rings.lanes.mine]
    for each in range(len(table)):
        base = table[each, BASE]
        if base != 0 and load_acquire(base + UP_WRITTEN) != read[each]:
            return False
    return True


@njit(cache=True, nogil=True, allocates=False)
def fall_asleep(rings: SwitchRings) -> bool:
    """Tell all workers that the switch sleeps, or the first lane that this one does; whether it
    may.
    """
    table, lanes = rings.table, rings.lanes
    if lanes.mine > 0:
        store_release(_line(lanes, lanes.mine) + 8 * SLEEPS, 1)
        fence()
        return not must_stop(lanes) and rings_are_empty(rings)
    for each in range(len(table)):
        if table[each, BASE] != 0:
            store_release(table[each, BASE] + SWITCH_SLEEPS, 1)
    fence()
    return rings_are_empty(rings)


@njit(cache=True, nogil=True, allocates=False)
def wake_up(rings: SwitchRings, rung: bool, words: Words) -> None:
    """Tell all workers that the switch is awake, which one of them may have ``rung`` for."""
    table, lanes = rings.table, rings.lanes
    if lanes.mine > 0:
        store_release(_line(lanes, lanes.mine) + 8 * SLEEPS, 0)
    else:
        for each in range(len(table)):
            if table[each, BASE] != 0:
                store_release(table[each, BASE] + SWITCH_SLEEPS, 0)
    if rung:
        drain_notifications(rings.bell, words)


@njit(cache=True, nogil=True, allocates=False)
def _give_back(rings: SwitchRings, which: int) -> None:
    """Tell the worker of a pair how many of its packets all lanes have read."""
    read, count = rings.read, rings.lanes.total
    target = rings.table[which, BASE] + UP_READ
    told = read[rings.lanes.mine, which]
    while True:
        least = told
        for lane in range(count):
            at = read.ctypes.data + lane * read.strides[0] + 8 * which
            least = min(least, load_acquire(at))
        store_release(target, least)
        if count == 1:
            break
        # Another lane may have told less just now, from what it had seen before.
        fence()
        again = told
        for lane in range(count):
            at = read.ctypes.data + lane * read.strides[0] + 8 * which
            again = min(again, load_acquire(at))
        if again == least:
            break


@njit(cache=True, nogil=True, allocates=False)
def take_from_rings(  # noqa: PLR0917 - compiled functions are called by position
    rings: SwitchRings,
    data: NDArray[np.uint8],
    packets: tuple[NDArray[np.int32], NDArray[np.int32]],
    sizes: tuple[int, int, int],
    most: int,
    words: Words,
) -> tuple[int, int, int, int]:
    """Copy packets of workers into rows: those of this lane.

    Args:
        rings: of all workers.
        data: (rows, stride) uint8, filled in from where a packet begins in its row.
        packets: (rows,) int32, filled in: ports, and lengths of the rows.
        sizes: bytes of a packet, with values and without, and where it begins in its row.
        most: rows that may be filled.
        words: scratch memory.

    Returns:
        Rows filled, packets read, those of workers that were not admitted, and those of a wrong
        length or index.
    """
    table, turn, mine = rings.table, rings.turn, rings.lanes.mine
    pairs = len(table)
    row, received, unknown, wrong, others = 0, 0, 0, 0, 0
    first = turn[0]
    for step in range(pairs):
        which = (first + step) % pairs
        pair = table[which]
        base = pair[BASE]
        if base == 0:
            continue
        # Step 1: how many packets wait, if the worker's index is a possible one.
        begun, rows = rings.read[mine, which], pair[ROWS]
        count = load_acquire(base + UP_WRITTEN) - begun
        if count == 0:
            continue
        index = begun + count
        if count < 0 or count > rows:  # no worker of ours
            wrong += int(mine == 0)
        elif pair[PORT] == -1:
            unknown += count if mine == 0 else 0
            received += count if mine == 0 else 0
        else:
            # Step 2: copy those for which there are rows, before anything in them is looked at.
            bounds = begun, index, row, most
            index, row, kept, odd, foreign = _copy_rows(
                pair, rings.lanes, data, packets, sizes, bounds
            )
            received += kept
            wrong += odd
            others |= foreign
        # Step 3: give the rows of the ring back, and go on with the next pair where this one ends.
        at = rings.read.ctypes.data + mine * rings.read.strides[0] + 8 * which
        store_release(at, index)
        _give_back(rings, which)
        if row == most:
            turn[0] = (which + 1) % pairs
            break
    if others != 0:
        wake_lanes(rings.lanes, others, words)
    return row, received, unknown, wrong


@njit(cache=True, nogil=True, allocates=False)
def _copy_rows(  # noqa: PLR0917 - compiled functions are called by position
    pair: Words,
    lanes: Lanes,
    data: NDArray[np.uint8],
    packets: tuple[NDArray[np.int32], NDArray[np.int32]],
    sizes: tuple[int, int, int],
    bounds: tuple[int, int, int, int],
) -> tuple[int, int, int, int, int]:
    """Copy the packets of a lane from a ring into rows.

    Args:
        pair: a row of ``SwitchRings.table``.
        lanes: of the switch.
        data: as for ``take_from_rings``.
        packets: likewise.
        sizes: likewise.
        bounds: the first packet, that behind the last; the first row, and that behind the last.

    Returns:
        The next packet; the next row; how many packets were this lane's, those of a wrong length
        among them; and the lanes of the others, a bit each.
    """
    index, end, row, most = bounds
    base, rows, stride, at_port = pair[BASE], pair[ROWS], pair[STRIDE], pair[PORT]
    at, shift, mask = lanes.key
    word_at, byte = HEADER_AT + (at & ~3), 8 * (at & 3)
    port, length = packets
    packet, bare, offset = sizes
    width = data.strides[0]
    target = data.ctypes.data + offset
    received, wrong, others = 0, 0, 0
    while index < end and row < most:
        source = base + PAGE + (index & (rows - 1)) * stride
        index += 1
        if lanes.total > 1:
            lane = (load_half(source + word_at) >> byte >> shift & mask) % lanes.total
            if lane != lanes.mine:
                others |= 1 << lane
                continue
        received += 1
        size = load_half(source)
        if size != packet and size != bare:  # noqa: PLR1714 - there are no sets here
            wrong += 1
            continue
        copy_bytes(target + row * width, source + HEADER_AT, size)
        if lanes.total > 1 and _lane_of(data, row, offset, lanes) != lanes.mine:
            wrong += 1  # the worker has changed it meanwhile
            continue
        port[row] = load_half(source + PORT_AT) if at_port == PORT_IN_ROW else at_port
        length[row] = size + offset
        row += 1
    return index, row, received, wrong, others


@njit(cache=True, nogil=True, allocates=False)
def _lane_of(data: NDArray[np.uint8], row: int, offset: int, lanes: Lanes) -> int:
    """The lane that a packet is of."""
    at, shift, mask = lanes.key
    return int((np.int64(data[row, offset + at]) >> shift & mask) % lanes.total)


@njit(cache=True, nogil=True, allocates=False)
def hand_over(  # noqa: PLR0917 - likewise
    rings: SwitchRings,
    which: int,
    data: NDArray[np.uint8],
    packets: tuple[NDArray[np.int32], NDArray[np.int32]],
    count: int,
    offset: int,
    words: Words,
) -> tuple[int, int]:
    """Give packets that came in another way to the lanes that have them, through a ring of theirs.

    Args:
        rings: of all workers, and that one.
        which: its row.
        data: (rows, stride) uint8: the packets; those of this lane move to the first rows.
        packets: (rows,) int32: their ports, and lengths of the rows; likewise.
        count: how many there are.
        offset: where a packet begins in its row.
        words: scratch memory.

    Returns:
        How many are this lane's; how many of the others were lost since the ring was full.
    """
    lanes, pair = rings.lanes, rings.table[which]
    port, length = packets
    base, rows, stride = pair[BASE], pair[ROWS], pair[STRIDE]
    written = load_acquire(base + UP_WRITTEN)
    kept, lost, others = 0, 0, 0
    for row in range(count):
        lane = _lane_of(data, row, offset, lanes)
        if lane == lanes.mine:
            if kept != row:
                start = data.ctypes.data
                copy_bytes(
                    start + kept * data.strides[0], start + row * data.strides[0], length[row]
                )
                port[kept], length[kept] = port[row], length[row]
            kept += 1
            continue
        others |= 1 << lane
        if written - load_acquire(base + UP_READ) >= rows:
            lost += 1
            continue
        place = base + PAGE + (written & (rows - 1)) * stride
        size = min(length[row] - offset, stride - HEADER_AT)
        store_half(place, size)
        store_half(place + PORT_AT, port[row])
        copy_bytes(place + HEADER_AT, data.ctypes.data + row * data.strides[0] + offset, size)
        written += 1
    store_release(base + UP_WRITTEN, written)
    if others != 0:
        wake_lanes(lanes, others, words)
    return kept, lost


@njit(cache=True, nogil=True, allocates=False)
def put_into_rings(  # noqa: PLR0917 - likewise
    data: NDArray[np.uint8],
    length: NDArray[np.int32],
    port: NDArray[np.int32],
    offset: int,
    rings: SwitchRings,
    links: Words,
    words: Words,
) -> tuple[int, int]:
    """Copy packets to the workers at their ports, if these have rings.

    Args:
        data: (n, stride) uint8.
        length: (n,) int32, bytes of each.
        port: (n,) int32, of each; others are left to the caller.
        offset: of the first byte that is copied.
        rings: of all workers.
        links: scratch memory: a word for each packet, and two for each pair of rings.
        words: scratch memory.

    Returns:
        How many packets had a ring, and how many of those were lost since it was full.
    """
    table = rings.table
    pairs, count = len(table), len(length)
    heads, tails = links[count : count + pairs], links[count + pairs : count + 2 * pairs]
    found, left = _link(port, rings, links, heads, tails)
    lost = 0
    # Ring by ring, those first that no other lane writes into.
    first = rings.lanes.mine * pairs // rings.lanes.total
    while left > 0:
        before = left
        for step in range(pairs):
            which = (first + step) % pairs
            if heads[which] < 0:
                continue
            lock = table.ctypes.data + which * table.strides[0] + 8 * LOCK
            if exchange(lock, 1) != 0:
                continue
            lost += _fill(table[which], data, length, offset, links, heads[which])
            store_release(lock, 0)
            heads[which] = -1
            left -= 1
        if left == before:
            yield_processor()
    # After the fence, whoever still says that it sleeps is woken.
    if found > 0:
        fence()
        for which in range(pairs):
            if tails[which] >= 0:
                base = table[which, BASE]
                if load_acquire(base + WORKER_SLEEPS) != 0 and exchange(base + WORKER_SLEEPS, 0):
                    notify(table[which, BELL], words)
    return found, lost


@njit(cache=True, nogil=True, allocates=False)
def _link(
    port: NDArray[np.int32], rings: SwitchRings, links: Words, heads: Words, tails: Words
) -> tuple[int, int]:
    """Link the packets of each ring, one behind the other.

    Args:
        port: (n,) int32, of each packet.
        rings: of all workers.
        links: filled in: the packet behind each; -1 for none.
        heads: filled in: the first packet for each pair of rings; -1 for none.
        tails: likewise the last one.

    Returns:
        How many packets have a ring; how many rings have packets.
    """
    of_port = rings.of_port
    found, touched = 0, 0
    heads[:] = -1
    tails[:] = -1
    for row in range(len(port)):
        at_port = port[row]
        which = of_port[at_port] if 0 <= at_port < len(of_port) else -1
        if which < 0:
            continue
        found += 1
        links[row] = -1
        if heads[which] < 0:
            heads[which] = row
            touched += 1
        else:
            links[tails[which]] = row
        tails[which] = row
    return found, touched


@njit(cache=True, nogil=True, allocates=False)
def _fill(  # noqa: PLR0917 - likewise
    pair: Words,
    data: NDArray[np.uint8],
    length: NDArray[np.int32],
    offset: int,
    links: Words,
    row: int,
) -> int:
    """Copy packets, each linked to the next, into a ring; returns how many were lost."""
    base, written, rows, stride = pair[BASE], pair[WRITTEN], pair[ROWS], pair[STRIDE]
    begin, width = data.ctypes.data + offset, data.strides[0]
    lost = 0
    while row >= 0:
        here, row = row, links[row]
        # Room in the worker's ring, by its index of when it was last asked, or of now.
        if written - pair[SEEN] >= rows:
            seen = load_acquire(base + DOWN_READ)
            if not 0 <= written - seen < rows:
                lost += 1
                continue
            pair[SEEN] = seen
        size = min(max(0, length[here] - offset), stride - HEADER_AT)
        target = base + PAGE + (rows + (written & (rows - 1))) * stride
        store_half(target, size)
        copy_bytes(target + HEADER_AT, begin + here * width, size)
        written += 1
    pair[WRITTEN] = written
    store_release(base + DOWN_WRITTEN, written)
    return lost


# ----------------------------------------------------------------------------
# The worker's end.

MY_WRITTEN, MY_SEEN, MY_READ = range(3)


class WorkerRing(NamedTuple):
    """A worker's pair of rings, as compiled code uses it.

    Attributes:
        memory: (bytes,) uint8.
        rows, stride: of each ring.
        outer: bytes of a frame before the innet header, which are not the switch's concern.
        packet: bytes of a frame after those.
        state: (3,): how many packets were written, how many the switch had read when it was last
            asked, and how many of its packets were read.
        bell: the socket at which the switch is woken.
        woken: the socket at which this worker is.
    """

    memory: NDArray[np.uint8]
    rows: int
    stride: int
    outer: int
    packet: int
    state: Words
    bell: int
    woken: int


@njit(cache=True, nogil=True, allocates=False)
def free_tx_slots(ring: WorkerRing) -> int:
    """How many packets the ring to the switch takes now."""
    state = ring.state
    if state[MY_WRITTEN] - state[MY_SEEN] >= ring.rows:
        state[MY_SEEN] = load_acquire(ring.memory.ctypes.data + UP_READ)
    return int(ring.rows - (state[MY_WRITTEN] - state[MY_SEEN]))


@njit(cache=True, nogil=True, allocates=False)
def row_of(rows: int, stride: int, index: int, down: bool) -> int:
    """Where a packet begins in the memory, with its length: ``down``, or up."""
    return int(PAGE + ((index & (rows - 1)) + (rows if down else 0)) * stride)


@njit(cache=True, nogil=True, allocates=False)
def publish(ring: WorkerRing, written: int, words: Words) -> None:
    """Let the switch see all packets before number ``written``."""
    base = ring.memory.ctypes.data
    ring.state[MY_WRITTEN] = written
    store_release(base + UP_WRITTEN, written)
    fence()
    if load_acquire(base + SWITCH_SLEEPS) != 0 and exchange(base + SWITCH_SLEEPS, 0) != 0:
        notify(ring.bell, words)


@njit(cache=True, nogil=True, allocates=False)
def arrived(ring: WorkerRing) -> int:
    """How many packets of the switch were not read yet."""
    count = load_acquire(ring.memory.ctypes.data + DOWN_WRITTEN) - ring.state[MY_READ]
    return int(min(max(0, count), ring.rows))


@njit(cache=True, nogil=True, allocates=False)
def release(ring: WorkerRing, count: int) -> None:
    """Give rows back to the switch that were read."""
    ring.state[MY_READ] += count
    store_release(ring.memory.ctypes.data + DOWN_READ, ring.state[MY_READ])


@njit(cache=True, nogil=True, allocates=False)
def send_frames(
    ring: WorkerRing,
    data: NDArray[np.uint8],
    length: NDArray[np.int32],
    rows: Words,
    words: Words,
) -> int:
    """Write frames into the ring; returns how many were lost since it was full.

    Args:
        ring: the worker's.
        data: (n, stride) uint8, frames with outer headers.
        length: (n,) int32, bytes of each.
        rows: (k,) of the frames to send, in order.
        words: scratch memory.
    """
    written, lost = ring.state[MY_WRITTEN], 0
    base = ring.memory.ctypes.data
    for row in rows:
        if free_tx_slots(ring) <= 0:
            lost += 1
            continue
        size = min(length[row] - ring.outer, ring.stride - HEADER_AT)
        at = base + row_of(ring.rows, ring.stride, written, False)
        store_half(at, size)
        copy_bytes(at + HEADER_AT, data.ctypes.data + row * data.strides[0] + ring.outer, size)
        written += 1
        ring.state[MY_WRITTEN] = written
    publish(ring, written, words)
    return lost


@njit(cache=True, nogil=True, allocates=False)
def receive_frames(ring: WorkerRing, data: NDArray[np.uint8], length: NDArray[np.int32]) -> int:
    """Copy packets of the switch into rows behind their outer headers; returns how many."""
    count = min(arrived(ring), len(length))
    base = ring.memory.ctypes.data
    for row in range(count):
        at = base + row_of(ring.rows, ring.stride, ring.state[MY_READ] + row, True)
        size = min(max(0, load_half(at)), data.shape[1] - ring.outer)
        copy_bytes(data.ctypes.data + row * data.strides[0] + ring.outer, at + HEADER_AT, size)
        length[row] = size + ring.outer
    release(ring, count)
    return count


@njit(cache=True, nogil=True, allocates=False)
def begin_sleep(ring: WorkerRing) -> bool:
    """Say that this worker sleeps; whether it may, as nothing has arrived."""
    store_release(ring.memory.ctypes.data + WORKER_SLEEPS, 1)
    fence()
    return arrived(ring) == 0


@njit(cache=True, nogil=True, allocates=False)
def end_sleep(ring: WorkerRing, rung: bool, words: Words) -> None:
    """Say that this worker is awake, for which the switch may have ``rung``."""
    store_release(ring.memory.ctypes.data + WORKER_SLEEPS, 0)
    if rung:
        drain_notifications(ring.woken, words)


# ----------------------------------------------------------------------------
# Handing the memory over.

DESCRIPTORS = 3  # rings, a socket that wakes the worker, the memory of its job


def send_descriptors(
    sock: socket.socket, to: str | bytes, text: bytes, descriptors: list[int]
) -> bool:
    """Send descriptors to a Unix address, without waiting; whether they were sent."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, np.array(descriptors, np.int32).tobytes())]
    try:
        sock.sendmsg([text], rights if descriptors else [], _QUIET, cast("Any", to))
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS)
    return True


def receive_descriptors(sock: socket.socket) -> tuple[bytes, list[int]] | None:
    """A message with its descriptors, without waiting; None if there is none.

    Raises:
        OSError: the other end is gone.
    """
    room = socket.CMSG_SPACE(DESCRIPTORS * 4)
    try:  # socket.recv_fds takes no flags
        text, rights, _, _ = sock.recvmsg(256, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    descriptors: list[int] = []
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) // 4 * 4
            descriptors += np.frombuffer(data[:whole], np.int32).tolist()
    return text, descriptors
