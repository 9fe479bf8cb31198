"""A client's end of the control connection."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import time

from innet.core.errors import InputError, NetworkError
from innet.service.protocol import LONGEST_ANSWER, LONGEST_LINE, Message, decode, encode
from innet.transport.messages import readable
from innet.transport.peers import Address
from innet.wire import UDP_PORT


def resolve(switch: str) -> Address:
    """HOST:PORT or HOST as an IPv4 address and a port.

    Raises:
        InputError: it is none, or of IPv6, or the host is not known.
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
    """With or without the brackets that part it from a port."""
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class Channel:
    """Lines of JSON over a connection.

    Args:
        sock: connected.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        sock.setblocking(False)
        self._socket = sock
        self._owner = os.getpid()
        self._arrived = b""
        self._longest = LONGEST_LINE
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
        """Where it leads to."""
        return Address(*self._socket.getpeername()[:2])

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def owned(self) -> bool:
        """Whether this process opened it, and was not forked from the one that did."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """End the connection, although processes that were forked have it open as well; in one of
        these it is not theirs to end.
        """
        if self.owned:
            with contextlib.suppress(OSError):  # it has ended before
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def say(self, message: Message) -> None:
        """Send a message. If the connection has ended, the next ``hear`` says so."""
        line = encode(message)
        with contextlib.suppress(OSError):
            self._socket.settimeout(5.0)
            self._socket.sendall(line)
        self._socket.setblocking(False)

    def hear(self, until: float) -> Message | None:
        """The next message, or None if none comes until then (``time.monotonic``).

        Returns:
            {"closed": True} once the connection has ended and all messages were heard.

        Raises:
            NetworkError: what comes is no message.
        """
        while True:
            line, end, rest = self._arrived.partition(b"\n")
            if end:
                self._arrived = rest
                self._longest = LONGEST_ANSWER
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
            read = self._socket.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        self._arrived += read
        self._ended = not read
