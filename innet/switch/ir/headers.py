"""Headers, stacks and unions."""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch.ir.expressions import DataExpression


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a header type.

    Attributes:
        width: bits; for a variable field its greatest width.
        signed: reads as two's complement.
        saturating: writing clamps to the range instead of wrapping.
        variable: ``varbit``; at most one in a header type. Its width is set when it is extracted.
        offset: bits from the start of the header, a variable field before it counted as empty.
    """

    name: str
    width: int
    signed: bool
    saturating: bool
    variable: bool
    offset: int


@dataclass(frozen=True, slots=True)
class HeaderType:
    """``width`` is the sum of the fixed fields' bits; ``max_bytes`` the greatest length of a header
    with a variable field (65535, as long as a packet, where the program states none), else 0;
    ``length`` the length in bits of the variable field
    where the type itself states it (P4_14), else None.
    """

    name: str
    fields: tuple[Field, ...]
    width: int
    max_bytes: int
    length: DataExpression | None

    @property
    def variable(self) -> int | None:
        """Index of the variable field, None when all fields are fixed."""
        return next((i for i, field in enumerate(self.fields) if field.variable), None)

    def index(self, name: str) -> int:
        """The index of field ``name``; KeyError when there is none."""
        for i, field in enumerate(self.fields):
            if field.name == name:
                return i
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Header:
    """A header instance.

    Attributes:
        type: index into ``Program.header_types``.
        metadata: always valid, zeroed for each packet, never in the packet's bytes.
        stack, stack_position: the stack that it is an element of, or None and 0.
        union, union_position: the union that it is a member of, or None and 0. Making one member
            of a union valid makes the others invalid.
    """

    name: str
    type: int
    metadata: bool
    stack: int | None
    stack_position: int
    union: int | None
    union_position: int


@dataclass(frozen=True, slots=True)
class Stack:
    """``headers`` lists the instances of element 0, 1, ...

    At run time a stack has a count: ``next`` is element ``count``, ``last`` element ``count - 1``.
    Extracting to ``next`` and ``Push`` move it; it is zeroed for each packet.
    """

    name: str
    type: int
    headers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """``headers`` lists the member instances; ``members`` their names in the P4 type."""

    name: str
    type_name: str
    members: tuple[str, ...]
    headers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnionStack:
    """``unions`` lists the unions of element 0, 1, ..., counted as in ``Stack``."""

    name: str
    type_name: str
    unions: tuple[int, ...]
