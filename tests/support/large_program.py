"""A program of any size, made from a small one: table after table, mixing the packet's fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SMALL = Path(__file__).parents[1] / "programs" / "tools_clock.json"
_WIDTHS = (8, 16, 24, 32, 48, 64, 72, 40)
_FIELDS = 24


def large_program(tables: int) -> dict[str, Any]:
    """``tools_clock`` with a longer header and ``tables`` tables at the end of its ingress.

    Each has a key of one field, exact or ternary, and two actions that change others.
    """
    document: dict[str, Any] = json.loads(_SMALL.read_text())
    [way] = [each for each in document["header_types"] if each["name"] == "way_t"]
    way["fields"] += [[f"f{i}", _WIDTHS[i % len(_WIDTHS)], False] for i in range(_FIELDS)]
    ingress = document["pipelines"][0]
    first = len(document["actions"])
    number = 1 + max(
        each["id"] for pipeline in document["pipelines"] for each in pipeline["tables"]
    )
    names = [f"large_{i}" for i in range(tables)]
    _lead_to(ingress, names[0])
    for i, name in enumerate(names):
        following = names[i + 1] if i + 1 < tables else None
        actions = [_action(first + 2 * i, i, "+"), _action(first + 2 * i + 1, i, "^")]
        document["actions"] += actions
        ingress["tables"].append(_table(number + i, i, name, actions, following))
    return document


def _lead_to(pipeline: dict[str, Any], table: str) -> None:
    """Let what ended the pipeline go on with ``table``."""
    for each in pipeline["tables"]:
        following = each["next_tables"]
        each["next_tables"] = {name: node or table for name, node in following.items()}
        each["base_default_next"] = each["base_default_next"] or table
    for each in pipeline["conditionals"]:
        each["true_next"] = each["true_next"] or table
        each["false_next"] = each["false_next"] or table


def _field(number: int) -> dict[str, Any]:
    return {"type": "field", "value": ["way", f"f{number % _FIELDS}"]}


def _action(identifier: int, number: int, operator: str) -> dict[str, Any]:
    """Two assignments; the first one has the action's argument in it."""
    mask = {"type": "hexstr", "value": hex((1 << _WIDTHS[(number + 1) % len(_WIDTHS)]) - 1)}
    argument = {"type": "runtime_data", "value": 0}
    changed = _expression(operator, _field(number + 1), argument)
    one = [_field(number + 1), _outer(_expression("&", changed, mask))]
    other = [_field(number + 9), _field(number + 17)]  # of the same width
    return {
        "name": f"large_{number}_{identifier}",
        "id": identifier,
        "runtime_data": [{"name": "by", "bitwidth": 32}],
        "primitives": [{"op": "assign", "parameters": each} for each in (one, other)],
    }


def _expression(operator: str, left: Any, right: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": operator, "left": left, "right": right}}


def _outer(expression: dict[str, Any]) -> dict[str, Any]:
    return {"type": "expression", "value": expression}


def _table(
    identifier: int, number: int, name: str, actions: list[dict[str, Any]], following: str | None
) -> dict[str, Any]:
    match = ("exact", "ternary")[number % 2]
    names = [each["name"] for each in actions]
    key = {
        "match_type": match,
        "name": f"f{number % _FIELDS}",
        "target": _field(number)["value"],
        "mask": None,
    }
    return {
        "name": name,
        "id": identifier,
        "key": [key],
        "match_type": match,
        "type": "simple",
        "max_size": 64,
        "with_counters": number % 7 == 0,
        "support_timeout": False,
        "direct_meters": None,
        "action_ids": [each["id"] for each in actions],
        "actions": names,
        "base_default_next": following,
        "next_tables": dict.fromkeys(names, following),
        "default_entry": {
            "action_id": actions[1]["id"],
            "action_const": False,
            "action_data": [hex(number)],
            "action_entry_const": False,
        },
    }
