"""Expressions of BMv2 JSON."""

from __future__ import annotations

from typing import Any


def operation(op: str, left: Any, right: Any) -> dict[str, Any]:
    """An expression; an operand that is an integer is the number of a field or argument."""
    sides = [
        {"type": "local", "value": side} if isinstance(side, int) else side
        for side in (left, right)
    ]
    return {"type": "expression", "value": {"op": op, "left": sides[0], "right": sides[1]}}


def constant(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(value)}


def field(header: str, name: str) -> dict[str, Any]:
    return {"type": "field", "value": [header, name]}
