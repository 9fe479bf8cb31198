"""Arrays that grow without waste of memory, and hash indices of rows by their words.

An allocator keeps the memory of large arrays that were replaced by larger ones, so that a table
that grew would take twice its size. ``mapped_zeros`` and ``resized`` map memory directly, which is
returned to the system.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Smaller arrays use the allocator.
_LARGE = 1 << 18


def mapped_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """A C-contiguous array of zeros; the memory of large ones is mapped directly."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < _LARGE:
        return np.zeros(shape, kind)
    return np.frombuffer(mmap.mmap(-1, size), kind).reshape(shape)


def resized(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """A copy with ``rows`` rows: the old ones, then zeros."""
    kept = min(rows, len(array))
    longer = mapped_zeros((rows, *array.shape[1:]), array.dtype)
    longer[:kept] = array[:kept]
    return longer


# ----------------------------------------------------------------------------
# Rows of words found by what is in them: open addressing with linear probing.
#
# The slots hold numbers of rows and nothing else, so that a row has one place in memory however
# many ask for it. There are any number of them: the upper bits of a product lead to one (Lemire,
# "Fast Random Integer Generation in an Interval", ACM TOMACS 29, 2019), so that they grow by as
# much as is needed. Emitted code searches the same slots (``jit.runtime.lookups.find_exact``).

#: 2**64 divided by the golden ratio, odd, as int64: what is hashed is multiplied by it.
MULTIPLIER = -0x61C8864680B583EB

_EVERY = (1 << 64) - 1
_HALF = (1 << 32) - 1
_FEWEST_SLOTS = 16
_SEEDS = 32

#: Quarters of a slot for each row of an index that packets search.
SLACK_FOR_PACKETS = 11
#: The same for an index that only the control plane and the interpreter search.
SLACK_FOR_CONTROL = 8

#: So few rows get eight slots each.
_ROOMY = 32
#: Up to this number of rows, the best of several seeds is taken.
_SMALL = 512

Words = NDArray[np.uint64]


class HashIndex:
    """Finds rows of a matrix of words that grows.

    Args:
        quarters: four times the number of slots for each row, at most a tenth less and a sixth
            more; few rows have more slots.

    Attributes:
        slots: uint32: the number of a row, or 0 for none.
        seed: of the hash of a row's words.
    """

    def __init__(self, quarters: int = SLACK_FOR_PACKETS) -> None:
        self._quarters = quarters
        self.slots = np.zeros(_FEWEST_SLOTS, np.uint32)
        self.seed = 0
        self._count = 0
        self._changed = False

    def find(self, matrix: Words, words: Sequence[int]) -> int:
        """The row that holds ``words``; 0 when none does."""
        last = len(self.slots) - 1
        slot = slot_of(hashed(words, self.seed), last + 1)
        while row := int(self.slots[slot]):
            if matrix[row].tolist() == words:
                return row
            slot = slot + 1 if slot < last else 0
        return 0

    def insert(
        self, matrix: Words, row: int, live: NDArray[np.bool_], words: Sequence[int]
    ) -> None:
        """Add a row of ``words`` that is not in the index; ``live`` marks the rows to be found
        afterwards.
        """
        self._count += 1
        self._changed = True
        if 9 * self._quarters * self._count > 40 * len(self.slots):
            self.rebuild(matrix, live)
            return
        self._put(words, row)

    def remove(self, matrix: Words, row: int, live: NDArray[np.bool_]) -> None:
        """Remove a row that is in the index; ``live`` marks the rows to be found afterwards."""
        self._count -= 1
        self._changed = True
        if len(self.slots) > max(8 * _ROOMY, 7 * self._quarters * self._count // 24):
            self.rebuild(matrix, live)
            return
        last = len(self.slots) - 1
        slot = slot_of(hashed(matrix[row].tolist(), self.seed), last + 1)
        while int(self.slots[slot]) != row:
            slot = slot + 1 if slot < last else 0
        self.slots[slot] = 0
        # Rows up to the next free slot may have been displaced by this one.
        slot = slot + 1 if slot < last else 0
        while moved := int(self.slots[slot]):
            self.slots[slot] = 0
            self._put(matrix[moved].tolist(), moved)
            slot = slot + 1 if slot < last else 0

    @property
    def improvable(self) -> bool:
        """Whether ``compact`` would place rows again."""
        return self._changed and self._count <= _SMALL

    def compact(self, matrix: Words, live: NDArray[np.bool_]) -> None:
        """Prepare for many look-ups. Few rows are placed again with the one of several seeds that
        has the fewest collisions, since processors mispredict collisions.
        """
        if self.improvable:
            self.rebuild(matrix, live, _SEEDS)
            self._changed = False

    def rebuild(self, matrix: Words, live: NDArray[np.bool_], seeds: int = 1) -> None:
        """Place all rows again."""
        rows = np.flatnonzero(live)
        self._count = len(rows)
        slots = slots_for(len(rows), self._quarters)
        self.seed, wanted = _seeded(matrix[rows], slots, seeds)
        self.slots = slots_with_rows(rows, wanted, slots)

    def _put(self, words: Sequence[int], row: int) -> None:
        last = len(self.slots) - 1
        slot = slot_of(hashed(words, self.seed), last + 1)
        while self.slots[slot]:
            slot = slot + 1 if slot < last else 0
        self.slots[slot] = row


class DirectIndex:
    """Finds rows of one short word: every word has a slot. It has the methods of ``HashIndex``.

    Args:
        bits: of the words.

    Attributes:
        slots: uint16, by word: the number of a row, or 0 for none.
    """

    def __init__(self, bits: int) -> None:
        self.slots = np.zeros(1 << bits, np.uint16)

    def find(self, _: Words, words: Sequence[int]) -> int:
        """The row that holds ``words``; 0 when none does."""
        return int(self.slots[words[0]])

    def insert(self, _: Words, row: int, __: NDArray[np.bool_], words: Sequence[int]) -> None:
        """Add a row of ``words`` that is not in the index."""
        self.slots[words[0]] = row

    def remove(self, matrix: Words, row: int, _: NDArray[np.bool_]) -> None:
        """Remove a row that is in the index."""
        self.slots[int(matrix[row, 0])] = 0

    def rebuild(self, matrix: Words, live: NDArray[np.bool_]) -> None:
        """Store all rows again."""
        rows = np.flatnonzero(live)
        self.slots[:] = 0
        self.slots[matrix[rows, 0].astype(np.int64)] = rows


def hashed(words: Sequence[int], seed: int) -> int:
    """A hash of unsigned words, as ``jit.runtime.lookups.hash_key`` computes it."""
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


def slots_for(rows: int, quarters: int = SLACK_FOR_PACKETS) -> int:
    """The number of slots for ``rows`` rows; few rows get more slots each."""
    return max(_FEWEST_SLOTS, 8 * rows if rows <= _ROOMY else quarters * rows // 4)


def slot_of(hash_: int, slots: int) -> int:
    """The slot of a hash, as ``jit.runtime.lookups.slot_of`` computes it."""
    return (hash_ & _HALF) * slots >> 32


def all_slots(hashes: Words, slots: int) -> Words:
    """``slot_of`` of every hash."""
    return (hashes & np.uint64(_HALF)) * np.uint64(slots) >> np.uint64(32)


def _seeded(words: Words, slots: int, seeds: int) -> tuple[int, Words]:
    """The tried seed with the fewest collisions, and the rows' first slots."""
    best: tuple[int, int, Words] | None = None
    for seed in range(seeds):
        wanted = all_slots(all_hashed(words, seed), slots)
        collisions = len(words) - len(set(wanted.tolist())) if seeds > 1 else 0
        if best is None or collisions < best[0]:
            best = (collisions, seed, wanted)
        if not collisions:
            break
    assert best is not None
    return best[1:]


def slots_with_rows(rows: NDArray[np.int64], wanted: Words, slots: int) -> NDArray[np.uint32]:
    """Slots with every row at the first free one from ``wanted`` on."""
    table: NDArray[np.uint32] = mapped_zeros((slots,), np.uint32)
    if not len(rows):
        return table
    order = np.argsort(wanted, kind="stable")
    steps = np.arange(len(rows))
    # In the order of their first slots, each row takes its slot or the next free one.
    found = steps + np.maximum.accumulate(wanted[order].astype(np.int64) - steps)
    beyond = found >= slots
    table[found[~beyond]] = rows[order][~beyond]
    # Rows that reach the end continue at the start.
    slot = 0
    for row in rows[order][beyond].tolist():
        while table[slot]:
            slot += 1
        table[slot] = row
    return table
