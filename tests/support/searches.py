"""What emitted code finds in a table, and tables of many shapes to ask it of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from innet.switch import ir
from innet.switch.jit.runtime import lookups
from innet.switch.jit.tables.prefixes import sample_step
from innet.switch.state.entries import is_direct, key_words
from innet.switch.state.tables import RuntimeEntry, TableState
from support.state_fuzzer import interesting_number

KIND = ir.MatchKind


@njit
def exact(keys: Any, rows: Any, seed: Any, key: Any) -> Any:
    return lookups.find_exact(keys, rows, seed, key)


@njit
def prefix(
    entries: Any, sample: Any, rows: Any, parents: Any, key: Any, step: Any, apart: Any, width: Any
) -> Any:
    return lookups.find_prefix(entries, sample, rows, parents, key, step, apart, width)


@njit
def masked(entries: Any, masks: Any, best: Any, rows: Any, indices: Any, key: Any) -> Any:
    return lookups.find_by_mask(entries, masks, best, rows, indices, key)


@njit
def boxes(
    entries: Any,
    order: Any,
    heads: Any,
    bounds: Any,
    indices: Any,
    key: Any,
    words: Any,
    starts: Any,
) -> Any:
    return lookups.find_in_boxes(entries, order, heads, bounds, indices, key, words, starts)


def signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def found(base: ir.Program, state: TableState, arguments: list[Any], key: tuple[int, ...]) -> int:
    """The row that emitted code would find."""
    packing = key_words(state.table)
    words = tuple(map(signed, packing.pack(key)))
    _, _, *rest = arguments
    match state.table.match:
        case KIND.LPM:
            width = next(part.width for part in state.table.keys if part.match is KIND.LPM)
            return int(prefix(*rest, words, sample_step(packing), packing.separate_prefix, width))
        case KIND.TERNARY | KIND.RANGE:
            entries, *hashed, order, heads, bounds, indices = rest
            if hashed and len(hashed[1]):
                return int(masked(entries, *hashed, indices, words))
            whole = (*words, *map(signed, packing.pack_ranges(key)))
            starts = (*(True for _ in words), *packing.starts)
            return int(boxes(entries, order, heads, bounds, indices, whole, len(words), starts))
        case _ if is_direct(state.table):
            return int(rest[0][words[0]])
        case _:
            return int(exact(*rest, words))


def row_of(entry: RuntimeEntry | None, state: TableState) -> int:
    """Where an entry is; 0 without one."""
    return 0 if entry is None else state.columns.row_of(entry.index)


def near(rng: np.random.Generator, entry: RuntimeEntry, state: TableState) -> tuple[int, ...]:
    """A key that hits ``entry``, or nearly does."""
    key = []
    for part, value, mask in zip(state.table.keys, entry.values, entry.masks, strict=True):
        every = (1 << part.width) - 1
        if part.match is KIND.RANGE:
            key.append((value, mask, (value - 1) & every, (mask + 1) & every)[rng.integers(4)])
        else:
            key.append((value | (interesting_number(rng, part.width) & ~mask)) & every)
    if rng.random() < 0.3:
        i = int(rng.integers(len(key)))
        key[i] ^= 1 << int(rng.integers(state.table.keys[i].width))
    return tuple(key)


SHAPES = {
    "direct": [(KIND.EXACT, 9), (KIND.EXACT, 3)],
    "one word": [(KIND.EXACT, 16), (KIND.EXACT, 32), (KIND.EXACT, 16)],
    "64 bits": [(KIND.EXACT, 64)],
    "three words": [(KIND.EXACT, 48), (KIND.EXACT, 64), (KIND.EXACT, 33), (KIND.EXACT, 1)],
    "lpm": [(KIND.LPM, 32)],
    "lpm 12": [(KIND.LPM, 12)],
    "lpm 64": [(KIND.LPM, 64)],
    "lpm with exact": [(KIND.LPM, 32), (KIND.EXACT, 4)],
    "lpm over words": [(KIND.EXACT, 48), (KIND.LPM, 64)],
    "ternary": [(KIND.TERNARY, 32), (KIND.TERNARY, 16), (KIND.EXACT, 8)],
    "ternary over words": [(KIND.TERNARY, 64), (KIND.TERNARY, 48), (KIND.LPM, 32)],
    "range": [(KIND.RANGE, 16)],
    "range 64": [(KIND.RANGE, 64), (KIND.TERNARY, 8), (KIND.RANGE, 9)],
    "exact 128": [(KIND.EXACT, 128), (KIND.EXACT, 9)],
    "lpm 128": [(KIND.LPM, 128)],
    "lpm 100 with exact": [(KIND.LPM, 100), (KIND.EXACT, 33)],
    "ternary 200": [(KIND.TERNARY, 200), (KIND.EXACT, 65)],
    "range 130": [(KIND.RANGE, 16), (KIND.RANGE, 130), (KIND.TERNARY, 8), (KIND.RANGE, 64)],
}

RANGES = {
    "one": [(KIND.RANGE, 16)],
    "one of 64 bits": [(KIND.RANGE, 64)],
    "one of 130 bits": [(KIND.RANGE, 130)],
    "one with exact": [(KIND.EXACT, 4), (KIND.RANGE, 16)],
    "one with ternary": [(KIND.RANGE, 16), (KIND.TERNARY, 8)],
    "one with words": [(KIND.TERNARY, 64), (KIND.RANGE, 100), (KIND.EXACT, 65)],
    "two": [(KIND.RANGE, 16), (KIND.RANGE, 10)],
    "two of 70 bits": [(KIND.RANGE, 9), (KIND.RANGE, 70)],
    "three with ternary": [(KIND.RANGE, 8), (KIND.TERNARY, 3), (KIND.RANGE, 3), (KIND.RANGE, 4)],
}
