"""The state of tables, value sets and multicast as arrays, in the form that emitted code searches.

``TableArguments`` gives the arguments of one table; ``runtime.lookups`` searches them. Row 0 is
the default entry, so that a miss needs no separate case. The other rows are those of
``EntryColumns``, whose arrays are used as they are, without a copy. What is searched besides
depends on how the table matches, and takes changes of the control plane in place:

* exact: nothing, the state's own hash table is searched;
* lpm: the entries in order, and for each the prefix that contains it (``prefixes``);
* ternary: a hash table by mask (``masks``) or, where most entries have different masks, a tree
  of boxes (``box_tree``);
* range: a tree of boxes;
* indirect (action profiles): nothing but the table's own copies of actions (``member_arrays``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.jit.tables.box_tree import BoxIndex
from innet.switch.jit.tables.masks import MaskIndex
from innet.switch.jit.tables.prefixes import PrefixIndex
from innet.switch.jit.traits import NO_SESSION, NONE
from innet.switch.state.entries import (
    NO_ACTION,
    WORD,
    ActionRows,
    RowChanges,
    has_direct,
    has_indices,
    is_direct,
    row_actions,
    value_set_words,
)
from innet.switch.state.hash_index import HashIndex
from innet.switch.state.profiles import ProfileState
from innet.switch.state.replication import Replication
from innet.switch.state.tables import TableState

Array = NDArray[np.int64]
Argument = NDArray[Any] | int

_EVERY = (1 << WORD) - 1
_NO_INDICES: NDArray[np.uint32] = np.zeros(0, np.uint32)
_NO_MASKS: tuple[NDArray[Any], ...] = (
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.uint32),
)
_NO_BOXES: tuple[NDArray[Any], ...] = (
    np.zeros(0, np.uint32),
    np.zeros(0, np.uint32),
    np.zeros(0, np.int64),
)


class TableArguments:
    """The arguments of one table, in the order of ``emit.lookups.lookup_arguments``.

    Args:
        program: the table's.
        state: the table.
        profile: where an indirect table takes its actions from.
    """

    def __init__(
        self, program: ir.Program, state: TableState, profile: ProfileState | None = None
    ) -> None:
        self._program, self._state, self._profile = program, state, profile
        self._search: _Search | None = None
        # Only look-ups that need more than the state's own index receive the changes.
        self._changes = RowChanges() if _is_searched(state.table) else None
        state.columns.changes = self._changes
        #: Whether an exact table's index may be placed better, see ``settle``.
        self.unsettled = False
        #: What ``_arrays`` returned last, and the arguments made of it.
        self._last: tuple[list[Argument], list[Argument]] = ([], [])

    def update(self) -> list[Argument]:
        """The arguments after changes of the table since the last call.

        An argument is the same object as before where the same memory was changed in place, so that
        who gave its address to compiled code need not do so again.
        """
        arrays = self._arrays()
        if self._changes is not None:
            self._changes.clear()
        had, made = self._last
        arguments = [
            made[i] if i < len(had) and each is had[i] else _flat(each)
            for i, each in enumerate(arrays)
        ]
        self._last = (arrays, arguments)
        return arguments

    def settle(self) -> list[Argument]:
        """The same, with time to prepare for many look-ups without changes."""
        self.unsettled = False
        index = self._state.columns.index
        if isinstance(index, HashIndex):
            index.compact(self._state.columns.words, self._state.columns.live)
        return self.update()

    def _arrays(self) -> list[Argument]:
        table, columns = self._state.table, self._state.columns
        searched = self._searched() if self._changes is not None else []
        arrays: list[Argument]
        if table.kind is ir.TableKind.SIMPLE:
            arrays = [*row_arrays(columns.runs)]
        else:
            assert self._profile is not None, "an indirect table has one"
            arrays = [*member_arrays(self._program, self._state, self._profile)]
        if not table.keys:
            return arrays
        if self._changes is not None:
            arrays += [columns.words, *searched]
        elif is_direct(table):
            arrays.append(columns.index.slots)
        else:
            index = columns.index
            assert isinstance(index, HashIndex)
            self.unsettled = index.improvable
            arrays += [columns.words, index.slots, index.seed]
        if has_indices(table):
            arrays.append(self._indices())
        if table.with_counters:
            assert self._state.counters is not None
            arrays.append(self._state.counters)
        if self._state.ages is not None:
            arrays.append(self._state.ages.last_hits)
        return arrays

    def _indices(self) -> NDArray[np.uint32]:
        columns = self._state.columns
        if has_direct(self._state.table) or not columns.is_compact:
            return columns.indices()
        return _NO_INDICES

    def _searched(self) -> list[NDArray[Any]]:
        """What is searched besides the entries, changed in place if it can be."""
        changes, search = self._changes, self._search
        assert changes is not None
        if self._state.columns.changes is not changes:  # another engine asked meanwhile
            self._state.columns.changes = changes
            changes.forget()
        is_kept = search is not None and not changes.moved
        if is_kept and len(changes):  # otherwise only actions changed, which are not searched
            assert search is not None
            is_kept = search.update(changes)
        if search is None or not is_kept:
            # A table that was changed by a few entries will be so again.
            changing = search is not None and not changes.moved
            self._search = search = self._new_search(search, changing)
        if self._state.table.match is not ir.MatchKind.TERNARY:
            return search.arguments()
        if isinstance(search, MaskIndex):
            return [*search.arguments(), *_NO_BOXES]
        return [*_NO_MASKS, *search.arguments()]

    def _new_search(self, old: _Search | None, changing: bool) -> _Search:
        state = self._state
        if state.table.match is ir.MatchKind.LPM:
            return PrefixIndex(state.columns, state.table)
        state.compact()
        if state.table.match is ir.MatchKind.TERNARY:
            masks = MaskIndex(state.columns)
            if masks.worthwhile:
                return masks
        changing = changing or (isinstance(old, BoxIndex) and old.changing)
        return BoxIndex(state.columns, changing=changing)


def _flat(array: Argument) -> Argument:
    """An argument as emitted code takes it: one-dimensional, and signed where it has 64 bits."""
    if not isinstance(array, np.ndarray):
        return array
    signed = array.view(np.int64) if array.dtype == np.uint64 else array
    return signed.reshape(-1)


_Search = PrefixIndex | MaskIndex | BoxIndex


def _is_searched(table: ir.Table) -> bool:
    """Whether look-ups search more than the index of the table's state."""
    return bool(table.keys) and table.match in (
        ir.MatchKind.LPM,
        ir.MatchKind.TERNARY,
        ir.MatchKind.RANGE,
    )


# ── What entries run: actions, or members of an action profile ───────────────────────────────────
#
# An entry of an indirect table holds twice a member's handle and two, or a group's and three
# (``EntryColumns.targets``). From it emitted code has the row of a member among those of
# ``Members``, or the place of a group among ``Groups``. All tables that share a profile use the
# same arrays.


def row_arrays(rows: ActionRows) -> list[NDArray[Any]]:
    """What rows run, in the order of ``emit.lookups.lookup_arguments``."""
    return [rows.actions, rows.data, *([rows.offsets] if len(rows.offsets) else [])]


def member_arrays(
    program: ir.Program, state: TableState, profile: ProfileState
) -> list[NDArray[Any]]:
    """What members run, with the table's own copies of actions; ``EntryColumns.targets``; and for a
    table with groups where the members of each begin in a list, and that list.
    """
    table, groups = state.table, profile.groups
    _, *data = row_arrays(profile.members.rows)
    arrays = [_member_actions(program, table, profile), *data, state.columns.targets]
    if table.kind is ir.TableKind.INDIRECT_WS:
        arrays += [groups.starts, groups.listed]
    return arrays


def _member_actions(
    program: ir.Program, table: ir.Table, profile: ProfileState
) -> NDArray[np.uint16]:
    """Of each row of members, the position of its action in the table's list."""
    positions = {action: i for i, action in enumerate(table.actions)}
    copies, actions = profile.table_actions[table.name], profile.members.rows.actions
    found = [
        positions.get(copies.get(action, action), NO_ACTION)
        for action in row_actions(program, table)
    ]
    if found == list(range(len(found))):
        return actions
    return np.array([*found, NO_ACTION], np.uint16)[np.minimum(actions, len(found))]


# ── Parser value sets ────────────────────────────────────────────────────────────────────────────


def value_set_array(described: ir.ValueSet, members: Collection[int]) -> Array:
    """The members of a parser value set one after the other, each as ``value_set_words`` words."""
    words = value_set_words(described)
    rows = [[member >> WORD * i & _EVERY for i in range(words)] for member in sorted(members)]
    return np.array(rows, np.uint64).reshape(-1).view(np.int64)


# ── Multicast ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Replicas:
    """Group g's copies are ``port`` and ``rid`` at ``start[g]`` .. ``start[g + 1]``."""

    start: Array
    port: Array
    rid: Array
    largest: int


def session_array(replication: Replication) -> Array:
    """Port and group of each mirror session, as ``runtime.queue`` reads them; flat."""
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
