"""Raw Ethernet between a host and a switch with interfaces: the host's end.

The switch's is ``innet.transport.raw.Ports``, which knows nothing of innet's packets.
"""

from __future__ import annotations

import time

import numpy as np

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.transport.messages import Inbox, Outbox, readable
from innet.transport.packet_socket import open_interface
from innet.transport.raw import room_for_frames
from innet.transport.transports import TransportProvider
from innet.wire import ETHERTYPE, Endpoint, PacketLayout

_ROOM = 2 << 20  # bytes received at once
_LONGEST_WAIT = 1.0


class RawTransport:
    """Carries the frames of one host unchanged over an interface; framing "raw".

    Args:
        interface: the host's, in this network namespace.
        port: the number of this host's switch port in ``PacketBatch.port``.

    Raises:
        NetworkError: no such interface, or not root.
    """

    name = "raw Ethernet"

    def __init__(self, interface: str, port: int = 0) -> None:
        self._port = port
        self._outbox = Outbox()
        self._socket = open_interface(interface, ETHERTYPE)
        stride = room_for_frames(self._socket)
        self._inbox = Inbox(_ROOM // stride, stride)

    def close(self) -> None:
        self._socket.close()

    def now(self) -> float:
        """The transport's clock, seconds."""
        return time.monotonic()

    def send(self, packets: PacketBatch, now: float) -> None:  # noqa: ARG002 - the kernel's time
        """Hand packets to the kernel."""
        self._outbox.send(self._socket, packets)

    def receive(self, now: float) -> PacketBatch:  # noqa: ARG002 - the kernel's time
        """What has arrived, valid until the next call."""
        length = self._inbox.receive(self._socket)
        count = len(length)
        return PacketBatch(self._inbox.data[:count], length, np.full(count, self._port, np.int32))

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second."""
        readable(min(until - now, _LONGEST_WAIT), self._socket.fileno())
        return max(now, self.now())


class RawProvider(TransportProvider):
    """Raw Ethernet between a host and a switch with interfaces."""

    in_services = False

    def connect(
        self,
        source: Endpoint,  # noqa: ARG002 - whatever addresses the frames have
        switch: Endpoint,  # noqa: ARG002
        layout: PacketLayout,  # noqa: ARG002
        interface: str | None,
    ) -> RawTransport:
        """See ``TransportProvider``."""
        if interface is None:
            raise InputError("raw Ethernet needs an interface; name it, such as eth0.")
        return RawTransport(interface)
