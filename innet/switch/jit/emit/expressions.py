"""Lowered expressions as Python source; ``arithmetic`` has the operations on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from innet.core.errors import UnsupportedError
from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.switch.jit import lowered
from innet.switch.jit.emit import arithmetic
from innet.switch.jit.emit.arithmetic import Value, affine, literal, truncated
from innet.switch.jit.emit.layout import ArrayVariable, RegisterLayout, VariableLayout
from innet.switch.jit.lowered import WIDTH
from innet.switch.state.entries import (
    NO_ACTION,
    common_argument_words,
    row_actions,
)
from innet.switch.state.hashes import RESULT_BITS

__all__ = ["Expressions", "Value", "affine", "literal", "truncated"]


#: A varbit field that may have more bits cannot be computed with, which P4 never does.
_NUMBER = 8192


def row_variable(table: ir.Table, index: int) -> str:
    """The variable with the row that the last look-up in a table found."""
    return f"t{index}_row" if table.kind is ir.TableKind.SIMPLE else f"t{index}_entry"


def index_variable(index: int) -> str:
    """The variable with the index of the entry that the last look-up in a table found."""
    return f"t{index}_index"


class Expressions:
    """Writes expressions for one program.

    Args:
        layout: where fields live.
        hash_value: writes what a calculation needs and returns its value.
        registers: where they are.

    Attributes:
        hit_time: source of the time that a look-up notes for the entry that it hits.
        length: source of the length with which the packet in hand was received.
        summed_once: arrays whose sum is the same for all copies of a packet, while those are
            written; and whether a checksum needs it.
        in_loop: what is written now is computed for each lane of a loop.
        carried: fields that are made of themselves there, which LLVM only takes for what is summed
            over the lanes while they have one width.
    """

    def __init__(
        self,
        layout: VariableLayout,
        hash_value: Callable[[int], Value],
        registers: RegisterLayout,
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.hash_value = hash_value
        self.registers = registers
        self.hit_time = "clock"
        self.length = "size"
        self.summed_once: dict[ArrayVariable, bool] = {}
        self.in_loop = False
        self.carried: frozenset[Any] = frozenset()

    # ── Integers ──

    def data(self, node: Any) -> Value:
        """An integer expression."""
        value = self._data(node)
        return replace(value, in_loop=True) if self.in_loop and not value.in_loop else value

    def _data(self, node: Any) -> Value:  # noqa: PLR0911, PLR0912 - one branch per node
        match node:
            case ir.Const(value):
                return arithmetic.constant(value)
            case ir.FieldRef():
                return self.field(node)
            case lowered.Lane(header, first, _):
                top = (1 << self.program.type_of(header).fields[first].width) - 1
                return Value(self.lane_text(node), 0, top)
            case lowered.Argument():
                return self._argument(node)
            case lowered.IntVariable(name, low, high):
                return arithmetic.variable(name, low, high)
            case lowered.Affine(first, step, last):
                return Value(f"({affine(first, step)})", min(first, last), max(first, last))
            case lowered.Peek(offset, width):
                return _peek(offset, width)
            case lowered.VarbitOffset(header, field):
                return Value(self.layout.name(header, field), -1, lowered.LAST_BIT)
            case lowered.VarbitWidth(header):
                return Value(self.layout.name(header, WIDTH), 0, lowered.LAST_BIT)
            case lowered.EntryIndex(table):
                size = self.program.tables[table].max_size
                return Value(index_variable(table), 0, size - 1)
            case lowered.HashValue(calculation):
                return self.hash_value(calculation)
            case ir.Binary(operator, left, right):
                values = self.data(left), self.data(right)
                if left in self.carried or right in self.carried:
                    values = replace(values[0], in_loop=False), replace(values[1], in_loop=False)
                return arithmetic.binary(operator, *values)
            case ir.Invert(operand):
                return arithmetic.invert(self.data(operand))
            case ir.Choice(condition, left, right):
                one, other = self.data(left), self.data(right)
                return arithmetic.choice(self.condition(condition), one, other)
            case ir.BoolToData(operand):
                return arithmetic.choice(
                    self.condition(operand), self.data(ir.Const(1)), self.data(ir.Const(0))
                )
            case _:
                raise AssertionError(f"{type(node).__name__} was not refused at load")

    def _found_row(self, table: int) -> str:
        return row_variable(self.program.tables[table], table)

    def _argument(self, node: lowered.Argument) -> Value:
        table = node.table
        possible = row_actions(self.program, self.program.tables[table])
        width = common_argument_words(self.program.actions, possible)
        if width is None:
            row = f"get(t{table}_offsets, t{table}_row)"
        else:
            row = f"t{table}_row" if width == 1 else f"t{table}_row * {width}"
        every = Value("", node.low, node.high).bits

        def at(bits: int) -> str:
            column = node.column + (every - bits) // 64
            element = f"t{table}_data, {row} + {column}" if column else f"t{table}_data, {row}"
            return f"get({element})" if bits == 64 else f"get_words({element}, {bits // 64})"

        return Value(at(64), node.low, node.high, at)

    def field(self, reference: ir.FieldRef) -> Value:
        """A field as it is now."""
        header, field = reference.header, reference.field
        if self.program.field(reference).variable:
            return self._variable(reference)
        low, high = self.field_range(reference)
        if self.layout.limbs(header, field) == 1:
            return Value(self.field_text(reference), low, high)
        return arithmetic.variable(self.layout.name(header, field), low, high)

    def _variable(self, reference: ir.FieldRef) -> Value:
        """A varbit field as a number."""
        width = self.program.field(reference).width
        start, taken = self._variable_bits(reference)
        if width > _NUMBER:
            name = self.program.name_of(reference)
            raise UnsupportedError(f"{name}, a varbit field of up to {width} bits, as a number")

        def at(bits: int) -> str:
            above = range(bits - 64, -1, -64)
            parts = [f"bits_at(data, {start}, {taken} - {skipped})" for skipped in above]
            return parts[0] if bits == 64 else f"words(({', '.join(parts)}))"

        return Value(at(64), 0, (1 << width) - 1, at)

    def _variable_bits(self, reference: ir.FieldRef) -> tuple[str, str]:
        """Where a varbit field begins, and its width."""
        header = reference.header
        return self.layout.name(header, reference.field), self.layout.name(header, WIDTH)

    def field_text(self, reference: ir.FieldRef) -> str:
        """How a field of at most 64 bits is read."""
        array = self.layout.array(reference.header, reference.field)
        if array is None:
            return self.layout.name(reference.header, reference.field)
        return f"int64({array.name}[{reference.field - array.first}])"

    def lane_text(self, lane: lowered.Lane) -> str:
        """How a lane is read inside its loop."""
        local = self.layout.local(lane)
        return local or f"int64({self.lane_element(lane)})"

    def lane_element(self, lane: lowered.Lane) -> str:
        """The array element of a lane."""
        array = self.layout.array(lane.header, lane.first)
        assert array is not None, lane
        return f"{array.name}[{affine(lane.first - array.first, lane.stride)}]"

    def field_range(self, reference: ir.FieldRef) -> tuple[int, int]:
        """The values that a field may have."""
        field = self.program.field(reference)
        if not field.signed:
            return 0, (1 << field.width) - 1
        high = 1 << (field.width if reference in self.layout.overflowing else field.width - 1)
        return -(1 << (field.width - 1)), high - 1

    # ── Booleans ──

    def condition(self, node: Any) -> str:  # noqa: PLR0911 - one branch per node
        """A boolean expression."""
        match node:
            case ir.BoolConst(value):
                return str(value)
            case ir.DataToBool(operand):
                return arithmetic.compare("!=", self.data(operand), arithmetic.constant(0))
            case ir.Compare():
                return self._compare(node)
            case ir.Logical(operator, left, right):
                return f"({self.condition(left)} {operator.value} {self.condition(right)})"
            case ir.Not(operand):
                return f"(not {self.condition(operand)})"
            case ir.BoolChoice(condition, left, right):
                one, other = self.condition(left), self.condition(right)
                return f"({one} if {self.condition(condition)} else {other})"
            case ir.Valid(ir.HeaderRef(header)):
                return self.layout.name(header, ir.VALID)
            case lowered.Hit(table):
                return f"({self._found_row(table)} != 0)"
            case lowered.ActionIs(table, position):
                number = NO_ACTION if position < 0 else position
                return f"(t{table}_action == {number})"
            case lowered.InValueSet(value_set, words, masks):
                key = "".join(f"{self.data(word).text}, " for word in words)
                ones = "".join(f"{literal(mask)}, " for mask in masks)
                return f"in_value_set(vs{value_set}, ({key}), ({ones}))"
            case lowered.BoolVariable(name):
                return name
            case _:
                raise AssertionError(f"{type(node).__name__} was not refused at load")

    def _compare(self, node: ir.Compare) -> str:
        left, right = node.left, node.right
        if isinstance(left, ir.FieldRef) and isinstance(right, ir.FieldRef):
            both = (self.program.field(left), self.program.field(right))
            if node.operator is ir.Comparison.EQ and all(field.variable for field in both):
                parts = (*self._variable_bits(left), *self._variable_bits(right))
                return f"same_numbers(data, {', '.join(parts)})"
        return arithmetic.compare(node.operator.value, self.data(left), self.data(right))

    # ── What a place keeps of a value ──

    def fit_to_field(self, reference: ir.FieldRef, value: Value) -> str:
        """The source of what a field's variable is to be when ``value`` is written to the field."""
        field = self.program.field(reference)
        bits = 64 * self.layout.limbs(reference.header, reference.field)
        if field.saturating:
            kind = ir.DataOperator
            operator = kind.SAT_CAST if field.signed else kind.USAT_CAST
            return arithmetic.cast(operator, value, field.width).at(bits)
        if not field.signed:
            return truncated(value, field.width)
        low, high = self.field_range(reference)
        if low <= value.low and value.high <= high:
            return value.at(bits)
        wrapped = arithmetic.cast(ir.DataOperator.TWO_COMP_MOD, value, field.width)
        if reference not in self.layout.overflowing:
            return wrapped.at(bits)
        if bits == 64 and value.fits_int64:
            inside = f"{literal(low)} <= {value.text} <= {literal(high)}"
            return f"({value.text} if {inside} else {wrapped.text})"
        bounds = ("<=", arithmetic.constant(high)), (">=", arithmetic.constant(low))
        inside = " and ".join(arithmetic.compare(symbol, value, end) for symbol, end in bounds)
        return arithmetic.choice(inside, value, wrapped).at(bits)


def _peek(offset: int, width: int) -> Value:
    """Bits that lie ahead, each word by itself."""

    def part(begin: int, length: int) -> str:
        return f"peek(data, base + at, base + size, {begin}, {length})"

    def at(bits: int) -> str:
        ends = range(width - bits + 64, width + 1, 64)
        parts = [part(offset + max(end - 64, 0), min(end, 64)) for end in ends]
        return parts[0] if bits == 64 else f"words(({', '.join(parts)}))"

    return Value(at(64), 0, (1 << width) - 1, at)


# ── Values above a signed field's range ──────────────────────────────────────────────────────────
#
# Writing 200 to an ``int<8>`` leaves 200 in simple_switch, not -56 (see ``ir``: "Values"). p4c puts
# a cast before nearly every such write. So the few fields for which it cannot be excluded are found
# here, and all others are plain two's complement.


def find_overflowing_fields(
    bodies: tuple[lowered.Body, ...], layout: VariableLayout, registers: RegisterLayout
) -> None:
    """Set ``layout.overflowing``: the least set of signed fields closed under assignments."""
    program = layout.program

    def hash_value(calculation: int) -> Value:
        width = RESULT_BITS[program.hashes[calculation].algorithm]
        return Value("", 0, (1 << width) - 1)

    expressions = Expressions(layout, hash_value, registers)
    while True:
        more: set[Any] = {
            node.target
            for node in walk(bodies)
            if isinstance(node, lowered.SetInteger | lowered.LoadCell | lowered.MeterPacket)
            and _overflows(program, expressions, node)
        }
        if more <= layout.overflowing:
            return
        layout.overflowing |= more


def _overflows(
    program: ir.Program,
    expressions: Expressions,
    write: lowered.SetInteger | lowered.LoadCell | lowered.MeterPacket,
) -> bool:
    """Whether a write to a signed field may leave a value above the field's range in it."""
    target = write.target
    if not isinstance(target, ir.FieldRef):
        return False
    field = program.field(target)
    if not field.signed or field.saturating:
        return False
    if isinstance(write, lowered.LoadCell):
        high = expressions.registers.highest(write.register)
    elif isinstance(write, lowered.MeterPacket):
        high = program.meters[write.meter].rates
    else:
        high = expressions.data(write.value).high
    return high >= 1 << (field.width - 1)
