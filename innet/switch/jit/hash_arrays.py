"""Hash tables as arrays: open addressing with linear probing, built a round at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.switch.jit.traits import MULTIPLIER

Array = NDArray[np.int64]


def wrapped(rows: Sequence[Sequence[int]], columns: int) -> Array:
    """Unsigned numbers as a C-contiguous int64 matrix of the same bits."""
    matrix = np.array(rows, np.uint64).reshape(len(rows), columns)
    return matrix.view(np.int64)


def scatter(words: Array, seed: int) -> Array:
    """``runtime.scatter`` of every row; int64 arrays wrap around silently."""
    state = np.full(len(words), seed, np.int64)
    for column in words.T:
        state = (state ^ column) * np.int64(MULTIPLIER)
        state ^= (state >> 32) & 0xFFFFFFFF
    return state


def place(words: Array, numbers: Array, wanted: Array, slots: int) -> tuple[Array, Array]:
    """Put different ``words`` (count x columns) into ``slots`` slots, each at the first free one
    from ``wanted`` on, and return the slots' words and numbers; a free slot has the number 0.
    """
    keys = np.zeros((slots, words.shape[1]), np.int64)
    placed_numbers = np.zeros(slots, np.int64)
    left = np.arange(len(words))
    # Each round tries one more slot for all keys that have none yet, which is linear probing: a key
    # has only passed slots that were taken.
    while len(left):
        slot, first = np.unique(wanted[left], return_index=True)
        free = placed_numbers[slot] == 0
        placed = left[first[free]]
        placed_numbers[slot[free]] = numbers[placed]
        keys[slot[free]] = words[placed]
        left = np.setdiff1d(left, placed, assume_unique=True)
        taken = placed_numbers[wanted[left]] != 0
        wanted[left[taken]] = (wanted[left[taken]] + 1) & (slots - 1)
    return keys, placed_numbers
