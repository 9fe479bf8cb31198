"""Ternary tables of few masks as one hash table, which takes changes in place.

All entries of one mask are found by one hash of the masked key, so that a look-up costs as much
as there are different masks, whatever the number of entries (tuple space search: Srinivasan,
Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999). Masks stand
in the order of their best entries, and the search ends at the first mask whose best entry would
not win against what was found. One hash table serves all masks; its slots hold rows of entries,
which are compared where they lie, in ``EntryColumns``. ``runtime.lookups.find_by_mask`` searches.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.state.entries import EntryColumns, RowChanges
from innet.switch.state.hash_index import (
    all_hashed,
    all_slots,
    hashed,
    slot_of,
    slots_for,
    slots_with_rows,
)

#: From this mean number of entries on, each mask has a hashed look-up.
_SHARED = 4
#: Most entries that match the same as a better one, for changes in place.
_MOST_HIDDEN = 64


class MaskIndex:
    """The entries of a ternary table by their masks.

    Attributes:
        worthwhile: whether masks have enough entries each; else all arrays are empty.
    """

    def __init__(self, columns: EntryColumns) -> None:
        self._columns = columns
        self._arguments: list[NDArray[Any]] = []  # the same objects until something changes
        self._words = len(columns.packing.words)
        order = columns.ordered()
        values, masks, _, _ = columns.masked(order)
        different, first, number = np.unique(masks, axis=0, return_index=True, return_inverse=True)
        self._numbers: dict[tuple[int, ...], int] | None = None
        self.worthwhile = len(order) > _SHARED * len(different)
        if not self.worthwhile:
            self._masks, self._best = np.zeros((0, self._words), np.uint64), np.zeros((0, 3), int)
            self._slots = np.zeros(0, np.uint32)
            return
        by_best = np.argsort(first)
        numbers = np.argsort(by_best)[number.reshape(-1)]
        keyed = np.column_stack((numbers.astype(np.uint64), values))
        _, kept = np.unique(keyed, axis=0, return_index=True)
        slots = slots_for(len(kept))
        wanted = all_slots(all_hashed(keyed[kept], 0), slots)
        rows = order[first[by_best]]
        self._masks = different[by_best]
        self._best = np.column_stack(
            (columns.words[rows, -1].view(np.int64), rows, np.arange(len(rows)))
        )
        self._slots = slots_with_rows(order[kept], wanted, slots)
        #: Rows that match the same as a better one.
        self._hidden = set(np.delete(order, kept).tolist())
        self._filled = len(kept)
        self._changes = 0

    def arguments(self) -> list[NDArray[Any]]:
        """The arguments of ``find_by_mask`` but words and indices of entries.

        Returns:
            the different ``masks``, shape (masks, words), those with the best entries first; for
            each, priority and row of the ``best`` entry and the hash of the mask's number; and the
            slots of a hash table of ``rows``, found by number of the mask and masked key.
        """
        if not self._arguments:
            numbers = self._best[:, 2]
            hashes = all_hashed(numbers.astype(np.uint64).reshape(-1, 1), 0)
            best = np.column_stack((self._best[:, :2], hashes.view(np.int64)))
            self._arguments = [self._masks[numbers].view(np.int64), best, self._slots]
        return self._arguments

    def update(self, changes: RowChanges) -> bool:
        """Take over changes; whether that was possible. If not, make a new index."""
        self._arguments = []
        self._changes += len(changes)
        if self._changes > 64 + self._columns.count // 2 or len(self._hidden) > _MOST_HIDDEN:
            return False
        if self._numbers is None:
            self._numbers = {tuple(mask): i for i, mask in enumerate(self._masks.tolist())}
        self._hidden -= changes.removed
        if changes.removed:
            self._remove(np.fromiter(changes.removed, np.uint32))
        hidden, self._hidden = self._hidden, set()
        for row in [*hidden, *changes.added]:
            self._add(row)
        full = 4 * self._filled > 3 * len(self._slots)
        return not full and self._columns.count > _SHARED // 2 * len(self._masks)

    def _add(self, row: int) -> None:
        assert self._numbers is not None
        words = self._columns.words[row].tolist()
        values, mask, priority = words[: self._words], words[self._words : -1], words[-1]
        number = self._numbers.get(tuple(mask))
        if number is None:
            number = self._numbers[tuple(mask)] = len(self._masks)
            self._masks = np.concatenate((self._masks, np.array([mask], np.uint64)))
        else:
            at = int(np.argmax(self._best[:, 2] == number))
            if not self._wins(priority, row, self._best[at]):
                self._place(row, [number, *values], words)
                return
            self._best = np.delete(self._best, at, axis=0)
        rank = (priority, self._columns.index_of(row))
        at = bisect_left(self._best, rank, key=self._rank)
        self._best = np.insert(self._best, at, (priority, row, number), axis=0)
        self._place(row, [number, *values], words)

    def _rank(self, best: NDArray[np.int64]) -> tuple[int, int]:
        priority, row, _ = best.tolist()
        return priority, self._columns.index_of(row)

    def _wins(self, priority: int, row: int, best: NDArray[np.int64]) -> bool:
        return (priority, self._columns.index_of(row)) < self._rank(best)

    def _place(self, row: int, keyed: list[int], words: list[int]) -> None:
        """Put a row in a slot, unless a better one that matches the same has it."""
        slot, last = slot_of(hashed(keyed, 0), len(self._slots)), len(self._slots) - 1
        while there := int(self._slots[slot]):
            other = self._columns.words[there].tolist()
            if other[:-1] == words[:-1]:
                better = self._ranked(row, words) < self._ranked(there, other)
                self._hidden.add(there if better else row)
                if better:
                    self._slots[slot] = row
                return
            slot = slot + 1 if slot < last else 0
        self._slots[slot] = row
        self._filled += 1

    def _ranked(self, row: int, words: list[int]) -> tuple[int, int]:
        return words[-1], self._columns.index_of(row)

    def _remove(self, rows: NDArray[np.uint32]) -> None:
        """Empty the slots of rows. Their words may already be those of others."""
        assert self._numbers is not None
        held = self._slots == rows[0] if len(rows) == 1 else np.isin(self._slots, rows)
        emptied = np.flatnonzero(held)
        self._slots[emptied] = 0
        self._filled -= len(emptied)
        last = len(self._slots) - 1
        for slot in emptied.tolist():
            # Rows up to the next free slot may have been displaced by this one.
            at = slot + 1 if slot < last else 0
            while moved := int(self._slots[at]):
                self._slots[at] = 0
                self._filled -= 1
                words = self._columns.words[moved].tolist()
                number = self._numbers[tuple(words[self._words : -1])]
                self._place(moved, [number, *words[: self._words]], words)
                at = at + 1 if at < last else 0
