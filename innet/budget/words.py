"""The two 32-bit words of what a cell holds or gets, each as an expression of its own.

p4c writes a pair as one integer: ``high << 32 & mask | low & mask``. A stateful ALU has two words,
so what it is given, compares and gives is told apart here by words, without the masks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from innet.budget.tofino import PIPE
from innet.switch import ir

_BITS = PIPE.alu_word_bits
_ONES = (1 << _BITS) - 1
_ZERO = ir.Const(0)
_CONDITIONS = (ir.Compare, ir.Logical, ir.Not, ir.DataToBool, ir.BoolChoice, ir.BoolConst)


def word(  # noqa: PLR0911 - one line for each kind of expression
    program: ir.Program, item: Any, which: int
) -> Any:
    """Word ``which`` (0: the low one) of an expression, as simple as can be; None: not known."""
    match item:
        case ir.Const(value):
            return ir.Const(value >> _BITS * which & _ONES)
        case ir.RegisterElement(register):
            width = program.registers[register].width
            return _held(register, which) if width > _BITS * which else _ZERO
        case ir.FieldRef(_, field):
            narrow = field == ir.VALID or program.field(item).width <= _BITS
            return _either(which, item, narrow)
        case ir.Choice(condition, left, right):
            parts = word(program, left, which), word(program, right, which)
            if None in parts or parts[0] == parts[1]:
                return parts[0] and parts[1]
            return ir.Choice(plain(program, condition), *parts)
        case ir.Binary(ir.DataOperator.SHIFT_LEFT, left, ir.Const(amount)) if amount == _BITS:
            return _ZERO if which == 0 else word(program, left, 0)
        case ir.Binary(ir.DataOperator.SHIFT_RIGHT, left, ir.Const(amount)) if amount == _BITS:
            return word(program, left, 1) if which == 0 else _ZERO
        case ir.Binary(ir.DataOperator.AND, left, ir.Const(mask)):
            return _masked(program, left, mask, which)
        case ir.Binary(ir.DataOperator.OR | ir.DataOperator.XOR, left, right):
            return _joined(item, word(program, left, which), word(program, right, which))
        case _:  # p4c masks what has 32 bits, so that what gets here may have more
            return _either(which, _plain_parts(program, item), which == 0)


def plain(program: ir.Program, item: Any) -> Any:
    """An expression of one word, or a condition, without masks that change nothing."""
    simple = _plain_parts(program, item)
    match simple:
        case ir.Compare(ir.Comparison.EQ, ir.Choice(flag, ir.Const(1), ir.Const(0)), ir.Const(1)):
            return flag  # that an earlier statement has set
        case _:
            return simple


def _held(register: int, which: int) -> ir.RegisterElement:
    """A word of the cell: its number takes the place of the index."""
    return ir.RegisterElement(register, ir.Const(which))


def _either(which: int, item: Any, narrow: bool) -> Any:
    if not narrow:
        return None
    return item if which == 0 else _ZERO


def _masked(program: ir.Program, item: Any, mask: int, which: int) -> Any:
    part = mask >> _BITS * which & _ONES
    if part == 0:
        return _ZERO
    inner = word(program, item, which)
    if part == _ONES or inner is None:
        return inner
    return ir.Binary(ir.DataOperator.AND, inner, ir.Const(part))


def _joined(item: ir.Binary, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if left == _ZERO:
        return right
    return left if right == _ZERO else dataclasses.replace(item, left=left, right=right)


def _plain_parts(program: ir.Program, item: Any) -> Any:
    if not dataclasses.is_dataclass(item) or isinstance(item, type | ir.FieldRef | ir.Const):
        return item
    changed = {}
    for field in dataclasses.fields(item):
        part = getattr(item, field.name)
        if not dataclasses.is_dataclass(part):
            continue
        simple = plain(program, part) if isinstance(part, _CONDITIONS) else word(program, part, 0)
        changed[field.name] = part if simple is None else simple
    return dataclasses.replace(item, **changed)
