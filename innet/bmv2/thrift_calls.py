"""What simple_switch's control plane offers over Thrift, as far as innet asks for it.

Types, names and numbers are those of the interface: a call of another number or type is not
understood by the other side. Nothing here needs Thrift's library.

Source: BMv2's services Standard, SimplePreLAG and SimpleSwitch; https://thrift.apache.org for the
numbers of the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, text or bytes: Thrift's word and code for the type."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of equal elements."""

    element: Kind
    code: int = 15


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields by number: name and kind. In Python a mapping by name; what it lacks is not sent."""

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
    }
)
MEMBER = Struct({1: ("handle", I32), 2: ("name", TEXT), 3: ("arguments", ListOf(BINARY))})
GROUP = Struct({1: ("handle", I32), 2: ("members", ListOf(I32))})
SESSION = Struct({1: ("port", I32), 2: ("group", I32)})


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
        refusals: what they mean, by code.
        takes: its arguments, numbered from 1.
        gives: the answer; None for none.
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
    20: "the default action is constant",
    21: "the default entry is constant",
    22: "there is no default entry",
    25: "the entries are the program's own",
    26: "the action's parameters do not fit",
}
_ARRAY = {1: "there is no array of this name", 2: "the index is beyond the end"}
_VALUE_SET = {1: "there is no parser value set of this name"}
_CRC = {1: "there is no calculation of this name", 2: "the calculation is no such CRC"}
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
    "bm_set_crc16_custom_parameters": (_CRC, (_C, TEXT, _crc(I16)), None),
    "bm_set_crc32_custom_parameters": (_CRC, (_C, TEXT, _crc(I32)), None),
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
