"""Headers to and from bytes: loads, stores, and loops over arrays of fields.

A field is read by one big-endian load of 1, 2, 4 or 8 bytes that covers it, a shift and a mask. On
the way out neighboring fields are joined into groups of whole bytes, at most 8, and each group is
stored at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.emit import arithmetic
from innet.switch.jit.emit.arithmetic import Value
from innet.switch.jit.emit.expressions import Expressions, literal
from innet.switch.jit.emit.layout import ArrayVariable
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.lowered import START, WIDTH
from innet.switch.jit.records import Kind


@dataclass(frozen=True, slots=True)
class Bits:
    """``width`` bits to be written: ``text`` is an int64 expression, taken modulo 2**width.

    ``clean``: nothing is set above them.
    """

    text: str
    width: int
    clean: bool


@dataclass(frozen=True, slots=True)
class Copied:
    """``size`` bytes of ``data`` from byte ``start`` on, as they are."""

    start: str
    size: int


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements ``first`` .. ``last`` of an array, each as many bytes as its fields."""

    array: ArrayVariable
    first: int
    last: int


Part = Bits | Elements | Copied

#: More bytes are copied by memcpy, fewer by loads and stores.
_LONG = 32


def _at(position: str, offset: int) -> str:
    return f"{position} + {offset}" if offset else position


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


def emit_loads(writer: Writer, expressions: Expressions, header: int) -> None:
    """Read the live fields of ``header``, whose bytes start at ``base + at`` of ``data``.

    The width of its varbit field is known.
    """
    kind = expressions.program.type_of(header)
    layout = expressions.layout
    writer.line("start = base + at")
    if header in layout.passthrough:
        writer.line(f"{layout.name(header, START)} = start")
    done: set[str] = set()
    for i, field in enumerate(kind.fields):
        array = layout.array(header, i)
        if field.variable:
            # What comes after it is that much further on.
            writer.line(f"{layout.name(header, i)} = start * 8 + {field.offset}")
            writer.line(f"start += {layout.name(header, WIDTH)} >> 3")
        elif array is not None:
            if array.name not in done:
                done.add(array.name)
                _load_array(writer, kind, array)
        elif ir.FieldRef(header, i) in layout.live:
            size = kind.width // 8
            bits = 64 * layout.limbs(header, i)
            text = _load_words(field, bits, size) if bits > 64 else _load_word(field, size)
            writer.line(f"{layout.name(header, i)} = {text}")


def _load_word(field: ir.Field, size: int) -> str:
    """Source of a field of at most 64 bits, in a header of ``size`` bytes at ``start``."""
    text = _load(field.offset, field.width, size)
    shift = 64 - field.width
    return f"(({text}) << {shift}) >> {shift}" if field.signed and shift else text


def _load_words(field: ir.Field, bits: int, size: int) -> str:
    """As ``_load_word``, of a field whose variable is a ``Wide(bits)``."""
    parts = []
    done = 0
    while done < field.width:
        width = (field.width - done) % 64 or 64
        parts.append(_load(field.offset + done, width, size))
        done += width
    held = 64 * len(parts)
    text = parts[0] if held == 64 else f"words(({', '.join(parts)}))"
    if field.signed and held > field.width:
        text = f"sign_extended({text}, {field.width})" if held > 64 else _load_word(field, size)
    if held == bits:
        return text
    return f"{'wide' if field.signed else 'wide_unsigned'}({text}, {bits})"


def _load_array(writer: Writer, kind: ir.HeaderType, array: ArrayVariable) -> None:
    first = kind.fields[array.first]
    if array.width in (8, 16, 32, 64) and first.offset % 8 == 0:
        step = array.width // 8
        with writer.lanes(array.count):
            where = _at("start", first.offset // 8)
            writer.line(f"{array.name}[k] = load{array.width}(data, {where} + {step} * k)")
        return
    for i in range(array.first, array.last + 1):
        text = _load(kind.fields[i].offset, array.width, kind.width // 8)
        writer.line(f"{array.name}[{i - array.first}] = {text}")


def _load(offset: int, width: int, size: int) -> str:
    """Source of ``width`` bits at bit ``offset`` of a header of ``size`` bytes at ``start``."""
    first, last = offset // 8, (offset + width - 1) // 8
    for count in (1, 2, 4, 8):
        if count <= last - first or count > size:
            continue
        at = min(first, size - count)
        right = (at + count) * 8 - (offset + width)
        text = f"load{count * 8}(data, {_at('start', at)})"
        if count * 8 == width:
            return text
        if right:
            text = f"({text} >> {right})"
        if offset == at * 8 and count < 8:
            return text  # nothing above the field; a load of 8 bytes may have a sign
        return f"{text} & {literal((1 << width) - 1)}"
    # Nine bytes, or a header too short for one load: the first byte and the rest.
    low = offset + width - 8 * (first + 1)
    upper = _load(offset, width - low, size)
    lower = _load(offset + width - low, low, size)
    return f"({upper}) << {low} | {lower}"


# ── Writing ──────────────────────────────────────────────────────────────────────────────────────


def header_parts(
    expressions: Expressions, header: int, leaving: bool, first: int = 0, end: int | None = None
) -> list[Part]:
    """The fields of a header in order, whole arrays as one part.

    ``leaving``: the header is deparsed, so its passthrough fields may be copied. Where ``first`` or
    ``end`` (not included) are given, only those fields.
    """
    kind, layout = expressions.program.type_of(header), expressions.layout
    copied = dict(layout.passthrough.get(header, ())) if leaving else {}
    parts: list[Part] = []
    field = first
    while field < (len(kind.fields) if end is None else end):
        offset = kind.fields[field].offset
        array = layout.array(header, field)
        last = copied.get(field)
        if last is not None:
            size = (kind.fields[last].offset + kind.fields[last].width - offset) // 8
            parts.append(Copied(_at(layout.name(header, START), offset // 8), size))
        elif array is not None and array.width == array.item and offset % 8 == 0:
            last = field
            while last < array.last and last + 1 not in copied:
                last += 1
            parts.append(Elements(array, field - array.first, last - array.first))
        else:
            parts.extend(field_bits(expressions, ir.FieldRef(header, field)))
            last = field
        field = last + 1
    return parts


def field_bits(expressions: Expressions, reference: ir.FieldRef) -> list[Bits]:
    """One field as bits to be written: a piece for each of its words."""
    field = expressions.program.field(reference)
    if expressions.layout.limbs(reference.header, reference.field) == 1:
        return [Bits(expressions.field_text(reference), field.width, not field.signed)]
    name = expressions.layout.name(reference.header, reference.field)
    return number_bits(name, field.width, not field.signed)


def number_bits(name: str, width: int, clean: bool) -> list[Bits]:
    """The low ``width`` bits of a ``Wide`` variable; ``clean``: nothing is set above them."""
    shifts = range((width - 1) // 64 * 64, -1, -64)
    return [
        Bits(f"word({name}, {shift})", min(width - shift, 64), clean or width - shift >= 64)
        for shift in shifts
    ]


def emit_stores(writer: Writer, target: str, position: str, parts: list[Part]) -> int:
    """Write ``parts`` to ``target`` from byte ``position`` on; returns how many bytes they fill.

    Parts must end at a byte.
    """
    offset = 0
    group: list[Bits] = []
    for part in parts:
        if isinstance(part, Bits):
            group.append(part)
            continue
        offset = _store_group(writer, target, position, offset, group)
        group = []
        if isinstance(part, Copied):
            _copy(writer, target, _at(position, offset), part)
            offset += part.size
            continue
        width, count = part.array.width, part.last - part.first + 1
        with writer.lanes(count):
            where = f"{_at(position, offset)} + {width // 8} * k"
            element = f"{part.array.name}[{_at('k', part.first)}]"
            writer.line(f"store{width}({target}, {where}, int64({element}))")
        offset += width // 8 * count
    return _store_group(writer, target, position, offset, group)


def _copy(writer: Writer, target: str, position: str, part: Copied) -> None:
    if part.size > _LONG:
        writer.line(f"copy({target}, {position}, data, {part.start}, {part.size})")
        return
    done = 0
    for count in (8, 4, 2, 1):
        while part.size - done >= count:
            value = f"load{8 * count}(data, {_at(part.start, done)})"
            writer.line(f"store{8 * count}({target}, {_at(position, done)}, {value})")
            done += count


def _store_group(writer: Writer, target: str, position: str, offset: int, group: list[Bits]) -> int:
    """Store fields that start at byte ``offset`` and together fill whole bytes."""
    pending: list[Bits] = []
    width = 0
    for bits in group:
        rest = bits
        while width + rest.width > 64:
            # Fill the group only if it does not end at a byte.
            room = 0 if width % 8 == 0 and width else 64 - width
            if room:
                pending.append(Bits(f"({rest.text} >> {rest.width - room})", room, False))
                rest = Bits(rest.text, rest.width - room, False)
            offset = _store(writer, target, position, offset, pending)
            pending, width = [], 0
        pending.append(rest)
        width += rest.width
    if width:
        offset = _store(writer, target, position, offset, pending)
    return offset


def _store(writer: Writer, target: str, position: str, offset: int, group: list[Bits]) -> int:
    """Store at most 64 bits that fill whole bytes; returns the byte after them."""
    width = sum(bits.width for bits in group)
    assert width % 8 == 0, "fields that do not end at a byte"
    terms: list[str] = []
    below = width
    for bits in group:
        below -= bits.width
        # What is above the first field is cut off by the store itself.
        clean = bits.clean or not terms
        text = bits.text if clean else f"({bits.text} & {literal((1 << bits.width) - 1)})"
        terms.append(f"({text} << {below})" if below else text)
    value = " | ".join(terms)
    size = width // 8
    if size not in (1, 2, 4, 8) and not value.isidentifier():
        name = writer.fresh("group")
        writer.line(f"{name} = {value}")
        value = name
    left = size
    for count in (8, 4, 2, 1):
        while left >= count:
            left -= count
            text = f"{value} >> {left * 8}" if left else value
            where = _at(position, offset + size - left - count)
            writer.line(f"store{count * 8}({target}, {where}, {text})")
    return offset + size


# ── Headers with a varbit field ──────────────────────────────────────────────────────────────────
#
# The bits of the field stay in ``data``; the variables have only their position and number. A width
# is a multiple of 8 bits, so the bit positions of the fields after it do not change.

#: BMv2 saturates a length to an int of this many bits.
_LENGTH_BITS = 32


def emit_extract_varbit(
    writer: Writer, expressions: Expressions, statement: lowered.ExtractVarbit
) -> None:
    """Check the length and read the fields, or leave the region with an error."""
    header, program = statement.header, expressions.program
    kind, errors = program.type_of(header), program.errors
    taken = expressions.layout.name(header, WIDTH)
    bits, total = writer.fresh("bits"), writer.fresh("bytes")
    writer.line(f"# {program.headers[header].name}")
    writer.line(f"{bits} = {_length(expressions.data(statement.bits))}")
    # BMv2 also counts the field's bits of an earlier extraction.
    writer.line(f"{total} = {kind.width // 8} + ({taken} >> 3) + ({bits} >> 3)")
    checks = [
        (f"{bits} & 7 != 0", "ParserInvalidArgument"),
        (f"{bits} < 0 or size - at < {total}", "PacketTooShort"),
        (f"{total} > {kind.max_bytes}", "HeaderTooShort"),
    ]
    for condition, error in checks:
        with writer.block(f"if {condition}:"):
            if error == "ParserInvalidArgument":
                writer.note(Kind.BAD_LENGTH, 0, bits)
            writer.line(f"parser_error = {errors[error]}")
            writer.line("break")
    writer.line(f"{taken} = {bits}")
    emit_loads(writer, expressions, header)
    writer.line(f"{expressions.layout.name(header, ir.VALID)} = True")
    writer.line(f"at += {kind.width // 8} + ({bits} >> 3)")
    start = f"at - {kind.width // 8} - ({bits} >> 3)"
    writer.note(Kind.EXTRACT, header, start, bits)


def _length(value: Value) -> str:
    return arithmetic.cast(ir.DataOperator.SAT_CAST, value, _LENGTH_BITS).text


def emit_clear_varbits(writer: Writer, expressions: Expressions) -> None:
    """Empty the varbit fields of invalid headers, which BMv2 leaves out of a copy."""
    layout = expressions.layout
    for header in varbit_headers(expressions.program):
        with writer.block(f"if not {layout.name(header, ir.VALID)}:"):
            writer.line(f"{layout.name(header, WIDTH)} = 0")


def varbit_headers(program: ir.Program) -> list[int]:
    """Packet headers with a varbit field."""
    return [
        header
        for header, instance in enumerate(program.headers)
        if not instance.metadata and program.type_of(header).variable is not None
    ]


def emit_varbit_header(writer: Writer, expressions: Expressions, header: int) -> None:
    """Write a header to byte ``to`` of ``out``, and advance ``to``."""
    kind = expressions.program.type_of(header)
    variable = kind.variable
    assert variable is not None, header
    taken = varbit_bits(expressions, ir.FieldRef(header, variable))
    if kind.fields[variable].offset % 8:
        _emit_ragged(writer, expressions, header)
        return
    for first, end in ((0, variable), (variable + 1, len(kind.fields))):
        size = emit_stores(writer, "out", "to", header_parts(expressions, header, True, first, end))
        if size:
            writer.line(f"to += {size}")
        if end == variable:
            writer.line(f"to = append_from(out, to * 8, {taken}) >> 3")


def varbit_bits(expressions: Expressions, reference: ir.FieldRef) -> str:
    """What names the bits of a varbit field for functions of ``runtime.core``."""
    layout, header = expressions.layout, reference.header
    return f"data, {layout.name(header, reference.field)}, {layout.name(header, WIDTH)}"


def _emit_ragged(writer: Writer, expressions: Expressions, header: int) -> None:
    """As ``emit_varbit_header`` where the varbit field does not begin at a byte."""
    end = writer.fresh("end")
    writer.line(f"{end} = to * 8")
    for field, spec in enumerate(expressions.program.type_of(header).fields):
        reference = ir.FieldRef(header, field)
        if spec.variable:
            bits = varbit_bits(expressions, reference)
            writer.line(f"{end} = append_from(out, {end}, {bits})")
            continue
        for piece in field_bits(expressions, reference):
            writer.line(f"{end} = append_bits(out, {end}, {piece.text}, {piece.width})")
    writer.line(f"to = {end} >> 3")
