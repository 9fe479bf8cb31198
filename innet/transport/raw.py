"""Raw Ethernet frames of an interface (AF_PACKET): for switches, and for hosts without UDP.

Sources: packet(7), netdevice(7).
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import time
from collections.abc import Mapping

import numpy as np

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import Inbox, Outbox, failed, readable, widen_buffers
from innet.transport.system_calls import by_port, receive_of_ports
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
_ETHERNET_AND_TAGS = 14 + 2 * 4  # bytes of the header and of two VLAN tags, which the MTU excludes
_ROOM = 2 << 20  # bytes received at once
_LONGEST_WAIT = 1.0
_PORTS_ROOM = 16 << 20  # bytes for the frames of one batch, of all ports
_PER_PORT = 1024


def open_interface(interface: str, ethertype: int | None = None) -> socket.socket:
    """A packet socket that receives what arrives at ``interface``, but not what leaves it.

    Args:
        interface: its name in this network namespace.
        ethertype: receive frames of this EtherType only; by default all.

    Raises:
        NetworkError: no such interface, or not root.
    """
    try:
        # Protocol 0: the socket receives nothing until it is bound.
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
        if ethertype is None:  # a switch also receives frames for other addresses
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
    """Bytes of the longest frame that packet sockets receive, by their interfaces' present MTU."""
    longest = 0
    for sock in sockets:
        request = struct.pack("16si", sock.getsockname()[0].encode(), 0).ljust(40)
        answer = fcntl.ioctl(sock, _SIOCGIFMTU, request)
        longest = max(longest, *struct.unpack_from("i", answer, 16))
    return max(_SHORTEST_ROOM, -(-(longest + _ETHERNET_AND_TAGS) // 64) * 64)


def lost_on_arrival(sock: socket.socket) -> int:
    """Frames lost since the last call because a packet socket's buffer was full."""
    statistics = sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    return int(_STATISTICS.unpack(statistics)[1])


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


class Ports:
    """Interfaces by switch port.

    Args:
        interfaces: port -> the interface's name in this network namespace.

    Attributes:
        undelivered: packets that were sent to ports that do not exist.

    Raises:
        InputError: no interface.
        NetworkError: no such interface, or not root.
    """

    def __init__(self, interfaces: Mapping[int, str]) -> None:
        if not interfaces:
            raise InputError("a switch needs at least one interface.")
        self.undelivered = 0
        self.interfaces = dict(interfaces)
        self._places = np.full(max(interfaces) + 1, -1, np.int64)
        self._places[list(interfaces)] = np.arange(len(interfaces))
        self._outbox = Outbox()
        self._lost = 0
        self._sockets: dict[int, socket.socket] = {}
        self._epoll = select.epoll()
        self._ports: dict[int, int] = {}  # by file descriptor
        try:
            for port, interface in interfaces.items():
                self._sockets[port] = open_interface(interface)
                number = self._sockets[port].fileno()
                self._ports[number] = port
                self._epoll.register(number, select.EPOLLIN)
            stride = room_for_frames(*self._sockets.values())
            self._inbox = Inbox(_PORTS_ROOM // stride, stride)
        except BaseException:
            self.close()
            raise
        self._length = np.zeros(len(self._inbox.data), np.int32)
        self._port = np.zeros(len(self._inbox.data), np.int32)

    def fileno(self) -> int:
        """For select and similar: readable when a frame has arrived at any port."""
        return self._epoll.fileno()

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
        self._epoll.close()

    @property
    def dropped(self) -> int:
        """Packets lost because an interface's queue was full."""
        return self._outbox.dropped

    def lost(self) -> int:
        """Frames lost so far because a receive buffer was full."""
        self._lost += sum(lost_on_arrival(each) for each in self._sockets.values())
        return self._lost

    def receive(self, timeout: float) -> PacketBatch:
        """Frames that have arrived or arrive within ``timeout`` seconds; valid until the next call.

        Raises:
            NetworkError: an interface is gone; names it.
        """
        ready = np.array(
            [(number, self._ports[number]) for number, _ in self._epoll.poll(timeout)], np.int64
        ).reshape(-1, 2)
        rows, number, struck = receive_of_ports(
            ready, _PER_PORT, self._inbox.messages, self._length, self._port
        )
        if number:
            raise self._of(int(ready[struck, 1]), failed("receiving", number))
        # Whole rows without copying; the switch goes by their lengths.
        return PacketBatch(self._inbox.data[:rows], self._length[:rows], self._port[:rows])

    def send(self, packets: PacketBatch) -> None:
        """Send each packet by the interface of its port, in order.

        Raises:
            NetworkError: an interface went away; says which.
        """
        if not len(packets):
            return
        rows, positions, unknown = by_port(packets.port, self._places)
        self.undelivered += int(unknown)
        begin = 0
        for port in self.interfaces:
            end = begin + int(np.count_nonzero(positions == self._places[port]))
            try:
                self._outbox.send(self._sockets[port], packets, rows=rows[begin:end])
            except NetworkError as error:
                raise self._of(port, error) from None
            begin = end

    def _of(self, port: int, error: NetworkError) -> NetworkError:
        return NetworkError(f"port {port}, interface {self.interfaces[port]}: {error}")
