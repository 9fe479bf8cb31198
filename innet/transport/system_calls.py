"""System calls from compiled code, which move a batch of packets without running Python for each.

Numba calls the C library by name. A C structure is a row of 64-bit words here, addressed by index.
The indices are those of 64-bit little-endian Linux, the only system with these calls. Every
function except ``wait_readable`` returns at once, and all of them release the GIL. A failed call
returns errno; the Python caller waits, repeats the call, or raises.

A datagram of many packets (UDP_SEGMENT when sending, UDP_GRO when receiving) passes the kernel
once instead of packet by packet. The I/O vectors of a message say where its parts lie in memory, so
that each packet is a row of a batch without another copy.

Sources: recvmsg(2), recvmmsg(2), sendmmsg(2), write(2), poll(2), cmsg(3), udp(7).
"""

from __future__ import annotations

import errno
import select
import socket
import sys
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from innet.core.numba_cache import njit

Words = NDArray[np.int64]

# struct msghdr, by words; struct mmsghdr adds the number of bytes moved.
NAME, NAME_LENGTH, VECTORS, VECTOR_COUNT, CONTROL, CONTROL_LENGTH, FLAGS, LENGTH = range(8)
MESSAGE_WORDS = 8
VECTOR_WORDS = 2  # struct iovec: address, length
CONTROL_WORDS = 4
AUXILIARY_WORDS = 5
_AUXILIARY_BYTES = 36  # a control message's header, and struct tpacket_auxdata
_AUXILIARY_KIND = 263 | 8 << 32  # SOL_PACKET, PACKET_AUXDATA
_TAG_IS_VALID, _TAG_HAS_TYPE = 1 << 4, 1 << 6  # TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID
_TAG_AT, _TAG_BYTES, _TAG_TYPE = 12, 4, 0x8100
ADDRESS_BYTES = 16  # struct sockaddr_in: family, port, address, 8 bytes of padding
MOST_AT_ONCE = 1024  # the kernel's limit on messages of a call, and on vectors of a message

UDP_SEGMENT = 103
UDP_GRO = 104
MOST_SEGMENTS = 64  # of a datagram: the limit of the oldest kernel with UDP_SEGMENT
LONGEST_DATAGRAM = 65_507  # bytes; limited by IPv4's 16-bit length

_SOL_UDP = 17
_CONTROL_SEGMENT = _SOL_UDP | UDP_SEGMENT << 32  # level and type of a control message
_CONTROL_GRO = _SOL_UDP | UDP_GRO << 32
_CONTROL_HEADER = 16
_DONT_WAIT = int(socket.MSG_DONTWAIT)
_LOW = 0xFFFF_FFFF
_EAGAIN, _EINTR, _ECONNREFUSED, _ENOBUFS = (
    errno.EAGAIN,
    errno.EINTR,
    errno.ECONNREFUSED,
    errno.ENOBUFS,
)
_EMSGSIZE, _EINVAL = errno.EMSGSIZE, errno.EINVAL

#: Whether this system has these calls.
SUPPORTED = sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32

_recvmsg: Any = types.ExternalFunction(
    "recvmsg", types.int64(types.int32, types.uint64, types.int32)
)
_recvmmsg: Any = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.uint64, types.uint32, types.int32, types.uint64)
)
_sendmmsg: Any = types.ExternalFunction(
    "sendmmsg", types.int32(types.int32, types.uint64, types.uint32, types.int32)
)
_errno_location: Any = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())
_clock_gettime: Any = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, types.uint64)
)
_CLOCK_REALTIME, _CLOCK_MONOTONIC = 0, 1
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.uint64, types.uint64))
_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_ppoll: Any = types.ExternalFunction(
    "ppoll", types.int32(types.uint64, types.uint64, types.uint64, types.uint64)
)
_POLLIN = select.POLLIN


class FrameBuffers(NamedTuple):
    """Buffers for the frames that packet sockets receive.

    Attributes:
        messages: (rows, 8): words of mmsghdr, with the row's buffers.
        data: (rows, stride) uint8, a row for each frame.
        length: (rows,) int32, bytes of each, filled in.
        auxiliary: (rows, 5): words of the control message of each, a struct tpacket_auxdata with
            the VLAN tag that the kernel took off the frame.
    """

    messages: Words
    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    auxiliary: Words


class Arrival(NamedTuple):
    """Buffers for the packets that a socket receives.

    Attributes:
        data: (rows, stride) uint8, a row for each packet.
        length: (rows,) int32, bytes of each, filled in.
        sender: (rows,) int64, IPv4 address and port of its sender (48 bits), filled in.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    sender: Words


class Reception(NamedTuple):
    """The other buffers of a recvmsg call.

    Attributes:
        header: words of a msghdr.
        control: words of the control message that comes with a datagram.
        name: words of its sender's address.
        vectors: (rows, 2): where the packet of each row is put.
        scratch: bytes for the longest datagram.
    """

    header: Words
    control: Words
    name: Words
    vectors: Words
    scratch: NDArray[np.uint8]


class SendBatch(NamedTuple):
    """Packets that are to be sent.

    Attributes:
        data: (n, stride) uint8, rows without gaps between their bytes.
        length: (n,) int32, bytes of each row.
        offset: of the first byte of a row that is sent.
        rows: (k,) int64: the rows to send, in order.
        names: (m, 16) uint8: addresses to send to; none for a connected socket.
        name_of: (k,) int64: the row of ``names`` for each of ``rows``.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    offset: int
    rows: Words
    names: NDArray[np.uint8]
    name_of: Words


class Transmission(NamedTuple):
    """The buffers of a sendmmsg call.

    Attributes:
        messages: (calls, 8): words of mmsghdr.
        controls: (calls, 4): words of the control message of each.
        vectors: (rows, 2): where packets lie.
    """

    messages: Words
    controls: Words
    vectors: Words


@njit(cache=True, nogil=True)
def _error() -> int:
    return int(carray(_errno_location(), (1,))[0])


@njit(cache=True, nogil=True)
def monotonic(words: Words) -> float:
    """``time.monotonic``; ``words`` (2,) is scratch memory."""
    _clock_gettime(_CLOCK_MONOTONIC, words.ctypes.data)
    return float(words[0] + 1e-9 * words[1])


@njit(cache=True, nogil=True)
def real_time(words: Words) -> int:
    """``time.time_ns``; ``words`` (2,) is scratch memory."""
    _clock_gettime(_CLOCK_REALTIME, words.ctypes.data)
    return int(words[0] * 1_000_000_000 + words[1])


@njit(cache=True, nogil=True)
def write_bytes(descriptor: int, content: NDArray[np.uint8]) -> int:
    """Write all bytes to a file; returns errno or 0."""
    done = 0
    while done < len(content):
        count = _write(descriptor, content.ctypes.data + done, len(content) - done)
        if count >= 0:
            done += count
            continue
        number = _error()
        if number != _EINTR:
            return number
    return 0


@njit(cache=True, nogil=True)
def yield_processor() -> None:
    """Let other threads and processes run (sched_yield)."""
    _sched_yield()


@njit(cache=True, nogil=True)
def wait_readable(one: int, other: int, seconds: float, words: Words) -> int:
    """Sleep until a descriptor is readable or has an error, ``seconds`` have passed, or a signal.

    Args:
        one: a descriptor; negative for none.
        other: likewise.
        seconds: how long at most.
        words: (4,), scratch memory.

    Returns:
        1 if the first is readable, plus 2 if the second is; 0 if neither.
    """
    words[0] = (one & _LOW) | _POLLIN << 32  # struct pollfd: descriptor, events, revents
    words[1] = (other & _LOW) | _POLLIN << 32
    words[2] = int(seconds)
    words[3] = int((seconds - words[2]) * 1e9)
    at = words.ctypes.data
    if _ppoll(at, 2, at + 16, 0) <= 0:
        return 0
    return int(words[0] >> 48 != 0) | int(words[1] >> 48 != 0) << 1


@njit(cache=True, nogil=True)
def wait_readable_of(descriptors: tuple[int, int, int], seconds: float, words: Words) -> int:
    """As ``wait_readable``, of three descriptors; ``words`` has (5,); 4 means the third."""
    for index in range(3):
        words[index] = (descriptors[index] & _LOW) | _POLLIN << 32
    words[3] = int(seconds)
    words[4] = int((seconds - words[3]) * 1e9)
    at = words.ctypes.data
    if _ppoll(at, 3, at + 24, 0) <= 0:
        return 0
    found = 0
    for index in range(3):
        found |= int(words[index] >> 48 != 0) << index
    return found


@njit(cache=True, nogil=True, allocates=False)
def receive_messages(descriptor: int, messages: Words, first: int, room: int) -> int:
    """Fill ``messages[first : first + room]``; returns how many were received, or -errno."""
    at = messages.ctypes.data + first * MESSAGE_WORDS * 8
    while True:
        count = _recvmmsg(descriptor, at, min(room, MOST_AT_ONCE), _DONT_WAIT, 0)
        if count >= 0:
            return int(count)
        number = _error()
        if number not in (_EINTR, _ECONNREFUSED):
            return -number


@njit(cache=True, nogil=True, allocates=False)
def receive_of_ports(
    ready: Words, most: int, frames: FrameBuffers, port: NDArray[np.int32]
) -> tuple[int, int, int]:
    """Receive frames of several packet sockets, one socket after the other.

    Args:
        ready: (k, 2): descriptors, and their ports.
        most: most frames from each.
        frames: filled in.
        port: (rows,) int32, filled in.

    Returns:
        How many rows were filled; errno or 0; the row of ``ready`` with the error.
    """
    messages, length = frames.messages, frames.length
    row, number, struck = 0, 0, 0
    for index in range(len(ready)):
        room = min(most, len(length) - row)
        if room == 0:
            break
        count = receive_messages(ready[index, 0], messages, row, room)
        if count < 0:
            if -count != _EAGAIN and number == 0:
                number, struck = -count, index
            continue
        for each in range(row, row + count):
            length[each] = messages[each, LENGTH] & _LOW
            port[each] = ready[index, 1]
            if messages[each, CONTROL_LENGTH] >= _AUXILIARY_BYTES:
                _put_tag_back(frames, each)
            messages[each, CONTROL_LENGTH] = AUXILIARY_WORDS * 8
        row += count
    return row, number, struck


@njit(cache=True, nogil=True, allocates=False)
def _put_tag_back(frames: FrameBuffers, row: int) -> None:
    """Put the VLAN tag, which the kernel took off a frame and passes separately, back into it."""
    told = frames.auxiliary[row]
    if told[1] != _AUXILIARY_KIND or not told[2] & _TAG_IS_VALID:
        return
    data, size = frames.data[row], frames.length[row]
    size = min(size + _TAG_BYTES, len(data))
    for at in range(size - 1, _TAG_AT + _TAG_BYTES - 1, -1):
        data[at] = data[at - _TAG_BYTES]
    tag = told[4] & 0xFFFF
    kind = told[4] >> 16 & 0xFFFF if told[2] & _TAG_HAS_TYPE else _TAG_TYPE
    data[_TAG_AT], data[_TAG_AT + 1] = kind >> 8, kind & 0xFF
    data[_TAG_AT + 2], data[_TAG_AT + 3] = tag >> 8, tag & 0xFF
    frames.length[row] = size


@njit(cache=True, nogil=True, allocates=False)
def receive_datagrams(
    descriptor: int, arrival: Arrival, reception: Reception, offset: int, segment: int
) -> tuple[int, int]:
    """Receive datagrams into rows, and split those of many packets.

    A message is received into the vectors of the next rows, each of ``segment`` bytes. Packets of
    that length are then in their rows; ``_cut`` moves others there.

    Args:
        descriptor: of a UDP socket.
        arrival: filled in.
        reception: the other buffers.
        offset: where a packet begins in its row.
        segment: bytes of most packets.

    Returns:
        How many rows were filled, and errno (EAGAIN: no further datagram) or 0.
    """
    header, control = reception.header, reception.control
    span = len(reception.scratch) // segment
    row = 0
    while len(arrival.length) - row >= span:
        # Step 1: one message into the vectors of the next rows (recvmsg(2)).
        header[NAME] = reception.name.ctypes.data
        header[NAME_LENGTH] = ADDRESS_BYTES
        header[VECTORS] = reception.vectors.ctypes.data + row * VECTOR_WORDS * 8
        header[VECTOR_COUNT] = span
        header[CONTROL] = control.ctypes.data
        header[CONTROL_LENGTH] = CONTROL_WORDS * 8
        received = _recvmsg(descriptor, header.ctypes.data, _DONT_WAIT)
        if received < 0:
            number = _error()
            if number in (_EINTR, _ECONNREFUSED):
                continue
            return row, number
        # Step 2: how long its packets are, if it holds several (udp(7), UDP_GRO).
        part = received
        if header[CONTROL_LENGTH] > _CONTROL_HEADER and control[1] == _CONTROL_GRO:
            part = control[2] & _LOW
        # Step 3: their lengths; those of another length are moved into rows of their own.
        if part == segment or received == part < segment:
            count = max(1, (received + segment - 1) // segment)
            for index in range(count):
                arrival.length[row + index] = min(part, received - index * segment)
        else:
            count = _cut(arrival, row, offset, (segment, part, received), reception.scratch)
        arrival.sender[row : row + count] = _sender(reception.name[0])
        row += count
    return row, 0


@njit(cache=True, nogil=True, allocates=False)
def _cut(
    arrival: Arrival,
    row: int,
    offset: int,
    sizes: tuple[int, int, int],
    scratch: NDArray[np.uint8],
) -> int:
    """Move packets of a length other than ``segment`` into a row each; returns how many.

    Packets longer than a row are truncated, and packets without a row are dropped.
    """
    segment, part, received = sizes
    data = arrival.data
    for start in range(0, received, segment):
        size = min(segment, received - start)
        for i in range(size):
            scratch[start + i] = data[row + start // segment, offset + i]
    count = min((received + part - 1) // part, len(data) - row)
    width = data.shape[1] - offset
    for index in range(count):
        start = index * part
        size = min(part, received - start, width)
        arrival.length[row + index] = size
        for i in range(size):
            data[row + index, offset + i] = scratch[start + i]
    return count


@njit(cache=True, nogil=True)
def _sender(word: int) -> int:
    """Address and port of a sockaddr_in as one number, as ``key_of`` makes it."""
    port = (word >> 16 & 0xFF) << 8 | (word >> 24 & 0xFF)
    address = 0
    for byte in range(4):
        address = address << 8 | (word >> (32 + 8 * byte) & 0xFF)
    return address << 16 | port


@njit(cache=True, nogil=True, allocates=False)
def send_packets(  # noqa: PLR0917 - compiled functions are called by position
    descriptor: int,
    departure: SendBatch,
    first: int,
    most: int,
    transmission: Transmission,
    tolerant: bool,
) -> tuple[int, int, int]:
    """Send packets, in order.

    Args:
        descriptor: of a socket.
        departure: the packets.
        first: the row to begin with.
        most: most packets of one length and address in a datagram.
        transmission: the buffers.
        tolerant: lose packets that the interface cannot send, such as those longer than its MTU.

    Returns:
        The row up to which all were handled; how many of them were lost because the interface's
        queue was full, or could not be sent; errno for the next row, or 0.
    """
    messages = transmission.messages
    done = first
    lost = 0
    while done < len(departure.rows):
        count = _gathered(departure, done, most, transmission)
        sent = 0
        while sent < count:
            at = messages.ctypes.data + sent * MESSAGE_WORDS * 8
            moved = _sendmmsg(descriptor, at, count - sent, _DONT_WAIT)
            if moved > 0:
                for index in range(sent, sent + moved):
                    done += messages[index, VECTOR_COUNT]
                sent += moved
                continue
            number = _error()
            if number == _ENOBUFS or (tolerant and number in (_EMSGSIZE, _EINVAL)):
                lost += messages[sent, VECTOR_COUNT]
                done += messages[sent, VECTOR_COUNT]
                sent += 1
            elif number not in (_EINTR, _ECONNREFUSED):
                return done, lost, number
    return done, lost, 0


@njit(cache=True, nogil=True, allocates=False)
def _gathered(departure: SendBatch, first: int, most: int, transmission: Transmission) -> int:
    """Make messages of the rows from ``first`` on, as many as fit; returns how many."""
    messages, controls, vectors = transmission
    rows, length, name_of = departure.rows, departure.length, departure.name_of
    offset = departure.offset
    base = departure.data.ctypes.data + offset
    end = min(len(rows), first + len(vectors))
    count = 0
    row = first
    while row < end and count < len(messages):
        # Step 1: vectors for the next packets of one length and address.
        begin = row
        size = length[rows[row]] - offset
        limit = min(end, row + max(1, min(most, LONGEST_DATAGRAM // max(1, size))))
        while row < limit and length[rows[row]] - offset == size:
            if len(departure.names) and name_of[row] != name_of[begin]:
                break
            vectors[row - first, 0] = base + rows[row] * departure.data.strides[0]
            vectors[row - first, 1] = size
            row += 1
        # Step 2: their message, to be split into packets again if there are several (UDP_SEGMENT).
        message, control = messages[count], controls[count]
        message[:] = 0
        if len(departure.names):
            message[NAME] = departure.names.ctypes.data + name_of[begin] * ADDRESS_BYTES
            message[NAME_LENGTH] = ADDRESS_BYTES
        message[VECTORS] = vectors.ctypes.data + (begin - first) * VECTOR_WORDS * 8
        message[VECTOR_COUNT] = row - begin
        if row - begin > 1:
            control[0] = _CONTROL_HEADER + 2  # an unsigned short
            control[1] = _CONTROL_SEGMENT
            control[2] = size
            message[CONTROL] = controls.ctypes.data + count * CONTROL_WORDS * 8
            message[CONTROL_LENGTH] = _CONTROL_HEADER + 8
        count += 1
    return count


# ----------------------------------------------------------------------------
# Rows of packet batches, in compiled code: their senders and their ports.

_SPREAD = np.int64(0x9E37_79B9_7F4A_7C15 - (1 << 64))  # 2**64 over the golden ratio, odd


@njit(cache=True, nogil=True)
def by_port(
    port: NDArray[np.int32], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows ordered by port; those of a port keep their order.

    Args:
        port: (n,) int32.
        positions: (m,) int64: a number below m for each port that exists, -1 for the others.

    Returns:
        The rows in their new order; the position of each; how many rows have an unknown port.
    """
    starts = np.zeros(len(positions) + 1, np.int64)
    unknown = 0
    for row in range(len(port)):
        position = positions[port[row]] if 0 <= port[row] < len(positions) else -1
        if position < 0:
            unknown += 1
        else:
            starts[position + 1] += 1
    for position in range(len(positions)):
        starts[position + 1] += starts[position]
    rows = np.empty(len(port) - unknown, np.int64)
    ordered = np.empty(len(port) - unknown, np.int64)
    for row in range(len(port)):
        position = positions[port[row]] if 0 <= port[row] < len(positions) else -1
        if position >= 0:
            at = starts[position]
            starts[position] += 1
            rows[at] = row
            ordered[at] = position
    return rows, ordered, unknown


@njit(cache=True, nogil=True)
def find_slot(key: int, keys: NDArray[np.int64]) -> int:
    """The index of ``key`` in a hash table (0: free; its size a power of two), or a free one."""
    mask = len(keys) - 1
    position = (key * _SPREAD >> 32) & mask
    while keys[position] not in (0, key):
        position = (position + 1) & mask
    return int(position)


class SenderTable(NamedTuple):
    """The senders whose packets are accepted.

    Attributes:
        keys: (n,) int64, a hash table of senders for ``find_slot``.
        ports: (n,) int32: the port of each.
    """

    keys: NDArray[np.int64]
    ports: NDArray[np.int32]


@njit(cache=True, nogil=True)
def filter_senders(
    count: int,
    arrival: Arrival,
    packets: tuple[NDArray[np.int32], NDArray[np.int32]],
    sizes: tuple[int, int, int],
    senders: SenderTable,
) -> tuple[int, int]:
    """Keep the packets of known senders that have the right length.

    Args:
        count: how many packets there are.
        arrival: the packets; those that are kept move to the first rows.
        packets: (rows,) int32, filled in: ports, and lengths with what is not received.
        sizes: bytes of a valid packet, with values and without, and bytes that are not received.
        senders: the known senders.

    Returns:
        How many are kept, in their order; how many of the right length had unknown senders.
    """
    data, length, sender = arrival
    port, whole = packets
    segment, bare, offset = sizes
    kept, unknown = 0, 0
    last = np.int64(-1)
    found = np.int32(-1)
    for row in range(count):
        if length[row] != segment and length[row] != bare:
            continue
        if sender[row] != last:
            last = sender[row]
            position = find_slot(last, senders.keys)
            found = senders.ports[position] if senders.keys[position] == last else np.int32(-1)
        if found < 0:
            unknown += 1
            continue
        if kept != row:
            data[kept] = data[row]
        port[kept] = found
        whole[kept] = length[row] + offset
        kept += 1
    return kept, unknown
