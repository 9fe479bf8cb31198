"""Lpm tables as sorted intervals: entries nest, so that for all keys of an interval the same entry
has the longest prefix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.entry_columns import EntryColumns
from innet.switch.hash_index import Words
from innet.switch.tables import prefix_mask


def intervals(columns: EntryColumns, table: ir.Table) -> list[NDArray[Any]]:
    """The arguments of ``runtime.find_prefix``: the first key of each interval, ascending, and the
    row of the entry that its keys hit.
    """
    rows = columns.rows()
    prefixes = columns.prefixes(rows)
    lows = columns.keys(rows)
    highs = lows.copy()
    lengths = sorted(set(prefixes.tolist()))
    for length in lengths:
        highs[prefixes == length] |= np.array(_free_bits(columns, table, length), np.uint64)
    after, ends_within = _next(highs)
    first = np.zeros((1, lows.shape[1]), np.uint64)
    bounds = np.concatenate((first, lows, after[ends_within]))
    bounds = bounds[np.argsort(sortable(bounds), kind="stable")]
    bounds = bounds[_changes(sortable(bounds))]
    starts = np.searchsorted(sortable(bounds), sortable(lows))
    ends = np.searchsorted(sortable(bounds), sortable(after))
    ends[~ends_within] = len(bounds)
    hit = np.zeros(len(bounds), np.uint32)
    for length in lengths:  # a longer one takes over what a shorter one has
        here = prefixes == length
        # Entries of one length do not overlap, so that a sum of those that began is the last.
        edges = np.zeros(len(bounds) + 1, np.int64)
        edges[starts[here]] += rows[here]
        edges[ends[here]] -= rows[here]
        row = np.cumsum(edges)[:-1]
        hit[row > 0] = row[row > 0]
    kept = _changes(hit)
    return [bounds[kept].view(np.int64), hit[kept]]


def _free_bits(columns: EntryColumns, table: ir.Table, length: int) -> list[int]:
    """The words of a key with ones where an entry with a prefix of this length does not look."""
    free = tuple(
        ((1 << key.width) - 1) & ~prefix_mask(length, key.width)
        if key.match is ir.MatchKind.LPM
        else 0
        for key in table.keys
    )
    return columns.packing.pack(free)


def _next(numbers: Words) -> tuple[Words, NDArray[np.bool_]]:
    """Each number of some words plus 1, and whether there is such a number."""
    after = numbers.copy()
    carry = np.ones(len(numbers), np.bool_)
    for column in reversed(range(numbers.shape[1])):
        after[:, column] += carry
        carry &= after[:, column] == 0
    return after, ~carry


def sortable(numbers: Words) -> NDArray[Any]:
    """Numbers of some words as elements that compare as they do."""
    if numbers.shape[1] == 1:
        return numbers[:, 0]
    return numbers.astype(">u8", order="C").view(f"S{8 * numbers.shape[1]}")[:, 0]


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements differ from the one before; the first does."""
    different = np.ones(len(values), np.bool_)
    different[1:] = values[1:] != values[:-1]
    return different
