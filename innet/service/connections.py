"""Clients of a service over TCP: lines in, lines out, and nobody waits for anybody."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from innet.service.protocol import LONGEST_LINE, Message, encode, greeting

_MOST_CLIENTS = 512  # as many as a switch has ports; below the usual limit of open files
_MOST_WAITING = 1 << 20  # bytes that a client has not taken: it does not read
_GREETED_SECONDS = 10.0  # for the first line to come


@dataclass(slots=True)
class Client:
    """A connection.

    Attributes:
        number: its name in the service; none is used twice.
        sock: non-blocking.
        nonce: of its greeting.
        deadline: when it must have said its first line, or taken its last; None in between.
        arrived, leaving: bytes without a line end yet, and bytes to send.
        closing: close it once ``leaving`` is sent.
    """

    number: int
    sock: socket.socket
    nonce: str
    deadline: float | None
    arrived: bytes = b""
    leaving: bytes = b""
    closing: bool = False


@dataclass(slots=True)
class Heard:
    """What a look at the connections gave.

    Attributes:
        lines: (client, line) in order of arrival for each client.
        gone: clients whose connection ended.
    """

    lines: list[tuple[Client, bytes]] = field(default_factory=list)
    gone: list[Client] = field(default_factory=list)


class Connections:
    """The clients of a service.

    Args:
        listener: a listening TCP socket; it is closed with this.
        selector: where its sockets are registered, each with itself or its client as data.
    """

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._selector = selector
        self._clients: dict[int, Client] = {}
        self._next = 0
        self._lost: list[Client] = []
        selector.register(listener, selectors.EVENT_READ, self)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)

    def accept(self, now: float) -> None:
        """Take a new client, and greet it."""
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # it is gone again
        if len(self._clients) >= _MOST_CLIENTS:
            sock.close()
            return
        sock.setblocking(False)
        _keep_alive(sock)
        hello = greeting()
        client = Client(self._next, sock, hello["nonce"], now + _GREETED_SECONDS)
        self._next += 1
        self._clients[client.number] = client
        self._selector.register(sock, selectors.EVENT_READ, client)
        self.say(client.number, hello)

    def serve(self, client: Client, events: int, heard: Heard) -> None:
        """Read and write what is possible without waiting."""
        if events & selectors.EVENT_WRITE:
            self._write(client)
        if events & selectors.EVENT_READ and client.number in self._clients:
            self._read(client, heard)

    def expire(self, now: float) -> list[Client]:
        """Close those whose deadline has passed; tells who else is gone since the last call."""
        for client in list(self._clients.values()):
            if client.deadline is not None and now >= client.deadline:
                self.close(client)
        lost, self._lost = self._lost, []
        return lost

    def say(self, number: int, message: Message) -> None:
        """Send a message to a client; to one that is gone, nothing."""
        client = self._clients.get(number)
        if client is None or client.closing:
            return
        client.leaving += encode(message)
        self._write(client)
        if len(client.leaving) > _MOST_WAITING:
            self._lose(client)

    def dismiss(self, client: Client, message: Message) -> None:
        """The same, and then close the connection."""
        self.say(client.number, message)
        client.closing = True
        client.deadline = time.monotonic() + _GREETED_SECONDS  # to take it
        if not client.leaving:
            self.close(client)

    def close(self, client: Client) -> None:
        """End a connection."""
        if self._clients.pop(client.number, None) is not None:
            self._selector.unregister(client.sock)
            client.sock.close()

    def close_all(self) -> None:
        for client in list(self._clients.values()):
            self.close(client)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _lose(self, client: Client) -> None:
        if client.number in self._clients:
            self.close(client)
            self._lost.append(client)

    def _read(self, client: Client, heard: Heard) -> None:
        try:
            read = client.sock.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        *lines, client.arrived = (client.arrived + read).split(b"\n")
        if not client.closing:
            heard.lines.extend((client, line) for line in lines)
        if not read or len(client.arrived) > LONGEST_LINE:
            self.close(client)
            heard.gone.append(client)

    def _write(self, client: Client) -> None:
        try:
            while client.leaving:
                sent = client.sock.send(client.leaving)
                client.leaving = client.leaving[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(client)
            return
        if client.closing and not client.leaving:
            self.close(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.leaving else 0)
        self._selector.modify(client.sock, wanted, client)


def _keep_alive(sock: socket.socket) -> None:
    """A machine that vanished is noticed within some 15 seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15000)
