"""A TCP port that a server listens at."""

from __future__ import annotations

import socket

_BACKLOG = 128


def listen(sock: socket.socket, port: int) -> None:
    """Listen at a port of all IPv4 addresses; 0 takes a free one. OSError, OverflowError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", port))
    sock.listen(_BACKLOG)
