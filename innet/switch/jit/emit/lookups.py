"""Writes table look-ups: the key's words, the search, the direct counter and the entry's age.

``lookup_arguments`` says which arrays a table has; ``tables.arrays.TableArguments`` makes them, in
the same order, and ``runtime.lookups`` has the searches.
"""

from __future__ import annotations

from typing import Any

from innet.switch import ir
from innet.switch.jit.emit import arithmetic
from innet.switch.jit.emit.arithmetic import Value
from innet.switch.jit.emit.expressions import Expressions, index_variable, row_variable
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.records import Kind
from innet.switch.jit.tables.prefixes import sample_step
from innet.switch.state.entries import (
    KeyPiece,
    KeyWords,
    common_argument_words,
    has_direct,
    has_indices,
    is_direct,
    key_words,
    row_actions,
    tables_sharing_profile,
    word_count,
)

# Arrays of a table by the names of their arguments.
#: What ``find_prefix`` searches besides the entries.
_PREFIXES = ("sample", "rows", "parents")
#: What ``find_by_mask`` searches besides the entries.
_MASKED = ("masks", "best", "rows")
#: What ``find_in_boxes`` searches besides the entries.
_BOXES = ("order", "heads", "bounds")
#: What holds actions, and rows of tables of few keys.
_NARROW = ("actions", "rows_by_key")
#: What holds rows of other tables or of arrays.
_ROWS = ("rows", "parents", "order", "heads", "offsets", "targets", "starts", "listed", "indices")


def emit_lookup(writer: Writer, expressions: Expressions, index: int) -> None:
    """Set ``t<index>_row`` to the row that the present key hits, 0 for a miss.

    Where entries refer to members, that is ``t<index>_entry`` (``row_variable``), and
    ``t<index>_row`` is the row of the member that runs, which may be one of a group.
    """
    table = expressions.program.tables[index]
    writer.line(f"# table {table.name}")
    row = row_variable(table, index)
    if table.keys:
        _find(writer, expressions, index, row)
    else:
        writer.line(f"{row} = 0")
        writer.note(Kind.MISS, index)
    if table.kind is not ir.TableKind.SIMPLE:
        _refer(writer, expressions, index)


def _refer(writer: Writer, expressions: Expressions, index: int) -> None:
    """The row of the member that an entry refers to, or that the hash of the table's profile
    chooses of its group (``member_arrays``).
    """
    program = expressions.program
    table = program.tables[index]
    assert table.action_profile is not None, "an indirect table has one"
    tables = tables_sharing_profile(program, table)
    nothing = len(tables)  # the row behind those of their defaults
    writer.line(f"t{index}_target = get(t{index}_targets, t{index}_entry)")
    member = f"(t{index}_target >> 1) + {nothing}"
    writer.line(f"t{index}_row = {member} if t{index}_target != 0 else {tables.index(table)}")
    if table.kind is not ir.TableKind.INDIRECT_WS:
        return
    with writer.block(f"if t{index}_target & 1:"):
        writer.line(f"t{index}_row = {nothing}")
        writer.line(f"t{index}_first = get(t{index}_starts, (t{index}_target >> 1) - 1)")
        writer.line(f"t{index}_count = get(t{index}_starts, t{index}_target >> 1) - t{index}_first")
        with writer.block(f"if t{index}_count > 0:"):
            hashed = expressions.hash_value(program.selector_hash(table.action_profile))
            position = f"t{index}_first + ({hashed.text} & 0xffffffff) % t{index}_count"
            writer.line(f"t{index}_row = get(t{index}_listed, {position}) + {nothing + 1}")
            member, group = f"t{index}_row - {nothing + 1}", f"(t{index}_target >> 1) - 1"
            writer.note(Kind.CHOSEN, index, member, group)


def _find(writer: Writer, expressions: Expressions, index: int, row: str) -> None:
    """Set ``row`` to the row of the entry that the present key hits, count and note the hit."""
    table = expressions.program.tables[index]
    packing = key_words(table)
    # The key: its fields, joined to words.
    fields = [
        _field(writer, expressions, key, f"t{index}_field{i}") for i, key in enumerate(table.keys)
    ]
    words = []
    for position, word in enumerate(packing.words):
        name = f"t{index}_key{position}"
        pieces = [(_piece(fields, piece), piece.shift) for piece in word]
        terms = [f"({text} << {shift})" if shift else text for text, shift in pieces]
        writer.line(f"{name} = {' | '.join(terms) or '0'}")
        words.append(name)
    # The search, by how the table matches and how ``tables.arrays`` laid it out.
    key = f"({', '.join(words)},)"
    match table.match:
        case ir.MatchKind.LPM:
            arrays = ", ".join(f"t{index}_{name}" for name in ("entries", *_PREFIXES))
            width = next(part.width for part in table.keys if part.match is ir.MatchKind.LPM)
            shape = f"{sample_step(packing)}, {packing.separate_prefix}, {width}"
            found = f"find_prefix({arrays}, {key}, {shape})"
        case ir.MatchKind.TERNARY:
            arrays = ", ".join(f"t{index}_{name}" for name in ("entries", *_MASKED, "indices"))
            boxes = _find_in_boxes(index, fields, packing, words)
            found = f"find_by_mask({arrays}, {key}) if len(t{index}_best) else {boxes}"
        case ir.MatchKind.RANGE:
            found = _find_in_boxes(index, fields, packing, words)
        case _ if is_direct(table):
            found = f"get(t{index}_rows_by_key, {words[0]})"
        case _:
            found = f"find_exact(t{index}_keys, t{index}_rows, t{index}_seed, {key})"
    writer.line(f"{row} = {found}")
    if writer.recording:
        _note(writer, expressions, index, row)
    # What belongs to the entry: its index among counters, meters and ages, and these.
    if has_direct(table):
        moved = f"get(t{index}_indices, {row}) if len(t{index}_indices)"
        writer.line(f"{index_variable(index)} = {moved} else {row} - 1")
    if table.with_counters:
        with writer.block(f"if {row} != 0:"):
            cell = f"{index_variable(index)} * 2"
            writer.line(f"bump(t{index}_counters, {cell}, 1)")
            writer.line(f"bump(t{index}_counters, {cell} + 1, {expressions.length})")
            cells = (f"get(t{index}_counters, {cell}{more})" for more in ("", " + 1"))
            writer.note(Kind.DIRECT_COUNTER, index, index_variable(index), *cells)
    if table.support_timeout and table.keys:
        with writer.block(f"if {row} != 0:"):
            writer.line(f"put(t{index}_hits, {index_variable(index)}, {expressions.hit_time})")


def _note(writer: Writer, expressions: Expressions, index: int, row: str) -> None:
    """The record of what a look-up found, with the key as the packet has it."""
    words: list[str] = []
    for number, key in enumerate(expressions.program.tables[index].keys):
        value = _key_value(expressions, key, masked=False)
        count = word_count(key.width)
        if count == 1:
            words.append(value.text)
            continue
        name = f"t{index}_told{number}"
        writer.line(f"{name} = {value.at(64 * count)}")
        words += [f"word({name}, {64 * i})" for i in reversed(range(count))]
    with writer.block(f"if {row} != 0:"):
        writer.note(Kind.HIT, index, row, *words)
    with writer.block("else:"):
        writer.note(Kind.MISS, index, *words)


def _find_in_boxes(index: int, fields: list[Value], packing: KeyWords, words: list[str]) -> str:
    """Source of a look-up in a tree of entries with masks and ranges."""
    arrays = ", ".join(f"t{index}_{name}" for name in ("entries", *_BOXES, "indices"))
    key = ", ".join([*words, *(_piece(fields, piece) for piece in packing.ranges)])
    starts = (*(True for _ in words), *packing.starts)
    return f"find_in_boxes({arrays}, ({key},), {len(words)}, {starts})"


def lookup_arguments(program: ir.Program, index: int) -> list[tuple[str, str]]:
    """(name, Numba type) of what a table's emitted code uses, in order; arrays are flat."""
    table = program.tables[index]
    names = ["actions", "data"]
    if common_argument_words(program.actions, row_actions(program, table)) is None:
        names += ["offsets"]
    if table.kind is not ir.TableKind.SIMPLE:
        names += ["targets"]
    if table.kind is ir.TableKind.INDIRECT_WS:
        names += ["starts", "listed"]
    if table.keys:
        match table.match:
            case ir.MatchKind.LPM:
                names += ["entries", *_PREFIXES]
            case ir.MatchKind.TERNARY:
                names += ["entries", *_MASKED, *_BOXES]
            case ir.MatchKind.RANGE:
                names += ["entries", *_BOXES]
            case _ if is_direct(table):
                names += ["rows_by_key"]
            case _:
                names += ["keys", "rows", "seed"]
        if has_indices(table):
            names += ["indices"]
        if table.with_counters:
            names += ["counters"]
        if table.support_timeout:
            names += ["hits"]
    kinds = {
        **dict.fromkeys(_NARROW, "uint16[::1]"),
        "seed": "int64",
        **dict.fromkeys(_ROWS, "uint32[::1]"),
    }
    return [(f"t{index}_{name}", kinds.get(name, "int64[::1]")) for name in names]


def _field(writer: Writer, expressions: Expressions, key: ir.TableKey, name: str) -> Value:
    """A key field; one of several words is a variable ``name``, since each word is used apart."""
    value = _key_value(expressions, key)
    bits = value.bits
    if bits == 64:
        return value
    writer.line(f"{name} = {value.at(bits)}")
    return arithmetic.variable(name, 0, (1 << bits) - 1)


def _piece(fields: list[Value], piece: KeyPiece) -> str:
    """Source of the bits of a piece; in its word of the field there are no others."""
    field = fields[piece.field]
    if piece.skipped == 0:
        return field.text
    if piece.skipped >= field.bits:
        return "0"
    return f"word({field.at(field.bits)}, {piece.skipped})"


def _key_value(expressions: Expressions, key: ir.TableKey, *, masked: bool = True) -> Value:
    """A key field as an unsigned number: 0 where its header is invalid."""
    header = key.field.header
    metadata = expressions.program.headers[header].metadata
    if key.field.field == ir.VALID or key.match is ir.MatchKind.VALID:
        valid: Any = ir.BoolConst(metadata) if metadata else ir.Valid(ir.HeaderRef(header))
        return expressions.data(ir.BoolToData(valid))
    both = ir.DataOperator.AND
    every = arithmetic.constant((1 << key.width) - 1)
    value = arithmetic.binary(both, expressions.data(key.field), every)
    if key.mask is not None and masked:
        value = arithmetic.binary(both, value, arithmetic.constant(key.mask))
    if not metadata:
        valid_name = expressions.layout.name(header, ir.VALID)
        value = arithmetic.choice(valid_name, value, arithmetic.constant(0))
    return value
