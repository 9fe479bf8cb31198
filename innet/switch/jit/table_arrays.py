"""Tables and multicast groups as arrays, in the form in which emitted code searches them.

Row 0 of a table is its default entry, so that a miss needs no case of its own. Exact tables are
arrays over all keys where these are few, else open addressing hash tables at most half full. Lpm
tables are sorted intervals: a look-up is a binary search, whatever the prefixes. Ternary tables are
hash tables by mask (``mask_arrays``). Range tables are lists in the order of precedence: a look-up
is a scan. All are rebuilt as a whole when the control plane has changed the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from innet.switch import ir
from innet.switch.jit.group_rows import resolved_rows
from innet.switch.jit.hash_arrays import Array, place, scatter, wrapped
from innet.switch.jit.keys import (
    WORD,
    KeyWords,
    data_width,
    is_direct,
    key_words,
    set_words,
)
from innet.switch.jit.mask_arrays import mask_arrays
from innet.switch.jit.traits import NO_SESSION, NONE, words_of
from innet.switch.profiles import ProfileState
from innet.switch.replication import Replication
from innet.switch.tables import RuntimeEntry, TableState

Argument = Array | int

#: A hash table of at most so many entries is built with the best of ``_SEEDS`` seeds.
_SMALL = 512
_SEEDS = 32
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
    return wrapped(rows, words).reshape(-1)


def _table_arrays(
    program: ir.Program, state: TableState, profile: ProfileState | None
) -> list[Argument]:
    table = state.table
    entries = state.ordered()
    rows = resolved_rows(table, [state.default, *(entry.action for entry in entries)], profile)
    arrays: list[Argument] = [_actions(table, rows.actions), _data(program, table, rows.actions)]
    if table.kind is ir.TableKind.INDIRECT_WS:
        arrays += [np.array(rows.starts, np.int64), np.array(rows.counts, np.int64)]
    if not table.keys:
        return arrays
    packing = key_words(table)
    match table.match:
        case ir.MatchKind.LPM:
            arrays += _intervals(table, packing, entries)
        case ir.MatchKind.TERNARY:
            arrays += mask_arrays(packing, entries)
        case ir.MatchKind.RANGE:
            arrays += _lists(packing, entries)
        case _ if is_direct(table):
            arrays += _direct(table, packing, entries)
        case _:
            arrays += _hashed(packing, entries)
    if table.with_counters or table.meter is not None:
        arrays.append(np.array([0, *(entry.index for entry in entries)], np.int64))
    if table.with_counters:
        assert state.counters is not None
        arrays.append(state.counters.view(np.int64))
    return arrays


def _actions(table: ir.Table, rows: list[ir.ActionEntry | None]) -> Array:
    """Per row the action's position in the table's list; -1 for none."""
    positions = {action: i for i, action in enumerate(table.actions)}
    return np.array([-1 if row is None else positions[row.action] for row in rows], np.int64)


def _data(program: ir.Program, table: ir.Table, rows: list[ir.ActionEntry | None]) -> Array:
    """Per row the words of the action's arguments, filled up with 0."""
    width = data_width(program, table)
    words = [[] if row is None else _words(program, row) for row in rows]
    return wrapped([(*row, *[0] * (width - len(row))) for row in words], width)


def _words(program: ir.Program, entry: ir.ActionEntry) -> list[int]:
    """The arguments of an action as words, the highest of each first."""
    parameters = program.actions[entry.action].parameters
    return [
        value >> shift & _EVERY
        for each, value in zip(parameters, entry.arguments, strict=True)
        for shift in range(64 * (words_of(each.width) - 1), -1, -64)
    ]


# ── Exact ────────────────────────────────────────────────────────────────────────────────────────


def _direct(table: ir.Table, packing: KeyWords, entries: list[RuntimeEntry]) -> list[Argument]:
    rows = np.zeros(1 << sum(key.width for key in table.keys), np.int64)
    for row, entry in enumerate(entries, 1):
        rows[packing.pack(entry.values)[0]] = row
    return [rows]


def _hashed(packing: KeyWords, entries: list[RuntimeEntry]) -> list[Argument]:
    count = len(entries)
    words = wrapped([packing.pack(entry.values) for entry in entries], len(packing.words))
    # A small table can afford to have hardly any collisions, which a processor mispredicts.
    slots = 1 << max(4, ((8 if count <= _SMALL else 2) * count).bit_length())
    seed, wanted = _seeded(words, slots)
    keys, rows = place(words, np.arange(1, count + 1), wanted, slots)
    return [keys, rows, seed]


def _seeded(words: Array, slots: int) -> tuple[int, Array]:
    """The seed of those tried that makes keys collide least, and the keys' first slots."""
    best, found = -1, (0, np.zeros(0, np.int64))
    for seed in range(_SEEDS if len(words) <= _SMALL else 1):
        wanted = scatter(words, seed) & (slots - 1)
        different = len(np.unique(wanted))
        if different > best:
            best, found = different, (seed, wanted)
        if different == len(words):
            break
    return found


# ── Longest prefix ───────────────────────────────────────────────────────────────────────────────


def _intervals(table: ir.Table, packing: KeyWords, entries: list[RuntimeEntry]) -> list[Argument]:
    """Interval bounds, ascending, and the row of each; entries nest, so a stack finds them."""
    shifts = [64 * i for i in reversed(range(len(packing.words)))]
    everything = tuple((1 << key.width) - 1 for key in table.keys)
    covers: dict[tuple[int, int], int] = {}
    for row, entry in enumerate(entries, 1):
        low = _number(packing.pack(entry.values), shifts)
        size = _number(packing.pack(_outside(everything, entry.masks)), shifts)
        # Longer prefixes come first; the padding of a field can make two cover the same.
        covers.setdefault((low, -(low + size)), row)
    bounds, rows = [0], [0]
    stack: list[tuple[int, int]] = []  # (last number, row) of the intervals that are open

    def start(at: int, row: int) -> None:
        if bounds[-1] == at:
            rows[-1] = row
        else:
            bounds.append(at)
            rows.append(row)

    for (low, negative_high), row in sorted(covers.items()):
        while stack and stack[-1][0] < low:
            ended, _ = stack.pop()
            start(ended + 1, stack[-1][1] if stack else 0)
        start(low, row)
        stack.append((-negative_high, row))
    while stack:
        ended, _ = stack.pop()
        start(ended + 1, stack[-1][1] if stack else 0)
    if bounds[-1] >> (64 * len(shifts)):
        bounds.pop()
        rows.pop()
    words = [[bound >> shift & _EVERY for shift in shifts] for bound in bounds]
    return [wrapped(words, len(shifts)), np.array(rows, np.int64)]


def _outside(everything: tuple[int, ...], masks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(full & ~mask for full, mask in zip(everything, masks, strict=True))


def _number(words: list[int], shifts: list[int]) -> int:
    return sum(word << shift for word, shift in zip(words, shifts, strict=True))


# ── Range ────────────────────────────────────────────────────────────────────────────


def _lists(packing: KeyWords, entries: list[RuntimeEntry]) -> list[Argument]:
    count = len(packing.words)
    arrays: list[Argument] = [
        wrapped([packing.pack(entry.values) for entry in entries], count),
        wrapped([packing.pack(entry.masks) for entry in entries], count),
    ]
    for side in ("values", "masks"):
        rows = [[piece.of(getattr(entry, side)) for piece in packing.ranges] for entry in entries]
        arrays.append(wrapped(rows, len(packing.ranges)))
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
