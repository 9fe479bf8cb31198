"""The gRPC server of P4Runtime.

RPCs are received in a separate thread, by asyncio, and carried out by the thread that runs the
switch (``calls.CallQueue``).

Source: P4Runtime 1.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from innet.core.errors import InnetError, InputError, NetworkError
from innet.p4runtime.arbitration import Arbitration, Controller
from innet.p4runtime.calls import CallQueue, Steps
from innet.p4runtime.context import PortStates
from innet.p4runtime.messages import API_VERSION, Status, p4
from innet.p4runtime.packet_io import packet_in, packet_out
from innet.p4runtime.pipeline import ForwardingPipeline, device_config
from innet.p4runtime.status import (
    Code,
    StatusError,
    failed_precondition,
    invalid,
    not_found,
    permission_denied,
    status_of,
    unimplemented,
)
from innet.p4runtime.streams import Stream, error_message
from innet.switch import Switch

_SERVICE = "p4.v1.P4Runtime"
_LONGEST_MESSAGE = 64 << 20
_MOST_RPCS = 512
_WAIT_SECONDS = 120.0
_START_SECONDS = 10.0
_ENTITIES = 1000  # of one ReadResponse
_READ_BYTES = 1 << 20
_DETAILS_BYTES = 7000  # of a status; clients take 8 KiB of metadata
_IN_FLIGHT = 256  # packets of a stream that wait for the switch

_CODES = {each.value[0]: each for each in grpc.StatusCode}
_ACTIONS = p4.SetForwardingPipelineConfigRequest
_ANSWERS = p4.GetForwardingPipelineConfigRequest


class P4RuntimeDevice(PortStates, Protocol):
    """What a P4Runtime server needs of a switch process; called by the thread that runs it."""

    @property
    def device_id(self) -> int: ...
    @property
    def switch(self) -> Switch | None:
        """What runs packets; None without a program."""
        ...

    def make_switch(self, config: str) -> Switch:
        """A switch for the JSON of a program, which runs no packets yet."""
        ...

    def install(self, switch: Switch, config: str) -> None:
        """Let it run packets from now on."""
        ...

    def inject(self, packet: bytes) -> None:
        """Receive a packet at the CPU port."""
        ...


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of the server, as simple_switch_grpc's options name them.

    Attributes:
        certificate, key: files in PEM.
        authority: file in PEM with which clients' certificates are verified; "" for none.
        requires_client: refuse clients without a certificate.
    """

    certificate: str
    key: str
    authority: str = ""
    requires_client: bool = False

    def credentials(self) -> Any:
        """For the server; InputError names a file that cannot be read."""
        if not self.certificate or not self.key:
            raise InputError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key.")
        if self.requires_client and not self.authority:
            raise InputError("--grpc-server-with-client-auth needs --grpc-server-cacert.")
        pair = (_file(self.key), _file(self.certificate))
        authority = _file(self.authority) if self.authority else None
        try:
            return grpc.ssl_server_credentials(
                [pair], root_certificates=authority, require_client_auth=self.requires_client
            )
        except ValueError as error:
            raise InputError(f"the certificates of the gRPC server: {error}.") from None


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop that serves gRPC: uvloop's where it is installed, as it takes a third less time."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    found: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return found


class P4RuntimeServer:
    """Serves a device at an address.

    Args:
        device: what is controlled.
        address: HOST:PORT; port 0 takes one that is free.
        wake: makes the thread of the switch call ``run_calls`` soon.
        tls: certificates; None for an open server, which trusts everybody who connects.
        log: takes a level and a line.

    Attributes:
        port: where it listens.

    Raises:
        InputError: certificates cannot be used.
        NetworkError: the address cannot be used.
    """

    def __init__(
        self,
        device: P4RuntimeDevice,
        address: str,
        wake: Callable[[], None],
        *,
        tls: Tls | None = None,
        log: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._device = device
        self._log = log
        credentials = None if tls is None else tls.credentials()
        self._loop = new_event_loop()
        self._calls = CallQueue(self._loop, wake)
        self._arbitration = Arbitration(device.device_id)
        self._committed: ForwardingPipeline | None = None
        self._saved: ForwardingPipeline | None = None
        self._begun = time.time_ns() - time.monotonic_ns()
        self._streams: set[Stream] = set()
        self._closing = asyncio.Event()
        started = _Started()
        self._thread = threading.Thread(
            target=self._run, args=(address, credentials, started), name="p4runtime", daemon=True
        )
        self._thread.start()
        self.port = started.wait(address)

    def close(self) -> None:
        """End all streams and RPCs."""
        self._calls.close()
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_START_SECONDS)

    def _run(self, address: str, credentials: Any, started: _Started) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(address, credentials, started))
        finally:
            self._loop.close()

    async def _serve(self, address: str, credentials: Any, started: _Started) -> None:
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _LONGEST_MESSAGE),
                ("grpc.max_send_message_length", -1),
            ],
            maximum_concurrent_rpcs=_MOST_RPCS,
        )
        unary, streaming = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "Write": unary(self._on_write),
            "Read": streaming(self._on_read),
            "SetForwardingPipelineConfig": unary(self._on_set),
            "GetForwardingPipelineConfig": unary(self._on_get),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(self._on_stream),
            "Capabilities": unary(self._on_capabilities),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
            await server.start()
        except (RuntimeError, ValueError) as error:
            started.fail(error)
            return
        started.port = port
        started.event.set()
        await self._closing.wait()
        for stream in list(self._streams):
            stream.end(StatusError(Code.UNAVAILABLE, "the switch ends"))
        await server.stop(0.2)

    # ── RPCs, in the server's thread ──

    async def _on_write(self, data: bytes, context: Any) -> bytes:
        request = await self._parsed(p4.WriteRequest, data, context)
        is_atomic = request.atomicity == p4.WriteRequest.DATAPLANE_ATOMIC
        errors = await self._carried_out(self._write(request), context, is_atomic=is_atomic)
        if errors:
            await self._abort_with(errors, "Write failure: see each update.", context)
        return b""

    async def _on_read(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        request = await self._parsed(p4.ReadRequest, data, context)
        responses, errors = await self._carried_out(self._read(request), context)
        for each in responses:
            yield each
        if errors:
            await self._abort_with(errors, "Read failure: see each entity.", context)

    async def _on_set(self, data: bytes, context: Any) -> bytes:
        request = await self._parsed(_ACTIONS, data, context)
        await self._carried_out(self._set(request), context, is_atomic=True)
        return b""

    async def _on_get(self, data: bytes, context: Any) -> bytes:
        request = await self._parsed(_ANSWERS, data, context)
        response = await self._carried_out(self._get(request), context)
        return bytes(response.SerializeToString())

    async def _on_capabilities(self, data: bytes, context: Any) -> bytes:
        request = await self._parsed(p4.CapabilitiesRequest, data, context)
        if request.device_id not in (0, self._device.device_id):
            text = f"there is no device {request.device_id}"
            await self._abort(not_found(text), context)
        answer = p4.CapabilitiesResponse(p4runtime_api_version=API_VERSION)
        return bytes(answer.SerializeToString())

    async def _on_stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        stream = Stream(self._loop)
        self._streams.add(stream)
        controller = Controller(stream)
        reader = asyncio.ensure_future(self._read_stream(requests, controller, stream))
        try:
            while (data := await stream.next()) is not None:
                yield data
        except StatusError as error:
            await self._abort(error, context)
        finally:
            reader.cancel()
            self._streams.discard(stream)
            stream.end(None)
            with contextlib.suppress(StatusError):  # the switch ends
                self._calls.submit(self._leave(controller)).add_done_callback(_note)

    async def _read_stream(
        self, requests: AsyncIterator[bytes], controller: Controller, stream: Stream
    ) -> None:
        """Take what a controller sends, until it ends its side or sends what ends the stream."""
        waiting: set[asyncio.Future[Any]] = set()
        try:
            async for data in requests:
                try:
                    request = p4.StreamMessageRequest.FromString(data)
                except DecodeError:
                    raise invalid("that is no StreamMessageRequest") from None
                if len(waiting) >= _IN_FLIGHT:
                    _, waiting = await asyncio.wait(
                        waiting, return_when=asyncio.FIRST_COMPLETED, timeout=_WAIT_SECONDS
                    )
                steps = self._take(request, controller)
                future = self._calls.submit(steps)
                if request.WhichOneof("update") == "arbitration":
                    await future
                else:
                    future.add_done_callback(_note)
                    waiting.add(future)
            stream.end(None)
        except StatusError as error:
            stream.end(error)
        except Exception as error:
            stream.end(status_of(error))

    async def _parsed(self, kind: Any, data: bytes, context: Any) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            name = kind.DESCRIPTOR.name
            return await self._abort(invalid(f"that is no {name}: it cannot be parsed"), context)

    async def _carried_out(self, steps: Steps, context: Any, *, is_atomic: bool = False) -> Any:
        try:
            return await self._calls.submit(steps, is_atomic=is_atomic)
        except Exception as error:
            if not isinstance(error, InnetError):
                self._log("error", f"a request of P4Runtime failed: {error!r}")
            return await self._abort(status_of(error), context)

    async def _abort(self, status: StatusError, context: Any) -> Any:
        await context.abort(_CODES[int(status.code)], str(status))

    async def _abort_with(self, errors: list[Any], text: str, context: Any) -> None:
        """End with the code UNKNOWN and a p4.v1.Error for each part."""
        # "Error Reporting" of Write: a google.rpc.Status travels in the trailing metadata.
        status = Status(code=Code.UNKNOWN, message=text)
        for error in errors:
            status.details.add().Pack(error)
        if status.ByteSize() > _DETAILS_BYTES:  # codes alone, before a client takes nothing of it
            del status.details[:]
            for error in errors:
                status.details.add().Pack(p4.Error(canonical_code=error.canonical_code))
        details = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(grpc.StatusCode.UNKNOWN, text, details)

    # ── For the thread that runs the switch ──

    def run_calls(self) -> None:
        """Carry out requests that wait."""
        self._calls.run()

    def packet_in(self, data: bytes) -> None:
        """A packet left at the CPU port: tell the primary controllers."""
        if self._committed is None:
            return
        try:
            message = packet_in(self._committed.index, data)
        except StatusError as error:
            self._log("warn", str(error))
            return
        self._tell(p4.StreamMessageResponse(packet=message))

    def take_digests(self, digests: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """What ``SwitchState.digests`` holds."""
        if self._committed is not None:
            self._committed.digests.take(digests, time.time_ns())

    def run_due(self) -> float | None:
        """Send digests that timed out; seconds until the next ones do, None for none."""
        if self._committed is None:
            return None
        now = time.time_ns()
        due = self._committed.digests.run_due(now)
        return None if due is None else max(0.0, (due - now) / 1e9)

    def idle_entries(self, table: str, handles: Sequence[int]) -> None:
        """Entries that were not hit for their time-out."""
        if self._committed is None:
            return
        entries = self._committed.idle_entries(table, handles)
        if entries:
            message = p4.StreamMessageResponse()
            message.idle_timeout_notification.timestamp = time.time_ns()
            message.idle_timeout_notification.table_entry.extend(entries)
            self._tell(message)

    def ports_changed(self) -> None:
        """A port went up or down."""
        for pipeline in (self._committed, self._saved):
            if pipeline is not None:
                pipeline.ports_changed()

    def _tell(self, message: Any) -> None:
        for each in self._arbitration.primaries():
            each.stream.send(message)

    def _tell_digest(self, message: Any) -> None:
        self._tell(p4.StreamMessageResponse(digest=message))

    # ── Requests, as steps ──

    def _pipeline(self) -> ForwardingPipeline:
        """What reads and updates refer to."""
        self._follow_device()
        pipeline = self._saved or self._committed
        if pipeline is None:
            raise failed_precondition(
                "there is no forwarding pipeline config; set it by SetForwardingPipelineConfig"
            )
        return pipeline

    def _follow_device(self) -> None:
        """Take note of a program that was swapped, or a state reset, over Thrift."""
        had = self._committed
        now = self._device.switch
        if had is None or had.switch is now:
            return
        self._committed = None
        if now is not None and now.program.fingerprint == had.switch.program.fingerprint:
            self._committed = ForwardingPipeline(now, had.config, self._device, self._tell_digest)

    def _write(self, request: Any) -> Steps:
        self._arbitration.require_primary(request)
        pipeline = self._pipeline()
        if request.atomicity not in (0, 1, 2):
            raise invalid(f"there is no atomicity {request.atomicity}")
        whole = request.atomicity != p4.WriteRequest.CONTINUE_ON_ERROR
        return (yield from pipeline.write(request.updates, all_or_nothing=whole))

    def _read(self, request: Any) -> Steps:
        self._arbitration.require_device(request.device_id)
        pipeline = self._pipeline()
        # An error of one entity does not keep the others from being read ("Batch Processing").
        responses: list[bytes] = []
        errors = [p4.Error() for _ in request.entities]
        response, size = p4.ReadResponse(), 0
        for error, entity in zip(errors, request.entities, strict=True):
            try:
                for found in pipeline.read(entity):
                    response.entities.append(found)
                    size += found.ByteSize()
                    if len(response.entities) >= _ENTITIES or size > _READ_BYTES:
                        responses.append(response.SerializeToString())
                        response, size = p4.ReadResponse(), 0
                    yield
            except InnetError as reason:
                status = status_of(reason)
                error.canonical_code, error.message = status.code, str(status)
        if response.entities:
            responses.append(response.SerializeToString())
        return responses, errors if any(each.canonical_code for each in errors) else []

    def _set(self, request: Any) -> Steps:
        # Step 1: COMMIT is for the config that VERIFY_AND_SAVE left, the others bring one
        # ("SetForwardingPipelineConfig RPC").
        self._arbitration.require_primary(request)
        self._follow_device()
        action, given = request.action, request.config
        has_config = request.HasField("config")
        if action == _ACTIONS.COMMIT:
            if has_config:
                raise invalid("COMMIT takes the config that was saved, and none beside it")
            if self._saved is None:
                raise not_found("no config was saved; VERIFY_AND_SAVE comes before COMMIT")
            self._commit(self._saved)
            return None
        if action not in (
            _ACTIONS.VERIFY,
            _ACTIONS.VERIFY_AND_SAVE,
            _ACTIONS.VERIFY_AND_COMMIT,
            _ACTIONS.RECONCILE_AND_COMMIT,
        ):
            raise invalid(f"there is no action {action}")
        if not has_config:
            raise invalid("the request has no config")
        # Step 2: verify. Packets still pass through the program before.
        made = self._made(given)
        yield
        # Step 3: keep it, or let it run: with the state of the one before, or with none.
        if action == _ACTIONS.RECONCILE_AND_COMMIT and self._committed is not None:
            made.take_state_of(self._committed)
        if action == _ACTIONS.VERIFY_AND_SAVE:
            self._saved = made
        elif action != _ACTIONS.VERIFY:
            self._commit(made)
        return None

    def _made(self, given: Any) -> ForwardingPipeline:
        """The pipeline of a config; INVALID_ARGUMENT if it cannot be realized."""
        if not given.p4_device_config:
            raise invalid("the config has no p4_device_config, which is the program's JSON")
        try:
            switch = self._device.make_switch(device_config(given.p4_device_config))
        except StatusError:
            raise
        except InnetError as error:
            raise invalid(f"the program cannot be loaded: {error}") from None
        made = ForwardingPipeline(switch, given, self._device, self._tell_digest)
        for name in made.index.removed.values():
            self._log(
                "warn",
                f"P4Info has table {name}, which p4c removed from the program: it has no entries",
            )
        return made

    def _commit(self, pipeline: ForwardingPipeline) -> None:
        text = device_config(pipeline.config.p4_device_config)
        self._device.install(pipeline.switch, text)
        self._committed, self._saved = pipeline, None
        pipeline.ports_changed()

    def _get(self, request: Any) -> Steps:
        self._arbitration.require_device(request.device_id)
        self._follow_device()
        response = p4.GetForwardingPipelineConfigResponse()
        pipeline = self._saved or self._committed
        if request.response_type not in (0, 1, 2, 3):
            raise invalid(f"there is no response type {request.response_type}")
        # Without a config the answer has none. Parts that were not asked for are left out.
        if pipeline is not None:
            response.config.CopyFrom(pipeline.config)
            if request.response_type in (_ANSWERS.COOKIE_ONLY, _ANSWERS.DEVICE_CONFIG_AND_COOKIE):
                response.config.ClearField("p4info")
            if request.response_type in (_ANSWERS.COOKIE_ONLY, _ANSWERS.P4INFO_AND_COOKIE):
                response.config.ClearField("p4_device_config")
        yield
        return response

    def _take(self, request: Any, controller: Controller) -> Steps:
        """A message of a stream."""
        kind = request.WhichOneof("update")
        # What a former primary did not acknowledge, a new one may be sent again ("DigestEntry").
        if kind == "arbitration":
            before = self._arbitration.primaries()
            self._notify(self._arbitration.update(controller, request.arbitration))
            if self._arbitration.primaries() != before and self._committed is not None:
                self._committed.digests.forget()
            return
        try:
            self._take_other(kind, request, controller)
        except InnetError as error:
            controller.stream.send(error_message(status_of(error), request))
        yield

    def _take_other(self, kind: str, request: Any, controller: Controller) -> None:
        if not self._arbitration.is_primary(controller):
            raise permission_denied("this is not the primary controller")
        if kind not in ("packet", "digest_ack"):
            raise unimplemented("v1model defines no stream messages")
        self._follow_device()
        if self._committed is None:
            raise failed_precondition("there is no forwarding pipeline config")
        if kind == "digest_ack":
            self._committed.digests.acknowledge(request.digest_ack)
            return
        if self._device.cpu_port is None:
            raise failed_precondition("the switch was started without --cpu-port")
        self._device.inject(packet_out(self._committed.index, request.packet))

    def _leave(self, controller: Controller) -> Steps:
        self._notify(self._arbitration.leave(controller))
        yield

    def _notify(self, notices: list[tuple[Controller, Any]]) -> None:
        for controller, message in notices:
            controller.stream.send(p4.StreamMessageResponse(arbitration=message))


class _Started:
    """How the start of the server went, for the thread that waits for it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.port = 0
        self._error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self._error = error
        self.event.set()

    def wait(self, address: str) -> int:
        if not self.event.wait(_START_SECONDS):
            raise NetworkError(f"the gRPC server at {address} did not start in {_START_SECONDS} s.")
        if self._error is not None or self.port == 0:
            raise NetworkError(
                f"cannot serve gRPC at {address}. Another switch may use it; --grpc-server-addr "
                "chooses another."
            )
        return self.port


def _note(future: asyncio.Future[Any]) -> None:
    """An error that no call waits for was sent on the stream already."""
    if not future.cancelled():
        future.exception()
