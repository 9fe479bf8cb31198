"""Tables and multicast groups as arrays, in the form in which emitted code searches them.

Row 0 of a table is its default entry, so that a miss needs no case of its own; the other rows are
those of ``EntryColumns``, whose arrays are used as they are, and so is its index for exact
tables. Lpm tables are sorted, whatever
the prefixes (``prefix_arrays``). Ternary tables are hash tables by mask
(``mask_arrays``) or, as range tables, trees (``cover_arrays``). What is not an entry's own is made
anew when the control plane has changed the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.jit.tables.box_tree import cover_arrays, no_cover
from innet.switch.jit.tables.masks import mask_arrays
from innet.switch.jit.tables.members import member_arrays, row_arrays
from innet.switch.jit.tables.prefixes import prefix_arrays
from innet.switch.jit.traits import NO_SESSION, NONE
from innet.switch.state.entries import WORD, has_direct, is_direct, set_words
from innet.switch.state.hash_index import HashIndex
from innet.switch.state.profiles import ProfileState
from innet.switch.state.replication import Replication
from innet.switch.state.tables import TableState

Array = NDArray[np.int64]
Argument = NDArray[Any] | int

_EVERY = (1 << WORD) - 1


def table_arguments(
    program: ir.Program, state: TableState, profile: ProfileState | None = None
) -> list[Argument]:
    """The arguments of one table, in the order of ``emit_lookups.lookup_arguments``.

    ``profile`` is where an indirect table takes its actions from.
    """
    arrays = _table_arrays(program, state, profile)
    return [each.reshape(-1) if isinstance(each, np.ndarray) else each for each in arrays]


def value_set_array(described: ir.ValueSet, members: Collection[int]) -> Array:
    """The members of a parser value set one after the other, each as ``set_words`` words."""
    words = set_words(described)
    rows = [[member >> WORD * i & _EVERY for i in range(words)] for member in sorted(members)]
    return np.array(rows, np.uint64).reshape(-1).view(np.int64)


def _table_arrays(
    program: ir.Program, state: TableState, profile: ProfileState | None
) -> list[Argument]:
    table, columns = state.table, state.columns
    if columns.has_masks:
        state.settle()
    arrays: list[Argument]
    if table.kind is ir.TableKind.SIMPLE:
        arrays = [*row_arrays(columns.runs)]
    else:
        assert profile is not None, "an indirect table has one"
        arrays = [*member_arrays(program, state, profile)]
    if not table.keys:
        return arrays
    match table.match:
        case ir.MatchKind.LPM:
            arrays += [columns.words.view(np.int64), *prefix_arrays(columns, table)]
        case ir.MatchKind.TERNARY:
            masks, best, rows = mask_arrays(columns)
            arrays += [columns.words.view(np.int64), masks, best, rows]
            arrays += no_cover() if len(best) else cover_arrays(columns)
        case ir.MatchKind.RANGE:
            arrays += [columns.words.view(np.int64), *cover_arrays(columns)]
        case _ if is_direct(table):
            arrays.append(columns.index.slots)
        case _:
            index = columns.index
            assert isinstance(index, HashIndex)
            index.tidy(columns.words, columns.live)
            arrays += [columns.words.view(np.int64), index.slots, index.seed]
    if has_direct(table):
        arrays.append(columns.indices())
    if table.with_counters:
        assert state.counters is not None
        arrays.append(state.counters.view(np.int64))
    return arrays


# ── Multicast ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Replicas:
    """Group g's copies are ``port`` and ``rid`` at ``start[g]`` .. ``start[g + 1]``."""

    start: Array
    port: Array
    rid: Array
    largest: int


def session_array(replication: Replication) -> Array:
    """Port and group of each mirror session, as ``runtime_queue`` reads them; flat."""
    pairs = np.full((max(replication.sessions, default=-1) + 1, 2), NO_SESSION, np.int64)
    for number, session in replication.sessions.items():
        pairs[number] = [
            NONE if target is None else target for target in (session.port, session.group)
        ]
    return pairs.reshape(-1)


def replica_arrays(replication: Replication) -> Replicas:
    """All multicast groups."""
    highest = max(replication.groups, default=-1)
    start = [0]
    copies: list[tuple[int, int]] = []
    for group in range(highest + 1):
        copies.extend(replication.replicas(group))
        start.append(len(copies))
    pairs = np.array(copies, np.int64).reshape(len(copies), 2)
    starts = np.array(start, np.int64)
    largest = int(np.diff(starts).max(initial=0))
    return Replicas(
        starts, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), largest
    )
