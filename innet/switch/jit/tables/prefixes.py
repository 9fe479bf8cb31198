"""LPM tables as sorted prefixes, which take changes in place.

Sorted by their lowest key, shorter prefixes first, an entry follows those that contain it. Take
the last entry that does not start above a key: it is in every entry that the key is in, or is
one of them. So the search finds this entry, then goes up to the first that contains the key,
which is the longest. Entries are compared where they lie, in ``EntryColumns``; of long keys only
a sample is copied, for the search to begin with. ``runtime.lookups.find_prefix`` searches.

A change moves the entries that follow, which for ten thousand of them takes microseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.jit.tables.box_tree import sortable
from innet.switch.state.entries import PREFIX_SHIFT, EntryColumns, KeyWords, RowChanges
from innet.switch.state.hash_index import Words, resized
from innet.switch.state.tables import prefix_mask

_KEY = (1 << PREFIX_SHIFT) - 1


def sample_step(packing: KeyWords) -> int:
    """Of how many entries side by side the lowest key of one is copied: of each where keys are
    short, since to look for an entry costs a search more than to look for a copy.
    """
    return 4 if packing.separate_prefix or len(packing.words) > 1 else 1


class PrefixIndex:
    """The entries of an LPM table in the order of ``find_prefix``."""

    def __init__(self, columns: EntryColumns, table: ir.Table) -> None:
        self._columns, self._table = columns, table
        self._step = sample_step(columns.packing)
        self._masks: dict[int, list[int]] = {}
        #: Whether the key is a prefix and nothing else, and the sample holds all of its words.
        self._is_simple = self._step == 1 and len(table.keys) == 1
        self._longest = max((key.width for key in table.keys), default=0)
        self._every = (1 << self._longest) - 1
        rows = columns.rows()
        by_length = rows[np.argsort(columns.prefixes(rows), kind="stable")]
        order = by_length[np.argsort(sortable(columns.keys(by_length)), kind="stable")]
        lows, lengths = columns.keys(order), columns.prefixes(order)
        self._count = len(order)
        self._rows = order.astype(np.uint32)
        # By position, as rows are: a search then loads both at once, which by rows takes a sixth
        # longer.
        self._parents = self._all_parents(lows, lengths).astype(np.uint32)
        self._sample = np.ascontiguousarray(lows[:: self._step])
        self._arguments: list[NDArray[Any]] = []  # the same objects until something changes

    def arguments(self) -> list[NDArray[Any]]:
        """The arguments of ``find_prefix`` but the words of entries.

        ``sample``: the words of the lowest keys, ascending, of one entry in each block
        (``sample_step``); ``rows`` of all entries in this order; ``parents`` of these: the position
        of the entry that it lies in, from 1, or 0 for none.
        """
        if not self._arguments:
            samples = -(-self._count // self._step)
            self._arguments = [
                self._sample[:samples].view(np.int64),
                self._rows[: self._count],
                self._parents[: self._count],
            ]
        return self._arguments

    def update(self, changes: RowChanges) -> bool:
        """Take over changes; whether that was possible."""
        self._arguments = []
        for row in changes.removed:
            self._remove(row)
        for row in changes.added:
            self._add(row)
        if self._step > 1:
            sampled = self._rows[: self._count : self._step].astype(np.int64)
            self._sample = self._columns.keys(sampled)
        return True

    def _remove(self, row: int) -> None:
        count = self._count
        at = int(np.argmax(self._rows[:count] == row))
        following = self._parents[at + 1 : count]  # an entry's parent is before it
        following[following == at + 1] = self._parents[at]
        following[following > at + 1] -= 1
        self._parents[at : count - 1] = following
        self._rows[at : count - 1] = self._rows[at + 1 : count]
        if self._step == 1:
            self._sample[at : count - 1] = self._sample[at + 1 : count]
        self._count -= 1

    def _add(self, row: int) -> None:
        count, rank = self._count, self._rank(row)
        at = self._place(rank)
        # Where it lies: in the one before it, or in one of those around that.
        parent = at
        while parent and not self._contains(self._rank(self._rows[parent - 1]), rank):
            parent = int(self._parents[parent - 1])
        # What lies in it follows.
        end = at
        if at < count and self._contains(rank, self._rank(self._rows[at])):
            end = self._end_of(rank, at)
        following = self._parents[at:count]
        following[following > at] += 1
        inside = following[: end - at]
        inside[inside == parent] = at + 1
        if count == len(self._rows):
            more = count + count // 16 + 4
            self._rows, self._parents = resized(self._rows, more), resized(self._parents, more)
            if self._step == 1:
                self._sample = resized(self._sample, more)
        self._rows[at + 1 : count + 1] = self._rows[at:count]
        self._rows[at] = row
        self._parents[at + 1 : count + 1] = self._parents[at:count]
        self._parents[at] = parent
        if self._step == 1:
            self._sample[at + 1 : count + 1] = self._sample[at:count]
            self._sample[at] = rank[:-1]
        self._count += 1

    def _place(self, rank: list[int]) -> int:
        """Where an entry belongs in the order."""
        first, last = 0, self._count
        if self._is_simple:  # NumPy searches faster, but knows of lowest keys alone
            low, lows = np.uint64(rank[0]), self._sample[:last, 0]
            first = int(lows.searchsorted(low))
            if first == last or lows[first] != low:
                return first
            last = min(last, first + self._longest + 1)  # entries have as many lengths at most
        return bisect_left(self._rows, rank, first, last, key=self._rank)

    def _end_of(self, rank: list[int], at: int) -> int:
        """Behind the entries from ``at`` on that lie in one of this rank."""
        if self._is_simple:
            highest = rank[0] | (self._every & ~self._masks[rank[-1]][0])
            return int(self._sample[: self._count, 0].searchsorted(np.uint64(highest), "right"))
        return bisect_left(
            self._rows, True, at, self._count, key=lambda each: self._behind(rank, each)
        )

    def _rank(self, row: Any) -> list[int]:
        """The words of the lowest key, then the length."""
        words: list[int] = self._columns.words[row].tolist()
        if not self._columns.packing.separate_prefix:
            words.append(words[0] >> PREFIX_SHIFT)
            words[0] &= _KEY
        return words

    def _contains(self, outer: list[int], inner: list[int]) -> bool:
        length = outer[-1]
        masks = self._masks.get(length)
        if masks is None:
            masks = self._masks[length] = self._masks_of(length)
        inside = all(
            low & mask == begin for low, mask, begin in zip(inner, masks, outer, strict=False)
        )
        return inside and length <= inner[-1]

    def _behind(self, rank: list[int], row: Any) -> bool:
        return not self._contains(rank, self._rank(row))

    def _masks_of(self, length: int) -> list[int]:
        """The words of a key with ones where an entry with a prefix of this length looks."""
        masks = tuple(
            prefix_mask(length, key.width)
            if key.match is ir.MatchKind.LPM
            else (1 << key.width) - 1
            for key in self._table.keys
        )
        return self._columns.packing.pack(masks)

    def _all_parents(self, lows: Words, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each entry the position of the one that it lies in, from 1."""
        parents = np.zeros(len(lows), np.int64)
        positions = np.arange(1, len(lows) + 1)
        for length in np.unique(lengths).tolist():  # a longer one takes over from a shorter one
            last = np.maximum.accumulate(np.where(lengths == length, positions, 0))
            masks = np.array(self._masks_of(length), np.uint64)
            inside = (lengths > length) & (last > 0)
            inside &= ((lows & masks) == lows[last - 1]).all(axis=1)
            parents[inside] = last[inside]
        return parents
