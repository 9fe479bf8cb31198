"""A program and its parts: headers, state arrays, parser, deparser, tables and pipelines."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from innet.switch.ir.statements import (
    VALID,
    Action,
    BoolExpression,
    DataExpression,
    FieldRef,
    HeaderChoice,
    HeaderExpression,
    HeaderRef,
    Primitive,
    StackElement,
    StackLastField,
    UnionExpression,
    UnionMember,
    UnionRef,
    UnionStackLastField,
)


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a header type.

    Attributes:
        width: bits; for a variable field its greatest width.
        signed: reads as two's complement.
        saturating: writing clamps to the range instead of wrapping.
        variable: ``varbit``; at most one in a header type. Its width is set when it is extracted.
        offset: bits from the start of the header; a variable field before it counts as empty.
    """

    name: str
    width: int
    signed: bool
    saturating: bool
    variable: bool
    offset: int


@dataclass(frozen=True, slots=True)
class HeaderType:
    """A header type.

    Attributes:
        width: sum of the fixed fields' bits.
        max_bytes: greatest length of a header with a variable field, 65535 if the program has no
            limit; 0 without a variable field.
    """

    name: str
    fields: tuple[Field, ...]
    width: int
    max_bytes: int

    @property
    def variable(self) -> int | None:
        """Index of the variable field, None if all fields are fixed."""
        return next((i for i, field in enumerate(self.fields) if field.variable), None)

    def index(self, name: str) -> int:
        """The index of field ``name``; KeyError if there is none."""
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
        stack, stack_position: its stack and its position there, or None and 0.
        union, union_position: its union and its position there, or None and 0. Making one member
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
    Extracting to ``next``, ``Push`` and ``Pop`` change it. It is zeroed for each packet.
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


# ----------------------------------------------------------------------------
# Calculations, checksums, lists of fields, and stateful arrays.


@dataclass(frozen=True, slots=True)
class CalculationConstant:
    """``value`` in ``width`` bits."""

    value: int
    width: int


@dataclass(frozen=True, slots=True)
class Payload:
    """The packet's bytes after the parser's position; always the last of the inputs."""


CalculationInput = FieldRef | CalculationConstant | HeaderRef | Payload


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash of the concatenated bits of the inputs, padded with zero bits to a byte at the end and
    before the payload.

    Inputs of invalid headers are skipped.
    ``algorithm``: one of crc16, crc32, crc16_custom, crc32_custom, csum16, xor16, identity, random,
    cksum16 and so on, as the JSON names it.
    """

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """``target`` holds the result of ``calculation``.

    It is skipped if ``condition`` (None: true) is false. Verification is also skipped if the
    target's header is invalid. Checksums are computed in order, so an update sees earlier ones.
    """

    name: str
    target: FieldRef
    calculation: int
    update: bool
    verify: bool
    condition: BoolExpression | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """The metadata that a clone, resubmission or recirculation keeps. ``id`` is the run-time value
    that names the list.
    """

    id: int
    name: str
    elements: tuple[FieldRef | CalculationConstant, ...]


@dataclass(frozen=True, slots=True)
class LearnList:
    """The fields of a digest. ``id`` is the run-time value that names the list."""

    id: int
    name: str
    elements: tuple[FieldRef, ...]


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """``size`` cells of ``width`` bits, 0 at the start."""

    name: str
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class CounterArray:
    """Counts packets and bytes. ``table``: its table if direct, None if indexed."""

    name: str
    size: int
    table: int | None


@dataclass(frozen=True, slots=True)
class MeterArray:
    """``bytes``: rates are in bytes, else packets. ``table`` and ``result``: for a direct meter,
    its table and the field that receives the color.
    """

    name: str
    size: int
    bytes: bool
    rates: int
    table: int | None
    result: FieldRef | None


# ----------------------------------------------------------------------------
# The parser and the deparser.


@dataclass(frozen=True, slots=True)
class Lookahead:
    """``width`` bits from ``offset`` bits after the parser's position. The position does not
    change.

    If fewer than ceil(width / 8) bytes are left, an assignment gives error PacketTooShort. In a
    transition key simple_switch reads past the packet, and the engines read zeros.
    """

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class StackNext:
    """The next free element of a stack. A full stack gives error StackOutOfBounds."""

    stack: int


@dataclass(frozen=True, slots=True)
class UnionStackNext:
    """Member ``position`` of the next free union of a union stack."""

    union_stack: int
    position: int


@dataclass(frozen=True, slots=True)
class Extract:
    """Extract a header from the packet and make it valid.

    ``length`` is the width in bits of its variable field, None if it has none. Errors, in this
    order: ParserInvalidArgument if ``length`` is not a multiple of 8 or at least 2**31,
    PacketTooShort if too few bytes are left, HeaderTooShort if the header is longer than
    ``HeaderType.max_bytes``. PacketTooShort does not change a fixed header.
    """

    target: HeaderRef | StackNext | UnionStackNext
    length: DataExpression | None


@dataclass(frozen=True, slots=True)
class SetFromLookahead:
    """Assign the bits of a lookahead to a field."""

    target: FieldRef
    source: Lookahead


@dataclass(frozen=True, slots=True)
class Verify:
    """If ``condition`` is false, stop with the error code in ``error``."""

    condition: BoolExpression
    error: DataExpression


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip ``bits``. Errors: ParserInvalidArgument (not a multiple of 8), PacketTooShort."""

    bits: DataExpression


ParserOperation = Extract | SetFromLookahead | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One field of a transition key. ``width`` is in bits; BMv2 pads its keys to bytes."""

    source: FieldRef | StackLastField | UnionStackLastField | Lookahead
    width: int


@dataclass(frozen=True, slots=True)
class Transition:
    """Matches if (key[i] & masks[i]) == values[i] for every key part i.

    ``values`` are already masked. If ``value_set`` is not None, ``values`` is empty, and the
    transition matches if the masked key is in the masked value set.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    value_set: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class ParserState:
    """Runs operations, then takes the first matching transition, or ``default`` (None: accept).

    A state without a key takes ``default``.
    """

    name: str
    operations: tuple[ParserOperation, ...]
    key: tuple[KeyPart, ...]
    transitions: tuple[Transition, ...]
    default: int | None


@dataclass(frozen=True, slots=True)
class Parser:
    """Starts in ``states[initial]``; None accepts at once.

    An error stops the parser and sets parser_error. The payload starts after the bytes that were
    parsed, and the packet continues in ingress. Checksums are verified after the parser.
    """

    name: str
    states: tuple[ParserState, ...]
    initial: int | None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set, filled by the control plane. ``width``: bits of its values, which are the
    concatenated parts of the key without padding.
    """

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Deparser:
    """Updates checksums, runs ``operations``, emits valid headers in ``order``, then payload."""

    name: str
    order: tuple[int, ...]
    operations: tuple[Primitive, ...]


# ----------------------------------------------------------------------------
# Ingress and egress: tables, conditionals and the control flow.


class NodeKind(enum.Enum):
    """The kind of a step of a pipeline."""

    TABLE = "table"
    CONDITIONAL = "conditional"
    ACTION_CALL = "action call"


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a pipeline."""

    kind: NodeKind
    index: int


class MatchKind(enum.Enum):
    """How a key field is matched. The values are the names in BMv2 JSON."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    VALID = "valid"


class TableKind(enum.Enum):
    """Where actions are: in the entries, in a profile, or in a profile with a selector."""

    SIMPLE = "simple"
    INDIRECT = "indirect"
    INDIRECT_WS = "indirect_ws"


@dataclass(frozen=True, slots=True)
class TableKey:
    """One field of a table's key. A field of an invalid header counts as 0 here.

    ``width``: bits (1 for ``VALID`` fields). ``mask``: applied to the field before matching, or
    None. ``name``: for display.
    """

    match: MatchKind
    field: FieldRef
    width: int
    mask: int | None
    name: str


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """The field equals ``value``."""

    value: int


@dataclass(frozen=True, slots=True)
class LpmMatch:
    """The first ``prefix`` bits equal those of ``value``.

    simple_switch counts from the top of the field padded to bytes, and so do the engines: in a
    field of 12 bits a prefix of 8 compares the upper 4 bits. Run-time entries hold masks instead.
    """

    value: int
    prefix: int


@dataclass(frozen=True, slots=True)
class TernaryMatch:
    """field & mask == value & mask."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class RangeMatch:
    """low <= field <= high."""

    low: int
    high: int


Match = ExactMatch | LpmMatch | TernaryMatch | RangeMatch


@dataclass(frozen=True, slots=True)
class ActionEntry:
    """An action with its arguments."""

    action: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """``priority``: the lowest number wins. Only ternary and range tables use it."""

    matches: tuple[Match, ...]
    entry: ActionEntry
    priority: int


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table.

    Attributes:
        match: kind of the table: RANGE if any key is, else TERNARY if any key is, else LPM if any
            key is, else EXACT. RANGE and TERNARY tables may have keys of every kind. An LPM table
            has one lpm key and exact keys; the longest prefix wins.
        max_size: greatest number of entries.
        actions: the actions that entries may have.
        next: the node after each of ``actions``, in the same order; used if ``by_hit`` is false.
        by_hit: the next node is ``hit`` or ``miss``, whatever the action.
        default: the default entry when the program is loaded; None: a miss runs no action.
        base_default_next: the node after a miss that runs no action.
        default_action_const: the default action is constant; default_entry_const: its arguments,
            too.
        entries: const entries of the program; ``immutable`` if it has any.
        counter, meter: direct counter and meter arrays, or None. Only hits count.
            ``with_counters`` may be true without an array.
        action_profile: for indirect tables.
    """

    name: str
    kind: TableKind
    match: MatchKind
    keys: tuple[TableKey, ...]
    max_size: int
    actions: tuple[int, ...]
    next: tuple[Node | None, ...]
    by_hit: bool
    hit: Node | None
    miss: Node | None
    base_default_next: Node | None
    default: ActionEntry | None
    default_action_const: bool
    default_entry_const: bool
    entries: tuple[TableEntry, ...]
    immutable: bool
    with_counters: bool
    counter: int | None
    meter: int | None
    support_timeout: bool
    action_profile: int | None

    @property
    def successors(self) -> tuple[Node | None, ...]:
        """All nodes that may follow the table; None ends the pipeline."""
        return (self.hit, self.miss) if self.by_hit else (*self.next, self.base_default_next)


@dataclass(frozen=True, slots=True)
class Conditional:
    """``if`` in a control block."""

    name: str
    condition: BoolExpression
    if_true: Node | None
    if_false: Node | None

    @property
    def successors(self) -> tuple[Node | None, ...]:
        return (self.if_true, self.if_false)


@dataclass(frozen=True, slots=True)
class ActionCall:
    """Runs an action without parameters."""

    name: str
    action: int
    next: Node | None

    @property
    def successors(self) -> tuple[Node | None, ...]:
        return (self.next,)


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """``selector``: the hash that chooses a member of a group, or None."""

    name: str
    max_size: int
    selector: Calculation | None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``ingress`` or ``egress``; ``initial`` None does nothing."""

    name: str
    initial: Node | None


# ----------------------------------------------------------------------------
# A whole program.

DROP_PORT = 511
"""egress_spec of a packet that is to be dropped, by default."""


@dataclass(frozen=True, slots=True)
class StandardMetadata:
    """The fields that the switch itself reads and writes; None if the program has no such field.

    ``field_aliases`` of the JSON are already applied: ``mcast_grp`` is
    intrinsic_metadata.mcast_grp, ``enq_timestamp`` queueing_metadata.enq_timestamp, and so on.
    """

    ingress_port: FieldRef
    egress_spec: FieldRef
    egress_port: FieldRef
    packet_length: FieldRef
    instance_type: FieldRef
    parser_error: FieldRef | None
    checksum_error: FieldRef | None
    mcast_grp: FieldRef | None
    egress_rid: FieldRef | None
    priority: FieldRef | None
    ingress_global_timestamp: FieldRef | None
    egress_global_timestamp: FieldRef | None
    enq_timestamp: FieldRef | None
    enq_qdepth: FieldRef | None
    deq_timedelta: FieldRef | None
    deq_qdepth: FieldRef | None
    qid: FieldRef | None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Program:
    """A whole v1model program.

    Attributes:
        name: name of the source in the JSON, for display.
        version: of the JSON format; () if the document states none.
        fingerprint: SHA-256 (hex) of the JSON without source positions. Equal programs have equal
            fingerprints; caches use it.
        errors: name to code, including the core library's errors.
        enums: enum name to member name to value.
        externs: names of extern instances of types that v1model does not have.
        drop_port: the egress_spec that means "drop", and that mark_to_drop sets.
    """

    name: str
    version: tuple[int, ...]
    fingerprint: str
    header_types: tuple[HeaderType, ...]
    headers: tuple[Header, ...]
    stacks: tuple[Stack, ...]
    unions: tuple[Union, ...]
    union_stacks: tuple[UnionStack, ...]
    errors: Mapping[str, int]
    enums: Mapping[str, Mapping[str, int]]
    standard: StandardMetadata
    parser: Parser
    value_sets: tuple[ValueSet, ...]
    deparser: Deparser
    calculations: tuple[Calculation, ...]
    checksums: tuple[Checksum, ...]
    field_lists: tuple[FieldList, ...]
    learn_lists: tuple[LearnList, ...]
    registers: tuple[RegisterArray, ...]
    counters: tuple[CounterArray, ...]
    meters: tuple[MeterArray, ...]
    actions: tuple[Action, ...]
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]
    action_calls: tuple[ActionCall, ...]
    action_profiles: tuple[ActionProfile, ...]
    ingress: Pipeline
    egress: Pipeline
    externs: tuple[str, ...]
    drop_port: int = DROP_PORT

    def with_drop_port(self, port: int) -> Program:
        """The program on a switch that drops packets to another port; caches keep them apart."""
        if port == self.drop_port:
            return self
        form = f"{self.fingerprint} drop port {port}"
        fingerprint = hashlib.sha256(form.encode()).hexdigest()
        return replace(self, drop_port=port, fingerprint=fingerprint)

    @property
    def hashes(self) -> tuple[Calculation, ...]:
        """All hashes: ``calculations``, then the selectors of ``action_profiles``."""
        selectors = tuple(each.selector for each in self.action_profiles if each.selector)
        return (*self.calculations, *selectors)

    def selector_hash(self, profile: int) -> int:
        """The position in ``hashes`` of the selector of a profile that has one."""
        before = sum(each.selector is not None for each in self.action_profiles[:profile])
        return len(self.calculations) + before

    def step(self, node: Node) -> Table | Conditional | ActionCall:
        """The step of a node."""
        match node.kind:
            case NodeKind.TABLE:
                return self.tables[node.index]
            case NodeKind.CONDITIONAL:
                return self.conditionals[node.index]
            case NodeKind.ACTION_CALL:
                return self.action_calls[node.index]

    def some_header(self, expression: HeaderExpression) -> int:
        """A header that an expression may denote at run time. All possible ones have one type."""
        match expression:
            case HeaderRef(header):
                return header
            case StackElement(stack, _):
                return self.stacks[stack].headers[0]
            case UnionMember(union, position):
                return self.some_union(union).headers[position]
            case HeaderChoice(_, left, _):
                return self.some_header(left)

    def some_union(self, expression: UnionExpression) -> Union:
        """A union that an expression may denote at run time. All possible ones have one type."""
        if isinstance(expression, UnionRef):
            return self.unions[expression.union]
        return self.unions[self.union_stacks[expression.union_stack].unions[0]]

    def type_of(self, header: int) -> HeaderType:
        """The type of header instance ``header``."""
        return self.header_types[self.headers[header].type]

    def fields_of(self, header: int) -> list[FieldRef]:
        """The fields of header instance ``header``, without ``VALID``."""
        return [FieldRef(header, field) for field in range(len(self.type_of(header).fields))]

    def field(self, reference: FieldRef) -> Field:
        """The declaration of a field; not for ``VALID``."""
        return self.type_of(reference.header).fields[reference.field]

    def name_of(self, reference: FieldRef) -> str:
        """``header.field``, for display."""
        header = self.headers[reference.header]
        if reference.field == VALID:
            return f"{header.name}.$valid$"
        return f"{header.name}.{self.field(reference).name}"
