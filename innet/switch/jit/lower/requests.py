"""What a program asks of the switch: clones, digests, resubmission, recirculation, random numbers.

A request is a variable that the end of the pipeline looks at; the last call wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.lower.terms import Terms

# Any: expressions of the plan stand where the program's own types name only the program's.
#: The mirror session that a clone goes to, -1 where none was asked for, and the metadata it keeps.
CLONE_SESSION: Any = lowered.Scalar("clone_session", -1, 0x7FFF)
CLONE_LIST: Any = lowered.Scalar("clone_list", 0, 0xFFFF)
#: ``LearnList.id`` of a digest, 0 for none.
LEARN_LIST: Any = lowered.Scalar("learn_list", 0, 0xFFFF)
#: ``FieldList.id`` of what is kept when the packet comes again, 0 where it does not.
RESUBMIT_LIST: Any = lowered.Scalar("resubmit_list", 0, 0xFFFF)
RECIRCULATE_LIST: Any = lowered.Scalar("recirculate_list", 0, 0xFFFF)

#: Every request, and what it is where nothing was asked for.
REQUESTS = {CLONE_SESSION: -1, CLONE_LIST: 0, LEARN_LIST: 0, RESUBMIT_LIST: 0, RECIRCULATE_LIST: 0}

_WORD = (1 << 64) - 1

Resolve = Callable[[Any], Any]


def lower_request(
    primitive: ir.Clone | ir.Digest | ir.Resubmit | ir.Recirculate, data: Resolve
) -> lowered.Body:
    """The statements of one primitive; ``data`` resolves its expressions."""
    match primitive:
        case ir.Clone(_, session, field_list):
            number = ir.Binary(ir.DataOperator.AND, _uint16(data(session)), ir.Const(0x7FFF))
            return (
                lowered.Assign(CLONE_SESSION, number),
                lowered.Assign(CLONE_LIST, _uint16(data(field_list))),
            )
        case ir.Digest(_, learn_list):
            return (lowered.Assign(LEARN_LIST, _uint16(data(learn_list))),)
        case ir.Resubmit(field_list):
            return (lowered.Assign(RESUBMIT_LIST, _uint16(data(field_list))),)
        case ir.Recirculate(field_list):
            return (lowered.Assign(RECIRCULATE_LIST, _uint16(data(field_list))),)


def _uint16(value: Any) -> Any:
    """The lower 16 bits, which is what BMv2 keeps of a session or of the id of a list."""
    if isinstance(value, ir.Const):
        return ir.Const(value.value & 0xFFFF)
    return ir.Binary(ir.DataOperator.AND, value, ir.Const(0xFFFF))


def lower_random(primitive: ir.Random, terms: Terms) -> lowered.Body:
    """Draw and assign, unless the bounds are the wrong way round."""
    low, high = _word(terms.resolve(primitive.low)), _word(terms.resolve(primitive.high))
    fixed = isinstance(low, ir.Const) and isinstance(high, ir.Const)
    drawn: Any = lowered.Scalar("drawn", 0, high.value if fixed else _WORD)
    then = (lowered.Draw(drawn, low, high), *terms.assign(primitive.target, drawn))
    if fixed:
        return then if low.value <= high.value else ()
    return (lowered.If(ir.Compare(ir.Comparison.LE, low, high), then, ()),)


def _word(value: Any) -> Any:
    """``value`` modulo 2**64."""
    if isinstance(value, ir.Const):
        return ir.Const(value.value & _WORD)
    return ir.Binary(ir.DataOperator.AND, value, ir.Const(_WORD))
