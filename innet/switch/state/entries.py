"""Table entries: keys and arguments as 64-bit words, in columns of arrays.

The control plane and emitted look-ups read the same words. Fields are packed into as few words as
possible, the first field in the highest bits. A field wider than a word is split, the highest piece
first. Range fields are separate, since they are compared by order. In an lpm table the lpm field
comes last, and all its pieces except the first are complete words. So the entries of one prefix are
an interval, if the words are taken as one number.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.state.hash_index import (
    SLACK_FOR_CONTROL,
    SLACK_FOR_PACKETS,
    DirectIndex,
    HashIndex,
    Words,
    mapped_zeros,
    resized,
)

#: Exact keys of at most this many bits, such as ports, are looked up in an array of all keys.
DIRECT_BITS = 9
#: Bits of the words in which members of a parser value set are stored.
WORD = 64
#: Bit of the first word at which the prefix length begins in lpm entries with a short key.
PREFIX_SHIFT = 48
_EVERY = (1 << WORD) - 1


def word_count(width: int) -> int:
    """The number of 64-bit words that hold ``width`` bits; at least one."""
    return max(1, (width + 63) // 64)


def value_set_words(described: ir.ValueSet) -> int:
    """The number of words of a member of a parser value set, the lowest first."""
    return max(1, -(-described.width // WORD))


def is_direct(table: ir.Table) -> bool:
    """Whether the table's key itself is the index of its row."""
    return table.match in (ir.MatchKind.EXACT, ir.MatchKind.VALID) and (
        sum(key.width for key in table.keys) <= DIRECT_BITS
    )


def has_direct(table: ir.Table) -> bool:
    """Whether each entry has a counter, a meter or an age at its index."""
    return bool(table.keys) and (
        table.with_counters or table.meter is not None or table.support_timeout
    )


def has_indices(table: ir.Table) -> bool:
    """Whether emitted code has to know the indices of entries: to find what belongs to an entry, or
    which of two entries of one priority wins.
    """
    ordered = table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)
    return has_direct(table) or (bool(table.keys) and ordered)


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """Bits ``skipped`` .. ``skipped + width - 1`` of key field ``field``, counted from the lowest,
    are in a word from bit ``shift`` on.
    """

    field: int
    skipped: int
    width: int
    shift: int

    def put(self, word: int, values: list[int]) -> None:
        """Add the bits of this piece in ``word`` to its field in ``values``."""
        values[self.field] |= (word >> self.shift & ((1 << self.width) - 1)) << self.skipped


@dataclass(frozen=True, slots=True)
class KeyWords:
    """``words``: the pieces of each word; ``ranges``: those of fields compared by order, one word
    each, the highest piece of a field first.
    """

    words: tuple[tuple[KeyPiece, ...], ...]
    ranges: tuple[KeyPiece, ...]

    def pack(self, values: tuple[int, ...]) -> list[int]:
        """The words of key ``values`` (or masks), unsigned."""
        words = []
        for pieces in self.words:
            word = 0
            for piece in pieces:  # without a call each: tables of 100,000 entries come here
                mask = (1 << piece.width) - 1
                word |= (values[piece.field] >> piece.skipped & mask) << piece.shift
            words.append(word)
        return words

    def pack_ranges(self, values: tuple[int, ...]) -> list[int]:
        """The words of the range fields of key ``values`` (or of the upper ends of an entry)."""
        return [values[p.field] >> p.skipped & ((1 << p.width) - 1) for p in self.ranges]

    def unpack(self, words: Sequence[int], ranges: Sequence[int], values: list[int]) -> None:
        """The inverse of ``pack`` and ``pack_ranges``: add the key fields to ``values``."""
        for word, pieces in zip(words, self.words, strict=True):
            for piece in pieces:
                piece.put(word, values)
        for word, piece in zip(ranges, self.ranges, strict=True):
            piece.put(word, values)

    def range_columns(self) -> list[list[int]]:
        """The positions in ``ranges`` of each range field."""
        fields = [piece.field for piece in self.ranges]
        return [
            [i for i, each in enumerate(fields) if each == field] for field in dict.fromkeys(fields)
        ]

    @property
    def separate_prefix(self) -> bool:
        """Whether an lpm entry's prefix length needs a separate word, as the first word is full."""
        return sum(piece.width for piece in self.words[0]) > PREFIX_SHIFT

    @property
    def starts(self) -> tuple[bool, ...]:
        """Which of ``ranges`` begin a field."""
        fields = [piece.field for piece in self.ranges]
        return tuple(i == 0 or fields[i - 1] != field for i, field in enumerate(fields))


def argument_column(action: ir.Action, parameter: int) -> int:
    """The position of a parameter's first word, the highest, among an action's argument words."""
    return sum(word_count(each.bits) for each in action.parameters[:parameter])


def argument_words(action: ir.Action) -> int:
    """The number of words of an action's arguments."""
    return argument_column(action, len(action.parameters))


def common_argument_words(actions: Sequence[ir.Action], possible: Sequence[int]) -> int | None:
    """The number of argument words of the ``possible`` ones of a program's ``actions``; None if it
    differs between them.
    """
    different = {argument_words(actions[action]) for action in possible}
    return None if len(different) > 1 else max(different, default=0)


def tables_sharing_profile(program: ir.Program, table: ir.Table) -> tuple[ir.Table, ...]:
    """The tables that share the action profile of an indirect one."""
    return tuple(each for each in program.tables if each.action_profile == table.action_profile)


def row_actions(program: ir.Program, table: ir.Table) -> tuple[int, ...]:
    """The possible actions of the rows (``ActionRows``) of a table: of its entries, or of the
    members of its profile.
    """
    if table.action_profile is None:
        return table.actions
    every = (action for each in tables_sharing_profile(program, table) for action in each.actions)
    return tuple(dict.fromkeys(every))


def pack_arguments(action: ir.Action, arguments: Iterable[int]) -> list[int]:
    """The words of an action's arguments; negative ones in two's complement."""
    return [
        value >> shift & _EVERY
        for each, value in zip(action.parameters, arguments, strict=True)
        for shift in range(64 * (word_count(each.bits) - 1), -1, -64)
    ]


def unpack_arguments(action: ir.Action, words: Sequence[int]) -> tuple[int, ...]:
    """The inverse of ``pack_arguments``."""
    arguments = []
    left = iter(words)
    for each in action.parameters:
        value = 0
        for _ in range(word_count(each.bits)):
            value = value << 64 | next(left)
        if each.negative and value >> each.width:
            value -= 1 << 64 * word_count(each.bits)
        arguments.append(value)
    return tuple(arguments)


def key_words(table: ir.Table) -> KeyWords:
    """The packing of a table's key."""
    order = sorted(
        range(len(table.keys)), key=lambda field: table.keys[field].match is ir.MatchKind.LPM
    )
    words: list[tuple[KeyPiece, ...]] = []
    current: list[KeyPiece] = []
    ranges: list[KeyPiece] = []
    for field in order:
        pieces = _pieces(field, table.keys[field].width)
        if table.keys[field].match is ir.MatchKind.RANGE:
            ranges += pieces
            continue
        for piece in pieces:
            if current and sum(each.width for each in (*current, piece)) > 64:
                words.append(_shifted(current))
                current = []
            current.append(piece)
    if current or not ranges:
        words.append(_shifted(current))
    return KeyWords(tuple(words), tuple(ranges))


def _pieces(field: int, width: int) -> list[KeyPiece]:
    """The pieces of a field; the first may be smaller than a word."""
    starts = range((width - 1) // 64 * 64, -1, -64)
    return [KeyPiece(field, start, min(width - start, 64), 0) for start in starts]


def _shifted(pieces: list[KeyPiece]) -> tuple[KeyPiece, ...]:
    shifted = []
    below = sum(piece.width for piece in pieces)
    for piece in pieces:
        below -= piece.width
        shifted.append(replace(piece, shift=below))
    return tuple(shifted)


# ----------------------------------------------------------------------------
# The actions of entries or members by row, and their arguments as words.

NO_ACTION = (1 << 16) - 1
"""In ``ActionRows.actions``: no action."""


class ActionRows:
    """Actions by row.

    Args:
        actions: the program's.
        possible: the actions that rows may have.

    Attributes:
        actions: uint16; the position of an action in ``possible``, or ``NO_ACTION``.
        data: uint64, the words of arguments. If all actions have the same number of words, the rows
            follow each other.
        offsets: uint32: where a row's words begin in ``data``, if actions differ in their number of
            words; else empty.
    """

    def __init__(self, actions: Sequence[ir.Action], possible: Sequence[int]) -> None:
        self._actions = actions
        self._possible = possible
        self._positions = {action: i for i, action in enumerate(possible)}
        self._words = common_argument_words(actions, possible)
        lengths = [argument_words(actions[action]) for action in possible]
        self._lengths_of = lengths
        self._lengths = np.array([*lengths, 0], np.int64)  # the last is for NO_ACTION
        self.actions: NDArray[np.uint16] = np.zeros(0, np.uint16)
        self.data: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.offsets: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._used = self._unused = 0  # words of ``data``, if ``offsets`` are used

    def resize(self, rows: int) -> None:
        """Change the number of rows. Old rows are kept, new ones have no action."""
        had = len(self.actions)
        self.actions = resized(self.actions, rows)
        self.actions[had:] = NO_ACTION
        if self._words is None:
            self.offsets = resized(self.offsets, rows)
            if rows < had:
                self._compact()
        else:
            self.data = resized(self.data, rows * self._words)

    def move(self, rows: NDArray[np.int64], to: NDArray[np.int64], room: int) -> None:
        """Renumber rows: ``rows`` become ``to``, in arrays of ``room`` rows."""
        had, offsets, data = self.actions, self.offsets, self.data
        self.actions = mapped_zeros((room,), np.uint16)
        self.actions[:] = NO_ACTION
        self.actions[to] = had[rows]
        if self._words is None:
            self.offsets = mapped_zeros((room,), np.uint32)
            self.offsets[to] = offsets[rows]
        elif self._words:
            self.data = mapped_zeros((room * self._words,), np.uint64)
            self.data.reshape(-1, self._words)[to] = data.reshape(-1, self._words)[rows]

    def get(self, row: int) -> ir.ActionEntry | None:
        """The action of a row; None for none."""
        position = int(self.actions[row])
        if position == NO_ACTION:
            return None
        action = self._possible[position]
        first = self._first(row)
        words = self.data[first : first + int(self._lengths[position])].tolist()
        return ir.ActionEntry(action, unpack_arguments(self._actions[action], words))

    def set(self, row: int, entry: ir.ActionEntry | None) -> None:
        """Set the action of a row."""
        position, words = NO_ACTION, list[int]()
        if entry is not None:
            position = self._positions[entry.action]
            if self._lengths_of[position] == len(entry.arguments):
                words = [value & _EVERY for value in entry.arguments]
            else:
                words = pack_arguments(self._actions[entry.action], entry.arguments)
        if self._words is None:
            had = self._length(row)
            if had != len(words):
                self._release_words(row, had)
                self.offsets[row] = self._reserve_words(len(words))
        self.actions[row] = position
        if len(words) == 1:
            self.data[self._first(row)] = words[0]
        elif words:
            first = self._first(row)
            self.data[first : first + len(words)] = words

    def _first(self, row: int) -> int:
        return int(self.offsets[row]) if self._words is None else row * self._words

    def _length(self, row: int) -> int:
        position = int(self.actions[row])
        return 0 if position == NO_ACTION else int(self._lengths[position])

    def _release_words(self, row: int, words: int) -> None:
        """Free the words of a row; compact the array when many are free."""
        self.actions[row] = NO_ACTION
        self._unused += words
        if self._unused > 16 + self._used // 8:
            self._compact()

    def _reserve_words(self, words: int) -> int:
        first = self._used
        self._used += words
        if self._used > len(self.data):
            self.data = resized(self.data, self._used + self._used // 16 + 4)
        return first

    def _compact(self) -> None:
        lengths = self._lengths[np.minimum(self.actions, len(self._possible))]
        ends = np.cumsum(lengths)
        firsts = ends - lengths
        self._used, self._unused = int(ends[-1]), 0
        old = np.repeat(self.offsets - firsts, lengths) + np.arange(self._used)
        data: NDArray[np.uint64] = mapped_zeros((self._used + self._used // 16 + 4,), np.uint64)
        data[: self._used] = self.data[old]
        self.data = data
        self.offsets[:] = firsts


# ----------------------------------------------------------------------------
# The entries of a table as columns of arrays, which grow as entries come.
#
# Row ``index + 1`` is the entry of an index, until many entries were deleted: then those that are
# left close up, and each row has its index. Row 0 is the default. A row is its words, which no
# other row has: those of the key, in an LPM table with the prefix length (in the first word's upper
# bits where the key leaves them free, else in a word of its own), in a ternary or range table then
# the words of the masks, of the lowest and the highest values of range fields, and the priority.
# The compiled engine reads the same arrays.

_MORE_ROWS = 4
#: Tables are not shrunk below this many rows.
_FEW_ROWS = 64


class RowChanges:
    """Which rows changed since an index of them was made.

    Remove ``removed`` from the index first, then add ``added``: a row may be in both.

    Attributes:
        moved: all rows have other numbers, or too many changed to say which. Build the index again.
    """

    def __init__(self) -> None:
        self.added: set[int] = set()
        self.removed: set[int] = set()
        self.moved = False

    def __len__(self) -> int:
        return len(self.added) + len(self.removed)

    def clear(self) -> None:
        """All changes were taken over."""
        self.added.clear()
        self.removed.clear()
        self.moved = False

    def forget(self) -> None:
        """Say only that everything changed."""
        self.clear()
        self.moved = True

    def add(self, row: int, count: int) -> None:
        """A row came; the table has ``count`` entries."""
        if not self.moved:
            self.added.add(row)
            # As ``_limit``, without a call for each of many.
            if len(self.added) + len(self.removed) > FEW_CHANGES + count // 16:
                self.forget()

    def remove(self, row: int, count: int) -> None:
        """A row went."""
        if self.moved:
            return
        if row in self.added:
            self.added.remove(row)
        else:
            self.removed.add(row)
            self._limit(count)

    def _limit(self, count: int) -> None:
        if len(self) > FEW_CHANGES + count // 16:
            self.forget()


#: So many changes, and a sixteenth of the entries, cost less one by one than a new index.
FEW_CHANGES = 32


class EntryColumns:
    """Rows of entries.

    Args:
        table: whose entries.
        actions: the program's.

    Attributes:
        packing: how key fields are packed into words.
        words: shape (rows, words), uint64.
        runs: the actions of rows, except for an indirect table.
        targets: uint32, empty unless the table is indirect: 2 * handle + 2 of a member, or 2 *
            handle + 3 of a group; 0 for a default without either.
        live: whether the row has an entry; false for the default.
        versions: uint8, by index: how many entries were deleted there, modulo 256.
        index: finds rows by their words.
        count: number of entries.
        changes: what changed; None if no caller needs it.
    """

    def __init__(self, table: ir.Table, actions: Sequence[ir.Action]) -> None:
        self._table = table
        self.packing = key_words(table)
        self.has_masks = table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)
        keys, ranges = len(self.packing.words), len(self.packing.ranges)
        width = keys + (keys + 2 * ranges + 1 if self.has_masks else 0)
        self._lpm = table.match is ir.MatchKind.LPM
        self._lpm_width = max(
            (each.width for each in table.keys if each.match is ir.MatchKind.LPM), default=0
        )
        self._separate_prefix = self._lpm and self.packing.separate_prefix
        width += self._separate_prefix
        self._ends = (keys, 2 * keys, 2 * keys + ranges, 2 * (keys + ranges))
        self._simple = table.kind is ir.TableKind.SIMPLE
        self.words: Words = np.zeros((1, width), np.uint64)
        self.runs = ActionRows(actions, table.actions)
        self.targets: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self.live: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self.changes: RowChanges | None = None
        self.clear()

    def clear(self) -> None:
        """Remove all entries, and reset versions."""
        self._indices: NDArray[np.uint16] | NDArray[np.uint32] | None = (
            None  # by row, where rows have closed up
        )
        self._ascending = 0  # number of first rows that are sorted by index
        self._highest = 0  # index that there may be then
        self._free_indices: list[int] = []  # the lowest then, descending
        self._resize(1)
        self.index = self._empty_index()
        self.versions: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.count = 0
        self._lowest_free = 1
        self._lengths = 0  # of prefixes: bit n for those of length n
        if self.changes is not None:
            self.changes.forget()

    def _empty_index(self) -> HashIndex | DirectIndex:
        if is_direct(self._table):
            return DirectIndex(sum(key.width for key in self._table.keys))
        # What compiled look-ups search in addition is in ``jit.tables``.
        return HashIndex(SLACK_FOR_CONTROL if self._lpm or self.has_masks else SLACK_FOR_PACKETS)

    # ── Rows ──

    def rows(self) -> NDArray[np.int64]:
        """The rows of entries, ordered by index."""
        rows = np.flatnonzero(self.live)
        if self._indices is None or self._ascending == self._lowest_free:
            return rows
        return rows[np.argsort(self._indices[rows])]

    def indices(self) -> NDArray[np.uint32]:
        """By row where rows have closed up, else empty; for tables that ``has_direct``."""
        if self._indices is None:
            return np.zeros(0, np.uint32)
        return self._indices.astype(np.uint32, copy=False)

    def index_of(self, row: int) -> int:
        """The index of a row's entry."""
        return row - 1 if self._indices is None else int(self._indices[row])

    def indices_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of the entries of rows."""
        return rows - 1 if self._indices is None else self._indices[rows].astype(np.int64)

    def row_of(self, index: int) -> int:
        """The row of the entry of an index; 0 when there is none."""
        if self._indices is None:
            row = index + 1
            return row if row < len(self.live) and self.live[row] else 0
        row = int(np.searchsorted(self._indices[1 : self._ascending], index)) + 1
        if row < self._ascending and self._indices[row] == index and self.live[row]:
            return row
        later = slice(self._ascending, self._lowest_free)
        found = np.flatnonzero((self._indices[later] == index) & self.live[later])
        return self._ascending + int(found[0]) if len(found) else 0

    def ordered(self) -> NDArray[np.int64]:
        """The rows of entries in matching order: the first that matches is hit."""
        rows = self.rows()
        if self._lpm:
            return rows[np.argsort(-self.prefixes(rows), kind="stable")]
        if self.has_masks:
            return rows[np.argsort(self.words[rows, -1], kind="stable")]
        return rows

    def find(self, words: Sequence[int]) -> int:
        """The row with these words; 0 when there is none."""
        return self.index.find(self.words, words)

    def insert(self, words: Sequence[int]) -> int:
        """Add a row with these words, which no other has, at the lowest free index."""
        if self._indices is not None and 16 * self.count > 15 * self._highest:
            self._spread()
        if self._indices is not None and self._lowest_free == self._table.max_size + 1:
            self._compact()
        row = self._lowest_free
        if row == len(self.live):
            self._resize(min(row + row // 16 + _MORE_ROWS, self._table.max_size + 1))
        if self._indices is None:
            self._lowest_free = self._free_from(row + 1)
        else:
            self._indices[row] = self._free_index()
            self._lowest_free = row + 1
        self.words[row] = words
        self.live[row] = True
        self.count += 1
        self.index.insert(self.words, row, self.live, words)
        if self.changes is not None:
            self.changes.add(row, self.count)
        return row

    def remove(self, row: int) -> None:
        """Remove an entry; the next entry of its row has the next version."""
        self.live[row] = False
        if self.changes is not None:
            self.changes.remove(row, self.count)
        self.index.remove(self.words, row, self.live)
        if self._simple:
            self.runs.set(row, None)
        index = self.index_of(row)
        if index >= len(self.versions):
            self.versions = resized(self.versions, index + index // 16 + 1)
        self.versions[index] = (int(self.versions[index]) + 1) % 256  # as simple_switch counts
        self.count -= 1
        if self._indices is None:
            self._lowest_free = min(self._lowest_free, row)
        elif self._free_indices and index < self._free_indices[0]:
            insort(self._free_indices, index, key=int.__neg__)
            del self._free_indices[0]
        if len(self.live) > _FEW_ROWS and 8 * self.count < 7 * len(self.live):
            self._shrink()

    def _free_from(self, row: int) -> int:
        """The first free row, beginning with ``row``."""
        if row < len(self.live) and self.live[row]:
            row += int(np.argmin(self.live[row:]))
        return row if row < len(self.live) and not self.live[row] else len(self.live)

    def version(self, index: int) -> int:
        """The version of an entry, the upper bits of its handle."""
        return int(self.versions[index]) if index < len(self.versions) else 0

    def versions_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """``version`` of each of ``indices``."""
        versions = np.zeros(len(indices), np.int64)
        deleted = indices < len(self.versions)
        versions[deleted] = self.versions[indices[deleted]]
        return versions

    @property
    def is_compact(self) -> bool:
        """Whether rows are ordered by index."""
        return self._indices is None or self._ascending == self._lowest_free

    def compact(self) -> None:
        """Order rows by index."""
        if not self.is_compact:
            self._compact()

    # ── Rows that are no longer used ──

    def _shrink(self) -> None:
        last = len(self.live) - 1 - int(np.argmax(self.live[::-1])) if self.count else 0
        if 8 * self.count < 7 * last:
            self._compact()
        elif 8 * last < 7 * len(self.live) and self._indices is None:
            self._resize(last + 1)

    def _compact(self) -> None:
        """Move entries to the first rows, ordered by index."""
        rows = self.rows()
        indices = rows - 1 if self._indices is None else self._indices[rows]
        to = np.arange(1, self.count + 1)
        self._move(rows, to)
        self._highest = int(indices.max(initial=0))
        narrow = self._highest < 1 << 16 and not has_direct(self._table)
        self._indices = mapped_zeros((len(self.live),), np.uint16 if narrow else np.uint32)
        self._indices[to] = indices
        self._ascending = self._lowest_free

    def _spread(self) -> None:
        """Move each entry to the row of its index."""
        assert self._indices is not None
        rows = np.flatnonzero(self.live)
        to = self._indices[rows].astype(np.int64) + 1
        self._indices, self._free_indices = None, []
        self._move(rows, to)

    def _move(self, rows: NDArray[np.int64], to: NDArray[np.int64]) -> None:
        """Move all entries to other rows."""
        last = int(to.max(initial=0))
        room = min(last + last // 16 + _MORE_ROWS, self._table.max_size + 1)
        rows, to = np.append(rows, 0), np.append(to, 0)  # the default stays
        words, live, targets = self.words, self.live, self.targets
        self.words = mapped_zeros((room, words.shape[1]), np.uint64)
        self.words[to] = words[rows]
        self.live = mapped_zeros((room,), np.bool_)
        self.live[to] = live[rows]
        if self._simple:
            self.runs.move(rows, to, room)
        else:
            self.targets = mapped_zeros((room,), np.uint32)
            self.targets[to] = targets[rows]
        self._lowest_free = self._free_from(1)
        self.index.rebuild(self.words, self.live)
        if self.changes is not None:
            self.changes.forget()

    def _free_index(self) -> int:
        """Take the lowest free index."""
        if not self._free_indices:
            assert self._indices is not None
            taken = self._indices[self.live]
            free = np.ones(self._highest + 1, np.bool_)  # one is, else rows had spread
            free[taken] = False
            found = np.flatnonzero(free)[: 16 + self.count // 64]
            self._free_indices = found[::-1].tolist()
        return self._free_indices.pop()

    def _resize(self, rows: int) -> None:
        """Change the number of rows; old rows are kept."""
        self.words = resized(self.words, rows)
        self.live = resized(self.live, rows)
        if self._indices is not None:
            self._indices = resized(self._indices, rows)
        if self._simple:
            self.runs.resize(rows)
        else:
            self.targets = resized(self.targets, rows)

    # ── What an entry matches ──

    def pack(
        self, values: tuple[int, ...], masks: tuple[int, ...], prefix: int, priority: int
    ) -> list[int]:
        """The words of an entry, from ``tables.normalize_match``."""
        words = self.packing.pack(values)
        if self._lpm:
            self._add_prefix(words, prefix)
        elif self.has_masks:
            words += self.packing.pack(masks)
            words += self.packing.pack_ranges(values)
            words += self.packing.pack_ranges(masks)
            words.append(priority)
        return words

    def _add_prefix(self, words: list[int], prefix: int) -> None:
        if self._separate_prefix:
            words.append(prefix)
        else:
            words[0] |= prefix << PREFIX_SHIFT

    def prefixes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The prefix lengths of LPM entries."""
        words = self.words[rows]
        packed = words[:, -1] if self._separate_prefix else words[:, 0] >> np.uint64(PREFIX_SHIFT)
        lengths: NDArray[np.int64] = packed.astype(np.int64)
        return lengths

    def keys(self, rows: NDArray[np.int64]) -> Words:
        """The words of the keys of exact or LPM entries, (rows, words)."""
        words = self.words[rows, : len(self.packing.words)]
        if self._lpm and not self._separate_prefix:
            words[:, 0] &= np.uint64((1 << PREFIX_SHIFT) - 1)
        return words

    def values_and_masks(self, row: int) -> tuple[list[int], list[int]]:
        """The key fields of a ternary or range entry; those of an exact or LPM entry without masks.

        As ``RuntimeEntry.values`` and ``.masks`` describe them.
        """
        keys, masks_end, lows_end, highs_end = self._ends
        words = self.words[row].tolist()
        values, masks = [0] * len(self._table.keys), [0] * len(self._table.keys)
        self.packing.unpack(words[:keys], words[masks_end:lows_end], values)
        if self.has_masks:
            self.packing.unpack(words[keys:masks_end], words[lows_end:highs_end], masks)
        return values, masks

    def masked(self, rows: NDArray[np.int64]) -> tuple[Words, Words, Words, Words]:
        """Key, masks, lowest and highest values of ternary or range entries: (rows, words) each."""
        keys, masks_end, lows_end, highs_end = self._ends
        words = self.words[rows]
        return (
            words[:, :keys],
            words[:, keys:masks_end],
            words[:, masks_end:lows_end],
            words[:, lows_end:highs_end],
        )

    def first_covering(self, key: tuple[int, ...]) -> int:
        """The row of the ternary or range entry that ``key`` hits; 0 for none."""
        rows = self.rows()
        values, masks, lows, highs = self.masked(rows)
        words = np.array(self.packing.pack(key), np.uint64)
        fits = ((words & masks) == values).all(axis=1)
        numbers = np.array(self.packing.pack_ranges(key), np.uint64)
        at_low = at_high = np.ones(len(rows), np.bool_)
        for i, start in enumerate(self.packing.starts):
            # A number of several words is compared by the first that differs from the bound's.
            at_low, at_high = (at_low | start), (at_high | start)
            fits &= ~(at_low & (numbers[i] < lows[:, i]))
            fits &= ~(at_high & (numbers[i] > highs[:, i]))
            at_low = at_low & (numbers[i] == lows[:, i])
            at_high = at_high & (numbers[i] == highs[:, i])
        found = rows[fits]
        if not len(found):
            return 0
        return int(found[np.argmin(self.words[found, -1])])

    def longest_prefix(self, key: tuple[int, ...]) -> int:
        """The row of the LPM entry that ``key`` hits; 0 for none."""
        words = self.packing.pack(key)
        # The lpm field comes last, so that its bits are the lowest of the words taken as one.
        number = 0
        for word in words:
            number = number << 64 | word
        lengths = self._lengths
        while lengths:
            prefix = lengths.bit_length() - 1
            lengths ^= 1 << prefix
            free = min(self._lpm_width, -(-self._lpm_width // 8) * 8 - prefix)
            cut = number >> free << free
            probe = [cut >> shift & _EVERY for shift in range(64 * (len(words) - 1), -1, -64)]
            self._add_prefix(probe, prefix)
            if row := self.find(probe):
                return row
        return 0

    def note_prefix(self, prefix: int) -> None:
        """Make ``longest_prefix`` search entries of this prefix length."""
        self._lengths |= 1 << prefix
