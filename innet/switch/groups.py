"""The groups of an action profile: one list of all their members, and where each begins in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.fresh_memory import resized

_MORE = 4


class Groups(Mapping[int, list[int]]):
    """The handles of members, ascending, by handle of the group, ascending. None at first.

    Attributes:
        starts: uint32: the members of a group are ``listed[starts[group]:starts[group + 1]]``;
            there are none for a handle that no group has.
        listed: uint32; zeros follow.
    """

    def __init__(self) -> None:
        self.starts: NDArray[np.uint32] = np.zeros(1, np.uint32)
        self.listed: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._exist: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._handles = 0  # all are below

    def __len__(self) -> int:
        return int(np.count_nonzero(self._exist))

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._exist).tolist())

    def __contains__(self, group: Any) -> bool:
        return 0 <= group < self._handles and bool(self._exist[group])

    def __getitem__(self, group: int) -> list[int]:
        if group not in self:
            raise KeyError(group)
        members: list[int] = self.listed[self.starts[group] : self.starts[group + 1]].tolist()
        return members

    def create(self) -> int:
        """Add an empty group, whose handle is the lowest that is free."""
        group = int(np.argmin(self._exist[: self._handles])) if self._handles else 0
        if group in self or not self._handles:
            group = self._handles
            if group == len(self._exist):
                room = group + group // 16 + _MORE
                self._exist, self.starts = (
                    resized(self._exist, room),
                    resized(self.starts, room + 1),
                )
            self._handles += 1
            self.starts[group + 1] = self.starts[group]
        self._exist[group] = True
        return group

    def delete(self, group: int) -> None:
        """Remove a group; its handle is free."""
        for member in self[group]:
            self.remove(group, member)
        self._exist[group] = False
        while self._handles and not self._exist[self._handles - 1]:
            self._handles -= 1
        if len(self._exist) > self._handles * 9 // 8 + 2 * _MORE:
            self._exist = resized(self._exist, self._handles)
            self.starts = resized(self.starts, self._handles + 1)

    def add(self, group: int, member: int) -> None:
        """Put a member that is not in a group into it."""
        total = int(self.starts[self._handles])
        if total == len(self.listed):
            self.listed = resized(self.listed, total + total // 16 + _MORE)
        place = self._place(group, member)
        self.listed[place + 1 : total + 1] = self.listed[place:total]
        self.listed[place] = member
        self.starts[group + 1 : self._handles + 1] += np.uint32(1)

    def remove(self, group: int, member: int) -> None:
        """Take a member that is in a group out of it."""
        total = int(self.starts[self._handles])
        place = self._place(group, member)
        self.listed[place : total - 1] = self.listed[place + 1 : total]
        self.starts[group + 1 : self._handles + 1] -= np.uint32(1)
        if len(self.listed) > total * 9 // 8 + 2 * _MORE:
            self.listed = resized(self.listed, total)

    def with_member(self, member: int) -> list[int]:
        """The groups that a member is in."""
        places = np.flatnonzero(self.listed[: int(self.starts[self._handles])] == member)
        found = np.searchsorted(self.starts[: self._handles + 1], places, side="right") - 1
        groups: list[int] = found.tolist()
        return groups

    def _place(self, group: int, member: int) -> int:
        first = int(self.starts[group])
        return first + int(np.searchsorted(self.listed[first : self.starts[group + 1]], member))
