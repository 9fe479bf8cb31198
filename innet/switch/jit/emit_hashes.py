"""Calculations: the bytes that are hashed, and the hash.

The Internet checksum of fields of one header needs no bytes: its one's complement sum is the sum of
the fields, each shifted to where it stands in its 16-bit word, since 2**16 is 1 modulo 2**16 - 1
(RFC 1071, section 2). Everything else is written to a scratch buffer and hashed there.
"""

from __future__ import annotations

from itertools import groupby

from innet.errors import UnsupportedError
from innet.switch import ir
from innet.switch.hashes import RESULT_BITS
from innet.switch.jit.emit_bytes import Bits, Part, emit_stores, field_bits, header_parts
from innet.switch.jit.emit_varbits import variable_bits
from innet.switch.jit.expressions import Expressions, Value, literal
from innet.switch.jit.writer import Writer

#: CRCs whose table is an argument, since the control plane may change it.
_CUSTOM = ("crc8_custom", "crc16_custom", "crc32_custom", "crc64_custom")
#: Algorithms that take an argument of their own: a table, a key, a count.
_WITH_STATE = (*_CUSTOM, "toeplitz", "round_robin")
#: Algorithms that remember what they were given, which emitted code has no place for.
_REMEMBERING = ("round_robin_consistent",)
#: Algorithms that emitted code has.
ALGORITHMS = frozenset(RESULT_BITS) - frozenset(_REMEMBERING)


def hash_arguments(program: ir.Program) -> list[tuple[str, str]]:
    """(name, Numba type) of what the hashes of a program need, in order."""
    return [(f"h{index}", "int64[::1]") for index in hashes_with_state(program)]


def hashes_with_state(program: ir.Program) -> list[int]:
    """The numbers of the hashes that have an argument."""
    return [i for i, each in enumerate(program.hashes) if each.algorithm in _WITH_STATE]


def emit_hash(
    writer: Writer, expressions: Expressions, payload: tuple[str, str], number: int
) -> Value:
    """Write what computes hash ``number`` of the fields as they are, and return its value.

    ``payload`` is the source of the payload's first byte and of its length.
    """
    calculation = expressions.program.hashes[number]
    inputs = _flattened(expressions.program, calculation.inputs)
    summed = calculation.algorithm in ("csum16", "cksum16") and _one_header(inputs) is not None
    if summed and not any(_is_variable(expressions.program, part) for part in inputs):
        return _sum_of_fields(writer, expressions, inputs)
    if calculation.algorithm not in ALGORITHMS:
        raise UnsupportedError(f"hash algorithm {calculation.algorithm}")
    name = writer.fresh("hashed")
    writer.line(f"{name} = 0")
    bits = [part for part in inputs if not isinstance(part, ir.Payload)]
    groups = [(header, tuple(group)) for header, group in groupby(bits, key=_holder)]
    # Where absent headers leave parts of bytes out, what follows may begin at any bit.
    loose = any(_width(expressions.program, members) % 8 for _, members in groups)
    loose |= any(_is_variable(expressions.program, part) for part in bits)
    for header, members in groups:
        if header is None or expressions.program.headers[header].metadata:
            _write(writer, expressions, name, members, loose)
        else:
            with writer.block(f"if {expressions.layout.name(header, ir.VALID)}:"):
                _write(writer, expressions, name, members, loose)
    if loose:
        writer.line(f"{name} = ({name} + 7) >> 3")
    if len(bits) < len(inputs):
        first, count = payload
        writer.line(f"copy(scratch, {name}, data, {first}, {count})")
        writer.line(f"{name} += {count}")
    result = writer.fresh("hash")
    writer.line(f"{result} = {_call(calculation.algorithm, number, name)}")
    return Value(result, 0, (1 << RESULT_BITS[calculation.algorithm]) - 1)


def _call(algorithm: str, number: int, size: str) -> str:
    if algorithm in _CUSTOM:
        return f"crc_of(scratch, {size}, h{number}, {RESULT_BITS[algorithm]})"
    if algorithm == "toeplitz":
        return f"toeplitz(scratch, {size}, h{number})"
    if algorithm == "round_robin":
        return f"round_robin(h{number})"
    return f"{algorithm}(scratch, {size})"


Input = ir.FieldRef | ir.CalculationConstant | ir.Payload


def _width(program: ir.Program, members: tuple[Input, ...]) -> int:
    """Bits of fields and constants."""
    return sum(
        part.width if isinstance(part, ir.CalculationConstant) else _field_width(program, part)
        for part in members
        if not isinstance(part, ir.Payload)
    )


def _field_width(program: ir.Program, field: ir.FieldRef) -> int:
    return 1 if field.field == ir.VALID else program.field(field).width


def _is_variable(program: ir.Program, part: Input) -> bool:
    if not isinstance(part, ir.FieldRef) or part.field == ir.VALID:
        return False
    return program.field(part).variable


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
    loose: bool,
) -> None:
    """Append inputs of one header, or constants, to the scratch buffer.

    ``name`` is the variable with the bytes in it; with the bits when they are ``loose``.
    """
    if loose:
        for part in members:
            _append(writer, expressions, name, part)
        return
    parts: list[Part] = [bits for part in members for bits in _bits(expressions, part)]
    whole = _whole_header(expressions, members)
    size = emit_stores(writer, "scratch", name, parts if whole is None else whole)
    if size:
        writer.line(f"{name} += {size}")


def _append(writer: Writer, expressions: Expressions, name: str, part: Input) -> None:
    """Append one input to the scratch buffer, of which ``name`` counts the bits."""
    if isinstance(part, ir.FieldRef) and _is_variable(expressions.program, part):
        place = variable_bits(expressions, part)
        writer.line(f"{name} = append_from(scratch, {name}, {place})")
        return
    for bits in _bits(expressions, part):
        writer.line(f"{name} = append_bits(scratch, {name}, {bits.text}, {bits.width})")


def _bits(expressions: Expressions, part: Input) -> list[Bits]:
    """The words of an input of fixed width."""
    match part:
        case ir.FieldRef(_, ir.VALID):
            return [Bits("1", 1, True)]  # only valid headers count
        case ir.FieldRef():
            return field_bits(expressions, part)
        case ir.CalculationConstant(value, width):
            return _constant_bits(value, width)
        case ir.Payload():
            raise AssertionError("the payload is not made of bits")


def _constant_bits(value: int, width: int) -> list[Bits]:
    """A number as bits, a piece for each of its words."""
    shifts = range((width - 1) // 64 * 64, -1, -64)
    pieces = [(shift, min(width - shift, 64)) for shift in shifts]
    return [Bits(literal(value >> shift & ((1 << size) - 1)), size, True) for shift, size in pieces]


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
        for bits in _bits(expressions, part):
            text, width = bits.text, bits.width
            end += width
            if not bits.clean and width < 64:
                text = f"({text} & {literal((1 << width) - 1)})"
            shift = -end % 16
            if width + shift <= 48:
                terms.append(f"({text} << {shift})" if shift else text)
            else:  # 48 bits leave room for the sum of 2**15 terms
                low = 32 - shift
                terms.append(f"(({text} & {literal((1 << low) - 1)}) << {shift})")
                high = width - low
                terms.append(f"(({text} >> {low}) & {literal((1 << high) - 1)})")
    name = writer.fresh("sum")
    writer.line(f"{name} = {' + '.join(terms)}")
    text = f"folded({name})"
    if not program.headers[header].metadata:
        text = f"({text} if {expressions.layout.name(header, ir.VALID)} else 0xffff)"
    return Value(text, 0, 0xFFFF)
