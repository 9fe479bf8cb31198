"""Whether what a program does with a register is one operation of a stateful ALU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from innet.switch import ir
from innet.tofino.accesses import Access, branches, cells, walk, word
from innet.tofino.flow import Flow
from innet.tofino.limits import PIPE
from innet.tofino.report import Finding, Severity, Source

_RESOURCE = "register accesses per packet"
_ALUS = "stateful ALUs"
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
            yield from _update(program, access, name, where)


def instructions(program: ir.Program, source: Source, found: Sequence[Access]) -> Iterator[Finding]:
    """Register arrays with which more is done than a stateful ALU has instructions for."""
    users: dict[int, dict[tuple[int, int], Access]] = defaultdict(dict)
    for access in found:
        users[access.register].setdefault((id(access.flow), access.action), access)
    names, places = [], []
    for register, actions in users.items():
        if len(actions) > PIPE.alu_instructions:
            names.append((program.registers[register].name, len(actions)))
            places += [source.primitive(each.action, each.first) for each in actions.values()]
    if names:
        others = f" (and {len(names) - 1} other arrays)" if len(names) > 1 else ""
        yield Finding(
            Severity.ERROR,
            _ALUS,
            f"{names[0][1]} actions do something with {names[0][0]}{others}, "
            f"a stateful ALU has {PIPE.alu_instructions} instructions",
            "let one action do what two do, by a condition on a field of the packet",
            ", ".join(list(dict.fromkeys(filter(None, places)))[:8]),
        )


def _update(program: ir.Program, access: Access, name: str, where: str) -> Iterator[Finding]:
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
    parts = [word(program, access.update, which) for which in range(2)]
    known = [part for part in parts if part is not None] or [access.update]
    compared = {repr(node) for part in known for node in walk(part) if _compares(node, held)}
    if len(compared) > PIPE.alu_comparisons:
        yield Finding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} takes {len(compared)} comparisons with the old one, "
            f"a stateful ALU makes {PIPE.alu_comparisons}",
            "decide on the packet's fields in the tables before",
            where,
        )
    words = set().union(*(_inputs(part, held) for part in known))
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
    if isinstance(expression, ir.Binary) and expression.operator is ir.DataOperator.TWO_COMP_MOD:
        return _inputs(expression.left, held)  # a word as a signed number is the same word
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
