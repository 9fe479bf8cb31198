"""Tables with range keys as arrays: sorted intervals of one of them, for each different mask.

The widest range key is what intervals are made of. Each other one is taken apart into prefixes, of
which a range of w bits needs at most 2w - 2 (Srinivasan, Varghese, Suri and Waldvogel, "Fast and
Scalable Layer Four Switching", SIGCOMM 1998); those are masked keys like ternary ones. All entries
of one mask are sorted by masked key, then number; where they overlap, the first in the order of
precedence is kept. A look-up is one binary search for each mask, and ends at the first mask whose
best entry is not better than what was found, as in ``mask_arrays``.

Where there are few entries to a mask, or prefixes would be too many, a scan in the order of
precedence is what is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.hash_index import Words
from innet.switch.table_words import WORD, KeyWords

#: So many entries are scanned in the time that a binary search under one mask takes.
_SCANNED = 32
#: Parts with one mask that an entry may become on the average.
_MOST_PARTS = 64

_EVERY = (1 << WORD) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """Keys that are ``value`` under ``mask``, with a number of ``low`` .. ``high``. The words of
    each are one integer.
    """

    mask: int
    value: int
    low: int
    high: int
    entry: int


def range_arrays(
    packing: KeyWords, values: Words, masks: Words, lows: Words, highs: Words
) -> list[NDArray[Any]]:
    """The arguments of a range table's look-ups, from the words of entries in the order of
    precedence (``EntryColumns.masked``).

    These words when they are to be scanned; else nothing four times. Then the different masks
    ``groups`` (masks x words and words of the other ranges), the ``best`` entry of each, and
    intervals: ``bounds`` (intervals x number of the mask, words as before, words of the widest
    range) and their ``rows``. Entries count from 1.
    """
    nothing = np.zeros(0, np.int64)
    parts = _parts(packing, values, masks, lows, highs)
    best: dict[int, int] = {}
    for part in parts:
        best.setdefault(part.mask, part.entry)
    if len(values) <= _SCANNED * len(best) or len(parts) > _MOST_PARTS * len(values):
        scanned = (np.ascontiguousarray(each) for each in (values, masks, lows, highs))
        lists = [each.view(np.int64) for each in scanned]
        return [*lists, nothing, nothing, nothing, nothing.astype(np.uint32)]
    key = len(packing.words) + len(packing.other_ranges)
    number = len(packing.widest_range)
    bounds, rows = _intervals(parts, list(best), key, number)
    return [
        *(nothing, nothing, nothing, nothing),
        _matrix(best, key),
        np.array(list(best.values()), np.int64),
        _matrix(bounds, 1 + key + number),
        np.array(rows, np.uint32),
    ]


def _parts(
    packing: KeyWords, values: Words, masks: Words, lows: Words, highs: Words
) -> list[_Part]:
    """Entries with prefixes for all ranges but the widest, in the order of precedence.

    Ends when there are too many.
    """
    widest = [packing.ranges.index(piece) for piece in packing.widest_range]
    others = list(_other_fields(packing))
    parts: list[_Part] = []
    rows = (matrix.tolist() for matrix in (values, masks, lows, highs))
    for entry, (value, mask, low, high) in enumerate(zip(*rows, strict=True), 1):
        first, last = (_joined(words[i] for i in widest) for words in (low, high))
        if first > last:
            continue
        choices = []
        for columns, width in others:
            least, most = (_joined(words[i] for i in columns) for words in (low, high))
            choices.append(_prefixes(least, most, width))
        for chosen in product(*choices):
            more_values, more_masks = list(value), list(mask)
            for (columns, _), (prefix, ones) in zip(others, chosen, strict=True):
                more_values += _words(prefix, len(columns))
                more_masks += _words(ones, len(columns))
            key = _joined(more_masks), _joined(more_values)
            parts.append(_Part(*key, first, last, entry))
        if len(parts) > _MOST_PARTS * len(values):
            break
    return parts


def _other_fields(packing: KeyWords) -> Iterator[tuple[list[int], int]]:
    """The columns and the width of each range field but the widest."""
    for field in dict.fromkeys(piece.field for piece in packing.other_ranges):
        columns = [i for i, piece in enumerate(packing.ranges) if piece.field == field]
        highest = packing.ranges[columns[0]]
        yield columns, highest.skipped + highest.width


def _prefixes(low: int, high: int, width: int) -> list[tuple[int, int]]:
    """(value, mask) of aligned blocks that make up ``low`` .. ``high``."""
    found = []
    while low <= high:
        bits = (low & -low).bit_length() - 1 if low else width
        bits = min(bits, (high - low + 1).bit_length() - 1)
        found.append((low, (1 << width) - (1 << bits)))
        low += 1 << bits
    return found


def _intervals(
    parts: list[_Part], masks: list[int], key: int, number: int
) -> tuple[list[int], list[int]]:
    """Where intervals begin, and the best entry of each; the words of a bound are one integer."""
    numbers = {mask: i for i, mask in enumerate(masks)}
    covers = []
    for part in parts:
        base = (numbers[part.mask] << WORD * key | part.value) << WORD * number
        covers.append((base + part.low, base + part.high, part.entry))
    covers.sort(reverse=True)
    bounds, rows = [0], [0]
    open_: list[tuple[int, int]] = []  # (entry, last number), the best entry first
    points = {low for low, _, _ in covers} | {high + 1 for _, high, _ in covers}
    for point in sorted(points):
        while covers and covers[-1][0] == point:
            _, last, entry = covers.pop()
            heapq.heappush(open_, (entry, last))
        while open_ and open_[0][1] < point:
            heapq.heappop(open_)
        best = open_[0][0] if open_ else 0
        if bounds[-1] == point:
            rows[-1] = best
        elif rows[-1] != best:
            bounds.append(point)
            rows.append(best)
    return bounds, rows


def _joined(words: Iterable[int]) -> int:
    """Words as one integer, the first one highest."""
    joined = 0
    for word in words:
        joined = joined << WORD | word
    return joined


def _words(joined: int, count: int) -> list[int]:
    return [joined >> WORD * i & _EVERY for i in reversed(range(count))]


def _matrix(joined: Iterable[int], columns: int) -> NDArray[np.int64]:
    words: Sequence[Sequence[int]] = [_words(each, columns) for each in joined]
    return np.array(words, np.uint64).reshape(len(words), columns).view(np.int64)
