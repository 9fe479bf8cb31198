"""The lines of a log as a tree that compiled code follows, without Python for a packet.

What is written about a pass of a packet depends on some words of its records, such as which action
ran; others are only shown. ``record_log`` reads a pass once through ``PassWords``, which note what
it looked at; what it shows is a ``Hole``, whose text is a mark. A node of ``LineTree`` has the
place of the word that is looked at next, a child for each value that was seen there, and what is
written before that: pieces of text, and numbers. ``LineTree.write`` follows it for later passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.views import copy_few, part_viewer
from innet.switch.jit.records import BYTES_BEGIN, BYTES_END, FOLLOWING, NUMBER, Kind, head
from innet.switch.state.entries import word_count

OWN = -1
"""The copy of the packet that passes; copies that it makes are 0, 1 and so on."""

# ----------------------------------------------------------------------------
# What is looked at, and what is shown.

_MARK = "\0"
#: Kinds of pieces, with what follows the kind. A number is: the place of its first word, its words,
#: the mask of the first one, and one thing more.
_TEXT = 0  # where it begins and ends among the texts
_PACKET = 1  # the packet's number
_COPY = 2  # which copy
_DECIMAL = 3  # a number; whether it has a sign
_HEXADECIMAL = 4  # likewise
_BYTES = 5  # a number; how many digits
_ENTRY = 6  # the place of its row; its table; which of its texts
_PIECE_WORDS = 5
_INGRESS = head(Kind.INGRESS, 0)
_part = part_viewer(np.uint8)


class PassWords(list[int]):
    """The words of a pass, without its bytes.

    Attributes:
        read: by place of the words that were looked at, in order: the value, and how many of
            ``lines`` there were.
        is_kept: False if a number is shown that compiled code does not write, such as a decimal
            one of several words.
    """

    def __init__(self, words: Sequence[int], lines: Sequence[Any]) -> None:
        super().__init__(words)
        self._lines = lines
        self.read: dict[int, tuple[int, int]] = {}
        self.is_kept = True

    def __getitem__(self, at: int) -> int:  # type: ignore[override] # nobody takes slices
        value = super().__getitem__(at)
        self.read.setdefault(at, (value, len(self._lines)))
        return value

    def end(self) -> None:
        """All was read."""
        self.read[len(self)] = _END, len(self._lines)


class Hole:
    """A number in the words of a pass, for texts only, in which it is a mark.

    Args:
        words: of the pass.
        at: the first word.
        count: words, the most significant one first.
        signed: whether the first one has a sign.
        mask: of the first one.
    """

    def __init__(
        self, words: PassWords, at: int, count: int, *, signed: bool, mask: int = -1
    ) -> None:
        self._words, self._at, self._count = words, at, count
        self._signed, self._mask = signed, mask

    def __and__(self, mask: int) -> Hole:
        """With a mask, which has no gaps behind its first word."""
        count = word_count(mask.bit_length())
        rest = (1 << 64 * (count - 1)) - 1
        if count > self._count or mask & rest != rest:
            self._words.is_kept = False
            return self
        first = mask >> 64 * (count - 1)
        if count == self._count:
            first &= self._mask
        at = self._at + self._count - count
        return Hole(self._words, at, count, signed=False, mask=first - (first >> 63 << 64))

    def __format__(self, form: str) -> str:
        if form.startswith("0"):
            return self._mark(_BYTES, int(form[1:-1]))
        if form.endswith("x"):
            self._words.is_kept &= self._count == 1 or not self._signed
            return "0x" * form.startswith("#") + self._mark(_HEXADECIMAL, self._signed)
        self._words.is_kept &= self._count == 1
        return self._mark(_DECIMAL, self._signed)

    def __str__(self) -> str:
        return format(self)

    def _mark(self, kind: int, more: int) -> str:
        return _marked(kind, self._at, self._count, self._mask, int(more))


def _marked(*piece: int) -> str:
    return f"{_MARK}{' '.join(map(str, piece))}{_MARK}"


PACKET = _marked(_PACKET)
"""Stands for the packet's number."""


def copy_mark(copy: int) -> str:
    """Stands for the number of a copy."""
    return _marked(_COPY, copy)


def entry_mark(at: int, table: int, text: int) -> str:
    """Stands for one of the texts of an entry, whose row is at place ``at``."""
    return _marked(_ENTRY, at, table, text)


# ----------------------------------------------------------------------------
# The tree.

_PLACE, _VALUE, _CHILD, _SIBLING, _FIRST, _LAST, _LEAF, _NODE_WORDS = range(8)
_END = -1  # is found behind the last word of a pass
_NO_LEAF = -1
_MOST_NODES = 1 << 18

_KEY, _BEGIN, _ENTRY_WORDS = 0, 1, 5
_MOST_ENTRIES = 1 << 16  # whose texts are kept
_MOST_ENTRY_BYTES = 1 << 26
_TABLE_SHIFT = 32  # of an entry's key, which is its row and the number of its table from 1 on
_SPREAD = 40503  # so that entries of two tables with the same rows have other places

START, COUNT, BEFORE, NEWEST, IS_PLAIN, COPY, MADE, FILLED, LEAF, PLACE, KEY = range(11)
"""What ``LineTree.write`` works on: the words that are done, and all; packets that were logged
before; the newest one; whether no packet has other copies; which copy passes, and how many there
are, 0 if that is not known; bytes of output; what was found: the number of a leaf; of an entry the
place and key of its texts."""

DONE, COPIED, LACKS_COPY, LACKS_LINES, LACKS_TEXTS, LACKS_ROOM = range(6)
"""Why it returns: all is written; a pass was written that matters for copies; it is not known which
copy passes; a word has a value for which there are no lines; an entry has no texts; the output is
full."""


class _Rows:
    """An array that grows.

    Attributes:
        rows: those beyond ``count`` are not used yet.
        count: of rows.
    """

    def __init__(self, dtype: type, *shape: int) -> None:
        self.rows: NDArray[Any] = np.zeros((1 << 8, *shape), dtype)
        self.count = 0

    def add(self, more: Any) -> tuple[int, int]:
        """Append rows; the first of them, and the first behind them."""
        first, self.count = self.count, self.count + len(more)
        if self.count > len(self.rows):
            longer = np.zeros((2 * self.count, *self.rows.shape[1:]), self.rows.dtype)
            longer[:first] = self.rows[:first]
            self.rows = longer
        if len(more):
            self.rows[first : self.count] = more
        return first, self.count

    def add_text(self, text: str) -> tuple[int, int]:
        """The same with the bytes of a text."""
        return self.add(np.frombuffer(text.encode(), np.uint8))


class LineTree:
    """What is written about passes.

    Attributes:
        task: int64, what ``write`` works on.
        output: uint8, what it wrote.
        leaves: what else is known of passes, by number.
    """

    def __init__(self) -> None:
        self.task = np.zeros(11, np.int64)
        self.output = np.zeros(1 << 20, np.uint8)
        self._entries = np.zeros((_MOST_ENTRIES, _ENTRY_WORDS), np.int64)
        self._entry_texts = _Rows(np.uint8)
        self.clear()
        self.write(np.zeros(0, np.int64))  # compiled now, not when a packet waits

    def clear(self) -> None:
        """Begin anew."""
        self.leaves: list[Any] = []
        self._nodes, self._pieces = _Rows(np.int64, _NODE_WORDS), _Rows(np.int64, _PIECE_WORDS)
        self._texts = _Rows(np.uint8)
        self._heads: dict[str, tuple[int, int]] = {}
        self._nodes.add([[0, 0, 0, 0, 0, 0, _NO_LEAF]])
        self.forget_entries()

    def forget_entries(self) -> None:
        """The texts of entries do not hold any more."""
        if self._entry_texts.count:
            self._entries[:, _KEY] = 0
            self._entry_texts = _Rows(np.uint8)

    @property
    def is_full(self) -> bool:
        """Whether it is better to begin anew."""
        return self._nodes.count > _MOST_NODES or self._entry_texts.count > _MOST_ENTRY_BYTES

    def begin_lines(self, heads: Mapping[str, str]) -> None:
        """What lines begin with from now on, by level: those of other levels are not written.

        The text of a level has always the same length.
        """
        if not self._heads:
            self._heads = {level: self._texts.add_text(text) for level, text in heads.items()}
        whole = np.frombuffer("".join(heads.values()).encode(), np.uint8)
        self._texts.rows[: len(whole)] = whole

    def write(self, words: NDArray[np.int64]) -> int:
        """Write about the passes in ``words``, from ``task[START]`` on; why it returns."""
        tree = (self._nodes.rows, self._pieces.rows, self._texts.rows)
        entries = (self._entries, self._entry_texts.rows)
        return int(_write(words, _Arrays(*tree, *entries, self.task, self.output)))

    def learn(
        self, words: PassWords, lines: Sequence[tuple[str, str]], leaf: object, matters: int
    ) -> None:
        """Add what is written about a pass.

        Args:
            words: as they were read.
            lines: level and text.
            leaf: what else is known of such passes.
            matters: whether it matters: 0 for no copy of a packet, 1 for all but the first, 2 for
                all.
        """
        node, told, is_new = 0, 0, not self._nodes.rows[0, _CHILD]
        for place, (value, count) in words.read.items():
            if is_new:
                self._nodes.rows[node, _PLACE] = place
                self._tell(node, lines[told:count])
            (node, is_new), told = self._child(node, value), count
        self._tell(node, lines[told:])
        self._nodes.rows[node, _LEAF] = 3 * len(self.leaves) + matters
        self.leaves.append(leaf)

    def _child(self, node: int, value: int) -> tuple[int, bool]:
        """The child of a node for a value, and whether it is new."""
        rows = self._nodes.rows
        child = first = int(rows[node, _CHILD])
        while child and rows[child, _VALUE] != value:
            child = int(rows[child, _SIBLING])
        if child:
            return child, False
        child, _ = self._nodes.add([[0, value, 0, first, 0, 0, _NO_LEAF]])
        self._nodes.rows[node, _CHILD] = child
        return child, True

    def _tell(self, node: int, lines: Sequence[tuple[str, str]]) -> None:
        """Let a node write lines."""
        pieces: list[Sequence[int]] = []
        for level, text in lines:
            if level not in self._heads:
                continue
            pieces.append((_TEXT, *self._heads[level], 0, 0))
            for number, part in enumerate(f"{text}\n".split(_MARK)):
                if number % 2:
                    kind, *rest = map(int, part.split())
                    pieces.append((kind, *rest, *[0] * (_PIECE_WORDS - 1 - len(rest))))
                elif part:
                    pieces.append((_TEXT, *self._texts.add_text(part), 0, 0))
        self._nodes.rows[node, _FIRST : _LAST + 1] = self._pieces.add(pieces)

    def learn_entry(self, texts: Sequence[str]) -> None:
        """Add the texts of the entry that ``task`` names by ``PLACE`` and ``KEY``."""
        ranges = [place for text in texts for place in self._entry_texts.add_text(text)]
        self._entries[self.task[PLACE]] = [self.task[KEY], *ranges]


def table_and_row(key: int) -> tuple[int, int]:
    """The entry of a key."""
    return (key >> _TABLE_SHIFT) - 1, key & (1 << _TABLE_SHIFT) - 1


# ----------------------------------------------------------------------------
# Compiled.

_MOST_DIGITS = 21  # of a decimal number of one word, with its sign


class _Arrays(NamedTuple):
    """What the tree consists of, and what is written to."""

    nodes: Any
    pieces: Any
    texts: Any
    entries: Any
    entry_texts: Any
    task: Any
    out: Any


class _Passing(NamedTuple):
    """A pass: where it begins; how many words it has beside those of its bytes; the place of these,
    and how many they are; the packet's number.
    """

    start: int
    size: int
    cut: int
    skipped: int
    number: int


@njit(cache=True, allocates=False)
def _put_text(out: Any, at: int, texts: Any, first: int, last: int) -> int:
    """Copy a text; returns where it ends, which may be beyond the output: then it is not copied."""
    end: int = at + last - first
    if end <= len(out):
        copy_few(_part(out, at, last - first), _part(texts, first, last - first), last - first)
    return end


@njit(cache=True, allocates=False)
def _put_decimal(out: Any, at: int, value: Any) -> int:
    """Write a uint64."""
    ten = np.uint64(10)
    digits, rest = 1, value // ten
    while rest > 0:
        digits, rest = digits + 1, rest // ten
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = np.uint64(48) + value % ten
        value //= ten
    return at + digits


@njit(cache=True, allocates=False)
def _put_digits(out: Any, at: int, value: Any, digits: int) -> int:
    """Write the last hexadecimal digits of a uint64; 0: as many as it needs."""
    if not digits:
        digits = 1
        while digits < 16 and value >> np.uint64(4 * digits):
            digits += 1
    for place in range(at + digits - 1, at - 1, -1):
        digit = value & np.uint64(15)
        out[place] = digit + (np.uint64(48) if digit < 10 else np.uint64(87))
        value >>= np.uint64(4)
    return at + digits


@njit(cache=True, allocates=False)
def _put_number(out: Any, at: int, words: Any, first: int, piece: Any) -> int:
    """Write a number whose words begin at ``first``; returns the same."""
    kind, count, mask, more = piece[0], piece[2], piece[3], piece[4]
    if at + _MOST_DIGITS + 16 * count > len(out):
        return len(out) + 1
    value = words[first] & mask
    magnitude = np.uint64(value)
    if kind != _BYTES and more and value < 0:
        out[at] = 45
        at, magnitude = at + 1, np.uint64(0) - magnitude
    if kind == _DECIMAL:
        return _put_decimal(out, at, magnitude)
    begin = at
    for behind in range(count - 1, -1, -1):
        if behind < count - 1:
            magnitude = np.uint64(words[first + count - 1 - behind])
        if kind == _BYTES:
            at = _put_digits(out, at, magnitude, min(16, more - 16 * behind))
        elif at > begin:
            at = _put_digits(out, at, magnitude, 16)
        elif magnitude or not behind:
            at = _put_digits(out, at, magnitude, 0)
    return at


@njit(cache=True, allocates=False)
def _place_of(passing: _Passing, place: int) -> int:
    """Where the word of a place is."""
    return passing.start + place + (passing.skipped if place >= passing.cut else 0)


@njit(cache=True, allocates=False)
def _put_piece(arrays: _Arrays, words: Any, passing: _Passing, piece: Any, at: int) -> int:
    """Write a piece; returns the same, or -1 if an entry has no texts."""
    task, out, kind, place = arrays.task, arrays.out, piece[0], piece[1]
    if kind == _TEXT:
        return _put_text(out, at, arrays.texts, place, piece[2])
    if kind == _ENTRY:
        row = words[_place_of(passing, place)]
        slot = (row + _SPREAD * piece[2]) % _MOST_ENTRIES
        entry, key = arrays.entries[slot], (piece[2] + 1 << _TABLE_SHIFT) + row
        if entry[_KEY] != key:
            task[PLACE], task[KEY] = slot, key
            return -1
        first = _BEGIN + 2 * piece[3]
        return _put_text(out, at, arrays.entry_texts, entry[first], entry[first + 1])
    if kind >= _DECIMAL:
        return _put_number(out, at, words, _place_of(passing, place), piece)
    shown = passing.number
    if kind == _COPY:
        shown = task[COPY] if place == OWN else task[MADE] + place
    if at + _MOST_DIGITS > len(out):
        return len(out) + 1
    return _put_decimal(out, at, np.uint64(shown))


@njit(cache=True, allocates=False)
def _write_pass(arrays: _Arrays, words: Any, passing: _Passing) -> int:
    """Write about a pass, and tell ``task`` its leaf."""
    nodes, pieces, task = arrays.nodes, arrays.pieces, arrays.task
    node, at = 0, task[FILLED]
    while True:
        for each in range(nodes[node, _FIRST], nodes[node, _LAST]):
            at = _put_piece(arrays, words, passing, pieces[each], at)
            if at < 0:
                return LACKS_TEXTS
            if at > len(arrays.out):
                return LACKS_ROOM
        if nodes[node, _LEAF] != _NO_LEAF:
            task[FILLED], task[LEAF] = at, nodes[node, _LEAF]
            return DONE
        place, value = nodes[node, _PLACE], _END
        if place < passing.size:
            value = words[_place_of(passing, place)]
        node = nodes[node, _CHILD]
        while node and nodes[node, _VALUE] != value:
            node = nodes[node, _SIBLING]
        if not node:
            return LACKS_LINES


@njit(cache=True, nogil=True, allocates=False)
def _write(words: Any, arrays: _Arrays) -> int:
    """See ``LineTree.write``."""
    task = arrays.task
    while task[START] < task[COUNT]:
        # Step 1: which copy of which packet passes.
        start = task[START]
        end = words[start + FOLLOWING] or task[COUNT]
        number = words[start + NUMBER] + task[BEFORE]
        arrives = words[start] == _INGRESS
        is_new = arrives and number > task[NEWEST]
        if not task[MADE]:
            if not is_new and (arrives or not task[IS_PLAIN]):
                return LACKS_COPY
            task[COPY], task[MADE] = 0, 1
        # Step 2: write, without looking at its bytes.
        cut, behind = words[start + BYTES_BEGIN], words[start + BYTES_END]
        if not cut:
            cut = behind = end
        size = end - start - (behind - cut)
        why = _write_pass(arrays, words, _Passing(start, size, cut - start, behind - cut, number))
        if why != DONE:
            return why
        # Step 3: go on, unless there are copies to be counted.
        if is_new:
            task[NEWEST] = number
        matters = task[LEAF] % 3
        task[LEAF] //= 3
        if matters == 2 or (matters == 1 and task[COPY] > 0):
            return COPIED
        task[START], task[MADE] = end, 0
    return DONE
