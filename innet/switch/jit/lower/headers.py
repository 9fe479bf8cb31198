"""Lowers operations on whole headers, unions and stacks to statements about fields.

Setting valid and invalid, copies, extraction to the next element of a stack, push and pop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.switch.jit import lowered
from innet.switch.jit.lower.expressions import (
    Branch,
    Resolver,
    balanced_tree,
    body_of,
    stack_count,
    union_stack_count,
)

#: Counts the bytes of headers that come and go; becomes packet_length in egress.
PACKET_LENGTH: Any = lowered.IntVariable("packet_length", -(1 << 31), 1 << 31)


def mark_valid(program: ir.Program, header: int) -> lowered.Body:
    """Make a header valid, and so the other members of its union invalid."""
    return (lowered.SetValid(header, ir.BoolConst(True)), *only_member(program, header))


def only_member(program: ir.Program, header: int) -> lowered.Body:
    """The other members of a header's union become invalid."""
    union = program.headers[header].union
    if union is None:
        return ()
    members = program.unions[union].headers
    return tuple(lowered.SetValid(each, ir.BoolConst(False)) for each in members if each != header)


def add_header(program: ir.Program, header: int) -> lowered.Body:
    """``setValid``: an invalid header becomes a valid one of zeros."""
    zeros = tuple(_zero(program, field) for field in program.fields_of(header))
    then = (*zeros, *mark_valid(program, header), _lengthen(program, header, 1))
    return (lowered.If(ir.Not(ir.Valid(ir.HeaderRef(header))), then, ()),)


def remove_header(program: ir.Program, header: int) -> lowered.Body:
    """``setInvalid``: the fields of the header stay."""
    then = (_invalid(header), _lengthen(program, header, -1))
    return (lowered.If(ir.Valid(ir.HeaderRef(header)), then, ()),)


def copy_header(program: ir.Program, target: int, source: int | None) -> lowered.Body:
    """An invalid source, or none, makes the target invalid and leaves its fields."""
    if source is None:
        return (_invalid(target),)
    if source == target:
        return ()
    copies = tuple(
        statement
        for to, origin in zip(program.fields_of(target), program.fields_of(source), strict=True)
        for statement in copy_field(program, to, origin)
    )
    if program.headers[source].metadata:
        return copies
    then = (*mark_valid(program, target), *copies)
    return (lowered.If(ir.Valid(ir.HeaderRef(source)), then, (_invalid(target),)),)


def copy_field(program: ir.Program, target: ir.FieldRef, source: ir.FieldRef) -> lowered.Body:
    """A field's value; a varbit field is copied with its width."""
    if not program.field(target).variable:
        return (lowered.SetInteger(target, source),)
    to, origin = _variable(target), _variable(source)
    return tuple(lowered.SetInteger(*pair) for pair in zip(to, origin, strict=True))


def copy_headers(
    program: ir.Program, targets: Sequence[int], sources: Sequence[int]
) -> lowered.Body:
    """Header by header: the elements of a stack, the members of a union."""
    return tuple(
        statement
        for target, source in zip(targets, sources, strict=True)
        for statement in copy_header(program, target, source)
    )


def copy_union(program: ir.Program, target: int, source: int) -> lowered.Body:
    """Member by member."""
    return copy_headers(program, program.unions[target].headers, program.unions[source].headers)


def invalidate(headers: Sequence[int]) -> lowered.Body:
    """All become invalid; their fields and the packet's length stay."""
    return tuple(_invalid(header) for header in headers)


def rotate(program: ir.Program, headers: Sequence[int]) -> lowered.Body:
    """Each header goes to the place of the one after it, the last to that of the first."""
    statements: list[lowered.Statement] = []
    # Validity first, by a flag that is put aside; then field by field, by an integer put aside.
    flag = "valid_saved"
    statements.append(lowered.SetBool(flag, ir.Valid(ir.HeaderRef(headers[-1]))))
    for to, origin in _backwards(headers):
        statements.append(lowered.SetValid(to, ir.Valid(ir.HeaderRef(origin))))
    statements.append(lowered.SetValid(headers[0], lowered.BoolVariable(flag)))
    kind = program.type_of(headers[0])
    for field, described in enumerate(kind.fields):
        references = [ir.FieldRef(header, field) for header in headers]
        if described.variable:
            for number, parts in enumerate(zip(*map(_variable, references), strict=True)):
                saved = lowered.IntVariable(f"variable_{number}_saved", -1, lowered.LAST_BIT)
                statements.extend(_rotate_values(parts, saved))
            continue
        low = -(1 << (described.width - 1)) if described.signed else 0
        name = f"field_{'s' if described.signed else 'u'}{described.width}_saved"
        saved = lowered.IntVariable(name, low, (1 << described.width) - 1)
        statements.extend(_rotate_values(references, saved))
    return tuple(statements)


def _rotate_values(targets: Sequence[Any], saved: Any) -> lowered.Body:
    """The same of integers, of which one is put aside."""
    moves = [lowered.SetInteger(targets[i], targets[i - 1]) for i in range(len(targets) - 1, 0, -1)]
    return (lowered.SetInteger(saved, targets[-1]), *moves, lowered.SetInteger(targets[0], saved))


def _backwards(headers: Sequence[int]) -> list[tuple[int, int]]:
    """(target, source) from the last to the second."""
    return [(headers[i], headers[i - 1]) for i in range(len(headers) - 1, 0, -1)]


def _variable(field: ir.FieldRef) -> tuple[Any, Any]:
    """Where a varbit field stands, and its width."""
    return lowered.VarbitOffset(field.header, field.field), lowered.VarbitWidth(field.header)


def _zero(program: ir.Program, field: ir.FieldRef) -> lowered.Statement:
    """A varbit field keeps its width."""
    if program.field(field).variable:
        return lowered.SetInteger(lowered.VarbitOffset(field.header, field.field), ir.Const(-1))
    return lowered.SetInteger(field, ir.Const(0))


def _invalid(header: int) -> lowered.Statement:
    return lowered.SetValid(header, ir.BoolConst(False))


def _lengthen(program: ir.Program, header: int, sign: int) -> lowered.Statement:
    kind, operator = program.type_of(header), ir.DataOperator
    grown: Any = ir.Binary(operator.ADD, PACKET_LENGTH, ir.Const(sign * (kind.width // 8)))
    if kind.variable is not None:
        width: Any = lowered.VarbitWidth(header)
        size = ir.Binary(operator.SHIFT_RIGHT, width, ir.Const(3))
        grown = ir.Binary(operator.ADD if sign > 0 else operator.SUB, grown, size)
    return lowered.SetInteger(PACKET_LENGTH, grown)


# ── Stacks ───────────────────────────────────────────────────────────────────────────────────────


def packet_scalars(
    program: ir.Program, bodies: tuple[lowered.Body, ...]
) -> list[lowered.IntVariable]:
    """The variables beside its fields that a packet carries from one of ``bodies`` to another.

    They are 0 when a packet is received; a copy of a packet has the values of its original.
    """
    counts = [stack_count(program, i) for i in range(len(program.stacks))]
    counts += [union_stack_count(program, i) for i in range(len(program.union_stacks))]
    used = {node for node in walk(bodies) if isinstance(node, lowered.IntVariable)}
    return [count for count in counts if count in used]


def extract_next(
    program: ir.Program,
    target: ir.StackNext | ir.UnionStackNext,
    extract: Callable[[int, bool], lowered.Body],
    told: Callable[[int], lowered.Body],
) -> lowered.Body:
    """``told`` and ``extract`` for the next free element; a full stack stops the parser.

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
    fail = lowered.ParserError(ir.Const(program.errors["StackOutOfBounds"]))
    more = lowered.SetInteger(count, ir.Binary(ir.DataOperator.ADD, count, ir.Const(1)))
    kind = program.type_of(elements[0])
    fixed = kind.variable is None
    need = (lowered.RequireBytes(ir.Const(kind.width // 8)),) if fixed else ()
    taken = body_of(balanced_tree(count, elements), lambda header: extract(header, fixed))
    first = body_of(balanced_tree(count, elements), told)
    return (lowered.If(full, (fail,), ()), *first, *need, *taken, more)


def copy_stack(program: ir.Program, target: int, source: int) -> lowered.Body:
    """Element by element, and the count."""
    stacks = program.stacks
    copies = copy_headers(program, stacks[target].headers, stacks[source].headers)
    return (lowered.SetInteger(stack_count(program, target), stack_count(program, source)), *copies)


def copy_union_stack(program: ir.Program, target: int, source: int) -> lowered.Body:
    """Union by union, and the count."""
    stacks = program.union_stacks
    pairs = zip(stacks[target].unions, stacks[source].unions, strict=True)
    copies = (statement for to, origin in pairs for statement in copy_union(program, to, origin))
    count = union_stack_count(program, target)
    return (lowered.SetInteger(count, union_stack_count(program, source)), *copies)


def shift(resolver: Resolver, primitive: ir.Push | ir.Pop) -> lowered.Body:
    """Push or pop; a number that is only known at run time gets a case for each that differs."""
    program, stack = resolver.program, primitive.stack
    size = len(_elements(program, primitive))
    if primitive.of_unions:
        count = union_stack_count(program, stack)
    else:
        count = stack_count(program, stack)

    def by(number: int) -> lowered.Body:
        moved = lowered.SetInteger(count, _moved(count, size, primitive, number))
        return (moved, *_shift_by(program, primitive, number)) if number else ()

    number = resolver.position(resolver.resolve(primitive.count))
    if isinstance(number, ir.Const):
        return by(min(number.value, size))
    some = ir.Compare(ir.Comparison.LT, number, ir.Const(size))
    return body_of(Branch(some, balanced_tree(number, range(size)), size), by)


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
