"""The header vector: what of headers and metadata a pipe carries along, and what parsers read."""

from __future__ import annotations

from collections.abc import Iterable

from innet.switch import ir
from innet.tofino.accesses import Place


def bits(program: ir.Program, used: Iterable[Place]) -> int:
    """Bits of the header vector: whole headers that are parsed, metadata that is used, each field
    of it rounded up to what containers come in (flags of one bit are packed).
    """
    parsed = extracted(program)
    total = sum(program.type_of(header).width for header in parsed)
    flags = 0
    for header, field in sorted(set(used)):
        if not program.headers[header].metadata or field == ir.VALID:
            continue
        width = program.type_of(header).fields[field].width
        if width == 1:
            flags += 1
        else:
            total += next((each for each in (8, 16, 32) if width <= each), -(-width // 32) * 32)
    return total + -(-flags // 8) * 8


def extracted(program: ir.Program) -> set[int]:
    """The headers that the parser may take from a packet."""
    found: set[int] = set()
    for state in program.parser.states:
        for operation in state.operations:
            if isinstance(operation, ir.Extract):
                found.update(_targets(program, operation))
    return found


def _targets(program: ir.Program, extract: ir.Extract) -> tuple[int, ...]:
    match extract.target:
        case ir.HeaderRef(header):
            return (header,)
        case ir.StackNext(stack):
            return program.stacks[stack].headers
        case ir.UnionStackNext(stack, position):
            unions = program.union_stacks[stack].unions
            return tuple(program.unions[union].headers[position] for union in unions)


def parser_bytes(program: ir.Program, needed: set[int] | None = None) -> int:
    """The most bytes that a packet is parsed for: to its end, or to the last header of ``needed``.

    A state that follows itself counts as often as its stack has elements.
    """
    parser = program.parser
    if parser.initial is None:
        return 0
    most = 0
    pending: list[tuple[int, int, dict[int, int]]] = [(parser.initial, 0, {})]
    best: dict[int, int] = {}
    while pending:
        index, depth, visits = pending.pop()
        state = parser.states[index]
        limit = max((_times(program, each) for each in state.operations), default=1)
        if visits.get(index, 0) >= limit or best.get(index, -1) >= depth:
            continue
        best[index] = depth
        for operation in state.operations:
            if isinstance(operation, ir.Extract):
                header = _targets(program, operation)[0]
                kind = program.type_of(header)
                depth += kind.max_bytes if kind.variable is not None else kind.width // 8
                if needed is None or set(_targets(program, operation)) & needed:
                    most = max(most, depth)
        after = {each.next for each in state.transitions} | {state.default}
        seen = {**visits, index: visits.get(index, 0) + 1}
        pending.extend((each, depth, seen) for each in after if each is not None)
    return most


def _times(program: ir.Program, operation: ir.ParserOperation) -> int:
    return len(_targets(program, operation)) if isinstance(operation, ir.Extract) else 1
