"""Which signed fields may hold values above their type's range.

Writing 200 to an ``int<8>`` leaves 200 in simple_switch, not -56 (see ``ir``: "Values"). p4c puts a
cast before nearly every such write, so the few fields for which it cannot be excluded are found
here and all others are plain two's complement.
"""

from __future__ import annotations

from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.emit.expressions import Expressions, Value
from innet.switch.jit.layout import Layout
from innet.switch.jit.register_places import RegisterPlaces
from innet.switch.jit.tree import walk
from innet.switch.state.hashes import RESULT_BITS


def find_wild_fields(
    bodies: tuple[lowered.Body, ...], layout: Layout, places: RegisterPlaces
) -> None:
    """Set ``layout.wild`` to the least set of signed fields that is closed under assignments."""
    program = layout.program

    def hash_value(calculation: int) -> Value:
        width = RESULT_BITS[program.hashes[calculation].algorithm]
        return Value("", 0, (1 << width) - 1)

    expressions = Expressions(layout, hash_value, places)
    while True:
        more: set[Any] = {
            node.target
            for node in walk(bodies)
            if isinstance(node, lowered.Assign | lowered.RegisterRead | lowered.ExecuteMeter)
            and _overflows(program, expressions, node)
        }
        if more <= layout.wild:
            return
        layout.wild |= more


def _overflows(
    program: ir.Program,
    expressions: Expressions,
    write: lowered.Assign | lowered.RegisterRead | lowered.ExecuteMeter,
) -> bool:
    """Whether a write to a signed field may leave a value above the field's range in it."""
    target = write.target
    if not isinstance(target, ir.FieldRef):
        return False
    field = program.field(target)
    if not field.signed or field.saturating:
        return False
    if isinstance(write, lowered.RegisterRead):
        high = expressions.places.highest(write.register)
    elif isinstance(write, lowered.ExecuteMeter):
        high = program.meters[write.meter].rates
    else:
        high = expressions.data(write.value).high
    return high >= 1 << (field.width - 1)
