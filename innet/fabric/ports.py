"""The ports of a switch that is a process: interfaces whose frames it gets in batches."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

import numpy as np

from innet.errors import InputError, NetworkError
from innet.fabric.ethernet import lost_on_arrival, open_interface
from innet.fabric.messages import Inbox, Outbox
from innet.packets import PacketBatch

_ROWS = 8192  # frames of one batch, of all ports
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
        self._inbox = Inbox(_ROWS)
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
        except BaseException:
            self.close()
            raise

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
        row = 0
        ports, counts, lengths = [], [], []
        for number, _ in self._epoll.poll(timeout):
            port = self._ports[number]
            try:
                length = self._inbox.receive(self._sockets[port], row, _PER_PORT)
            except NetworkError as error:
                raise self._of(port, error) from None
            if len(length):
                ports.append(port)
                counts.append(len(length))
                lengths.append(length)
                row += len(length)
        if not row:
            return PacketBatch.empty()
        length = np.concatenate(lengths)
        port_of = np.repeat(np.array(ports, np.int32), counts)
        return PacketBatch(self._inbox.data[:row, : int(length.max())], length, port_of)

    def send(self, packets: PacketBatch) -> None:
        """Send each packet by the interface of its port, in order.

        Raises:
            NetworkError: an interface went away; says which.
        """
        if not len(packets):
            return
        order = np.argsort(packets.port.astype(np.uint16), kind="stable")
        ports, begins = np.unique(packets.port[order], return_index=True)
        ends = np.append(begins[1:], len(order))
        for port, begin, end in zip(ports.tolist(), begins, ends, strict=True):
            if port not in self._sockets:
                self.undelivered += int(end - begin)
                continue
            try:
                self._outbox.send(self._sockets[port], packets, rows=order[begin:end])
            except NetworkError as error:
                raise self._of(port, error) from None

    def _of(self, port: int, error: NetworkError) -> NetworkError:
        return NetworkError(f"port {port}, interface {self.interfaces[port]}: {error}")
