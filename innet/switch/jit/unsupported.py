"""What a program uses that the JIT does not have, found before anything is emitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.switch import ir
from innet.switch.jit.emit.hashes import ALGORITHMS
from innet.switch.jit.tree import walk


def structural_reasons(program: ir.Program) -> list[str]:
    """Each construct with the place where it is used; empty when the program can be emitted."""
    reasons: dict[str, None] = {f"the extern instance {name}": None for name in program.externs}
    for place, tree in _places(program):
        for node in walk(tree):
            if isinstance(node, ir.ExternCall):
                reasons[f"the primitive {node.name} ({place})"] = None
    for reason in _others(program):
        reasons[reason] = None
    return list(reasons)


def _places(program: ir.Program) -> Iterator[tuple[str, Any]]:
    for state in program.parser.states:
        yield f"parser state {state.name}", state
    for action in program.actions:
        yield f"action {action.name}", action
    yield "deparser", program.deparser.operations
    for conditional in program.conditionals:
        yield f"condition {conditional.name}", conditional
    for checksum in program.checksums:
        yield f"checksum {checksum.name}", checksum


def _others(program: ir.Program) -> Iterator[str]:
    for field_list in program.field_lists:
        for part in field_list.elements:
            if isinstance(part, ir.FieldRef) and not program.headers[part.header].metadata:
                yield f"a field list with a packet's header ({program.name_of(part)})"
    used = {
        node.calculation
        for node in walk((program.actions, program.checksums))
        if isinstance(node, ir.Hash | ir.Checksum)
    }
    used.update(range(len(program.calculations), len(program.hashes)))
    for index in sorted(used):
        calculation = program.hashes[index]
        if calculation.algorithm not in ALGORITHMS:
            yield f"the hash algorithm {calculation.algorithm} ({calculation.name})"
