"""Headers with a varbit field: from bytes and to bytes.

The bits of the field stay where they are in ``data``; only their place and their number are kept.
A width is a whole number of bytes, so that the fields after it keep their place within a byte.
"""

from __future__ import annotations

from innet.switch import ir
from innet.switch.jit import arithmetic, plan
from innet.switch.jit.arithmetic import Value
from innet.switch.jit.emit_bytes import emit_loads, emit_stores, field_bits, header_parts
from innet.switch.jit.expressions import Expressions
from innet.switch.jit.layout import WIDTH
from innet.switch.jit.writer import Writer

#: BMv2 reads a length as an int of so many bits, which larger numbers saturate.
_LENGTH_BITS = 32


def emit_extract(writer: Writer, expressions: Expressions, statement: plan.ExtractVariable) -> None:
    """Check the length and read the fields, or leave the region with an error."""
    header, program = statement.header, expressions.program
    kind, errors = program.type_of(header), program.errors
    taken = expressions.layout.name(header, WIDTH)
    bits, total = writer.fresh("bits"), writer.fresh("bytes")
    writer.line(f"# {program.headers[header].name}")
    writer.line(f"{bits} = {_length(expressions.data(statement.bits))}")
    # BMv2 counts what an earlier extraction put into the field, too.
    writer.line(f"{total} = {kind.width // 8} + ({taken} >> 3) + ({bits} >> 3)")
    checks = [
        (f"{bits} & 7 != 0", "ParserInvalidArgument"),
        (f"{bits} < 0 or size - at < {total}", "PacketTooShort"),
        (f"{total} > {kind.max_bytes}", "HeaderTooShort"),
    ]
    for condition, error in checks:
        with writer.block(f"if {condition}:"):
            writer.line(f"parser_error = {errors[error]}")
            writer.line("break")
    writer.line(f"{taken} = {bits}")
    emit_loads(writer, expressions, header)
    writer.line(f"{expressions.layout.name(header, ir.VALID)} = True")
    writer.line(f"at += {kind.width // 8} + ({bits} >> 3)")


def _length(value: Value) -> str:
    return arithmetic.cast(ir.DataOperator.SAT_CAST, value, _LENGTH_BITS).text


def emit_forgotten(writer: Writer, expressions: Expressions) -> None:
    """Empty the varbit fields of invalid headers, which BMv2 leaves out of a copy."""
    layout = expressions.layout
    for header in variable_headers(expressions.program):
        with writer.block(f"if not {layout.name(header, ir.VALID)}:"):
            writer.line(f"{layout.name(header, WIDTH)} = 0")


def variable_headers(program: ir.Program) -> list[int]:
    """Packet headers with a varbit field."""
    return [
        header
        for header, instance in enumerate(program.headers)
        if not instance.metadata and program.type_of(header).variable is not None
    ]


def emit_header(writer: Writer, expressions: Expressions, header: int) -> None:
    """Write a header to byte ``to`` of ``out``, and move ``to`` behind it."""
    kind = expressions.program.type_of(header)
    variable = kind.variable
    assert variable is not None, header
    taken = variable_bits(expressions, ir.FieldRef(header, variable))
    if kind.fields[variable].offset % 8:
        _emit_ragged(writer, expressions, header)
        return
    for first, end in ((0, variable), (variable + 1, len(kind.fields))):
        size = emit_stores(writer, "out", "to", header_parts(expressions, header, True, first, end))
        if size:
            writer.line(f"to += {size}")
        if end == variable:
            writer.line(f"to = append_from(out, to * 8, {taken}) >> 3")


def variable_bits(expressions: Expressions, reference: ir.FieldRef) -> str:
    """What names the bits of a varbit field for functions of ``runtime_bits``."""
    layout, header = expressions.layout, reference.header
    return f"data, {layout.name(header, reference.field)}, {layout.name(header, WIDTH)}"


def _emit_ragged(writer: Writer, expressions: Expressions, header: int) -> None:
    """As ``emit_header`` where the varbit field does not begin at a byte."""
    end = writer.fresh("end")
    writer.line(f"{end} = to * 8")
    for field, spec in enumerate(expressions.program.type_of(header).fields):
        reference = ir.FieldRef(header, field)
        if spec.variable:
            bits = variable_bits(expressions, reference)
            writer.line(f"{end} = append_from(out, {end}, {bits})")
            continue
        for piece in field_bits(expressions, reference):
            writer.line(f"{end} = append_bits(out, {end}, {piece.text}, {piece.width})")
    writer.line(f"to = {end} >> 3")
