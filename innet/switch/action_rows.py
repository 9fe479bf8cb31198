"""What rows of entries or members run: actions, and their arguments as words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.fresh_memory import fresh, resized
from innet.switch.table_words import (
    argument_words,
    equal_words,
    pack_arguments,
    unpack_arguments,
)

NO_ACTION = (1 << 16) - 1
"""In ``ActionRows.actions``: nothing runs."""


class ActionRows:
    """Actions by row.

    Args:
        actions: the program's.
        possible: those of them that rows may run.

    Attributes:
        actions: uint16; the position of an action in ``possible``, or ``NO_ACTION``.
        data: uint64, the words of arguments. Where all actions have as many words, those of a row
            follow those of the row before.
        places: uint32, where they do not: where in ``data`` a row's words begin; else empty.
    """

    def __init__(self, actions: Sequence[ir.Action], possible: Sequence[int]) -> None:
        self._actions = actions
        self._possible = possible
        self._positions = {action: i for i, action in enumerate(possible)}
        self._words = equal_words(actions, possible)
        lengths = [argument_words(actions[action]) for action in possible]
        self._lengths = np.array([*lengths, 0], np.int64)  # nothing comes last
        self.actions: NDArray[np.uint16] = np.zeros(0, np.uint16)
        self.data: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.places: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._used = self._left = 0  # words of ``data`` where there are places

    def resize(self, rows: int) -> None:
        """Room for so many rows, of which those that were there stay; others run nothing."""
        had = len(self.actions)
        self.actions = resized(self.actions, rows)
        self.actions[had:] = NO_ACTION
        if self._words is None:
            self.places = resized(self.places, rows)
            if rows < had:
                self._close_up()
        else:
            self.data = resized(self.data, rows * self._words)

    def move(self, rows: NDArray[np.int64], to: NDArray[np.int64], room: int) -> None:
        """Some rows have other numbers now, and there is room for so many."""
        had, places, data = self.actions, self.places, self.data
        self.actions = fresh((room,), np.uint16)
        self.actions[:] = NO_ACTION
        self.actions[to] = had[rows]
        if self._words is None:
            self.places = fresh((room,), np.uint32)
            self.places[to] = places[rows]
        elif self._words:
            self.data = fresh((room * self._words,), np.uint64)
            self.data.reshape(-1, self._words)[to] = data.reshape(-1, self._words)[rows]

    def get(self, row: int) -> ir.ActionEntry | None:
        """What a row runs; None: nothing."""
        position = int(self.actions[row])
        if position == NO_ACTION:
            return None
        action = self._possible[position]
        first = self._first(row)
        words = self.data[first : first + int(self._lengths[position])].tolist()
        return ir.ActionEntry(action, unpack_arguments(self._actions[action], words))

    def set(self, row: int, entry: ir.ActionEntry | None) -> None:
        """Say what a row runs."""
        position, words = NO_ACTION, list[int]()
        if entry is not None:
            position = self._positions[entry.action]
            words = pack_arguments(self._actions[entry.action], entry.arguments)
        if self._words is None:
            had = self._length(row)
            if had != len(words):
                self._leave(row, had)
                self.places[row] = self._room(len(words))
        self.actions[row] = position
        if words:
            first = self._first(row)
            self.data[first : first + len(words)] = words

    def _first(self, row: int) -> int:
        return int(self.places[row]) if self._words is None else row * self._words

    def _length(self, row: int) -> int:
        position = int(self.actions[row])
        return 0 if position == NO_ACTION else int(self._lengths[position])

    def _leave(self, row: int, words: int) -> None:
        """What a row had is no longer used; as soon as that is much, it is given back."""
        self.actions[row] = NO_ACTION
        self._left += words
        if self._left > 16 + self._used // 8:
            self._close_up()

    def _room(self, words: int) -> int:
        first = self._used
        self._used += words
        if self._used > len(self.data):
            self.data = resized(self.data, self._used + self._used // 16 + 4)
        return first

    def _close_up(self) -> None:
        lengths = self._lengths[np.minimum(self.actions, len(self._possible))]
        ends = np.cumsum(lengths)
        firsts = ends - lengths
        self._used, self._left = int(ends[-1]), 0
        old = np.repeat(self.places - firsts, lengths) + np.arange(self._used)
        data: NDArray[np.uint64] = fresh((self._used + self._used // 16 + 4,), np.uint64)
        data[: self._used] = self.data[old]
        self.data = data
        self.places[:] = firsts
