"""The members of an action profile as rows of arrays, which grow as members come."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.action_rows import NO_ACTION, ActionRows

_MORE_ROWS = 4


class Members(MutableMapping[int, ir.ActionEntry]):
    """What members run, by handle, ascending.

    Args:
        actions: the program's.
        possible: those of them that members or ``defaults`` may have.
        defaults: what a miss runs, as the program says, in each table that has the profile.

    Attributes:
        rows: that of a default, then one that runs nothing, then by handle.
        first: the row of handle 0.
    """

    def __init__(
        self,
        actions: Sequence[ir.Action],
        possible: Sequence[int],
        defaults: Sequence[ir.ActionEntry | None],
    ) -> None:
        self.rows = ActionRows(actions, possible)
        self.first = len(defaults) + 1
        self.rows.resize(self.first)
        for row, default in enumerate(defaults):
            self.rows.set(row, default)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._actions != NO_ACTION).tolist())

    def __contains__(self, handle: Any) -> bool:
        return 0 <= handle < len(self._actions) and bool(self._actions[handle] != NO_ACTION)

    def __getitem__(self, handle: int) -> ir.ActionEntry:
        entry = self.rows.get(self.first + handle) if handle in self else None
        if entry is None:
            raise KeyError(handle)
        return entry

    def __setitem__(self, handle: int, entry: ir.ActionEntry) -> None:
        if handle >= len(self._actions):
            self.rows.resize(self.first + handle + handle // 16 + _MORE_ROWS)
        self._count += handle not in self
        self.rows.set(self.first + handle, entry)

    def __delitem__(self, handle: int) -> None:
        if handle not in self:
            raise KeyError(handle)
        self.rows.set(self.first + handle, None)
        self._count -= 1
        if len(self._actions) > 2 * self._count + 2 * _MORE_ROWS:
            last = max(self, default=-1)
            if len(self._actions) > (last + 1) * 9 // 8 + 2 * _MORE_ROWS:
                self.rows.resize(self.first + last + 1)

    def lowest_free(self) -> int:
        """The handle of the next member."""
        free = np.flatnonzero(self._actions == NO_ACTION)
        return int(free[0]) if len(free) else len(self._actions)

    @property
    def _actions(self) -> NDArray[np.uint16]:
        return self.rows.actions[self.first :]
