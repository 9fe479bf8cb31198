"""A packet inside the interpreter: its header fields, and the switch's state of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from innet.switch import ir

_FORMATS = {8: "B", 16: "H", 32: "I", 64: "Q"}


@dataclass(slots=True)
class PacketOrigin:
    """A received packet, and the number of packets made from it.

    Attributes:
        number: how many packets were received before it.
        loops: clones, resubmissions and recirculations.
        copies: packets made from it so far, itself included.
    """

    number: int
    loops: int = 0
    copies: int = 0


class Packet:
    """One packet in the pipeline.

    ``fields`` holds the fields of all header instances in order; ``FieldLayout.start`` has the
    first index of each. Values are as in expressions: a signed field may be negative.
    """

    __slots__ = (
        "arguments",
        "clone_field_list",
        "clone_session",
        "copy_number",
        "data",
        "error",
        "exit",
        "extra",
        "fields",
        "hit_time",
        "ingress_length",
        "ingress_port",
        "learn_list",
        "length",
        "origin",
        "position",
        "recirculate",
        "resubmit",
        "stack_counts",
        "truncated",
        "type_of_service",
        "union_members",
        "union_stack_counts",
        "union_valid",
        "valid",
        "variable_widths",
    )

    def __init__(
        self, layout: FieldLayout, data: bytes, ingress_port: int, origin: PacketOrigin
    ) -> None:
        self.fields = [0] * layout.size
        self.valid = list(layout.always_valid)
        self.variable_widths = [0] * len(layout.always_valid)
        self.stack_counts = [0] * layout.stacks
        self.union_stack_counts = [0] * layout.union_stacks
        self.union_valid = [False] * layout.unions
        self.union_members = [0] * layout.unions
        self.data = data
        """The bytes outside headers: the packet before parsing, the payload afterwards."""
        self.origin = origin
        self.copy_number = origin.copies
        """Which of the packets of the same origin it is, from 0."""
        origin.copies += 1
        self.position = 0
        """Bytes of ``data`` that the parser has taken."""
        self.error = 0
        self.ingress_port = ingress_port
        self.hit_time = 0
        """The hit time for entries, in microseconds."""
        self.ingress_length = len(data)
        self.length = len(data)
        """packet_length in egress, which changes with setValid and setInvalid."""
        self.extra = 0
        """Bytes at its end that it does not carry; ``length`` and ``ingress_length`` have them."""
        self.truncated: int | None = None
        self.type_of_service = 0
        """Of the IPv4 header with which the packet came."""
        if len(data) >= 16 and data[12:14] == b"\x08\x00":
            self.type_of_service = data[15]
        self.arguments: tuple[int, ...] = ()
        self.exit = False
        self.clear_requests()

    def clear_requests(self) -> None:
        """Remove all requests to the switch."""
        self.clone_session: int | None = None
        self.clone_field_list = 0
        self.learn_list = 0
        self.resubmit = 0
        self.recirculate = 0

    def length_after_truncate(self) -> int:
        """The number of bytes after truncate()."""
        return len(self.data) if self.truncated is None else min(len(self.data), self.truncated)

    def extra_after_truncate(self) -> int:
        """The same of the bytes that it does not carry, which stand behind the others."""
        if self.truncated is None:
            return self.extra
        return max(0, min(self.extra, self.truncated - len(self.data)))

    def lengthen(self, extra: int) -> None:
        """Let a packet be longer than what it carries."""
        self.extra = extra
        self.length += extra
        self.ingress_length += extra

    def copy(self, layout: FieldLayout) -> Packet:
        """A packet with the same headers and metadata, no requests, and not truncated."""
        other = Packet(layout, self.data, self.ingress_port, self.origin)
        other.type_of_service = self.type_of_service
        other.fields = list(self.fields)
        other.valid = list(self.valid)
        other.variable_widths = list(self.variable_widths)
        other.stack_counts = list(self.stack_counts)
        other.union_stack_counts = list(self.union_stack_counts)
        other.union_valid = list(self.union_valid)
        other.union_members = list(self.union_members)
        other.ingress_length = self.ingress_length
        other.length, other.extra = self.length, self.extra
        for header, index in layout.variable_fields:
            # BMv2 does not copy invalid headers, so their varbit fields are empty in the copy.
            if not other.valid[header]:
                other.variable_widths[header] = other.fields[index] = 0
        return other


@dataclass(frozen=True, slots=True)
class Slot:
    """The location of a field: ``fields[index]``; ``header`` for its validity."""

    index: int
    header: int
    spec: ir.Field


class FieldLayout:
    """The positions of a program's headers in ``Packet.fields``.

    Attributes:
        start: per header instance, the index of its first field.
        always_valid: per header instance, its initial validity.
        variable_fields: (header instance, index in ``Packet.fields``) of every variable field.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.start: list[int] = []
        size = 0
        for header in program.headers:
            self.start.append(size)
            size += len(program.header_types[header.type].fields)
        self.size = size
        self.always_valid = [header.metadata for header in program.headers]
        self.variable_fields = [
            (i, self.start[i] + variable)
            for i in range(len(program.headers))
            if (variable := program.type_of(i).variable) is not None
        ]
        self.stacks = len(program.stacks)
        self.unions = len(program.unions)
        self.union_stacks = len(program.union_stacks)
        self._metadata = [
            (self.start[i], self.start[i] + len(program.type_of(i).fields))
            for i, header in enumerate(program.headers)
            if header.metadata
        ]

    def slot(self, reference: ir.FieldRef) -> Slot:
        index = self.start[reference.header] + reference.field
        return Slot(index, reference.header, self.program.field(reference))

    def fields_of(self, header: int) -> slice:
        """The slice of ``Packet.fields`` of a header instance."""
        first = self.start[header]
        return slice(first, first + len(self.program.type_of(header).fields))

    def reset_metadata(self, packet: Packet) -> None:
        for first, last in self._metadata:
            packet.fields[first:last] = [0] * (last - first)

    def mark_valid(self, packet: Packet, header: int) -> None:
        """Make a header valid, and so the other members of its union invalid."""
        packet.valid[header] = True
        union = self.program.headers[header].union
        if union is None:
            return
        position = self.program.headers[header].union_position
        if packet.union_valid[union] and packet.union_members[union] != position:
            packet.valid[self.program.unions[union].headers[packet.union_members[union]]] = False
        packet.union_valid[union] = True
        packet.union_members[union] = position

    def mark_invalid(self, packet: Packet, header: int) -> None:
        packet.valid[header] = False
        union = self.program.headers[header].union
        if (
            union is not None
            and packet.union_valid[union]
            and packet.union_members[union] == self.program.headers[header].union_position
        ):
            packet.union_valid[union] = False

    def bytes_of(self, packet: Packet, header: int) -> int:
        """Length of a header in bytes, with the current width of its varbit field."""
        return (self.program.type_of(header).width + packet.variable_widths[header]) // 8


def fit_to_field(spec: ir.Field) -> Callable[[int], int]:
    """Fits a value to a field of fixed width (see "Values" in ``ir``)."""
    every = (1 << spec.width) - 1
    if not spec.signed:
        if spec.saturating:
            return lambda value: min(max(value, 0), every)
        return lambda value: value & every
    least, greatest = -(1 << (spec.width - 1)), (1 << (spec.width - 1)) - 1
    if spec.saturating:
        return lambda value: min(max(value, least), greatest)

    def keep(value: int) -> int:
        if least <= value <= every:
            return value
        return ((value - least) & every) + least

    return keep


class HeaderCodec:
    """Converts one header instance between bytes and ``Packet.fields``."""

    def __init__(self, layout: FieldLayout, header: int) -> None:
        self.header = header
        self.type = layout.program.type_of(header)
        self.field_slice = layout.fields_of(header)
        self.fixed_bytes = self.type.width // 8
        fields = self.type.fields
        self.variable = self.type.variable
        self.masks = [(1 << each.width) - 1 for each in fields]
        self.packer: struct.Struct | None = None
        if all(each.width in _FORMATS and not each.variable for each in fields):
            codes = [_FORMATS[each.width] for each in fields]
            self.packer = struct.Struct(">" + "".join(codes))
            self.unpacker = struct.Struct(
                ">"
                + "".join(
                    code.lower() if each.signed else code
                    for code, each in zip(codes, fields, strict=True)
                )
            )

    def extract(self, packet: Packet, position: int, variable_bits: int = 0) -> None:
        """Set the fields from ``packet.data``; the caller has checked its length."""
        if self.packer is not None:
            packet.fields[self.field_slice] = self.unpacker.unpack_from(packet.data, position)
            return
        size = self.fixed_bytes + variable_bits // 8
        number = int.from_bytes(packet.data[position : position + size], "big")
        left = 8 * size
        values = []
        for each in self.type.fields:
            width = variable_bits if each.variable else each.width
            left -= width
            value = number >> left & ((1 << width) - 1)
            if each.signed and width and value >> (width - 1):
                value -= 1 << width
            values.append(value)
        packet.fields[self.field_slice] = values
        packet.variable_widths[self.header] = variable_bits

    def emit(self, packet: Packet) -> bytes:
        """The header as bytes."""
        values = packet.fields[self.field_slice]
        if self.packer is not None:
            return self.packer.pack(*[v & m for v, m in zip(values, self.masks, strict=True)])
        number = 0
        total = 0
        for each, value in zip(self.type.fields, values, strict=True):
            width = packet.variable_widths[self.header] if each.variable else each.width
            number = number << width | value & ((1 << width) - 1)
            total += width
        return number.to_bytes(total // 8, "big")
