"""The shape of tables: keys and arguments as 64-bit words, as entries hold them and as emitted
look-ups compare them.

Fields are packed whole, the first one highest, into as few words as hold them; a field wider than a
word is packed in pieces, the highest first. Range fields stay apart, since they are compared by
order. In an lpm table the lpm field comes last, so that the entries of one prefix are an interval
of the words taken as one number: all its pieces but the first are whole words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from innet.switch import ir

#: Exact keys of at most so many bits, as ports have, are looked up in an array of all keys.
DIRECT_BITS = 9
#: Bits of the words that the members of a parser value set are kept in.
WORD = 64
#: Above so many bits of its first word an lpm entry with a short key has its prefix length.
PREFIX_SHIFT = 48
_EVERY = (1 << WORD) - 1


def words_of(width: int) -> int:
    """How many 64-bit words hold a number of ``width`` bits; at least one."""
    return max(1, (width + 63) // 64)


def set_words(described: ir.ValueSet) -> int:
    """How many words a member of a parser value set has, the lowest first."""
    return max(1, -(-described.width // WORD))


def is_direct(table: ir.Table) -> bool:
    """Whether the table's key itself is the index of its row."""
    return table.match in (ir.MatchKind.EXACT, ir.MatchKind.VALID) and (
        sum(key.width for key in table.keys) <= DIRECT_BITS
    )


def has_direct(table: ir.Table) -> bool:
    """Whether each entry has a counter or a meter, found by its index."""
    return bool(table.keys) and (table.with_counters or table.meter is not None)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bits ``skipped`` .. ``skipped + width - 1`` of key field ``field``, counted from the lowest,
    stand in a word from bit ``shift`` on.
    """

    field: int
    skipped: int
    width: int
    shift: int

    def of(self, values: tuple[int, ...]) -> int:
        """What the piece of key ``values`` (or masks) adds to its word."""
        return (values[self.field] >> self.skipped & ((1 << self.width) - 1)) << self.shift

    def put(self, word: int, values: list[int]) -> None:
        """Add what the piece of ``word`` says of its field to ``values``."""
        values[self.field] |= (word >> self.shift & ((1 << self.width) - 1)) << self.skipped


def found_row(table: ir.Table, index: int) -> str:
    """The variable with the row that the last look-up in a table found."""
    return f"t{index}_row" if table.kind is ir.TableKind.SIMPLE else f"t{index}_entry"


def entry_index(index: int) -> str:
    """The variable with the index of the entry that the last look-up in a table found."""
    return f"t{index}_index"


@dataclass(frozen=True, slots=True)
class KeyWords:
    """``words``: the pieces of each word; ``ranges``: those of fields compared by order, one word
    each, the highest piece of a field first.
    """

    words: tuple[tuple[Piece, ...], ...]
    ranges: tuple[Piece, ...]

    def pack(self, values: tuple[int, ...]) -> list[int]:
        """The words of key ``values`` (or masks), unsigned."""
        return [sum(piece.of(values) for piece in word) for word in self.words]

    def pack_ranges(self, values: tuple[int, ...]) -> list[int]:
        """The words of the range fields of key ``values`` (or of the upper ends of an entry)."""
        return [piece.of(values) for piece in self.ranges]

    def unpack(self, words: Sequence[int], ranges: Sequence[int], values: list[int]) -> None:
        """Add what ``pack`` and ``pack_ranges`` made of key fields to ``values``."""
        for word, pieces in zip(words, self.words, strict=True):
            for piece in pieces:
                piece.put(word, values)
        for word, piece in zip(ranges, self.ranges, strict=True):
            piece.put(word, values)

    def range_columns(self) -> list[list[int]]:
        """Of each range field, which of ``ranges`` are its own."""
        fields = [piece.field for piece in self.ranges]
        return [
            [i for i, each in enumerate(fields) if each == field] for field in dict.fromkeys(fields)
        ]

    @property
    def prefix_apart(self) -> bool:
        """Whether the first word has no room for an lpm entry's prefix length."""
        return sum(piece.width for piece in self.words[0]) > PREFIX_SHIFT

    @property
    def starts(self) -> tuple[bool, ...]:
        """Which of ``ranges`` are not the rest of a field that began before."""
        fields = [piece.field for piece in self.ranges]
        return tuple(i == 0 or fields[i - 1] != field for i, field in enumerate(fields))


def argument_column(action: ir.Action, parameter: int) -> int:
    """Where in the words of an action's arguments those of a parameter begin, the highest first."""
    return sum(words_of(each.bits) for each in action.parameters[:parameter])


def argument_words(action: ir.Action) -> int:
    """How many words an action's arguments have."""
    return argument_column(action, len(action.parameters))


def equal_words(actions: Sequence[ir.Action], possible: Sequence[int]) -> int | None:
    """How many words the arguments of all ``possible`` ones of a program's ``actions`` have; None
    when they do not have as many.
    """
    different = {argument_words(actions[action]) for action in possible}
    return None if len(different) > 1 else max(different, default=0)


def sharing(program: ir.Program, table: ir.Table) -> tuple[ir.Table, ...]:
    """The tables that share the action profile of an indirect one."""
    return tuple(each for each in program.tables if each.action_profile == table.action_profile)


def row_actions(program: ir.Program, table: ir.Table) -> tuple[int, ...]:
    """What the rows that a table runs may run (``ActionRows``): those of its entries, or those of
    the members of its profile.
    """
    if table.action_profile is None:
        return table.actions
    every = (action for each in sharing(program, table) for action in each.actions)
    return tuple(dict.fromkeys(every))


def pack_arguments(action: ir.Action, arguments: Iterable[int]) -> list[int]:
    """The words of an action's arguments, of negative ones as two's complement."""
    return [
        value >> shift & _EVERY
        for each, value in zip(action.parameters, arguments, strict=True)
        for shift in range(64 * (words_of(each.bits) - 1), -1, -64)
    ]


def unpack_arguments(action: ir.Action, words: Sequence[int]) -> tuple[int, ...]:
    """What ``pack_arguments`` made words of."""
    arguments = []
    left = iter(words)
    for each in action.parameters:
        value = 0
        for _ in range(words_of(each.bits)):
            value = value << 64 | next(left)
        if each.negative and value >> each.width:
            value -= 1 << 64 * words_of(each.bits)
        arguments.append(value)
    return tuple(arguments)


def key_words(table: ir.Table) -> KeyWords:
    """The packing of one table."""
    order = sorted(
        range(len(table.keys)), key=lambda field: table.keys[field].match is ir.MatchKind.LPM
    )
    words: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    ranges: list[Piece] = []
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


def _pieces(field: int, width: int) -> list[Piece]:
    """A field in words, of which the first may be a part of one."""
    starts = range((width - 1) // 64 * 64, -1, -64)
    return [Piece(field, start, min(width - start, 64), 0) for start in starts]


def _shifted(pieces: list[Piece]) -> tuple[Piece, ...]:
    shifted = []
    below = sum(piece.width for piece in pieces)
    for piece in pieces:
        below -= piece.width
        shifted.append(replace(piece, shift=below))
    return tuple(shifted)
