"""What a program computes and does: expressions, the places it reads and writes, and primitives."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

VALID = -1
"""``FieldRef.field`` of a header's hidden validity bit."""

MAX_SHIFT = 4096
"""The greatest shift amount; no field of a P4 program is wider than half of it."""


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


# ----------------------------------------------------------------------------
# What an action (or a parser state) does, one after the other.


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
    """Go on at primitive ``target`` of this action. A jump back makes a loop.

    ``source`` is where the jump comes from, as FILE:LINE of the P4 program; empty if unknown.
    """

    target: int
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JumpIfZero:
    """``Jump`` when ``condition`` is 0, else go on."""

    condition: DataExpression
    target: int
    source: str = field(default="", compare=False)


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
    """Color (0 green, 1 yellow, 2 red) of cell ``index`` to ``target``; out of bounds: nothing."""

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
    """A run-time argument of an action; ``width`` in bits.

    ``negative``: the program itself states an argument below 0, which stays the number that it is.
    The control plane gives numbers without a sign, as to all parameters.
    """

    name: str
    width: int
    negative: bool = False

    @property
    def bits(self) -> int:
        """Those that hold every argument."""
        return self.width + self.negative


@dataclass(frozen=True, slots=True)
class Action:
    """``primitives`` run in order; jumps go to positions in it (its length is the end)."""

    name: str
    parameters: tuple[Parameter, ...]
    primitives: tuple[Primitive, ...]
