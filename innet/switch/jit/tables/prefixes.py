"""Lpm tables as sorted entries: a binary search, then up from an entry to those it lies in.

Sorted by their lowest key, shorter prefixes first, an entry follows those that it lies in. Whatever
entries a key lies in, the last one that does not start above the key lies in them, too, or is one
of them. So the longest is found by going up from there. Entries are compared where they lie, in
``EntryColumns``; of long keys only a part is copied to where the search begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.state.entries import EntryColumns, KeyWords
from innet.switch.state.hash_index import Words
from innet.switch.state.tables import prefix_mask


def copied(packing: KeyWords) -> int:
    """Of how many entries side by side the lowest key of one is copied: of each where keys are
    short, since to look for an entry costs a search more than to look for a copy.
    """
    return 4 if packing.prefix_apart or len(packing.words) > 1 else 1


def prefix_arrays(columns: EntryColumns, table: ir.Table) -> list[NDArray[Any]]:
    """The arguments of ``runtime_prefixes.find_prefix`` but the words of entries.

    ``sample``: the words of the lowest keys, ascending, of every so many entries (``copied``);
    ``rows`` of all entries in this order; ``parents``: for each the place in it of the entry that
    it lies in, counted from 1, 0 for none.
    """
    rows = columns.rows()
    by_length = rows[np.argsort(columns.prefixes(rows), kind="stable")]
    order = by_length[np.argsort(sortable(columns.keys(by_length)), kind="stable")]
    lows, lengths = columns.keys(order), columns.prefixes(order)
    parents = _parents(columns, table, lows, lengths)
    sample = np.ascontiguousarray(lows[:: copied(columns.packing)]).view(np.int64)
    return [sample, order.astype(np.uint32), parents]


def _parents(
    columns: EntryColumns, table: ir.Table, lows: Words, lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    parents = np.zeros(len(lows), np.uint32)
    places = np.arange(1, len(lows) + 1, dtype=np.uint32)
    for length in np.unique(lengths).tolist():  # a longer one takes over from a shorter one
        last = np.maximum.accumulate(np.where(lengths == length, places, 0))
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


def sortable(numbers: Words) -> NDArray[Any]:
    """Numbers of some words as elements that compare as they do."""
    if numbers.shape[1] == 1:
        return numbers[:, 0]
    return numbers.astype(">u8", order="C").view(f"S{8 * numbers.shape[1]}")[:, 0]
