"""A transport over a UDP socket: one worker, in a process of its own, on a network of the
kernel's.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import (
    Outbox,
    SegmentInbox,
    allow_fragmentation,
    enable_gro,
    readable,
    widen_buffers,
)
from innet.transport.system_calls import MOST_AT_ONCE, Arrival, Reception
from innet.wire import (
    ETHERNET_HEADER,
    HEADER,
    IPV4_HEADER,
    UDP_HEADER,
    Endpoint,
    Layout,
    pack,
)

_HEADERS = ETHERNET_HEADER.itemsize + IPV4_HEADER.itemsize + UDP_HEADER.itemsize
_TOS = ETHERNET_HEADER.itemsize + 1
_UDP_CHECKSUM = slice(_HEADERS - 2, _HEADERS)
_SO_NO_CHECK = 11  # of Linux: send UDP without a checksum
_LONGEST_WAIT = 1.0
_BATCH = 1 << 18  # bytes taken at once: they stay in a processor's cache until they are read


class Link(NamedTuple):
    """A UDP transport's socket, for compiled code.

    Attributes:
        descriptor: of the socket.
        arrival, reception: where its packets go, see ``innet.transport.system_calls``.
        outbox: with room for what is sent.
    """

    descriptor: int
    arrival: Arrival
    reception: Reception
    outbox: Outbox


class Watch(NamedTuple):
    """What ends a wait for packets.

    Attributes:
        descriptor: something is to be heard where it can be read; -1 for none.
        until: the time.
        lasting: packets that come do not change it.
    """

    descriptor: int
    until: float
    lasting: bool


class UdpTransport:
    """Carries the frames of one host as UDP datagrams.

    The kernel writes and checks Ethernet, IPv4 and UDP headers. Of a frame that is sent only what
    follows them travels; to what arrives they are put back, as they were between the addresses
    that the socket is connected to. All frames of a call are sent with the first one's type of
    service (and ECN), and without a UDP checksum where it has none.

    Between sockets of one machine, up to 64 frames pass the kernel as one datagram (``segments``),
    which costs a small part of the time. Such a datagram has a UDP checksum; it is not computed
    where nothing leaves the machine. A receiver that did not ask for it sees single datagrams.

    Args:
        source: address and port to send from; an address of this machine or namespace.
        switch: where to send; datagrams of others are not received.
        layout: of the frames; its framing must be "udp".
        port: what this host's port at the switch is called in ``PacketBatch.port``.
        sock: a socket that is bound and connected already, to whatever addresses; ``source`` and
            ``switch`` are then those that frames show. It is closed with this.
        segments: many frames as one datagram; by default where the switch has a loopback address.

    Raises:
        InputError: another framing.
        NetworkError: the address is not this machine's, or the port is in use.
    """

    name = "udp"

    def __init__(
        self,
        source: Endpoint,
        switch: Endpoint,
        layout: Layout,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        segments: bool | None = None,
    ) -> None:
        if layout.framing != "udp":
            raise InputError(f"a UDP socket carries no frames of framing {layout.framing!r}.")
        self._port = port
        rows = max(1, min(MOST_AT_ONCE, _BATCH // layout.frame_size))
        self._inbox = SegmentInbox(layout.frame_size - _HEADERS, _HEADERS, rows)
        self._inbox.data[:, :_HEADERS] = _headers(switch, source, layout)
        self._ports = np.full(len(self._inbox.data), port, np.int32)
        self._options = (True, 0)  # as a new socket has them: UDP checksum, type of service
        self._followed: NDArray[np.uint8] | None = None  # the head that the options are of
        self._socket = _connected(source, switch) if sock is None else sock
        if segments is None:
            segments = ipaddress.IPv4Address(self._socket.getpeername()[0]).is_loopback
        self._outbox = Outbox(segments and enable_gro(self._socket))

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Readable when a datagram has arrived: for select and its like."""
        return self._socket.fileno()

    def now(self) -> float:
        """The transport's clock, seconds."""
        return time.monotonic()

    def link(self, head: NDArray[np.uint8]) -> Link:
        """The socket as compiled code uses it, until ``close``, for frames that all begin with
        ``head``; see ``innet.transport.socket_loop``.
        """
        if head is not self._followed:
            self._follow(head)
            self._followed = head
        inbox = self._inbox
        return Link(self._socket.fileno(), inbox.arrival, inbox.reception, self._outbox)

    def heard(self) -> None:
        """Packets have come over the link."""

    def watch(self, now: float) -> Watch:
        """What to wait for at the link besides packets."""
        return Watch(-1, now + _LONGEST_WAIT, True)

    def send(self, packets: PacketBatch, now: float) -> None:  # noqa: ARG002 - the kernel's time
        """Hand packets to the kernel."""
        if len(packets):
            self._follow(packets.data[0])
            # Of a frame that was cut within its headers (faults do it) no datagram is left.
            short = packets.length < _HEADERS
            rows = np.flatnonzero(~short) if short.any() else None
            self._outbox.send(self._socket, packets, _HEADERS, rows)

    def _follow(self, frame: NDArray[np.uint8]) -> None:
        """Have the kernel write headers as this frame has them."""
        # The kernel cuts no datagram that has no checksum.
        options = self._outbox.segments or bool(frame[_UDP_CHECKSUM].any()), int(frame[_TOS])
        if options != self._options:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not options[0]))
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options[1])
            self._options = options
            self._followed = None

    def receive(self, now: float) -> PacketBatch:  # noqa: ARG002 - the kernel's time
        """What has arrived, valid until the next call; another length than the layout's stays."""
        count = self._inbox.receive(self._socket)
        length = self._inbox.length[:count] + np.int32(_HEADERS)
        return PacketBatch(self._inbox.data[:count], length, self._ports[:count])

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second."""
        readable(min(until - now, _LONGEST_WAIT), self._socket.fileno())
        return max(now, self.now())


def _connected(source: Endpoint, switch: Endpoint) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        widen_buffers(sock)
        allow_fragmentation(sock)
        sock.bind((source.ip, source.udp_port))
        sock.connect((switch.ip, switch.udp_port))
    except OSError as error:
        sock.close()
        raise NetworkError(
            f"cannot send from {source.ip}, UDP port {source.udp_port}, to {switch.ip}: "
            f"{error.strerror}. The address must be one of this host's, and the port free."
        ) from None
    return sock


def _headers(source: Endpoint, destination: Endpoint, layout: Layout) -> NDArray[np.uint8]:
    """What stands before the innet header of a frame from ``source`` to ``destination``."""
    frame = pack(
        layout,
        source,
        destination,
        np.zeros((1, layout.values), np.int32),
        operation=1, job=0, epoch=0, sequence=0, slot=0, slot_version=0, worker=0,
    )  # fmt: skip
    assert frame.shape[1] == _HEADERS + HEADER.itemsize + 4 * layout.values
    return frame[0, :_HEADERS]
