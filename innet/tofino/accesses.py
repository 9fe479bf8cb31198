"""Control flow of a program, and its use of registers and fields.

``ControlFlow`` is the graph of a pipeline's steps. ``register_accesses`` finds what each action
does with register cells. ``reads`` and ``effects`` say which fields an expression or statement
touches.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

from innet.switch import ir
from innet.switch.ir.simplify import local_fields
from innet.switch.ir.tree import walk
from innet.tofino.report import PIPE


class ControlFlow:
    """One pipeline as a graph. Steps are numbered in topological order."""

    def __init__(self, program: ir.Program, pipeline: ir.Pipeline) -> None:
        self.program = program
        self.name = pipeline.name
        self.nodes: tuple[ir.Node, ...] = self._sorted(pipeline.initial)
        index = {node: i for i, node in enumerate(self.nodes)}
        self.next: tuple[tuple[int | None, ...], ...] = tuple(
            tuple(
                dict.fromkeys(None if each is None else index[each] for each in self._after(node))
            )
            for node in self.nodes
        )

    def _after(self, node: ir.Node) -> tuple[ir.Node | None, ...]:
        step = self.program.step(node)
        if isinstance(step, ir.Table) and step.default is not None and not step.by_hit:
            return step.next  # a miss runs the default action
        return step.successors

    def _sorted(self, initial: ir.Node | None) -> tuple[ir.Node, ...]:
        """The nodes in topological order: a depth-first postorder, reversed."""
        done: dict[ir.Node, None] = {}
        pending: list[tuple[ir.Node | None, bool]] = [(initial, False)]
        while pending:
            node, left = pending.pop()
            if node is None or node in done:
                continue
            if left:
                done[node] = None
                continue
            pending.append((node, True))
            pending.extend((each, False) for each in self._after(node))
        return tuple(reversed(done))

    def title(self, step: int) -> str:
        """The name of a step."""
        return self.program.step(self.nodes[step]).name

    def actions(self, step: int) -> tuple[int, ...]:
        """The actions that a step may run."""
        match self.program.step(self.nodes[step]):
            case ir.Table(actions=actions, default=default):
                return tuple(dict.fromkeys((*actions, *([default.action] if default else ()))))
            case ir.ActionCall(action=action):
                return (action,)
            case ir.Conditional():
                return ()

    @cached_property
    def followers(self) -> tuple[frozenset[int], ...]:
        """For each step, the steps that may follow it for the same packet."""
        found: list[frozenset[int]] = [frozenset()] * len(self.nodes)
        for step in reversed(range(len(self.nodes))):
            after: set[int] = set()
            for each in self.next[step]:
                if each is not None:
                    after |= {each} | found[each]
            found[step] = frozenset(after)
        return tuple(found)

    @cached_property
    def control_dependencies(self) -> tuple[frozenset[int], ...]:
        """For each step, the earlier steps that decide whether it runs."""
        return tuple(
            frozenset(
                other
                for other in range(step)
                if len(self.next[other]) > 1
                and step in self.followers[other]
                and self._avoidable(other, step)
            )
            for step in range(len(self.nodes))
        )

    def _avoidable(self, start: int, step: int) -> bool:
        """Whether a path from ``start`` to the end avoids ``step``."""
        pending, seen = [start], {step}
        while pending:
            for each in self.next[pending.pop()]:
                if each is None:
                    return True
                if each not in seen:
                    seen.add(each)
                    pending.append(each)
        return False


# ----------------------------------------------------------------------------
# The two 32-bit words of a cell's old or new value, each as a separate expression.
#
# p4c writes a pair as one integer: ``high << 32 & mask | low & mask``. A stateful ALU has two
# words. Its inputs, comparisons and outputs are therefore split into words, without the masks.

_BITS = PIPE.alu_word_bits
_ONES = (1 << _BITS) - 1
_ZERO = ir.Const(0)
_CONDITIONS = (ir.Compare, ir.Logical, ir.Not, ir.DataToBool, ir.BoolChoice, ir.BoolConst)


def word(  # noqa: PLR0911 - one line for each kind of expression
    program: ir.Program, item: Any, which: int
) -> Any:
    """Word ``which`` (0: the low one) of an expression, simplified; None if unknown."""
    match item:
        case ir.Const(value):
            return ir.Const(value >> _BITS * which & _ONES)
        case ir.RegisterElement(register):
            width = program.registers[register].width
            return _held(register, which) if width > _BITS * which else _ZERO
        case ir.FieldRef(_, field):
            narrow = field == ir.VALID or program.field(item).width <= _BITS
            return _either(which, item, narrow)
        case ir.Choice(condition, left, right):
            parts = word(program, left, which), word(program, right, which)
            if None in parts or parts[0] == parts[1]:
                return parts[0] and parts[1]
            return ir.Choice(simplified(program, condition), *parts)
        case ir.Binary(ir.DataOperator.SHIFT_LEFT, left, ir.Const(amount)) if amount == _BITS:
            return _ZERO if which == 0 else word(program, left, 0)
        case ir.Binary(ir.DataOperator.SHIFT_RIGHT, left, ir.Const(amount)) if amount == _BITS:
            return word(program, left, 1) if which == 0 else _ZERO
        case ir.Binary(ir.DataOperator.AND, left, ir.Const(mask)):
            return _masked(program, left, mask, which)
        case ir.Binary(ir.DataOperator.OR | ir.DataOperator.XOR, left, right):
            return _joined(item, word(program, left, which), word(program, right, which))
        case _:  # p4c masks values of 32 bits, so other expressions may have more
            return _either(which, _plain_parts(program, item), which == 0)


def simplified(program: ir.Program, item: Any) -> Any:
    """An expression of one word, or a condition, without masks that have no effect."""
    simple = _plain_parts(program, item)
    match simple:
        case ir.Compare(ir.Comparison.EQ, ir.Choice(flag, ir.Const(1), ir.Const(0)), ir.Const(1)):
            return flag  # that an earlier statement has set
        case _:
            return simple


def _held(register: int, which: int) -> ir.RegisterElement:
    """A word of the cell. The word's number stands in place of the index."""
    return ir.RegisterElement(register, ir.Const(which))


def _either(which: int, item: Any, narrow: bool) -> Any:
    if not narrow:
        return None
    return item if which == 0 else _ZERO


def _masked(program: ir.Program, item: Any, mask: int, which: int) -> Any:
    part = mask >> _BITS * which & _ONES
    if part == 0:
        return _ZERO
    inner = word(program, item, which)
    if part == _ONES or inner is None:
        return inner
    return ir.Binary(ir.DataOperator.AND, inner, ir.Const(part))


def _joined(item: ir.Binary, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if left == _ZERO:
        return right
    return left if right == _ZERO else dataclasses.replace(item, left=left, right=right)


def _plain_parts(program: ir.Program, item: Any) -> Any:
    if not dataclasses.is_dataclass(item) or isinstance(item, type | ir.FieldRef | ir.Const):
        return item
    changed = {}
    for field in dataclasses.fields(item):
        part = getattr(item, field.name)
        if not dataclasses.is_dataclass(part):
            continue
        simple = (
            simplified(program, part) if isinstance(part, _CONDITIONS) else word(program, part, 0)
        )
        changed[field.name] = part if simple is None else simple
    return dataclasses.replace(item, **changed)


# ----------------------------------------------------------------------------
# How a program accesses its registers: where, how often, and the new value of a cell.


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """What one action does with one register array.

    Attributes:
        step: the step of the flow.
        reads, writes: positions in the action.
        inside: positions of statements that the stateful ALU executes: those that compute the new
            value from the old one, those that compute flags (fields of one bit) from it, and those
            that output a word of the old or new value.
        gives: the words of the cell that are output, 0 or 1.
        index: every index that is used, as expressions of the action's inputs.
        update: the new value as an expression of the cell (``ir.RegisterElement``) and of the
            action's inputs; None if the action only reads.
    """

    flow: ControlFlow
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
        """The positions of all statements that the stateful ALU executes."""
        return frozenset((*self.reads, *self.writes)) | self.inside


def register_accesses(program: ir.Program, flow: ControlFlow) -> list[RegisterAccess]:
    """All register accesses of one pipeline, in its order."""
    local = {(each.header, each.field) for each in local_fields(program)}
    return [
        each
        for step in range(len(flow.nodes))
        for action in flow.actions(step)
        for each in _of_action(program, flow, step, action, local)
    ]


def branches(action: ir.Action) -> bool:
    """Whether an action contains an ``if``."""
    return any(isinstance(each, ir.Jump | ir.JumpIfZero) for each in action.primitives)


@dataclass(slots=True)
class _CellUse:
    """What the statements of one action do with the cells of one register array.

    Attributes:
        reads, writes: positions of statements.
        index: every index that is used, in terms of the action's inputs.
        update: the value that is written last; None: none is.
        taken: what assignments behind the first read or write take from a cell, by position.
    """

    reads: list[int] = dataclasses.field(default_factory=list)
    writes: list[int] = dataclasses.field(default_factory=list)
    index: list[Any] = dataclasses.field(default_factory=list)
    update: Any | None = None
    taken: dict[int, Any] = dataclasses.field(default_factory=dict)


def _of_action(
    program: ir.Program, flow: ControlFlow, step: int, action: int, local: Set[Location]
) -> list[RegisterAccess]:
    statements = program.actions[action].primitives
    done = [effects(program, statement) for statement in statements]
    touching: dict[Location, list[int]] = defaultdict(list)
    for position, (before, after) in enumerate(done):
        for location in before | after:
            touching[location].append(position)
    found = []
    for register, use in _cell_uses(program, statements, done).items():
        # A stateful ALU outputs words of the old and the new value (``PIPE.alu_word_bits``).
        given = {
            position: which
            for position, value in use.taken.items()
            if use.reads and position > use.reads[0]
            for which in _which_word(program, register, use.update, value)
        }
        # It executes what lies between the read and the write, and what outputs such a word.
        inside = _inside(program, statements, done, touching, read=use.reads, written=use.writes)
        inside |= given.keys()
        # A word that nothing else reads need not leave it.
        outputs = {
            which
            for position, which in given.items()
            if not _stays_inside(done, position, inside, local)
        }
        found.append(
            RegisterAccess(
                flow,
                step,
                action,
                register,
                tuple(use.reads),
                tuple(use.writes),
                frozenset(inside),
                frozenset(outputs),
                tuple(use.index),
                use.update,
            )
        )
    return found


def _cell_uses(
    program: ir.Program, statements: tuple[Any, ...], done: list[Effects]
) -> dict[int, _CellUse]:
    """By register, in the order of first use. ``done``: what each statement reads and writes."""
    uses: dict[int, _CellUse] = defaultdict(_CellUse)
    # The value of each field so far, in terms of the action's inputs and of cells.
    known: dict[Location, Any] = {}
    for position, statement in enumerate(statements):
        match statement:
            case ir.RegisterRead(target, register, at):
                uses[register].reads.append(position)
                uses[register].index.append(_known(at, known))
                _learn(known, target, ir.RegisterElement(register, ir.Const(0)))
            case ir.RegisterWrite(register, at, value):
                uses[register].writes.append(position)
                uses[register].index.append(_known(at, known))
                uses[register].update = _known(value, known)
            case ir.Assign(target, value):
                result = _known(value, known)
                _learn(known, target, result)
                if not is_flag(program, statement):
                    for register in cells(result) & uses.keys():
                        uses[register].taken[position] = result
            case _:
                for location in done[position][1]:
                    known.pop(location, None)
    return uses


def _stays_inside(
    done: list[Effects],
    position: int,
    inside: Set[int],
    local: Set[Location],
) -> bool:
    """Whether a statement sets a local field that only the stateful ALU reads."""
    written = done[position][1]
    if not written <= local:
        return False
    for later in range(position + 1, len(done)):
        read, again = done[later]
        if read & written and later not in inside:
            return False
        if written <= again:
            break
    return True


def _which_word(program: ir.Program, register: int, update: Any, value: Any) -> Iterator[int]:
    """The word of a cell, old or new, that ``value`` is; None for any other value."""
    taken = word(program, value, 0)
    if word(program, value, 1) not in (None, ir.Const(0)):
        return
    cell = ir.RegisterElement(register, ir.Const(0))
    for which in range(-(-program.registers[register].width // PIPE.alu_word_bits)):
        old, new = word(program, cell, which), word(program, update, which)
        if taken == old or (update is not None and taken == new):
            yield which
            return


def _learn(known: dict[Location, Any], target: Any, value: Any) -> None:
    if isinstance(target, ir.FieldRef):
        known[(target.header, target.field)] = value


def _known(item: Any, known: dict[Location, Any]) -> Any:
    """``item`` with fields replaced by the values assigned to them."""
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
    done: list[Effects],
    touching: dict[Location, list[int]],
    *,
    read: list[int],
    written: list[int],
) -> frozenset[int]:
    """The statements after the first read that compute a flag, or the value written last, from the
    value read. ``done``: what each statement reads and writes; ``touching``: the statements that
    read or write a field.
    """
    if not read:
        return frozenset()
    found = set(done[read[0]][1])
    depends = []
    # In their order, the statements that touch what was found.
    waiting = _later(touching, found, read[0])
    met = set(waiting)
    while waiting:
        position = heappop(waiting)
        before, after = done[position]
        if found.isdisjoint(before) or not isinstance(statements[position], ir.Assign):
            found -= after
            continue
        depends.append(position)
        for later in _later(touching, after - found, position):
            if later not in met:
                met.add(later)
                heappush(waiting, later)
        found |= after
    end = written[-1] if written and written[-1] > read[0] else -1
    wanted: set[Location] = set()
    inside = set()
    for position in reversed(depends):
        if position < end:
            wanted, end = wanted | reads(program, statements[end]), -1
        before, after = done[position]
        if after & wanted or is_flag(program, statements[position]):
            inside.add(position)
            wanted |= before
    return frozenset(inside)


def _later(
    touching: dict[Location, list[int]], locations: Set[Location], position: int
) -> list[int]:
    """The statements behind ``position`` that touch one of some fields, sorted."""
    found = {each for location in locations for each in touching[location]}
    return sorted(each for each in found if each > position)


def is_flag(program: ir.Program, statement: Any) -> bool:
    """Whether an assignment sets a field of one bit."""
    target = statement.target
    if not isinstance(target, ir.FieldRef) or target.field == ir.VALID:
        return False
    return program.field(target).width == 1


def cells(item: Any) -> set[int]:
    """The registers whose cells an expression depends on."""
    return {node.register for node in walk(item) if isinstance(node, ir.RegisterElement)}


# ----------------------------------------------------------------------------
# Which fields an expression reads, and what a statement reads and writes.

Location = tuple[int, int]
"""(header instance, field), as in ``ir.FieldRef``."""

Effects = tuple[frozenset[Location], frozenset[Location]]
"""The fields that a statement reads, and those that it writes."""


def reads(program: ir.Program, item: Any) -> frozenset[Location]:
    """The fields that ``item`` reads. For stacks and unions, all fields that it may read."""
    locations: set[Location] = set()
    for node in walk(item):
        match node:
            case ir.FieldRef():
                locations.add((node.header, node.field))
            case ir.Valid(ir.HeaderRef(header)):
                locations.add((header, ir.VALID))
            case ir.HeaderRef(header):
                locations |= all_fields(program, header)
            case ir.StackElement(stack) | ir.StackLastField(stack):
                for header in program.stacks[stack].headers:
                    locations |= all_fields(program, header)
            case ir.UnionRef(union):
                for header in program.unions[union].headers:
                    locations |= all_fields(program, header)
            case _:
                pass
    return frozenset(locations)


def all_fields(program: ir.Program, header: int) -> set[Location]:
    """All fields of a header and its validity."""
    count = len(program.type_of(header).fields)
    return {(header, field) for field in (ir.VALID, *range(count))}


def effects(  # noqa: PLR0911 - one line for each kind of statement
    program: ir.Program, statement: Any
) -> Effects:
    """The fields (read, written) by a statement of an action, without registers and counters."""
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
            locations = reads(program, header)
            return frozenset(), frozenset(each for each in locations if each[1] == ir.VALID)
        case ir.AssignHeader(target, source) | ir.AssignUnion(target, source):
            return reads(program, source), reads(program, target)
        case ir.MarkToDrop(egress_spec, mcast_grp):
            return frozenset(), reads(program, (egress_spec, mcast_grp))
        case _:
            return reads(program, statement), frozenset()


def _written(program: ir.Program, target: Any) -> frozenset[Location]:
    return frozenset() if isinstance(target, ir.RegisterElement) else reads(program, target)


def _address(program: ir.Program, target: Any) -> frozenset[Location]:
    return reads(program, target.index) if isinstance(target, ir.RegisterElement) else frozenset()
