"""Look-ups in lpm tables, over the arrays of ``prefix_arrays``."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import get, inlined, less, shift_right_unsigned
from innet.switch.state.entries import PREFIX_SHIFT

__all__ = ["find_prefix"]  # what emitted code may import

_KEY = (1 << PREFIX_SHIFT) - 1


@inlined
def _low(entries: Any, row: int, position: int, words: int, apart: bool) -> Any:
    """A word of an entry's lowest key."""
    if apart:
        return get(entries, row * (words + 1) + position)
    word = get(entries, row * words + position)
    return word & _KEY if position == 0 else word


@inlined
def _sampled(sample: Any, key: Any) -> int:
    """The last key of ``sample`` that is not above ``key``, or the first one."""
    first, count = 0, len(sample) // len(key)
    while count > 1:
        half = count >> 1
        below = False
        equal = True
        for position in range(len(key)):
            low = get(sample, (first + half) * len(key) + position)
            below |= equal and less(key[position], low)
            equal &= key[position] == low
        first = first if below else first + half
        count -= half
    return first


@inlined
def _contains(entries: Any, row: int, key: Any, apart: bool, width: int) -> bool:
    """Whether ``key`` has an entry's prefix."""
    words = len(key)
    if apart:
        prefix = get(entries, row * (words + 1) + words)
    else:
        prefix = (get(entries, row * words) >> PREFIX_SHIFT) & 0xFFFF
    # Prefixes count from the top of whole bytes (``tables.prefix_mask``).
    free = min(width, ((width + 7) >> 3 << 3) - prefix)
    same = True
    for position in range(words):
        different = key[position] ^ _low(entries, row, position, words, apart)
        shift = min(max(free - 64 * (words - 1 - position), 0), 64)
        same &= shift_right_unsigned(different, shift) == 0
    return same


@inlined
def find_prefix(  # noqa: PLR0917 - called by emitted code only
    entries: Any, sample: Any, rows: Any, parents: Any, key: Any, step: int, apart: bool, width: int
) -> Any:
    """The entry with the longest prefix that ``key`` has, as a row; 0 for none.

    ``entries`` are ``EntryColumns.words``, with prefix lengths ``apart`` or in the first words;
    every ``step``-th is in ``sample``; ``width`` is that of the lpm field.
    """
    first = step * _sampled(sample, key)
    count = min(step, len(rows) - first)
    while count > 1:
        half = count >> 1
        row = get(rows, first + half)
        below = False
        equal = True
        for position in range(len(key)):
            low = _low(entries, row, position, len(key), apart)
            below |= equal and less(key[position], low)
            equal &= key[position] == low
        first = first if below else first + half
        count -= half
    place = first + 1 if count > 0 else 0
    while place != 0:
        row = get(rows, place - 1)
        if _contains(entries, row, key, apart, width):
            return row
        place = get(parents, place - 1)
    return 0
