"""Messages of nanomsg: publish, and pair.

Either of two libraries will do: the package ``pynng`` (the extra ``notifications``), or nanomsg's
own libnanomsg, which every machine with BMv2 has.

Source: nanomsg's manual pages nn_socket(3), nn_bind(3), nn_send(3), nn_recv(3), nn_getsockopt(3).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib
import importlib.util
import select
from typing import Any, Protocol

from innet.core.errors import MissingToolError, NetworkError

_AF_SP = 1
_PUBLISH, _SUBSCRIBE, _PAIR = 32, 33, 16
_SOL_SOCKET = 0
_LINGER, _RECEIVE_DESCRIPTOR, _LONGEST = 1, 11, 16
_SEND_DESCRIPTOR = 10
_DONT_WAIT = 1
_PATIENCE = 1000  # milliseconds to wait for room; then messages are lost until there is some
_NN_MESSAGE = ctypes.c_size_t(-1).value
_REMEDY = "Get it by: apt-get install libnanomsg5, or pip install 'innet[notifications]'"


class _Socket(Protocol):
    def send(self, message: bytes) -> None: ...
    def receive(self) -> bytes | None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Publisher:
    """Publishes messages to all subscribers.

    Args:
        address: to listen at, such as ipc:///tmp/bmv2-0-notifications.ipc.

    Raises:
        MissingToolError: neither library is installed.
        NetworkError: the address cannot be used.
    """

    def __init__(self, address: str) -> None:
        self._socket = _listen("Pub0", _PUBLISH, address)

    def send(self, message: bytes) -> None:
        """Send to all subscribers; one that is too slow misses messages."""
        self._socket.send(message)

    def close(self) -> None:
        self._socket.close()


class Pair:
    """One end of a connection between two.

    Args, raises: as ``Publisher``.
    """

    def __init__(self, address: str) -> None:
        self._socket = _listen("Pair0", _PAIR, address)

    def send(self, message: bytes) -> None:
        """Send to the other end; lost if there is none, or it does not receive."""
        self._socket.send(message)

    def receive(self) -> bytes | None:
        """A message that has arrived, or None."""
        return self._socket.receive()

    def fileno(self) -> int:
        """For select and similar: readable when a message may have arrived."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def is_installed() -> bool:
    """Whether messages can be sent at all."""
    return importlib.util.find_spec("pynng") is not None or _library() is not None


def _listen(kind: str, protocol: int, address: str) -> _Socket:
    if _library() is not None:
        return _Nanomsg(protocol, address)
    if importlib.util.find_spec("pynng") is not None:
        return _Pynng(kind, address)
    raise MissingToolError("nanomsg", "messages over nanomsg", _REMEDY)


@functools.cache
def _library() -> ctypes.CDLL | None:
    for name in (ctypes.util.find_library("nanomsg"), "libnanomsg.so.5", "libnanomsg.so"):
        try:
            return ctypes.CDLL(name, use_errno=True) if name else None
        except OSError:
            continue
    return None


class _Nanomsg:
    """A socket of libnanomsg."""

    def __init__(self, protocol: int, address: str) -> None:
        library = _library()
        assert library is not None
        self._library = library
        self._protocol = protocol
        library.nn_recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.nn_send.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        library.nn_freemsg.argtypes = [ctypes.c_void_p]
        self._number = library.nn_socket(_AF_SP, protocol)
        if self._number < 0:
            raise self._error("cannot open a socket of nanomsg")
        self._waits = protocol == _PAIR
        if self._waits:
            self._set(_LONGEST, -1)
        if library.nn_bind(self._number, address.encode()) < 0:
            error = self._error(f"cannot listen at {address}")
            self.close()
            raise error

    def _error(self, what: str) -> NetworkError:
        number = ctypes.get_errno()
        self._library.nn_strerror.restype = ctypes.c_char_p
        said = self._library.nn_strerror(number).decode(errors="replace")
        return NetworkError(f"{what}: {said}.")

    def _set(self, option: int, value: int) -> None:
        word = ctypes.c_int(value)
        self._library.nn_setsockopt(
            self._number, _SOL_SOCKET, option, ctypes.byref(word), ctypes.sizeof(word)
        )

    def send(self, message: bytes) -> None:
        if self._try(message):
            self._waits = self._waits or self._protocol == _PAIR
        elif self._waits:
            room = select.poll()
            room.register(self._descriptor(_SEND_DESCRIPTOR), select.POLLIN)
            room.poll(_PATIENCE)
            self._waits = self._try(message)

    def _try(self, message: bytes) -> bool:
        sent = self._library.nn_send(self._number, message, len(message), _DONT_WAIT)
        return bool(sent >= 0)

    def receive(self) -> bytes | None:
        buffer = ctypes.c_void_p()
        size = self._library.nn_recv(self._number, ctypes.byref(buffer), _NN_MESSAGE, _DONT_WAIT)
        if size < 0:
            return None
        try:
            return ctypes.string_at(buffer, size)
        finally:
            self._library.nn_freemsg(buffer)

    def fileno(self) -> int:
        return self._descriptor(_RECEIVE_DESCRIPTOR)

    def _descriptor(self, option: int) -> int:
        word, size = ctypes.c_int(-1), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
        self._library.nn_getsockopt(
            self._number, _SOL_SOCKET, option, ctypes.byref(word), ctypes.byref(size)
        )
        return word.value

    def close(self) -> None:
        self._library.nn_close(self._number)


class _Pynng:
    """A socket of pynng."""

    def __init__(self, kind: str, address: str) -> None:
        self._pynng: Any = importlib.import_module("pynng")
        try:
            self._socket = getattr(self._pynng, kind)(listen=address)
        except (self._pynng.NNGException, ValueError) as error:
            raise NetworkError(f"cannot listen at {address}: {error}.") from None

    def send(self, message: bytes) -> None:
        try:
            self._socket.send(message, block=False)
        except self._pynng.TryAgain:
            return  # no subscriber takes it

    def receive(self) -> bytes | None:
        try:
            return bytes(self._socket.recv(block=False))
        except self._pynng.TryAgain:
            return None

    def fileno(self) -> int:
        return int(self._socket.recv_fd)

    def close(self) -> None:
        self._socket.close()
