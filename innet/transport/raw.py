"""Raw Ethernet frames of interfaces (AF_PACKET): the ports of a switch.

Sources: packet(7), netdevice(7).
"""

from __future__ import annotations

import errno
import fcntl
import select
import socket
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, NetworkError, StalledError
from innet.core.packets import PacketBatch
from innet.transport.messages import Inbox, Outbox, failed
from innet.transport.packet_socket import open_interface
from innet.transport.system_calls import FrameBuffers, Transmission, by_port, receive_of_ports

_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_STATISTICS = struct.Struct("=II")  # struct tpacket_stats
_SIOCGIFMTU = 0x8921
_SIOCGIFFLAGS = 0x8913
_UP_AND_RUNNING = 0x41
_GONE = (errno.ENETDOWN, errno.ENODEV, errno.ENXIO)
_SHORTEST_ROOM = 2048
_ETHERNET_AND_TAGS = 14 + 2 * 4  # bytes of the header and of two VLAN tags, which the MTU excludes
_PORTS_ROOM = 16 << 20  # bytes for the frames of one batch, of all ports
_PER_PORT = 1024
_NO_NAMES = np.zeros((0, 16), np.uint8)


def room_for_frames(*sockets: socket.socket) -> int:
    """Bytes of the longest frame that packet sockets receive, by their interfaces' present MTU."""
    longest = 0
    for sock in sockets:
        request = struct.pack("16si", sock.getsockname()[0].encode(), 0).ljust(40)
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFMTU, request)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            continue  # its interface was deleted, and nothing comes from it
        longest = max(longest, *struct.unpack_from("i", answer, 16))
    return max(_SHORTEST_ROOM, -(-(longest + _ETHERNET_AND_TAGS) // 64) * 64)


def is_up(interface: str) -> bool:
    """Whether an interface of this namespace exists, is up, and has a carrier."""
    request = struct.pack("16sH", interface.encode()[:15], 0).ljust(40)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, request)
        except OSError:
            return False
    flags = int(struct.unpack_from("H", answer, 16)[0])
    return flags & _UP_AND_RUNNING == _UP_AND_RUNNING


def _is_same(sock: socket.socket, interface: str) -> bool:
    """Whether a packet socket is bound to the interface that has this name now."""
    try:
        return bool(sock.getsockname()[0] == interface)
    except OSError:
        return False


def _lost_at_the_end(sock: socket.socket) -> int:
    try:
        return lost_on_arrival(sock)
    except OSError:
        return 0


def lost_on_arrival(sock: socket.socket) -> int:
    """Frames lost since the last call because a packet socket's buffer was full."""
    statistics = sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    return int(_STATISTICS.unpack(statistics)[1])


class CompiledInterfaces(NamedTuple):
    """What compiled code needs of ``Ports``.

    Attributes:
        poll: a descriptor that is readable when a packet has arrived.
        sockets: (k, 2): descriptors and their ports, by place.
        receiving: (j, 2): those of them that are received from.
        places: (m,) int64: the place of each port, -1 where there is none.
        most: most packets received from a socket at once.
        frames: buffers for what arrives.
        port: (rows,) int32, filled in.
        names: no address.
        transmission: buffers for what leaves.
    """

    poll: int
    sockets: NDArray[np.int64]
    receiving: NDArray[np.int64]
    places: NDArray[np.int64]
    most: int
    frames: FrameBuffers
    port: NDArray[np.int32]
    names: NDArray[np.uint8]
    transmission: Transmission


class _PortsOfThread:
    """What one of several threads receives into, and sends by.

    Args:
        rows: most packets that it receives at once.
        stride: bytes of each.
    """

    def __init__(self, rows: int, stride: int) -> None:
        inbox, self._outbox = Inbox(rows, stride), Outbox()
        self.memory = PacketBatch(inbox.data, *np.zeros((2, rows), np.int32))
        self._frames = inbox.frames(self.memory.length)
        self._inbox = inbox
        self._epoll: select.epoll | None = None

    def open(self, sockets: NDArray[np.int64]) -> None:
        """Receive from these sockets, of which each has its port behind it."""
        self._sockets, self._epoll = sockets.copy(), select.epoll()
        for descriptor in sockets[:, 0].tolist():
            self._epoll.register(descriptor, select.EPOLLIN)

    def compiled(self, whole: CompiledInterfaces) -> CompiledInterfaces:
        assert self._epoll is not None
        return whole._replace(
            poll=self._epoll.fileno(),
            receiving=self._sockets,
            frames=self._frames,
            port=self.memory.port,
            transmission=self._outbox.transmission,
        )

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None


class Ports:
    """Interfaces by switch port.

    Args:
        interfaces: port -> the interface's name in this network namespace.
        on_change: takes port, interface and whether it is up, when that changes. Interfaces may
            then go and come back, see ``poll_interfaces``; without it, one that goes is an error.
        opened: by port, those that ``open_interface`` opened before; closed with the others.

    Attributes:
        interfaces: by port; change them by ``add`` and ``remove``.
        undelivered: packets that were sent to ports that do not exist or are down.
        woken: whether a descriptor of ``watch`` was readable at the last ``receive``.

    Raises:
        InputError: no interface, and no ``on_change``.
        NetworkError: no such interface, or not root.
    """

    def __init__(
        self,
        interfaces: Mapping[int, str],
        on_change: Callable[[int, str, bool], None] | None = None,
        opened: Mapping[int, socket.socket] | None = None,
    ) -> None:
        if not interfaces and on_change is None:
            raise InputError("a switch needs at least one interface.")
        self.undelivered = 0
        self.woken = False
        self.interfaces: dict[int, str] = {}
        self._on_change = on_change
        self._outbox = Outbox(tolerant=on_change is not None)
        self._lost = 0
        self._sockets: dict[int, socket.socket] = {}
        self._up: dict[int, bool] = {}
        self._epoll = select.epoll()
        self._ports: dict[int, int] = {}  # by file descriptor
        self._stride = 0
        self._compiled: CompiledInterfaces | None = None
        self._parts: list[_PortsOfThread] = []
        self._divided: CompiledInterfaces | None = None  # which the parts are of
        try:
            for port, interface in interfaces.items():
                self.interfaces[port] = interface
                self._open(port, (opened or {}).get(port))
                self._up[port] = is_up(interface)
            self._changed()
        except BaseException:
            self.close()
            raise

    def _open(self, port: int, opened: socket.socket | None = None) -> None:
        """Receive what passes a port's interface."""
        sock = opened or open_interface(self.interfaces[port])
        self._compiled = None
        self._sockets[port] = sock
        self._ports[sock.fileno()] = port
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _close(self, port: int) -> None:
        sock = self._sockets.pop(port, None)
        self._compiled = None
        if sock is not None:
            self._lost += _lost_at_the_end(sock)
            del self._ports[sock.fileno()]
            self._epoll.unregister(sock.fileno())
            sock.close()

    def _changed(self) -> None:
        """Make room for the frames of the present interfaces, and find their places."""
        self._compiled = None
        self._places = np.full(max(self._sockets, default=0) + 1, -1, np.int64)
        self._places[list(self._sockets)] = np.arange(len(self._sockets))
        stride = room_for_frames(*self._sockets.values())
        if stride != self._stride:
            self._stride = stride
            self._inbox = Inbox(_PORTS_ROOM // stride, stride)
            self._length = np.zeros(len(self._inbox.data), np.int32)
            self._frames = self._inbox.frames(self._length)
            self._port = np.zeros(len(self._inbox.data), np.int32)

    def add(self, port: int, interface: str) -> None:
        """Give a port an interface.

        Raises:
            InputError: the port has one.
            NetworkError: no such interface, or not root.
        """
        if port in self.interfaces:
            raise InputError(f"port {port} has the interface {self.interfaces[port]} already.")
        self.interfaces[port] = interface
        try:
            self._open(port)
        except BaseException:
            del self.interfaces[port]
            raise
        self._up[port] = is_up(interface)
        self._changed()

    def remove(self, port: int) -> None:
        """Take a port's interface away; InputError where it has none."""
        if port not in self.interfaces:
            raise InputError(f"there is no port {port}.")
        self._close(port)
        del self.interfaces[port]
        self._up.pop(port, None)
        self._changed()

    def is_up(self, port: int) -> bool:
        """Whether a port's interface is there and up, as far as is known."""
        return self._up.get(port, False)

    def poll_interfaces(self) -> None:
        """Find out which interfaces went down, and which are up again; to be called now and then.

        One that was deleted and made again is another for the kernel, so it is opened again.
        """
        for port, interface in self.interfaces.items():
            there = is_up(interface)
            sock = self._sockets.get(port)
            if sock is not None and not _is_same(sock, interface):
                self._close(port)
                sock = None
            if sock is None and there:
                try:
                    self._open(port)
                except NetworkError:  # it went again
                    there = False
            self._tell(port, there)
        self._changed()  # an MTU may be another, too

    def _tell(self, port: int, there: bool) -> None:
        if self._up.get(port) != there:
            self._up[port] = there
            if self._on_change is not None:
                self._on_change(port, self.interfaces[port], there)

    def _went(self, port: int) -> None:
        """Its interface went down while it was used; its socket works again when it is up."""
        self._tell(port, False)

    def fileno(self) -> int:
        """For select and similar: readable when a frame has arrived at any port."""
        return self._epoll.fileno()

    @property
    def packets(self) -> PacketBatch:
        """The memory of what arrives, valid until the interfaces change."""
        return PacketBatch(self._inbox.data, self._length, self._port)

    def rows(self, first: int, end: int) -> PacketBatch:
        """Some of the packets that arrived last."""
        rows = slice(first, end)
        return PacketBatch(self._inbox.data[rows], self._length[rows], self._port[rows])

    def compiled(self) -> CompiledInterfaces:
        """For compiled code, valid until the interfaces change."""
        if self._compiled is None:
            listed = [(sock.fileno(), port) for port, sock in self._sockets.items()]
            sockets = np.array(listed, np.int64).reshape(-1, 2)
            self._compiled = CompiledInterfaces(
                self._epoll.fileno(),
                sockets,
                sockets,
                self._places,
                _PER_PORT,
                self._frames,
                self._port,
                _NO_NAMES,
                self._outbox.transmission,
            )
        return self._compiled

    def divided(self, threads: int) -> list[tuple[CompiledInterfaces, PacketBatch]]:
        """For compiled code on several threads: each receives from some of the interfaces, and
        sends to all; and the memory of what each receives. Valid until the interfaces change.
        """
        whole = self.compiled()
        if self._divided is not whole or len(self._parts) != threads:
            self._divided = whole
            shape = self._inbox.data.shape
            for each in self._parts:
                each.close()
            kept = [x for x in self._parts if x.memory.data.shape == shape][:threads]
            self._parts = kept + [_PortsOfThread(*shape) for _ in range(threads - len(kept))]
            for number, each in enumerate(self._parts):
                each.open(whole.sockets[number::threads])
        return [(each.compiled(whole), each.memory) for each in self._parts]

    def lose(self, count: int) -> None:
        """Count packets for which an interface's queue had no room."""
        self._outbox.dropped += count

    def fail(self, place: int, number: int) -> None:
        """The socket of a place had an error while it received.

        Raises:
            NetworkError: one that has not to do with an interface that went.
        """
        port = list(self._sockets)[place]
        if self._on_change is None or number not in _GONE:
            raise self._of(port, failed("receiving", number))
        self._went(port)

    def watch(self, descriptor: int) -> None:
        """End the wait of ``receive`` also when this descriptor is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def close(self) -> None:
        for part in self._parts:
            part.close()
        for each in self._sockets.values():
            each.close()
        self._epoll.close()

    @property
    def dropped(self) -> int:
        """Packets lost because an interface's queue was full, or it could not send them."""
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
        ports = self._ports
        events = [number for number, _ in self._epoll.poll(timeout)]
        found = [(number, ports[number]) for number in events if number in ports]
        self.woken = len(found) < len(events)
        ready = np.array(found, np.int64).reshape(-1, 2)
        rows, number, struck = receive_of_ports(ready, _PER_PORT, self._frames, self._port)
        if number:
            self.fail(list(self._sockets).index(int(ready[struck, 1])), number)
        # Whole rows without copying; the switch goes by their lengths.
        return PacketBatch(self._inbox.data[:rows], self._length[:rows], self._port[:rows])

    def send(self, packets: PacketBatch, done: int = 0) -> None:
        """Send each packet by the interface of its port, in order.

        Args:
            packets: what is sent.
            done: how many of them, in the order of ``by_port``, were sent before.

        Raises:
            NetworkError: an interface went away; says which.
        """
        if not len(packets):
            return
        rows, positions, unknown = by_port(packets.port, self._places)
        self.undelivered += int(unknown)
        begin = 0
        for port, sock in self._sockets.items():
            end = begin + int(np.count_nonzero(positions == self._places[port]))
            begin = max(begin, min(done, end))
            if begin == end:
                continue
            try:
                self._outbox.send(sock, packets, rows=rows[begin:end])
            except (NetworkError, StalledError) as error:
                if self._on_change is None:
                    if isinstance(error, StalledError):
                        raise
                    raise self._of(port, error) from None
                self.undelivered += end - begin
                if not isinstance(error, StalledError):  # which is a slow link
                    self._went(port)
            begin = end

    def _of(self, port: int, error: NetworkError) -> NetworkError:
        return NetworkError(f"port {port}, interface {self.interfaces[port]}: {error}")
