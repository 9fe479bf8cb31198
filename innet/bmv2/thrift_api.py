"""The control plane of simple_switch over Thrift: services, calls and types.

Names and numbers are those of BMv2's interface, which client and server share.

Source: BMv2's services Standard, SimplePre, SimplePreLAG and SimpleSwitch;
https://thrift.apache.org for the numbers of the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType

from innet.switch import ir


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


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map of text to text."""

    code: int = 13


Kind: TypeAlias = Scalar | ListOf | Struct | MapOf

BOOL, DOUBLE = Scalar("Bool", 2), Scalar("Double", 4)
I16, I32, I64 = Scalar("I16", 6), Scalar("I32", 8), Scalar("I64", 10)
TEXT, BINARY = Scalar("String", 11), Scalar("Binary", 11)
HANDLE = Scalar("Handle", 8)
"""Of a table's entry: 32 bits without a sign, which travel as an I32. The upper 8 count how often
an entry at its place was deleted."""

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
        3: ("handle", HANDLE),
        4: ("action", ACTION),
        5: ("life", Struct({1: ("timeout_ms", I32), 2: ("time_since_hit_ms", I32)})),
    }
)
MEMBER = Struct({1: ("handle", I32), 2: ("name", TEXT), 3: ("arguments", ListOf(BINARY))})
GROUP = Struct({1: ("handle", I32), 2: ("members", ListOf(I32))})
SESSION = Struct({1: ("port", I32), 2: ("group", I32)})
INFO = Struct(
    {
        1: ("device_id", I64),
        2: ("thrift_port", I32),
        3: ("notifications_socket", TEXT),
        4: ("elogger_socket", TEXT),
        5: ("debugger_socket", TEXT),
    }
)
PORT = Struct({1: ("port", I32), 2: ("interface", TEXT), 3: ("up", BOOL), 4: ("extra", MapOf())})


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
_METER = {
    1: "there is no array of this name",
    2: "the index is beyond the end",
    3: "the number of rates does not fit",
    4: "a rate is out of range",
    5: "a burst is out of range",
    6: "the array cannot do this",
}
_SWAP = {
    1: "configurations cannot be swapped; --enable-swap allows it",
    2: "a swap is under way",
    3: "there is no configuration to swap to",
}
_LEARNING = {1: "there is no list of this number", 2: "there is no list of this name"}
_PORTS = {1: "the port cannot be added or removed"}
_NAMES = {0: "there is no such kind of thing", 1: "there is nothing of this name"}
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
    "bm_mt_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), TEXT, ListOf(BINARY), OPTIONS), HANDLE),
    "bm_mt_set_default_action": (_TABLE, (_C, TEXT, TEXT, ListOf(BINARY)), None),
    "bm_mt_reset_default_entry": (_TABLE, (_C, TEXT), None),
    "bm_mt_delete_entry": (_TABLE, (_C, TEXT, HANDLE), None),
    "bm_mt_modify_entry": (_TABLE, (_C, TEXT, HANDLE, TEXT, ListOf(BINARY)), None),
    "bm_mt_get_entries": (_TABLE, (_C, TEXT), ListOf(ENTRY)),
    "bm_mt_get_entry": (_TABLE, (_C, TEXT, HANDLE), ENTRY),
    "bm_mt_get_entry_from_key": (_TABLE, (_C, TEXT, ListOf(MATCH), OPTIONS), ENTRY),
    "bm_mt_set_entry_ttl": (_TABLE, (_C, TEXT, HANDLE, I32), None),
    "bm_mt_indirect_set_entry_ttl": (_TABLE, (_C, TEXT, HANDLE, I32), None),
    "bm_mt_get_default_entry": (_TABLE, (_C, TEXT), ACTION),
    "bm_mt_read_counter": (_TABLE, (_C, TEXT, HANDLE), COUNTER),
    "bm_mt_write_counter": (_TABLE, (_C, TEXT, HANDLE, COUNTER), None),
    "bm_mt_reset_counters": (_TABLE, (_C, TEXT), None),
    "bm_mt_set_meter_rates": (_TABLE, (_C, TEXT, HANDLE, ListOf(RATE)), None),
    "bm_mt_get_meter_rates": (_TABLE, (_C, TEXT, HANDLE), ListOf(RATE)),
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
    "bm_mt_indirect_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), I32, OPTIONS), HANDLE),
    "bm_mt_indirect_ws_add_entry": (_TABLE, (_C, TEXT, ListOf(MATCH), I32, OPTIONS), HANDLE),
    "bm_mt_indirect_delete_entry": (_TABLE, (_C, TEXT, HANDLE), None),
    "bm_mt_indirect_set_default_member": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_indirect_ws_set_default_group": (_TABLE, (_C, TEXT, I32), None),
    "bm_mt_indirect_reset_default_entry": (_TABLE, (_C, TEXT), None),
    "bm_counter_read": (_ARRAY, (_C, TEXT, I32), COUNTER),
    "bm_counter_write": (_ARRAY, (_C, TEXT, I32, COUNTER), None),
    "bm_counter_reset_all": (_ARRAY, (_C, TEXT), None),
    "bm_meter_set_rates": (_METER, (_C, TEXT, I32, ListOf(RATE)), None),
    "bm_meter_array_set_rates": (_METER, (_C, TEXT, ListOf(RATE)), None),
    "bm_meter_get_rates": (_METER, (_C, TEXT, I32), ListOf(RATE)),
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
    "bm_mt_indirect_modify_entry": (_TABLE, (_C, TEXT, HANDLE, I32), None),
    "bm_mt_indirect_ws_modify_entry": (_TABLE, (_C, TEXT, HANDLE, I32), None),
    "bm_learning_ack": (_LEARNING, (_C, I32, I64, ListOf(I32)), None),
    "bm_learning_ack_buffer": (_LEARNING, (_C, I32, I64), None),
    "bm_learning_set_timeout": (_LEARNING, (_C, I32, I32), None),
    "bm_learning_set_buffer_size": (_LEARNING, (_C, I32, I32), None),
    "bm_load_new_config": (_SWAP, (TEXT,), None),
    "bm_swap_configs": (_SWAP, (), None),
    "bm_register_write_range": (_ARRAY, (_C, TEXT, I32, I32, I64), None),
    "bm_dev_mgr_add_port": (_PORTS, (TEXT, I32, TEXT), None),
    "bm_dev_mgr_remove_port": (_PORTS, (I32,), None),
    "bm_dev_mgr_show_ports": (_PORTS, (), ListOf(PORT)),
    "bm_get_config": ({}, (), TEXT),
    "bm_get_config_md5": ({}, (), BINARY),
    "bm_get_id_from_name": (_NAMES, (_C, I32, TEXT), I32),
    "bm_serialize_state": ({}, (), TEXT),
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
_REPLICATION_WITHOUT_LAGS = {
    name: call
    for name, call in _REPLICATION.items()
    if name not in {"bm_mc_node_create", "bm_mc_node_update", "bm_mc_set_lag_membership"}
} | {
    "bm_mc_node_create": ((_C, I32, TEXT), I32),
    "bm_mc_node_update": ((_C, I32, TEXT), None),
}
_SWITCH: dict[str, tuple[tuple[Kind, ...], Kind | None]] = {
    "mirroring_mapping_add": ((I32, I32), I32),
    "mirroring_mapping_delete": ((I32,), I32),
    "mirroring_mapping_get_egress_port": ((I32,), I32),
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

SERVICES: Mapping[str, Mapping[str, Call]] = {
    "standard": {name: Call("standard", *each) for name, each in _STANDARD.items()},
    "simple_pre": {
        name: Call("simple_pre", _GROUPS, *each) for name, each in _REPLICATION_WITHOUT_LAGS.items()
    },
    "simple_pre_lag": {
        name: Call("simple_pre_lag", _GROUPS, *each) for name, each in _REPLICATION.items()
    },
    "simple_switch": {
        name: Call("simple_switch", _SESSIONS, *each) for name, each in _SWITCH.items()
    },
}
"""Every call, by the name of its service and its own."""

OWN_SERVICE: Mapping[str, Call] = {
    "command": Call("innet", {}, (TEXT,), TEXT),
    "statistics": Call("innet", {}, (), TEXT),
}
"""innet's own service "innet", for what the others cannot tell: queues, cells of more than 63 bits,
packets that were lost. ``command`` takes a command of simple_switch_CLI and gives what it prints;
``statistics`` gives an object of JSON. A real simple_switch does not have it."""

CALLS: Mapping[str, Call] = {
    **OWN_SERVICE,
    **SERVICES["standard"],
    **SERVICES["simple_pre_lag"],
    **SERVICES["simple_switch"],
}
"""The calls of a client, by name: those that simple_switch answers, and innet's own."""

REFUSAL = Struct({1: ("code", I32)})
"""What all of the interface's exceptions look like."""


# ── Values on the wire ──


def write(out: TBinaryProtocol, kind: Kind, value: Any) -> None:
    """Write a value: lists as sequences, structs as mappings by name."""
    if isinstance(kind, ListOf):
        out.writeListBegin(kind.element.code, len(value))
        for each in value:
            write(out, kind.element, each)
    elif isinstance(kind, Struct):
        _write_struct(out, kind, value)
    elif isinstance(kind, MapOf):
        out.writeMapBegin(TEXT.code, TEXT.code, len(value))
        for key, each in value.items():
            out.writeString(key)
            out.writeString(each)
    elif kind is HANDLE:
        out.writeI32(value - (value >> 31 << 32))
    else:
        getattr(out, f"write{kind.name}")(value)


def _write_struct(out: TBinaryProtocol, kind: Struct, value: Mapping[str, Any]) -> None:
    for number, (name, field) in kind.fields.items():
        if name in value:
            out.writeFieldBegin(name, field.code, number)
            write(out, field, value[name])
    out.writeFieldStop()


def read(into: TBinaryProtocol, kind: Kind) -> Any:
    """Read a value in the same form."""
    if isinstance(kind, ListOf):
        _, size = into.readListBegin()
        return [read(into, kind.element) for _ in range(size)]
    if isinstance(kind, Struct):
        return _read_struct(into, kind)
    if isinstance(kind, MapOf):
        _, _, size = into.readMapBegin()
        return {into.readString(): into.readString() for _ in range(size)}
    if kind is HANDLE:
        return into.readI32() & 0xFFFF_FFFF
    return getattr(into, f"read{kind.name}")()


def nothing(kind: Kind) -> Any:
    """What a field holds that was not sent: 0, nothing, or an empty list."""
    match kind:
        case Scalar("String"):
            return ""
        case Scalar("Binary"):
            return b""
        case Scalar():
            return 0
        case ListOf():
            return []
    return {}


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
            found[name] = read(into, field)


def bytes_of(value: int, width: int) -> bytes:
    """A value of ``width`` bits as it travels: in as many bytes as the width needs."""
    return value.to_bytes((width + 7) // 8, "big")


def sent_match(match: ir.Match, key: ir.TableKey) -> dict[str, Any]:
    """One field of an entry's key, a MATCH."""
    width = key.width
    match match:
        case ir.ExactMatch(value) if key.match is ir.MatchKind.VALID:
            return {"type": VALID, "valid": {"key": bool(value)}}
        case ir.ExactMatch(value):
            return {"type": EXACT, "exact": {"key": bytes_of(value, width)}}
        case ir.LpmMatch(value, prefix):
            return {"type": LPM, "lpm": {"key": bytes_of(value, width), "prefix": prefix}}
        case ir.TernaryMatch(value, mask):
            pair = {"key": bytes_of(value, width), "mask": bytes_of(mask, width)}
            return {"type": TERNARY, "ternary": pair}
        case ir.RangeMatch(low, high):
            pair = {"low": bytes_of(low, width), "high": bytes_of(high, width)}
            return {"type": RANGE, "range": pair}
