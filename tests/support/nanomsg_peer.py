"""The other end of a switch's nanomsg sockets: a subscriber, and a pair.

They use libnanomsg by ctypes, so the environment of the tests needs no package. The calls are as in
nanomsg's manual pages nn_socket(3), nn_connect(3), nn_send(3), nn_recv(3), nn_setsockopt(3).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import time

import pytest

_NAME = ctypes.util.find_library("nanomsg")
needs_nanomsg = pytest.mark.skipif(_NAME is None, reason="libnanomsg is not installed")
_SP, _SUB, _PAIR = 1, 33, 16
_SOL_SOCKET, _RCVTIMEO, _SNDTIMEO, _RCVMAXSIZE, _SUB_SUBSCRIBE = 0, 5, 4, 16, 1
_SECONDS = 20.0


class Peer:
    """Connects to an address: ``Subscriber`` or ``Pair``."""

    protocol = _PAIR

    def __init__(self, address):
        self._library = ctypes.CDLL(_NAME, use_errno=True)
        self._number = self._library.nn_socket(_SP, self.protocol)
        assert self._number >= 0
        for option, value in ((_RCVTIMEO, 100), (_SNDTIMEO, 5000), (_RCVMAXSIZE, -1)):
            self._set(_SOL_SOCKET, option, value)
        if self.protocol == _SUB:
            self._library.nn_setsockopt(self._number, _SUB, _SUB_SUBSCRIBE, b"", 0)
        assert self._library.nn_connect(self._number, address.encode()) >= 0

    def _set(self, level, option, value):
        word = ctypes.c_int(value)
        self._library.nn_setsockopt(self._number, level, option, ctypes.byref(word), 4)

    def receive(self, seconds=_SECONDS):
        """The next message; None if none comes in time."""
        buffer = ctypes.create_string_buffer(1 << 17)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            size = self._library.nn_recv(self._number, buffer, len(buffer), 0)
            if size >= 0:
                return buffer.raw[:size]
        return None

    def send(self, message):
        assert self._library.nn_send(self._number, message, len(message), 0) == len(message)

    def close(self):
        self._library.nn_close(self._number)


class Subscriber(Peer):
    protocol = _SUB


class Pair(Peer):
    protocol = _PAIR
