"""Look-ups in ternary tables, over the arrays of ``mask_arrays``."""

from __future__ import annotations

from typing import Any

from innet.switch.hash_index import MULTIPLIER
from innet.switch.jit.runtime import find_ternary, get, inlined, wrapped_multiply

__all__ = ["find_masked"]  # what emitted code may import


@inlined
def _under_mask(masks: Any, keys: Any, rows: Any, key: Any, number: int) -> Any:
    """The best row of mask ``number`` for ``key``; 0 for none."""
    words = len(key)
    state = wrapped_multiply(number, MULTIPLIER)
    state ^= (state >> 32) & 0xFFFFFFFF
    for position in range(words):
        masked = key[position] & get(masks, number * words + position)
        state = wrapped_multiply(state ^ masked, MULTIPLIER)
        state ^= (state >> 32) & 0xFFFFFFFF
    slot = state & (len(rows) - 1)
    while True:
        row = get(rows, slot)
        if row == 0:
            return 0
        at = (row - 1) * (words + 1)
        same = get(keys, at) == number
        for position in range(words):
            masked = key[position] & get(masks, number * words + position)
            same &= get(keys, at + 1 + position) == masked
        if same:
            return row
        slot = (slot + 1) & (len(rows) - 1)


@inlined
def find_masked(  # noqa: PLR0917 - called by emitted code only
    values: Any, masks: Any, best: Any, keys: Any, rows: Any, key: Any
) -> Any:
    """The first entry with key & mask == value, as a row; 0 for none."""
    if len(values):
        return find_ternary(values, masks, key)
    found = 0
    for number in range(len(best)):
        if found != 0 and found < get(best, number):
            break
        row = _under_mask(masks, keys, rows, key, number)
        if row != 0 and (found == 0 or row < found):
            found = row
    return found
