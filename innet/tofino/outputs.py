"""What a packet takes out of register cells: words, and flags beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from innet.switch import ir
from innet.tofino.accesses import Access, Place, effects, is_flag, reads, walk
from innet.tofino.flow import Flow
from innet.tofino.limits import PIPE
from innet.tofino.report import Finding, Severity, Source

_RESOURCE = "output words per stateful ALU"


def output_words(
    program: ir.Program, source: Source, found: Sequence[Access]
) -> tuple[int, list[Finding]]:
    """The most words that a packet takes out of one cell, what there is to say of it."""
    most, many, beside = 0, [], []
    for access in found:
        if not access.reads:
            continue
        narrow = program.registers[access.register].width <= PIPE.alu_word_bits
        words = 1 if narrow else len(_halves(program, access) | access.gives)
        most = max(most, words)
        if words > 1:
            many.append(access)
        elif _gives_flag(program, access) and _gives_word(program, access):
            beside.append(access)
    findings = []
    if many:
        names, where = _named(program, source, many)
        text = f"a packet takes {most} words out of a cell of {names}, a stateful ALU gives one"
        remedy = (
            "let a second (harvest) pass, a recirculation, read the other word; or keep two arrays"
        )
        findings.append(Finding(Severity.ERROR, _RESOURCE, text, remedy, where))
    if beside:
        names, where = _named(program, source, beside)
        text = (
            f"a packet takes a word and flags out of a cell of {names}: a stateful ALU of a "
            "Tofino 1 gives either a word or what its comparisons came to, one of a Tofino 2 both"
        )
        remedy = "on a Tofino 1, find the flags out in another array, or in another pass"
        findings.append(Finding(Severity.WARNING, _RESOURCE, text, remedy, where))
    return most, findings


def _named(program: ir.Program, source: Source, found: Sequence[Access]) -> tuple[str, str]:
    """(names of the arrays, where they are accessed)."""
    names = list(dict.fromkeys(program.registers[each.register].name for each in found))
    others = f" (and {len(names) - 1} other arrays)" if len(names) > 1 else ""
    places = [source.primitive(each.action, each.first) for each in found]
    return names[0] + others, ", ".join(list(dict.fromkeys(filter(None, places)))[:8])


def _gives_flag(program: ir.Program, access: Access) -> bool:
    statements = program.actions[access.action].primitives
    return any(is_flag(program, statements[each]) for each in access.inside)


def _gives_word(program: ir.Program, access: Access) -> bool:
    """Whether anything outside of the ALU looks at a word of the cell, old or new."""
    statements = program.actions[access.action].primitives
    for position in (*access.reads, *access.inside):
        if position in access.inside and is_flag(program, statements[position]):
            continue
        for place in effects(program, statements[position])[1]:
            if not program.headers[place[0]].metadata:
                return True
            if any(True for _ in _looking(program, access, position, place)):
                return True
    return False


def _halves(program: ir.Program, access: Access) -> set[int]:
    """Which 32-bit words of the cell anything outside of the ALU looks at."""
    statements = program.actions[access.action].primitives
    halves: set[int] = set()
    for position in access.reads:
        target = next(iter(effects(program, statements[position])[1]), None)
        width = 0 if target is None else program.field(ir.FieldRef(*target)).width
        if target is None or not program.headers[target[0]].metadata:
            return set(range(-(-width // PIPE.alu_word_bits))) or {0}
        for item in _looking(program, access, position, target):
            halves |= _words(item, target)
    return halves


def _looking(program: ir.Program, access: Access, position: int, target: Place) -> Iterator[Any]:
    """What outside of the ALU looks at ``target`` after the statement at ``position`` set it."""
    statements = program.actions[access.action].primitives
    for later in range(position + 1, len(statements)):
        before, after = effects(program, statements[later])
        if later not in access.statements and target in before:
            yield statements[later]
        if target in after:
            return
    for step in access.flow.followers[access.step]:
        for action in access.flow.actions(step):
            for statement in program.actions[action].primitives:
                if target in effects(program, statement)[0]:
                    yield statement
        matched = _matched(program, access.flow, step)
        if target in reads(program, matched):
            yield matched


def _matched(program: ir.Program, flow: Flow, step: int) -> Any:
    """What a step decides by: a condition, or the keys of a table."""
    node = flow.nodes[step]
    match node.kind:
        case ir.NodeKind.CONDITIONAL:
            return program.conditionals[node.index].condition
        case ir.NodeKind.TABLE:
            return tuple(key.field for key in program.tables[node.index].keys)
        case ir.NodeKind.ACTION_CALL:
            return ()


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
