"""Batches of packets sent and received by few system calls, in compiled code.

A Python call per packet would cost more than everything else that happens to the packet. Here one
call of ``innet.transport.system_calls`` moves a batch. Where a UDP socket is set up for it, dozens
of packets pass the kernel as one datagram.

Sources: socket(7), udp(7).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import NetworkError, StalledError
from innet.core.packets import PacketBatch
from innet.transport import system_calls as calls

_IP_MTU_DISCOVER = 10  # Linux: whether packets may be fragmented
_IP_PMTUDISC_DONT = 0

_AT_ONCE = calls.MOST_AT_ONCE
_ROWS_AT_ONCE = 4096  # packets prepared for sending at once
_SEND_SECONDS = 5.0
_NO_ROOM = (errno.EAGAIN, errno.EWOULDBLOCK)
_NO_SEGMENTS = (errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP)
_GONE = (
    errno.ENETDOWN,
    errno.ENODEV,
    errno.ENXIO,
    errno.EADDRNOTAVAIL,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EINVAL,
)
_NO_NAMES = np.empty((0, calls.ADDRESS_BYTES), np.uint8)


def allow_fragmentation(sock: socket.socket) -> None:
    """Allow routers to fragment packets of a UDP socket that exceed the MTU of a link.

    By default Linux sets "don't fragment". Routers then drop such packets and report it by ICMP,
    which the socket raises as an error. If a firewall drops ICMP, the loss is not even reported.
    """
    sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)


def enable_gro(sock: socket.socket) -> bool:
    """Enable UDP GRO at a socket: it receives many packets as one datagram.

    Returns:
        Whether the kernel has it.
    """
    try:
        sock.setsockopt(socket.IPPROTO_UDP, calls.UDP_GRO, 1)
    except OSError:
        return False
    return True


class Inbox:
    """Buffers for the messages that a socket receives.

    Args:
        rows: most messages that one call receives.
        stride: bytes of a row; longer messages are truncated.
        offset: where a message begins in its row, to leave room for a header.
    """

    def __init__(self, rows: int = _AT_ONCE, stride: int = 2048, offset: int = 0) -> None:
        self.data: NDArray[np.uint8] = np.zeros((rows, stride), np.uint8)
        self._vectors = vectors_of(self.data, offset, stride - offset)
        self.messages = np.zeros((rows, calls.MESSAGE_WORDS), np.int64)
        steps = np.arange(rows) * (8 * calls.VECTOR_WORDS)
        self.messages[:, calls.VECTORS] = self._vectors.ctypes.data + steps
        self.messages[:, calls.VECTOR_COUNT] = 1
        calls.receive_messages(-1, self.messages, 0, 0)  # compiled now, not when a packet waits

    def frames(self, length: NDArray[np.int32]) -> calls.FrameBuffers:
        """The buffers for packet sockets that tell VLAN tags; ``length`` is filled in."""
        auxiliary = np.zeros((len(self.data), calls.AUXILIARY_WORDS), np.int64)
        steps = np.arange(len(self.data)) * (8 * calls.AUXILIARY_WORDS)
        self.messages[:, calls.CONTROL] = auxiliary.ctypes.data + steps
        self.messages[:, calls.CONTROL_LENGTH] = 8 * calls.AUXILIARY_WORDS
        return calls.FrameBuffers(self.messages, self.data, length, auxiliary)

    def receive(self, sock: socket.socket, row: int = 0, most: int = _AT_ONCE) -> NDArray[np.int32]:
        """Receive up to ``most`` messages into the rows from ``row`` on, without waiting.

        Returns:
            The lengths of the messages, bytes, shape (k,); k may be 0.

        Raises:
            NetworkError: the socket's interface is gone.
        """
        room = min(len(self.data) - row, most)
        if room <= 0:
            return np.empty(0, np.int32)
        count = calls.receive_messages(sock.fileno(), self.messages, row, room)
        if count < 0:
            if -count in _NO_ROOM:
                return np.empty(0, np.int32)
            raise failed("receiving", -count)
        return self.messages[row : row + count, calls.LENGTH].astype(np.int32)


class SegmentInbox:
    """Buffers for what a UDP socket receives. Datagrams of many packets are split into packets.

    Args:
        segment: bytes of most packets; packets of any other length are received, too.
        offset: where a packet begins in its row, to leave room for a header.
        rows: most packets that one call receives.

    Attributes:
        data: shape (n, stride), uint8; a row has room for more than ``segment`` bytes, and packets
            longer than the row are truncated.
        length: shape (n,), int32: bytes of each packet that the last call received.
        sender: shape (n,), int64: its sender's IPv4 address and UDP port as one number.
        arrival: all three.
        reception: the buffers that compiled code needs to receive, besides ``arrival``.
    """

    def __init__(self, segment: int, offset: int, rows: int = _AT_ONCE) -> None:
        full = -(-(1 << 16) // segment)
        span = max(1, min(full, 2 * calls.MOST_SEGMENTS))  # newer kernels take twice as many
        stride = (offset + segment) // 64 * 64 + 64
        self.data: NDArray[np.uint8] = np.zeros((rows + span, stride), np.uint8)
        self.length = np.zeros(len(self.data), np.int32)
        self.sender = np.zeros(len(self.data), np.int64)
        self._offset = offset
        self._segment = segment
        self.arrival = calls.Arrival(self.data, self.length, self.sender)
        self.reception = calls.Reception(
            header=np.zeros(calls.MESSAGE_WORDS, np.int64),
            control=np.zeros(calls.CONTROL_WORDS, np.int64),
            name=np.zeros(calls.ADDRESS_BYTES // 8, np.int64),
            vectors=vectors_of(self.data, offset, segment),
            scratch=np.zeros(span * segment, np.uint8),
        )
        self._take(-1)  # compiled now, not when a packet waits

    def receive(self, sock: socket.socket) -> int:
        """Receive what has arrived, without waiting; returns how many packets.

        Raises:
            NetworkError: the socket's interface is gone.
        """
        count, number = self._take(sock.fileno())
        if number and number not in _NO_ROOM and not count:
            raise failed("receiving", number)
        return count

    def _take(self, descriptor: int) -> tuple[int, int]:
        return calls.receive_datagrams(
            descriptor, self.arrival, self.reception, self._offset, self._segment
        )


@dataclass(frozen=True, slots=True)
class Addresses:
    """Destinations of packets.

    Attributes:
        names: shape (m, 16), uint8, a ``struct sockaddr_in`` each.
        name_of: shape (k,), int64: the row of ``names`` for each packet.
    """

    names: NDArray[np.uint8]
    name_of: NDArray[np.int64]


class Outbox:
    """Sends rows of batches.

    Args:
        segments: send consecutive packets of equal length to the same address as one datagram,
            which the kernel or the network card splits (UDP sockets only).
        forgiving: count packets that cannot be sent as lost, such as those to unknown addresses.
        tolerant: count packets that an interface cannot send, by their length, as lost.

    Attributes:
        dropped: packets that the interface's queue had no room for, or that could not be sent; they
            are lost, as in a switch.
        segments: as given, until the kernel refuses such a datagram.
        transmission: the buffers that compiled code needs to send.
    """

    def __init__(
        self, segments: bool = False, *, forgiving: bool = False, tolerant: bool = False
    ) -> None:
        self.segments = segments
        self.tolerant = tolerant
        self._forgiving = forgiving
        self.dropped = 0
        self.transmission = calls.Transmission(
            messages=np.zeros((_AT_ONCE, calls.MESSAGE_WORDS), np.int64),
            controls=np.zeros((_AT_ONCE, calls.CONTROL_WORDS), np.int64),
            vectors=np.zeros((_ROWS_AT_ONCE, calls.VECTOR_WORDS), np.int64),
        )
        nothing = np.empty(0, np.int64)  # compiled now, not when a packet waits
        batch = calls.SendBatch(_NO_NAMES, np.empty(0, np.int32), 0, nothing, _NO_NAMES, nothing)
        calls.send_packets(-1, batch, 0, 1, self.transmission, tolerant)

    @property
    def most(self) -> int:
        """Most packets that are sent as one datagram."""
        return calls.MOST_SEGMENTS if self.segments else 1

    def send(
        self,
        sock: socket.socket,
        packets: PacketBatch,
        offset: int = 0,
        rows: NDArray[np.int64] | None = None,
        to: Addresses | None = None,
    ) -> None:
        """Send packets, without their first ``offset`` bytes.

        Args:
            sock: the socket that sends them.
            packets: a batch that contains them.
            offset: of the first byte that is sent.
            rows: rows of the packets to send, in order, shape (k,); by default all.
            to: destination of each of ``rows``; None for a socket that is connected or bound.

        Raises:
            NetworkError: the socket's interface is gone.
            StalledError: the socket accepted nothing for some seconds.
        """
        data = packets.data
        if data.strides[1:] != (1,):
            data = np.ascontiguousarray(data)
        if rows is None:
            rows = np.arange(len(packets))
        names, name_of = (_NO_NAMES, rows) if to is None else (to.names, to.name_of)
        departure = calls.SendBatch(data, packets.length, offset, rows, names, name_of)
        end = 0.0
        done = 0
        while done < len(rows):
            before = done
            done, lost, number = calls.send_packets(
                sock.fileno(), departure, before, self.most, self.transmission, self.tolerant
            )
            self.dropped += lost
            if number in _NO_ROOM:
                end = _wait_for_room(sock, 0.0 if done > before else end)
            elif number and self.segments and number in _NO_SEGMENTS:
                self.segments = False
            elif number and self._forgiving:
                self.dropped += 1
                done += 1
            elif number:
                raise failed("sending", number)


def vectors_of(data: NDArray[np.uint8], offset: int, size: int) -> NDArray[np.int64]:
    """An I/O vector for each row: ``size`` bytes from ``offset`` on."""
    vectors = np.empty((len(data), calls.VECTOR_WORDS), np.int64)
    vectors[:, 0] = data.ctypes.data + offset + np.arange(len(data)) * data.strides[0]
    vectors[:, 1] = size
    return vectors


def failed(what: str, number: int) -> NetworkError:
    """The error for a system call that failed."""
    hint = "; its interface went down or away" if number in _GONE else ""
    return NetworkError(f"{what} packets failed: {os.strerror(number)}{hint}.")


def _wait_for_room(sock: socket.socket, end: float) -> float:
    """Wait briefly for a socket to accept packets, until ``end``; 0 begins a new wait."""
    end = end or time.monotonic() + _SEND_SECONDS
    if time.monotonic() >= end:
        raise StalledError(
            f"a socket took no packet for {_SEND_SECONDS:g} s; its interface is down "
            "or its link is slower than what was sent."
        )
    writable(0.1, sock.fileno())
    return end


if not calls.SUPPORTED:
    raise NetworkError(
        f"sockets in batches need 64-bit little-endian Linux; this is {sys.platform}, "
        f"{sys.byteorder}-endian. Transports in memory run anywhere."
    )


# ----------------------------------------------------------------------------
# Sleep until a socket can be read or written.
#
# select(2) has an exact timeout, but takes no descriptor above 1023, and a training process may
# have thousands of files open before it joins a job. poll(2) takes any descriptor, but Python's
# version rounds the timeout up to milliseconds.

_SELECTABLE = 1024  # FD_SETSIZE of select(2)
_LONGEST = 86_400.0  # seconds; poll takes no more than some 24 days


def readable(seconds: float, *descriptors: int) -> list[int]:
    """Wait until a descriptor is readable or has an error; at most ``seconds``, or a day."""
    seconds = min(max(0.0, seconds), _LONGEST)
    if max(descriptors) < _SELECTABLE:
        return select.select(descriptors, [], [], seconds)[0]
    return _polled(select.POLLIN, seconds, descriptors)


def writable(seconds: float, *descriptors: int) -> list[int]:
    """Wait until a descriptor is writable or has an error; at most ``seconds``, or a day."""
    seconds = min(max(0.0, seconds), _LONGEST)
    if max(descriptors) < _SELECTABLE:
        return select.select([], descriptors, [], seconds)[1]
    return _polled(select.POLLOUT, seconds, descriptors)


def _polled(what: int, seconds: float, descriptors: tuple[int, ...]) -> list[int]:
    poll = select.poll()
    for each in descriptors:
        poll.register(each, what)
    return [each for each, _ in poll.poll(1000 * seconds)]
