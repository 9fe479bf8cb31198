"""Lowers expressions and targets: no parameter of an action and no index into a stack is left.

A header that is found at run time becomes a tree of conditions with the instances at its leaves:
``stack[i].x`` is ``stack[0].x if i < 1 else stack[1].x``, and a write to it is an ``if``. Trees are
balanced, so that a large stack costs few comparisons. Where no instance is meant, because an index
is out of bounds, the leaf is None: it reads as an invalid header of zeros and is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import members, rebuild
from innet.switch.jit import lowered
from innet.switch.state.entries import word_count

Arguments = Callable[[int], lowered.Expression]

# Any in this file: lowered expressions stand where the program's own types name only its own.

_UINT64 = (1 << 64) - 1
#: So many parts of a conjunction are written one after the other.
_FLAT = 16
#: Deeper expressions are computed in steps: Python parses 200 nested parentheses, and an operation
#: may be written with four.
_MOST_NESTED = 40


@dataclass(frozen=True, slots=True)
class Branch:
    """``then`` where ``condition`` is true, else ``otherwise``."""

    condition: Any
    then: InstanceTree
    otherwise: InstanceTree


InstanceTree = Branch | int | None
"""Which header or union instance is meant: its number, None for none of them, or a choice."""


# ── Trees of instances ───────────────────────────────────────────────────────────────────────────


def balanced_tree(position: Any, leaves: Sequence[int | None]) -> InstanceTree:
    """``leaves[position]`` of a position that is known to be in bounds."""

    def between(first: int, end: int) -> InstanceTree:
        if end - first == 1:
            return leaves[first]
        middle = (first + end) // 2
        low = ir.Compare(ir.Comparison.LT, position, ir.Const(middle))
        return Branch(low, between(first, middle), between(middle, end))

    return between(0, len(leaves))


def element_of(position: Any, elements: Sequence[int]) -> InstanceTree:
    """``elements[position]``, None when out of bounds; ``position`` is not negative."""
    if isinstance(position, ir.Const):
        return elements[position.value] if position.value < len(elements) else None
    inside = ir.Compare(ir.Comparison.LT, position, ir.Const(len(elements)))
    return Branch(inside, balanced_tree(position, elements), None)


def instances_of(tree: InstanceTree) -> list[int]:
    """The instances that may be meant."""
    if isinstance(tree, Branch):
        return instances_of(tree.then) + instances_of(tree.otherwise)
    return [] if tree is None else [tree]


def map_tree(tree: InstanceTree, leaf: Callable[[int], int]) -> InstanceTree:
    """``tree`` with another instance for each one."""
    if isinstance(tree, Branch):
        return Branch(tree.condition, map_tree(tree.then, leaf), map_tree(tree.otherwise, leaf))
    return None if tree is None else leaf(tree)


def value_of(tree: InstanceTree, leaf: Callable[[int], Any]) -> Any:
    """The integer that ``leaf`` gives for the instance that is meant; 0 where there is none."""
    if isinstance(tree, Branch):
        return ir.Choice(tree.condition, value_of(tree.then, leaf), value_of(tree.otherwise, leaf))
    return ir.Const(0) if tree is None else leaf(tree)


def truth_of(tree: InstanceTree, leaf: Callable[[int], Any]) -> Any:
    """The boolean that ``leaf`` gives for the instance that is meant; false where there is none."""
    if isinstance(tree, Branch):
        return ir.BoolChoice(
            tree.condition, truth_of(tree.then, leaf), truth_of(tree.otherwise, leaf)
        )
    return ir.BoolConst(False) if tree is None else leaf(tree)


def body_of(
    tree: InstanceTree, leaf: Callable[[int], lowered.Body], nowhere: lowered.Body = ()
) -> lowered.Body:
    """The statements that ``leaf`` gives for the instance that is meant, ``nowhere`` for none."""
    if isinstance(tree, Branch):
        then, otherwise = body_of(tree.then, leaf, nowhere), body_of(tree.otherwise, leaf, nowhere)
        return (lowered.If(tree.condition, then, otherwise),) if then or otherwise else ()
    return nowhere if tree is None else leaf(tree)


# ── Counts of stacks ─────────────────────────────────────────────────────────────────────────────


def stack_count(program: ir.Program, stack: int) -> Any:
    """The variable with the count of a header stack; ``next`` is the element of that number."""
    return lowered.IntVariable(f"stack_{stack}_count", 0, len(program.stacks[stack].headers))


def union_stack_count(program: ir.Program, stack: int) -> Any:
    """As ``stack_count``, of a stack of header unions."""
    return lowered.IntVariable(
        f"union_stack_{stack}_count", 0, len(program.union_stacks[stack].unions)
    )


def last_element(count: Any, elements: Sequence[int]) -> InstanceTree:
    """The element before ``next``; None of an empty stack."""
    return balanced_tree(count, (None, *elements))


# ── Resolver ─────────────────────────────────────────────────────────────────────────────────────


class Resolver:
    """Resolves the expressions of one statement.

    Attributes:
        prelude: statements to be put before it; they set the variables that its expressions use.
    """

    def __init__(self, program: ir.Program, arguments: Arguments) -> None:
        self.program = program
        self.arguments = arguments
        self.prelude: list[lowered.Statement] = []

    def resolve(self, expression: Any) -> Any:
        """An integer or a boolean that emitted code can compute."""
        return self._in_steps(rebuild(expression, self._replace))[0]

    def _in_steps(self, node: Any) -> tuple[Any, int]:
        """``node`` with variables for what is nested too deeply, and how deep it is then."""
        depth, changes = 0, {}
        for name in members(type(node)) or ():
            old = getattr(node, name)
            new, below = self._in_steps(old)
            depth = max(depth, below + 1)
            if new is not old:
                changes[name] = new
        node = replace(node, **changes) if changes else node
        short = self._short(node) if depth >= _MOST_NESTED else None
        return (node, depth) if short is None else (short, 1)

    def _short(self, node: Any) -> Any:
        """A variable for a resolved expression, None where its range is not known."""
        match node:
            case ir.Binary(ir.DataOperator.TWO_COMP_MOD, value, ir.Const(width)):
                return replace(node, left=self.named(value, width))
            case ir.Binary(ir.DataOperator.SAT_CAST, _, ir.Const(width) as bits):
                return ir.Binary(ir.DataOperator.TWO_COMP_MOD, self.named(node, width), bits)
        if isinstance(node, ir.BoolExpression):
            return ir.DataToBool(self.named(ir.BoolToData(node), 1))
        known = self._unsigned_bits(node)
        return None if known is None else self.named(node, known)

    def _unsigned_bits(self, node: Any) -> int | None:  # noqa: PLR0911 - one return per kind
        """Bits that hold a resolved integer, None if it may be negative or is not known to end."""
        match node:
            case ir.Const(value):
                return None if value < 0 else max(1, value.bit_length())
            case ir.FieldRef():
                return None if self._is_signed(node) else self._width(node)
            case lowered.IntVariable(_, low, high):
                return None if low < 0 else high.bit_length()
            case ir.BoolToData():
                return 1
            case ir.Choice(_, left, right):
                sides = [self._unsigned_bits(left), self._unsigned_bits(right)]
            case ir.Binary(ir.DataOperator.USAT_CAST, _, ir.Const(width)):
                return width
            case ir.Binary(ir.DataOperator.SHIFT_RIGHT, left, _):
                return self._unsigned_bits(left)
            case ir.Binary(ir.DataOperator.AND, left, right):
                known = [self._unsigned_bits(side) for side in (left, right)]
                return min((width for width in known if width is not None), default=None)
            case ir.Binary(ir.DataOperator.OR | ir.DataOperator.XOR, left, right):
                sides = [self._unsigned_bits(left), self._unsigned_bits(right)]
            case _:
                return None
        return None if None in sides else max(width for width in sides if width is not None)

    def _replace(self, node: Any) -> Any:  # noqa: PLR0911, PLR0912 - one branch per node
        program = self.program
        match node:
            case ir.Local(index):
                return self.arguments(index)
            case ir.FieldRef(header, ir.VALID):
                return ir.BoolToData(self._valid(header))
            case ir.HeaderField(header, ir.VALID):
                return ir.BoolToData(truth_of(self._headers(header), self._valid))
            case ir.HeaderField(header, field):
                return value_of(self._headers(header), lambda leaf: ir.FieldRef(leaf, field))
            case ir.StackLastField(stack, field):
                tree = last_element(stack_count(program, stack), program.stacks[stack].headers)
                return value_of(tree, lambda leaf: ir.FieldRef(leaf, field))
            case ir.UnionStackLastField(stack, position, field):
                unions = program.union_stacks[stack].unions
                tree = last_element(union_stack_count(program, stack), unions)
                members = map_tree(tree, lambda union: program.unions[union].headers[position])
                return value_of(members, lambda leaf: ir.FieldRef(leaf, field))
            case ir.StackSize(stack):
                return stack_count(program, stack)
            case ir.StackLastIndex(stack):
                last = ir.Binary(ir.DataOperator.SUB, stack_count(program, stack), ir.Const(1))
                return ir.Binary(ir.DataOperator.AND, last, ir.Const(_UINT64))
            case ir.RegisterElement(register, index):
                return self._register_element(register, index)
            case ir.DataToBool(ir.BoolToData(operand)):
                return operand
            case ir.Valid(header):
                return truth_of(self._headers(header), self._valid)
            case ir.UnionValid(union):
                return truth_of(self._unions(union), self._union_valid)
            case ir.HeaderCompare(operator, left, right):
                one, other = self._headers(left), self._headers(right)
                return _compare(operator, one, other, partial(equal_headers, program))
            case ir.UnionCompare(operator, left, right):
                one, other = self._unions(left), self._unions(right)
                return _compare(operator, one, other, partial(_equal_unions, program))
            case _:
                return node

    def _valid(self, header: int) -> Any:
        if self.program.headers[header].metadata:
            return ir.BoolConst(True)
        return ir.Valid(ir.HeaderRef(header))

    def _union_valid(self, union: int) -> Any:
        """At most one member of a union is valid, so that nothing else needs to be remembered."""
        members = self.program.unions[union].headers
        return logical(ir.Connective.OR, [self._valid(member) for member in members])

    def _register_element(self, register: int, index: Any) -> Any:
        """A cell in a variable: out of bounds it stays 0."""
        width = self.program.registers[register].width
        name = f"cell_{len(self.prelude)}_of_{word_count(width)}"
        cell: Any = lowered.IntVariable(name, 0, (1 << width) - 1)
        self.prelude.append(lowered.SetInteger(cell, ir.Const(0)))
        self.prelude.append(lowered.LoadCell(cell, register, 0, index))
        return cell

    # ── Headers and unions ──

    def headers(self, expression: ir.HeaderExpression) -> InstanceTree:
        """Which header instance is meant."""
        return self._headers(self.resolve(expression))

    def unions(self, expression: ir.UnionExpression) -> InstanceTree:
        """Which union is meant."""
        return self._unions(self.resolve(expression))

    def _headers(self, node: Any) -> InstanceTree:
        """``node`` with its indices and conditions already resolved."""
        match node:
            case ir.HeaderRef(header):
                return int(header)
            case ir.StackElement(stack, index):
                return element_of(self.position(index), self.program.stacks[stack].headers)
            case ir.HeaderChoice(condition, left, right):
                return Branch(condition, self._headers(left), self._headers(right))
            case ir.UnionMember(union, member):
                unions = self.program.unions
                return map_tree(self._unions(union), lambda leaf: unions[leaf].headers[member])
            case _:
                raise AssertionError(f"{type(node).__name__} is no header")

    def _unions(self, node: Any) -> InstanceTree:
        if isinstance(node, ir.UnionRef):
            return node.union
        unions = self.program.union_stacks[node.union_stack].unions
        return element_of(self.position(node.index), unions)

    def position(self, index: Any) -> Any:
        """A resolved index as a constant or a variable that is not negative, modulo 2**64."""
        match index:
            case ir.Const(value):
                return ir.Const(value & _UINT64)
            case ir.FieldRef() if not self._is_signed(index) and self._width(index) <= 64:
                return index
            case lowered.IntVariable(_, low, high) if low >= 0 and high <= _UINT64:
                return index
        return self.named(index, 64)

    def named(self, value: Any, width: int) -> Any:
        """A variable with ``value`` modulo 2**width, for what is used several times."""
        every = (1 << width) - 1
        match value:
            case ir.Binary(ir.DataOperator.AND, _, ir.Const(mask)) if 0 <= mask <= every:
                every = mask
            case _:
                value = ir.Binary(ir.DataOperator.AND, value, ir.Const(every))
        words = word_count(every.bit_length())
        name = f"term_{len(self.prelude)}" + (f"_of_{words}" if words > 1 else "")
        variable: Any = lowered.IntVariable(name, 0, every)
        self.prelude.append(lowered.SetInteger(variable, value))
        return variable

    def _is_signed(self, field: ir.FieldRef) -> bool:
        return self.program.field(field).signed

    def _width(self, field: ir.FieldRef) -> int:
        return self.program.field(field).width

    # ── Targets ──

    def header_and_field(self, target: Any) -> tuple[InstanceTree, int]:
        """(which header, field) of a target that is no register cell."""
        match target:
            case ir.FieldRef(header, field):
                return header, field
            case ir.StackLastField(stack, field):
                count = stack_count(self.program, stack)
                return last_element(count, self.program.stacks[stack].headers), field
            case ir.HeaderField(header, field):
                return self.headers(header), field
            case _:
                raise AssertionError(f"{type(target).__name__} is no field")

    def store(self, target: Any, write: Callable[[Any], lowered.Body]) -> lowered.Body:
        """The statements that ``write`` gives for the field that is meant."""
        tree, field = self.header_and_field(target)
        return body_of(tree, lambda header: write(ir.FieldRef(header, field)))

    def assign(self, target: ir.LValue, value: Any) -> lowered.Body:
        """Write a resolved integer."""
        if isinstance(target, ir.RegisterElement):
            return (lowered.StoreCell(target.register, 0, self.resolve(target.index), value),)
        tree, field = self.header_and_field(target)
        found = instances_of(tree)
        if len(found) > 1 and not isinstance(value, ir.Const | ir.FieldRef | lowered.IntVariable):
            kind = self.program.type_of(found[0]).fields[field]
            if kind.width <= 64 and not (kind.signed or kind.saturating or kind.variable):
                value = self.named(value, kind.width)
        return body_of(
            tree, lambda header: (lowered.SetInteger(ir.FieldRef(header, field), value),)
        )


# ── Comparing ────────────────────────────────────────────────────────────────────────────────────


def _compare(
    operator: ir.Comparison,
    left: InstanceTree,
    right: InstanceTree,
    equal: Callable[[int, int], Any],
) -> Any:
    """``==`` or ``!=`` of two instances; those that are none are equal to nothing."""
    same = truth_of(left, lambda a: truth_of(right, lambda b: equal(a, b)))
    return same if operator is ir.Comparison.EQ else ir.Not(same)


def equal_headers(program: ir.Program, left: int, right: int) -> Any:
    """As simple_switch compares: false when either is invalid, even when both are."""
    parts: list[Any] = [
        ir.Valid(ir.HeaderRef(header))
        for header in (left, right)
        if not program.headers[header].metadata
    ]
    parts += [
        ir.Compare(ir.Comparison.EQ, ir.FieldRef(left, field), ir.FieldRef(right, field))
        for field in range(len(program.type_of(left).fields))
    ]
    return logical(ir.Connective.AND, parts)


def _equal_unions(program: ir.Program, left: int, right: int) -> Any:
    """The same member is valid in both, with equal fields."""
    members = zip(program.unions[left].headers, program.unions[right].headers, strict=True)
    return logical(ir.Connective.OR, [equal_headers(program, a, b) for a, b in members])


def logical(connective: ir.Connective, parts: Sequence[Any]) -> Any:
    """All ``parts`` in order; many are nested evenly, since Python limits how deep it parses."""
    if not parts:
        return ir.BoolConst(connective is ir.Connective.AND)
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2 if len(parts) > _FLAT else len(parts) - 1
    left, right = logical(connective, parts[:middle]), logical(connective, parts[middle:])
    return ir.Logical(connective, left, right)
