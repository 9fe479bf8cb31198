"""Raw Ethernet frames of an interface (AF_PACKET): for switches, and for hosts without UDP.

Sources: packet(7), netdevice(7).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time

import numpy as np

from innet.core.errors import NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import Inbox, Outbox, readable, widen_buffers
from innet.wire import ETHERTYPE

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_PACKET_MR_PROMISC = 1
_MEMBERSHIP = struct.Struct("=iH10x")  # struct packet_mreq
_STATISTICS = struct.Struct("=II")  # struct tpacket_stats
_SIOCGIFMTU = 0x8921
_SHORTEST_ROOM = 2048
_ETHERNET_AND_TAGS = 14 + 2 * 4  # bytes of the header and of two VLAN tags, which no MTU counts
_ROOM = 2 << 20  # bytes for what is taken at once
_LONGEST_WAIT = 1.0


def open_interface(interface: str, ethertype: int | None = None) -> socket.socket:
    """A packet socket that receives what arrives at ``interface``, and not what leaves it.

    Args:
        interface: its name in this network namespace.
        ethertype: take frames of this EtherType only; by default all.

    Raises:
        NetworkError: no such interface, or not root.
    """
    try:
        # Protocol 0: nothing arrives, of any interface, before the socket is bound.
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise NetworkError(
            f"raw frames of {interface} need root (CAP_NET_RAW); run it with sudo."
        ) from None
    try:
        widen_buffers(sock)
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        protocol = _ETH_P_ALL if ethertype is None else ethertype
        sock.bind((interface, protocol))
        if ethertype is None:  # a switch takes what is for others
            request = _MEMBERSHIP.pack(socket.if_nametoindex(interface), _PACKET_MR_PROMISC)
            sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, request)
    except OSError as error:
        sock.close()
        raise NetworkError(
            f"cannot open the interface {interface}: {error.strerror}. `ip link` lists those "
            "that exist."
        ) from None
    return sock


def room_for_frames(*sockets: socket.socket) -> int:
    """Bytes of the longest frame that arrives at packet sockets, by their interfaces' MTU now."""
    longest = 0
    for sock in sockets:
        request = struct.pack("16si", sock.getsockname()[0].encode(), 0).ljust(40)
        answer = fcntl.ioctl(sock, _SIOCGIFMTU, request)
        longest = max(longest, *struct.unpack_from("i", answer, 16))
    return max(_SHORTEST_ROOM, -(-(longest + _ETHERNET_AND_TAGS) // 64) * 64)


def lost_on_arrival(sock: socket.socket) -> int:
    """Frames that a packet socket had no room for, since the last call."""
    statistics = sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    return int(_STATISTICS.unpack(statistics)[1])


class RawTransport:
    """Carries the frames of one host as they are, by an interface; framing "raw".

    Args:
        interface: the host's, in this network namespace.
        port: what this host's port at the switch is called in ``PacketBatch.port``.

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
