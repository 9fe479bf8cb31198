"""What is in a compiled program, as a document of plain dictionaries and lists.

The document is what ``innet switch explain --json`` prints, and what its tree is drawn from.
Statements and expressions are text in P4's spelling.
"""

from __future__ import annotations

from innet.switch import ir
from innet.switch.ir_text import Text
from innet.tools.explain_engines import engines
from innet.tools.explain_pipelines import Document, action_of, pipeline, statements, table_of


def explain(program: ir.Program) -> Document:
    """Everything about a program that its JSON says, by name, and what engines make of it."""
    return {
        "name": program.name,
        "version": ".".join(map(str, program.version)),
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
