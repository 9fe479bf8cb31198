"""Expressions, hashes and checksums as Python functions of a packet.

Each method turns a node into a closure once, when the program is loaded, so that packets do not
dispatch on node classes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import singledispatchmethod
from typing import Any

from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import SwitchState, cell_value, set_cell
from innet.switch.interpreter.packet import FieldLayout, HeaderCodec, Packet, fit_to_field
from innet.switch.interpreter.packet_log import PacketLog
from innet.switch.interpreter.tracing import Trace

Data = Callable[[Packet], int]
Bool = Callable[[Packet], bool]
Find = Callable[[Packet], int]
"""Finds a header (or union) instance; -1 when the index of a stack is out of bounds."""
Store = Callable[[Packet, int], None]

OUT_OF_BOUNDS = -1
UINT32 = (1 << 32) - 1
UINT64 = (1 << 64) - 1


def _truncating_divide(left: int, right: int) -> int:
    if right == 0:
        return 0
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return 0 if right == 0 else left - right * _truncating_divide(left, right)


def _shift_left(value: int, amount: int) -> int:
    return value << amount if 0 <= amount <= ir.MAX_SHIFT else 0


def _shift_right(value: int, amount: int) -> int:
    if 0 <= amount <= ir.MAX_SHIFT:
        return value >> amount
    return -1 if value < 0 else 0


def _two_comp_mod(value: int, width: int) -> int:
    half = 1 << (width - 1)
    return ((value + half) & ((1 << width) - 1)) - half


def _saturate_signed(value: int, width: int) -> int:
    half = 1 << (width - 1)
    return min(max(value, -half), half - 1)


def _saturate_unsigned(value: int, width: int) -> int:
    return min(max(value, 0), (1 << width) - 1)


OPERATORS: dict[ir.DataOperator, Callable[[int, int], int]] = {
    ir.DataOperator.ADD: operator.add,
    ir.DataOperator.SUB: operator.sub,
    ir.DataOperator.MUL: operator.mul,
    ir.DataOperator.DIV: _truncating_divide,
    ir.DataOperator.MOD: _remainder,
    ir.DataOperator.SHIFT_LEFT: _shift_left,
    ir.DataOperator.SHIFT_RIGHT: _shift_right,
    ir.DataOperator.AND: operator.and_,
    ir.DataOperator.OR: operator.or_,
    ir.DataOperator.XOR: operator.xor,
    ir.DataOperator.TWO_COMP_MOD: _two_comp_mod,
    ir.DataOperator.SAT_CAST: _saturate_signed,
    ir.DataOperator.USAT_CAST: _saturate_unsigned,
}
"""The function of each operator of two integers."""

_COMPARISONS: dict[ir.Comparison, Callable[[Any, Any], bool]] = {
    ir.Comparison.EQ: operator.eq,
    ir.Comparison.NE: operator.ne,
    ir.Comparison.LT: operator.lt,
    ir.Comparison.LE: operator.le,
    ir.Comparison.GT: operator.gt,
    ir.Comparison.GE: operator.ge,
}


class ExpressionCompiler:
    """Compiles expressions over a program's layout and registers to closures.

    Args:
        trace: called for reads and writes of registers.
    """

    def __init__(
        self, layout: FieldLayout, registers: tuple[NDArray[Any], ...], trace: Trace | None = None
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.registers = registers
        self.trace = trace

    # ── Integers ──

    @singledispatchmethod
    def data(self, node: ir.DataExpression) -> Data:
        """The value of an integer expression."""
        raise AssertionError(f"no integer expression: {node}")

    @data.register
    def _(self, node: ir.Const) -> Data:
        value = node.value
        return lambda _: value

    @data.register
    def _(self, node: ir.FieldRef) -> Data:
        if node.field == ir.VALID:
            header = node.header
            return lambda packet: int(packet.valid[header])
        index = self.layout.slot(node).index
        return lambda packet: packet.fields[index]

    @data.register
    def _(self, node: ir.StackLastField) -> Data:
        starts = [
            self.layout.start[h] + node.field for h in self.program.stacks[node.stack].headers
        ]
        stack = node.stack

        def last(packet: Packet) -> int:
            count = packet.stack_counts[stack]
            return packet.fields[starts[count - 1]] if count else 0

        return last

    @data.register
    def _(self, node: ir.UnionStackLastField) -> Data:
        unions = self.program.union_stacks[node.union_stack].unions
        members = [self.program.unions[union].headers[node.position] for union in unions]
        starts = [self.layout.start[header] + node.field for header in members]
        stack = node.union_stack

        def last(packet: Packet) -> int:
            count = packet.union_stack_counts[stack]
            return packet.fields[starts[count - 1]] if count else 0

        return last

    @data.register
    def _(self, node: ir.HeaderField) -> Data:
        find, start, field = self.header(node.header), self.layout.start, node.field

        def read(packet: Packet) -> int:
            header = find(packet)
            if header == OUT_OF_BOUNDS:
                return 0
            if field == ir.VALID:
                return int(packet.valid[header])
            return packet.fields[start[header] + field]

        return read

    @data.register
    def _(self, node: ir.Local) -> Data:
        index = node.index
        return lambda packet: packet.arguments[index]

    @data.register
    def _(self, node: ir.RegisterElement) -> Data:
        read, index = self.register_reader(node.register), self.data(node.index)
        return lambda packet: read(index(packet) & UINT64) or 0

    @data.register
    def _(self, node: ir.Binary) -> Data:
        apply = OPERATORS[node.operator]
        left = self.data(node.left)
        if isinstance(node.right, ir.Const):
            constant = node.right.value
            return lambda packet: apply(left(packet), constant)
        right = self.data(node.right)
        return lambda packet: apply(left(packet), right(packet))

    @data.register
    def _(self, node: ir.Invert) -> Data:
        operand = self.data(node.operand)
        return lambda packet: ~operand(packet)

    @data.register
    def _(self, node: ir.Choice) -> Data:
        condition = self.boolean(node.condition)
        left, right = self.data(node.left), self.data(node.right)
        return lambda packet: left(packet) if condition(packet) else right(packet)

    @data.register
    def _(self, node: ir.BoolToData) -> Data:
        operand = self.boolean(node.operand)
        return lambda packet: int(operand(packet))

    @data.register
    def _(self, node: ir.StackLastIndex) -> Data:
        stack = node.stack
        return lambda packet: (packet.stack_counts[stack] - 1) & UINT64

    @data.register
    def _(self, node: ir.StackSize) -> Data:
        stack = node.stack
        return lambda packet: packet.stack_counts[stack]

    # ── Booleans ──

    @singledispatchmethod
    def boolean(self, node: ir.BoolExpression) -> Bool:
        """The value of a boolean expression."""
        raise AssertionError(f"no boolean expression: {node}")

    @boolean.register
    def _(self, node: ir.BoolConst) -> Bool:
        value = node.value
        return lambda _: value

    @boolean.register
    def _(self, node: ir.DataToBool) -> Bool:
        operand = self.data(node.operand)
        return lambda packet: operand(packet) != 0

    @boolean.register
    def _(self, node: ir.Compare) -> Bool:
        apply = _COMPARISONS[node.operator]
        left, right = self.data(node.left), self.data(node.right)
        return lambda packet: apply(left(packet), right(packet))

    @boolean.register
    def _(self, node: ir.HeaderCompare) -> Bool:
        left, right = self.header(node.left), self.header(node.right)
        wanted = node.operator is ir.Comparison.EQ
        return lambda packet: self._same(packet, left(packet), right(packet)) is wanted

    @boolean.register
    def _(self, node: ir.UnionCompare) -> Bool:
        left, right = self.union(node.left), self.union(node.right)
        wanted = node.operator is ir.Comparison.EQ
        return lambda packet: self._same_union(packet, left(packet), right(packet)) is wanted

    @boolean.register
    def _(self, node: ir.Logical) -> Bool:
        left, right = self.boolean(node.left), self.boolean(node.right)
        if node.operator is ir.Connective.AND:
            return lambda packet: left(packet) and right(packet)
        if node.operator is ir.Connective.OR:
            return lambda packet: left(packet) or right(packet)
        wanted = node.operator is ir.Connective.EQ
        return lambda packet: (left(packet) == right(packet)) is wanted

    @boolean.register
    def _(self, node: ir.Not) -> Bool:
        operand = self.boolean(node.operand)
        return lambda packet: not operand(packet)

    @boolean.register
    def _(self, node: ir.BoolChoice) -> Bool:
        condition = self.boolean(node.condition)
        left, right = self.boolean(node.left), self.boolean(node.right)
        return lambda packet: left(packet) if condition(packet) else right(packet)

    @boolean.register
    def _(self, node: ir.Valid) -> Bool:
        if isinstance(node.header, ir.HeaderRef):
            known = node.header.header
            return lambda packet: packet.valid[known]
        find = self.header(node.header)

        def valid(packet: Packet) -> bool:
            header = find(packet)
            return header != OUT_OF_BOUNDS and packet.valid[header]

        return valid

    @boolean.register
    def _(self, node: ir.UnionValid) -> Bool:
        find = self.union(node.union)

        def valid(packet: Packet) -> bool:
            union = find(packet)
            return union != OUT_OF_BOUNDS and packet.union_valid[union]

        return valid

    def _same(self, packet: Packet, left: int, right: int) -> bool:
        if OUT_OF_BOUNDS in (left, right) or not (packet.valid[left] and packet.valid[right]):
            return False
        fields = self.layout.fields_of
        return packet.fields[fields(left)] == packet.fields[fields(right)]

    def _same_union(self, packet: Packet, left: int, right: int) -> bool:
        if OUT_OF_BOUNDS in (left, right):
            return False
        if not (packet.union_valid[left] and packet.union_valid[right]):
            return False
        position = packet.union_members[left]
        if packet.union_members[right] != position:
            return False
        unions = self.program.unions
        return self._same(packet, unions[left].headers[position], unions[right].headers[position])

    # ── Headers and unions ──

    def header(self, node: ir.HeaderExpression) -> Find:
        """Finds the header instance of an expression."""
        if isinstance(node, ir.HeaderRef):
            known = node.header
            return lambda _: known
        if isinstance(node, ir.StackElement):
            return self._element(self.program.stacks[node.stack].headers, node.index)
        if isinstance(node, ir.HeaderChoice):
            condition = self.boolean(node.condition)
            left, right = self.header(node.left), self.header(node.right)
            return lambda packet: left(packet) if condition(packet) else right(packet)
        find, position, unions = self.union(node.union), node.position, self.program.unions

        def member(packet: Packet) -> int:
            union = find(packet)
            return OUT_OF_BOUNDS if union == OUT_OF_BOUNDS else unions[union].headers[position]

        return member

    def union(self, node: ir.UnionExpression) -> Find:
        """Finds the union of an expression."""
        if isinstance(node, ir.UnionRef):
            known = node.union
            return lambda _: known
        return self._element(self.program.union_stacks[node.union_stack].unions, node.index)

    def _element(self, elements: tuple[int, ...], index: ir.DataExpression) -> Find:
        position = self.data(index)

        def element(packet: Packet) -> int:
            i = position(packet) & UINT64
            return elements[i] if i < len(elements) else OUT_OF_BOUNDS

        return element

    # ── Writing ──

    def store(self, target: ir.LValue) -> Store:
        """Writes a value; a target out of bounds is not written."""
        if isinstance(target, ir.FieldRef):
            return self._store_field(target)
        if isinstance(target, ir.RegisterElement):
            return self._store_register(target)
        if isinstance(target, ir.StackLastField):
            find = self._last(target.stack)
            spec = self.program.header_types[self.program.stacks[target.stack].type].fields[
                target.field
            ]
        else:
            find = self.header(target.header)
            some = ir.FieldRef(self.program.some_header(target.header), target.field)
            spec = self.program.field(some)
        start, field, keep = self.layout.start, target.field, fit_to_field(spec)

        def store(packet: Packet, value: int) -> None:
            header = find(packet)
            if header != OUT_OF_BOUNDS:
                packet.fields[start[header] + field] = keep(value)

        return store

    def _last(self, stack: int) -> Find:
        elements = self.program.stacks[stack].headers

        def find(packet: Packet) -> int:
            count = packet.stack_counts[stack]
            return elements[count - 1] if count else OUT_OF_BOUNDS

        return find

    def _store_field(self, target: ir.FieldRef) -> Store:
        slot = self.layout.slot(target)
        index, header = slot.index, slot.header
        if slot.spec.variable:

            def store_variable(packet: Packet, value: int) -> None:
                packet.fields[index] = value & ((1 << packet.variable_widths[header]) - 1)

            return store_variable
        keep = fit_to_field(slot.spec)

        def store(packet: Packet, value: int) -> None:
            packet.fields[index] = keep(value)

        return store

    def _store_register(self, target: ir.RegisterElement) -> Store:
        write, index = self.register_writer(target.register), self.data(target.index)
        return lambda packet, value: write(index(packet) & UINT64, value)

    # ── Registers ──

    def register_reader(self, register: int) -> Callable[[int], int | None]:
        """Reads the cell of an index; None if it is out of bounds."""
        cells, size = self.registers[register], len(self.registers[register])
        name, trace = self.program.registers[register].name, self.trace

        def read(index: int) -> int | None:
            return cell_value(cells, index) if index < size else None

        if trace is None:
            return read

        def traced(index: int) -> int | None:
            value = read(index)
            if value is None:
                trace("out_of_bounds", array=f"register {name}", index=index)
            else:
                trace("register_read", register=name, index=index, value=value)
            return value

        return traced

    def register_writer(self, register: int) -> Callable[[int, int], None]:
        """Writes a value, truncated to the cell, at an index; nothing if it is out of bounds."""
        cells, size = self.registers[register], len(self.registers[register])
        array, trace = self.program.registers[register], self.trace
        every = (1 << array.width) - 1

        def write(index: int, value: int) -> None:
            if index < size:
                set_cell(cells, index, value & every)

        if trace is None:
            return write

        def traced(index: int, value: int) -> None:
            if index >= size:
                trace("out_of_bounds", array=f"register {array.name}", index=index)
                return
            old = cell_value(cells, index)
            write(index, value)
            new = value & every
            trace("register_write", register=array.name, index=index, old=old, new=new)

        return traced


# ----------------------------------------------------------------------------
# Hashes and checksums over header fields.

Bits = tuple[int, int]
"""A number and its width in bits."""


class CalculationCompiler:
    """Makes a function of a packet for every calculation of a program."""

    def __init__(self, layout: FieldLayout, state: SwitchState) -> None:
        self.layout = layout
        self.program = layout.program
        self.state = state
        self.codecs = [HeaderCodec(layout, i) for i in range(len(self.program.headers))]

    def compile(self, index: int) -> Callable[[Packet], int]:
        """The value of hash ``index`` of ``Program.hashes``."""
        gather = [self._input(each) for each in self.program.hashes[index].inputs]
        state = self.state.hashes[index]
        return lambda packet: state.value(_join(part(packet) for part in gather))

    def _input(self, source: ir.CalculationInput) -> Callable[[Packet], Bits | bytes]:
        if isinstance(source, ir.CalculationConstant):
            bits = (source.value, source.width)
            return lambda _: bits
        if isinstance(source, ir.Payload):
            return lambda packet: packet.data[: packet.length_after_truncate()]
        header = source.header
        if isinstance(source, ir.HeaderRef):
            codec = self.codecs[header]

            def whole(packet: Packet) -> Bits:
                if not packet.valid[header]:
                    return (0, 0)
                data = codec.emit(packet)
                return (int.from_bytes(data, "big"), 8 * len(data))

            return whole
        return self._field(source)

    def _field(self, source: ir.FieldRef) -> Callable[[Packet], Bits]:
        header = source.header
        if source.field == ir.VALID:
            return lambda packet: (1, 1) if packet.valid[header] else (0, 0)
        slot = self.layout.slot(source)
        index, width, variable = slot.index, slot.spec.width, slot.spec.variable

        def field(packet: Packet) -> Bits:
            if not packet.valid[header]:
                return (0, 0)
            bits = packet.variable_widths[header] if variable else width
            return (packet.fields[index] & ((1 << bits) - 1), bits)

        return field


def _join(parts: Iterable[Bits | bytes]) -> bytes:
    """The concatenated parts. Zero bits fill up the last byte before bytes and at the end."""
    number = width = 0
    payload = b""
    for part in parts:
        if isinstance(part, bytes):
            payload = part
        else:
            value, bits = part
            number = number << bits | value
            width += bits
    size = (width + 7) // 8
    return (number << (8 * size - width)).to_bytes(size, "big") + payload


class ChecksumUnit:
    """Verifies checksums after parsing and updates them before deparsing."""

    def __init__(
        self,
        layout: FieldLayout,
        expressions: ExpressionCompiler,
        calculations: CalculationCompiler,
    ) -> None:
        self.log = expressions.trace if isinstance(expressions.trace, PacketLog) else None
        self.verifiers: list[Callable[[Packet], bool]] = []
        self.updaters: list[Callable[[Packet], None]] = []
        for checksum in layout.program.checksums:
            condition = expressions.boolean(checksum.condition or ir.BoolConst(value=True))
            calculate = calculations.compile(checksum.calculation)
            if checksum.verify:
                verifier = _verifier(layout, checksum, condition, calculate, self.log)
                self.verifiers.append(verifier)
            if checksum.update:
                store = expressions.store(checksum.target)
                updater = _updater(checksum.name, condition, calculate, store, self.log)
                self.updaters.append(updater)

    def verify(self, packet: Packet) -> bool:
        """Whether all checksums are right."""
        correct = [verifier(packet) for verifier in self.verifiers]  # the log tells each
        return all(correct)

    def update(self, packet: Packet) -> None:
        for updater in self.updaters:
            updater(packet)


def _verifier(
    layout: FieldLayout,
    checksum: ir.Checksum,
    condition: Callable[[Packet], bool],
    calculate: Callable[[Packet], int],
    log: PacketLog | None,
) -> Callable[[Packet], bool]:
    slot = layout.slot(checksum.target)
    every = (1 << slot.spec.width) - 1

    def verify(packet: Packet) -> bool:
        if not packet.valid[slot.header] or not condition(packet):
            return True
        return calculate(packet) == packet.fields[slot.index] & every

    if log is None:
        return verify

    def logged(packet: Packet) -> bool:
        if not packet.valid[slot.header]:
            log.checksum_skipped(checksum.name, "verification because target field invalid")
            return True
        if not condition(packet):
            log.checksum_skipped(checksum.name, "verification because condition not met")
            return True
        computed, actual = calculate(packet), packet.fields[slot.index] & every
        log.checksum(checksum.name, computed, actual, is_correct=computed == actual)
        return computed == actual

    return logged


def _updater(
    name: str,
    condition: Callable[[Packet], bool],
    calculate: Callable[[Packet], int],
    store: Callable[[Packet, int], None],
    log: PacketLog | None,
) -> Callable[[Packet], None]:
    def update(packet: Packet) -> None:
        if condition(packet):
            if log is not None:
                log.line("debug", f"Updating checksum '{name}'")
            store(packet, calculate(packet))
        elif log is not None:
            log.checksum_skipped(name, "update because condition not met")

    return update
