"""The ports of a switch that is a process: interfaces whose frames it gets in batches."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

import numpy as np

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import Inbox, Outbox, failed
from innet.transport.raw import lost_on_arrival, open_interface, room_for_frames
from innet.transport.system_calls import by_port, receive_of_ports

_ROOM = 16 << 20  # bytes for the frames of one batch, of all ports
_PER_PORT = 1024


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
            self._inbox = Inbox(_ROOM // stride, stride)
        except BaseException:
            self.close()
            raise
        self._length = np.zeros(len(self._inbox.data), np.int32)
        self._port = np.zeros(len(self._inbox.data), np.int32)

    def fileno(self) -> int:
        """Readable when a frame has arrived at any port: for select and its like."""
        return self._epoll.fileno()

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
        self._epoll.close()

    @property
    def dropped(self) -> int:
        """Packets that an interface's queue had no room for."""
        return self._outbox.dropped

    def lost(self) -> int:
        """Frames that arrived faster than they were taken, so far."""
        self._lost += sum(lost_on_arrival(each) for each in self._sockets.values())
        return self._lost

    def receive(self, timeout: float) -> PacketBatch:
        """Frames that have arrived, or arrive within ``timeout`` seconds; valid until the next.

        Raises:
            NetworkError: an interface went away; says which.
        """
        ready = np.array(
            [(number, self._ports[number]) for number, _ in self._epoll.poll(timeout)], np.int64
        ).reshape(-1, 2)
        rows, number, struck = receive_of_ports(
            ready, _PER_PORT, self._inbox.messages, self._length, self._port
        )
        if number:
            raise self._of(int(ready[struck, 1]), failed("receiving", number))
        # Whole rows, which the switch takes as they are; it goes by their lengths.
        return PacketBatch(self._inbox.data[:rows], self._length[:rows], self._port[:rows])

    def send(self, packets: PacketBatch) -> None:
        """Send each packet by the interface of its port, in order.

        Raises:
            NetworkError: an interface went away; says which.
        """
        if not len(packets):
            return
        rows, places, unknown = by_port(packets.port, self._places)
        self.undelivered += int(unknown)
        begin = 0
        for port in self.interfaces:
            end = begin + int(np.count_nonzero(places == self._places[port]))
            try:
                self._outbox.send(self._sockets[port], packets, rows=rows[begin:end])
            except NetworkError as error:
                raise self._of(port, error) from None
            begin = end

    def _of(self, port: int, error: NetworkError) -> NetworkError:
        return NetworkError(f"port {port}, interface {self.interfaces[port]}: {error}")
