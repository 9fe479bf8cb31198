"""Rows of words found by what is in them: open addressing with linear probing.

The slots hold numbers of rows and nothing else, so that a row has one place in memory however many
ask for it. Emitted code searches the same slots (``jit.runtime.find_exact``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.switch.fresh_memory import fresh

#: 2**64 divided by the golden ratio, odd, as int64: what is hashed is multiplied by it.
MULTIPLIER = -0x61C8864680B583EB

_EVERY = (1 << 64) - 1
_FEWEST_SLOTS = 16
_SEEDS = 32

#: So few rows get eight slots each, and the best of some seeds.
SMALL = 512

Words = NDArray[np.uint64]


class HashIndex:
    """Finds rows of a matrix of words that grows.

    Attributes:
        slots: uint32, a power of two of them: the number of a row, or 0 for none.
        seed: where a row's words lead depends on it.
    """

    def __init__(self) -> None:
        self.slots = np.zeros(_FEWEST_SLOTS, np.uint32)
        self.seed = 0
        self._count = 0
        self._changed = False

    def find(self, matrix: Words, words: Sequence[int]) -> int:
        """The row that holds ``words``; 0 when none does."""
        last = len(self.slots) - 1
        slot = hashed(words, self.seed) & last
        while row := int(self.slots[slot]):
            if matrix[row].tolist() == words:
                return row
            slot = (slot + 1) & last
        return 0

    def insert(self, matrix: Words, row: int, live: NDArray[np.bool_]) -> None:
        """Add a row that is not in it; ``live`` marks the rows that are to be found now."""
        self._count += 1
        self._changed = True
        if 2 * self._count > len(self.slots):
            self.rebuild(matrix, live)
            return
        self._put(matrix, row)

    def remove(self, matrix: Words, row: int) -> None:
        """Take out a row that is in it."""
        self._count -= 1
        self._changed = True
        last = len(self.slots) - 1
        slot = self._start(matrix, row)
        while int(self.slots[slot]) != row:
            slot = (slot + 1) & last
        self.slots[slot] = 0
        # What follows up to a free slot may have been put there because this one was taken.
        slot = (slot + 1) & last
        while moved := int(self.slots[slot]):
            self.slots[slot] = 0
            self._put(matrix, moved)
            slot = (slot + 1) & last

    def tidy(self, matrix: Words, live: NDArray[np.bool_]) -> None:
        """Before many look-ups: few rows that changed are placed anew."""
        if self._changed and self._count <= SMALL:
            self.rebuild(matrix, live)

    def rebuild(self, matrix: Words, live: NDArray[np.bool_]) -> None:
        """Place all rows anew, at most half as many as there are slots.

        Few rows get more slots, and of several seeds that by which they collide least, since a
        processor mispredicts collisions.
        """
        rows = np.flatnonzero(live)
        words = matrix[rows]
        self._count = len(rows)
        self._changed = False
        share = 8 if len(rows) <= SMALL else 2
        slots = max(_FEWEST_SLOTS, 1 << (share * len(rows)).bit_length())
        self.seed, wanted = _seeded(words, slots)
        self.slots = placed(rows, wanted, slots)

    def _start(self, matrix: Words, row: int) -> int:
        return hashed(matrix[row].tolist(), self.seed) & (len(self.slots) - 1)

    def _put(self, matrix: Words, row: int) -> None:
        slot = self._start(matrix, row)
        while self.slots[slot]:
            slot = (slot + 1) & (len(self.slots) - 1)
        self.slots[slot] = row


def hashed(words: Sequence[int], seed: int) -> int:
    """A hash of unsigned words, as ``jit.runtime.scatter`` computes it."""
    state = seed
    for word in words:
        state = (state ^ word) * MULTIPLIER & _EVERY
        state ^= state >> 32
    return state


def all_hashed(words: Words, seed: int) -> Words:
    """``hashed`` of every row."""
    state = np.full(len(words), seed, np.uint64)
    for column in words.T:
        state = (state ^ column) * np.uint64(MULTIPLIER & _EVERY)
        state ^= state >> np.uint64(32)
    return state


def _seeded(words: Words, slots: int) -> tuple[int, Words]:
    """The seed of those tried that makes few rows collide least, and the rows' first slots."""
    best: tuple[int, int, Words] | None = None
    for seed in range(_SEEDS if len(words) <= SMALL else 1):
        wanted = all_hashed(words, seed) & np.uint64(slots - 1)
        collisions = len(words) - len(set(wanted.tolist())) if len(words) <= SMALL else 0
        if best is None or collisions < best[0]:
            best = (collisions, seed, wanted)
        if not collisions:
            break
    assert best is not None
    return best[1:]


def placed(rows: NDArray[np.int64], wanted: Words, slots: int) -> NDArray[np.uint32]:
    """Slots with every row at the first free one from ``wanted`` on."""
    placed: NDArray[np.uint32] = fresh((slots,), np.uint32)
    if not len(rows):
        return placed
    order = np.argsort(wanted, kind="stable")
    steps = np.arange(len(rows))
    # In the order of what they want, each takes that or the next after the one before.
    places = steps + np.maximum.accumulate(wanted[order].astype(np.int64) - steps)
    beyond = places >= slots
    placed[places[~beyond]] = rows[order][~beyond]
    # The few that reach the end go on at the start.
    slot = 0
    for row in rows[order][beyond].tolist():
        while placed[slot]:
            slot += 1
        placed[slot] = row
    return placed
