"""The estimate of one program: header vector, stages, stateful ALUs, and the other resources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from innet.switch import ir, load_program
from innet.switch.engine import backward_jumps
from innet.switch.ir.simplify import simplify
from innet.tofino import stages, stateful_alu, translation
from innet.tofino.accesses import (
    ControlFlow,
    Location,
    RegisterAccess,
    effects,
    reads,
    register_accesses,
)
from innet.tofino.report import PIPE, Estimate, FitFinding, Severity, SourcePlaces, Usage
from innet.tofino.stages import Pieces, Placement


def header_vector_bits(program: ir.Program, used: Iterable[Location]) -> int:
    """Bits of the header vector: all parsed headers and the metadata that is used. Each metadata
    field is rounded up to a container size; flags of one bit are packed.
    """
    parsed = extracted_headers(program)
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


def extracted_headers(program: ir.Program) -> set[int]:
    """The headers that the parser may extract."""
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
    """The most bytes that are parsed: to the end, or to the last header of ``needed``.

    A state that follows itself counts once for each element of its stack.
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


# ----------------------------------------------------------------------------
# The estimate.


def estimate(document: Mapping[str, Any], name: str | None = None) -> Estimate:
    """The resources that the program needs, and whether they fit one pipe.

    Args:
        document: p4c's JSON for BMv2.
        name: of the program; by default the name in the JSON.

    Raises:
        ProgramError: the document is not such a program.
    """
    # Step 1: the program without what p4c only writes for BMv2.
    written, source = load_program(document), SourcePlaces(document)
    program = simplify(written)
    flows = [ControlFlow(program, pipeline) for pipeline in (program.ingress, program.egress)]
    # Step 2: what each action does with registers. A packet may access an array once, since it
    # passes the stage that holds it once.
    found = [each for flow in flows for each in register_accesses(program, flow)]
    counts = {
        register: sum(stateful_alu.most_accesses(flow, found, register) for flow in flows)
        for register in sorted({each.register for each in found})
    }
    # Step 3: where everything is placed, by the dependencies of Jose et al. (NSDI 2015).
    placed = stages.place([_pieces(program, flow, found) for flow in flows])
    words, wordy = stateful_alu.output_words(program, source, found)
    # Step 4: what is carried in the header vector, and parsed before ingress and before egress.
    used = _used(program, flows, found)
    again = [stateful_alu.extra_passes(program, source, flow) for flow in flows]
    late = {
        header
        for header, _ in _used(program, flows[1:], found)
        if header in extracted_headers(program)
    }
    # Step 5: amounts beside what a pipe has.
    usages = (
        Usage("stages", len(placed.stages), PIPE.stages),
        Usage("stages by dependencies alone", placed.depth, PIPE.stages),
        Usage("stateful ALUs", len(counts), PIPE.stages * PIPE.stateful_alus),
        Usage("register accesses per packet", max(counts.values(), default=0), 1),
        Usage("output words per stateful ALU", words, 1),
        Usage("logical tables", _total(placed, "tables"), PIPE.stages * PIPE.logical_tables),
        Usage("SRAM blocks", _total(placed, "sram"), PIPE.stages * PIPE.sram_blocks),
        Usage("TCAM blocks", _total(placed, "tcam"), PIPE.stages * PIPE.tcam_blocks),
        Usage("header vector bits", header_vector_bits(program, used), PIPE.header_vector_bits),
        Usage("parser depth, ingress, bytes", parser_bytes(program), None),
        Usage(
            "parser depth, egress, bytes",
            parser_bytes(program, late),
            PIPE.egress_parser_bytes,
        ),
        Usage("recirculations and resubmissions", sum(count for count, _ in again), None),
    )
    # Step 6: what does not fit, or that no stateful ALU, stage or deparser can do.
    findings = [
        *_exceeded(program, source, found, usages, placed),
        *stateful_alu.repeated_accesses(program, source, found, counts),
        *stateful_alu.unsupported_updates(program, source, found),
        *stateful_alu.too_many_instructions(program, source, found),
        *wordy,
        *_wide(program, source, counts),
        *_loops(program),
        *(
            each
            for flow in flows
            for each in stateful_alu.unsupported_arithmetic(program, source, flow)
        ),
        *(each for flow in flows for each in stateful_alu.unknown_externs(program, source, flow)),
        *_checksums(program, late),
        *_unparsed(program),
        *(each for _, notes in again for each in notes),
    ]
    layout = tuple(
        (
            *stage.registers,
            *dict.fromkeys(n for n in stage.tables.values() if n not in stage.registers),
        )
        for stage in placed.stages
    )
    # Step 7: what p4c's translation to Tofino's architecture refuses of the program as written.
    title = name or program.name
    refused = translation.untranslatable(
        written,
        source,
        [ControlFlow(written, pipeline) for pipeline in (written.ingress, written.egress)],
        parser_bytes(written),
    )
    return Estimate(title, usages, tuple(dict.fromkeys(findings)), layout, tuple(refused))


def _pieces(program: ir.Program, flow: ControlFlow, found: Sequence[RegisterAccess]) -> Pieces:
    return Pieces(program, flow, [each for each in found if each.flow is flow])


def _total(placed: Placement, what: str) -> int:
    amounts = (getattr(stage, what) for stage in placed.stages)
    return sum(each if isinstance(each, int) else len(each) for each in amounts)


def _used(
    program: ir.Program, flows: Sequence[ControlFlow], found: Sequence[RegisterAccess]
) -> set[Location]:
    """Fields that pipelines read or write, except metadata inside a stateful ALU."""
    used: set[Location] = set()
    inside = {(each.flow.name, each.step, each.action): set[int]() for each in found}
    for each in found:
        inside[each.flow.name, each.step, each.action] |= each.statements
    for flow in flows:
        for step, node in enumerate(flow.nodes):
            if node.kind is ir.NodeKind.CONDITIONAL:
                used |= reads(program, program.conditionals[node.index].condition)
            elif node.kind is ir.NodeKind.TABLE:
                keys = program.tables[node.index].keys
                used |= reads(program, tuple(key.field for key in keys))
            for action in flow.actions(step):
                carried, given = inside.get((flow.name, step, action), set()), set[Location]()
                for position, statement in enumerate(program.actions[action].primitives):
                    before, after = effects(program, statement)
                    if position in carried:
                        given |= {each for each in after if program.headers[each[0]].metadata}
                        used |= (before | after) - given
                    else:
                        given -= after
                        used |= before | after
    return used


# ── What is exceeded, and remedies ──


def _exceeded(
    program: ir.Program,
    source: SourcePlaces,
    found: Sequence[RegisterAccess],
    usages: Sequence[Usage],
    placed: Placement,
) -> Iterator[FitFinding]:
    over = {usage.resource: usage for usage in usages if not usage.fits}
    if usage := over.get("stateful ALUs"):
        yield _too_many_alus(program, source, found, usage)
    if placed.circular:
        names = ", ".join(dict.fromkeys(piece.name for piece in placed.circular[:4]))
        yield FitFinding(
            Severity.ERROR,
            "stages",
            f"registers that wait for each other have no order of stages: {names}",
            "access them in the same order in all actions",
        )
    if usage := over.get("stages"):
        yield _too_deep(program, source, found, usage, placed)
        yield from _carried(program, source, found)
    if usage := over.get("header vector bits"):
        yield FitFinding(
            Severity.ERROR,
            "header vector bits",
            f"{usage.used} bits of headers and metadata, {usage.available} can be carried",
            "parse fewer values per packet and pass; leave the rest in the payload",
        )
    if usage := over.get("parser depth, egress, bytes"):
        yield FitFinding(
            Severity.ERROR,
            "parser depth, egress, bytes",
            f"egress touches what lies up to {usage.used} bytes deep, {usage.available} are parsed",
            "do it in ingress",
        )


def _too_deep(
    program: ir.Program,
    source: SourcePlaces,
    found: Sequence[RegisterAccess],
    usage: Usage,
    placed: Placement,
) -> FitFinding:
    """The longest chain of dependencies, and whether the chain or the space is the limit."""
    steps = {each.name for each in placed.chain if each.register is not None or each.steps}
    names = [name for name in dict.fromkeys(piece.name for piece in placed.chain) if name in steps]
    shown = names if len(names) <= 14 else [*names[:13], "...", names[-1]]
    text = (
        f"it takes {usage.used} stages, there are {usage.available}: dependencies alone take "
        f"{placed.depth} ({' → '.join(shown)})"
    )
    if placed.depth < usage.used:
        text += (
            f", and room the rest: a stage has {PIPE.stateful_alus} stateful ALUs and "
            f"{PIPE.logical_tables} tables"
        )
    remedy = "let fewer steps wait for each other, keep less per packet, or divide it into passes"
    where = _where(program, source, found, names)
    return FitFinding(Severity.ERROR, usage.resource, text, remedy, where)


def _too_many_alus(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess], usage: Usage
) -> FitFinding:
    """How many pairs of arrays would do the same, if that would help."""
    groups: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for access in found:
        array = program.registers[access.register]
        if array.width == PIPE.alu_word_bits:
            key = (id(access.flow), access.step, array.size, repr(access.index[0]))
            groups[key].add(access.register)
    largest = max(groups.values(), key=len, default=set())
    first = program.registers[min(largest)].name if largest else ""
    saved = len(largest) // 2
    text = f"{usage.used} stateful ALUs, one for each register array; a pipe has {usage.available}"
    if saved == 0:
        return FitFinding(Severity.ERROR, usage.resource, text, "keep less per packet")
    remedy = (
        f"{len(largest)} arrays of one size are accessed together at one index ({first} ...): kept "
        f"two words to a cell they are {len(largest) - saved} register pairs, and "
        f"{usage.used - saved} ALUs altogether"
        f"{'' if usage.used - saved <= (usage.available or 0) else ', which is still too many'}. "
        "A stateful ALU gives one output word, so a second (harvest) pass, a recirculation, has to "
        "read the other words of the pairs"
    )
    return FitFinding(Severity.ERROR, usage.resource, text, remedy, source.register(first))


def _where(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess], names: Sequence[str]
) -> str:
    """The source lines of the registers and steps of a chain, where known."""
    lines: dict[str, str] = {}
    for access in found:
        name = program.registers[access.register].name
        lines.setdefault(name, source.primitive(access.action, access.first))
    locations = [lines.get(name) or source.node(name) for name in names]
    return ", ".join(list(dict.fromkeys(filter(None, locations)))[:8])


def _carried(
    program: ir.Program, source: SourcePlaces, found: Sequence[RegisterAccess]
) -> Iterator[FitFinding]:
    """Fields that one action changes several times, each time from the previous value."""
    for action in dict.fromkeys(each.action for each in found):
        again: Counter[Location] = Counter()
        line: dict[Location, str] = {}
        for position, statement in enumerate(program.actions[action].primitives):
            before, after = effects(program, statement)
            for location in before & after:
                again[location] += 1
                line.setdefault(location, source.primitive(action, position))
        most = max(again.values(), default=0)
        if most >= PIPE.stages // 2:
            locations = [location for location, count in again.items() if count == most]
            names = [program.name_of(ir.FieldRef(*location)) for location in locations]
            others = f" (and {len(names) - 1} other fields)" if len(names) > 1 else ""
            yield FitFinding(
                Severity.ERROR,
                "stages",
                f"{program.actions[action].name} carries {names[0]}{others} through {most} "
                "statements, each of which takes a stage",
                "combine them in a tree, or find the same out in another way",
                ", ".join(dict.fromkeys(filter(None, (line[location] for location in locations)))),
            )


def _wide(
    program: ir.Program, source: SourcePlaces, counts: Mapping[int, int]
) -> Iterator[FitFinding]:
    for register in counts:
        array = program.registers[register]
        if array.width > 2 * PIPE.alu_word_bits:
            yield FitFinding(
                Severity.ERROR,
                "stateful ALUs",
                f"a cell of {array.name} has {array.width} bits, a stateful ALU takes "
                f"{2 * PIPE.alu_word_bits}",
                "divide it into several arrays",
                source.register(array.name),
            )
        if stages.register_blocks(array) > PIPE.sram_blocks:
            yield FitFinding(
                Severity.ERROR,
                "SRAM blocks",
                f"{array.name} has {array.size} cells: more than a stage's SRAM",
                "an array is in one stage: make it smaller",
                source.register(array.name),
            )


def _loops(program: ir.Program) -> Iterator[FitFinding]:
    """Loops in actions. The estimate counts one iteration."""
    actions: dict[str, list[str]] = {}
    for action, jump in backward_jumps(program):
        actions.setdefault(action, []).append(jump.source)
    for action, places in actions.items():
        yield FitFinding(
            Severity.ERROR,
            "stages",
            f"{action} has a loop; each statement runs once for a packet in a pass",
            "write its turns out, or recirculate for each turn",
            ", ".join(dict.fromkeys(filter(None, places))),
        )


def _unparsed(program: ir.Program) -> Iterator[FitFinding]:
    """Checksums that include the payload."""
    for checksum in program.checksums:
        if ir.Payload() in program.calculations[checksum.calculation].inputs:
            yield FitFinding(
                Severity.WARNING,
                "parser depth, ingress, bytes",
                f"the checksum {program.name_of(checksum.target)} covers the payload, which is not "
                "parsed: a parser has to walk to the end of the packet to sum it up",
                "leave damaged packets to the frame check of the link, as SwitchML does",
            )


def _checksums(program: ir.Program, late: set[int]) -> Iterator[FitFinding]:
    """Checksums in egress over headers that egress does not use otherwise."""
    parsed = extracted_headers(program)
    for checksum in program.checksums:
        inputs = program.calculations[checksum.calculation].inputs
        headers = {header for header, _ in reads(program, inputs)} & parsed
        if checksum.update and headers - late:
            names = ", ".join(sorted(program.headers[each].name for each in headers - late))
            yield FitFinding(
                Severity.WARNING,
                "parser depth, egress, bytes",
                f"the checksum {program.name_of(checksum.target)} covers headers that egress has "
                f"no other need to parse: {names}",
                "compute it in the ingress deparser, and account for what egress changes",
            )
