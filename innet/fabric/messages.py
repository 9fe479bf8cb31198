"""Many packets of a socket moved by one system call: recvmmsg(2) and sendmmsg(2).

A call per packet from Python would cost more than all else that happens to a packet. Here the
kernel runs over arrays of addresses and lengths, which NumPy fills for a whole batch at once.

Sources: recvmmsg(2), sendmmsg(2), socket(7); the structures are those of 64-bit Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import time

import numpy as np
from numpy.typing import NDArray

from innet.errors import NetworkError, StalledError
from innet.packets import PacketBatch

_VECTOR = np.dtype([("base", "u8"), ("length", "u8")])  # struct iovec
ADDRESS = np.dtype(  # struct sockaddr_in
    [("family", "u2"), ("port", ">u2"), ("ip", ">u4"), ("zero", "u8")]
)
_MESSAGE = np.dtype(  # struct mmsghdr
    {
        "names": ["name", "name_length", "vector", "vectors", "control", "controls", "flags",
                  "length"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)  # fmt: skip

SO_SNDBUFFORCE = 32  # beyond the system's limit, for those who may (CAP_NET_ADMIN)
SO_RCVBUFFORCE = 33

_BUFFER = 64 << 20  # bytes: a window of every worker at once, many times over
_AT_ONCE = 1024  # messages per system call: the kernel takes no more
_SEND_SECONDS = 5.0
_WORTH_A_RETRY = (errno.EINTR, errno.ECONNREFUSED)
_FULL = (errno.EAGAIN, errno.EWOULDBLOCK)
_WORTH_WAITING = (*_FULL, *_WORTH_A_RETRY)
_GONE = (
    errno.ENETDOWN,
    errno.ENODEV,
    errno.ENXIO,
    errno.EADDRNOTAVAIL,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EINVAL,
)

_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = _libc.recvmmsg
_recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]
_sendmmsg = _libc.sendmmsg
_sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]


def widen_buffers(sock: socket.socket, size: int = _BUFFER) -> None:
    """Give a socket room for bursts: ``size`` bytes for root, for others what the system allows."""
    for forced, plain in (
        (SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, size)


class Inbox:
    """Room for messages that a socket receives.

    Args:
        rows: how many one call takes at most.
        stride: bytes of the longest message; what is longer is cut off.
        offset: where in its row a message is put, so that a header can be put before it.
        senders: keep who sent each message, for sockets that hear many.

    Attributes:
        data: shape (rows, stride), uint8.
        senders: shape (rows,) of ``ADDRESS``, or (0,) where they are not kept.
    """

    def __init__(
        self,
        rows: int = _AT_ONCE,
        stride: int = 2048,
        offset: int = 0,
        *,
        senders: bool = False,
    ) -> None:
        self.data: NDArray[np.uint8] = np.zeros((rows, stride), np.uint8)
        self._vectors = np.zeros(rows, _VECTOR)
        starts = self.data.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(stride)
        self._vectors["base"] = starts + np.uint64(offset)
        self._vectors["length"] = stride - offset
        self._messages = np.zeros(rows, _MESSAGE)
        self._messages["vector"] = _addresses(self._vectors)
        self._messages["vectors"] = 1
        self.senders = np.zeros(rows if senders else 0, ADDRESS)
        if senders:
            self._messages["name"] = _addresses(self.senders)
            self._messages["name_length"] = ADDRESS.itemsize

    def receive(self, sock: socket.socket, row: int = 0, most: int = _AT_ONCE) -> NDArray[np.int32]:
        """Take what has arrived at ``sock``, ``most`` messages from ``row`` on, without waiting.

        Returns:
            the lengths of the messages, bytes, shape (k,); k may be 0.

        Raises:
            NetworkError: the socket's interface is gone.
        """
        room = min(len(self.data) - row, most, _AT_ONCE)
        if room <= 0:
            return np.empty(0, np.int32)
        at = self._messages.ctypes.data + row * _MESSAGE.itemsize
        while True:
            count = _recvmmsg(sock.fileno(), at, room, socket.MSG_DONTWAIT, None)
            if count >= 0:
                lengths = self._messages["length"][row : row + count]
                return lengths.astype(np.int32)
            number = ctypes.get_errno()
            if number in _FULL:
                return np.empty(0, np.int32)
            if number not in _WORTH_A_RETRY:
                raise _failed("receiving", number)


class Outbox:
    """Sends rows of batches.

    Attributes:
        dropped: packets that the interface's queue had no room for; they are lost, as in a switch.

    Args:
        forgiving: what cannot be sent, to an address that is not there, say, is lost as well.
    """

    def __init__(self, *, forgiving: bool = False) -> None:
        self.dropped = 0
        self._forgiving = forgiving
        self._vectors = np.zeros(_AT_ONCE, _VECTOR)
        self._messages = np.zeros(_AT_ONCE, _MESSAGE)
        self._messages["vector"] = _addresses(self._vectors)
        self._messages["vectors"] = 1

    def send(
        self,
        sock: socket.socket,
        packets: PacketBatch,
        offset: int = 0,
        rows: NDArray[np.int64] | None = None,
        receivers: NDArray[np.void] | None = None,
    ) -> None:
        """Send packets, without their first ``offset`` bytes.

        Args:
            sock: where to.
            packets: among which are those to send.
            offset: of the first byte that is sent.
            rows: which ones, in that order, shape (k,); by default all.
            receivers: where to send packets of each port, shape (ports,) of ``ADDRESS``; by default
                where the socket is connected to.

        Raises:
            NetworkError: the socket's interface is gone.
            StalledError: the socket took nothing for some seconds.
        """
        if packets.data.strides[1:] != (1,):
            packets = PacketBatch(np.ascontiguousarray(packets.data), packets.length, packets.port)
        if rows is None:
            rows = np.arange(len(packets))
        first = np.uint64(packets.data.ctypes.data + offset)
        stride = np.uint64(packets.data.strides[0])
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            vectors = self._vectors[: len(some)]
            vectors["base"] = some.astype(np.uint64) * stride + first
            vectors["length"] = packets.length[some] - offset
            if receivers is not None:
                messages = self._messages[: len(some)]
                messages["name"] = _addresses(receivers)[packets.port[some]]
                messages["name_length"] = ADDRESS.itemsize
            self._send(sock, len(some))

    def _send(self, sock: socket.socket, count: int) -> None:
        done = 0
        end = 0.0
        while done < count:
            at = self._messages.ctypes.data + done * _MESSAGE.itemsize
            sent = _sendmmsg(sock.fileno(), at, count - done, socket.MSG_DONTWAIT)
            if sent > 0:
                done += sent
                continue
            number = ctypes.get_errno()
            if number == errno.ENOBUFS or (self._forgiving and number not in _WORTH_WAITING):
                self.dropped += 1
                done += 1
            elif number in _FULL:
                end = end or time.monotonic() + _SEND_SECONDS
                if time.monotonic() >= end:
                    raise StalledError(
                        f"a socket took no packet for {_SEND_SECONDS:g} s; its interface is down "
                        "or its link is slower than what was sent."
                    )
                select.select([], [sock], [], 0.1)
            elif number not in _WORTH_A_RETRY:
                raise _failed("sending", number)


def _addresses(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Where each record lies in memory."""
    steps = np.arange(len(records), dtype=np.uint64) * np.uint64(records.itemsize)
    return steps + np.uint64(records.ctypes.data)


def _failed(what: str, number: int) -> NetworkError:
    hint = "; its interface went down or away" if number in _GONE else ""
    return NetworkError(f"{what} packets failed: {os.strerror(number)}{hint}.")
