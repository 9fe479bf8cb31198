"""Expressions as Python source, exact where BMv2 computes in unbounded integers.

Emitted integers are int64 and hold values modulo 2**64 (see ``runtime``). With each piece of source
goes the range of the mathematical value. Where it fits int64, or uint64, the machine's number is
the value and may be compared, shifted right or divided. Where it fits neither, only its low 64 bits
are known, which is enough for ``& mask``, ``two_comp_mod`` and writing to fields; what would need
more is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from innet.errors import UnsupportedError
from innet.switch import ir
from innet.switch.jit import plan
from innet.switch.jit.keys import data_width
from innet.switch.jit.layout import Layout

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_UNSIGNED = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Value:
    """Source of an int64 expression and the range of what it stands for."""

    text: str
    low: int
    high: int

    @property
    def signed(self) -> bool:
        """int64 holds it exactly."""
        return self.low >= _LOWEST and self.high <= _HIGHEST

    @property
    def unsigned(self) -> bool:
        """uint64 holds it exactly."""
        return self.low >= 0 and self.high <= _UNSIGNED

    def require_exact(self, where: str) -> None:
        """UnsupportedError when the value may need more than 64 bits."""
        if not (self.signed or self.unsigned):
            raise UnsupportedError(f"{where} on more than 64 bits")


def literal(value: int) -> str:
    """A constant modulo 2**64, as int64."""
    wrapped = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    if wrapped == _LOWEST:
        return "SIGN"
    return str(wrapped) if -10 < wrapped < 256 else hex(wrapped)


class Expressions:
    """Writes expressions for one program.

    Args:
        layout: where fields live.
        hash_value: writes what a calculation needs and returns its value.
        wild: signed fields that may hold values above their type's range (``ir``: "Values").
    """

    def __init__(
        self,
        layout: Layout,
        hash_value: Callable[[int], Value],
        wild: frozenset[ir.FieldRef],
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.hash_value = hash_value
        self.wild = wild

    # ── Integers ──

    def data(self, node: Any) -> Value:  # noqa: PLR0911, PLR0912 - one branch per node
        """An integer expression."""
        match node:
            case ir.Const(value):
                return Value(literal(value), value, value)
            case ir.FieldRef():
                return Value(self.field_text(node), *self.field_range(node))
            case plan.Lane(header, first, _):
                top = (1 << self.program.type_of(header).fields[first].width) - 1
                return Value(self.lane_text(node), 0, top)
            case plan.Argument(table, column, width):
                return Value(self._argument(table, column), 0, (1 << width) - 1)
            case plan.Scalar(name, low, high):
                return Value(name, low, high)
            case plan.Counting(first, step, last):
                return Value(f"({counting(first, step)})", min(first, last), max(first, last))
            case plan.Peek(offset, width):
                text = f"peek(data, base + at, base + size, {offset}, {width})"
                return Value(text, 0, (1 << width) - 1)
            case plan.EntryIndex(table):
                size = self.program.tables[table].max_size
                return Value(f"get(t{table}_indices, t{table}_row)", 0, size - 1)
            case plan.HashValue(calculation):
                return self.hash_value(calculation)
            case ir.Binary(operator, left, right):
                return self._binary(operator, self.data(left), self.data(right))
            case ir.Invert(operand):
                inner = self.data(operand)
                return Value(f"(~{inner.text})", -inner.high - 1, -inner.low - 1)
            case ir.Choice(condition, left, right):
                one, other = self.data(left), self.data(right)
                text = f"({one.text} if {self.condition(condition)} else {other.text})"
                return Value(text, min(one.low, other.low), max(one.high, other.high))
            case ir.BoolToData(operand):
                return Value(f"(1 if {self.condition(operand)} else 0)", 0, 1)
            case _:
                raise AssertionError(f"{type(node).__name__} was not refused at load")

    def _argument(self, table: int, column: int) -> str:
        width = data_width(self.program, self.program.tables[table])
        row = f"t{table}_row" if width == 1 else f"t{table}_row * {width}"
        return f"get(t{table}_data, {row} + {column})" if column else f"get(t{table}_data, {row})"

    def field_text(self, reference: ir.FieldRef) -> str:
        """How a field is read."""
        array = self.layout.array(reference.header, reference.field)
        if array is None:
            return self.layout.name(reference.header, reference.field)
        return f"int64({array.name}[{reference.field - array.first}])"

    def lane_text(self, lane: plan.Lane) -> str:
        """How a lane is read inside its loop."""
        local = self.layout.local(lane)
        return local or f"int64({self.lane_element(lane)})"

    def lane_element(self, lane: plan.Lane) -> str:
        """The array element of a lane."""
        array = self.layout.array(lane.header, lane.first)
        assert array is not None, lane
        return f"{array.name}[{counting(lane.first - array.first, lane.stride)}]"

    def field_range(self, reference: ir.FieldRef) -> tuple[int, int]:
        """The values that a field may have."""
        field = self.program.field(reference)
        if not field.signed:
            return 0, (1 << field.width) - 1
        high = 1 << (field.width if reference in self.wild else field.width - 1)
        return -(1 << (field.width - 1)), high - 1

    def _binary(  # noqa: PLR0911 - one branch per operator
        self, operator: ir.DataOperator, left: Value, right: Value
    ) -> Value:
        kind = ir.DataOperator
        match operator:
            case kind.ADD:
                return _joined("+", left, right, left.low + right.low, left.high + right.high)
            case kind.SUB:
                return _joined("-", left, right, left.low - right.high, left.high - right.low)
            case kind.MUL:
                ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
                return _joined("*", left, right, min(ends), max(ends))
            case kind.AND | kind.OR | kind.XOR:
                return _bitwise(operator, left, right)
            case kind.SHIFT_LEFT | kind.SHIFT_RIGHT:
                return _shift(operator, left, right)
            case kind.DIV | kind.MOD:
                return _divide(operator, left, right)
            case _:
                assert right.low == right.high, "the width of a cast is a constant"
                return _cast(operator, left, right.low)

    # ── Booleans ──

    def condition(self, node: Any) -> str:  # noqa: PLR0911 - one branch per node
        """A boolean expression."""
        match node:
            case ir.BoolConst(value):
                return str(value)
            case ir.DataToBool(operand):
                inner = self.data(operand)
                inner.require_exact("a test for zero")
                return f"({inner.text} != 0)"
            case ir.Compare(operator, left, right):
                return self._compare(operator.value, self.data(left), self.data(right))
            case ir.Logical(operator, left, right):
                return f"({self.condition(left)} {operator.value} {self.condition(right)})"
            case ir.Not(operand):
                return f"(not {self.condition(operand)})"
            case ir.BoolChoice(condition, left, right):
                one, other = self.condition(left), self.condition(right)
                return f"({one} if {self.condition(condition)} else {other})"
            case ir.Valid(ir.HeaderRef(header)):
                return self.layout.name(header, ir.VALID)
            case plan.Hit(table):
                return f"(t{table}_row != 0)"
            case plan.ActionIs(table, position):
                return f"(t{table}_action == {position})"
            case plan.InSet(value_set, words, masks):
                key = "".join(f"{self.data(word).text}, " for word in words)
                ones = "".join(f"{literal(mask)}, " for mask in masks)
                return f"in_set(vs{value_set}, ({key}), ({ones}))"
            case plan.Flag(name):
                return name
            case _:
                raise AssertionError(f"{type(node).__name__} was not refused at load")

    def _compare(self, operator: str, left: Value, right: Value) -> str:
        left.require_exact("a comparison")
        right.require_exact("a comparison")
        if left.signed and right.signed:
            return f"({left.text} {operator} {right.text})"
        if not (left.unsigned and right.unsigned):
            raise UnsupportedError("a comparison of a negative number with one of 64 bits")
        if operator in ("==", "!="):
            return f"({left.text} {operator} {right.text})"
        order = {"<": "less({0}, {1})", ">": "less({1}, {0})"}
        order |= {"<=": "(not less({1}, {0}))", ">=": "(not less({0}, {1}))"}
        return order[operator].format(left.text, right.text)

    # ── What a place keeps of a value ──

    def kept(self, reference: ir.FieldRef, value: Value) -> str:
        """The source of what a field keeps of ``value`` when it is written to it."""
        field = self.program.field(reference)
        if field.saturating:
            kind = ir.DataOperator
            return _cast(kind.SAT_CAST if field.signed else kind.USAT_CAST, value, field.width).text
        if not field.signed:
            return truncated(value, field.width)
        low, high = self.field_range(reference)
        if low <= value.low and value.high <= high:
            return value.text
        wrapped = _cast(ir.DataOperator.TWO_COMP_MOD, value, field.width).text
        if reference not in self.wild:
            return wrapped
        value.require_exact("writing to a signed field")
        if not value.signed or field.width == 64:
            raise UnsupportedError(
                f"values of 64 bits written to the signed field {self.program.name_of(reference)}"
            )
        inside = f"{literal(low)} <= {value.text} <= {literal(high)}"
        return f"({value.text} if {inside} else {wrapped})"


def counting(first: int, step: int) -> str:
    """``first + step * k`` as an index."""
    text = "k" if step == 1 else f"{step} * k"
    return f"{text} + {first}" if first else text


def truncated(value: Value, width: int) -> str:
    """``value`` modulo 2**width, as an unsigned number."""
    mask = (1 << width) - 1
    if width >= 64 or (value.low >= 0 and value.high <= mask):
        return value.text
    return f"({value.text} & {literal(mask)})"


def _joined(symbol: str, left: Value, right: Value, low: int, high: int) -> Value:
    return Value(f"({left.text} {symbol} {right.text})", low, high)


def _bitwise(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    symbol = operator.value
    if operator is ir.DataOperator.AND:
        for mask, other in ((left, right), (right, left)):
            if 0 <= mask.low == mask.high and _covers(mask.low, other):
                return other  # every bit that can be set passes
            if mask.low == mask.high == _UNSIGNED:
                return Value(other.text, 0, _UNSIGNED)
        if left.low >= 0 or right.low >= 0:
            highs = [side.high for side in (left, right) if side.low >= 0]
            return _joined(symbol, left, right, 0, min(highs))
    bits = max(abs(bound).bit_length() for bound in (left.low, left.high, right.low, right.high))
    low = 0 if left.low >= 0 and right.low >= 0 else -(1 << bits)
    return _joined(symbol, left, right, low, (1 << bits) - 1)


def _covers(mask: int, value: Value) -> bool:
    return value.low >= 0 and value.high <= mask and mask & (mask + 1) == 0


def _shift(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    right.require_exact("a shift amount")
    least, most = max(right.low, 0), min(max(right.high, 0), 1 << 16)
    fixed = right.low == right.high
    if operator is ir.DataOperator.SHIFT_LEFT:
        low = min(left.low << least, left.low << most)
        high = max(left.high << least, left.high << most)
        if fixed:
            text = f"({left.text} << {least})" if least < 64 else "0"
        else:
            text = f"shift_left({left.text}, {right.text})"
        return Value(text, low, high)
    left.require_exact("a right shift")
    low = min(left.low >> least, left.low >> most)
    high = max(left.high >> least, left.high >> most)
    if not left.signed:
        return Value(f"shift_right_unsigned({left.text}, {right.text})", low, high)
    if fixed:
        return Value(f"({left.text} >> {min(least, 63)})", low, high)
    return Value(f"shift_right({left.text}, {right.text})", low, high)


def _divide(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    left.require_exact("a division")
    right.require_exact("a division")
    if left.low < 0 or right.low < 0:
        raise UnsupportedError("a division of negative numbers")
    name = "divide" if operator is ir.DataOperator.DIV else "modulo"
    high = left.high if name == "divide" else max(min(left.high, right.high - 1), 0)
    if left.signed and right.signed and right.low > 0:
        symbol = "//" if name == "divide" else "%"
        if right.low == right.high and right.low & (right.low - 1) == 0:
            shift = right.low.bit_length() - 1
            mask = literal(right.low - 1)
            text = f"{left.text} >> {shift}" if symbol == "//" else f"{left.text} & {mask}"
            return Value(f"({text})", 0, high)
        return Value(f"({left.text} {symbol} {right.text})", 0, high)
    return Value(f"{name}({left.text}, {right.text})", 0, high)


def _cast(operator: ir.DataOperator, value: Value, width: int) -> Value:
    if operator is ir.DataOperator.USAT_CAST:
        low, high = 0, (1 << width) - 1
    else:
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    if low <= value.low and value.high <= high:
        return value
    if operator is ir.DataOperator.TWO_COMP_MOD:
        if width > 64:
            raise UnsupportedError(f"a cast to {width} bits")
        shift = 64 - width
        text = f"(({value.text} << {shift}) >> {shift})" if shift else value.text
        return Value(text, low, high)
    value.require_exact("a saturating cast")
    if not value.signed or high > _HIGHEST:
        raise UnsupportedError("a saturating cast on 64 bits")
    return Value(f"clamp({value.text}, {literal(low)}, {literal(high)})", low, high)
