"""Tables, actions and control flow of a compiled program, for ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.switch import ir
from innet.switch.ir_statements import StatementText
from innet.switch.ir_text import Text

Document = dict[str, Any]


def statements(
    program: ir.Program,
    statements: tuple[ir.ParserOperation, ...] | tuple[ir.Primitive, ...],
    parameters: tuple[ir.Parameter, ...] = (),
) -> list[str]:
    """Statements of the parser, the deparser, or an action with ``parameters``."""
    text = StatementText(program, parameters)
    return [text.of(statement) for statement in statements]


def _node_name(program: ir.Program, node: ir.Node | None) -> str | None:
    """What a step of a pipeline is called; None: the pipeline ends."""
    if node is None:
        return None
    lists: dict[ir.NodeKind, tuple[ir.Table | ir.Conditional | ir.ActionCall, ...]] = {
        ir.NodeKind.TABLE: program.tables,
        ir.NodeKind.CONDITIONAL: program.conditionals,
        ir.NodeKind.ACTION_CALL: program.action_calls,
    }
    return lists[node.kind][node.index].name


def pipeline(program: ir.Program, pipeline: ir.Pipeline) -> Document:
    """The steps that can be reached, each once, in the order in which one comes to them."""
    steps = list(_reachable(program, pipeline.initial))
    return {
        "initial": _node_name(program, pipeline.initial),
        "steps": [_step(program, node) for node in steps],
    }


def _reachable(program: ir.Program, initial: ir.Node | None) -> Iterator[ir.Node]:
    pending, seen = [initial], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(reversed(_successors(program, node)))


def _successors(program: ir.Program, node: ir.Node) -> list[ir.Node | None]:
    match node.kind:
        case ir.NodeKind.CONDITIONAL:
            conditional = program.conditionals[node.index]
            return [conditional.if_true, conditional.if_false]
        case ir.NodeKind.ACTION_CALL:
            return [program.action_calls[node.index].next]
        case ir.NodeKind.TABLE:
            table = program.tables[node.index]
            return (
                [table.hit, table.miss] if table.by_hit else [*table.next, table.base_default_next]
            )


def _step(program: ir.Program, node: ir.Node) -> Document:
    step: Document = {"name": _node_name(program, node), "kind": node.kind.value}
    match node.kind:
        case ir.NodeKind.CONDITIONAL:
            conditional = program.conditionals[node.index]
            step["condition"] = Text(program).of(conditional.condition)
            step["true"] = _node_name(program, conditional.if_true)
            step["false"] = _node_name(program, conditional.if_false)
        case ir.NodeKind.ACTION_CALL:
            call = program.action_calls[node.index]
            step["action"] = program.actions[call.action].name
            step["next"] = _node_name(program, call.next)
        case ir.NodeKind.TABLE:
            step["next"] = _after_table(program, program.tables[node.index])
    return step


def _after_table(program: ir.Program, table: ir.Table) -> str | Document | None:
    """The step after a table: one, or by what was found."""
    if table.by_hit:
        ways = {"hit": table.hit, "miss": table.miss}
    else:
        names = [program.actions[action].name for action in table.actions]
        ways = dict(zip(names, table.next, strict=True))
        if table.default is None:
            ways["no action"] = table.base_default_next
    if len(set(ways.values())) <= 1:
        return _node_name(program, next(iter(ways.values()), None))
    return {name: _node_name(program, node) for name, node in ways.items()}


def table_of(program: ir.Program, table: ir.Table) -> Document:
    """A table, with the program's own entries."""
    text = Text(program)
    return {
        "name": table.name,
        "kind": table.kind.value,
        "match": table.match.value,
        "size": table.max_size,
        "keys": [
            {
                "name": key.name,
                "match": key.match.value,
                "field": text.of(key.field),
                "width": key.width,
                "mask": None if key.mask is None else hex(key.mask),
            }
            for key in table.keys
        ],
        "actions": [program.actions[action].name for action in table.actions],
        "default": None if table.default is None else _entry(program, table.default),
        "default_constant": table.default_entry_const,
        "entries": [
            {
                "match": [_match(match) for match in entry.matches],
                "priority": entry.priority,
                "action": _entry(program, entry.entry),
            }
            for entry in table.entries
        ],
        "constant": table.immutable,
        "next": _after_table(program, table),
        "counter": None if table.counter is None else program.counters[table.counter].name,
        "meter": None if table.meter is None else program.meters[table.meter].name,
        "action_profile": None
        if table.action_profile is None
        else program.action_profiles[table.action_profile].name,
    }


def _entry(program: ir.Program, entry: ir.ActionEntry) -> str:
    action = program.actions[entry.action]
    return f"{action.name}({', '.join(map(hex, entry.arguments))})"


def _match(match: ir.Match) -> str:
    match match:
        case ir.ExactMatch(value):
            return hex(value)
        case ir.LpmMatch(value, prefix):
            return f"{value:#x}/{prefix}"
        case ir.TernaryMatch(value, mask):
            return f"{value:#x} &&& {mask:#x}"
        case ir.RangeMatch(low, high):
            return f"{low:#x}..{high:#x}"


def action_of(program: ir.Program, action: ir.Action) -> Document:
    """An action, with its statements."""
    return {
        "name": action.name,
        "parameters": [{"name": each.name, "width": each.width} for each in action.parameters],
        "statements": statements(program, action.primitives, action.parameters),
    }
