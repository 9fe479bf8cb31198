"""How a program touches its registers: where, how often, and what it makes of a cell."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from innet.budget.effects import Place, effects, reads, walk
from innet.budget.flow import Flow
from innet.switch import ir


@dataclass(frozen=True, slots=True)
class Access:
    """What one action does with one register array.

    Attributes:
        step: of the flow.
        reads, writes: positions in the action.
        inside: positions of the statements that make the new value of the old one, and of those
            that make flags (fields of one bit) of it: what the stateful ALU itself computes.
        index: every index that is used, as expressions of what the action is given.
        update: the new value as an expression of the cell (``ir.RegisterElement``) and of what the
            action is given; None when it only reads.
    """

    flow: Flow
    step: int
    action: int
    register: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    inside: frozenset[int]
    index: tuple[Any, ...]
    update: Any | None

    @property
    def first(self) -> int:
        """The position of the first statement."""
        return min((*self.reads, *self.writes))

    @property
    def statements(self) -> frozenset[int]:
        """All that belongs to the stateful ALU."""
        return frozenset((*self.reads, *self.writes)) | self.inside


def accesses(program: ir.Program, flow: Flow) -> list[Access]:
    """All of one pipeline, in its order."""
    return [
        each
        for step in range(len(flow.nodes))
        for action in flow.actions(step)
        for each in _of_action(program, flow, step, action)
    ]


def branches(action: ir.Action) -> bool:
    """Whether an action has an ``if`` in it."""
    return any(isinstance(each, ir.Jump | ir.JumpIfZero) for each in action.primitives)


def _of_action(program: ir.Program, flow: Flow, step: int, action: int) -> list[Access]:
    statements = program.actions[action].primitives
    done = [effects(program, statement) for statement in statements]
    known: dict[Place, Any] = {}
    read: dict[int, list[int]] = {}
    written: dict[int, list[int]] = {}
    index: dict[int, list[Any]] = {}
    update: dict[int, Any] = {}
    for position, statement in enumerate(statements):
        match statement:
            case ir.RegisterRead(target, register, at):
                read.setdefault(register, []).append(position)
                index.setdefault(register, []).append(_known(at, known))
                _learn(known, target, ir.RegisterElement(register, ir.Const(0)))
            case ir.RegisterWrite(register, at, value):
                written.setdefault(register, []).append(position)
                index.setdefault(register, []).append(_known(at, known))
                update[register] = _known(value, known)
            case ir.Assign(target, value):
                _learn(known, target, _known(value, known))
            case _:
                for place in done[position][1]:
                    known.pop(place, None)
    return [
        Access(
            flow,
            step,
            action,
            register,
            tuple(read.get(register, ())),
            tuple(written.get(register, ())),
            _inside(program, statements, done, read.get(register, []), written.get(register, [])),
            tuple(index[register]),
            update.get(register),
        )
        for register in index
    ]


def _learn(known: dict[Place, Any], target: Any, value: Any) -> None:
    if isinstance(target, ir.FieldRef):
        known[(target.header, target.field)] = value


def _known(item: Any, known: dict[Place, Any]) -> Any:
    """``item`` with fields replaced by what has been assigned to them."""
    if isinstance(item, ir.FieldRef):
        return known.get((item.header, item.field), item)
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        return item
    parts = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    changed = {name: _known(part, known) for name, part in parts.items()}
    if all(changed[name] is part for name, part in parts.items()):
        return item
    return dataclasses.replace(item, **changed)


def _inside(
    program: ir.Program,
    statements: tuple[Any, ...],
    done: list[tuple[frozenset[Place], frozenset[Place]]],
    read: list[int],
    written: list[int],
) -> frozenset[int]:
    """The statements after the first read that compute, of what it found, a flag or what is written
    last. ``done``: what each statement reads and writes.
    """
    if not read:
        return frozenset()
    found = set(done[read[0]][1])
    depends = []
    for position in range(read[0] + 1, len(statements)):
        before, after = done[position]
        if before & found and isinstance(statements[position], ir.Assign):
            depends.append(position)
            found |= after
        else:
            found -= after
    end = written[-1] if written and written[-1] > read[0] else -1
    wanted: set[Place] = set()
    inside = set()
    for position in reversed(depends):
        if position < end:
            wanted, end = wanted | reads(program, statements[end]), -1
        before, after = done[position]
        if after & wanted or _is_flag(program, statements[position]):
            inside.add(position)
            wanted |= before
    return frozenset(inside)


def _is_flag(program: ir.Program, statement: Any) -> bool:
    target = statement.target
    if not isinstance(target, ir.FieldRef) or target.field == ir.VALID:
        return False
    return program.field(target).width == 1


def cells(item: Any) -> set[int]:
    """The registers whose cells an expression depends on."""
    return {node.register for node in walk(item) if isinstance(node, ir.RegisterElement)}
