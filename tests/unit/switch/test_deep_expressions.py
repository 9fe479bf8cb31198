"""Expressions nested as deep as BMv2's reader takes them, in both engines."""

from __future__ import annotations

import json
from functools import reduce
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.json_expressions import constant, field, operation
from support.tiers import tiered

from innet.core.errors import ProgramError
from innet.switch import Switch

PROGRAM = Path(__file__).parents[2] / "programs" / "fuzz_wide.json"
OP, BY, SMALL = field("op", "op"), field("op", "by"), field("long", "e")
PACKET = (
    bytes([0xA7]) + bytes.fromhex("b3c5") + bytes(range(32)) + bytes(range(100, 132)) + b"y" * 9
)
VALUES = {"op": (0xA7, 8), "by": (0xB3C5, 16), "e": (PACKET[-1] & 0x7F, 7)}


def masked(width, node):
    return operation("&", node, constant((1 << width) - 1))


def concatenated(count):
    """``op ++ by ++ e ++ op ++ ...`` as p4c writes it, and its value."""
    made, number, total = OP, *VALUES["op"]
    for part in islice(cycle([BY, SMALL, OP]), count - 1):
        value, width = VALUES[part["value"][1]]
        total += width
        left = masked(total, operation("<<", masked(total, made), constant(width)))
        made, number = operation("|", left, masked(total, part)), number << width | value
    return made, number


def summed(count):
    sums = (masked(16, BY) for _ in range(count))
    return reduce(lambda a, b: masked(16, operation("+", a, b)), sums), count * 0xB3C5 % (1 << 16)


def signed(count):
    """``int<16>`` sums, which p4c casts after each step."""
    made = BY
    for _ in range(count):
        made = operation("two_comp_mod", operation("+", made, BY), constant(16))
    number = (count + 1) * 0xB3C5 % (1 << 16)
    return masked(16, made), number


def united(count):
    parts = [operation(">>", BY, constant(i % 16)) for i in range(count)]
    number = reduce(lambda a, b: a | b, (0xB3C5 >> (i % 16) for i in range(count)))
    return reduce(lambda a, b: operation("|", b, a), parts), number


def any_of(count):
    """True by the last comparison only, which is the innermost."""
    parts = [operation("==", OP, constant(i + 0xA7)) for i in reversed(range(count))]
    condition = reduce(lambda a, b: operation("or", b, a), reversed(parts))
    return operation("b2d", None, condition), 1


def chosen(count):
    made = SMALL
    for i in range(count):
        made = operation("?", made, BY)
        made["value"]["cond"] = operation("!=", OP, constant(i + 200))
    return made, VALUES["e"][0]


@pytest.mark.repeats("the same with another operator", but=["summed-*"])
@pytest.mark.parametrize(
    ("make", "count"),
    tiered(
        [
            (concatenated, 120),
            (summed, 245),
            (signed, 245),
            (united, 480),
            (any_of, 480),
            (chosen, 480),
        ],
        [(concatenated, 120), (summed, 245), (any_of, 480), (chosen, 480)],
        "the same with another operator",
    ),
    ids=lambda each: getattr(each, "__name__", each),
)
def test_as_deep_as_simple_switch_reads(make, count):
    changed = json.loads(PROGRAM.read_text())
    expression, number = make(count)
    target = [field("long", "c"), {"type": "expression", "value": expression}]
    changed["deparsers"][0]["primitives"] = [{"op": "assign", "parameters": target}]
    for engine in ("interpret", "jit"):
        [(_, data)] = Switch.load(changed, engine).process([(0, PACKET)])
        assert int.from_bytes(data[35:67], "big") == number % (1 << 256), engine


def test_deeper_ones_are_refused():
    changed = json.loads(PROGRAM.read_text())
    target = [field("long", "c"), {"type": "expression", "value": united(520)[0]}]
    changed["deparsers"][0]["primitives"] = [{"op": "assign", "parameters": target}]
    with pytest.raises(ProgramError, match="deeper than 1000 levels, which simple_switch does not"):
        Switch.load(changed)
