"""Header stacks: extraction to the next element, push and pop, and the counts that they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.lower.headers import copy_headers, copy_union, invalidate, rotate
from innet.switch.jit.lower.terms import (
    Branch,
    Terms,
    act,
    balanced,
    stack_count,
    union_stack_count,
)
from innet.switch.jit.tree import walk


def packet_scalars(program: ir.Program, bodies: tuple[lowered.Body, ...]) -> list[lowered.Scalar]:
    """The variables beside its fields that a packet carries from one of ``bodies`` to another.

    They are 0 when a packet is received; a copy of a packet has the values of its original.
    """
    counts = [stack_count(program, i) for i in range(len(program.stacks))]
    counts += [union_stack_count(program, i) for i in range(len(program.union_stacks))]
    used = {node for node in walk(bodies) if isinstance(node, lowered.Scalar)}
    return [count for count in counts if count in used]


# ── Parser ───────────────────────────────────────────────────────────────────────────────────────


def extract_next(
    program: ir.Program,
    target: ir.StackNext | ir.UnionStackNext,
    extract: Callable[[int, bool], lowered.Body],
) -> lowered.Body:
    """``extract`` for the next free element; a full stack stops the parser.

    Whether there are enough bytes for a header of fixed size is asked once for all elements, which
    ``extract`` is told.
    """
    if isinstance(target, ir.StackNext):
        count = stack_count(program, target.stack)
        elements = program.stacks[target.stack].headers
    else:
        count = union_stack_count(program, target.union_stack)
        unions = program.union_stacks[target.union_stack].unions
        elements = tuple(program.unions[each].headers[target.position] for each in unions)
    full = ir.Compare(ir.Comparison.GE, count, ir.Const(len(elements)))
    fail = lowered.Fail(ir.Const(program.errors["StackOutOfBounds"]))
    more = lowered.Assign(count, ir.Binary(ir.DataOperator.ADD, count, ir.Const(1)))
    kind = program.type_of(elements[0])
    fixed = kind.variable is None
    need = (lowered.Need(ir.Const(kind.width // 8)),) if fixed else ()
    taken = act(balanced(count, elements), lambda header: extract(header, fixed))
    return (lowered.If(full, (fail,), ()), *need, *taken, more)


# ── Whole stacks ─────────────────────────────────────────────────────────────────────────────────


def copy_stack(program: ir.Program, target: int, source: int) -> lowered.Body:
    """Element by element, and the count."""
    stacks = program.stacks
    copies = copy_headers(program, stacks[target].headers, stacks[source].headers)
    return (lowered.Assign(stack_count(program, target), stack_count(program, source)), *copies)


def copy_union_stack(program: ir.Program, target: int, source: int) -> lowered.Body:
    """Union by union, and the count."""
    stacks = program.union_stacks
    pairs = zip(stacks[target].unions, stacks[source].unions, strict=True)
    copies = (statement for to, origin in pairs for statement in copy_union(program, to, origin))
    count = union_stack_count(program, target)
    return (lowered.Assign(count, union_stack_count(program, source)), *copies)


def shift(terms: Terms, primitive: ir.Push | ir.Pop) -> lowered.Body:
    """Push or pop; a number that is only known at run time gets a case for each that differs."""
    program, stack = terms.program, primitive.stack
    size = len(_elements(program, primitive))
    if primitive.of_unions:
        count = union_stack_count(program, stack)
    else:
        count = stack_count(program, stack)

    def by(number: int) -> lowered.Body:
        moved = lowered.Assign(count, _moved(count, size, primitive, number))
        return (moved, *_shift_by(program, primitive, number)) if number else ()

    number = terms.position(terms.resolve(primitive.count))
    if isinstance(number, ir.Const):
        return by(min(number.value, size))
    some = ir.Compare(ir.Comparison.LT, number, ir.Const(size))
    return act(Branch(some, balanced(number, range(size)), size), by)


def _elements(program: ir.Program, primitive: ir.Push | ir.Pop) -> tuple[int, ...]:
    if primitive.of_unions:
        return program.union_stacks[primitive.stack].unions
    return program.stacks[primitive.stack].headers


def _moved(count: Any, size: int, primitive: ir.Push | ir.Pop, number: int) -> Any:
    """The count after a shift, which stays within the stack."""
    if isinstance(primitive, ir.Push):
        fits = ir.Compare(ir.Comparison.LE, count, ir.Const(size - number))
        grown = ir.Binary(ir.DataOperator.ADD, count, ir.Const(number))
        return ir.Choice(fits, grown, ir.Const(size))
    fits = ir.Compare(ir.Comparison.GE, count, ir.Const(number))
    shrunk = ir.Binary(ir.DataOperator.SUB, count, ir.Const(number))
    return ir.Choice(fits, shrunk, ir.Const(0))


def _shift_by(program: ir.Program, primitive: ir.Push | ir.Pop, number: int) -> lowered.Body:
    """The elements swap places one after the other, so that what falls out comes in again at the
    other end; there it is invalid, except in a stack of unions, where simple_switch leaves it.
    """
    elements = _elements(program, primitive)
    size = len(elements)
    push = isinstance(primitive, ir.Push)
    swaps = range(size - 1, number - 1, -1) if push else range(size - number)
    origin = list(range(size))
    for i in swaps:
        other = i - number if push else i + number
        origin[i], origin[other] = origin[other], origin[i]
    statements: list[lowered.Statement] = []
    for cycle in _cycles(origin):
        for headers in _columns(program, primitive, [elements[i] for i in cycle]):
            statements.extend(rotate(program, headers))
    if not primitive.of_unions:
        statements.extend(invalidate(elements[:number] if push else elements[size - number :]))
    return tuple(statements)


def _cycles(origin: Sequence[int]) -> list[list[int]]:
    """The cycles of a permutation: after each position the one that its content goes to."""
    target = {source: position for position, source in enumerate(origin)}
    cycles: list[list[int]] = []
    while target:
        first = position = min(target)
        cycle = []
        while position in target:
            cycle.append(position)
            position = target.pop(position)
        assert position == first
        if len(cycle) > 1:
            cycles.append(cycle)
    return cycles


def _columns(
    program: ir.Program, primitive: ir.Push | ir.Pop, elements: Sequence[int]
) -> list[list[int]]:
    """The headers of one type that change places with each other: per member of a union."""
    if not primitive.of_unions:
        return [list(elements)]
    members = [program.unions[union].headers for union in elements]
    return [list(column) for column in zip(*members, strict=True)]
