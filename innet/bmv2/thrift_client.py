"""Calls to the control plane of a running simple_switch over Thrift.

Types, names and numbers are those of BMv2's Thrift interface. Needs the package ``thrift`` (the
extra ``bmv2``).

Source: BMv2's services Standard, SimplePreLAG and SimpleSwitch; https://thrift.apache.org for the
numbers of the types.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TMemoryBuffer,
    TTransportException,
)

from innet.core.errors import ControlError, StalledError

ANSWER_SECONDS = 60.0
"""Seconds that the answer to one call may take."""

# ── What simple_switch's control plane offers, as far as innet asks for it ──


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, string or bytes: Thrift's name and code of the type."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of equal elements."""

    element: Kind
    code: int = 15


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields by number: name and type. In Python a mapping by name; missing fields are not sent."""

    fields: Mapping[int, tuple[str, Kind]]
    code: int = 12


Kind: TypeAlias = Scalar | ListOf | Struct

BOOL, DOUBLE = Scalar("Bool", 2), Scalar("Double", 4)
I16, I32, I64 = Scalar("I16", 6), Scalar("I32", 8), Scalar("I64", 10)
TEXT, BINARY = Scalar("String", 11), Scalar("Binary", 11)

EXACT, LPM, TERNARY, VALID, RANGE = range(5)  # kinds of match

MATCH = Struct(
    {
        1: ("type", I32),
        2: ("exact", Struct({1: ("key", BINARY)})),
        3: ("lpm", Struct({1: ("key", BINARY), 2: ("prefix", I32)})),
        4: ("ternary", Struct({1: ("key", BINARY), 2: ("mask", BINARY)})),
        5: ("valid", Struct({1: ("key", BOOL)})),
        6: ("range", Struct({1: ("low", BINARY), 2: ("high", BINARY)})),
    }
)
OPTIONS = Struct({1: ("priority", I32)})
COUNTER = Struct({1: ("bytes", I64), 2: ("packets", I64)})
RATE = Struct({1: ("per_microsecond", DOUBLE), 2: ("burst", I32)})
ACTION = Struct(
    {
        1: ("type", I32),  # 0: none
        2: ("name", TEXT),
        3: ("arguments", ListOf(BINARY)),
        4: ("member", I32),
        5: ("group", I32),
    }
)
ENTRY = Struct(
    {
        1: ("matches", ListOf(MATCH)),
        2: ("options", OPTIONS),
        3: ("handle", I32),
        4: ("action", ACTION),
        5: ("life", Struct({1: ("timeout_ms", I32), 2: ("time_since_hit_ms", I32)})),
    }
)
MEMBER = Struct({1: ("handle", I32), 2: ("name", TEXT), 3: ("arguments", ListOf(BINARY))})
GROUP = Struct({1: ("handle", I32), 2: ("members", ListOf(I32))})
SESSION = Struct({1: ("port", I32), 2: ("group", I32)})
INFO = Struct({1: ("device_id", I64), 2: ("thrift_port", I32), 3: ("notifications_socket", TEXT)})
PORT = Struct({1: ("port", I32), 2: ("interface", TEXT), 3: ("up", BOOL)})


def _crc(word: Kind) -> Struct:
    return Struct(
        {
            1: ("polynomial", word),
            2: ("initial", word),
            3: ("final_xor", word),
            4: ("reflect_data", BOOL),
            5: ("reflect_remainder", BOOL),
        }
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        service: its name on the wire.
        refusals: error messages by code.
        takes: types of its arguments, numbered from 1.
        gives: type of the answer; None for none.
    """

    service: str
    refusals: Mapping[int, str]
    takes: tuple[Kind, ...]
    gives: Kind | None = None


_TABLE = {
    1: "the table is full",
    2: "there is no entry with this handle",
    3: "the entry with this handle is gone",
    4: "the table has no counters",
    5: "the table has no meters",
    6: "the table's entries do not age",
    7: "there is no table of this name",
    8: "there is no action of this name",
    9: "the table is of another kind",
    10: "there is no such member",
    11: "the member is still used",
    12: "the member is in the group already",
    13: "the member is not in the group",
    14: "there is no such group",
    15: "the group is still used",
    16: "the group is empty",
    17: "the same entry is there already",
    18: "the key does not fit the table",
    19: "the table's meters cannot do this",
    20: "the default action is constant",
    21: "the default entry is constant",
    22: "there is no default entry",
    23: "there is no action profile of this name",
    24: "the action profile has no selector",
    25: "the entries are the program's own",
    26: "the action's parameters do not fit",
    27: "the table has no key",
}
_ARRAY = {
    1: "there is no array of this name",
    2: "the index is beyond the end",
    3: "the array cannot do this",
}
_VALUE_SET = {1: "there is no parser value set of this name"}
_HASH = {
    1: "there is no calculation of this name",
    2: "the calculation is another hash",
    3: "the parameters do not fit",
}
_GROUPS = {
    1: "there is no room",
    2: "there is no such group",
    3: "there is no such group",
    4: "there is no such node",
}
_SESSIONS = {1: "there is no such session"}

_C = I32  # the context, always 0
_STANDARD: dict[str, tuple[Mapping[int, str], tuple[Kind, ...], Kind | None]] = {
    "bm_mt_get_num_entries": (_TABLE, (_C, TEXT), I64),
    "bm_mt_clear_entries": (_TABLE, (_C, TEXT, BOOL), None),
    "bm_mt_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), TEXT, ListOf(BINARY), OPTIONS), I32),
    "bm_mt_set_default_action": (_TABLE, (_C, TEXT, TEXT, ListOf(BINARY)), None),
    "bm_mt_reset_default_entry": (_TABLE, (_C, TEXT), None),
    "bm_mt_delete_entry": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_modify_entry": (_TABLE, (_C, TEXT, I32, TEXT, ListOf(BINARY)), None),
    "bm_mt_get_entries": (_TABLE, (_C, TEXT), ListOf(ENTRY)),
    "bm_mt_get_entry": (_TABLE, (_C, TEXT, I32), ENTRY),
    "bm_mt_get_entry_from_key": (_TABLE, (_C, TEXT, ListOf(MATCH), OPTIONS), ENTRY),
    "bm_mt_set_entry_ttl": (_TABLE, (_C, TEXT, I32, I32), None),
    "bm_mt_indirect_set_entry_ttl": (_TABLE, (_C, TEXT, I32, I32), None),
    "bm_mt_get_default_entry": (_TABLE, (_C, TEXT), ACTION),
    "bm_mt_read_counter": (_TABLE, (_C, TEXT, I32), COUNTER),
    "bm_mt_write_counter": (_TABLE, (_C, TEXT, I32, COUNTER), None),
    "bm_mt_reset_counters": (_TABLE, (_C, TEXT), None),
    "bm_mt_set_meter_rates": (_TABLE, (_C, TEXT, I32, ListOf(RATE)), None),
    "bm_mt_get_meter_rates": (_TABLE, (_C, TEXT, I32), ListOf(RATE)),
    "bm_mt_act_prof_add_member": (_TABLE, (_C, TEXT, TEXT, ListOf(BINARY)), I32),
    "bm_mt_act_prof_modify_member": (_TABLE, (_C, TEXT, I32, TEXT, ListOf(BINARY)), None),
    "bm_mt_act_prof_delete_member": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_act_prof_create_group": (_TABLE, (_C, TEXT), I32),
    "bm_mt_act_prof_delete_group": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_act_prof_add_member_to_group": (_TABLE, (_C, TEXT, I32, I32), None),
    "bm_mt_act_prof_remove_member_from_group": (_TABLE, (_C, TEXT, I32, I32), None),
    "bm_mt_act_prof_get_members": (_TABLE, (_C, TEXT), ListOf(MEMBER)),
    "bm_mt_act_prof_get_member": (_TABLE, (_C, TEXT, I32), MEMBER),
    "bm_mt_act_prof_get_groups": (_TABLE, (_C, TEXT), ListOf(GROUP)),
    "bm_mt_act_prof_get_group": (_TABLE, (_C, TEXT, I32), GROUP),
    "bm_mt_indirect_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), I32, OPTIONS), I32),
    "bm_mt_indirect_ws_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), I32, OPTIONS), I32),
    "bm_mt_indirect_delete_entry": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_indirect_set_default_member": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_indirect_ws_set_default_group": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_indirect_reset_default_entry": (_TABLE, (_C, TEXT), None),
    "bm_counter_read": (_ARRAY, (_C, TEXT, I32), COUNTER),
    "bm_counter_write": (_ARRAY, (_C, TEXT, I32, COUNTER), None),
    "bm_counter_reset_all": (_ARRAY, (_C, TEXT), None),
    "bm_meter_set_rates": (_ARRAY, (_C, TEXT, I32, ListOf(RATE)), None),
    "bm_meter_array_set_rates": (_ARRAY, (_C, TEXT, ListOf(RATE)), None),
    "bm_meter_get_rates": (_ARRAY, (_C, TEXT, I32), ListOf(RATE)),
    "bm_register_read": (_ARRAY, (_C, TEXT, I32), I64),
    "bm_register_read_all": (_ARRAY, (_C, TEXT), ListOf(I64)),
    "bm_register_write": (_ARRAY, (_C, TEXT, I32, I64), None),
    "bm_register_reset": (_ARRAY, (_C, TEXT), None),
    "bm_parse_vset_add": (_VALUE_SET, (_C, TEXT, BINARY), None),
    "bm_parse_vset_remove": (_VALUE_SET, (_C, TEXT, BINARY), None),
    "bm_parse_vset_get": (_VALUE_SET, (_C, TEXT), ListOf(BINARY)),
    "bm_parse_vset_clear": (_VALUE_SET, (_C, TEXT), None),
    "bm_set_crc16_custom_parameters": (_HASH, (_C, TEXT, _crc(I16)), None),
    "bm_set_crc32_custom_parameters": (_HASH, (_C, TEXT, _crc(I32)), None),
    "bm_set_toeplitz_hash_key": (_HASH, (_C, TEXT, BINARY), None),
    "bm_dev_mgr_show_ports": ({}, (), ListOf(PORT)),
    "bm_mgmt_get_info": ({}, (), INFO),
    "bm_reset_state": ({}, (), None),
}
_REPLICATION: dict[str, tuple[tuple[Kind, ...], Kind | None]] = {
    "bm_mc_mgrp_create": ((_C, I32), I32),
    "bm_mc_mgrp_destroy": ((_C, I32), None),
    "bm_mc_node_create": ((_C, I32, TEXT, TEXT), I32),
    "bm_mc_node_update": ((_C, I32, TEXT, TEXT), None),
    "bm_mc_node_associate": ((_C, I32, I32), None),
    "bm_mc_node_dissociate": ((_C, I32, I32), None),
    "bm_mc_node_destroy": ((_C, I32), None),
    "bm_mc_set_lag_membership": ((_C, I16, TEXT), None),
    "bm_mc_get_entries": ((_C,), TEXT),
}
_SWITCH: dict[str, tuple[tuple[Kind, ...], Kind | None]] = {
    "mirroring_session_add": ((I32, SESSION), None),
    "mirroring_session_delete": ((I32,), None),
    "mirroring_session_get": ((I32,), SESSION),
    "set_all_egress_queue_depths": ((I32,), I32),
    "set_egress_queue_depth": ((I32, I32), I32),
    "set_egress_priority_queue_depth": ((I32, I32, I32), I32),
    "set_all_egress_queue_rates": ((I64,), I32),
    "set_egress_queue_rate": ((I32, I64), I32),
    "set_egress_priority_queue_rate": ((I32, I32, I64), I32),
    "get_time_elapsed_us": ((), I64),
    "get_time_since_epoch_us": ((), I64),
}

CALLS: Mapping[str, Call] = {
    **{name: Call("standard", *each) for name, each in _STANDARD.items()},
    **{name: Call("simple_pre_lag", _GROUPS, *each) for name, each in _REPLICATION.items()},
    **{name: Call("simple_switch", _SESSIONS, *each) for name, each in _SWITCH.items()},
}


# ── The connection ──

_REFUSAL = Struct({1: ("code", I32)})


class ThriftClient:
    """A connection to simple_switch's control plane.

    It uses the network namespace of the thread that made it.

    Args:
        port: TCP port on the loopback interface.
        seconds: deadline of an answer.

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
                _write(out, kind, value)
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
            found = _read(into, Struct({1: ("message", TEXT)}))
            into.readMessageEnd()
            raise ControlError(f"{name}: {found.get('message', 'refused without a message')}")
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
    """Fields by name; unknown fields are skipped."""
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
