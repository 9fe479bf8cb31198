"""What no table of a pipe computes, and second passes through it."""

from __future__ import annotations

from collections.abc import Iterator

from innet.switch import ir
from innet.tofino.accesses import walk
from innet.tofino.flow import Flow
from innet.tofino.limits import PIPE
from innet.tofino.report import Finding, Severity, Source

_NEVER = (ir.DataOperator.MUL, ir.DataOperator.DIV, ir.DataOperator.MOD)
_SHIFTS = (ir.DataOperator.SHIFT_LEFT, ir.DataOperator.SHIFT_RIGHT)


def forbidden(program: ir.Program, source: Source, flow: Flow) -> Iterator[Finding]:
    """Multiplication, division, and shifts by what a packet says."""
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
            yield Finding(
                Severity.ERROR,
                "arithmetic",
                f"no stage computes {name}{by}",
                "look it up in a table, or shift by constants",
                where,
            )


def unknown(program: ir.Program, source: Source, flow: Flow) -> Iterator[Finding]:
    """Externs of a program's own."""
    for item, where in _statements(program, source, flow):
        if isinstance(item, ir.ExternCall):
            yield Finding(
                Severity.WARNING,
                "externs",
                f"{item.name} is no extern of v1model: what it takes is not counted",
                where=where,
            )


def _statements(
    program: ir.Program, source: Source, flow: Flow
) -> Iterator[tuple[ir.Primitive | ir.BoolExpression, str]]:
    for step, node in enumerate(flow.nodes):
        if node.kind is ir.NodeKind.CONDITIONAL:
            conditional = program.conditionals[node.index]
            yield conditional.condition, source.node(conditional.name)
        for action in flow.actions(step):
            for position, statement in enumerate(program.actions[action].primitives):
                yield statement, source.primitive(action, position)


def passes(program: ir.Program, source: Source, flow: Flow) -> tuple[int, list[Finding]]:
    """(how many statements send a packet round again, what there is to say of them)."""
    count, findings = 0, []
    lists = {each.id: each for each in program.field_lists}
    for statement, where in _statements(program, source, flow):
        if not isinstance(statement, ir.Recirculate | ir.Resubmit):
            continue
        count += 1
        again = "recirculates" if isinstance(statement, ir.Recirculate) else "resubmits"
        findings.append(
            Finding(
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
                    Finding(
                        Severity.ERROR,
                        "recirculations and resubmissions",
                        f"a resubmitted packet keeps {size} bits, {8 * PIPE.resubmit_bytes} can be",
                        "keep less, or recirculate with a header of your own",
                        where,
                    )
                )
    return count, findings
