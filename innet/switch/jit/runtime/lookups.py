"""Table look-ups in emitted code: one search for each form that ``tables.arrays`` gives a table.

A look-up returns the row of the entry that wins, and 0, the row of the default entry, for a miss.
All arrays are flat; ``key`` is a tuple of the words of ``state.entries.key_words``.

===================  ==============================================================================
``find_exact``       exact keys: the hash table of the switch's state
``find_prefix``      lpm: binary search in sorted prefixes, then up through the ones around it
``find_by_mask``     ternary with few masks: one hash look-up for each mask (tuple space search)
``find_in_boxes``    ternary with many masks, and range: a search in a tree of boxes
``in_value_set``     parser value sets: one member after the other
===================  ==============================================================================
"""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import (
    get,
    inlined,
    less,
    shift_right_unsigned,
    wrapped_multiply,
)
from innet.switch.state.entries import PREFIX_SHIFT
from innet.switch.state.hash_index import MULTIPLIER

__all__ = [  # what emitted code may import
    "find_by_mask",
    "find_exact",
    "find_in_boxes",
    "find_prefix",
    "in_value_set",
]

# Low bits of a first word, above which the prefix length stands in entries with short keys.
_KEY = (1 << PREFIX_SHIFT) - 1


# ── Exact ────────────────────────────────────────────────────────────────────────────────────────


@inlined
def _mixed(state: int, word: int) -> Any:
    """A hash after one more word, as in ``state.hash_index``."""
    state = wrapped_multiply(state ^ word, MULTIPLIER)
    return state ^ ((state >> 32) & 0xFFFFFFFF)


@inlined
def hash_key(key: Any, seed: int) -> Any:
    """A hash of a tuple of words, as ``state.hash_index`` computes it."""
    state = seed
    for word in key:
        state = _mixed(state, word)
    return state


@inlined
def slot_of(state: int, slots: int) -> int:
    """The slot of a hash, as in ``state.hash_index``."""
    return ((state & 0xFFFFFFFF) * slots) >> 32


@inlined
def find_exact(keys: Any, rows: Any, seed: int, key: Any) -> Any:
    """As ``HashIndex.find``: ``rows`` are its slots, ``keys`` (rows x words) its matrix."""
    slot = slot_of(hash_key(key, seed), len(rows))
    while True:
        row = get(rows, slot)
        if row == 0:
            return 0
        same = True
        for position in range(len(key)):
            same &= get(keys, row * len(key) + position) == key[position]
        if same:
            return row
        slot = slot + 1 if slot + 1 < len(rows) else 0


# ── Longest prefix ───────────────────────────────────────────────────────────────────────────────


@inlined
def _low(entries: Any, row: int, position: int, words: int, separate_length: bool) -> Any:
    """A word of an entry's lowest key."""
    if separate_length:
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
def _contains(entries: Any, row: int, key: Any, separate_length: bool, width: int) -> bool:
    """Whether ``key`` has an entry's prefix."""
    words = len(key)
    if separate_length:
        prefix = get(entries, row * (words + 1) + words)
    else:
        prefix = (get(entries, row * words) >> PREFIX_SHIFT) & 0xFFFF
    # Prefixes count from the top of whole bytes (``tables.prefix_mask``).
    free = min(width, ((width + 7) >> 3 << 3) - prefix)
    same = True
    for position in range(words):
        different = key[position] ^ _low(entries, row, position, words, separate_length)
        shift = min(max(free - 64 * (words - 1 - position), 0), 64)
        same &= shift_right_unsigned(different, shift) == 0
    return same


@inlined
def find_prefix(  # noqa: PLR0917 - called by emitted code only
    entries: Any,
    sample: Any,
    rows: Any,
    parents: Any,
    key: Any,
    step: int,
    separate_length: bool,
    width: int,
) -> Any:
    """The entry with the longest prefix that ``key`` has, as a row; 0 for none.

    ``entries`` are ``EntryColumns.words``. Prefix lengths are words of their own if
    ``separate_length``, else part of the first words. ``sample`` holds every ``step``-th entry;
    ``parents`` are positions in ``rows``, from 1; ``width`` is that of the lpm field.
    """
    first = step * _sampled(sample, key)
    count = min(step, len(rows) - first)
    while count > 1:
        half = count >> 1
        row = get(rows, first + half)
        below = False
        equal = True
        for position in range(len(key)):
            low = _low(entries, row, position, len(key), separate_length)
            below |= equal and less(key[position], low)
            equal &= key[position] == low
        first = first if below else first + half
        count -= half
    position = first + 1 if count > 0 else 0
    while position != 0:
        row = get(rows, position - 1)
        if _contains(entries, row, key, separate_length, width):
            return row
        position = get(parents, position - 1)
    return 0


# ── Ternary, by mask ─────────────────────────────────────────────────────────────────────────────


@inlined
def _find_under_mask(  # noqa: PLR0917 - called by emitted code only
    entries: Any, masks: Any, rows: Any, key: Any, number: int, state: Any
) -> Any:
    """The best row of the ``number``-th mask for ``key``; 0 for none. ``state``: of its hash."""
    words = len(key)
    # The hash as in ``tables.masks``: of what ``state`` is of, then of the masked key.
    for position in range(words):
        state = _mixed(state, key[position] & get(masks, number * words + position))
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
def _before(indices: Any, row: int, other: int) -> bool:
    """Of two entries of one priority, whether the first wins. ``indices`` are empty where rows are
    in the order of their indices.
    """
    return get(indices, row) < get(indices, other) if len(indices) else row < other


@inlined
def find_by_mask(  # noqa: PLR0917 - called by emitted code only
    entries: Any, masks: Any, best: Any, rows: Any, indices: Any, key: Any
) -> Any:
    """The best entry with key & mask == value, as a row; 0 for none. ``entries`` are the words of
    ``EntryColumns``: values, masks and priority.
    """
    found, priority = 0, 0
    for position in range(len(best) // 3):
        first = get(best, 3 * position)
        # One condition: as two nested ones it would be mispredicted more often.
        later = less(priority, first) or (
            priority == first and _before(indices, found, get(best, 3 * position + 1))
        )
        if found != 0 and later:
            break
        state = get(best, 3 * position + 2)
        row = _find_under_mask(entries, masks, rows, key, position, state)
        if row != 0:
            rank = get(entries, (row + 1) * (2 * len(key) + 1) - 1)
            if (
                found == 0
                or less(rank, priority)
                or (rank == priority and _before(indices, row, found))
            ):
                found, priority = row, rank
    return found


# ── Ternary and range, in a tree of boxes ────────────────────────────────────────────────────────


@inlined
def _matches_masked(values: Any, at: int, key: Any, words: int) -> bool:
    """Whether ``key`` matches the values from index ``at`` on, and their masks after them."""
    same = True
    for position in range(words):
        masked = key[position] & get(values, at + words + position)
        same &= masked == get(values, at + position)
    return same


@inlined
def _in_ranges(bounds: Any, at: int, key: Any, first: int, starts: Any) -> bool:
    """Whether ``key`` from position ``first`` on is within ranges: the lowest numbers begin at
    index ``at``, the highest follow. ``starts`` marks the first word of each number.
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
def find_in_boxes(  # noqa: PLR0917 - called by emitted code only
    entries: Any,
    order: Any,
    heads: Any,
    bounds: Any,
    indices: Any,
    key: Any,
    words: int,
    starts: Any,
) -> Any:
    """The best entry with key & mask == value for the first ``words`` of ``key`` and with the
    numbers that follow in its ranges, as a row; 0 for none. ``entries`` are ``EntryColumns.words``.
    """
    width = 2 * len(key) + 1
    above = width + 2 * words
    found, priority = 0, 0
    node, nodes = 0, len(heads) // 4
    while node < nodes:
        best = get(bounds, node * above)
        wins = found == 0 or less(best, priority)
        wins |= best == priority and _before(indices, get(heads, 4 * node + 3), found)
        at = node * above + 1
        if (
            wins
            and _matches_masked(bounds, at, key, words)
            and _in_ranges(bounds, at + 2 * words, key, 0, starts)
        ):
            for index in range(get(heads, 4 * node), get(heads, 4 * node + 1)):
                row = get(order, index)
                at = row * width
                if _matches_masked(entries, at, key, words) and _in_ranges(
                    entries, at + 2 * words, key, words, starts
                ):
                    rank = get(entries, at + width - 1)
                    wins = found == 0 or less(rank, priority)
                    if wins or (rank == priority and _before(indices, row, found)):
                        found, priority = row, rank
                    break
            node += 1
        else:
            node = get(heads, 4 * node + 2)
    return found


# ── Parser value sets ────────────────────────────────────────────────────────────────────────────


@inlined
def in_value_set(members: Any, key: Any, masks: Any) -> bool:
    """Whether a member of a parser value set equals ``key`` where ``masks`` have ones."""
    for member in range(len(members) // len(key)):
        same = True
        for position in range(len(key)):
            different = get(members, member * len(key) + position) ^ key[position]
            same &= different & masks[position] == 0
        if same:
            return True
    return False
