"""Ageing of table entries: timeouts, last hits, and the sweep that reports who was idle too long.

A table of which the program says ``support_timeout`` keeps a timeout and the time of the last hit
for each entry. A sweep looks at them at a fixed interval and reports entries that nothing hit for
their timeout. It removes none: that is for the controller, as in P4Runtime.

Source: BMv2's ``ageing.cpp``, ``match_units.cpp``; P4Runtime's IdleTimeoutNotification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import require_int

if TYPE_CHECKING:
    from innet.switch.state.tables import TableState

SWEEP_INTERVAL_MS = 1000
"""Milliseconds between two sweeps, as in simple_switch."""

_MOST_SWEEPS = 10_000
"""When the clock leaps over more sweeps than that, the first of them are left out."""

_NEVER = 1 << 63
"""Above every clock."""


class EntryLife(NamedTuple):
    """The timeout of an entry and the time since its last hit, in milliseconds."""

    timeout_ms: int
    time_since_hit_ms: int

    def __str__(self) -> str:
        return f"{self.time_since_hit_ms}ms since hit, timeout is {self.timeout_ms}ms"


class IdleTimeout(NamedTuple):
    """What one sweep found in one table.

    Attributes:
        time: of the sweep, in microseconds.
        table: its name.
        handles: of the entries that were idle for their timeouts, by index.
    """

    time: int
    table: str
    handles: tuple[int, ...]

    def __str__(self) -> str:
        handles = ", ".join(map(str, self.handles))
        return f"idle timeout at {self.time} us in {self.table}: entries {handles}"


@dataclass(frozen=True, slots=True)
class EntryAges:
    """The ages of a table's entries, by ``RuntimeEntry.index``.

    A timeout belongs to the index as in simple_switch: a new entry at the index of a deleted one
    takes it over.

    Attributes:
        timeouts: milliseconds; 0: never.
        last_hits: ``SwitchState.clock`` at the last hit, or when the entry was added or given a
            timeout after it. Engines write here. A hit in egress counts as at the time at which the
            packet entered its egress queue, as in simple_switch.
    """

    timeouts: NDArray[np.uint32]
    last_hits: NDArray[np.int64]

    def life(self, index: int, clock: int) -> EntryLife | None:
        """Timeout and time since the last hit of an entry; None where it has no timeout."""
        timeout = int(self.timeouts[index])
        since = clock // 1000 - int(self.last_hits[index]) // 1000
        return EntryLife(timeout, since) if timeout else None

    def set_timeout(self, index: int, milliseconds: int, clock: int) -> None:
        """Give an entry a timeout, which begins now."""
        self.timeouts[index] = milliseconds
        self.last_hits[index] = clock

    def clear(self) -> None:
        """Forget all timeouts."""
        self.timeouts[:] = 0
        self.last_hits[:] = 0


@dataclass(slots=True)
class _Watched:
    """The entries of a table that have timeouts; ``reported``: which ones the last sweep did."""

    table: str
    handles: NDArray[np.int64]
    timeouts: NDArray[np.int64]
    last_hits: NDArray[np.int64]
    reported: NDArray[np.bool_]


class AgeingMonitor:
    """Sweeps tables for idle entries.

    A sweep reports an entry when it was not hit for its timeout and the sweep before did not report
    it. So an entry that stays idle is reported by every second sweep, as simple_switch does.

    Args:
        tables: those of the switch, in the order in which they are reported.

    Attributes:
        due: when the next sweep comes, in microseconds; above every clock where no table ages.
    """

    def __init__(self, tables: Sequence[TableState]) -> None:
        self._tables = [table for table in tables if table.ages is not None]
        self._reported: dict[str, NDArray[np.int64]] = {}  # by the last sweep, of each table
        self._interval_ms = SWEEP_INTERVAL_MS
        self._last = 0
        self.due = 1000 * SWEEP_INTERVAL_MS if self._tables else _NEVER
        self._found: list[IdleTimeout] = []

    @property
    def sweep_interval_ms(self) -> int:
        """Milliseconds between two sweeps, and from time 0 to the first.

        A new one counts from the last sweep on.

        Raises:
            InputError: when it is set to what is no positive integer.
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
        """Do the sweeps that are due by ``clock``, in microseconds; all hits before it are known.

        At most 10,000 at once: where the clock leaps over more, the last ones.
        """
        if clock < self.due:
            return
        step = 1000 * self._interval_ms
        last = clock - (clock - self._last) % step
        first = max(self.due, last - (_MOST_SWEEPS - 1) * step)
        # Nothing is hit between two calls, so each entry is read once for all sweeps.
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
        """What sweeps found since the last call."""
        found, self._found = self._found, []
        return found
