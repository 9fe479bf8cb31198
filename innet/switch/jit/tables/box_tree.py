"""Ternary and range tables as a tree of boxes, so that a search looks at few of their entries.

To a search an entry is a box: in each field, a lowest and a highest value that it matches. A node
stands for its own entries and all below it, and says what they have in common (as the boxes of an
R-tree: Guttman, "R-Trees: A Dynamic Index Structure for Spatial Searching", SIGMOD 1984): the bits
of the key that they agree on, and their lowest and highest values. A search skips a node and all
below it when its box does not contain the key, or when its best entry would not win.

A node is divided where few entries reach across. Those few stay at it (as in interval trees). Where
they are many, the best entries stay instead (as in priority search trees: McCreight, SIAM Journal
on Computing 14, 1985), so that a search soon has an entry that most others cannot win against.

Entries are compared where they lie, in ``EntryColumns``. So the tree takes a fraction of the memory
of the entries, whatever their masks and ranges. ``runtime.lookups.find_in_boxes`` searches it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.state.entries import EntryColumns
from innet.switch.state.hash_index import Words

#: Nodes with at most this many entries are not divided.
LEAF = 16
#: Most entries that stay at a divided node.
MAX_IN_NODE = 6
#: Largest share of entries on one side of a division, with those across it.
_MAX_SHARE = 7 / 8

Numbers = NDArray[np.int32]
Entries = NDArray[np.int64]


@dataclass(slots=True)
class BoxTree:
    """Nodes, each before those below it.

    Args:
        lows, highs: shape (fields, entries), int32: from where to where an entry reaches; the first
            entries win.

    Attributes:
        order: entries, those at a node and below it side by side, its own first, ascending.
        starts: per node, where its entries begin in ``order``.
        skips: per node, the next one that is not below it.
    """

    lows: Numbers
    highs: Numbers
    order: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    skips: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.lows.shape[1]:
            self._add(np.arange(self.lows.shape[1]))

    def _add(self, entries: Entries) -> None:
        """A node of these entries, which ascend, and those below it."""
        node = len(self.starts)
        self.starts.append(len(self.order))
        self.skips.append(0)
        kept, parts = entries, list[Entries]()
        if len(entries) > LEAF:
            kept, parts = _divide(entries, self.lows[:, entries], self.highs[:, entries])
        self.order += kept.tolist()
        for part in sorted(parts, key=lambda part: int(part[0])):
            self._add(part)
        self.skips[node] = len(self.starts)


def _divide(entries: Entries, lows: Numbers, highs: Numbers) -> tuple[Entries, list[Entries]]:
    """The entries that stay at the node, and the parts of the others."""
    # Try each field at its quartiles. Choose the smallest sum of the larger side and the entries
    # across.
    ordered = np.sort(lows, axis=1)
    quartiles = [len(entries) * quarter // 4 for quarter in (1, 2, 3)]
    cuts = ordered[:, quartiles, None]
    below = (highs[:, None] < cuts).sum(axis=2)
    across = ((lows[:, None] < cuts) & (highs[:, None] >= cuts)).sum(axis=2)
    above = len(entries) - below - across
    left = np.maximum(below, above) + np.where(across <= MAX_IN_NODE, 0, across)
    chosen, quartile = np.unravel_index(np.argmin(left), left.shape)
    if left[chosen, quartile] > _MAX_SHARE * len(entries):
        return _halve(entries, lows, highs, int(chosen))
    # Divide there into entries below, across and above.
    cut = cuts[chosen, quartile]
    side = np.where(highs[chosen] < cut, 0, np.where(lows[chosen] < cut, 1, 2))
    stays = side == 1
    if across[chosen, quartile] > MAX_IN_NODE:
        stays = np.arange(len(entries)) < MAX_IN_NODE
    parts = [entries[(side == each) & ~stays] for each in range(3)]
    return entries[stays], [part for part in parts if len(part)]


def _halve(
    entries: Entries, lows: Numbers, highs: Numbers, chosen: int
) -> tuple[Entries, list[Entries]]:
    """The best entries, and two halves of the others by where the middle of a field lies."""
    kept, others = entries[:LEAF], entries[LEAF:]
    middles = lows[chosen, LEAF:].astype(np.int64) + highs[chosen, LEAF:]
    order = np.argsort(middles, kind="stable")
    half = len(others) // 2
    parts = [others[np.sort(each)] for each in (order[:half], order[half:])]
    return kept, [part for part in parts if len(part)]


# ── The tree as arrays ───────────────────────────────────────────────────────────────────────────


def box_arrays(columns: EntryColumns) -> list[NDArray[Any]]:
    """The arguments of ``runtime.lookups.find_in_boxes`` but the words of entries.

    Returns:
        ``order``: rows of entries, those of a node and of all below it side by side.
        ``heads``: for each node, before those below it: where its entries begin in ``order``, the
            next node that is not below it, and the row of its best entry; then once more where all
            entries end.
        ``bounds``: for each node: the best entry's priority, values and masks that all its entries
            share, the lowest values of the key's words and of range fields, and the highest.
    """
    rows = columns.ordered()
    if not len(rows):
        return empty_box_arrays()
    values, masks, lows, highs = columns.masked(rows)
    fields = [_field(lows[:, words], highs[:, words]) for words in columns.packing.range_columns()]
    divided = [*fields, *_key_fields(columns, values, masks)]
    tree = BoxTree(
        np.stack([each.lows for each in divided]), np.stack([each.highs for each in divided])
    )
    starts = np.array([*tree.starts, len(rows)])
    ends = starts[np.array(tree.skips, np.int64)]
    order = np.array(tree.order, np.int64)
    subtrees = _Subtrees(order, starts[:-1], ends)
    best = rows[subtrees.lowest(np.arange(len(rows)))]
    spans = [(subtrees.lowest(values), subtrees.highest(_highest_keys(columns, values, masks)))]
    spans += [
        (each.words[subtrees.lowest(each.lows)], each.words[subtrees.highest(each.highs)])
        for each in fields
    ]
    parts = [columns.words[best, -1:], *subtrees.common(values, masks)]
    bounds = np.concatenate([*parts, *(low for low, _ in spans), *(high for _, high in spans)], 1)
    heads = np.zeros((len(starts), 3), np.uint32)
    heads[:, 0] = starts
    heads[:-1, 1] = tree.skips
    heads[:-1, 2] = best
    return [rows[order].astype(np.uint32), heads, np.ascontiguousarray(bounds).view(np.int64)]


def empty_box_arrays() -> list[NDArray[Any]]:
    """``box_arrays`` of no entries."""
    rows = np.zeros(0, np.uint32)
    return [rows, np.zeros(3, np.uint32), np.zeros(0, np.int64)]


@dataclass(frozen=True, slots=True)
class _Field:
    """The lowest and the highest value of a range field as ranks; ``words`` of each rank."""

    lows: Numbers
    highs: Numbers
    words: Words


def _field(lows: Words, highs: Words) -> _Field:
    both = np.concatenate((lows, highs))
    _, first, ranks = np.unique(sortable(both), return_index=True, return_inverse=True)
    narrow: Numbers = ranks.reshape(-1).astype(np.int32)
    return _Field(narrow[: len(lows)], narrow[len(lows) :], both[first])


def _key_fields(columns: EntryColumns, values: Words, masks: Words) -> list[_Field]:
    """From where to where entries reach in each piece of the key's words."""
    found = []
    for word, pieces in enumerate(columns.packing.words):
        for piece in pieces:
            shift, ones = np.uint64(piece.shift), np.uint64((1 << piece.width) - 1)
            low = values[:, word] >> shift & ones
            high = low | (~(masks[:, word] >> shift) & ones)
            found.append(_field(low[:, None], high[:, None]))
    return found


def _highest_keys(columns: EntryColumns, values: Words, masks: Words) -> Words:
    """The highest words of keys that entries match."""
    used = [sum(((1 << p.width) - 1) << p.shift for p in word) for word in columns.packing.words]
    return values | (~masks & np.array(used, np.uint64))


@dataclass(frozen=True, slots=True)
class _Subtrees:
    """Summarizes the entries of each node: those at or below it are ``order[start:end]``."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def lowest(self, of: NDArray[Any]) -> NDArray[Any]:
        """By element, as ``highest`` and ``common``; ``of`` has a row for each entry."""
        return self._reduced(np.minimum, of)

    def highest(self, of: NDArray[Any]) -> NDArray[Any]:
        return self._reduced(np.maximum, of)

    def common(self, values: Words, masks: Words) -> tuple[Words, Words]:
        """The bits of the key that all entries compare, and to the same value."""
        ones, some = self._reduced(np.bitwise_and, values), self._reduced(np.bitwise_or, values)
        agreed = self._reduced(np.bitwise_and, masks) & ~(ones ^ some)
        return ones & agreed, agreed

    def _reduced(self, function: np.ufunc, of: NDArray[Any]) -> NDArray[Any]:
        # reduceat reduces from each index to the next; every other range is from an end to a start.
        # An additional row makes the end of the last range a valid index.
        rows = of[np.append(self.order, 0)]
        boundaries = np.column_stack((self.starts, self.ends)).reshape(-1)
        reduced: NDArray[Any] = function.reduceat(rows, boundaries, axis=0)[::2]
        return reduced


def sortable(numbers: Words) -> NDArray[Any]:
    """Numbers of several words as elements with the same order."""
    if numbers.shape[1] == 1:
        return numbers[:, 0]
    return numbers.astype(">u8", order="C").view(f"S{8 * numbers.shape[1]}")[:, 0]
