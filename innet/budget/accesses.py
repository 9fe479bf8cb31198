"""How a program touches its registers: where, how often, and what it makes of a cell."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from innet.budget.effects import Place, effects, reads, walk
from innet.budget.flow import Flow
from innet.budget.tofino import PIPE
from innet.budget.words import word
from innet.switch import ir


@dataclass(frozen=True, slots=True)
class Access:
    """What one action does with one register array.

    Attributes:
        step: of the flow.
        reads, writes: positions in the action.
        inside: positions of the statements that make the new value of the old one, and of those
            that make flags (fields of one bit) of it: what the stateful ALU itself computes; and
            of those that take a word as it was or gets: what it gives.
        gives: those words of the cell, 0 or 1.
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
    gives: frozenset[int]
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
    taken: dict[int, dict[int, Any]] = defaultdict(dict)
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
                result = _known(value, known)
                _learn(known, target, result)
                if not is_flag(program, statement):
                    for register in cells(result):
                        taken[register][position] = result
            case _:
                for place in done[position][1]:
                    known.pop(place, None)
    found = []
    for register, indices in index.items():
        reading, writing = read.get(register, []), written.get(register, [])
        given = {
            position: which
            for position, value in taken[register].items()
            if reading and position > reading[0]
            for which in _which_word(program, register, update.get(register), value)
        }
        inside = _inside(program, statements, done, reading, writing) | given.keys()
        found.append(
            Access(
                flow,
                step,
                action,
                register,
                tuple(reading),
                tuple(writing),
                frozenset(inside),
                frozenset(given.values()),
                tuple(indices),
                update.get(register),
            )
        )
    return found


def _which_word(program: ir.Program, register: int, update: Any, value: Any) -> Iterator[int]:
    """Which word of a cell, as it was or as it gets, ``value`` is; none if it is something else."""
    taken = word(program, value, 0)
    if word(program, value, 1) not in (None, ir.Const(0)):
        return
    cell = ir.RegisterElement(register, ir.Const(0))
    for which in range(-(-program.registers[register].width // PIPE.alu_word_bits)):
        old, new = word(program, cell, which), word(program, update, which)
        if taken == old or (update is not None and taken == new):
            yield which
            return


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
        if after & wanted or is_flag(program, statements[position]):
            inside.add(position)
            wanted |= before
    return frozenset(inside)


def is_flag(program: ir.Program, statement: Any) -> bool:
    """Whether an assignment sets a field of one bit."""
    target = statement.target
    if not isinstance(target, ir.FieldRef) or target.field == ir.VALID:
        return False
    return program.field(target).width == 1


def cells(item: Any) -> set[int]:
    """The registers whose cells an expression depends on."""
    return {node.register for node in walk(item) if isinstance(node, ir.RegisterElement)}
