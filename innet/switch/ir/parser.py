"""The parser and the deparser."""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch.ir.expressions import (
    BoolExpression,
    DataExpression,
    FieldRef,
    HeaderRef,
    StackLastField,
    UnionStackLastField,
)
from innet.switch.ir.primitives import Primitive


@dataclass(frozen=True, slots=True)
class Lookahead:
    """``width`` bits that begin ``offset`` bits after the parser's position, which stays.

    Too few bytes left for ceil(width / 8): error PacketTooShort where it is assigned; in a
    transition key simple_switch reads past the packet, the engines read zeros.
    """

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class StackNext:
    """The next free element of a stack; a full stack is error StackOutOfBounds."""

    stack: int


@dataclass(frozen=True, slots=True)
class UnionStackNext:
    """Member ``position`` of the next free union of a union stack."""

    union_stack: int
    position: int


@dataclass(frozen=True, slots=True)
class Extract:
    """Take a header from the packet and make it valid.

    ``length`` is the width in bits of its variable field (None when it has none): not a multiple of
    8, or 2**31 and more, is error ParserInvalidArgument, then too few bytes left PacketTooShort,
    then more bytes than ``HeaderType.max_bytes`` HeaderTooShort. Too few bytes for a fixed header:
    PacketTooShort, and the header is untouched.
    """

    target: HeaderRef | StackNext | UnionStackNext
    length: DataExpression | None


@dataclass(frozen=True, slots=True)
class SetFromLookahead:
    """Write the bits that lie ahead, without moving."""

    target: FieldRef
    source: Lookahead


@dataclass(frozen=True, slots=True)
class Verify:
    """When ``condition`` is false, stop with the error code that ``error`` evaluates to."""

    condition: BoolExpression
    error: DataExpression


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip ``bits``: not a multiple of 8 is ParserInvalidArgument, too few left PacketTooShort."""

    bits: DataExpression


ParserOperation = Extract | SetFromLookahead | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One field of a transition key; ``width`` in bits, padded to bytes in BMv2's own keys."""

    source: FieldRef | StackLastField | UnionStackLastField | Lookahead
    width: int


@dataclass(frozen=True, slots=True)
class Transition:
    """Taken when for every key part i: (key[i] & masks[i]) == values[i].

    ``values`` are already masked. When ``value_set`` is not None, ``values`` is empty and the
    transition is taken when the masked key is in the masked value set.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    value_set: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class ParserState:
    """Operations, then the first of ``transitions`` that matches, else ``default`` (None: accept).

    A state without a key goes straight to ``default``.
    """

    name: str
    operations: tuple[ParserOperation, ...]
    key: tuple[KeyPart, ...]
    transitions: tuple[Transition, ...]
    default: int | None


@dataclass(frozen=True, slots=True)
class Parser:
    """Starts in ``states[initial]`` (None: accepts at once).

    An error stops the parser: parser_error is set, what was parsed so far is removed from the
    payload, and the packet goes on through ingress. Checksums are verified after the parser.
    """

    name: str
    states: tuple[ParserState, ...]
    initial: int | None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set, filled by the control plane; ``width`` is that of its values without
    padding (the parts of the key one after the other).
    """

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Deparser:
    """Updates checksums, runs ``operations``, emits valid headers in ``order``, then payload."""

    name: str
    order: tuple[int, ...]
    operations: tuple[Primitive, ...]
