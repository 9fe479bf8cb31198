"""Headers and unions as wholes: made valid and invalid, copied, swapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from innet.switch import ir
from innet.switch.jit import plan

#: Counts the bytes of headers that come and go; becomes packet_length in egress.
PACKET_LENGTH: Any = plan.Scalar("packet_length", -(1 << 31), 1 << 31)


def mark_valid(program: ir.Program, header: int) -> plan.Body:
    """Make a header valid, and so the other members of its union invalid."""
    return (plan.SetValid(header, ir.BoolConst(True)), *only_member(program, header))


def only_member(program: ir.Program, header: int) -> plan.Body:
    """The other members of a header's union become invalid."""
    union = program.headers[header].union
    if union is None:
        return ()
    members = program.unions[union].headers
    return tuple(plan.SetValid(each, ir.BoolConst(False)) for each in members if each != header)


def add_header(program: ir.Program, header: int) -> plan.Body:
    """``setValid``: an invalid header becomes a valid one of zeros."""
    zeros = tuple(plan.Assign(field, ir.Const(0)) for field in _fields(program, header))
    then = (*zeros, *mark_valid(program, header), _lengthen(program, header, 1))
    return (plan.If(ir.Not(ir.Valid(ir.HeaderRef(header))), then, ()),)


def remove_header(program: ir.Program, header: int) -> plan.Body:
    """``setInvalid``: the fields of the header stay."""
    then = (_invalid(header), _lengthen(program, header, -1))
    return (plan.If(ir.Valid(ir.HeaderRef(header)), then, ()),)


def copy_header(program: ir.Program, target: int, source: int | None) -> plan.Body:
    """An invalid source, or none, makes the target invalid and leaves its fields."""
    if source is None:
        return (_invalid(target),)
    if source == target:
        return ()
    copies = tuple(
        plan.Assign(to, origin)
        for to, origin in zip(_fields(program, target), _fields(program, source), strict=True)
    )
    if program.headers[source].metadata:
        return copies
    then = (*mark_valid(program, target), *copies)
    return (plan.If(ir.Valid(ir.HeaderRef(source)), then, (_invalid(target),)),)


def copy_headers(program: ir.Program, targets: Sequence[int], sources: Sequence[int]) -> plan.Body:
    """Header by header: the elements of a stack, the members of a union."""
    return tuple(
        statement
        for target, source in zip(targets, sources, strict=True)
        for statement in copy_header(program, target, source)
    )


def copy_union(program: ir.Program, target: int, source: int) -> plan.Body:
    """Member by member."""
    return copy_headers(program, program.unions[target].headers, program.unions[source].headers)


def invalidate(headers: Sequence[int]) -> plan.Body:
    """All become invalid; their fields and the packet's length stay."""
    return tuple(_invalid(header) for header in headers)


def rotate(program: ir.Program, headers: Sequence[int]) -> plan.Body:
    """Each header goes to the place of the one after it, the last to that of the first."""
    statements: list[plan.Statement] = []
    flag = "valid_kept"
    statements.append(plan.SetFlag(flag, ir.Valid(ir.HeaderRef(headers[-1]))))
    for to, origin in _backwards(headers):
        statements.append(plan.SetValid(to, ir.Valid(ir.HeaderRef(origin))))
    statements.append(plan.SetValid(headers[0], plan.Flag(flag)))
    kind = program.type_of(headers[0])
    for field, described in enumerate(kind.fields):
        low = -(1 << (described.width - 1)) if described.signed else 0
        kept: Any = plan.Scalar(f"field_{described.width}_kept", low, (1 << described.width) - 1)
        statements.append(plan.Assign(kept, ir.FieldRef(headers[-1], field)))
        for to, origin in _backwards(headers):
            statements.append(plan.Assign(ir.FieldRef(to, field), ir.FieldRef(origin, field)))
        statements.append(plan.Assign(ir.FieldRef(headers[0], field), kept))
    return tuple(statements)


def _backwards(headers: Sequence[int]) -> list[tuple[int, int]]:
    """(target, source) from the last to the second."""
    return [(headers[i], headers[i - 1]) for i in range(len(headers) - 1, 0, -1)]


def _fields(program: ir.Program, header: int) -> list[ir.FieldRef]:
    return [ir.FieldRef(header, i) for i in range(len(program.type_of(header).fields))]


def _invalid(header: int) -> plan.Statement:
    return plan.SetValid(header, ir.BoolConst(False))


def _lengthen(program: ir.Program, header: int, sign: int) -> plan.Statement:
    size = sign * (program.type_of(header).width // 8)
    grown = ir.Binary(ir.DataOperator.ADD, PACKET_LENGTH, ir.Const(size))
    return plan.Assign(PACKET_LENGTH, grown)
