"""Look-ups in tables with range keys, over the arrays of ``range_arrays``."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime import covers, get, inlined, less

__all__ = ["find_interval", "find_range", "find_wide_range"]  # what emitted code may import


@inlined
def find_range(  # noqa: PLR0917 - called by emitted code only
    values: Any, masks: Any, key: Any, lows: Any, highs: Any, numbers: Any
) -> int:
    """The first entry with key & mask == value and ``numbers`` in lows .. highs; entries stand in
    the order of precedence.
    """
    for entry in range(len(values) // len(key)):
        same = covers(values, masks, key, entry)
        for position in range(len(numbers)):
            at = entry * len(numbers) + position
            same &= not less(numbers[position], get(lows, at))
            same &= not less(get(highs, at), numbers[position])
        if same:
            return entry + 1
    return 0


@inlined
def find_wide_range(  # noqa: PLR0917 - called by emitted code only
    values: Any, masks: Any, key: Any, lows: Any, highs: Any, numbers: Any, starts: Any
) -> int:
    """As ``find_range``, of numbers of several words: ``starts`` tells where a number begins."""
    for entry in range(len(values) // len(key)):
        same = covers(values, masks, key, entry)
        at_low = at_high = True
        for position in range(len(numbers)):
            at = entry * len(numbers) + position
            number, low, high = numbers[position], get(lows, at), get(highs, at)
            at_low |= starts[position]
            at_high |= starts[position]
            same &= not (at_low and less(number, low))
            same &= not (at_high and less(high, number))
            at_low &= number == low
            at_high &= number == high
        if same:
            return entry + 1
    return 0


@inlined
def find_interval(  # noqa: PLR0917 - called by emitted code only
    groups: Any, best: Any, bounds: Any, rows: Any, key: Any, number: Any
) -> Any:
    """The first entry of which ``key`` has the masked bits and whose range ``number`` lies in, as a
    row; 0 for none.
    """
    found = 0
    for group in range(len(best)):
        if found != 0 and found < get(best, group):
            break
        row = _in_group(groups, bounds, rows, key, number, group)
        if row != 0 and (found == 0 or row < found):
            found = row
    return found


@inlined
def _in_group(  # noqa: PLR0917 - called by emitted code only
    groups: Any, bounds: Any, rows: Any, key: Any, number: Any, group: int
) -> Any:
    """The row of the last interval that does not start above the group, the masked key and the
    number, which are compared in this order.
    """
    words = 1 + len(key) + len(number)
    first, count = 0, len(rows)
    while count > 1:
        half = count >> 1
        at = (first + half) * words
        below = group < get(bounds, at)
        equal = group == get(bounds, at)
        for position in range(len(key)):
            bound = get(bounds, at + 1 + position)
            masked = key[position] & get(groups, group * len(key) + position)
            below |= equal and less(masked, bound)
            equal &= masked == bound
        for position in range(len(number)):
            bound = get(bounds, at + 1 + len(key) + position)
            below |= equal and less(number[position], bound)
            equal &= number[position] == bound
        first = first if below else first + half
        count -= half
    return get(rows, first)
