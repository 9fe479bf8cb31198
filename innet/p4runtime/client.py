"""A controller of one switch over P4Runtime, by the names of its program.

It needs the extra ``p4runtime`` only, and works with any server of P4Runtime.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import grpc

from innet.core.errors import InputError, NetworkError, UnknownNameError
from innet.p4runtime.messages import Status, config, p4
from innet.p4runtime.values import encode

_ANSWER_SECONDS = 60.0
_METADATA_BYTES = 1 << 20  # a batch of many updates may have as many errors

Value = int | bytes | tuple[int, int]
"""Of a match field: an integer, bytes as they are sent, or both parts of lpm, ternary and range."""


class WriteError(NetworkError):
    """A write or read that was refused.

    Attributes:
        codes: the canonical code of each update; empty where none was looked at.
    """

    def __init__(self, message: str, codes: list[int]) -> None:
        super().__init__(message)
        self.codes = codes


class P4RuntimeClient:
    """A connection as the primary controller.

    Args:
        address: HOST:PORT.
        p4info: the program's; see ``messages.p4info_from_text``.
        device_id: of the switch.
        election_id: the highest is the primary.
        role: as the switch knows it.

    Raises:
        NetworkError: no server answers at the address, or another controller is the primary.
    """

    def __init__(
        self, address: str, p4info: Any, device_id: int = 0, election_id: int = 1, role: str = ""
    ) -> None:
        self.p4info = p4info
        self._identity = {"device_id": device_id, "role": role}
        self._election_id = p4.Uint128(high=election_id >> 64, low=election_id % (1 << 64))
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_metadata_size", _METADATA_BYTES)]
        )
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = self._channel.stream_stream(
            _method("StreamChannel"), _bytes, p4.StreamMessageResponse.FromString
        )
        self._stream = call(iter(self._requests.get, None))
        message = p4.StreamMessageRequest()
        message.arbitration.device_id = device_id
        message.arbitration.election_id.CopyFrom(self._election_id)
        if role:
            message.arbitration.role.name = role
        self._requests.put(message)
        try:
            grpc.channel_ready_future(self._channel).result(_ANSWER_SECONDS)
            answer = next(self._stream).arbitration
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            self.close()
            raise NetworkError(f"no P4Runtime switch at {address}: {_said(error)}.") from None
        if answer.status.code:
            self.close()
            raise NetworkError(
                f"another controller is the primary of {address}; a higher election_id replaces it."
            )
        self._names = {
            each.preamble.name: each
            for field, among in p4info.ListFields()
            if field.name not in ("pkg_info", "type_info")
            for each in among
        }

    def close(self) -> None:
        """End the connection; the entries stay."""
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()

    def __enter__(self) -> P4RuntimeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_program(self, json: bytes) -> None:
        """Load a program, from an empty state.

        Args:
            json: as p4c makes it for BMv2.
        """
        request = p4.SetForwardingPipelineConfigRequest(
            **self._identity, election_id=self._election_id, action="VERIFY_AND_COMMIT"
        )
        request.config.p4info.CopyFrom(self.p4info)
        request.config.p4_device_config = json
        self._call("SetForwardingPipelineConfig", request)

    def write(self, *updates: tuple[str, Any], atomicity: str = "CONTINUE_ON_ERROR") -> None:
        """Carry out updates.

        Args:
            updates: ("INSERT", "MODIFY" or "DELETE", an Entity) each.
            atomicity: of the batch, as the protocol names it.

        Raises:
            WriteError: some of it was refused.
        """
        request = p4.WriteRequest(
            **self._identity, election_id=self._election_id, atomicity=atomicity
        )
        for kind, entity in updates:
            request.updates.add(type=kind, entity=entity)
        self._call("Write", request)

    def read(self, *entities: Any) -> Iterator[Any]:
        """The Entity messages that others ask for."""
        request = p4.ReadRequest(**self._identity, entities=entities)
        call = self._channel.unary_stream(_method("Read"), _bytes, p4.ReadResponse.FromString)
        try:
            for response in call(request, timeout=_ANSWER_SECONDS):
                yield from response.entities
        except grpc.RpcError as error:
            raise _refused(error) from None

    def receive(self) -> Any:
        """The next StreamMessageResponse: a packet, a digest, idle entries, mastership."""
        try:
            return next(self._stream)
        except grpc.RpcError as error:
            raise _refused(error) from None

    def packet_out(self, payload: bytes, metadata: Mapping[str, int] = {}) -> None:
        """Send a packet, with the values of its header by name."""
        message = p4.StreamMessageRequest()
        message.packet.payload = payload
        for field in self._found("packet_out").metadata if metadata else ():
            value = encode(metadata[field.name])
            message.packet.metadata.add(metadata_id=field.id, value=value)
        self._requests.put(message)

    # ── Entities by name ──

    def entry(
        self,
        table: str,
        matches: Mapping[str, Value],
        action: str | None = None,
        parameters: Mapping[str, int | bytes] = {},
        priority: int = 0,
    ) -> Any:
        """The Entity of a table entry; parts that are left out match everything."""
        found = self._found(table)
        entity = p4.Entity()
        made = entity.table_entry
        made.table_id, made.priority = found.preamble.id, priority
        fields = {each.name: each for each in found.match_fields}
        for name, value in matches.items():
            if name not in fields:
                raise UnknownNameError("match field", name, fields, of=f"table {table}")
            _set_match(made.match.add(field_id=fields[name].id), fields[name].match_type, value)
        if action is not None:
            of_action = self._found(action)
            made.action.action.action_id = of_action.preamble.id
            known = {each.name: each.id for each in of_action.params}
            for name, argument in parameters.items():
                if name not in known:
                    raise UnknownNameError("parameter", name, known, of=f"action {action}")
                data = argument if isinstance(argument, bytes) else encode(argument)
                made.action.action.params.add(param_id=known[name], value=data)
        return entity

    def multicast_group(self, group: int, replicas: Iterable[tuple[int, int]]) -> Any:
        """The Entity of a multicast group with (port, instance) pairs."""
        entity = p4.Entity()
        made = entity.packet_replication_engine_entry.multicast_group_entry
        made.multicast_group_id = group
        for port, instance in replicas:
            made.replicas.add(port=encode(port), instance=instance)
        return entity

    def register(self, name: str, index: int | None = None) -> Any:
        """The Entity of a register's cell, or of all."""
        entity = p4.Entity()
        entity.register_entry.register_id = self._found(name).preamble.id
        if index is not None:
            entity.register_entry.index.index = index
        return entity

    def _found(self, name: str) -> Any:
        """What has a name in P4Info, or a unique ending of one at a dot."""
        if name in self._names:
            return self._names[name]
        endings = [each for each in self._names if each.endswith(f".{name}")]
        if len(endings) != 1:
            raise UnknownNameError("object", name, self._names, of="the P4Info")
        return self._names[endings[0]]

    def _call(self, name: str, request: Any) -> None:
        call = self._channel.unary_unary(_method(name), _bytes, bytes)
        try:
            call(request, timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise _refused(error) from None


def _method(name: str) -> str:
    return f"/p4.v1.P4Runtime/{name}"


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _set_match(into: Any, kind: int, value: Value) -> None:
    kinds = config.MatchField
    if isinstance(value, tuple):
        first, second = value
        if kind == kinds.LPM:
            into.lpm.value, into.lpm.prefix_len = encode(first), second
        elif kind == kinds.RANGE:
            into.range.low, into.range.high = encode(first), encode(second)
        elif kind == kinds.TERNARY:
            into.ternary.value, into.ternary.mask = encode(first), encode(second)
        else:
            raise InputError(f"an exact or optional field takes one value, not {value}.")
        return
    data = value if isinstance(value, bytes) else encode(value)
    if kind == kinds.EXACT:
        into.exact.value = data
    elif kind == kinds.OPTIONAL:
        into.optional.value = data
    else:
        raise InputError(f"an lpm, ternary or range field takes two numbers, not {value!r}.")


def _said(error: Any) -> str:
    return str(error.details()) if isinstance(error, grpc.Call) else str(error) or "no answer"


def _refused(error: Any) -> WriteError:
    """The error of an RPC, with the status of each of its parts."""
    codes: list[int] = []
    lines: list[str] = []
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            details = [p4.Error.FromString(e.value) for e in Status.FromString(value).details]
            codes = [each.canonical_code for each in details]
            lines = [f"{i}: {e.message}" for i, e in enumerate(details) if e.canonical_code]
    listed = "".join(f"\n  {line}" for line in lines[:10])
    return WriteError(f"{error.code().name}: {error.details()}{listed}", codes)
