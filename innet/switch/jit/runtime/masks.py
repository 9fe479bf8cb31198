"""Look-ups in ternary tables, over the arrays of ``mask_arrays``."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import get, inlined, less, slot_of, wrapped_multiply
from innet.switch.state.hash_index import MULTIPLIER

__all__ = ["find_masked"]  # what emitted code may import


@inlined
def _under_mask(entries: Any, masks: Any, rows: Any, key: Any, number: int) -> Any:
    """The best row of mask ``number`` for ``key``; 0 for none."""
    words = len(key)
    state = wrapped_multiply(number, MULTIPLIER)
    state ^= (state >> 32) & 0xFFFFFFFF
    for position in range(words):
        masked = key[position] & get(masks, number * words + position)
        state = wrapped_multiply(state ^ masked, MULTIPLIER)
        state ^= (state >> 32) & 0xFFFFFFFF
    slot = slot_of(state, len(rows))
    while True:
        row = get(rows, slot)
        if row == 0:
            return 0
        at = row * (2 * words + 1)
        same = True
        for position in range(words):
            mask = get(masks, number * words + position)
            same &= get(entries, at + position) == key[position] & mask
            same &= get(entries, at + words + position) == mask
        if same:
            return row
        slot = slot + 1 if slot + 1 < len(rows) else 0


@inlined
def find_masked(entries: Any, masks: Any, best: Any, rows: Any, key: Any) -> Any:
    """The best entry with key & mask == value, as a row; 0 for none. ``entries`` are the words of
    ``EntryColumns``: values, masks and priority.
    """
    found, priority = 0, 0
    for number in range(len(best) // 2):
        first = get(best, 2 * number)
        later = less(priority, first) or (priority == first and found < get(best, 2 * number + 1))
        if found != 0 and later:
            break
        row = _under_mask(entries, masks, rows, key, number)
        if row != 0:
            own = get(entries, (row + 1) * (2 * len(key) + 1) - 1)
            if found == 0 or less(own, priority) or (own == priority and row < found):
                found, priority = row, own
    return found
