"""The contents of a compiled program, as a document of dictionaries and lists.

``innet switch explain`` draws a tree from the document, and prints it with ``--json``. Statements
and expressions are text in P4's spelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.switch import ir
from innet.switch.inspect import engines
from innet.switch.ir.text import StatementText, Text, match_text

Document = dict[str, Any]


def statements(
    program: ir.Program,
    statements: tuple[ir.ParserOperation, ...] | tuple[ir.Primitive, ...],
    parameters: tuple[ir.Parameter, ...] = (),
) -> list[str]:
    """Statements of the parser, the deparser, or an action with ``parameters``, as text."""
    text = StatementText(program, parameters)
    return [text.of(statement) for statement in statements]


def _node_name(program: ir.Program, node: ir.Node | None) -> str | None:
    """The name of a step of a pipeline; None for the end of the pipeline."""
    return None if node is None else program.step(node).name


def pipeline(program: ir.Program, pipeline: ir.Pipeline) -> Document:
    """The reachable steps, each once, in the order of the control flow."""
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
        pending.extend(reversed(program.step(node).successors))


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
    """The step after a table: one name, or names by hit, miss or action."""
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
    """A table with its const entries."""
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
                "match": [match_text(m, and_mask=" &&& ", to="..") for m in entry.matches],
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


def action_of(program: ir.Program, action: ir.Action) -> Document:
    """An action, with its statements."""
    return {
        "name": action.name,
        "parameters": [{"name": each.name, "width": each.width} for each in action.parameters],
        "statements": statements(program, action.primitives, action.parameters),
    }


# ----------------------------------------------------------------------------
# The document.


def explain(program: ir.Program) -> Document:
    """The program's parts by name, and information from the engines."""
    return {
        "name": program.name,
        "version": ".".join(map(str, program.version)) or "none",
        "fingerprint": program.fingerprint,
        "headers": [_header(program, i) for i in range(len(program.headers))],
        "stacks": [
            {
                "name": stack.name,
                "type": program.header_types[stack.type].name,
                "size": len(stack.headers),
            }
            for stack in program.stacks
        ],
        "unions": [
            {
                "name": union.name,
                "members": dict(zip(union.members, _names(program, union.headers), strict=True)),
            }
            for union in program.unions
        ],
        "union_stacks": [
            {"name": stack.name, "type": stack.type_name, "size": len(stack.unions)}
            for stack in program.union_stacks
        ],
        "parser": _parser(program),
        "value_sets": [{"name": each.name, "width": each.width} for each in program.value_sets],
        "ingress": pipeline(program, program.ingress),
        "egress": pipeline(program, program.egress),
        "tables": [table_of(program, table) for table in program.tables],
        "actions": [action_of(program, action) for action in program.actions],
        "deparser": {
            "statements": statements(program, program.deparser.operations),
            "order": _names(program, program.deparser.order),
        },
        **_state(program),
        "checksums": [_checksum(program, checksum) for checksum in program.checksums],
        "field_lists": [
            {"id": each.id, "name": each.name, "elements": _elements(program, each.elements)}
            for each in program.field_lists
        ],
        "learn_lists": [
            {"id": each.id, "name": each.name, "elements": _elements(program, each.elements)}
            for each in program.learn_lists
        ],
        "engines": engines(program),
    }


def _names(program: ir.Program, headers: tuple[int, ...]) -> list[str]:
    return [program.headers[header].name for header in headers]


def _header(program: ir.Program, index: int) -> Document:
    header, kind = program.headers[index], program.type_of(index)
    return {
        "name": header.name,
        "type": kind.name,
        "metadata": header.metadata,
        "stack": None if header.stack is None else program.stacks[header.stack].name,
        "union": None if header.union is None else program.unions[header.union].name,
        "bits": kind.width,
        "fields": [
            {
                "name": field.name,
                "offset": field.offset,
                "width": field.width,
                "signed": field.signed,
                "saturating": field.saturating,
                "variable": field.variable,
            }
            for field in kind.fields
        ],
    }


# ── Parser ──


def _parser(program: ir.Program) -> Document:
    parser = program.parser
    return {
        "initial": _state_name(program, parser.initial),
        "states": [_parser_state(program, state) for state in parser.states],
    }


def _masked(value: int, mask: int, width: int) -> str:
    every = (1 << width) - 1
    return hex(value) if mask & every == every else f"{value:#x} &&& {mask & every:#x}"


def _state_name(program: ir.Program, index: int | None) -> str:
    return "accept" if index is None else program.parser.states[index].name


def _parser_state(program: ir.Program, state: ir.ParserState) -> Document:
    text = Text(program)
    return {
        "name": state.name,
        "statements": statements(program, state.operations),
        "key": [{"source": text.of(part.source), "width": part.width} for part in state.key],
        "transitions": [
            {
                "values": [
                    _masked(value, mask, part.width)
                    for value, mask, part in zip(each.values, each.masks, state.key, strict=False)
                ],
                "value_set": None
                if each.value_set is None
                else program.value_sets[each.value_set].name,
                "next": _state_name(program, each.next),
            }
            for each in state.transitions
        ],
        "default": _state_name(program, state.default),
    }


# ── State ──


def _state(program: ir.Program) -> Document:
    tables = program.tables
    return {
        "registers": [
            {"name": each.name, "size": each.size, "width": each.width}
            for each in program.registers
        ],
        "counters": [
            {
                "name": each.name,
                "size": each.size,
                "table": None if each.table is None else tables[each.table].name,
            }
            for each in program.counters
        ],
        "meters": [
            {
                "name": each.name,
                "size": each.size,
                "unit": "bytes" if each.bytes else "packets",
                "rates": each.rates,
                "table": None if each.table is None else tables[each.table].name,
            }
            for each in program.meters
        ],
        "action_profiles": [
            {
                "name": each.name,
                "size": each.max_size,
                "selector": None
                if each.selector is None
                else {
                    "algorithm": each.selector.algorithm,
                    "inputs": _elements(program, each.selector.inputs),
                },
            }
            for each in program.action_profiles
        ],
        "calculations": [
            {
                "name": each.name,
                "algorithm": each.algorithm,
                "inputs": _elements(program, each.inputs),
            }
            for each in program.calculations
        ],
    }


def _elements(program: ir.Program, elements: tuple[ir.CalculationInput, ...]) -> list[str]:
    text = Text(program)
    return [
        "payload"
        if isinstance(each, ir.Payload)
        else f"{each.width}w{each.value:#x}"
        if isinstance(each, ir.CalculationConstant)
        else text.of(each)
        for each in elements
    ]


def _checksum(program: ir.Program, checksum: ir.Checksum) -> Document:
    text, calculation = Text(program), program.calculations[checksum.calculation]
    return {
        "name": checksum.name,
        "target": text.of(checksum.target),
        "calculation": calculation.name,
        "algorithm": calculation.algorithm,
        "verify": checksum.verify,
        "update": checksum.update,
        "condition": None if checksum.condition is None else text.of(checksum.condition),
    }
