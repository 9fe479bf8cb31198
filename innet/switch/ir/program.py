"""A program and its parts: headers, state arrays, parser, deparser, tables and pipelines."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

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


# ----------------------------------------------------------------------------
# Calculations, checksums, lists of fields, and arrays that outlive a packet.


@dataclass(frozen=True, slots=True)
class CalculationConstant:
    """``value`` in ``width`` bits."""

    value: int
    width: int


@dataclass(frozen=True, slots=True)
class Payload:
    """The packet's bytes that the parser left; always the last of the inputs."""


CalculationInput = FieldRef | CalculationConstant | HeaderRef | Payload


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash of the inputs' bits one after the other, padded with zero bits to a byte at the end
    and before the payload.

    Inputs of invalid headers are left out; a payload starts at a byte, after zero bits.
    ``algorithm``: one of crc16, crc32, crc16_custom, crc32_custom, csum16, xor16, identity, random,
    cksum16 and so on, as the JSON names it.
    """

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """``target`` holds ``calculation``.

    Skipped when ``condition`` (None: always) is false; verifying also when the target's header is
    invalid. In the order of the program: an update sees the ones before it.
    """

    name: str
    target: FieldRef
    calculation: int
    update: bool
    verify: bool
    condition: BoolExpression | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """What a clone, resubmission or recirculation keeps of the metadata. ``id`` is the run-time
    value that names the list.
    """

    id: int
    name: str
    elements: tuple[FieldRef | CalculationConstant, ...]


@dataclass(frozen=True, slots=True)
class LearnList:
    """What a digest carries. ``id`` is the run-time value that names the list."""

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
    """Counts packets and bytes. ``table``: the table whose entries it counts, None when indexed."""

    name: str
    size: int
    table: int | None


@dataclass(frozen=True, slots=True)
class MeterArray:
    """``bytes``: rates are in bytes, else packets. ``table`` and ``result``: for a direct meter the
    table and the field that receives the color.
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


# ----------------------------------------------------------------------------
# Ingress and egress: tables, conditionals, and what comes after what.


class NodeKind(enum.Enum):
    """What a step of a pipeline is."""

    TABLE = "table"
    CONDITIONAL = "conditional"
    ACTION_CALL = "action call"


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a pipeline."""

    kind: NodeKind
    index: int


class MatchKind(enum.Enum):
    """How a key field is compared. The values are the names in BMv2 JSON."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    VALID = "valid"


class TableKind(enum.Enum):
    """Where entries keep actions: in themselves, in a profile, in a profile with selector."""

    SIMPLE = "simple"
    INDIRECT = "indirect"
    INDIRECT_WS = "indirect_ws"


@dataclass(frozen=True, slots=True)
class TableKey:
    """One field of a table's key. A field of an invalid header counts as 0 here.

    ``width`` in bits (1 for ``VALID`` fields); ``mask`` is applied to the field before matching
    (None: none); ``name`` is what people call it.
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

    simple_switch counts from the top of the field padded to whole bytes, and so do the engines: in
    a field of 12 bits a prefix of 8 compares the upper 4. The tables' run-time entries hold masks,
    so that nobody needs to count again.
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
    """``priority``: the lowest number wins; used in ternary and range tables only."""

    matches: tuple[Match, ...]
    entry: ActionEntry
    priority: int


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table.

    Attributes:
        match: how the table as a whole matches: RANGE if any key is, else TERNARY if any is, else
            LPM if any is, else EXACT. A ``match`` of TERNARY or RANGE may hold keys of every kind.
            An LPM table has one lpm key, the others exact: the longest prefix wins.
        max_size: greatest number of entries.
        actions: the actions that entries may have.
        next: the node after each of ``actions``, in the same order; used when ``by_hit`` is false.
        by_hit: the node after the table depends on hit or miss only: ``hit`` or ``miss``.
        default: the entry of a miss when the program is loaded; None: a miss runs no action.
        base_default_next: the node after a miss that runs no action.
        default_action_const: the default's action must not be changed; default_entry_const: nor
            its arguments.
        entries: entries of the program itself; ``immutable`` when the program states any.
        counter, meter: direct counter and meter arrays, or None. Every table entry (not a miss)
            counts; p4c names the counter array's table. with_counters may be set without an array.
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
        """Every node that may come after the table; None ends the pipeline."""
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
    """Runs an action without parameters and goes on."""

    name: str
    action: int
    next: Node | None

    @property
    def successors(self) -> tuple[Node | None, ...]:
        return (self.next,)


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """``selector``: the algorithm and input of the hash that picks a group's member, or None."""

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


@dataclass(frozen=True, slots=True)
class StandardMetadata:
    """Where the switch itself reads and writes; None where the program has no such field.

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


@dataclass(frozen=True, slots=True)
class Program:
    """A whole v1model program.

    Attributes:
        name: what the JSON calls the source, for people.
        version: of the JSON format.
        fingerprint: SHA-256 (hex) of what the JSON says, source positions left out: equal programs
            have equal fingerprints, so caches use it.
        errors: name to code, with the core library's errors always in it.
        enums: enum name to member name to value.
        externs: names of extern instances of types that v1model does not have.
    """

    name: str
    version: tuple[int, int]
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
        """What a node of a pipeline is."""
        match node.kind:
            case NodeKind.TABLE:
                return self.tables[node.index]
            case NodeKind.CONDITIONAL:
                return self.conditionals[node.index]
            case NodeKind.ACTION_CALL:
                return self.action_calls[node.index]

    def some_header(self, expression: HeaderExpression) -> int:
        """A header that an expression may name at run time; all that it may are of one type."""
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
        """A union that an expression may name at run time; all that it may are of one type."""
        if isinstance(expression, UnionRef):
            return self.unions[expression.union]
        return self.unions[self.union_stacks[expression.union_stack].unions[0]]

    def type_of(self, header: int) -> HeaderType:
        """The type of header instance ``header``."""
        return self.header_types[self.headers[header].type]

    def field(self, reference: FieldRef) -> Field:
        """What is known of a field; not for ``VALID``."""
        return self.type_of(reference.header).fields[reference.field]

    def name_of(self, reference: FieldRef) -> str:
        """``header.field``, for people."""
        header = self.headers[reference.header]
        if reference.field == VALID:
            return f"{header.name}.$valid$"
        return f"{header.name}.{self.field(reference).name}"
