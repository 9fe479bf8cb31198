"""Loop rerolling: like statements over consecutive fields and registers become one loop.

A program that handles 64 values says everything 64 times, since P4 has no arrays of fields:

    register_read(old_0, r0, i);  v0 = (v0 + old_0) & 0xffffffff;  register_write(r0, i, v0);
    register_read(old_1, r1, i);  v1 = (v1 + old_1) & 0xffffffff;  register_write(r1, i, v1);

Statements ``i`` and ``i + period`` are compared by structure. Where they are equal but for field
numbers, register numbers, constants or argument columns that each advance by a fixed step, and go
on so for at least ``SHORTEST`` repetitions, the run becomes ``Loop(count, template)``. The loop
does the same things in the same order, so this is right whatever the statements do; that LLVM then
makes vector operations of it is a gain only.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import members, rebuild, walk
from innet.switch.jit import lowered

#: Fewer repetitions are left as they are.
SHORTEST = 8
#: Statements of one repetition, at most.
LONGEST_PERIOD = 32
#: Statements that end or leave something, and so are not repeated.
_SINGULAR = (
    lowered.Stop,
    lowered.ParserError,
    lowered.RequireBytes,
    lowered.ExtractHeader,
    lowered.ExtractVarbit,
    lowered.Goto,
    lowered.Blocks,
    lowered.While,
    lowered.Leave,
    lowered.JumpBack,
    lowered.Loop,
)


class _UnlikeError(Exception):
    """Two statements differ in more than numbers that advance."""


def reroll(program: ir.Program, body: lowered.Body) -> lowered.Body:
    """``body`` with its runs rolled up, in nested bodies too."""
    statements = tuple(_roll_inside(program, statement) for statement in body)
    if len(statements) < SHORTEST:
        return statements
    shapes = [_shape(statement) for statement in statements]
    rolled: list[Any] = []
    position = 0
    while position < len(statements):
        found = _run_at(program, statements, shapes, position)
        if found is None:
            rolled.append(statements[position])
            position += 1
        else:
            loop, used = found
            rolled.append(loop)
            position += used
    return tuple(rolled)


def _roll_inside(program: ir.Program, statement: Any) -> Any:
    match statement:
        case lowered.If(condition, then, otherwise):
            return lowered.If(condition, reroll(program, then), reroll(program, otherwise))
        case lowered.Dispatch(table, bodies):
            return lowered.Dispatch(table, tuple(reroll(program, body) for body in bodies))
        case lowered.While(body):
            return lowered.While(reroll(program, body))
        case lowered.Blocks(first, blocks):
            rolled = tuple((number, reroll(program, body)) for number, body in blocks)
            return lowered.Blocks(first, rolled)
        case _:
            return statement


def _shape(node: Any) -> Any:
    """What two statements have in common if they can belong to one run: their classes."""
    if isinstance(node, tuple):
        return tuple(_shape(part) for part in node)
    names = members(type(node))
    if names is None:
        return node if isinstance(node, str | enum.Enum) else type(node)
    return (type(node), *(_shape(getattr(node, name)) for name in names))


def _run_at(
    program: ir.Program, statements: lowered.Body, shapes: list[Any], start: int
) -> tuple[lowered.Loop, int] | None:
    """The loop of the run that starts at ``start`` and how many statements it replaces."""
    longest = min(LONGEST_PERIOD, (len(statements) - start) // SHORTEST)
    for period in range(1, longest + 1):
        middle = start + period
        if shapes[start:middle] != shapes[middle : middle + period]:
            continue
        first, second = statements[start:middle], statements[middle : middle + period]
        try:
            template = _template(first, second)
        except _UnlikeError:
            continue
        if template == first or any(isinstance(part, _SINGULAR) for part in walk(first)):
            continue
        count = _count(program, template, statements, start, period)
        if count >= SHORTEST:
            return lowered.Loop(count, _bounded(template, count)), count * period
    return None


def _count(
    program: ir.Program, template: lowered.Body, statements: lowered.Body, start: int, period: int
) -> int:
    """How many repetitions of ``template`` follow each other from ``start``."""
    count = 0
    while start + (count + 1) * period <= len(statements):
        at = start + count * period
        if instantiate(template, count) != statements[at : at + period]:
            break
        if not _uniform(program, template, count):
            break
        count += 1
    return count


def _uniform(program: ir.Program, template: lowered.Body, k: int) -> bool:
    """Whether repetition ``k`` uses fields and registers of the same kind as repetition 0.

    Fields in between must be alike too, since they become one array.
    """
    for part in walk(template):
        if isinstance(part, lowered.Lane):
            fields = program.type_of(part.header).fields
            first, last = part.first, part.first + part.stride * k
            span = fields[min(first, last) : max(first, last) + 1]
            if any(not _like(field, fields[first]) for field in span):
                return False
        elif isinstance(part, lowered.LoadCell | lowered.StoreCell) and part.stride:
            first, last = part.register, part.register + part.stride * k
            for register in program.registers[min(first, last) : max(first, last) + 1]:
                like = program.registers[first]
                if (register.size, register.width) != (like.size, like.width):
                    return False
    return True


def _like(field: ir.Field, other: ir.Field) -> bool:
    """Whether both can be elements of one array: unsigned, of one width up to 64."""
    plain = not (field.signed or field.saturating or field.variable)
    return plain and field.width == other.width <= 64


# ── Templates ────────────────────────────────────────────────────────────────────────────────────


def _template(first: Any, second: Any) -> Any:
    """What repetitions 0 and 1 are instances of; _UnlikeError when there is no such thing."""
    if first == second:
        return first
    if type(first) is not type(second):
        raise _UnlikeError
    if isinstance(first, tuple):
        if len(first) != len(second):
            raise _UnlikeError
        return tuple(_template(left, right) for left, right in zip(first, second, strict=True))
    match first:
        case ir.FieldRef(header, field):
            if second.header != header or ir.VALID in (field, second.field):
                raise _UnlikeError
            return lowered.Lane(header, field, second.field - field)
        case ir.Const(value):
            if max(abs(value), abs(second.value)) >> 48:
                raise _UnlikeError  # the loop counts in int64, and goes on
            return lowered.Affine(value, second.value - value, second.value)
        case lowered.LoadCell() | lowered.StoreCell():
            return _register_template(first, second)
    names = members(type(first))
    if names is None:
        raise _UnlikeError
    parts = {name: _template(getattr(first, name), getattr(second, name)) for name in names}
    return dataclasses.replace(first, **parts)


def _register_template(first: Any, second: Any) -> Any:
    parts = {
        name: _template(getattr(first, name), getattr(second, name))
        for name in members(type(first)) or ()
        if name not in ("register", "stride")
    }
    return dataclasses.replace(first, stride=second.register - first.register, **parts)


def instantiate(template: Any, k: int) -> Any:
    """Repetition ``k`` of a template."""

    def replace(node: Any) -> Any:
        match node:
            case lowered.Lane(header, first, stride):
                return ir.FieldRef(header, first + stride * k)
            case lowered.Affine(first, step, _):
                return ir.Const(first + step * k)
            case lowered.LoadCell() | lowered.StoreCell() if node.stride:
                register = node.register + node.stride * k
                return dataclasses.replace(node, register=register, stride=0)
            case _:
                return node

    return rebuild(template, replace)


def _bounded(template: Any, count: int) -> Any:
    """The template with the last number of each ``Counting`` filled in."""

    def replace(node: Any) -> Any:
        if isinstance(node, lowered.Affine):
            return lowered.Affine(node.first, node.step, node.first + node.step * (count - 1))
        return node

    return rebuild(template, replace)
