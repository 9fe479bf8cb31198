"""Values of P4Runtime: byte strings and P4Data, and what ``@p4runtime_translation`` makes of them.

A value leaves in canonical form, the shortest big-endian byte string that holds it. Any number of
leading zeros (of sign bits, if it is signed) is taken.

Source: P4Runtime 1.5, sections "Bytestrings", "Representation of Arbitrary P4 Types" and "PSA
Metadata Translation".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from innet.p4runtime.messages import p4
from innet.p4runtime.status import Code, StatusError, invalid, resource_exhausted, unimplemented

SDN_PORT_CPU = 0xFFFFFFFD


def decode(data: bytes, width: int, what: str) -> int:
    """The value of a byte string that must fit ``width`` bits.

    Raises:
        StatusError: OUT_OF_RANGE, for an empty string as well; ``what`` is named.
    """
    value = int.from_bytes(data, "big")
    if not data or value >> width:
        raise _out_of_range(data, f"the {width} bits", what)
    return value


def encode(value: int) -> bytes:
    """The canonical byte string of an unsigned value."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_signed(data: bytes, width: int, what: str) -> int:
    """The value of a byte string in two's complement that must fit ``width`` bits."""
    value = int.from_bytes(data, "big", signed=True)
    if not data or not -(1 << width - 1) <= value < 1 << width - 1:
        raise _out_of_range(data, f"the {width} bits, one of them a sign,", what)
    return value


def encode_signed(value: int) -> bytes:
    """The canonical byte string of a signed value."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def _out_of_range(data: bytes, room: str, what: str) -> StatusError:
    if not data:
        return StatusError(Code.OUT_OF_RANGE, f"{what} is an empty byte string")
    return StatusError(Code.OUT_OF_RANGE, f"0x{data[:40].hex()} does not fit {room} of {what}")


class StringMap:
    """Numbers of the data plane for the strings that controllers use instead.

    A string gets the lowest number that has none when it is first used, from 1 on, and keeps it
    while the program is loaded.

    Args:
        uri: names the translation.
        width: bits of the numbers.
    """

    def __init__(self, uri: str, width: int) -> None:
        self._uri, self._width = uri, width
        self._numbers: dict[str, int] = {}
        self._strings: dict[int, str] = {}

    def number(self, text: str) -> int:
        """The number of a string; RESOURCE_EXHAUSTED when there is no other left."""
        found = self._numbers.get(text)
        if found is None:
            found = len(self._numbers) + 1
            if found >> self._width:
                raise resource_exhausted(
                    f"the {self._width} bits of {self._uri} hold {found - 1} strings, and all are "
                    "taken"
                )
            self._numbers[text], self._strings[found] = found, text
        return found

    def text(self, number: int) -> str:
        """The string of a number; for one without, its decimal digits."""
        return self._strings.get(number, str(number))


class ValueCodec:
    """Values of one match field, action parameter or header field.

    Args:
        width: bits of a value in the data plane.
        sdn_width: bits for controllers; the same unless it is translated.
        strings: for those translated to strings, else None.
        cpu_port: for ports, the port that SDN_PORT_CPU stands for.
    """

    def __init__(
        self,
        width: int,
        sdn_width: int | None = None,
        strings: StringMap | None = None,
        cpu_port: int | None = None,
    ) -> None:
        self.width = width
        self.sdn_width = width if sdn_width is None else sdn_width
        self.strings = strings
        self._cpu_port = cpu_port
        self.is_plain = strings is None and self.sdn_width == width and cpu_port is None

    def decode(self, data: bytes, what: str) -> int:
        """The value in the data plane; see ``values.decode``."""
        if self.is_plain:  # as ``decode`` does it, for the most frequent values
            value = int.from_bytes(data, "big")
            if not data or value >> self.width:
                raise _out_of_range(data, f"the {self.width} bits", what)
            return value
        if self.strings is not None:
            try:
                return self.strings.number(data.decode())
            except UnicodeDecodeError:
                raise invalid(f"{what} is a string, and that is no UTF-8") from None
        value = decode(data, self.sdn_width, what)
        if value == SDN_PORT_CPU and self._cpu_port is not None:
            return self._cpu_port
        if value >> self.width:
            raise StatusError(
                Code.OUT_OF_RANGE,
                f"{value} fits the {self.sdn_width} bits that controllers have of {what}, but not "
                f"the {self.width} of the data plane",
            )
        return value

    def encode(self, value: int) -> bytes:
        """The byte string of a value of the data plane."""
        if self.strings is not None:
            return self.strings.text(value).encode()
        if value == self._cpu_port and self._cpu_port is not None:
            return encode(SDN_PORT_CPU)
        return encode(value)

    def decode_mask(self, data: bytes, what: str) -> int:
        """A ternary mask."""
        if self.strings is not None:
            raise invalid(f"{what} is translated to strings, which have no masks")
        mask = decode(data, self.sdn_width, what)
        if mask == (1 << self.sdn_width) - 1:
            return (1 << self.width) - 1
        if mask >> self.width:
            raise invalid(f"a mask of {what} is one of all bits, or fits {self.width} bits")
        return mask

    def encode_mask(self, mask: int) -> bytes:
        """A ternary mask."""
        is_full = mask == (1 << self.width) - 1
        return encode((1 << self.sdn_width) - 1 if is_full else mask)


# ----------------------------------------------------------------------------
# P4Data of registers and digests.


class DataType:
    """A type of P4Info, for values that are fields in a row.

    Args:
        spec: a P4DataTypeSpec.
        info: the P4Info, for the types it names.

    Attributes:
        widths: bits of each field, in order.

    Raises:
        StatusError: UNIMPLEMENTED for a type that v1model's registers and digests cannot have.
    """

    def __init__(self, spec: Any, info: Any) -> None:
        self._info = info
        self._spec = spec
        self.widths: list[int] = []
        self._collect(spec)

    def _collect(self, spec: Any) -> None:
        kind = spec.WhichOneof("type_spec")
        if kind == "bitstring":
            bits = spec.bitstring
            if bits.WhichOneof("type_spec") == "varbit":
                raise unimplemented("varbit values are not supported here")
            self.widths.append((bits.bit if bits.HasField("bit") else bits.int).bitwidth)
        elif kind == "bool":
            self.widths.append(1)
        elif kind == "serializable_enum":
            found = self._info.type_info.serializable_enums[spec.serializable_enum.name]
            self.widths.append(found.underlying_type.bitwidth)
        elif kind in ("struct", "tuple", "new_type"):
            for each in self._members(spec):
                self._collect(each)
        else:
            raise unimplemented(f"values of type {kind} are not supported here")

    def _members(self, spec: Any) -> list[Any]:
        kind = spec.WhichOneof("type_spec")
        if kind == "tuple":
            return list(spec.tuple.members)
        if kind == "struct":
            found = self._info.type_info.structs
            if spec.struct.name not in found:
                raise invalid(f"P4Info has no struct {spec.struct.name}")
            return [each.type_spec for each in found[spec.struct.name].members]
        new = self._info.type_info.new_types[spec.new_type.name]
        if new.WhichOneof("representation") == "translated_type":
            raise unimplemented(
                f"translated type {spec.new_type.name} is not supported in registers and digests"
            )
        return [new.original_type]

    def encode(self, fields: Iterator[int], spec: Any = None) -> Any:
        """A P4Data of fields as unsigned numbers."""
        spec = self._spec if spec is None else spec
        kind = spec.WhichOneof("type_spec")
        if kind in ("struct", "tuple"):
            data = p4.P4Data()
            members = data.struct if kind == "struct" else data.tuple
            members.SetInParent()
            for each in self._members(spec):
                members.members.append(self.encode(fields, each))
            return data
        if kind == "new_type":
            return self.encode(fields, self._members(spec)[0])
        value = next(fields)
        if kind == "bool":
            return p4.P4Data(bool=bool(value))
        if kind == "serializable_enum":
            return p4.P4Data(enum_value=encode(value))
        if spec.bitstring.HasField("int"):
            width = spec.bitstring.int.bitwidth
            signed = value - (1 << width) if value >> width - 1 else value
            return p4.P4Data(bitstring=encode_signed(signed))
        return p4.P4Data(bitstring=encode(value))

    def decode(self, data: Any, what: str, spec: Any = None) -> list[int]:
        """The fields of a P4Data, as unsigned numbers; INVALID_ARGUMENT for another type."""
        spec = self._spec if spec is None else spec
        kind = spec.WhichOneof("type_spec")
        if kind == "new_type":
            return self.decode(data, what, self._members(spec)[0])
        wanted = "enum_value" if kind == "serializable_enum" else kind
        if data.WhichOneof("data") != wanted:
            raise invalid(f"the value of {what} must be a {wanted}")
        if kind in ("struct", "tuple"):
            given = (data.struct if kind == "struct" else data.tuple).members
            members = self._members(spec)
            if len(given) != len(members):
                raise invalid(f"the value of {what} has {len(members)} members, not {len(given)}")
            pairs = zip(given, members, strict=True)
            return [field for value, each in pairs for field in self.decode(value, what, each)]
        if kind == "bool":
            return [int(data.bool)]
        if kind == "serializable_enum":
            found = self._info.type_info.serializable_enums[spec.serializable_enum.name]
            return [decode(data.enum_value, found.underlying_type.bitwidth, what)]
        if spec.bitstring.HasField("int"):
            width = spec.bitstring.int.bitwidth
            return [decode_signed(data.bitstring, width, what) & ((1 << width) - 1)]
        return [decode(data.bitstring, spec.bitstring.bit.bitwidth, what)]
