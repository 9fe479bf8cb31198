"""What the ALUs of a pipe can compute: register operations, other arithmetic, and outputs."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.tofino.accesses import (
    ControlFlow,
    Location,
    RegisterAccess,
    branches,
    cells,
    effects,
    is_flag,
    reads,
    word,
)
from innet.tofino.report import PIPE, FitFinding, Severity, SourcePlaces

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


def most_accesses(flow: ControlFlow, found: Sequence[RegisterAccess], register: int) -> int:
    """The most accesses of one packet to a register array, on any path through a pipeline."""
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


def repeated_accesses(
    program: ir.Program,
    source: SourcePlaces,
    found: Sequence[RegisterAccess],
    counts: dict[int, int],
) -> Iterator[FitFinding]:
    """Register arrays that a packet may access more than once."""
    for register, count in counts.items():
        if count > 1:
            locations = [
                source.primitive(each.action, position)
                for each in found
                if each.register == register
                for position in sorted((*each.reads, *each.writes))
            ]
            where = ", ".join(dict.fromkeys(filter(None, locations)))
            yield FitFinding(
                Severity.ERROR,
                _RESOURCE,
                f"{program.registers[register].name} is accessed {count} times by one packet",
                "read, decide and write at one index in one action; or keep what is asked for "
                "later in another array; or recirculate",
                where,
            )


def unsupported_updates(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess]
) -> Iterator[FitFinding]:
    """Updates that a stateful ALU cannot compute."""
    with_branches = {
        number for number in {each.action for each in found} if branches(program.actions[number])
    }
    for access in found:
        name = program.registers[access.register].name
        where = source.primitive(access.action, access.first)
        action = program.actions[access.action]
        if access.action in with_branches:
            yield FitFinding(
                Severity.WARNING,
                _ALUS,
                f"{action.name} has an if in it: what it does with {name} is not examined",
                "write the choice as a conditional expression, with both values computable",
                where,
            )
            continue
        for index in access.index:
            if access.register in cells(index):
                yield FitFinding(
                    Severity.ERROR,
                    _ALUS,
                    f"{name} is indexed by what it holds itself",
                    "compute the index before, of another array or of the packet",
                    where,
                )
        if access.update is not None:
            yield from _update(program, access, name, where)


def too_many_instructions(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess]
) -> Iterator[FitFinding]:
    """Register arrays that need more instructions than a stateful ALU has."""
    users: dict[int, dict[tuple[int, int], RegisterAccess]] = defaultdict(dict)
    for access in found:
        users[access.register].setdefault((id(access.flow), access.action), access)
    names, locations = [], []
    for register, actions in users.items():
        if len(actions) > PIPE.alu_instructions:
            names.append((program.registers[register].name, len(actions)))
            locations += [source.primitive(each.action, each.first) for each in actions.values()]
    if names:
        others = f" (and {len(names) - 1} other arrays)" if len(names) > 1 else ""
        yield FitFinding(
            Severity.ERROR,
            _ALUS,
            f"{names[0][1]} actions do something with {names[0][0]}{others}, "
            f"a stateful ALU has {PIPE.alu_instructions} instructions",
            "let one action do what two do, by a condition on a field of the packet",
            ", ".join(list(dict.fromkeys(filter(None, locations)))[:8]),
        )


def _update(
    program: ir.Program, access: RegisterAccess, name: str, where: str
) -> Iterator[FitFinding]:
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
        yield FitFinding(
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
        yield FitFinding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} takes {len(compared)} comparisons with the old one, "
            f"a stateful ALU makes {PIPE.alu_comparisons}",
            "decide on the packet's fields in the tables before",
            where,
        )
    words = set().union(*(_inputs(part, held) for part in known))
    if len(words) > PIPE.alu_inputs:
        yield FitFinding(
            Severity.ERROR,
            _ALUS,
            f"the new value of {name} is made of {len(words)} words of the packet, "
            f"a stateful ALU is given {PIPE.alu_inputs}",
            "combine them in an action before",
            where,
        )


def _compares(node: Any, held: int) -> bool:
    """A comparison with the cell itself, not with the result of another comparison."""
    sides = (node.left, node.right) if isinstance(node, ir.Compare) else ()
    return held in cells(sides) and not any(_compares(each, held) for each in walk(sides))


def _by_constant(node: ir.Binary) -> bool:
    """A shift by a constant."""
    shifts = (ir.DataOperator.SHIFT_LEFT, ir.DataOperator.SHIFT_RIGHT)
    return node.operator in shifts and isinstance(node.right, ir.Const)


def _inputs(expression: Any, held: int) -> set[str]:  # noqa: PLR0911 - one for each form
    """The input words of an ALU: the largest subexpressions that do not depend on its cell.

    A condition on fields is not an input word. It selects the instruction.
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
    """Inputs of a condition. Its parts that depend on the packet alone select instructions."""
    if held not in cells(condition):
        return set()
    if isinstance(condition, ir.Logical):
        return _condition(condition.left, held) | _condition(condition.right, held)
    return _inputs(condition, held)


# ----------------------------------------------------------------------------
# Unsupported arithmetic, and extra passes through the pipe.

_NEVER = (ir.DataOperator.MUL, ir.DataOperator.DIV, ir.DataOperator.MOD)
_SHIFTS = (ir.DataOperator.SHIFT_LEFT, ir.DataOperator.SHIFT_RIGHT)


def unsupported_arithmetic(
    program: ir.Program, source: SourcePlaces, flow: ControlFlow
) -> Iterator[FitFinding]:
    """Multiplication, division, and shifts by amounts that are not constant."""
    for item, where in _statements(program, source, flow):
        names = dict.fromkeys(
            node.operator.value
            for node in walk(item)
            if isinstance(node, ir.Binary)
            and (
                node.operator in _NEVER
                or (node.operator in _SHIFTS and not isinstance(node.right, ir.Const))
            )
        )
        for name in names:
            by = " by something that is not constant" if name in ("<<", ">>") else ""
            yield FitFinding(
                Severity.ERROR,
                "arithmetic",
                f"no stage computes {name}{by}",
                "look it up in a table, or shift by constants",
                where,
            )


def unknown_externs(
    program: ir.Program, source: SourcePlaces, flow: ControlFlow
) -> Iterator[FitFinding]:
    """Externs that v1model does not have."""
    for item, where in _statements(program, source, flow):
        if isinstance(item, ir.ExternCall):
            yield FitFinding(
                Severity.WARNING,
                "externs",
                f"{item.name} is no extern of v1model: what it takes is not counted",
                where=where,
            )


def _statements(
    program: ir.Program, source: SourcePlaces, flow: ControlFlow
) -> Iterator[tuple[ir.Primitive | ir.BoolExpression, str]]:
    for step, node in enumerate(flow.nodes):
        if node.kind is ir.NodeKind.CONDITIONAL:
            conditional = program.conditionals[node.index]
            yield conditional.condition, source.node(conditional.name)
        for action in flow.actions(step):
            for position, statement in enumerate(program.actions[action].primitives):
                yield statement, source.primitive(action, position)


def extra_passes(
    program: ir.Program, source: SourcePlaces, flow: ControlFlow
) -> tuple[int, list[FitFinding]]:
    """(how many statements resubmit or recirculate, findings about them)."""
    count, findings = 0, []
    lists = {each.id: each for each in program.field_lists}
    for statement, where in _statements(program, source, flow):
        if not isinstance(statement, ir.Recirculate | ir.Resubmit):
            continue
        count += 1
        again = "recirculates" if isinstance(statement, ir.Recirculate) else "resubmits"
        findings.append(
            FitFinding(
                Severity.NOTE,
                "recirculations and resubmissions",
                f"the program {again} packets: they take the pipe's bandwidth once more",
                where=where,
            )
        )
        if isinstance(statement, ir.Resubmit) and isinstance(statement.field_list, ir.Const):
            kept = lists.get(statement.field_list.value)
            size = sum(
                program.field(each).width if isinstance(each, ir.FieldRef) else each.width
                for each in (kept.elements if kept else ())
            )
            if size > 8 * PIPE.resubmit_bytes:
                findings.append(
                    FitFinding(
                        Severity.ERROR,
                        "recirculations and resubmissions",
                        f"a resubmitted packet keeps {size} bits, {8 * PIPE.resubmit_bytes} can be",
                        "keep less, or recirculate with a header of your own",
                        where,
                    )
                )
    return count, findings


# ----------------------------------------------------------------------------
# Outputs of stateful ALUs: words, and flags beside them.

_OUTPUTS_RESOURCE = "output words per stateful ALU"


def output_words(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess]
) -> tuple[int, list[FitFinding]]:
    """(the most words that are output from one cell, findings about it)."""
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
        findings.append(FitFinding(Severity.ERROR, _OUTPUTS_RESOURCE, text, remedy, where))
    if beside:
        names, where = _named(program, source, beside)
        text = (
            f"a packet takes a word and flags out of a cell of {names}: a stateful ALU of a "
            "Tofino 1 gives either a word or what its comparisons came to, one of a Tofino 2 both"
        )
        remedy = "on a Tofino 1, find the flags out in another array, or in another pass"
        findings.append(FitFinding(Severity.WARNING, _OUTPUTS_RESOURCE, text, remedy, where))
    return most, findings


def _named(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess]
) -> tuple[str, str]:
    """(names of the arrays, where they are accessed)."""
    names = list(dict.fromkeys(program.registers[each.register].name for each in found))
    others = f" (and {len(names) - 1} other arrays)" if len(names) > 1 else ""
    locations = [source.primitive(each.action, each.first) for each in found]
    return names[0] + others, ", ".join(list(dict.fromkeys(filter(None, locations)))[:8])


def _gives_flag(program: ir.Program, access: RegisterAccess) -> bool:
    statements = program.actions[access.action].primitives
    return any(is_flag(program, statements[each]) for each in access.inside)


def _gives_word(program: ir.Program, access: RegisterAccess) -> bool:
    """Whether anything outside the ALU uses a word of the cell, old or new."""
    statements = program.actions[access.action].primitives
    for position in (*access.reads, *access.inside):
        if position in access.inside and is_flag(program, statements[position]):
            continue
        for location in effects(program, statements[position])[1]:
            if not program.headers[location[0]].metadata:
                return True
            if any(True for _ in _looking(program, access, position, location)):
                return True
    return False


def _halves(program: ir.Program, access: RegisterAccess) -> set[int]:
    """The 32-bit words of the cell that are used outside the ALU."""
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


def _looking(
    program: ir.Program, access: RegisterAccess, position: int, target: Location
) -> Iterator[Any]:
    """What uses ``target`` outside the ALU after the statement at ``position`` has set it."""
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


def _matched(program: ir.Program, flow: ControlFlow, step: int) -> Any:
    """What a step depends on: a condition, or the keys of a table."""
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
    """Whether an expression contains fields."""
    return any(isinstance(node, ir.FieldRef) for node in walk(item))
