"""Look-ups in ternary and range tables, over the arrays of ``cover_arrays``."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import get, inlined, less

__all__ = ["find_covering"]  # what emitted code may import


@inlined
def _agrees(values: Any, at: int, key: Any, words: int) -> bool:
    """Whether ``key`` has the bits that stand from ``at`` on: values, then their masks."""
    same = True
    for position in range(words):
        masked = key[position] & get(values, at + words + position)
        same &= masked == get(values, at + position)
    return same


@inlined
def _reaches(bounds: Any, at: int, key: Any, first: int, starts: Any) -> bool:
    """Whether ``key`` from position ``first`` on is within the lowest numbers, which stand from
    ``at`` on, and the highest, which follow. ``starts`` tells where a number begins that may go on
    in the next word.
    """
    inside = True
    at_low = at_high = True
    for position in range(first, len(key)):
        low = get(bounds, at + position - first)
        high = get(bounds, at + len(key) - first + position - first)
        at_low |= starts[position]
        at_high |= starts[position]
        inside &= not (at_low and less(key[position], low))
        inside &= not (at_high and less(high, key[position]))
        at_low &= key[position] == low
        at_high &= key[position] == high
    return inside


@inlined
def find_covering(  # noqa: PLR0917 - called by emitted code only
    entries: Any, order: Any, heads: Any, bounds: Any, key: Any, words: int, starts: Any
) -> Any:
    """The best entry with key & mask == value for the first ``words`` of ``key`` and with the
    numbers that follow in its ranges, as a row; 0 for none. ``entries`` are ``EntryColumns.words``.
    """
    width = 2 * len(key) + 1
    above = width + 2 * words
    found, priority = 0, 0
    node, nodes = 0, len(heads) // 3 - 1
    while node < nodes:
        best = get(bounds, node * above)
        wins = found == 0 or less(best, priority)
        wins |= best == priority and get(heads, 3 * node + 2) < found
        at = node * above + 1
        if (
            wins
            and _agrees(bounds, at, key, words)
            and _reaches(bounds, at + 2 * words, key, 0, starts)
        ):
            for place in range(get(heads, 3 * node), get(heads, 3 * node + 3)):
                row = get(order, place)
                at = row * width
                if _agrees(entries, at, key, words) and _reaches(
                    entries, at + 2 * words, key, words, starts
                ):
                    own = get(entries, at + width - 1)
                    if found == 0 or less(own, priority) or (own == priority and row < found):
                        found, priority = row, own
                    break
            node += 1
        else:
            node = get(heads, 3 * node + 1)
    return found
