"""Analyses of a lowered program for the emitter.

* ``live_fields``: fields that affect the output. Other fields need no variable.
* ``written_fields``: what a body may change.
* ``passthrough_runs``: fields that leave as they came, copied from the packet when it is deparsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import members, walk
from innet.switch.jit import lowered
from innet.switch.jit.lowered import WIDTH


def live_fields(
    program: ir.Program, bodies: tuple[lowered.Body, ...], copied: set[ir.FieldRef]
) -> set[ir.FieldRef]:
    """Fields whose values affect the output.

    The switch reads fields that leave with the packet, determine its destination, or are part of a
    key or a calculation. Fields that are read only to compute dead fields are dead, too. ``copied``
    are fields that leave without being read.
    """
    live = _read_by_switch(program, copied)
    priority = program.standard.priority
    if priority is not None and priority in written_fields(bodies)[0]:
        live.add(priority)  # the switch reads it; a program that never sets it has priority 0
    while True:
        before = len(live)
        for body in bodies:
            _add_reads(body, live)
        if len(live) == before:
            return live


def _read_by_switch(program: ir.Program, copied: set[ir.FieldRef]) -> set[ir.FieldRef]:
    standard = program.standard
    found = {standard.egress_spec, standard.mcast_grp, standard.checksum_error}
    live = {reference for reference in found if reference is not None}
    for header in program.deparser.order:
        live.update(field for field in program.fields_of(header) if field not in copied)
    for header in range(len(program.headers)):
        variable = program.type_of(header).variable
        if variable is not None:
            live.add(ir.FieldRef(header, variable))
    for table in program.tables:
        live.update(key.field for key in table.keys if key.field.field != ir.VALID)
    for learn_list in program.learn_lists:
        live.update(learn_list.elements)
    for calculation in program.hashes:
        for part in calculation.inputs:
            if isinstance(part, ir.FieldRef):
                live.add(part)
            elif isinstance(part, ir.HeaderRef):
                live.update(program.fields_of(part.header))
    return live


def _add_reads(node: Any, live: set[ir.FieldRef]) -> None:
    """Add the fields that ``node`` reads, without those read for writes to dead fields."""
    if isinstance(node, tuple):
        for part in node:
            _add_reads(part, live)
        return
    if isinstance(node, lowered.SetInteger | lowered.LoadCell):
        if isinstance(node.target, ir.FieldRef) and node.target not in live:
            return
        rest: Any = node.value if isinstance(node, lowered.SetInteger) else node.index
        _add_reads(rest, live)
        return
    if isinstance(node, lowered.MeterPacket):
        _add_reads(node.index, live)
        return
    if isinstance(node, ir.FieldRef):
        live.add(node)
        return
    if isinstance(node, lowered.Loop):
        for part in walk(node):
            if isinstance(part, ir.FieldRef):
                live.add(part)
            elif isinstance(part, lowered.Lane):
                live.update(part.fields(node.count))
        return
    for name in members(type(node)) or ():
        _add_reads(getattr(node, name), live)


def written_fields(bodies: tuple[lowered.Body, ...]) -> tuple[set[ir.FieldRef], set[int]]:
    """Fields that statements write (``WIDTH`` too), and headers whose validity they set."""
    fields: set[ir.FieldRef] = set()
    headers: set[int] = set()
    _add_writes(bodies, 1, fields, headers)
    return fields, headers


def _add_writes(  # noqa: PLR0912 - one branch per statement
    node: Any, count: int, fields: set[ir.FieldRef], headers: set[int]
) -> None:
    if isinstance(node, tuple):
        for part in node:
            _add_writes(part, count, fields, headers)
        return
    match node:
        case lowered.Loop(repetitions, body):
            _add_writes(body, repetitions, fields, headers)
            return
        case lowered.SetValid(header, _):
            headers.add(header)
        case lowered.SetInteger(target) | lowered.LoadCell(target) | lowered.MeterPacket(target):
            if isinstance(target, ir.FieldRef):
                fields.add(target)
            elif isinstance(target, lowered.VarbitOffset):
                fields.add(ir.FieldRef(target.header, target.field))
            elif isinstance(target, lowered.VarbitWidth):
                fields.add(ir.FieldRef(target.header, WIDTH))
            elif isinstance(target, lowered.Lane):
                fields.update(target.fields(count))
        case lowered.If(_, then, otherwise):
            _add_writes((then, otherwise), count, fields, headers)
        case lowered.Dispatch(_, inner):
            _add_writes(inner, count, fields, headers)
        case lowered.While(body):
            _add_writes(body, count, fields, headers)
        case lowered.Blocks(_, blocks):
            _add_writes(tuple(body for _, body in blocks), count, fields, headers)


# ── Fields that pass through ─────────────────────────────────────────────────────────────────────
#
# If only extraction makes a header valid, its fields that nothing writes need no variables between
# parser and deparser. The deparser copies them from the packet. Only complete bytes can be copied
# so.


def passthrough_runs(
    program: ir.Program, bodies: tuple[lowered.Body, ...]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """For each header the runs (first field, last field) of passthrough fields in whole bytes.

    Headers without such runs are left out.
    """
    written, touched = written_fields(bodies)
    extracted = {node.header for node in walk(bodies) if isinstance(node, lowered.ExtractHeader)}
    runs = {
        header: tuple(
            _runs(program.type_of(header), {f.field for f in written if f.header == header})
        )
        for header in sorted(extracted - _made_valid(bodies, touched))
    }
    return {header: found for header, found in runs.items() if found}


def _made_valid(bodies: tuple[lowered.Body, ...], touched: set[int]) -> set[int]:
    """Headers that a statement may make valid; those that are only made invalid do not count."""
    invalid = ir.BoolConst(False)
    return touched & {
        node.header
        for node in walk(bodies)
        if isinstance(node, lowered.SetValid) and node.value != invalid
    }


def _runs(kind: ir.HeaderType, written: set[int]) -> Iterator[tuple[int, int]]:
    """Longest runs of unwritten fields, reduced to complete bytes."""
    first = 0
    while first < len(kind.fields):
        if first in written or kind.fields[first].offset % 8:
            first += 1
            continue
        last = first
        while last < len(kind.fields) and last not in written:
            last += 1
        last -= 1
        while last >= first and _end(kind.fields[last]) % 8:
            last -= 1
        if last >= first:
            yield first, last
        first = max(first, last) + 1


def _end(field: ir.Field) -> int:
    return field.offset + field.width
