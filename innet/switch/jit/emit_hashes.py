"""Calculations: the bytes that are hashed, and the hash.

The Internet checksum of fields of one header needs no bytes: its one's complement sum is the sum of
the fields, each shifted to where it stands in its 16-bit word, since 2**16 is 1 modulo 2**16 - 1
(RFC 1071, section 2). Everything else is written to a scratch buffer and hashed there.
"""

from __future__ import annotations

from itertools import groupby

from innet.errors import UnsupportedError
from innet.switch import ir
from innet.switch.jit.emit_bytes import Bits, Part, emit_stores, field_bits, header_parts
from innet.switch.jit.expressions import Expressions, Value, literal, truncated
from innet.switch.jit.writer import Writer

#: Algorithms that ``runtime`` has, and the bits of their results.
ALGORITHMS = {
    "csum16": 16,
    "cksum16": 16,
    "crc16": 16,
    "crc32": 32,
    "crcCCITT": 16,
    "xor16": 16,
    "xor32": 32,
    "identity": 64,
}


def emit_hash(
    writer: Writer, expressions: Expressions, payload: tuple[str, str], calculation: ir.Calculation
) -> Value:
    """Write what computes ``calculation`` of the fields as they are, and return its value.

    ``payload`` is the source of the payload's first byte and of its length.
    """
    inputs = _flattened(expressions.program, calculation.inputs)
    if calculation.algorithm in ("csum16", "cksum16") and _one_header(inputs) is not None:
        return _sum_of_fields(writer, expressions, inputs)
    if calculation.algorithm not in ALGORITHMS:
        raise UnsupportedError(f"hash algorithm {calculation.algorithm}")
    name = writer.fresh("hashed")
    writer.line(f"{name} = 0")
    for header, group in groupby(inputs, key=_holder):
        members = tuple(group)
        if header is None or expressions.program.headers[header].metadata:
            _write(writer, expressions, name, members, payload)
        else:
            with writer.block(f"if {expressions.layout.name(header, ir.VALID)}:"):
                _write(writer, expressions, name, members, payload)
    text = f"{calculation.algorithm}(scratch, {name})"
    return Value(text, 0, (1 << ALGORITHMS[calculation.algorithm]) - 1)


Input = ir.FieldRef | ir.CalculationConstant | ir.Payload


def _flattened(program: ir.Program, inputs: tuple[ir.CalculationInput, ...]) -> list[Input]:
    """Headers replaced by their fields."""
    flat: list[Input] = []
    for part in inputs:
        if isinstance(part, ir.HeaderRef):
            count = len(program.type_of(part.header).fields)
            flat.extend(ir.FieldRef(part.header, i) for i in range(count))
        else:
            flat.append(part)
    return flat


def _holder(part: Input) -> int | None:
    return part.header if isinstance(part, ir.FieldRef) else None


def _one_header(inputs: list[Input]) -> int | None:
    """The header that all inputs are fields of, or None."""
    holders = {_holder(part) for part in inputs}
    return holders.pop() if len(holders) == 1 else None


def _write(
    writer: Writer,
    expressions: Expressions,
    name: str,
    members: tuple[Input, ...],
    payload: tuple[str, str],
) -> None:
    """Append inputs of one header, or constants and payload, to the scratch buffer."""
    parts: list[Part] = []
    for part in members:
        match part:
            case ir.FieldRef():
                parts.append(field_bits(expressions, part))
            case ir.CalculationConstant(value, width):
                parts.append(Bits(literal(value), width, True))
    width = sum(part.width for part in parts if isinstance(part, Bits))
    if width % 8:
        raise UnsupportedError("a calculation over parts that are no whole bytes")
    whole = _whole_header(expressions, members)
    size = emit_stores(writer, "scratch", name, parts if whole is None else whole)
    if size:
        writer.line(f"{name} += {size}")
    if any(isinstance(part, ir.Payload) for part in members):
        first, count = payload
        writer.line(f"copy(scratch, {name}, data, {first}, {count})")
        writer.line(f"{name} += {count}")


def _whole_header(expressions: Expressions, members: tuple[Input, ...]) -> list[Part] | None:
    """The parts of a header, with its arrays, when ``members`` are all its fields in order."""
    header = _holder(members[0])
    if header is None:
        return None
    fields = range(len(expressions.program.type_of(header).fields))
    if members != tuple(ir.FieldRef(header, i) for i in fields):
        return None
    return header_parts(expressions, header, leaving=False)


def _sum_of_fields(writer: Writer, expressions: Expressions, inputs: list[Input]) -> Value:
    program = expressions.program
    header = _one_header(inputs)
    assert header is not None
    terms = []
    end = 0
    for part in inputs:
        assert isinstance(part, ir.FieldRef)
        field = program.field(part)
        end += field.width
        text = truncated(expressions.data(part), field.width)
        shift = -end % 16
        if field.width + shift <= 48:
            terms.append(f"({text} << {shift})" if shift else text)
        else:  # 48 bits leave room for the sum of 2**15 terms
            low = 32 - shift
            terms.append(f"(({text} & {literal((1 << low) - 1)}) << {shift})")
            high = field.width - low
            terms.append(f"(({text} >> {low}) & {literal((1 << high) - 1)})")
    name = writer.fresh("sum")
    writer.line(f"{name} = {' + '.join(terms)}")
    text = f"folded({name})"
    if not program.headers[header].metadata:
        text = f"({text} if {expressions.layout.name(header, ir.VALID)} else 0xffff)"
    return Value(text, 0, 0xFFFF)
