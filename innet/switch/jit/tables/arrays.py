"""The state of tables, value sets and multicast as arrays, in the form that emitted code searches.

``table_arguments`` gives the arguments of one table; ``runtime.lookups`` searches them. Row 0 is
the default entry, so that a miss needs no case of its own. The other rows are those of
``EntryColumns``, whose arrays are used as they are, without a copy. What is made anew when the
control plane has changed a table depends on how it matches:

* exact: nothing, the state's own hash table is searched;
* lpm: the order of the entries, and for each the prefix that contains it (``prefix_arrays``);
* ternary: a hash table by mask (``mask_arrays``) or, where most entries have a mask of their own,
  a tree of boxes (``box_tree.box_arrays``);
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
from innet.switch.jit.tables.box_tree import box_arrays, empty_box_arrays, sortable
from innet.switch.jit.traits import NO_SESSION, NONE
from innet.switch.state.entries import (
    NO_ACTION,
    WORD,
    ActionRows,
    EntryColumns,
    KeyWords,
    has_direct,
    is_direct,
    row_actions,
    value_set_words,
)
from innet.switch.state.hash_index import (
    HashIndex,
    Words,
    all_hashed,
    all_slots,
    slots_for,
    slots_with_rows,
)
from innet.switch.state.profiles import ProfileState
from innet.switch.state.replication import Replication
from innet.switch.state.tables import TableState, prefix_mask

Array = NDArray[np.int64]
Argument = NDArray[Any] | int

_EVERY = (1 << WORD) - 1


def table_arguments(
    program: ir.Program, state: TableState, profile: ProfileState | None = None
) -> list[Argument]:
    """The arguments of one table, in the order of ``emit.lookups.lookup_arguments``.

    ``profile`` is where an indirect table takes its actions from.
    """
    arrays = _table_arrays(program, state, profile)
    return [each.reshape(-1) if isinstance(each, np.ndarray) else each for each in arrays]


def _table_arrays(
    program: ir.Program, state: TableState, profile: ProfileState | None
) -> list[Argument]:
    table, columns = state.table, state.columns
    if columns.has_masks:
        state.compact()
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
            arrays += empty_box_arrays() if len(best) else box_arrays(columns)
        case ir.MatchKind.RANGE:
            arrays += [columns.words.view(np.int64), *box_arrays(columns)]
        case _ if is_direct(table):
            arrays.append(columns.index.slots)
        case _:
            index = columns.index
            assert isinstance(index, HashIndex)
            index.compact(columns.words, columns.live)
            arrays += [columns.words.view(np.int64), index.slots, index.seed]
    if has_direct(table):
        arrays.append(columns.indices())
    if table.with_counters:
        assert state.counters is not None
        arrays.append(state.counters.view(np.int64))
    if state.ages is not None:
        arrays.append(state.ages.last_hits)
    return arrays


# ── What entries run: actions, or members of an action profile ───────────────────────────────────
#
# An entry of an indirect table holds twice a member's handle and two, or a group's and three
# (``EntryColumns.targets``). From it emitted code has the row of a member among those of
# ``Members``, or the place of a group among ``Groups``. All tables that share a profile use the
# same arrays.


def row_arrays(rows: ActionRows) -> list[NDArray[Any]]:
    """What rows run, in the order of ``emit.lookups.lookup_arguments``."""
    return [rows.actions, rows.data.view(np.int64), *([rows.offsets] if len(rows.offsets) else [])]


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


# ── Longest prefix ───────────────────────────────────────────────────────────────────────────────
#
# Sorted by their lowest key, shorter prefixes first, an entry follows those that contain it. Take
# the last entry that does not start above a key: it is in every entry that the key is in, or is
# one of them. So the search finds this entry, then goes up to the first that contains the key,
# which is the longest. Entries are compared where they lie, in ``EntryColumns``; of long keys only
# a sample is copied, for the search to begin with.


def sample_step(packing: KeyWords) -> int:
    """Of how many entries side by side the lowest key of one is copied: of each where keys are
    short, since to look for an entry costs a search more than to look for a copy.
    """
    return 4 if packing.separate_prefix or len(packing.words) > 1 else 1


def prefix_arrays(columns: EntryColumns, table: ir.Table) -> list[NDArray[Any]]:
    """The arguments of ``runtime.lookups.find_prefix`` but the words of entries.

    ``sample``: the words of the lowest keys, ascending, of every so many entries (``sample_step``);
    ``rows`` of all entries in this order; ``parents``: for each the place in it of the entry that
    it lies in, counted from 1, 0 for none.
    """
    rows = columns.rows()
    by_length = rows[np.argsort(columns.prefixes(rows), kind="stable")]
    order = by_length[np.argsort(sortable(columns.keys(by_length)), kind="stable")]
    lows, lengths = columns.keys(order), columns.prefixes(order)
    parents = _parents(columns, table, lows, lengths)
    sample = np.ascontiguousarray(lows[:: sample_step(columns.packing)]).view(np.int64)
    return [sample, order.astype(np.uint32), parents]


def _parents(
    columns: EntryColumns, table: ir.Table, lows: Words, lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    parents = np.zeros(len(lows), np.uint32)
    positions = np.arange(1, len(lows) + 1, dtype=np.uint32)
    for length in np.unique(lengths).tolist():  # a longer one takes over from a shorter one
        last = np.maximum.accumulate(np.where(lengths == length, positions, 0))
        masks = np.array(_masks(columns, table, length), np.uint64)
        inside = (lengths > length) & (last > 0)
        inside &= ((lows & masks) == lows[last.astype(np.int64) - 1]).all(axis=1)
        parents[inside] = last[inside]
    return parents


def _masks(columns: EntryColumns, table: ir.Table, length: int) -> list[int]:
    """The words of a key with ones where an entry with a prefix of this length looks."""
    masks = tuple(
        prefix_mask(length, key.width) if key.match is ir.MatchKind.LPM else (1 << key.width) - 1
        for key in table.keys
    )
    return columns.packing.pack(masks)


# ── Ternary, by mask ─────────────────────────────────────────────────────────────────────────────
#
# All entries of one mask are found by one hash of the masked key, so that a look-up costs as much
# as there are different masks, whatever the number of entries (tuple space search: Srinivasan,
# Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999). Masks stand
# in the order of their best entries, and the search ends at the first mask whose best entry would
# not win against what was found. One hash table serves all masks; its slots hold rows of entries,
# which are compared where they lie, in ``EntryColumns``.

#: Masks with so many entries on the average are worth a hashed look-up each.
_SHARED = 4


def mask_arrays(columns: EntryColumns) -> list[NDArray[Any]]:
    """The arguments of ``runtime.lookups.find_by_mask`` but the words of entries.

    Returns:
        the different ``masks``, shape (masks, words); priority and row of the ``best`` entry of
        each; and the slots of a hash table of ``rows``, found by number of the mask and masked key.
        All three are empty where masks have too few entries each.
    """
    order = columns.ordered()
    values, masks, _, _ = columns.masked(order)
    different, first, number = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    if len(order) <= _SHARED * len(different):
        nothing = np.zeros(0, np.int64)
        return [nothing, nothing, nothing.astype(np.uint32)]
    by_best = np.argsort(first)
    numbers = np.argsort(by_best)[number.reshape(-1)]
    keyed = np.column_stack((numbers.astype(np.uint64), values))
    _, kept = np.unique(keyed, axis=0, return_index=True)
    slots = slots_for(len(kept))
    wanted = all_slots(all_hashed(keyed[kept], 0), slots)
    rows = order[first[by_best]]
    best = np.column_stack((columns.words[rows, -1].view(np.int64), rows))
    return [different[by_best].view(np.int64), best, slots_with_rows(order[kept], wanted, slots)]


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
