"""Whether what a program does with a register is one operation of a stateful ALU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from innet.budget.accesses import Access, branches, cells
from innet.budget.effects import effects, walk
from innet.budget.flow import Flow
from innet.budget.report import Finding, Severity
from innet.budget.source import Source
from innet.budget.tofino import PIPE
from innet.switch import ir

_RESOURCE = "register accesses per packet"
_ALUS = "stateful ALUs"
_WORDS = "output words per stateful ALU"
_SIMPLE = (
    ir.DataOperator.ADD,
    ir.DataOperator.SUB,
    ir.DataOperator.AND,
    ir.DataOperator.OR,
    ir.DataOperator.XOR,
    ir.DataOperator.TWO_COMP_MOD,
    ir.DataOperator.SAT_CAST,
    ir.DataOperator.USAT_CAST,
)


def most_accesses(flow: Flow, found: Sequence[Access], register: int) -> int:
    """The most that one packet can make to a register array on any way through one pipeline."""
    weight = [0] * len(flow.nodes)
    for access in found:
        if access.register == register and access.flow is flow:
            count = max(len(access.reads), len(access.writes))
            if len(set(map(_key, access.index))) > 1:
                count = max(count, 2)
            weight[access.step] = max(weight[access.step], count)
    most = [0] * len(flow.nodes)
    for step in reversed(range(len(flow.nodes))):
        after = [0 if each is None else most[each] for each in flow.next[step]]
        most[step] = weight[step] + max(after, default=0)
    return most[0] if most else 0


def _key(expression: Any) -> str:
    return repr(expression)


def too_many(
    program: ir.Program, source: Source, found: Sequence[Access], counts: dict[int, int]
) -> Iterator[Finding]:
    """Register arrays that a packet may touch more than once."""
    for register, count in counts.items():
        if count > 1:
            places = [
                source.primitive(each.action, position)
                for each in found
                if each.register == register
                for position in sorted((*each.reads, *each.writes))
            ]
            where = ", ".join(dict.fromkeys(filter(None, places)))
            yield Finding(
                Severity.ERROR,
                _RESOURCE,
                f"{program.registers[register].name} is accessed {count} times by one packet",
                "read, decide and write at one index in one action; or keep what is asked for "
                "later in another array; or recirculate",
                where,
            )


def operations(program: ir.Program, source: Source, found: Sequence[Access]) -> Iterator[Finding]:
    """What an ALU cannot compute in one go."""
    for access in found:
        name = program.registers[access.register].name
        where = source.primitive(access.action, access.first)
        action = program.actions[access.action]
        if branches(action):
            yield Finding(
                Severity.WARNING,
                _ALUS,
                f"{action.name} has an if in it: what it does with {name} is not examined",
                "write the choice as a conditional expression",
                where,
            )
            continue
        for index in access.index:
            if access.register in cells(index):
                yield Finding(
                    Severity.ERROR,
                    _ALUS,
                    f"{name} is indexed by what it holds itself",
                    "compute the index before, of another array or of the packet",
                    where,
                )
        if access.update is not None:
            yield from _update(access, name, where)


def _update(access: Access, name: str, where: str) -> Iterator[Finding]:
    held = access.register
    wrong = {
        node.operator.value
        for node in walk(access.update)
        if isinstance(node, ir.Binary)
        and held in cells(node)
        and node.operator not in _SIMPLE
        and not _by_constant(node)
    }
    if wrong:
        yield Finding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} takes {', '.join(sorted(wrong))} of the old one",
            "a stateful ALU adds, subtracts, combines bits and compares",
            where,
        )
    compared = {repr(node) for node in walk(access.update) if _compares(node, held)}
    if len(compared) > PIPE.alu_comparisons:
        yield Finding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} takes {len(compared)} comparisons with the old one, "
            f"a stateful ALU makes {PIPE.alu_comparisons}",
            "decide on the packet's fields in the tables before",
            where,
        )
    words = _inputs(access.update, held)
    if len(words) > PIPE.alu_inputs:
        yield Finding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} is made of {len(words)} words of the packet, "
            f"a stateful ALU is given {PIPE.alu_inputs}",
            "combine them in an action before",
            where,
        )


def _compares(node: Any, held: int) -> bool:
    """A comparison with the cell itself, not with what another comparison came to."""
    sides = (node.left, node.right) if isinstance(node, ir.Compare) else ()
    return held in cells(sides) and not any(_compares(each, held) for each in walk(sides))


def _by_constant(node: ir.Binary) -> bool:
    """A shift by a constant."""
    shifts = (ir.DataOperator.SHIFT_LEFT, ir.DataOperator.SHIFT_RIGHT)
    return node.operator in shifts and isinstance(node.right, ir.Const)


def _inputs(expression: Any, held: int) -> set[str]:  # noqa: PLR0911 - one for each form
    """The words that an ALU is given: the greatest parts that do not depend on its own cell.

    What such a part chooses by (a conditional on fields) is no word: it selects the instruction.
    """
    if isinstance(expression, ir.Const | ir.BoolConst):
        return set()
    if held not in cells(expression):
        if isinstance(expression, ir.Choice):
            return _inputs(expression.left, held) | _inputs(expression.right, held)
        return {repr(expression)}
    match expression:
        case ir.RegisterElement():
            return set()
        case ir.Choice(condition, left, right) | ir.BoolChoice(condition, left, right):
            chosen = _inputs(left, held) | _inputs(right, held)
            return chosen | _condition(condition, held)
        case ir.Binary(_, left, right) | ir.Compare(_, left, right) | ir.Logical(_, left, right):
            return _inputs(left, held) | _inputs(right, held)
        case ir.Invert(part) | ir.BoolToData(part) | ir.DataToBool(part) | ir.Not(part):
            return _inputs(part, held)
        case _:
            return set()


def _condition(condition: Any, held: int) -> set[str]:
    """Inputs of a condition; the parts of it that are the packet's alone select instructions."""
    if held not in cells(condition):
        return set()
    if isinstance(condition, ir.Logical):
        return _condition(condition.left, held) | _condition(condition.right, held)
    return _inputs(condition, held)


def output_words(
    program: ir.Program, source: Source, found: Sequence[Access]
) -> tuple[int, list[Finding]]:
    """The most words that a packet takes out of one cell, what there is to say of it."""
    most, names, places = 0, [], []
    for access in found:
        register = program.registers[access.register]
        if not access.reads:
            continue
        words = 1 if register.width <= PIPE.alu_word_bits else len(_halves(program, access))
        most = max(most, words)
        if words > 1:
            names.append(register.name)
            places.append(source.primitive(access.action, access.first))
    if not names:
        return most, []
    several = f" (and {len(set(names)) - 1} other arrays)" if len(set(names)) > 1 else ""
    finding = Finding(
        Severity.ERROR,
        _WORDS,
        f"a packet takes {most} words out of a cell of {names[0]}{several}, "
        "a stateful ALU gives one",
        "let a second (harvest) pass, a recirculation, read the other word; or keep two arrays",
        ", ".join(dict.fromkeys(filter(None, places))),
    )
    return most, [finding]


def _halves(program: ir.Program, access: Access) -> set[int]:
    """Which 32-bit words of the cell statements outside of the ALU look at."""
    statements = program.actions[access.action].primitives
    halves: set[int] = set()
    for position in access.reads:
        target = next(iter(effects(program, statements[position])[1]), None)
        width = 0 if target is None else program.field(ir.FieldRef(*target)).width
        if target is None or not program.headers[target[0]].metadata:
            return set(range(-(-width // PIPE.alu_word_bits))) or {0}
        for later in range(position + 1, len(statements)):
            if later in access.statements:
                continue
            before, after = effects(program, statements[later])
            if target in before:
                halves |= _words(statements[later], target)
            if target in after:
                break
        else:
            halves |= _used_elsewhere(program, access, target)
    return halves


def _used_elsewhere(program: ir.Program, access: Access, target: tuple[int, int]) -> set[int]:
    """Words that later steps look at, of a field that an access leaves a cell in."""
    halves: set[int] = set()
    for step in access.flow.followers[access.step]:
        for action in access.flow.actions(step):
            for statement in program.actions[action].primitives:
                if target in effects(program, statement)[0]:
                    halves |= _words(statement, target)
    return halves


def _words(item: Any, target: tuple[int, int]) -> set[int]:
    """The words of field ``target`` that an expression depends on."""
    reference = ir.FieldRef(*target)
    if item == reference:
        return {0, 1}
    if isinstance(item, ir.Binary) and isinstance(item.right, ir.Const):
        inner = _words(item.left, target)
        if item.operator is ir.DataOperator.SHIFT_RIGHT and item.right.value >= PIPE.alu_word_bits:
            return inner & {1}
        if item.operator is ir.DataOperator.AND and 0 <= item.right.value < 1 << 32:
            shifted = any(
                isinstance(node, ir.Binary) and node.operator is ir.DataOperator.SHIFT_RIGHT
                for node in walk(item.left)
            )
            return inner if shifted else inner & {0}
        return inner
    parts = [node for node in _children(item) if _has_fields(node)]
    return set().union(*(_words(part, target) for part in parts)) if parts else set()


def _children(item: Any) -> list[Any]:
    if isinstance(item, ir.FieldRef) or not dataclasses.is_dataclass(item):
        return []
    values = [getattr(item, field.name) for field in dataclasses.fields(item)]
    if isinstance(item, ir.Assign):
        values = [item.value]
    return [each for each in values if dataclasses.is_dataclass(each)]


def _has_fields(item: Any) -> bool:
    """Whether an expression has fields in it."""
    return any(isinstance(node, ir.FieldRef) for node in walk(item))
