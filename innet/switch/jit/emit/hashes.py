"""Writes calculations: the bytes that are hashed, and the hash.

The inputs are written to a scratch buffer, which a function of ``runtime.hashes`` hashes. The
Internet checksum needs no bytes where each header's share is a whole number of 16-bit words: its
one's complement sum is the sum of the fields, each shifted to where it stands in its word, since
2**16 is 1 modulo 2**16 - 1 (RFC 1071, section 2). Fields that are elements of an array are summed
in a loop.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import groupby

from innet.core.errors import UnsupportedError
from innet.switch import ir
from innet.switch.jit.emit.expressions import Expressions, Value, literal
from innet.switch.jit.emit.headers import (
    Bits,
    Part,
    emit_stores,
    field_bits,
    header_parts,
    varbit_bits,
)
from innet.switch.jit.emit.layout import SHORTEST_RUN, ArrayVariable
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.traits import ALGORITHMS, CUSTOM_CRCS, stateful_hashes
from innet.switch.state.hashes import RESULT_BITS


def hash_arguments(program: ir.Program) -> list[tuple[str, str]]:
    """(name, Numba type) of what the hashes of a program need, in order."""
    return [(f"h{index}", "int64[::1]") for index in stateful_hashes(program)]


def emit_hash(
    writer: Writer, expressions: Expressions, payload: tuple[str, str], number: int
) -> Value:
    """Write the computation of hash ``number`` over the current fields, and return its value.

    ``payload`` is the source of the payload's first byte and of its length.
    """
    calculation = expressions.program.hashes[number]
    inputs = _flattened(expressions.program, calculation.inputs)
    if calculation.algorithm in ("csum16", "cksum16") and _is_sum(expressions.program, inputs):
        return _sum_of_fields(writer, expressions, inputs)
    if calculation.algorithm not in ALGORITHMS:
        raise UnsupportedError(f"hash algorithm {calculation.algorithm}")
    # The bytes, without fields of absent headers.
    name = writer.fresh("hashed")
    writer.line(f"{name} = 0")
    bits = [part for part in inputs if not isinstance(part, ir.Payload)]
    groups = [(header, tuple(group)) for header, group in groupby(bits, key=_holder)]
    # If absent headers leave partial bytes, the following parts may begin at any bit.
    bitwise = any(_width(expressions.program, members) % 8 for _, members in groups)
    bitwise |= any(_is_variable(expressions.program, part) for part in bits)
    for header, members in groups:
        with _where_valid(writer, expressions, header):
            _write(writer, expressions, name, members, bitwise)
    if bitwise:
        writer.line(f"{name} = ({name} + 7) >> 3")
    if len(bits) < len(inputs):
        first, count = payload
        writer.line(f"copy(scratch, {name}, data, {first}, {count})")
        writer.line(f"{name} += {count}")
    # The hash of these bytes.
    result = writer.fresh("hash")
    writer.line(f"{result} = {_call(calculation.algorithm, number, name)}")
    return Value(result, 0, (1 << RESULT_BITS[calculation.algorithm]) - 1)


def _where_valid(
    writer: Writer, expressions: Expressions, header: int | None
) -> AbstractContextManager[None]:
    """A block for the inputs of a header, if it is valid; constants and metadata always count."""
    if header is None or expressions.program.headers[header].metadata:
        return nullcontext()
    return writer.block(f"if {expressions.layout.name(header, ir.VALID)}:")


def _call(algorithm: str, number: int, size: str) -> str:
    if algorithm in CUSTOM_CRCS:
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


def _is_sum(program: ir.Program, inputs: list[Input]) -> bool:
    """Whether the position of every field in its 16-bit word is the same for all valid headers."""
    if any(isinstance(part, ir.Payload) or _is_variable(program, part) for part in inputs):
        return False
    groups = [tuple(group) for _, group in groupby(inputs, key=_holder)]
    return len(groups) == 1 or all(_width(program, group) % 16 == 0 for group in groups)


def _write(
    writer: Writer,
    expressions: Expressions,
    name: str,
    members: tuple[Input, ...],
    bitwise: bool,
) -> None:
    """Append inputs of one header, or constants, to the scratch buffer.

    ``name`` is the variable with the bytes in it; with the bits when they are ``bitwise``.
    """
    if bitwise:
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
        arguments = varbit_bits(expressions, part)
        writer.line(f"{name} = append_from(scratch, {name}, {arguments})")
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
    name = writer.fresh("sum")
    writer.line(f"{name} = 0")
    for header, group in groupby(inputs, key=_holder):
        with _where_valid(writer, expressions, header):
            _add_words(writer, expressions, name, tuple(group))
    return Value(f"folded({name})", 0, 0xFFFF)


def _add_words(
    writer: Writer, expressions: Expressions, name: str, members: tuple[Input, ...]
) -> None:
    """Add the 16-bit words of inputs of one header, or of constants, to the variable ``name``."""
    terms: list[str] = []
    end = position = 0
    while position < len(members):
        count = _elements(expressions, members, position) if end % 16 == 0 else 0
        if count:
            _add_lanes(writer, expressions, name, members[position], count)
            end += _width(expressions.program, members[position : position + count])
            position += count
            continue
        for bits in _bits(expressions, members[position]):
            end += bits.width
            terms += _shifted(bits, -end % 16)
        position += 1
    if terms:
        writer.line(f"{name} += {' + '.join(terms)}")


def _add_lanes(
    writer: Writer, expressions: Expressions, name: str, first: Input, count: int
) -> None:
    """Add elements of an array to the variable ``name``."""
    assert isinstance(first, ir.FieldRef)
    array = expressions.layout.array(first.header, first.field)
    assert array is not None
    element = _element(expressions, first, "k")
    if array not in expressions.summed_once or count < array.count:
        with writer.lanes(count):
            writer.line(f"{name} += {element}")
        return
    expressions.summed_once[array] = True
    kept = sum_of(array)
    with writer.block(f"if {kept} < 0:"):
        writer.line(f"{kept} = 0")
        with writer.lanes(count):
            writer.line(f"{kept} += {element}")
    writer.line(f"{name} += {kept}")


def sum_of(array: ArrayVariable) -> str:
    """The variable with the sum of an array's elements; negative where it is not known yet."""
    return f"{array.name}_sum"


def _elements(expressions: Expressions, members: tuple[Input, ...], first: int) -> int:
    """How many inputs from ``first`` on are one after the other in an array of whole words."""
    start = members[first]
    if not isinstance(start, ir.FieldRef) or start.field == ir.VALID:
        return 0
    array = expressions.layout.array(start.header, start.field)
    if array is None or array.width not in (16, 32):
        return 0
    count = 1
    while (
        first + count < len(members)
        and members[first + count] == ir.FieldRef(start.header, start.field + count)
        and start.field + count <= array.last
    ):
        count += 1
    return count if count >= SHORTEST_RUN else 0


def _element(expressions: Expressions, part: Input, offset: str) -> str:
    """The element of an array that is ``offset`` behind the one of ``part``."""
    assert isinstance(part, ir.FieldRef)
    array = expressions.layout.array(part.header, part.field)
    assert array is not None
    first = part.field - array.first
    return f"int64({array.name}[{offset}{f' + {first}' if first else ''}])"


def _shifted(bits: Bits, shift: int) -> list[str]:
    """The terms of a field that ends ``shift`` bits before the end of a 16-bit word."""
    text, width = bits.text, bits.width
    if not bits.clean and width < 64:
        text = f"({text} & {literal((1 << width) - 1)})"
    if width + shift <= 48:  # 48 bits leave room for the sum of 2**15 terms
        return [f"({text} << {shift})" if shift else text]
    low = 32 - shift
    high = width - low
    return [
        f"(({text} & {literal((1 << low) - 1)}) << {shift})",
        f"(({text} >> {low}) & {literal((1 << high) - 1)})",
    ]
