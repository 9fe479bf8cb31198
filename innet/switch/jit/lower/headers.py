"""Headers and unions as wholes: made valid and invalid, copied, swapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered

#: Counts the bytes of headers that come and go; becomes packet_length in egress.
PACKET_LENGTH: Any = lowered.Scalar("packet_length", -(1 << 31), 1 << 31)


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
    zeros = tuple(_zero(program, field) for field in _fields(program, header))
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
        for to, origin in zip(_fields(program, target), _fields(program, source), strict=True)
        for statement in copy_field(program, to, origin)
    )
    if program.headers[source].metadata:
        return copies
    then = (*mark_valid(program, target), *copies)
    return (lowered.If(ir.Valid(ir.HeaderRef(source)), then, (_invalid(target),)),)


def copy_field(program: ir.Program, target: ir.FieldRef, source: ir.FieldRef) -> lowered.Body:
    """A field's value; a varbit field is copied with its width."""
    if not program.field(target).variable:
        return (lowered.Assign(target, source),)
    to, origin = _variable(target), _variable(source)
    return tuple(lowered.Assign(*pair) for pair in zip(to, origin, strict=True))


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
    flag = "valid_kept"
    statements.append(lowered.SetFlag(flag, ir.Valid(ir.HeaderRef(headers[-1]))))
    for to, origin in _backwards(headers):
        statements.append(lowered.SetValid(to, ir.Valid(ir.HeaderRef(origin))))
    statements.append(lowered.SetValid(headers[0], lowered.Flag(flag)))
    kind = program.type_of(headers[0])
    for field, described in enumerate(kind.fields):
        references = [ir.FieldRef(header, field) for header in headers]
        if described.variable:
            for number, parts in enumerate(zip(*map(_variable, references), strict=True)):
                kept = lowered.Scalar(f"variable_{number}_kept", -1, lowered.LAST_BIT)
                statements.extend(_rotate_values(parts, kept))
            continue
        low = -(1 << (described.width - 1)) if described.signed else 0
        name = f"field_{'s' if described.signed else 'u'}{described.width}_kept"
        kept = lowered.Scalar(name, low, (1 << described.width) - 1)
        statements.extend(_rotate_values(references, kept))
    return tuple(statements)


def _rotate_values(places: Sequence[Any], kept: Any) -> lowered.Body:
    """The same of integers, of which one is put aside."""
    moves = [lowered.Assign(places[i], places[i - 1]) for i in range(len(places) - 1, 0, -1)]
    return (lowered.Assign(kept, places[-1]), *moves, lowered.Assign(places[0], kept))


def _backwards(headers: Sequence[int]) -> list[tuple[int, int]]:
    """(target, source) from the last to the second."""
    return [(headers[i], headers[i - 1]) for i in range(len(headers) - 1, 0, -1)]


def _fields(program: ir.Program, header: int) -> list[ir.FieldRef]:
    return [ir.FieldRef(header, i) for i in range(len(program.type_of(header).fields))]


def _variable(field: ir.FieldRef) -> tuple[Any, Any]:
    """Where a varbit field stands, and its width."""
    return lowered.VariablePlace(field.header, field.field), lowered.VariableWidth(field.header)


def _zero(program: ir.Program, field: ir.FieldRef) -> lowered.Statement:
    """A varbit field keeps its width."""
    if program.field(field).variable:
        return lowered.Assign(lowered.VariablePlace(field.header, field.field), ir.Const(-1))
    return lowered.Assign(field, ir.Const(0))


def _invalid(header: int) -> lowered.Statement:
    return lowered.SetValid(header, ir.BoolConst(False))


def _lengthen(program: ir.Program, header: int, sign: int) -> lowered.Statement:
    kind, operator = program.type_of(header), ir.DataOperator
    grown: Any = ir.Binary(operator.ADD, PACKET_LENGTH, ir.Const(sign * (kind.width // 8)))
    if kind.variable is not None:
        width: Any = lowered.VariableWidth(header)
        size = ir.Binary(operator.SHIFT_RIGHT, width, ir.Const(3))
        grown = ir.Binary(operator.ADD if sign > 0 else operator.SUB, grown, size)
    return lowered.Assign(PACKET_LENGTH, grown)
