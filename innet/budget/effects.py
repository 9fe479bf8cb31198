"""Which fields an expression reads, and what a statement reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from innet.switch import ir

Place = tuple[int, int]
"""(header instance, field), as in ``ir.FieldRef``."""


def walk(item: Any) -> Iterator[Any]:
    """The nodes of an expression (or of a statement), outermost first."""
    pending = [item]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(reversed(node))
        elif dataclasses.is_dataclass(node):
            yield node
            if not isinstance(node, ir.FieldRef):
                pending.extend(
                    getattr(node, field.name) for field in reversed(dataclasses.fields(node))
                )


def reads(program: ir.Program, item: Any) -> frozenset[Place]:
    """The fields that evaluating ``item`` looks at; of stacks and unions, all that may be meant."""
    places: set[Place] = set()
    for node in walk(item):
        match node:
            case ir.FieldRef():
                places.add((node.header, node.field))
            case ir.Valid(ir.HeaderRef(header)):
                places.add((header, ir.VALID))
            case ir.HeaderRef(header):
                places |= whole(program, header)
            case ir.StackElement(stack) | ir.StackLastField(stack):
                for header in program.stacks[stack].headers:
                    places |= whole(program, header)
            case ir.UnionRef(union):
                for header in program.unions[union].headers:
                    places |= whole(program, header)
            case _:
                pass
    return frozenset(places)


def whole(program: ir.Program, header: int) -> set[Place]:
    """All fields of a header and its validity."""
    count = len(program.type_of(header).fields)
    return {(header, field) for field in (ir.VALID, *range(count))}


def effects(  # noqa: PLR0911 - one line for each kind of statement
    program: ir.Program, statement: Any
) -> tuple[frozenset[Place], frozenset[Place]]:
    """(read, written) by a statement of an action; registers and counters are not among them."""
    match statement:
        case ir.Assign(target, value):
            return reads(program, value) | _address(program, target), _written(program, target)
        case ir.RegisterRead(target, _, index):
            return reads(program, index), _written(program, target)
        case ir.RegisterWrite(_, index, value):
            return reads(program, (index, value)), frozenset()
        case ir.Hash(target, base, calculation, size):
            inputs = reads(program, (base, size, program.calculations[calculation].inputs))
            return inputs, _written(program, target)
        case ir.Random(target, low, high):
            return reads(program, (low, high)), _written(program, target)
        case ir.ExecuteMeter(_, index, target):
            return reads(program, index), _written(program, target)
        case ir.AddHeader(header) | ir.RemoveHeader(header):
            places = reads(program, header)
            return frozenset(), frozenset(place for place in places if place[1] == ir.VALID)
        case ir.AssignHeader(target, source) | ir.AssignUnion(target, source):
            return reads(program, source), reads(program, target)
        case ir.MarkToDrop(egress_spec, mcast_grp):
            return frozenset(), reads(program, (egress_spec, mcast_grp))
        case _:
            return reads(program, statement), frozenset()


def _written(program: ir.Program, target: Any) -> frozenset[Place]:
    return frozenset() if isinstance(target, ir.RegisterElement) else reads(program, target)


def _address(program: ir.Program, target: Any) -> frozenset[Place]:
    return reads(program, target.index) if isinstance(target, ir.RegisterElement) else frozenset()
