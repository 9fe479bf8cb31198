"""Calls to a running simple_switch over Thrift, by its own library.

Needs the package ``thrift`` (the extra ``bmv2``).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from innet.bmv2.thrift_calls import CALLS, I32, TEXT, Call, Kind, ListOf, Struct
from innet.core.errors import ControlError, StalledError

ANSWER_SECONDS = 60.0
"""How long the answer to one call may take."""

_REFUSAL = Struct({1: ("code", I32)})


class Client:
    """A connection to simple_switch's control plane.

    It stays in the network namespace that it was made in.

    Args:
        port: where it listens, on the loopback interface.
        seconds: that an answer may take.

    Raises:
        ControlError: nothing listens there.
    """

    def __init__(self, port: int, *, seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._socket = TSocket("127.0.0.1", port, socket_family=socket.AF_INET)
        self._socket.setTimeout(seconds * 1e3)
        self._transport = TBufferedTransport(self._socket)
        self._protocol = TBinaryProtocol(self._transport)
        self._number = 0
        self.connect()

    def connect(self) -> None:
        """Open the connection, or another.

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
        """One call of ``bmv2_calls.CALLS``.

        Args:
            name: of the call.
            arguments: as it takes them; lists as sequences, structs as mappings by name.

        Returns:
            The answer, likewise; None where there is none.

        Raises:
            ControlError: it was refused, or the connection is gone.
            StalledError: no answer in time; the connection is closed.
        """
        found = CALLS[name]
        try:
            self._send(name, found, arguments)
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

    def _send(self, name: str, call: Call, arguments: Sequence[Any]) -> None:
        out = self._protocol
        self._number += 1
        out.writeMessageBegin(f"{call.service}:{name}", TMessageType.CALL, self._number)
        for number, (kind, value) in enumerate(zip(call.takes, arguments, strict=True), start=1):
            out.writeFieldBegin("", kind.code, number)
            _write(out, kind, value)
        out.writeFieldStop()
        out.writeMessageEnd()
        self._transport.flush()

    def _receive(self, name: str, call: Call) -> Any:
        """The answer: field 0, or a refusal in field 1."""
        into = self._protocol
        _, kind, _ = into.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            said = _read(into, Struct({1: ("message", TEXT)}))
            into.readMessageEnd()
            raise ControlError(f"{name}: {said.get('message', 'refused without a word')}")
        gives = {} if call.gives is None else {0: ("answer", call.gives)}
        found = _read(into, Struct({**gives, 1: ("refusal", _REFUSAL)}))
        into.readMessageEnd()
        if "refusal" in found:
            code = found["refusal"].get("code")
            raise ControlError(call.refusals.get(code, f"{name} was refused with code {code}"))
        return found.get("answer")


def _write(out: TBinaryProtocol, kind: Kind, value: Any) -> None:
    if isinstance(kind, ListOf):
        out.writeListBegin(kind.element.code, len(value))
        for each in value:
            _write(out, kind.element, each)
    elif isinstance(kind, Struct):
        _write_struct(out, kind, value)
    else:
        getattr(out, f"write{kind.name}")(value)


def _write_struct(out: TBinaryProtocol, kind: Struct, value: Mapping[str, Any]) -> None:
    for number, (name, field) in kind.fields.items():
        if name in value:
            out.writeFieldBegin(name, field.code, number)
            _write(out, field, value[name])
    out.writeFieldStop()


def _read(into: TBinaryProtocol, kind: Kind) -> Any:
    if isinstance(kind, ListOf):
        _, size = into.readListBegin()
        return [_read(into, kind.element) for _ in range(size)]
    if isinstance(kind, Struct):
        return _read_struct(into, kind)
    return getattr(into, f"read{kind.name}")()


def _read_struct(into: TBinaryProtocol, kind: Struct) -> dict[str, Any]:
    """By name; fields that are not known are passed over."""
    found: dict[str, Any] = {}
    while True:
        _, code, number = into.readFieldBegin()
        if code == TType.STOP:
            return found
        name, field = kind.fields.get(number, ("", None))
        if field is None or field.code != code:
            into.skip(code)
        else:
            found[name] = _read(into, field)
