"""Ageing of table entries: timeouts, last hits, and the sweep that reports idle entries.

A table with ``support_timeout`` keeps a timeout and the time of the last hit for each entry. A
sweep at a fixed interval reports entries without a hit for their timeout. It does not remove them;
the controller does, as in P4Runtime.

Source: BMv2's ``ageing.cpp``, ``match_units.cpp``; P4Runtime's IdleTimeoutNotification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import require_int
from innet.switch.state.tables import TableState

SWEEP_INTERVAL_MS = 1000
"""Milliseconds between two sweeps, as in simple_switch."""

_MOST_SWEEPS = 10_000
"""If the clock advances by more sweeps than this, the first of them are skipped."""

_NEVER = 1 << 63
"""Greater than any clock value."""


class IdleTimeout(NamedTuple):
    """The idle entries that one sweep found in one table.

    Attributes:
        time: of the sweep, in microseconds.
        table: its name.
        handles: of the idle entries, in the order of their indices.
    """

    time: int
    table: str
    handles: tuple[int, ...]

    def __str__(self) -> str:
        handles = ", ".join(map(str, self.handles))
        return f"idle timeout at {self.time} us in {self.table}: entries {handles}"


@dataclass(slots=True)
class _Watched:
    """The entries of a table with timeouts; ``reported``: those that the last sweep reported."""

    table: str
    handles: NDArray[np.int64]
    timeouts: NDArray[np.int64]
    last_hits: NDArray[np.int64]
    reported: NDArray[np.bool_]


class AgeingMonitor:
    """Sweeps tables for idle entries.

    A sweep reports an entry without a hit for its timeout unless the previous sweep reported it. So
    an idle entry is reported by every second sweep, as in simple_switch.

    Args:
        tables: the switch's tables, in the order of reports.

    Attributes:
        due: time of the next sweep in microseconds; greater than any clock if no table ages.
    """

    def __init__(self, tables: Sequence[TableState]) -> None:
        self._tables = [table for table in tables if table.ages is not None]
        self._reported: dict[
            str, NDArray[np.int64]
        ] = {}  # reported by the last sweep, for each table
        self._interval_ms = SWEEP_INTERVAL_MS
        self._last = 0
        self.due = 1000 * SWEEP_INTERVAL_MS if self._tables else _NEVER
        self._found: list[IdleTimeout] = []

    @property
    def sweep_interval_ms(self) -> int:
        """Milliseconds between sweeps, and from time 0 to the first sweep.

        A new interval starts at the last sweep.

        Raises:
            InputError: it is set to something other than a positive integer.
        """
        return self._interval_ms

    @sweep_interval_ms.setter
    def sweep_interval_ms(self, milliseconds: int) -> None:
        wanted = require_int(milliseconds, "the sweep interval")
        if wanted < 1:
            raise InputError(f"the sweep interval is 1 millisecond or more, not {wanted}")
        self._interval_ms = wanted
        if self._tables:
            self.due = self._last + 1000 * wanted

    @property
    def has_timeouts(self) -> bool:
        """Whether any entry has a timeout."""
        return any(each.ages is not None and each.ages.timeouts.any() for each in self._tables)

    def advance(self, clock: int) -> None:
        """Do the sweeps due by ``clock``, in microseconds. All earlier hits must be recorded.

        At most the last 10,000 sweeps are done.
        """
        if clock < self.due:
            return
        step = 1000 * self._interval_ms
        last = clock - (clock - self._last) % step
        first = max(self.due, last - (_MOST_SWEEPS - 1) * step)
        # There are no hits between two calls, so each entry is read once for all sweeps.
        watched = []
        for table in self._tables:
            entries = table.entries_with_timeouts()
            reported = np.isin(entries[0], self._reported.pop(table.table.name, ()))
            if len(reported):
                watched.append(_Watched(table.table.name, *entries, reported))
        for time in range(first, last + 1, step) if watched else ():
            for each in watched:
                idle = time // 1000 - each.last_hits // 1000 >= each.timeouts
                each.reported = idle & ~each.reported
                if each.reported.any():
                    handles = tuple(each.handles[each.reported].tolist())
                    self._found.append(IdleTimeout(time, each.table, handles))
        self._reported = {each.table: each.handles[each.reported] for each in watched}
        self._last, self.due = last, last + step

    def take(self) -> list[IdleTimeout]:
        """The idle timeouts since the last call."""
        found, self._found = self._found, []
        return found
