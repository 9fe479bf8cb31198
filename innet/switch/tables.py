"""Match-action tables at run time: entries, their handles, and how a key finds one.

Both engines read the same ``TableState``. The interpreter asks ``lookup``; a compiled engine copies
``ordered()`` into its own structures whenever ``version`` has moved.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.errors import ControlError, ProgramError
from innet.switch import ir
from innet.switch.whole import whole

PACKETS = 0
"""Column of a counter matrix that counts packets."""
BYTES = 1
"""Column of a counter matrix that counts bytes."""

_INDEX_BITS = 24
"""A handle is version << 24 | index, as simple_switch gives them out."""


@dataclass(slots=True)
class Generation:
    """A number that grows whenever the control plane changes what packets meet."""

    value: int = 0

    def bump(self) -> None:
        self.value += 1


@dataclass(frozen=True, slots=True)
class Reference:
    """What an entry of an indirect table runs: a member of its profile, or one of a group."""

    group: bool
    handle: int


Target = ir.ActionEntry | Reference
"""What an entry runs; a ``Reference`` in indirect tables only."""


@dataclass(frozen=True, slots=True)
class RuntimeEntry:
    """An entry in the form in which it is compared.

    Attributes:
        handle: what the control plane calls it.
        index: the entry's place, 0 .. max_size-1; direct counters are indexed by it.
        values, masks: one per key field; it matches when (field & mask) == value, where values are
            already masked. For a ``MatchKind.RANGE`` field they are the lowest and highest value.
        prefix: length of the prefix in an LPM table (the longest wins), else 0.
        priority: the lowest number wins in ternary and range tables, then the lowest index.
        action: what runs on a hit.
        matches: the match as it was stated, for people.
    """

    handle: int
    index: int
    values: tuple[int, ...]
    masks: tuple[int, ...]
    prefix: int
    priority: int
    action: Target
    matches: tuple[ir.Match, ...]

    def precedence(self) -> tuple[int, int, int]:
        """Smaller is looked at first."""
        return (-self.prefix, self.priority, self.index)


@dataclass(slots=True)
class TableState:
    """The entries of one table.

    Args:
        table: what the program says of it; its own entries are added at once.
        generation: the counter shared by all that the control plane can change.

    Attributes:
        default: what runs on a miss; None: nothing.
        counters: direct counters, shape (max_size, 2), uint64, columns PACKETS and BYTES, indexed
            by ``RuntimeEntry.index``; None when the table has none.
        version: grows with every change of this table.
        timeouts: milliseconds by ``RuntimeEntry.index``; without effect (see ``set_timeout``).
    """

    table: ir.Table
    generation: Generation
    default: Target | None = field(init=False)
    counters: NDArray[np.uint64] | None = field(init=False, default=None)
    version: int = field(init=False, default=0)
    timeouts: dict[int, int] = field(init=False, default_factory=dict)
    _entries: dict[int, RuntimeEntry] = field(init=False, default_factory=dict)
    _exact: dict[tuple[int, ...], RuntimeEntry] = field(init=False, default_factory=dict)
    _by_prefix: dict[int, tuple[tuple[int, ...], dict[tuple[int, ...], RuntimeEntry]]] = field(
        init=False, default_factory=dict
    )
    _scan: list[RuntimeEntry] = field(init=False, default_factory=list)
    _matched: set[tuple[tuple[int, ...], tuple[int, ...], int]] = field(
        init=False, default_factory=set
    )
    _versions: dict[int, int] = field(init=False, default_factory=dict)
    _free: list[int] = field(init=False, default_factory=list)
    _next_index: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.default = self.table.default
        if self.table.with_counters:
            shape = (self.table.max_size, 2)
            self.counters = zeros(
                shape, np.dtype(np.uint64), f"counters of table {self.table.name}"
            )
        for entry in self.table.entries:
            try:
                self._insert(entry.matches, entry.entry, entry.priority)
            except ControlError as error:
                raise ProgramError(f"among the program's own entries: {error}") from error

    # ── What the data plane asks ──

    def lookup(self, key: Sequence[int]) -> RuntimeEntry | None:
        """The entry that ``key`` (field values without sign, in the order of the keys) hits."""
        masked = tuple(
            value if part.mask is None else value & part.mask
            for value, part in zip(key, self.table.keys, strict=True)
        )
        if self.table.match is ir.MatchKind.EXACT:
            return self._exact.get(masked)
        if self.table.match is ir.MatchKind.LPM:
            return self._lookup_prefix(masked)
        for entry in self._scan:
            if self._matches(entry, masked):
                return entry
        return None

    def _lookup_prefix(self, key: tuple[int, ...]) -> RuntimeEntry | None:
        for masks, entries in self._by_prefix.values():
            found = entries.get(tuple(v & m for v, m in zip(key, masks, strict=True)))
            if found is not None:
                return found
        return None

    def _matches(self, entry: RuntimeEntry, key: tuple[int, ...]) -> bool:
        for part, field_, value, mask in zip(
            self.table.keys, key, entry.values, entry.masks, strict=True
        ):
            if part.match is ir.MatchKind.RANGE:
                if not value <= field_ <= mask:
                    return False
            elif field_ & mask != value:
                return False
        return True

    def next_node(self, action: int | None, hit: bool) -> ir.Node | None:
        """Where the pipeline goes on after ``action`` ran (None: a miss without default action)."""
        if self.table.by_hit:
            return self.table.hit if hit else self.table.miss
        if action is None:
            return self.table.base_default_next
        return self.table.next[self.table.actions.index(action)]

    # ── What the control plane asks ──

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RuntimeEntry]:
        """Entries by index."""
        return (self._entries[index] for index in sorted(self._entries))

    def ordered(self) -> list[RuntimeEntry]:
        """Entries so that the first that matches is the one that is hit."""
        return sorted(self._entries.values(), key=RuntimeEntry.precedence)

    def get(self, handle: int) -> RuntimeEntry:
        """The entry of ``handle``; ControlError when there is none."""
        handle = whole(handle, "a handle")
        entry = self._entries.get(handle & ((1 << _INDEX_BITS) - 1)) if handle >= 0 else None
        if entry is None or entry.handle != handle:
            known = ", ".join(str(each.handle) for each in list(self)[:10]) or "none"
            known += f", ... ({len(self)} in all)" if len(self) > 10 else ""
            raise ControlError(
                f"table {self.table.name} has no entry with handle {handle}. Handles: {known}."
            )
        return entry

    def find(self, matches: Sequence[ir.Match], priority: int) -> RuntimeEntry:
        """The entry with this match; ControlError when there is none."""
        values, masks, prefix = normalise(self.table, matches)
        wanted = (values, masks, prefix, priority if is_ordered(self.table) else 0)
        for entry in self:
            if (entry.values, entry.masks, entry.prefix, entry.priority) == wanted:
                return entry
        raise ControlError(f"table {self.table.name} has no entry with this match")

    def set_timeout(self, entry: RuntimeEntry, milliseconds: int) -> None:
        """Note how long an entry may go without a hit; nothing looks at it."""
        if not self.table.support_timeout:
            raise ControlError(f"table {self.table.name} does not support timeouts")
        self.timeouts[entry.index] = milliseconds

    def add(self, matches: Sequence[ir.Match], action: Target, priority: int) -> int:
        """Add an entry whose shape was checked; returns its handle.

        Raises:
            ControlError: the table's entries are the program's own, it is full, or the same match
                is in it already.
        """
        self._require_mutable()
        if not self.table.keys:
            raise ControlError(f"table {self.table.name} has no key, so it can have no entries")
        handle = self._insert(tuple(matches), action, priority)
        self.touch()
        return handle

    def modify(self, handle: int, action: Target) -> None:
        """Change what the entry of ``handle`` runs."""
        self._require_mutable()
        old = self.get(handle)
        new = RuntimeEntry(
            old.handle,
            old.index,
            old.values,
            old.masks,
            old.prefix,
            old.priority,
            action,
            old.matches,
        )
        self._unlink(old)
        self._link(new)
        self.touch()

    def delete(self, handle: int) -> None:
        """Remove the entry of ``handle``."""
        self._require_mutable()
        entry = self.get(handle)
        self._unlink(entry)
        self.timeouts.pop(entry.index, None)
        self._versions[entry.index] = (self._versions.get(entry.index, 0) + 1) & 0xFF
        heapq.heappush(self._free, entry.index)
        self.touch()

    def clear(self) -> None:
        """Remove all entries; the default stays. Handles start again at 0.

        As in simple_switch this is the one thing that can be done to constant entries.
        """
        for container in (self._entries, self._exact, self._by_prefix, self._versions):
            container.clear()
        self.timeouts.clear()
        self._scan.clear()
        self._matched.clear()
        self._free.clear()
        self._next_index = 0
        self.touch()

    def set_default(self, action: Target) -> None:
        """Change what a miss runs; ControlError when the program declares it constant."""
        if self.table.default_entry_const:
            raise ControlError(f"the default entry of table {self.table.name} is constant")
        if (
            self.table.default_action_const
            and self.table.default is not None
            and isinstance(action, ir.ActionEntry)
            and action.action != self.table.default.action
        ):
            raise ControlError(f"the default action of table {self.table.name} is constant")
        self.default = action
        self.touch()

    def reset_default(self) -> None:
        """Back to the default entry that the program states."""
        self.default = self.table.default
        self.touch()

    # ── Inside ──

    def touch(self) -> None:
        """Make engines look at the table anew."""
        self.version += 1
        self.generation.bump()

    def _require_mutable(self) -> None:
        if self.table.immutable:
            raise ControlError(
                f"the entries of table {self.table.name} are constant in the program"
            )

    def _insert(self, matches: tuple[ir.Match, ...], action: Target, priority: int) -> int:
        values, masks, prefix = normalise(self.table, matches)
        if not is_ordered(self.table):
            priority = 0
        if self._duplicate(values, masks, prefix, priority):
            raise ControlError(f"table {self.table.name} already has an entry with this match")
        if len(self._entries) >= self.table.max_size:
            raise ControlError(
                f"table {self.table.name} is full: it holds {self.table.max_size} entries"
            )
        if self._free:
            index = heapq.heappop(self._free)
        else:
            index, self._next_index = self._next_index, self._next_index + 1
        handle = self._versions.get(index, 0) << _INDEX_BITS | index
        if self.counters is not None:
            self.counters[index] = 0
        self._link(RuntimeEntry(handle, index, values, masks, prefix, priority, action, matches))
        return handle

    def _duplicate(
        self, values: tuple[int, ...], masks: tuple[int, ...], prefix: int, priority: int
    ) -> bool:
        if self.table.match is ir.MatchKind.EXACT:
            return values in self._exact
        if self.table.match is ir.MatchKind.LPM:
            return prefix in self._by_prefix and values in self._by_prefix[prefix][1]
        return (values, masks, priority) in self._matched

    def _link(self, entry: RuntimeEntry) -> None:
        self._entries[entry.index] = entry
        if self.table.match is ir.MatchKind.EXACT:
            self._exact[entry.values] = entry
        elif self.table.match is ir.MatchKind.LPM:
            if entry.prefix not in self._by_prefix:
                self._by_prefix[entry.prefix] = (entry.masks, {})
                self._by_prefix = dict(sorted(self._by_prefix.items(), reverse=True))
            self._by_prefix[entry.prefix][1][entry.values] = entry
        else:
            insort(self._scan, entry, key=RuntimeEntry.precedence)
            self._matched.add((entry.values, entry.masks, entry.priority))

    def _unlink(self, entry: RuntimeEntry) -> None:
        del self._entries[entry.index]
        if self.table.match is ir.MatchKind.EXACT:
            del self._exact[entry.values]
        elif self.table.match is ir.MatchKind.LPM:
            entries = self._by_prefix[entry.prefix][1]
            del entries[entry.values]
            if not entries:
                del self._by_prefix[entry.prefix]
        else:
            del self._scan[bisect_left(self._scan, entry.precedence(), key=RuntimeEntry.precedence)]
            self._matched.remove((entry.values, entry.masks, entry.priority))


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Storage that a program asks for; ProgramError when there is not so much memory."""
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):
        cells = math.prod(shape)
        size = cells * dtype.itemsize / (1 << 30)
        raise ProgramError(f"{what}: {size:.1f} GiB for {cells} cells cannot be had") from None


def is_ordered(table: ir.Table) -> bool:
    """Whether entries have priorities."""
    return table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)


def normalise(
    table: ir.Table, matches: Sequence[ir.Match]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """``RuntimeEntry.values``, ``.masks`` and ``.prefix`` of a match of the right shape."""
    values: list[int] = []
    masks: list[int] = []
    prefix = 0
    for key, match in zip(table.keys, matches, strict=True):
        every = (1 << key.width) - 1
        static = every if key.mask is None else key.mask
        if isinstance(match, ir.RangeMatch):
            # BMv2 applies a static mask to the lower end only; p4c never states one for a range.
            values.append(match.low & static)
            masks.append(match.high)
            continue
        if isinstance(match, ir.ExactMatch):
            mask = every
        elif isinstance(match, ir.LpmMatch):
            mask = prefix_mask(match.prefix, key.width)
            prefix = match.prefix
        else:
            mask = match.mask & every
        values.append(match.value & mask & static)
        masks.append(mask)
    return tuple(values), tuple(masks), prefix if table.match is ir.MatchKind.LPM else 0


def prefix_mask(prefix: int, width: int) -> int:
    """The mask of a prefix, counted from the top of the field padded to bytes (``ir.LpmMatch``)."""
    padded = (width + 7) // 8 * 8
    return ((1 << prefix) - 1) << (padded - prefix) & ((1 << width) - 1)
