"""A fabric over a UDP socket: one worker, in a process of its own, on a network of the kernel's."""

from __future__ import annotations

import select
import socket
import time

import numpy as np

from innet.errors import InputError, NetworkError
from innet.fabric.messages import Inbox, Outbox, widen_buffers
from innet.packets import PacketBatch
from innet.wire import ETHERNET_HEADER, HEADER, IPV4_HEADER, UDP_HEADER, Endpoint, Layout, pack

_HEADERS = ETHERNET_HEADER.itemsize + IPV4_HEADER.itemsize + UDP_HEADER.itemsize
_TOS = ETHERNET_HEADER.itemsize + 1
_UDP_CHECKSUM = slice(_HEADERS - 2, _HEADERS)
_SO_NO_CHECK = 11  # of Linux: send UDP without a checksum
_LONGEST_WAIT = 1.0


class UdpFabric:
    """Carries the frames of one host as UDP datagrams.

    The kernel writes and checks Ethernet, IPv4 and UDP headers. Of a frame that is sent only what
    follows them travels; to what arrives they are put back, as they were between the addresses
    that the socket is connected to. All frames of a call are sent with the first one's type of
    service (and ECN), and without a UDP checksum where it has none.

    Args:
        source: address and port to send from; an address of this machine or namespace.
        switch: where to send; datagrams of others are not received.
        layout: of the frames; its framing must be "udp".
        port: what this host's port at the switch is called in ``PacketBatch.port``.
        sock: a socket that is bound and connected already, to whatever addresses; ``source`` and
            ``switch`` are then those that frames show. It is closed with this.

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
        sock: socket.socket | None = None,
    ) -> None:
        if layout.framing != "udp":
            raise InputError(f"a UDP socket carries no frames of framing {layout.framing!r}.")
        self._port = port
        self._inbox = Inbox(offset=_HEADERS)
        self._inbox.data[:, :_HEADERS] = _headers(switch, source, layout)
        self._size = layout.frame_size
        self._outbox = Outbox()
        self._options = (True, 0)  # as a new socket has them: UDP checksum, type of service
        if sock is not None:
            self._socket = sock
            return
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            widen_buffers(self._socket)
            self._socket.bind((source.ip, source.udp_port))
            self._socket.connect((switch.ip, switch.udp_port))
        except OSError as error:
            self._socket.close()
            raise NetworkError(
                f"cannot send from {source.ip}, UDP port {source.udp_port}, to {switch.ip}: "
                f"{error.strerror}. The address must be one of this host's, and the port free."
            ) from None

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Readable when a datagram has arrived: for select and its like."""
        return self._socket.fileno()

    def now(self) -> float:
        """The fabric's clock, seconds."""
        return time.monotonic()

    def send(self, packets: PacketBatch, now: float) -> None:  # noqa: ARG002 - the kernel's time
        """Hand packets to the kernel."""
        if not len(packets):
            return
        first = packets.data[0]
        options = bool(first[_UDP_CHECKSUM].any()), int(first[_TOS])
        if options != self._options:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not options[0]))
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options[1])
            self._options = options
        self._outbox.send(self._socket, packets, _HEADERS)

    def receive(self, now: float) -> PacketBatch:  # noqa: ARG002 - the kernel's time
        """What has arrived; a datagram of another length than the layout's has no headers."""
        length = self._inbox.receive(self._socket) + np.int32(_HEADERS)
        count = len(length)
        data = self._inbox.data[:count, : max(self._size, int(length.max(initial=0)))].copy()
        return PacketBatch(data, length, np.full(count, self._port, np.int32))

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second."""
        select.select([self._socket], [], [], min(max(0.0, until - now), _LONGEST_WAIT))
        return max(now, self.now())


def _headers(source: Endpoint, destination: Endpoint, layout: Layout) -> np.ndarray:
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
