"""Calls to the control plane of a running simple_switch over Thrift.

The calls are those of ``innet.bmv2.thrift_api``.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Sequence
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TMemoryBuffer,
    TTransportException,
)

from innet.bmv2.thrift_api import CALLS, REFUSAL, TEXT, Call, Struct, read, write
from innet.core.errors import ControlError, Refusal, StalledError

# Thrift also logs what it raises; a user who wants that configures the logger.
logging.getLogger("thrift").addHandler(logging.NullHandler())

ANSWER_SECONDS = 60.0
"""Seconds that the answer to one call may take."""


class ThriftClient:
    """A connection to simple_switch's control plane.

    It uses the network namespace of the thread that made it.

    Args:
        port: TCP port.
        seconds: deadline of an answer.
        host: name or IPv4 address; this machine by default.

    Raises:
        ControlError: nothing listens there.
    """

    def __init__(
        self, port: int, *, seconds: float = ANSWER_SECONDS, host: str = "127.0.0.1"
    ) -> None:
        self._seconds = seconds
        self._socket = TSocket(host, port, socket_family=socket.AF_INET)
        self._socket.setTimeout(seconds * 1e3)
        self._transport = TBufferedTransport(self._socket)
        self._protocol = TBinaryProtocol(self._transport)
        self._number = 0
        self.connect()

    def limit(self, seconds: float) -> None:
        """Another deadline for the following answers."""
        self._seconds = seconds
        self._socket.setTimeout(seconds * 1e3)

    def connect(self) -> None:
        """Open the connection, again if it was closed.

        Raises:
            ControlError: nothing listens.
        """
        self.close()
        try:
            self._transport.open()
        except TTransportException as error:
            raise ControlError(
                f"simple_switch's control plane cannot be reached at port {self._socket.port}: "
                f"{error.message}."
            ) from None

    def call(self, name: str, *arguments: Any) -> Any:
        """Make one of ``CALLS``.

        Args:
            name: name of the call.
            arguments: in order; lists as sequences, structs as mappings by name.

        Returns:
            The answer in the same form; None if the call has none.

        Raises:
            ControlError: an argument is invalid and nothing was sent, the call was refused, or the
                connection is gone.
            StalledError: no answer in time; the connection is closed.
        """
        found = CALLS[name]
        message = self._message(name, found, arguments)
        try:
            self._transport.write(message)
            self._transport.flush()
            answer = self._receive(name, found)
        except TTransportException as error:
            self.close()
            if error.type == TTransportException.TIMED_OUT:
                raise StalledError(
                    f"simple_switch did not answer {name} in {self._seconds:g} s."
                ) from None
            raise ControlError(f"simple_switch's control plane is gone: {error.message}.") from None
        except (TException, OSError) as error:
            self.close()
            raise ControlError(f"simple_switch does not understand {name}: {error}.") from None
        return answer

    @property
    def open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket.handle is not None

    def close(self) -> None:
        self._transport.close()

    def _message(self, name: str, call: Call, arguments: Sequence[Any]) -> bytes:
        """A call as a Thrift message."""
        buffer = TMemoryBuffer()
        out = TBinaryProtocol(buffer)
        self._number += 1
        out.writeMessageBegin(f"{call.service}:{name}", TMessageType.CALL, self._number)
        try:
            for number, (kind, value) in enumerate(zip(call.takes, arguments, strict=True), 1):
                out.writeFieldBegin("", kind.code, number)
                write(out, kind, value)
        except (struct.error, OverflowError) as error:
            raise ControlError(f"{name} does not take {arguments}: {error}") from None
        out.writeFieldStop()
        out.writeMessageEnd()
        message: bytes = buffer.getvalue()
        return message

    def _receive(self, name: str, call: Call) -> Any:
        """The answer: field 0, or a refusal in field 1."""
        into = self._protocol
        _, kind, _ = into.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            found = read(into, Struct({1: ("message", TEXT)}))
            into.readMessageEnd()
            raise ControlError(f"{name}: {found.get('message', 'refused without a message')}")
        gives = {} if call.gives is None else {0: ("answer", call.gives)}
        found = read(into, Struct({**gives, 1: ("refusal", REFUSAL)}))
        into.readMessageEnd()
        if "refusal" in found:
            code = found["refusal"].get("code")
            reason = Refusal.OTHER
            if call.service == "standard" and "_mt_" in name and code in list(Refusal):
                reason = Refusal(code)
            said = call.refusals.get(code, f"{name} was refused with code {code}")
            raise ControlError(said, reason)
        return found.get("answer")
