"""Control connections over TCP: the service's side, which never blocks, and the client's side.

``Observer`` is a client that reads statistics and joins no job.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from innet.core.errors import InputError, NetworkError, StalledError
from innet.service.protocol import (
    MAX_ANSWER,
    MAX_LINE,
    Message,
    check_greeting,
    decode,
    encode,
    greeting,
    request,
)
from innet.transport.messages import readable
from innet.transport.peers import Address
from innet.wire import UDP_PORT

_OTHER_FILES = 128  # that the process may have open besides connections
_MOST_WAITING = 1 << 20  # bytes that a client has not taken: it does not read
_ACCEPTED_AT_ONCE = 64  # connections, before frames are looked at again
_GREETED_SECONDS = 10.0  # for the first line to come


@dataclass(slots=True)
class Client:
    """A connection.

    Attributes:
        number: its identifier in the service, never reused.
        sock: the socket, non-blocking.
        nonce: the nonce of its greeting.
        deadline: when its first line must have arrived, or its last must be sent; None in between.
        arrived, leaving: received bytes without a line end yet, and bytes to send.
        closing: close it after ``leaving`` is sent.
    """

    number: int
    sock: socket.socket
    nonce: str
    deadline: float | None
    arrived: bytes = b""
    leaving: bytes = b""
    closing: bool = False


@dataclass(slots=True)
class Received:
    """What arrived at the connections.

    Attributes:
        lines: (client, line), in order of arrival for each client.
        gone: clients whose connections ended.
    """

    lines: list[tuple[Client, bytes]] = field(default_factory=list)
    gone: list[Client] = field(default_factory=list)


class Connections:
    """The clients of a service.

    Args:
        listener: a listening TCP socket; ``close_all`` closes it, too.
        selector: where the sockets are registered, with the listener or the client as data.
        most: the most clients at a time.

    Raises:
        InputError: this process may not have this number of files open.
    """

    def __init__(
        self, listener: socket.socket, selector: selectors.BaseSelector, most: int = 512
    ) -> None:
        _allow_files(most + _OTHER_FILES)
        self._most = most
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
        """Accept new clients and send them the greeting."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # there is none, or it is gone again
            if len(self._clients) >= self._most:
                sock.close()
            else:
                self._greet(sock, now)

    def _greet(self, sock: socket.socket, now: float) -> None:
        sock.setblocking(False)
        _keep_alive(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)
        hello = greeting()
        client = Client(self._next, sock, hello["nonce"], now + _GREETED_SECONDS)
        self._next += 1
        self._clients[client.number] = client
        self._selector.register(sock, selectors.EVENT_READ, client)
        self.send(client.number, hello)

    def serve(self, client: Client, events: int, received: Received) -> None:
        """Read and write as much as is possible without blocking."""
        if events & selectors.EVENT_WRITE:
            self._write(client)
        if events & selectors.EVENT_READ and client.number in self._clients:
            self._read(client, received)

    def expire(self, now: float) -> list[Client]:
        """Close clients whose deadline has passed; returns all clients gone since the last call."""
        for client in list(self._clients.values()):
            if client.deadline is not None and now >= client.deadline:
                self.close(client)
        lost, self._lost = self._lost, []
        return lost

    def send(self, number: int, message: Message) -> None:
        """Send a message to a client, if it is still connected."""
        client = self._clients.get(number)
        if client is None or client.closing:
            return
        client.leaving += encode(message)
        self._write(client)
        if len(client.leaving) > _MOST_WAITING:
            self._lose(client)

    def dismiss(self, client: Client, message: Message) -> None:
        """Send a message, then close the connection."""
        self.send(client.number, message)
        client.closing = True
        client.deadline = time.monotonic() + _GREETED_SECONDS  # to take it
        if not client.leaving:
            self.close(client)

    def close(self, client: Client) -> None:
        """Close a connection."""
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

    def _read(self, client: Client, received: Received) -> None:
        try:
            read = client.sock.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        *lines, client.arrived = (client.arrived + read).split(b"\n")
        if not client.closing:
            received.lines.extend((client, line) for line in lines)
        if not read or len(client.arrived) > MAX_LINE:
            self.close(client)
            received.gone.append(client)

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


def _allow_files(number: int) -> None:
    """Raise this process's limit of open files to ``number``, if it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    if hard != resource.RLIM_INFINITY and hard < number:
        raise InputError(
            f"each worker has a connection, and this process may have {hard} files open, not "
            f"{number}; give a lower --workers-max or --jobs, or raise the limit (ulimit -n)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def _keep_alive(sock: socket.socket) -> None:
    """Enable TCP keep-alive, which detects a lost machine within about 15 seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def key_of(key: str | None, file: Path | None) -> str | None:
    """The key itself, or the key from a file without the line end.

    Raises:
        InputError: both were given, or the file cannot be read or is empty.
    """
    if file is None:
        return key
    if key is not None:
        raise InputError("give --key or --key-file, not both.")
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot read {file}: {error}.") from None
    if not text:
        raise InputError(f"{file} is empty; write the key into it.")
    return text


def resolve(switch: str) -> Address:
    """HOST:PORT or HOST as an IPv4 address and a port.

    Raises:
        InputError: it is not an address, or an IPv6 address, or the host is unknown.
    """
    host, colon, port = switch.rpartition(":")
    if any(map(_is_of_ipv6, (switch, host))):
        raise InputError(
            f"{switch!r} is an address of IPv6, which a switch service does not serve; give one of "
            "IPv4 as HOST:PORT, such as 10.0.0.1:48879."
        )
    if not colon:
        host, port = switch, str(UDP_PORT)
    if not host or not port.isdigit() or int(port) > 0xFFFF:
        raise InputError(
            f"{switch!r} is no address; write it as HOST:PORT, such as 10.0.0.1:48879."
        )
    try:
        found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"no IPv4 address is known of {host!r}: {error}.") from None
    ip, number = found[0][4][:2]
    return Address(str(ip), int(number))


def _is_of_ipv6(host: str) -> bool:
    """Whether it is an IPv6 address, with or without brackets."""
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class Channel:
    """Lines of JSON over a connection.

    Args:
        sock: a connected socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        _keep_alive(sock)
        sock.setblocking(False)
        self._socket = sock
        self._owner = os.getpid()
        self._arrived = b""
        self._longest = MAX_LINE
        self._ended = False

    @classmethod
    def connect(cls, where: Address, timeout: float) -> Channel:
        """Connect within ``timeout`` seconds, or OSError."""
        return cls(socket.create_connection((where.ip, where.udp_port), timeout))

    @property
    def local_ip(self) -> str:
        """The address of this machine that the connection comes from."""
        return str(self._socket.getsockname()[0])

    @property
    def peer(self) -> Address:
        """The address of the other end."""
        return Address(*self._socket.getpeername()[:2])

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def owned(self) -> bool:
        """Whether this process opened it, and was not forked from the one that did."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """Close the connection, even if forked processes have it open, too. In a forked process
        only the file descriptor is closed.
        """
        if self.owned:
            with contextlib.suppress(OSError):  # it has ended before
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, message: Message) -> None:
        """Send a message. If the connection has ended, the next ``receive`` says so."""
        line = encode(message)
        with contextlib.suppress(OSError):
            self._socket.settimeout(5.0)
            self._socket.sendall(line)
        self._socket.setblocking(False)

    def receive(self, until: float) -> Message | None:
        """The next message, or None if none comes until then (``time.monotonic``).

        Returns:
            {"closed": True} once the connection has ended and all messages were received.

        Raises:
            NetworkError: an invalid message arrived.
        """
        while True:
            line, end, rest = self._arrived.partition(b"\n")
            if end:
                self._arrived = rest
                self._longest = MAX_ANSWER
                try:
                    return decode(line)
                except InputError as error:
                    raise NetworkError(f"who answers is no innet switch service: {error}") from None
            if self._ended:
                return {"closed": True}
            if len(self._arrived) > self._longest:
                raise NetworkError("who answers is no innet switch service: it sends long lines.")
            left = until - time.monotonic()
            if readable(left, self._socket.fileno()):
                self._receive()
            elif left <= 0:
                return None

    def _receive(self) -> None:
        try:
            read = self._socket.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        self._arrived += read
        self._ended = not read


class Observer:
    """Asks a service for its statistics; it takes no part in any job.

    Args:
        switch: the service's address, HOST:PORT.
        key: the service's, if it has one.
        seconds: deadline for connecting and for each answer.

    Raises:
        InputError: an invalid address, or a wrong key.
        NetworkError: the service cannot be reached, or is another version.
        StalledError: it does not answer in time.
    """

    def __init__(self, switch: str, key: str | None = None, seconds: float = 5.0) -> None:
        self._switch = switch
        self._seconds = seconds
        where = resolve(switch)
        try:
            self._channel = Channel.connect(where, seconds)
        except OSError as error:
            raise NetworkError(
                f"cannot reach a switch at {switch}: {error.strerror or error}."
            ) from None
        try:
            nonce = check_greeting(self._receive_message(), switch)
            self._channel.send(request("statistics", nonce, key))
            self._first: dict[str, Any] | None = self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def statistics(self) -> dict[str, Any]:
        """The current statistics, as from ``SwitchService.statistics``.

        Raises:
            NetworkError, StalledError: the service is gone, or does not answer.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        self._channel.send({"request": "statistics"})
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        message = self._receive_message()
        if "error" in message:
            raise InputError(f"the switch at {self._switch} refuses: {message['error']}")
        document = message.get("statistics")
        if not isinstance(document, dict):
            raise NetworkError(f"the switch at {self._switch} is gone.")
        return document

    def _receive_message(self) -> Message:
        message = self._channel.receive(time.monotonic() + self._seconds)
        if message is None:
            raise StalledError(
                f"the switch at {self._switch} did not answer within {self._seconds:g} s."
            )
        return message
