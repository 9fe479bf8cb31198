"""The entries of a table as columns of arrays, which grow as entries come.

Row ``index + 1`` is the entry of an index; row 0 is the default. A row is its words, which no other
row has: those of the key, in an LPM table with the prefix length (in the first word's upper bits
where the key leaves them free, else in a word of its own), in a ternary or range table then the
words of the masks, of the lowest and the highest values of range fields, and the priority. The
compiled engine reads the same arrays.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.fresh_memory import resized
from innet.switch.hash_index import HashIndex, Words
from innet.switch.table_words import (
    PREFIX_SHIFT,
    data_width,
    key_words,
    pack_arguments,
    unpack_arguments,
)

_MORE_ROWS = 16
NO_ACTION = (1 << 16) - 1
"""In ``EntryColumns.actions``: nothing runs."""


class EntryColumns:
    """Rows of entries.

    Args:
        table: whose entries.
        actions: the program's.

    Attributes:
        packing: how key fields become words.
        words: shape (rows, words), uint64.
        actions: uint16; the position of an action in the table's list, or ``NO_ACTION``.
        targets: uint32, in an indirect table, else empty: twice the handle of a member and two, or
            of a group and three; 0 for a default that refers to none.
        data: shape (rows, columns), uint64: the words of the action's arguments, then zeros.
        live: whether there is such an entry; false for the default.
        versions: uint8; part of the entry's handle, one more for each that was deleted.
        index: finds rows by their words.
        count: of entries.
    """

    def __init__(self, table: ir.Table, actions: Sequence[ir.Action]) -> None:
        self._table = table
        self._actions = actions
        self._positions = {action: i for i, action in enumerate(table.actions)}
        self.packing = key_words(table)
        self.has_masks = table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)
        keys, ranges = len(self.packing.words), len(self.packing.ranges)
        width = keys + (keys + 2 * ranges + 1 if self.has_masks else 0)
        self._lpm = table.match is ir.MatchKind.LPM
        self._prefix_apart = self._lpm and self.packing.prefix_apart
        width += self._prefix_apart
        self._ends = (keys, 2 * keys, 2 * keys + ranges, 2 * (keys + ranges))
        simple = table.kind is ir.TableKind.SIMPLE
        columns = data_width(actions, table) if simple else 0
        self.words: Words = np.zeros((1, width), np.uint64)
        self.actions: NDArray[np.uint16] = np.full(1, NO_ACTION, np.uint16)
        self.targets: NDArray[np.uint32] = np.zeros((1, 0 if simple else 1), np.uint32)
        self.data: Words = np.zeros((1, columns), np.uint64)
        self.live: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self.versions: NDArray[np.uint8] = np.zeros(1, np.uint8)
        self.clear()

    def clear(self) -> None:
        """Remove all entries; versions start again."""
        self._resize(1)
        self.index = HashIndex()
        self.count = 0
        self._used = 1
        self._free: list[int] = []
        self._probes: dict[int, list[int]] = {}

    # ── Rows ──

    def rows(self) -> NDArray[np.int64]:
        """Those of entries, ascending."""
        return np.flatnonzero(self.live)

    def ordered(self) -> NDArray[np.int64]:
        """The rows of entries so that the first that matches is the one that is hit."""
        rows = self.rows()
        if self._lpm:
            return rows[np.argsort(-self.prefixes(rows), kind="stable")]
        if self.has_masks:
            return rows[np.argsort(self.words[rows, -1], kind="stable")]
        return rows

    def find(self, words: Sequence[int]) -> int:
        """The row with these words; 0 when there is none."""
        return self.index.find(self.words, words)

    def insert(self, words: Sequence[int]) -> int:
        """A new row with these words, which no other has; the lowest that is free."""
        if self._free:
            row = heapq.heappop(self._free)
        else:
            row, self._used = self._used, self._used + 1
            if row == len(self.live):
                more = row + row // 8 + _MORE_ROWS
                self._resize(min(more, self._table.max_size + 1))
        self.words[row] = words
        self.live[row] = True
        self.count += 1
        self.index.insert(self.words, row, self.live)
        return row

    def remove(self, row: int) -> None:
        """Take an entry out; whoever gets its row has the next version."""
        self.index.remove(self.words, row)
        self.live[row] = False
        self.versions[row] = (int(self.versions[row]) + 1) % 256  # as simple_switch counts
        self.count -= 1
        heapq.heappush(self._free, row)

    def _resize(self, rows: int) -> None:
        """Room for so many rows, of which those that were there stay."""
        self.words = resized(self.words, rows)
        self.actions = resized(self.actions, rows)
        self.targets = resized(self.targets, rows)
        self.data = resized(self.data, rows)
        self.live = resized(self.live, rows)
        self.versions = resized(self.versions, rows)

    # ── What an entry matches ──

    def pack(
        self, values: tuple[int, ...], masks: tuple[int, ...], prefix: int, priority: int
    ) -> list[int]:
        """The words of an entry, from ``tables.normalise``."""
        words = self.packing.pack(values)
        if self._lpm:
            self._add_prefix(words, prefix)
        elif self.has_masks:
            words += self.packing.pack(masks)
            words += self.packing.pack_ranges(values)
            words += self.packing.pack_ranges(masks)
            words.append(priority)
        return words

    def _add_prefix(self, words: list[int], prefix: int) -> None:
        if self._prefix_apart:
            words.append(prefix)
        else:
            words[0] |= prefix << PREFIX_SHIFT

    def prefixes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The prefix lengths of LPM entries."""
        words = self.words[rows]
        packed = words[:, -1] if self._prefix_apart else words[:, 0] >> np.uint64(PREFIX_SHIFT)
        lengths: NDArray[np.int64] = packed.astype(np.int64)
        return lengths

    def keys(self, rows: NDArray[np.int64]) -> Words:
        """The words of the keys of exact or LPM entries, (rows, words)."""
        words = self.words[rows, : len(self.packing.words)]
        if self._lpm and not self._prefix_apart:
            words[:, 0] &= np.uint64((1 << PREFIX_SHIFT) - 1)
        return words

    def values_and_masks(self, row: int) -> tuple[list[int], list[int]]:
        """The key fields of a ternary or range entry; those of an exact or LPM entry without masks.

        As ``RuntimeEntry.values`` and ``.masks`` describe them.
        """
        keys, masks_end, lows_end, highs_end = self._ends
        words = self.words[row].tolist()
        values, masks = [0] * len(self._table.keys), [0] * len(self._table.keys)
        self.packing.unpack(words[:keys], words[masks_end:lows_end], values)
        if self.has_masks:
            self.packing.unpack(words[keys:masks_end], words[lows_end:highs_end], masks)
        return values, masks

    def masked(self, rows: NDArray[np.int64]) -> tuple[Words, Words, Words, Words]:
        """Key, masks, lowest and highest values of ternary or range entries: (rows, words) each."""
        keys, masks_end, lows_end, highs_end = self._ends
        words = self.words[rows]
        return (
            words[:, :keys],
            words[:, keys:masks_end],
            words[:, masks_end:lows_end],
            words[:, lows_end:highs_end],
        )

    def first_covering(self, key: tuple[int, ...]) -> int:
        """The row of the ternary or range entry that ``key`` hits; 0 for none."""
        rows = self.rows()
        values, masks, lows, highs = self.masked(rows)
        words = np.array(self.packing.pack(key), np.uint64)
        fits = ((words & masks) == values).all(axis=1)
        numbers = np.array(self.packing.pack_ranges(key), np.uint64)
        at_low = at_high = np.ones(len(rows), np.bool_)
        for i, start in enumerate(self.packing.starts):
            # A number of several words is compared by the first that differs from the bound's.
            at_low, at_high = (at_low | start), (at_high | start)
            fits &= ~(at_low & (numbers[i] < lows[:, i]))
            fits &= ~(at_high & (numbers[i] > highs[:, i]))
            at_low = at_low & (numbers[i] == lows[:, i])
            at_high = at_high & (numbers[i] == highs[:, i])
        found = rows[fits]
        if not len(found):
            return 0
        return int(found[np.argmin(self.words[found, -1])])

    def longest_prefix(self, key: tuple[int, ...]) -> int:
        """The row of the LPM entry that ``key`` hits; 0 for none."""
        words = self.packing.pack(key)
        for prefix, mask in self._probes.items():
            probe = [word & part for word, part in zip(words, mask, strict=True)]
            self._add_prefix(probe, prefix)
            if row := self.find(probe):
                return row
        return 0

    def knows_prefix(self, prefix: int) -> bool:
        """Whether ``longest_prefix`` looks for entries of this length."""
        return prefix in self._probes

    def note_prefix(self, prefix: int, masks: tuple[int, ...]) -> None:
        """Make ``longest_prefix`` look for entries of this length, which have these masks."""
        self._probes[prefix] = self.packing.pack(masks)
        self._probes = dict(sorted(self._probes.items(), reverse=True))

    # ── What an entry runs ──

    def set_action(self, row: int, entry: ir.ActionEntry | None) -> None:
        """Say what a row of a table that is not indirect runs."""
        self.data[row] = 0
        if entry is None:
            self.actions[row] = NO_ACTION
            return
        self.actions[row] = self._positions[entry.action]
        words = pack_arguments(self._actions[entry.action], entry.arguments)
        self.data[row, : len(words)] = words

    def action(self, row: int) -> ir.ActionEntry:
        """What a row that is not ``NO_ACTION`` runs."""
        action = self._table.actions[int(self.actions[row])]
        words = self.data[row].tolist()
        return ir.ActionEntry(action, unpack_arguments(self._actions[action], words))

    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.words, self.actions, self.targets, self.data, self.live, self.versions)
        return sum(each.nbytes for each in arrays) + self.index.slots.nbytes
