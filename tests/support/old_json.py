"""Compiled programs as compilers of BMv2 JSON 2.0 and earlier wrote them, from what p4c writes."""

from __future__ import annotations

import copy
from typing import Any

_COMPUTING = {
    "+": "add",
    "-": "subtract",
    "&": "bit_and",
    "|": "bit_or",
    "^": "bit_xor",
    "<<": "shift_left",
    ">>": "shift_right",
}
_CHANGING = {"+": "add_to_field", "-": "subtract_from_field"}


def aged(document: dict[str, Any], *, unmasked: bool = False) -> dict[str, Any]:
    """A copy of ``document`` that means the same: without a version and without what is absent by
    default, with P4_14's primitives, and with action profiles described by their tables.

    ``unmasked``: without p4c's masks that only repeat what fits into the target.
    """
    old = copy.deepcopy(document)
    del old["__meta__"]
    widths = _widths(document) if unmasked else {}
    for action in old["actions"]:
        action["primitives"] = [_primitive(each, widths) for each in action["primitives"]]
    for pipeline in old["pipelines"]:
        _move_profiles(pipeline)
    for header in old["headers"]:
        if not header["metadata"]:
            del header["metadata"]
    kept: dict[str, Any] = _without_empty_arrays(old)
    return kept


def _widths(document: dict[str, Any]) -> dict[tuple[str, str], int]:
    """The bits of each unsigned field that wraps."""
    fields = {each["name"]: each["fields"] for each in document["header_types"]}
    return {
        (header["name"], name): width
        for header in document["headers"]
        for name, width, *flags in fields[header["header_type"]]
        if not any(flags)
    }


def _primitive(primitive: dict[str, Any], widths: dict[tuple[str, str], int]) -> dict[str, Any]:
    if primitive["op"] != "assign":
        return primitive
    target, source = primitive["parameters"]
    while source["type"] == "expression" and "op" not in source["value"]:
        source = source["value"]
    if source["type"] != "expression":
        return {"op": "modify_field", "parameters": [target, source]}
    operation = source["value"]
    width = widths.get(tuple(target["value"])) if target["type"] == "field" else None
    mask = operation["right"]
    if width and operation["op"] == "&" and mask["type"] == "hexstr":
        inner = operation["left"]
        if int(mask["value"], 16) == (1 << width) - 1 and inner["type"] == "expression":
            operation = inner["value"]
    if operation["op"] not in _COMPUTING or operation["left"] is None:
        return primitive
    left, right = (_argument(operation[side]) for side in ("left", "right"))
    if operation["op"] in _CHANGING and left == target:
        return {"op": _CHANGING[operation["op"]], "parameters": [target, right]}
    return {"op": _COMPUTING[operation["op"]], "parameters": [target, left, right]}


def _argument(operand: dict[str, Any]) -> dict[str, Any]:
    if operand["type"] == "local":
        return {"type": "runtime_data", "value": operand["value"]}
    if operand["type"] == "expression":
        return {"type": "expression", "value": operand}
    return operand


def _move_profiles(pipeline: dict[str, Any]) -> None:
    """Into the tables, where no profile is shared; in the tables' order."""
    profiles = {each["name"]: each for each in pipeline["action_profiles"]}
    users = [table for table in pipeline["tables"] if "action_profile" in table]
    if len({table["action_profile"] for table in users}) < len(users):
        return
    for table in users:
        profile = profiles.pop(table.pop("action_profile"))
        table["act_prof_name"] = profile["name"]
        if "selector" in profile:
            table["selector"] = profile["selector"]
    pipeline["action_profiles"] = list(profiles.values())


def _without_empty_arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_empty_arrays(each) for each in value]
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each != [] or key in _NEEDED}
        return {key: _without_empty_arrays(each) for key, each in kept.items()}
    return value


_NEEDED = ("action_data", "parameters")
"""Arrays that BMv2 requires, empty or not."""


def with_stated_lengths(document: dict[str, Any], lengths: dict[str, Any]) -> dict[str, Any]:
    """A copy where header types state the length of their variable field, as in P4_14.

    ``lengths``: an expression by header type, in which a number is a field of the header itself.
    """
    old = copy.deepcopy(document)
    for kind in old["header_types"]:
        if kind["name"] in lengths:
            kind["length_exp"] = lengths[kind["name"]]
    of_headers = {header["name"]: header["header_type"] for header in old["headers"]}
    for state in old["parsers"][0]["parse_states"]:
        for each in state["parser_ops"]:
            header = each["parameters"][0]["value"]
            if each["op"] == "extract_VL" and of_headers[header] in lengths:
                each.update(op="extract", parameters=each["parameters"][:1])
    return old
