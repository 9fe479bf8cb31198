"""The members of an action profile as rows of arrays, which grow as members come."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.fresh_memory import resized
from innet.switch.table_words import argument_column, pack_arguments, unpack_arguments

_MORE_ROWS = 16
_FREE = -1


class Members(MutableMapping[int, ir.ActionEntry]):
    """What members run, by handle, ascending.

    Args:
        actions: the program's.
        possible: those of them that members may have.

    Attributes:
        actions: int32, by handle: the member's action, as an index into the program's, or -1 where
            there is no member.
        data: uint64, (handles, words): its arguments, then zeros.
    """

    def __init__(self, actions: Sequence[ir.Action], possible: Sequence[int]) -> None:
        self._actions = actions
        used = (actions[action] for action in possible)
        words = max((argument_column(each, len(each.parameters)) for each in used), default=0)
        self.actions: NDArray[np.int32] = np.zeros(0, np.int32)
        self.data: NDArray[np.uint64] = np.zeros((0, words), np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.actions != _FREE).tolist())

    def __contains__(self, handle: Any) -> bool:
        return 0 <= handle < len(self.actions) and bool(self.actions[handle] != _FREE)

    def __getitem__(self, handle: int) -> ir.ActionEntry:
        if handle not in self:
            raise KeyError(handle)
        action = int(self.actions[handle])
        arguments = unpack_arguments(self._actions[action], self.data[handle].tolist())
        return ir.ActionEntry(action, arguments)

    def __setitem__(self, handle: int, entry: ir.ActionEntry) -> None:
        had = len(self.actions)
        if handle >= had:
            rows = handle + handle // 8 + _MORE_ROWS
            self.actions, self.data = resized(self.actions, rows), resized(self.data, rows)
            self.actions[had:] = _FREE
        self._count += handle not in self
        self.actions[handle] = entry.action
        words = pack_arguments(self._actions[entry.action], entry.arguments)
        self.data[handle] = 0
        self.data[handle, : len(words)] = words

    def __delitem__(self, handle: int) -> None:
        if handle not in self:
            raise KeyError(handle)
        self.actions[handle] = _FREE
        self._count -= 1

    def lowest_free(self) -> int:
        """The handle of the next member."""
        free = np.flatnonzero(self.actions == _FREE)
        return int(free[0]) if len(free) else len(self.actions)
