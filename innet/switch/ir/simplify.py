"""Simplifies actions: an ``if`` that only chooses a value becomes a ``Choice``; dead stores go.

p4c from 1.2.5 on writes ``c ? a : b`` in an action with jumps, and copies the result once more. As
an expression again, the JIT makes loops and vector operations of it, and the estimate of a Tofino
sees what an ALU computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from innet.switch.ir.program import Program
from innet.switch.ir.statements import (
    VALID,
    Action,
    Assign,
    Binary,
    BoolConst,
    BoolExpression,
    BoolToData,
    Choice,
    Compare,
    Const,
    DataExpression,
    DataOperator,
    DataToBool,
    FieldRef,
    HeaderRef,
    Invert,
    Jump,
    JumpIfZero,
    Local,
    Logical,
    NoOp,
    Not,
    Primitive,
    RegisterRead,
)
from innet.switch.ir.tree import mentions, walk

_MOST_NODES = 512  # of the expressions that replace an if, without its condition
# Their operands can all be evaluated whether they are chosen or not, and in little time.
_TOTAL = (
    Binary,
    BoolConst,
    BoolToData,
    Choice,
    Compare,
    Const,
    DataToBool,
    FieldRef,
    HeaderRef,
    Invert,
    Local,
    Logical,
    Not,
)
_DIVISIONS = (DataOperator.DIV, DataOperator.MOD)
_SHIFTS = (DataOperator.SHIFT_LEFT, DataOperator.SHIFT_RIGHT)

_Chosen = dict[FieldRef, DataExpression]


def simplify(program: Program) -> Program:
    """``program`` with simplified actions. Primitives keep their positions."""
    jumping = any(isinstance(each, JumpIfZero) for a in program.actions for each in a.primitives)
    if not jumping:
        return program  # of an older p4c, which left nothing to simplify
    mentioned = Counter(_fields(walk(program)))
    actions = tuple(_convert_ifs(program, each, mentioned) for each in program.actions)
    program = replace(program, actions=actions)
    local = local_fields(program)
    return replace(program, actions=tuple(_without_dead_stores(each, local) for each in actions))


# ── Choices ──────────────────────────────────────────────────────────────────────────────────────


def _convert_ifs(program: Program, action: Action, mentioned: Counter[FieldRef]) -> Action:
    """``action`` with assignments of a ``Choice`` in place of each ``if`` that only chooses values.

    ``mentioned``: how often the program mentions each field; kept up to date.
    Converted are those whose branches only assign metadata, and only expressions that can be
    evaluated in any case. Primitives keep their positions; ``NoOp`` stands in place of others.
    """
    primitives = list(action.primitives)
    if not any(isinstance(each, JumpIfZero) for each in primitives):
        return action
    sources: dict[int, set[int]] = {}  # of the jumps to a position
    for position, each in enumerate(primitives):
        if isinstance(each, Jump | JumpIfZero):
            sources.setdefault(each.target, set()).add(position)
    # From the last to the first, so that an inner if is converted before the outer one.
    for start in reversed(range(len(primitives))):
        found = _branches(primitives, sources, start)
        if found is None:
            continue
        middle, end = found
        chosen = _choices(program, primitives, start, middle, end)
        if chosen is not None:
            here = Counter(_fields(walk(tuple(primitives[start:end]))))
            # What only these primitives mention was a step on the way to another value.
            made = [
                Assign(target, value)
                for target, value in chosen.items()
                if here[target] < mentioned[target]
                or any(mentions(chosen[each], target) for each in chosen if each != target)
            ]
            mentioned.subtract(here)
            mentioned.update(_fields(walk(tuple(made))))
            primitives[start:end] = [*made, *[NoOp()] * (end - start - len(made))]
            for target in (middle, end):
                sources[target] -= {start, middle - 1}
    return replace(action, primitives=tuple(primitives))


def _branches(
    primitives: Sequence[Primitive], sources: Mapping[int, set[int]], start: int
) -> tuple[int, int] | None:
    """Where the second branch of an ``if`` begins, and where it ends; None if it is another form.

    The first branch ends with the jump before ``middle``, if there is a second one.
    """
    jump = primitives[start]
    if not isinstance(jump, JumpIfZero) or jump.target <= start + 1:
        return None
    middle = end = jump.target
    last = primitives[middle - 1]
    if isinstance(last, Jump) and last.target >= middle:
        end = last.target
    own = {start, middle - 1}
    if any(sources.get(position, own) - own for position in range(start + 1, end)):
        return None
    return middle, end


def _choices(
    program: Program, primitives: Sequence[Primitive], start: int, middle: int, end: int
) -> _Chosen | None:
    """The values that an ``if`` assigns; None if it cannot be converted."""
    jump = primitives[start]
    assert isinstance(jump, JumpIfZero)
    then_end = middle - (end > middle)
    then = _assigned(program, primitives[start + 1 : then_end])
    otherwise = _assigned(program, primitives[middle:end])
    if then is None or otherwise is None:
        return None
    condition: BoolExpression = (
        jump.condition.operand
        if isinstance(jump.condition, BoolToData)
        else DataToBool(jump.condition)
    )
    if not _is_total((*then.values(), *otherwise.values())):
        return None
    found: _Chosen = {
        target: Choice(condition, then.get(target, target), otherwise.get(target, target))
        for target in dict.fromkeys((*then, *otherwise))
    }
    if len(found) > end - start:
        return None
    # They run one after the other: none may read what an earlier one has written.
    written: list[FieldRef] = []
    for target, value in found.items():
        if any(mentions(value, each) for each in written):
            return None
        written.append(target)
    return found


def _assigned(program: Program, branch: Sequence[Primitive]) -> _Chosen | None:
    """The values that a branch assigns, of what was there before it; None if it does more."""
    found: _Chosen = {}
    for each in branch:
        match each:
            case NoOp():
                continue
            case Assign(FieldRef() as target, value) if _is_metadata(program, target):
                if value in found and _same_type(program, target, value):
                    found[target] = found[value]
                elif any(mentions(value, known) for known in found):
                    return None
                else:
                    found[target] = value
            case _:
                return None
    return found


def _same_type(program: Program, one: FieldRef, other: DataExpression) -> bool:
    """Whether two fields keep the same of every value."""
    if not isinstance(other, FieldRef):
        return False
    kinds = [program.field(each) for each in (one, other)]
    return len({(kind.width, kind.signed, kind.saturating) for kind in kinds}) == 1


def _is_metadata(program: Program, target: FieldRef) -> bool:
    return target.field != VALID and program.headers[target.header].metadata


def _is_total(values: tuple[DataExpression, ...]) -> bool:
    nodes = list(walk(values))
    return len(nodes) <= _MOST_NODES and all(
        isinstance(node, _TOTAL) and not (isinstance(node, Binary) and _is_partial(node))
        for node in nodes
    )


def _is_partial(node: Binary) -> bool:
    shifts = node.operator in _SHIFTS and not isinstance(node.right, Const)
    return shifts or node.operator in _DIVISIONS


# ── Dead stores ──────────────────────────────────────────────────────────────────────────────────


def local_fields(program: Program) -> set[FieldRef]:
    """Fields of p4c's ``scalars`` that each action writes before it reads them, and nothing else
    reads.
    """
    scalars = {index for index, each in enumerate(program.headers) if each.name == "scalars"}
    outside = list(walk(replace(program, actions=())))
    if any(isinstance(each, HeaderRef) and each.header in scalars for each in outside):
        return set()
    excluded = set(_fields(outside))
    found: set[FieldRef] = set()
    for action in program.actions:
        written: set[FieldRef] = set()
        jumped = False
        for each in action.primitives:
            jumped |= isinstance(each, Jump | JumpIfZero)
            read, target = _effects(each)
            excluded |= read - written
            if target is not None and not jumped:
                written.add(target)
            elif target is not None:
                excluded |= {target} - written
        found |= written
    return {each for each in found - excluded if each.header in scalars}


def _without_dead_stores(action: Action, local: set[FieldRef]) -> Action:
    if any(isinstance(each, Jump | JumpIfZero) for each in action.primitives):
        return action
    primitives = list(action.primitives)
    live: set[FieldRef] = set()
    for position in reversed(range(len(primitives))):
        read, target = _effects(primitives[position])
        if isinstance(primitives[position], Assign) and target in local - live:
            primitives[position] = NoOp()
            continue
        live -= {target}
        live |= read
    return replace(action, primitives=tuple(primitives))


def _effects(primitive: Primitive) -> tuple[set[FieldRef], FieldRef | None]:
    """The fields that a primitive may read, and the one that it writes as a whole in any case."""
    if isinstance(primitive, Assign | RegisterRead) and isinstance(primitive.target, FieldRef):
        inputs = primitive.value if isinstance(primitive, Assign) else primitive.index
        return set(_fields(walk(inputs))), primitive.target
    return set(_fields(walk(primitive))), None


def _fields(nodes: Iterable[object]) -> Iterator[FieldRef]:
    return (each for each in nodes if isinstance(each, FieldRef))
