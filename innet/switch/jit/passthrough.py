"""Fields that leave as they came: their bytes are copied from the packet when it is deparsed.

A header that only extraction makes valid, and of it the fields that nothing writes, need no
variables between parser and deparser. Only whole bytes can be copied so.
"""

from __future__ import annotations

from collections.abc import Iterator

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.liveness import written_fields
from innet.switch.jit.tree import walk


def untouched_runs(
    program: ir.Program, bodies: tuple[lowered.Body, ...]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """For each header the runs (first field, last field) of untouched fields in whole bytes.

    Headers that have none are left out.
    """
    written, touched = written_fields(bodies)
    extracted = {node.header for node in walk(bodies) if isinstance(node, lowered.Extract)}
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
    """Longest runs of fields that are not written, cut down to where they fill whole bytes."""
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
