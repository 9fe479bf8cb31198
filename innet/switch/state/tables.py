"""Match-action tables at run time: entries, their handles, and look-ups.

Both engines read the same ``TableState``. The interpreter calls ``lookup``. The compiled engine
reads ``columns`` and rebuilds its search structures when ``version`` has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError, ProgramError, Refusal
from innet.core.numbers import require_int
from innet.switch import ir
from innet.switch.state.entries import EntryColumns

PACKETS = 0
"""Column of a counter matrix that counts packets."""
BYTES = 1
"""Column of a counter matrix that counts bytes."""

_INDEX_BITS = 24
"""A handle is version << 24 | index, as in simple_switch."""

_MOST_HIT = 8
"""Most entries in the cache of those hit since a table changed."""


@dataclass(slots=True)
class Generation:
    """A number that grows with every control plane change that can affect packets.

    Attributes:
        value: of all changes.
        beside_tables: of those that are not changes of tables.
    """

    value: int = 0
    beside_tables: int = 0

    def bump(self) -> None:
        self.value += 1
        self.beside_tables += 1

    def bump_table(self) -> None:
        self.value += 1


@dataclass(frozen=True, slots=True)
class ProfileRef:
    """The target of an entry of an indirect table: a member of its profile, or one of a group."""

    group: bool
    handle: int


class Key(NamedTuple):
    """What an entry matches, in normal form: ``RuntimeEntry.values``, ``.masks`` and ``.prefix``.

    The prefix counts in LPM tables only.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    prefix: int


Target = ir.ActionEntry | ProfileRef
"""The target of an entry; a ``ProfileRef`` in indirect tables only."""


class EntryLife(NamedTuple):
    """The timeout of an entry and the time since its last hit, in milliseconds."""

    timeout_ms: int
    time_since_hit_ms: int

    def __str__(self) -> str:
        return f"{self.time_since_hit_ms}ms since hit, timeout is {self.timeout_ms}ms"


@dataclass(frozen=True, slots=True)
class EntryAges:
    """The ages of a table's entries, by ``RuntimeEntry.index``.

    As in simple_switch a timeout belongs to the index: a new entry at the index of a deleted one
    inherits it.

    Attributes:
        timeouts: milliseconds; 0: never.
        last_hits: ``SwitchState.clock`` at the last hit, or when the entry was added or given a
            timeout after it. Engines write it. As in simple_switch the time of a hit in egress is
            that at which the packet entered its egress queue.
    """

    timeouts: NDArray[np.uint32]
    last_hits: NDArray[np.int64]

    def life(self, index: int, clock: int) -> EntryLife | None:
        """Timeout and time since the last hit of an entry; None without a timeout."""
        timeout = int(self.timeouts[index])
        since = clock // 1000 - int(self.last_hits[index]) // 1000
        return EntryLife(timeout, since) if timeout else None

    def set_timeout(self, index: int, milliseconds: int, clock: int) -> None:
        """Set the timeout of an entry, beginning now."""
        self.timeouts[index] = milliseconds
        self.last_hits[index] = clock

    def clear(self) -> None:
        """Remove all timeouts."""
        self.timeouts[:] = 0
        self.last_hits[:] = 0


@dataclass(frozen=True, slots=True)
class RuntimeEntry:
    """An entry with its match in normal form.

    Attributes:
        handle: its identity for the control plane.
        index: 0 .. max_size-1; direct counters are indexed by it.
        values, masks: one for each key field; it matches if (field & mask) == value, and values are
            masked. For a ``MatchKind.RANGE`` field they are the lowest and highest value.
        prefix: length of the prefix in an LPM table (the longest wins), else 0.
        priority: in ternary and range tables the lowest number wins, then the lowest index.
        action: its target on a hit.
        keys: the table's.
        life: the timeout and the time since the last hit, for the control plane; None without a
            timeout, and in look-ups of engines.
    """

    handle: int
    index: int
    values: tuple[int, ...]
    masks: tuple[int, ...]
    prefix: int
    priority: int
    action: Target
    keys: tuple[ir.TableKey, ...] = field(compare=False, repr=False)
    life: EntryLife | None = field(default=None, compare=False, repr=False)

    @property
    def matches(self) -> tuple[ir.Match, ...]:
        """The match as the control plane states it; bits that are not compared are 0."""
        parts = zip(self.keys, self.values, self.masks, strict=True)
        return tuple(_match(key, value, mask, self.prefix) for key, value, mask in parts)


class TableState:
    """The entries of one table.

    Args:
        table: the program's description; its entries are added.
        generation: the counter shared by all parts that the control plane can change.
        actions: the program's.

    Attributes:
        default: the target on a miss; None for none.
        counters: direct counters, shape (max_size, 2), uint64, columns PACKETS and BYTES, indexed
            by ``RuntimeEntry.index``; None when the table has none.
        ages: timeouts and last hits, likewise; None without ``support_timeout``.
        version: grows with every change of this table.
        columns: the entries.
    """

    def __init__(
        self, table: ir.Table, generation: Generation, actions: Sequence[ir.Action]
    ) -> None:
        self.table = table
        self.generation = generation
        self.columns = EntryColumns(table, actions)
        self.version = 0
        self.counters: NDArray[np.uint64] | None = None
        self.ages: EntryAges | None = None
        self._every = tuple((1 << key.width) - 1 for key in table.keys)
        self._hit: dict[int, RuntimeEntry] = {}
        self._use_default(table.default)
        if table.with_counters:
            what = f"counters of table {table.name}"
            self.counters = zeros((table.max_size, 2), np.dtype(np.uint64), what)
        if table.support_timeout:
            what, shape = f"timeouts of table {table.name}", (table.max_size,)
            timeouts = zeros(shape, np.dtype(np.uint32), what)
            self.ages = EntryAges(timeouts, zeros(shape, np.dtype(np.int64), what))
        for entry in table.entries:
            try:
                key = normalize_match(table, entry.matches)
                self._insert(key, entry.entry, entry.priority, 0)
            except ControlError as error:
                raise ProgramError(f"among the program's own entries: {error}") from error

    # ── For the data plane ──

    def lookup(self, key: Sequence[int]) -> RuntimeEntry | None:
        """The entry that ``key`` (unsigned field values, in the order of the keys) hits."""
        masked = tuple(
            value if part.mask is None else value & part.mask
            for value, part in zip(key, self.table.keys, strict=True)
        )
        if self.table.match is ir.MatchKind.LPM:
            row = self.columns.longest_prefix(masked)
        elif self.columns.has_masks:
            row = self.columns.first_covering(masked)
        else:
            row = self.columns.find(self.columns.packing.pack(masked))
        if not row:
            return None
        entry = self._hit.get(row)
        if entry is None:
            if len(self._hit) == _MOST_HIT:
                self._hit.clear()
            entry = self._hit[row] = self._entry(row)
        return entry

    def next_node(self, action: int | None, hit: bool) -> ir.Node | None:
        """The node after the table if ``action`` ran (None for a miss without default action)."""
        if self.table.by_hit:
            return self.table.hit if hit else self.table.miss
        if action is None:
            return self.table.base_default_next
        return self.table.next[self.table.actions.index(action)]

    # ── For the control plane ──

    def __len__(self) -> int:
        return self.columns.count

    def __iter__(self) -> Iterator[RuntimeEntry]:
        """Entries by index."""
        return map(self._entry, self.columns.rows().tolist())

    def handles(self) -> list[int]:
        """The handles of all entries, by index."""
        indices = self.columns.indices_of(self.columns.rows())
        found: list[int] = (self.columns.versions_of(indices) << _INDEX_BITS | indices).tolist()
        return found

    def ordered(self) -> list[RuntimeEntry]:
        """Entries in matching order: the first that matches is hit."""
        return list(map(self._entry, self.columns.ordered().tolist()))

    def get(self, handle: int) -> RuntimeEntry:
        """The entry of ``handle``; ControlError if there is none."""
        return self._entry(self._row(handle))

    def find(self, matches: Sequence[ir.Match], priority: int) -> RuntimeEntry:
        """The entry with this match; ControlError if there is none."""
        return self.find_key(normalize_match(self.table, matches), priority)

    def find_key(self, key: Key, priority: int) -> RuntimeEntry:
        """The entry with this key; ControlError if there is none."""
        return self._entry(self._find_row(key, priority))

    def handle_of(self, key: Key, priority: int) -> int:
        """The handle of the entry with this key; ControlError if there is none."""
        return self._handle(self._find_row(key, priority))

    def _find_row(self, key: Key, priority: int) -> int:
        row = self.columns.find(self.columns.pack(*key, priority))
        if not row:
            raise ControlError(
                f"table {self.table.name} has no entry with this match", Refusal.BAD_KEY
            )
        return row

    def entries_with_timeouts(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Handles, timeouts and last hits (see ``EntryAges``) of entries that have a timeout, by
        index.
        """
        nothing = np.zeros(0, np.int64)
        if self.ages is None or not self.ages.timeouts.any():
            return nothing, nothing, nothing
        indices = self.columns.indices_of(self.columns.rows())
        indices = indices[self.ages.timeouts[indices] > 0]
        handles = self.columns.versions_of(indices) << _INDEX_BITS | indices
        return handles, self.ages.timeouts[indices].astype(np.int64), self.ages.last_hits[indices]

    def add(
        self, matches: Sequence[ir.Match], action: Target, priority: int, clock: int = 0
    ) -> int:
        """Add an entry with a checked shape at time ``clock``; returns its handle.

        Raises:
            ControlError: the table's entries are constant, it is full, or it has an entry with this
                match.
        """
        return self.add_key(normalize_match(self.table, matches), action, priority, clock)

    def add_key(self, key: Key, action: Target, priority: int, clock: int = 0) -> int:
        """The same for a key in normal form."""
        self._require_mutable()
        if not self.table.keys:
            raise ControlError(
                f"table {self.table.name} has no key, so it can have no entries", Refusal.NO_KEY
            )
        handle = self._insert(key, action, priority, clock)
        self.touch()
        return handle

    def modify(self, handle: int, action: Target) -> None:
        """Change the target of the entry of ``handle``."""
        self._require_mutable()
        self._set_action(self._row(handle), action)
        self.touch()

    def delete(self, handle: int) -> None:
        """Remove the entry of ``handle``."""
        self._require_mutable()
        row = self._row(handle)
        self.columns.remove(row)
        self.touch()

    def clear(self) -> None:
        """Remove all entries except the default. Handles start again at 0.

        As in simple_switch, this is the only change that constant entries allow.
        """
        self.columns.clear()
        if self.ages is not None:
            self.ages.clear()
        self.touch()

    def set_default(self, action: Target) -> None:
        """Change the target on a miss; ControlError if the program declares it constant."""
        if self.table.default_entry_const:
            raise ControlError(
                f"the default entry of table {self.table.name} is constant",
                Refusal.CONSTANT_DEFAULT_ENTRY,
            )
        if (
            self.table.default_action_const
            and self.table.default is not None
            and isinstance(action, ir.ActionEntry)
            and action.action != self.table.default.action
        ):
            raise ControlError(
                f"the default action of table {self.table.name} is constant",
                Refusal.CONSTANT_DEFAULT_ACTION,
            )
        self._use_default(action)
        self.touch()

    def reset_default(self) -> None:
        """Restore the default entry of the program."""
        self._use_default(self.table.default)
        self.touch()

    # ── Helpers ──

    def compact(self) -> None:
        """Sort the rows of ``columns`` by index, as emitted searches for the best entry require."""
        self.columns.compact()
        self._hit.clear()

    def touch(self) -> None:
        """Make engines read the table again."""
        self.version += 1
        self.generation.bump_table()
        self._hit.clear()

    def _require_mutable(self) -> None:
        if self.table.immutable:
            raise ControlError(
                f"the entries of table {self.table.name} are constant in the program",
                Refusal.CONSTANT_ENTRIES,
            )

    def _insert(self, key: Key, action: Target, priority: int, clock: int) -> int:
        columns = self.columns
        words = columns.pack(*key, priority)
        if columns.find(words):
            raise ControlError(
                f"table {self.table.name} already has an entry with this match",
                Refusal.DUPLICATE_ENTRY,
            )
        if columns.count >= self.table.max_size:
            raise ControlError(
                f"table {self.table.name} is full: it holds {self.table.max_size} entries",
                Refusal.TABLE_FULL,
            )
        row = columns.insert(words)
        self._set_action(row, action)
        index = columns.index_of(row)
        if self.counters is not None:
            self.counters[index] = 0
        if self.ages is not None:
            self.ages.last_hits[index] = clock
        if self.table.match is ir.MatchKind.LPM:
            columns.note_prefix(key.prefix)
        return columns.version(index) << _INDEX_BITS | index

    def _masks_of(self, prefix: int) -> tuple[int, ...]:
        """The masks of the entries of an LPM table with a prefix of this length."""
        return tuple(
            prefix_mask(prefix, key.width) if key.match is ir.MatchKind.LPM else every
            for key, every in zip(self.table.keys, self._every, strict=True)
        )

    def handles_by_row(self) -> list[int]:
        """The handles of entries by their rows in ``columns``; 0 where there is none."""
        rows = self.columns.rows()
        handles = np.zeros(int(rows.max(initial=0)) + 1, np.int64)
        indices = self.columns.indices_of(rows)
        handles[rows] = self.columns.versions_of(indices) << _INDEX_BITS | indices
        return [int(each) for each in handles.tolist()]

    def entry_of_row(self, row: int) -> RuntimeEntry:
        """The entry of a row of ``columns``."""
        return self._entry(row)

    def _handle(self, row: int) -> int:
        index = self.columns.index_of(row)
        return self.columns.version(index) << _INDEX_BITS | index

    def _row(self, handle: int) -> int:
        """The row of the entry of ``handle``; ControlError if there is none."""
        handle = require_int(handle, "a handle", ControlError)
        row = self.columns.row_of(handle & ((1 << _INDEX_BITS) - 1)) if handle >= 0 else 0
        if not row or self._handle(row) != handle:
            rows = self.columns.rows()[:10].tolist()
            known = ", ".join(str(self._handle(each)) for each in rows) or "none"
            known += f", ... ({len(self)} in all)" if len(self) > 10 else ""
            raise ControlError(
                f"table {self.table.name} has no entry with handle {handle}. Handles: {known}.",
                self._no_handle(handle),
            )
        return row

    def _no_handle(self, handle: int) -> Refusal:
        """Whether there is another entry at the handle's index, or none."""
        index = handle & ((1 << _INDEX_BITS) - 1)
        taken = handle >= 0 and self.columns.row_of(index)
        return Refusal.EXPIRED_HANDLE if taken else Refusal.UNKNOWN_HANDLE

    def _entry(self, row: int) -> RuntimeEntry:
        values, masks = self.columns.values_and_masks(row)
        prefix = priority = 0
        if self.columns.has_masks:
            priority = int(self.columns.words[row, -1])
        elif self.table.match is ir.MatchKind.LPM:
            prefix = int(self.columns.prefixes(np.array([row]))[0])
            masks = list(self._masks_of(prefix))
        else:
            masks = list(self._every)
        return RuntimeEntry(
            self._handle(row),
            self.columns.index_of(row),
            tuple(values),
            tuple(masks),
            prefix,
            priority,
            self._action(row),
            self.table.keys,
        )

    def _action(self, row: int) -> Target:
        if self.table.kind is ir.TableKind.SIMPLE:
            action = self.columns.runs.get(row)
            assert action is not None, "all entries run something"
            return action
        handle, group = divmod(int(self.columns.targets[row]), 2)
        return ProfileRef(bool(group), handle - 1)

    def _set_action(self, row: int, action: Target | None) -> None:
        if isinstance(action, ProfileRef):
            self.columns.targets[row] = 2 * (action.handle + 1) + action.group
        elif self.table.kind is ir.TableKind.SIMPLE:
            self.columns.runs.set(row, action)
        else:
            self.columns.targets[row] = 0

    def _use_default(self, action: Target | None) -> None:
        self.default = action
        self._set_action(0, action)


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Zeroed storage for a program; ProgramError if there is not enough memory."""
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):
        cells = math.prod(shape)
        size = cells * dtype.itemsize / (1 << 30)
        raise ProgramError(f"{what}: {size:.1f} GiB for {cells} cells cannot be had") from None


def is_ordered(table: ir.Table) -> bool:
    """Whether entries have priorities."""
    return table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)


def normalize_match(table: ir.Table, matches: Sequence[ir.Match]) -> Key:
    """The key of a match of the right shape."""
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
    return Key(tuple(values), tuple(masks), prefix if table.match is ir.MatchKind.LPM else 0)


def prefix_mask(prefix: int, width: int) -> int:
    """The mask of a prefix, counted from the top of the field padded to bytes (``ir.LpmMatch``)."""
    padded = (width + 7) // 8 * 8
    return ((1 << prefix) - 1) << (padded - prefix) & ((1 << width) - 1)


def _match(key: ir.TableKey, value: int, mask: int, prefix: int) -> ir.Match:
    """The match of an entry for one field; ``prefix`` is that of an LPM table."""
    if key.match is ir.MatchKind.RANGE:
        return ir.RangeMatch(value, mask)
    if key.match is ir.MatchKind.TERNARY:
        return ir.TernaryMatch(value, mask)
    if key.match is ir.MatchKind.LPM:
        # In a ternary or range table only the mask is stored, which is equivalent for packets.
        padding = -key.width % 8
        return ir.LpmMatch(value, prefix or (mask.bit_count() + padding if mask else 0))
    return ir.ExactMatch(value)
