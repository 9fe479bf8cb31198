"""What p4c's Tofino compiler refuses of a program for v1model as it is written.

The compiler translates v1model to TNA. These rules are of that translation, or of what it makes of
a program. Some are no limit of the hardware: a program that breaks them may have a form for TNA
that is accepted, as innet's have (``p4/tna``). Sources: the answers of p4c-barefoot 9.13.4, and in
``backends/tofino/bf-p4c``: arch/v1model.cpp, arch/fromv1.0/checksum.h,
mau/instruction_selection.cpp and midend/register_read_write.cpp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.tofino.accesses import ControlFlow
from innet.tofino.report import PIPE, FitFinding, Severity, SourcePlaces

_RESOURCE = "translation from v1model"
_REGISTER_WIDTHS = (1, 8, 16, 32, 64)
_TO_TNA = "write a form for TNA"


def untranslatable(
    program: ir.Program, source: SourcePlaces, flows: Sequence[ControlFlow], parsed_bytes: int
) -> Iterator[FitFinding]:
    """One finding for each rule that a program breaks, at the places where it does.

    Args:
        program: as p4c wrote it, not simplified.
        source: positions in its P4 source.
        flows: its pipelines.
        parsed_bytes: the most bytes that the parser extracts.
    """
    if parsed_bytes > PIPE.egress_parser_bytes:
        yield _finding(
            f"egress gets the whole parser, which goes {parsed_bytes} bytes deep; "
            f"{PIPE.egress_parser_bytes} are parsed there",
            f"{_TO_TNA}, with a parser of its own for egress",
        )
    for checksum in program.checksums:
        if checksum.verify and not _always(checksum):
            name = program.name_of(checksum.target)
            yield _finding(f"the checksum {name} is verified under a condition", "verify it always")
    for array in program.registers:
        if array.width not in _REGISTER_WIDTHS:
            yield _finding(
                f"{array.name} has cells of {array.width} bits; they may have "
                f"{', '.join(map(str, _REGISTER_WIDTHS))}",
                "take one of these widths",
                source.register(array.name),
            )
    yield from _of_steps(program, source, flows)


def _of_steps(
    program: ir.Program, source: SourcePlaces, flows: Sequence[ControlFlow]
) -> Iterator[FitFinding]:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for flow in flows:
        for step in range(len(flow.nodes)):
            for action in flow.actions(step):
                for position, statement in enumerate(program.actions[action].primitives):
                    for broken in _statement(statement):
                        places[broken].append(source.primitive(action, position))
                for broken in _registers(program, action):
                    places[broken].append(source.primitive(action, 0))
            for broken in _table(program, flow, step):
                places[broken].append(source.node(flow.title(step)))
    for (text, remedy), where in places.items():
        yield _finding(text, remedy, ", ".join(list(dict.fromkeys(filter(None, where)))[:8]))


def _finding(text: str, remedy: str, where: str = "") -> FitFinding:
    return FitFinding(Severity.WARNING, _RESOURCE, text, remedy, where)


def _always(checksum: ir.Checksum) -> bool:
    """Whether a checksum is verified whenever its header is there."""
    match checksum.condition:
        case None | ir.BoolConst(True):
            return True
        case ir.DataToBool(ir.FieldRef(header, ir.VALID)) | ir.Valid(ir.HeaderRef(header)):
            return header == checksum.target.header
        case _:
            return False


def _statement(statement: Any) -> Iterator[tuple[str, str]]:
    if _chooses(statement):
        yield (
            "an action has a condition in it, and few forms are taken",
            "move the test to the control's apply, to a table's key, or, for a register, to a "
            "RegisterAction of TNA",
        )
    match statement:
        case ir.Hash(_, base, _, size):
            if base != ir.Const(0):
                yield "a hash has an offset", "add it in an action after"
            if not isinstance(size, ir.Const) or size.value & (size.value - 1):
                yield "a hash has a range that is no power of 2", "take a power of 2"
        case ir.Recirculate():
            yield "recirculate_preserving_field_list is not known", _TO_TNA


def _chooses(statement: Any) -> bool:
    """Whether a statement has a condition in it. p4c writes most as jumps."""
    match statement:
        case ir.JumpIfZero():
            return True
        case ir.Assign(_, value) | ir.RegisterWrite(_, _, value):
            return any(isinstance(node, ir.Choice) for node in walk(value))
        case _:
            return False


def _registers(program: ir.Program, action: int) -> Iterator[tuple[str, str]]:
    """An action may access one register. Actions that p4c makes of statements outside of actions,
    whose names have no control's in them, are left out: the Tofino compiler makes others.
    """
    if "." not in program.actions[action].name:
        return
    arrays = {
        each.register
        for each in program.actions[action].primitives
        if isinstance(each, ir.RegisterRead | ir.RegisterWrite)
    }
    if len(arrays) > 1:
        yield (
            f"{program.actions[action].name} accesses {len(arrays)} registers",
            "access each register in an action of its own",
        )


def _table(program: ir.Program, flow: ControlFlow, step: int) -> Iterator[tuple[str, str]]:
    """Counters and registers of one table."""
    node = flow.nodes[step]
    if node.kind is not ir.NodeKind.TABLE:
        return
    table = program.tables[node.index]
    counters = [
        {each.counter for each in program.actions[action].primitives if isinstance(each, ir.Count)}
        for action in flow.actions(step)
    ]
    if len(set().union(*counters)) > 1:
        yield (
            f"the actions of {table.name} use several counter arrays",
            "use one array, with an index for each action",
        )
    if table.keys and table.default is not None:
        default = program.actions[table.default.action]
        if any(
            isinstance(each, ir.Count | ir.RegisterRead | ir.RegisterWrite)
            and not isinstance(each.index, ir.Const)
            for each in default.primitives
        ):
            yield (
                f"the default action of {table.name} uses an array at an index that is computed: "
                "a miss has no hash unit",
                "let a constant entry that matches everything run it",
            )
