"""simple_switch's control plane over Thrift, served for the built-in switch.

``ThriftServer`` reads calls in a thread for each connection. The thread that runs the switch
carries them out between two batches of packets (``ThriftServer.run_calls``). So a packet never sees
half of a change.
"""

from __future__ import annotations

import errno
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer

from innet.bmv2.thrift_api import (
    OWN_SERVICE,
    REFUSAL,
    SERVICES,
    Call,
    Kind,
    Struct,
    nothing,
    read,
    write,
)
from innet.core.errors import ControlError, InputError, NetworkError
from innet.core.listening import listen
from innet.simple_switch.control_log import Told
from innet.simple_switch.thrift_calls import Calls, ThriftDevice

_LONGEST_TEXT = 64 << 20  # bytes of a string: a configuration may be long
_MOST_ELEMENTS = 1 << 20  # of a list
_ANSWER_SECONDS = 60.0
_MOST_CLIENTS = 512
_FULL_SECONDS = 0.1


class _Pending(NamedTuple):
    """A call that waits for the thread of the switch."""

    service: str
    name: str
    arguments: list[Any]
    answer: Future[Any]


class ThriftServer:
    """Serves a device at a TCP port of this network namespace.

    As simple_switch's, it listens on all addresses and trusts everybody who connects.

    Args:
        device: what is controlled.
        port: TCP port; 0 takes one that is free.
        log: takes a line about a client that was cut off.
        listener: a socket that listens at the port already.
        told: gives what logs each call.

    Attributes:
        port: where it listens.

    Raises:
        InputError: there is no such port.
        NetworkError: it is in use.
    """

    def __init__(
        self,
        device: ThriftDevice,
        port: int,
        log: Callable[[str], None] = lambda _: None,
        listener: socket.socket | None = None,
        told: Told = lambda: None,
    ) -> None:
        self._told = told
        self._calls = Calls(device)
        self._log = log
        self._pending: queue.SimpleQueue[_Pending] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bells = select.poll()
        self._bells.register(self._bell, select.POLLIN)
        self._closing = False
        self._clients: set[socket.socket] = set()
        self._listener = listener or socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if listener is None:
                listen(self._listener, port)
        except OverflowError:
            self._give_up()
            raise InputError(f"--thrift-port is 0 to 65535, not {port}.") from None
        except OSError as error:
            self._give_up()
            raise NetworkError(
                f"cannot serve Thrift at TCP port {port}: {error.strerror}. Another switch may use "
                "it; --thrift-port chooses another."
            ) from None
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="thrift", daemon=True).start()

    def _give_up(self) -> None:
        self._listener.close()
        os.close(self._bell)

    def fileno(self) -> int:
        """For select and similar: readable when calls wait for ``run_calls``."""
        return self._bell

    def wake(self) -> None:
        """Make it readable, though no call waits."""
        os.eventfd_write(self._bell, 1)

    @property
    def is_woken(self) -> bool:
        """Whether calls wait, or ``wake`` was called, since the last ``run_calls``."""
        return bool(self._bells.poll(0))

    def run_calls(self) -> bool:
        """Carry out the calls that wait. Called by the thread that runs the switch.

        Returns:
            Whether there were any.
        """
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return False
        found = False
        while True:
            try:
                call = self._pending.get_nowait()
            except queue.Empty:
                return found
            found = True
            if not call.answer.set_running_or_notify_cancel():
                continue  # no client waits for it any more
            self._run(call)

    def _run(self, call: _Pending) -> None:
        told = self._told()
        if told is not None:
            told.called(call.name, call.arguments)
        try:
            answer = self._calls(call.service, call.name, call.arguments)
        except Exception as error:
            if told is not None:
                code = self._calls.code_of(call.service, call.name, error)
                told.refused(call.name, call.arguments, code)
            call.answer.set_exception(error)
        else:
            if told is not None:
                told.done(call.name, call.arguments, answer)
            call.answer.set_result(answer)

    def close(self) -> None:
        """Close all connections; calls that wait are not carried out."""
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._listener.close()
        for client in list(self._clients):
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # gone already

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    return  # it is closed
                time.sleep(_FULL_SECONDS)  # until others close their files
                continue
            if len(self._clients) >= _MOST_CLIENTS:
                self._log(f"refused a client: {_MOST_CLIENTS} are connected")
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Answer the calls of one client until it goes, or sends what is no call."""
        carrier = TSocket()
        carrier.setHandle(client)
        transport = TBufferedTransport(carrier)
        into = TBinaryProtocol(
            transport,
            string_length_limit=_LONGEST_TEXT,
            container_length_limit=_MOST_ELEMENTS,
        )
        try:
            while self._answer(into, transport):
                pass
        except EOFError:
            pass
        except (TException, OSError, ValueError, RecursionError, MemoryError) as error:
            if not self._closing and str(error) not in {"", "TSocket read 0 bytes"}:
                self._log(f"closed the connection of a Thrift client: {error}")
        finally:
            transport.close()
            self._clients.discard(client)

    def _answer(self, into: TBinaryProtocol, transport: TBufferedTransport) -> bool:
        """Answer one call; whether the connection can go on."""
        title, kind, number = into.readMessageBegin()
        service, colon, name = str(title).partition(":")
        if kind not in (TMessageType.CALL, TMessageType.ONEWAY) or not colon:
            said = f"{title!r} is no call of a service: SERVICE:NAME"
            _send(transport, _exception(name, number, said, TApplicationException.PROTOCOL_ERROR))
            return False
        calls = OWN_SERVICE if service == "innet" else SERVICES.get(service)
        if calls is None:
            said = f"Unknown service: {service}"
            _send(transport, _exception(name, number, said, TApplicationException.UNKNOWN_METHOD))
            return False
        call = calls.get(name)
        if call is None:
            read(into, Struct({}))
            into.readMessageEnd()
            said = f"Invalid method name: '{name}'"
            _send(transport, _exception(name, number, said, TApplicationException.UNKNOWN_METHOD))
            return True
        taken = Struct({i: (str(i), each) for i, each in enumerate(call.takes, 1)})
        found = read(into, taken)
        into.readMessageEnd()
        arguments = [found.get(str(i), nothing(each)) for i, each in enumerate(call.takes, 1)]
        _send(transport, self._carried_out(service, name, number, call, arguments))
        return True

    def _carried_out(
        self, service: str, name: str, number: int, call: Call, arguments: list[Any]
    ) -> bytes:
        pending = _Pending(service, name, arguments, Future())
        self._pending.put(pending)
        os.eventfd_write(self._bell, 1)
        failed = TApplicationException.INTERNAL_ERROR
        try:
            answer = pending.answer.result(_ANSWER_SECONDS)
        except FutureTimeoutError:
            pending.answer.cancel()  # so that it is not carried out after its answer
            said = f"the switch did not come to {name} in {_ANSWER_SECONDS:g} s"
            return _exception(name, number, said, failed)
        except Exception as error:
            return self._failed(name, number, call, error)
        return _reply(name, number, 0, call.gives, answer)

    def _failed(self, name: str, number: int, call: Call, error: Exception) -> bytes:
        """The answer of a call that raised."""
        code = self._calls.code_of(call.service, name, error)
        if code is not None:
            return _reply(name, number, 1, REFUSAL, {"code": int(code)})
        if not isinstance(error, ControlError):
            self._log(f"{call.service}:{name} failed: {error!r}")
        said = str(error) or repr(error)
        return _exception(name, number, said, TApplicationException.INTERNAL_ERROR)


def _message(name: str, kind: int, number: int) -> tuple[TBinaryProtocol, TMemoryBuffer]:
    buffer = TMemoryBuffer()
    out = TBinaryProtocol(buffer)
    out.writeMessageBegin(name, kind, number)
    return out, buffer


def _reply(name: str, number: int, field: int, kind: Kind | None, value: Any) -> bytes:
    """The answer of a call: field 0 has what it gives, field 1 the exception if it is refused."""
    out, buffer = _message(name, TMessageType.REPLY, number)
    if kind is not None:
        out.writeFieldBegin("", kind.code, field)
        write(out, kind, value)
    out.writeFieldStop()
    out.writeMessageEnd()
    return bytes(buffer.getvalue())


def _exception(name: str, number: int, said: str, kind: int) -> bytes:
    out, buffer = _message(name, TMessageType.EXCEPTION, number)
    TApplicationException(kind, said).write(out)
    out.writeMessageEnd()
    return bytes(buffer.getvalue())


def _send(transport: TBufferedTransport, message: bytes) -> None:
    transport.write(message)
    transport.flush()
