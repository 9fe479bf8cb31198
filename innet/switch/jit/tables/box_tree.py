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

A table that changes has a tree with room for more entries at each node. An entry comes to a node
whose box grows least, as in an R-tree. Where there is no room, it comes to a node beside the tree.
An entry that goes leaves the boxes as they are. After many changes the tree is built again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.state.entries import EntryColumns, RowChanges
from innet.switch.state.hash_index import Words, resized

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


# ── The tree as arrays, and changes in place ─────────────────────────────────────────────────────

#: Entries that may come to each node of a table that changes.
_ROOM = 6
#: Nodes beside the tree.
_BESIDE = 48
#: Columns of ``heads``.
_START, _END, _SKIP, _BEST = range(4)


class BoxIndex:
    """The entries of a ternary or range table as a tree of boxes.

    Args:
        columns: the entries.
        changing: leave room for more entries; without it no change can be taken over.
    """

    def __init__(self, columns: EntryColumns, *, changing: bool) -> None:
        self._columns = columns
        self._keys = len(columns.packing.words)
        self.changing = changing
        self._changes = 0
        self._room = _ROOM if changing else 0
        rows = columns.ordered()
        self._shape(rows)

    def arguments(self) -> list[NDArray[Any]]:
        """The arguments of ``runtime.lookups.find_in_boxes`` but words and indices of entries.

        Returns:
            ``order``: rows of entries, those of a node side by side.
            ``heads``: for each node, before those below it: where its entries begin and end in
                ``order``, the next node that is not below it, and the row of the best entry of
                itself and of those below it.
            ``bounds``: for each node: the best entry's priority, values and masks that all entries
                of itself and of those below it share, the lowest values of the key's words and of
                range fields, and the highest.
        """
        return [
            self._order,
            self._heads[: self._nodes],
            self._bounds[: self._nodes].view(np.int64),
        ]

    def _shape(self, rows: Entries) -> None:
        columns, beside = self._columns, _BESIDE if self.changing else 0
        starts, skips, order, best, bounds = self._divided(rows)
        self._nodes = nodes = len(skips)
        own = np.diff(starts)
        first = starts[:-1] + self._room * np.arange(nodes)
        self._heads = np.zeros((nodes + beside, 4), np.uint32)
        self._heads[:nodes] = np.column_stack((first, first + own, skips, best))
        self._tree_end = len(rows) + self._room * nodes
        self._order = np.zeros(self._tree_end + beside * LEAF, np.uint32)
        self._order[np.arange(len(rows)) + self._room * np.repeat(np.arange(nodes), own)] = order
        self._bounds = np.zeros((nodes + beside, bounds.shape[1]), np.uint64)
        self._bounds[:nodes] = bounds
        if not self.changing:
            return
        self._tree = nodes
        self._parents = [-1] * nodes
        above: list[int] = []
        for node, skip in enumerate(skips.tolist()):
            while above and skips[above[-1]] <= node:
                above.pop()
            self._parents[node] = above[-1] if above else -1
            if skip > node + 1:
                above.append(node)
        self._node_of = np.zeros(len(columns.live), np.int32)
        self._node_of[order] = np.repeat(np.arange(nodes), own)
        self._ends = np.zeros(nodes + beside, np.int64)  # up to where entries of a node may reach
        self._ends[:nodes] = first + own + self._room
        self._ends[nodes:] = self._tree_end + LEAF * np.arange(1, beside + 1)
        self._columns_of_numbers = self._all_numbers()
        self._used = [
            sum(((1 << piece.width) - 1) << piece.shift for piece in word)
            for word in columns.packing.words
        ]
        # Extents as real numbers from 0 to 1, to choose a node by: shape (columns, nodes).
        low, high = self._spans(self._bounds[:nodes])
        self._scale = 1 / np.maximum(self._widths(), 1.0)[:, None]
        self._lows = np.full((len(low), nodes + beside), 2.0)
        self._highs = np.full_like(self._lows, -1.0)
        self._lows[:, :nodes], self._highs[:, :nodes] = low * self._scale, high * self._scale
        self._sizes = (self._highs - self._lows).sum(axis=0)
        self._full = np.zeros(nodes + beside)  # infinite: of a node without room

    def _divided(self, rows: Entries) -> tuple[Entries, Entries, Entries, Entries, Words]:
        """Starts, skips, order, best rows and bounds of a new tree."""
        columns = self._columns
        values, masks, lows, highs = columns.masked(rows)
        if not len(rows):
            nothing = np.zeros(0, np.int64)
            width = 1 + 2 * values.shape[1] + 2 * (values.shape[1] + lows.shape[1])
            return np.zeros(1, np.int64), nothing, nothing, nothing, np.zeros((0, width), np.uint64)
        fields = [
            _field(lows[:, words], highs[:, words]) for words in columns.packing.range_columns()
        ]
        divided = [*fields, *_key_fields(columns, values, masks)]
        tree = BoxTree(
            np.stack([each.lows for each in divided]), np.stack([each.highs for each in divided])
        )
        starts = np.array([*tree.starts, len(rows)])
        skips = np.array(tree.skips, np.int64)
        order = np.array(tree.order, np.int64)
        subtrees = _Subtrees(order, starts[:-1], starts[skips])
        best = rows[subtrees.lowest(np.arange(len(rows)))]
        spans = [(subtrees.lowest(values), subtrees.highest(_highest_keys(columns, values, masks)))]
        spans += [
            (each.words[subtrees.lowest(each.lows)], each.words[subtrees.highest(each.highs)])
            for each in fields
        ]
        parts = [columns.words[best, -1:], *subtrees.common(values, masks)]
        bounds = np.concatenate(
            [*parts, *(low for low, _ in spans), *(high for _, high in spans)], 1
        )
        return starts, skips, rows[order], best, bounds

    # ── Changes ──

    def update(self, changes: RowChanges) -> bool:
        """Take over changes; whether that was possible. If not, make a new index."""
        self._changes += len(changes)
        if not self.changing or self._changes > 64 + self._columns.count // 2:
            return False
        for row in changes.removed:
            self._remove(row)
        if len(self._node_of) < len(self._columns.live):
            self._node_of = resized(self._node_of, len(self._columns.live))
        return all(self._add(row) for row in changes.added)

    def _remove(self, row: int) -> None:
        head = self._heads[self._node_of[row]]
        start, end = int(head[_START]), int(head[_END])
        at = start + int(np.argmax(self._order[start:end] == row))
        self._order[at : end - 1] = self._order[at + 1 : end]
        head[_END] = end - 1
        self._full[self._node_of[row]] = 0

    def _add(self, row: int) -> bool:
        words = self._columns.words[row]
        box = self._box(words.tolist())
        node = self._roomiest(np.array(box, np.uint64))
        if node < 0:
            return False
        rank = (box[0], self._columns.index_of(row))
        # In the order in which entries win.
        start, end = self._heads[node, :2].tolist()
        own = self._order[start:end].tolist()
        at = bisect_left(own, rank, key=self._rank)
        self._order[start : end + 1] = [*own[:at], row, *own[at:]]
        self._heads[node, _END] = end + 1
        if end + 1 == self._ends[node]:
            self._full[node] = np.inf
        self._node_of[row] = node
        while node >= 0 and self._extend(node, box, row, rank):
            node = self._parents[node]
        return True

    def _rank(self, row: int) -> tuple[int, int]:
        return int(self._columns.words[row, -1]), self._columns.index_of(row)

    def _box(self, words: list[int]) -> list[int]:
        """What the bounds of a node would be with one entry."""
        keys = self._keys
        values, masks, ranges = words[:keys], words[keys : 2 * keys], words[2 * keys : -1]
        highest = [
            value | (~mask & used)
            for value, mask, used in zip(values, masks, self._used, strict=True)
        ]
        lows, highs = ranges[: len(ranges) // 2], ranges[len(ranges) // 2 :]
        return [words[-1], *values, *masks, *values, *lows, *highest, *highs]

    def _roomiest(self, box: NDArray[np.uint64]) -> int:
        """The node with room whose box grows least; -1 for none."""
        nodes = self._nodes
        low, high = (each * self._scale for each in self._spans(box[None]))
        after = np.maximum(self._highs[:, :nodes], high)
        after -= np.minimum(self._lows[:, :nodes], low)
        growth = after.sum(axis=0)
        growth *= 65 / 64  # of two that grow alike, the smaller one
        growth -= self._sizes[:nodes]
        growth += self._full[:nodes]
        node = int(growth.argmin()) if nodes else -1
        if node < 0 or growth[node] == np.inf:
            if nodes == len(self._heads):
                return -1
            node = nodes
            start = self._tree_end + LEAF * (node - self._tree)
            self._heads[node] = start, start, node + 1, 0
            self._parents.append(-1)
            self._nodes += 1
        return node

    def _extend(self, node: int, box: list[int], row: int, rank: tuple[int, int]) -> bool:
        """Make the bounds of a node contain an entry; whether they did not."""
        keys, head = self._keys, self._heads[node]
        if not head[_BEST]:  # the first entry of a node beside the tree
            head[_BEST] = row
            self._bounds[node] = box
            self._note(node)
            return True
        had = self._bounds[node].tolist()
        bounds = list(had)
        best = int(head[_BEST])
        if rank < (bounds[0], self._columns.index_of(best)):
            bounds[0], head[_BEST] = rank[0], row
            changed = True
        else:
            changed = False
        for i in range(1, keys + 1):
            agreed = bounds[keys + i] & box[keys + i] & ~(bounds[i] ^ box[i])
            bounds[i], bounds[keys + i] = bounds[i] & agreed, agreed
        first, middle = 1 + 2 * keys, (1 + 2 * keys + len(bounds)) // 2
        for begin, end in self._columns_of_numbers:
            low, high = slice(first + begin, first + end), slice(middle + begin, middle + end)
            bounds[low] = min(bounds[low], box[low])
            bounds[high] = max(bounds[high], box[high])
        if bounds != had:
            self._bounds[node] = bounds
            self._note(node)
            changed = True
        return changed

    def _all_numbers(self) -> list[tuple[int, int]]:
        """Where numbers begin and end among lowest values: words of the key, and range fields."""
        fields = self._columns.packing.range_columns()
        ranges = [(self._keys + each[0], self._keys + each[-1] + 1) for each in fields]
        return [*((i, i + 1) for i in range(self._keys)), *ranges]

    def _spans(self, bounds: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest values as real numbers, shape (columns, nodes)."""
        first = 1 + 2 * self._keys
        real = bounds[:, first:].T.astype(np.float64)
        return real[: len(real) // 2], real[len(real) // 2 :]

    def _widths(self) -> NDArray[np.float64]:
        used = [float(each) for each in self._used]
        packing = self._columns.packing
        return np.array(used + [float((1 << piece.width) - 1) for piece in packing.ranges])

    def _note(self, node: int) -> None:
        low, high = self._spans(self._bounds[node][None])
        low, high = low * self._scale, high * self._scale
        self._lows[:, node], self._highs[:, node] = low[:, 0], high[:, 0]
        self._sizes[node] = (high - low).sum()


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
