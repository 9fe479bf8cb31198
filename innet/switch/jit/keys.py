"""The shape of tables, agreed between emitted look-ups and table arrays: keys as 64-bit words.

Fields are packed whole, the first one highest, into as few words as hold them. Range fields stay
apart, one word each, since they are compared by order. In an lpm table the lpm field comes last, so
that the entries of one prefix are an interval of the words taken as one number.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch import ir

#: Exact keys of at most so many bits are looked up in an array of all keys, without a hash.
DIRECT_BITS = 12
#: Bits of the words that the members of a parser value set are kept in.
WORD = 64


def set_words(described: ir.ValueSet) -> int:
    """How many words a member of a parser value set has, the lowest first."""
    return max(1, -(-described.width // WORD))


def is_direct(table: ir.Table) -> bool:
    """Whether the table's key itself is the index of its row."""
    return table.match in (ir.MatchKind.EXACT, ir.MatchKind.VALID) and (
        sum(key.width for key in table.keys) <= DIRECT_BITS
    )


@dataclass(frozen=True, slots=True)
class KeyWords:
    """``words``: for each word, (key field, left shift); ``ranges``: fields compared by order."""

    words: tuple[tuple[tuple[int, int], ...], ...]
    ranges: tuple[int, ...]

    def pack(self, values: tuple[int, ...]) -> list[int]:
        """The words of key ``values`` (or masks), unsigned."""
        return [sum(values[field] << shift for field, shift in word) for word in self.words]


def data_width(program: ir.Program, table: ir.Table) -> int:
    """Columns of the table's action data."""
    return max([1, *(len(program.actions[action].parameters) for action in table.actions)])


def key_words(table: ir.Table) -> KeyWords:
    """The packing of one table."""
    order = sorted(
        range(len(table.keys)), key=lambda field: table.keys[field].match is ir.MatchKind.LPM
    )
    words: list[tuple[tuple[int, int], ...]] = []
    current: list[int] = []
    for field in order:
        if table.keys[field].match is ir.MatchKind.RANGE:
            continue
        if current and sum(table.keys[i].width for i in (*current, field)) > 64:
            words.append(_shifts(table, current))
            current = []
        current.append(field)
    words.append(_shifts(table, current))
    ranges = tuple(i for i, key in enumerate(table.keys) if key.match is ir.MatchKind.RANGE)
    return KeyWords(tuple(words), ranges)


def _shifts(table: ir.Table, fields: list[int]) -> tuple[tuple[int, int], ...]:
    shifts = []
    below = sum(table.keys[field].width for field in fields)
    for field in fields:
        below -= table.keys[field].width
        shifts.append((field, below))
    return tuple(shifts)
