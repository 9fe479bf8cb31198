"""The typed intermediate form of a compiled P4 program: what both switch engines read.

The loader builds one ``Program`` from the BMv2 JSON that p4c emits for v1model. Everything here is
immutable data without behaviour; an engine walks it once and makes whatever form it runs.

Numbering
---------
Every reference is a dense index into the tuple of ``Program`` that holds such objects, counted from
0 in the order of the JSON (the ids of the JSON itself are not used, with the two exceptions of
``FieldList.id`` and ``LearnList.id``, which are values that a program computes with at run time).

======================  =================================================================
``HeaderRef.header``    ``Program.headers`` (metadata, packet headers, members of stacks
                        and of unions: all of them are header instances)
``FieldRef``            (header instance, field of its ``HeaderType``); field ``VALID``
                        (-1) is the hidden one-bit field ``$valid$``
stack, union, ...       ``Program.stacks``, ``.unions``, ``.union_stacks``
register, counter, ...  ``Program.registers``, ``.counters``, ``.meters``
action, calculation     ``Program.actions``, ``.calculations``
``Node``                (kind, index) into ``Program.tables``, ``.conditionals`` or
                        ``.action_calls``; None ends the pipeline
parser state            ``Parser.states``; None ends the parser
======================  =================================================================

Values
------
Expressions compute in unbounded signed integers (``DataExpression``) and booleans
(``BoolExpression``). What a place of width W keeps of a value v that is written to it:

* an unsigned field: v modulo 2**W;
* a signed field: v itself when -2**(W-1) <= v < 2**W, else v modulo 2**W as two's complement. So a
  value in 2**(W-1) .. 2**W-1 stays positive until the field is next extracted or computed with
  ``two_comp_mod``; its bits on the wire and in table keys are the same. This is simple_switch's
  behaviour and can be observed, for example in a comparison after reading a register into an
  ``int<32>``;
* a saturating field: v clamped to the range of its type;
* a register: v modulo 2**width. It reads as unsigned.

Extracting a signed field sign-extends it. p4c puts an ``&`` with a mask or a ``two_comp_mod``
around each operation that can leave its type's range, so that an engine may compute modulo 2**64
wherever all widths in an expression are at most 64 *and* no operation in it looks at the bits above
(``/``, ``%``, ``>>``, comparisons, ``two_comp_mod``, ``usat_cast``, ``sat_cast``, which may see
sums of one bit more and negative differences).

* ``/`` and ``%`` truncate as in C; a divisor of 0 gives what the engine chooses without failing
  (simple_switch aborts; p4c only emits them for constants). ``>>`` of a negative value rounds down.
* A shift by a negative amount or by more than ``MAX_SHIFT`` leaves no bit (-1 of a negative number
  that is shifted right). simple_switch ends on the former and runs out of memory on great amounts;
  p4c emits amounts of at most 8 bits.
* ``and`` / ``or`` evaluate both sides (nothing has effects, so this cannot be observed).
  ``Conditional`` evaluates one branch.
* ``two_comp_mod(x, w)``: x modulo 2**w as two's complement. ``usat_cast(x, w)``: clamp to
  0 .. 2**w-1. ``sat_cast(x, w)``: clamp to -2**(w-1) .. 2**(w-1)-1.
* Reading a field of an invalid header gives what it last held, 0 when this packet never set it.
  (simple_switch recycles storage, so that there it may be a value of an earlier packet.)
* Comparing headers: equal when both are valid and all fields are equal; two invalid headers are
  *not* equal (``HeaderCompare``).
* Indices of registers, counters and meters are taken modulo 2**32 before the bounds check.

Packets
-------
Field 0 of a header begins at the most significant bit of the header's first byte. ``Field.offset``
counts bits from the start of the header with a variable field taken as empty. Metadata headers are
always valid, are zeroed for every packet, and may have any number of bits; packet headers are a
whole number of bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

VALID = -1
"""``FieldRef.field`` of a header's hidden validity bit."""


MAX_SHIFT = 4096
"""The greatest shift amount; no field of a P4 program is wider than half of it."""


# ── Headers ──────────────────────────────────────────────────────────────────────────────────────


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


# ── Expressions ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Const:
    """An integer that the program states; may be negative."""

    value: int


@dataclass(frozen=True, slots=True)
class FieldRef:
    """Field ``field`` of header instance ``header``; ``field`` may be ``VALID`` when reading."""

    header: int
    field: int


@dataclass(frozen=True, slots=True)
class StackLastField:
    """``field`` of the last valid element of ``stack``."""

    stack: int
    field: int


@dataclass(frozen=True, slots=True)
class UnionStackLastField:
    """``field`` of member ``position`` of the last union of a union stack (parser keys only)."""

    union_stack: int
    position: int
    field: int


@dataclass(frozen=True, slots=True)
class HeaderField:
    """``field`` of a header that is found at run time."""

    header: HeaderExpression
    field: int


@dataclass(frozen=True, slots=True)
class Local:
    """The argument ``index`` of the action being executed."""

    index: int


@dataclass(frozen=True, slots=True)
class RegisterElement:
    """A register cell inside an expression (no bounds check in simple_switch: it aborts)."""

    register: int
    index: DataExpression


class DataOperator(enum.Enum):
    """Two integers to one. The values are the operators' names in BMv2 JSON."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    AND = "&"
    OR = "|"
    XOR = "^"
    TWO_COMP_MOD = "two_comp_mod"
    SAT_CAST = "sat_cast"
    USAT_CAST = "usat_cast"


class Comparison(enum.Enum):
    """The values are the operators' names in BMv2 JSON."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class Connective(enum.Enum):
    """Two booleans to one. EQ and NE compare booleans."""

    AND = "and"
    OR = "or"
    EQ = "=="
    NE = "!="


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``, exact."""

    operator: DataOperator
    left: DataExpression
    right: DataExpression


@dataclass(frozen=True, slots=True)
class Invert:
    """``~``: of an unbounded integer, so -x - 1; p4c masks it."""

    operand: DataExpression


@dataclass(frozen=True, slots=True)
class Choice:
    """``condition ? left : right`` of integers."""

    condition: BoolExpression
    left: DataExpression
    right: DataExpression


@dataclass(frozen=True, slots=True)
class BoolToData:
    """1 for true, 0 for false."""

    operand: BoolExpression


@dataclass(frozen=True, slots=True)
class StackLastIndex:
    """count - 1 of a stack; 2**64 - 1 when it is empty."""

    stack: int


@dataclass(frozen=True, slots=True)
class StackSize:
    """The count of a stack (how many elements were extracted or pushed)."""

    stack: int


@dataclass(frozen=True, slots=True)
class BoolConst:
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class DataToBool:
    """operand != 0"""

    operand: DataExpression


@dataclass(frozen=True, slots=True)
class Compare:
    """Of two integers."""

    operator: Comparison
    left: DataExpression
    right: DataExpression


@dataclass(frozen=True, slots=True)
class HeaderCompare:
    """EQ or NE of two headers of one type."""

    operator: Comparison
    left: HeaderExpression
    right: HeaderExpression


@dataclass(frozen=True, slots=True)
class UnionCompare:
    """EQ or NE of two unions of one type."""

    operator: Comparison
    left: UnionExpression
    right: UnionExpression


@dataclass(frozen=True, slots=True)
class Logical:
    """Of two booleans."""

    operator: Connective
    left: BoolExpression
    right: BoolExpression


@dataclass(frozen=True, slots=True)
class Not:
    """The other boolean."""

    operand: BoolExpression


@dataclass(frozen=True, slots=True)
class BoolChoice:
    """``condition ? left : right`` of booleans."""

    condition: BoolExpression
    left: BoolExpression
    right: BoolExpression


@dataclass(frozen=True, slots=True)
class Valid:
    """Whether a header is valid."""

    header: HeaderExpression


@dataclass(frozen=True, slots=True)
class UnionValid:
    """One member of the union is valid."""

    union: UnionExpression


@dataclass(frozen=True, slots=True)
class HeaderRef:
    """A header instance known when the program is loaded."""

    header: int


@dataclass(frozen=True, slots=True)
class StackElement:
    """Element ``index`` of ``stack``, found at run time.

    simple_switch aborts when the index is out of bounds; the engines read a header of zeros that is
    invalid, and ignore writes.
    """

    stack: int
    index: DataExpression


@dataclass(frozen=True, slots=True)
class UnionMember:
    """Member ``position`` of a union found at run time."""

    union: UnionExpression
    position: int


@dataclass(frozen=True, slots=True)
class UnionRef:
    """A union known when the program is loaded."""

    union: int


@dataclass(frozen=True, slots=True)
class UnionStackElement:
    """Union ``index`` of a union stack, found at run time, with the bounds of ``StackElement``."""

    union_stack: int
    index: DataExpression


@dataclass(frozen=True, slots=True)
class HeaderChoice:
    """``condition ? left : right`` of headers of one type."""

    condition: BoolExpression
    left: HeaderExpression
    right: HeaderExpression


HeaderExpression = HeaderRef | StackElement | UnionMember | HeaderChoice
UnionExpression = UnionRef | UnionStackElement
LValue = FieldRef | StackLastField | HeaderField | RegisterElement
DataExpression = (
    Const
    | FieldRef
    | StackLastField
    | HeaderField
    | Local
    | RegisterElement
    | Binary
    | Invert
    | Choice
    | BoolToData
    | StackLastIndex
    | StackSize
)
BoolExpression = (
    BoolConst
    | DataToBool
    | Compare
    | HeaderCompare
    | UnionCompare
    | Logical
    | Not
    | BoolChoice
    | Valid
    | UnionValid
)


# ── Primitives: what an action (or a parser state) does, one after the other ─────────────────────


@dataclass(frozen=True, slots=True)
class Assign:
    """Write an integer; see "Values" for what the target keeps of it."""

    target: LValue
    value: DataExpression


@dataclass(frozen=True, slots=True)
class AssignVariable:
    """Copy a variable field with its current width."""

    target: FieldRef | HeaderField
    source: FieldRef | HeaderField


@dataclass(frozen=True, slots=True)
class AssignHeader:
    """Copy validity and, when the source is valid, all fields. An invalid source makes the target
    invalid and leaves its fields.
    """

    target: HeaderExpression
    source: HeaderExpression


@dataclass(frozen=True, slots=True)
class AssignStack:
    """``AssignHeader`` element by element, and the count."""

    target: int
    source: int


@dataclass(frozen=True, slots=True)
class AssignUnion:
    """``AssignHeader`` member by member."""

    target: UnionExpression
    source: UnionExpression


@dataclass(frozen=True, slots=True)
class AssignUnionStack:
    """``AssignUnion`` element by element, and the count."""

    target: int
    source: int


@dataclass(frozen=True, slots=True)
class Push:
    """``push_front(count)``: elements swap places upwards, the first ``count`` become invalid, and
    the stack's count grows by ``count`` up to its size.
    """

    stack: int
    count: DataExpression
    of_unions: bool = False


@dataclass(frozen=True, slots=True)
class Pop:
    """``pop_front(count)``: elements swap places downwards, the last ``count`` become invalid, and
    the stack's count shrinks by ``count`` down to 0.
    """

    stack: int
    count: DataExpression
    of_unions: bool = False


@dataclass(frozen=True, slots=True)
class AddHeader:
    """``setValid``: an invalid header is zeroed and made valid; a valid one is left as it is.

    The packet's length grows by the header's bytes. Other members of its union become invalid.
    """

    header: HeaderExpression


@dataclass(frozen=True, slots=True)
class RemoveHeader:
    """``setInvalid``: a header that is valid becomes invalid, the packet's length shrinks; its
    fields keep their values.
    """

    header: HeaderExpression


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at primitive ``target`` of this action (always forward)."""

    target: int


@dataclass(frozen=True, slots=True)
class JumpIfZero:
    """``Jump`` when ``condition`` is 0, else go on."""

    condition: DataExpression
    target: int


@dataclass(frozen=True, slots=True)
class NoOp:
    """Does nothing; keeps the positions that jumps count by."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The pipeline ends after this action (the action's remaining primitives still run)."""


@dataclass(frozen=True, slots=True)
class Assert:
    """``assert`` and ``assume`` (``assume`` True): simple_switch ends the process on a failure; the
    engines drop the packet and count it in ``Statistics.failed_assertions``.
    """

    condition: BoolExpression
    assume: bool


@dataclass(frozen=True, slots=True)
class LogMessage:
    """``log_msg``: text with ``{}`` for each value. Without effect on packets."""

    text: str
    values: tuple[DataExpression, ...]


@dataclass(frozen=True, slots=True)
class MarkToDrop:
    """egress_spec = 511 and, when the program has it, mcast_grp = 0."""

    egress_spec: FieldRef
    mcast_grp: FieldRef | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """What leaves is cut to ``length`` bytes after deparsing; the least of several calls counts.

    Copies (replicas, clones, resubmitted and recirculated packets) are not cut by it.
    """

    length: DataExpression


@dataclass(frozen=True, slots=True)
class Count:
    """Cell ``index`` gains one packet and the packet's ingress length in bytes. Out of bounds:
    nothing happens.
    """

    counter: int
    index: DataExpression


@dataclass(frozen=True, slots=True)
class ExecuteMeter:
    """Colour (0 green, 1 yellow, 2 red) of cell ``index`` to ``target``; out of bounds: nothing."""

    meter: int
    index: DataExpression
    target: LValue


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """Out of bounds: the target keeps its value."""

    target: LValue
    register: int
    index: DataExpression


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """Out of bounds: nothing is written."""

    register: int
    index: DataExpression
    value: DataExpression


@dataclass(frozen=True, slots=True)
class Hash:
    """target = base + H mod size, with 64-bit H; a size of 0 counts as 1."""

    target: LValue
    base: DataExpression
    calculation: int
    size: DataExpression


@dataclass(frozen=True, slots=True)
class Random:
    """target = a uniform integer of low .. high, both included; low > high: nothing happens."""

    target: LValue
    low: DataExpression
    high: DataExpression


@dataclass(frozen=True, slots=True)
class Digest:
    """Send the learn list whose ``LearnList.id`` is ``learn_list``, at the end of ingress."""

    receiver: DataExpression
    learn_list: DataExpression


@dataclass(frozen=True, slots=True)
class Clone:
    """Clone at the end of this pipeline to mirror ``session``, keeping field list ``field_list`` (a
    value equal to a ``FieldList.id``). The last call wins.

    ``egress``: clone_egress_pkt_to_egress, else clone_ingress_pkt_to_egress.
    """

    egress: bool
    session: DataExpression
    field_list: DataExpression


@dataclass(frozen=True, slots=True)
class Resubmit:
    """``field_list``: a value equal to a ``FieldList.id``; 0 means no resubmission."""

    field_list: DataExpression


@dataclass(frozen=True, slots=True)
class Recirculate:
    """``field_list``: a value equal to a ``FieldList.id``; 0 means no recirculation."""

    field_list: DataExpression


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A primitive that v1model does not have, such as a method of an extern of the program's own.
    Kept so that it can be refused by name; no engine runs it.
    """

    name: str


Primitive = (
    Assign
    | AssignVariable
    | AssignHeader
    | AssignStack
    | AssignUnion
    | AssignUnionStack
    | Push
    | Pop
    | AddHeader
    | RemoveHeader
    | Jump
    | JumpIfZero
    | NoOp
    | Exit
    | Assert
    | LogMessage
    | MarkToDrop
    | Truncate
    | Count
    | ExecuteMeter
    | RegisterRead
    | RegisterWrite
    | Hash
    | Random
    | Digest
    | Clone
    | Resubmit
    | Recirculate
    | ExternCall
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A run-time argument of an action; ``width`` in bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    """``primitives`` run in order; jumps go to positions in it (its length is the end)."""

    name: str
    parameters: tuple[Parameter, ...]
    primitives: tuple[Primitive, ...]


# ── Parser ───────────────────────────────────────────────────────────────────────────────────────


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


# ── Calculations, checksums, lists of fields ─────────────────────────────────────────────────────


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


# ── Stateful arrays ──────────────────────────────────────────────────────────────────────────────


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
    table and the field that receives the colour.
    """

    name: str
    size: int
    bytes: bool
    rates: int
    table: int | None
    result: FieldRef | None


# ── Control flow ─────────────────────────────────────────────────────────────────────────────────


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


@dataclass(frozen=True, slots=True)
class Conditional:
    """``if`` in a control block."""

    name: str
    condition: BoolExpression
    if_true: Node | None
    if_false: Node | None


@dataclass(frozen=True, slots=True)
class ActionCall:
    """Runs an action without parameters and goes on."""

    name: str
    action: int
    next: Node | None


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
