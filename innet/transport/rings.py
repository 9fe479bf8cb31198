"""Rings of packets in memory that a worker and the switch of one machine share.

A worker has a pair of rings: ``up`` for its packets, ``down`` for those of the switch. The switch
makes the memory (a memfd, which has no name and ends with its last user) and hands it to the worker
over a Unix socket. Its size is sealed: a worker that cut it would otherwise kill the switch.

Each ring has one writer and one reader. An index counts the packets written, another those read.
Both only grow, and each has a cache line of its own. The switch keeps copies of its own indices and
believes none of the worker's: it copies a packet before it looks at it, and what an impossible
index leads to is dropped. A ring that is full loses packets, as a queue of a network does.

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

BASE, PORT, READ, WRITTEN, SEEN, BELL, ROWS, STRIDE, TOUCHED = range(9)
RING_WORDS = 9


class SwitchRings(NamedTuple):
    """The rings of all workers, as compiled code uses them.

    Attributes:
        table: (n, 9): of each pair the address of its memory (0: none), the switch port (-1: none),
            how many packets were read and written, how many the worker had read when it was last
            asked, the socket that wakes it, rows and stride, and whether packets were written.
        of_port: (ports,): the row of a port, or -1.
        bell: the socket at which workers wake the switch.
        turn: (1,): the pair that is read first.
    """

    table: Words
    of_port: Words
    bell: int
    turn: Words


@njit(cache=True, inner=True, nogil=True, allocates=False)
def notify(descriptor: int, words: Words) -> None:
    """Wake who sleeps at the other end of a socket; ``words`` is scratch memory."""
    _send(descriptor, words.ctypes.data, 1, _QUIET)  # a full queue wakes as well


@njit(cache=True, inner=True, nogil=True, allocates=False)
def drain_notifications(descriptor: int, words: Words) -> None:
    """Take the bytes that have woken this process."""
    for _ in range(_MOST_BELLS):
        if _recv(descriptor, words.ctypes.data, 8, _QUIET) < 0:
            break


@njit(cache=True, inner=True, nogil=True, allocates=False)
def rings_are_empty(rings: SwitchRings) -> bool:
    """Whether no worker has written a packet."""
    table = rings.table
    for each in range(len(table)):
        base = table[each, BASE]
        if base != 0 and load_acquire(base + UP_WRITTEN) != table[each, READ]:
            return False
    return True


@njit(cache=True, nogil=True, allocates=False)
def fall_asleep(rings: SwitchRings) -> bool:
    """Tell all workers that the switch sleeps; whether it may."""
    table = rings.table
    for each in range(len(table)):
        if table[each, BASE] != 0:
            store_release(table[each, BASE] + SWITCH_SLEEPS, 1)
    fence()
    return rings_are_empty(rings)


@njit(cache=True, nogil=True, allocates=False)
def wake_up(rings: SwitchRings, rung: bool, words: Words) -> None:
    """Tell all workers that the switch is awake, which one of them may have ``rung`` for."""
    table = rings.table
    for each in range(len(table)):
        if table[each, BASE] != 0:
            store_release(table[each, BASE] + SWITCH_SLEEPS, 0)
    if rung:
        drain_notifications(rings.bell, words)


@njit(cache=True, nogil=True, allocates=False)
def take_from_rings(
    rings: SwitchRings,
    data: NDArray[np.uint8],
    packets: tuple[NDArray[np.int32], NDArray[np.int32]],
    sizes: tuple[int, int, int],
    most: int,
) -> tuple[int, int, int, int]:
    """Copy packets of workers into rows.

    Args:
        rings: of all workers.
        data: (rows, stride) uint8, filled in from where a packet begins in its row.
        packets: (rows,) int32, filled in: ports, and lengths of the rows.
        sizes: bytes of a packet, with values and without, and where it begins in its row.
        most: rows that may be filled.

    Returns:
        Rows filled, packets read, those of workers that were not admitted, and those of a wrong
        length or index.
    """
    table, turn = rings.table, rings.turn
    port, length = packets
    packet, bare, offset = sizes
    pairs = len(table)
    row, received, unknown, wrong = 0, 0, 0, 0
    width = data.strides[0]
    target = data.ctypes.data + offset
    first = turn[0]
    for step in range(pairs):
        pair = table[(first + step) % pairs]
        base = pair[BASE]
        if base == 0:
            continue
        # Step 1: how many packets wait, if the worker's index is a possible one.
        begun, rows, stride = pair[READ], pair[ROWS], pair[STRIDE]
        count = load_acquire(base + UP_WRITTEN) - begun
        if count == 0:
            continue
        if count < 0 or count > rows:  # no worker of ours
            wrong += 1
            pair[READ] = begun + count
            store_release(base + UP_READ, pair[READ])
            continue
        # Step 2: copy those for which there are rows, before anything in them is looked at.
        count = min(count, most - row)
        at_port = pair[PORT]
        if at_port < 0:
            unknown += count
        else:
            for index in range(begun, begun + count):
                source = base + PAGE + (index & (rows - 1)) * stride
                size = load_half(source)
                if size != packet and size != bare:  # noqa: PLR1714 - there are no sets here
                    wrong += 1
                    continue
                copy_bytes(target + row * width, source + HEADER_AT, size)
                port[row], length[row] = at_port, size + offset
                row += 1
        # Step 3: give the rows of the ring back, and go on with the next pair where this one ends.
        received += count
        pair[READ] = begun + count
        store_release(base + UP_READ, begun + count)
        if row == most:
            turn[0] = (first + step + 1) % pairs
            break
    return row, received, unknown, wrong


@njit(cache=True, nogil=True, allocates=False)
def put_into_rings(  # noqa: PLR0917 - likewise
    data: NDArray[np.uint8],
    length: NDArray[np.int32],
    port: NDArray[np.int32],
    offset: int,
    rings: SwitchRings,
    words: Words,
) -> tuple[int, int]:
    """Copy packets to the workers at their ports, if these have rings.

    Args:
        data: (n, stride) uint8.
        length: (n,) int32, bytes of each.
        port: (n,) int32, of each; others are left to the caller.
        offset: of the first byte that is copied.
        rings: of all workers.
        words: scratch memory.

    Returns:
        How many packets had a ring, and how many of those were lost since it was full.
    """
    table, of_port = rings.table, rings.of_port
    found, lost = 0, 0
    width = data.strides[0]
    begin = data.ctypes.data + offset
    for row in range(len(length)):
        at_port = port[row]
        which = of_port[at_port] if 0 <= at_port < len(of_port) else -1
        if which < 0:
            continue
        # Step 1: room in the worker's ring, by its index of when it was last asked, or of now.
        found += 1
        pair = table[which]
        base, written, rows, stride = pair[BASE], pair[WRITTEN], pair[ROWS], pair[STRIDE]
        if written - pair[SEEN] >= rows:
            seen = load_acquire(base + DOWN_READ)
            if not 0 <= written - seen < rows:
                lost += 1
                continue
            pair[SEEN] = seen
        # Step 2: the packet; the worker does not see it yet.
        size = min(max(0, length[row] - offset), stride - HEADER_AT)
        target = base + PAGE + (rows + (written & (rows - 1))) * stride
        store_half(target, size)
        copy_bytes(target + HEADER_AT, begin + row * width, size)
        pair[WRITTEN] = written + 1
        pair[TOUCHED] = 1
    # Step 3: show all packets at once. After the fence, whoever still says that it sleeps is woken.
    if found > 0:
        for each in range(len(table)):
            if table[each, TOUCHED] != 0:
                store_release(table[each, BASE] + DOWN_WRITTEN, table[each, WRITTEN])
        fence()
        for each in range(len(table)):
            if table[each, TOUCHED] != 0:
                table[each, TOUCHED] = 0
                base = table[each, BASE]
                if load_acquire(base + WORKER_SLEEPS) != 0 and exchange(base + WORKER_SLEEPS, 0):
                    notify(table[each, BELL], words)
    return found, lost


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


@njit(cache=True, inner=True, nogil=True, allocates=False)
def free_tx_slots(ring: WorkerRing) -> int:
    """How many packets the ring to the switch takes now."""
    state = ring.state
    if state[MY_WRITTEN] - state[MY_SEEN] >= ring.rows:
        state[MY_SEEN] = load_acquire(ring.memory.ctypes.data + UP_READ)
    return int(ring.rows - (state[MY_WRITTEN] - state[MY_SEEN]))


@njit(cache=True, inner=True, nogil=True, allocates=False)
def row_of(rows: int, stride: int, index: int, down: bool) -> int:
    """Where a packet begins in the memory, with its length: ``down``, or up."""
    return int(PAGE + ((index & (rows - 1)) + (rows if down else 0)) * stride)


@njit(cache=True, inner=True, nogil=True, allocates=False)
def publish(ring: WorkerRing, written: int, words: Words) -> None:
    """Let the switch see all packets before number ``written``."""
    base = ring.memory.ctypes.data
    ring.state[MY_WRITTEN] = written
    store_release(base + UP_WRITTEN, written)
    fence()
    if load_acquire(base + SWITCH_SLEEPS) != 0 and exchange(base + SWITCH_SLEEPS, 0) != 0:
        notify(ring.bell, words)


@njit(cache=True, inner=True, nogil=True, allocates=False)
def arrived(ring: WorkerRing) -> int:
    """How many packets of the switch were not read yet."""
    count = load_acquire(ring.memory.ctypes.data + DOWN_WRITTEN) - ring.state[MY_READ]
    return int(min(max(0, count), ring.rows))


@njit(cache=True, inner=True, nogil=True, allocates=False)
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
