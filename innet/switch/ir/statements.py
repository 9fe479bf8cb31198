"""Expressions, lvalues and primitives of a program."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

VALID = -1
"""``FieldRef.field`` for the hidden validity bit of a header."""

MAX_SHIFT = 4096
"""The greatest shift amount. p4c's widest field has half as many bits."""


@dataclass(frozen=True, slots=True)
class Const:
    """A constant; it may be negative."""

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
    """Argument ``index`` of the current action."""

    index: int


@dataclass(frozen=True, slots=True)
class RegisterElement:
    """A register cell inside an expression. simple_switch aborts if it is out of bounds."""

    register: int
    index: DataExpression


class DataOperator(enum.Enum):
    """Operators of two integers. The values are their names in BMv2 JSON."""

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
    """Comparison operators. The values are their names in BMv2 JSON."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class Connective(enum.Enum):
    """Operators of two booleans. EQ and NE compare booleans."""

    AND = "and"
    OR = "or"
    EQ = "=="
    NE = "!="


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``, in unbounded integers."""

    operator: DataOperator
    left: DataExpression
    right: DataExpression


@dataclass(frozen=True, slots=True)
class Invert:
    """``~`` of an unbounded integer: -x - 1. p4c adds a mask."""

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
    """A comparison of two integers."""

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
    """A connective of two booleans."""

    operator: Connective
    left: BoolExpression
    right: BoolExpression


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

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
    """Whether a member of the union is valid."""

    union: UnionExpression


@dataclass(frozen=True, slots=True)
class HeaderRef:
    """A header instance known when the program is loaded."""

    header: int


@dataclass(frozen=True, slots=True)
class StackElement:
    """Element ``index`` of ``stack``, found at run time.

    If the index is out of bounds, simple_switch aborts. The engines read an invalid header of zeros
    and ignore writes.
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
    """Union ``index`` of a union stack, found at run time; bounds as for ``StackElement``."""

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
# Primitives: the statements of actions and parser states.


@dataclass(frozen=True, slots=True)
class Assign:
    """Write an integer. "Values" in the package's docstring says what the target keeps of it."""

    target: LValue
    value: DataExpression


@dataclass(frozen=True, slots=True)
class AssignVariable:
    """Copy a variable field with its current width."""

    target: FieldRef | HeaderField
    source: FieldRef | HeaderField


@dataclass(frozen=True, slots=True)
class AssignHeader:
    """Copy validity and, if the source is valid, all fields. An invalid source makes the target
    invalid and does not change its fields.
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
    """``push_front(count)``: elements move up, the first ``count`` become invalid, and the stack's
    count grows by ``count``, at most to its size.
    """

    stack: int
    count: DataExpression
    of_unions: bool = False


@dataclass(frozen=True, slots=True)
class Pop:
    """``pop_front(count)``: elements move down, the last ``count`` become invalid, and the stack's
    count shrinks by ``count``, at least to 0.
    """

    stack: int
    count: DataExpression
    of_unions: bool = False


@dataclass(frozen=True, slots=True)
class AddHeader:
    """``setValid``: an invalid header is zeroed and made valid. A valid header does not change.

    The packet's length grows by the header's bytes. Other members of its union become invalid.
    """

    header: HeaderExpression


@dataclass(frozen=True, slots=True)
class RemoveHeader:
    """``setInvalid``: a valid header becomes invalid and the packet's length shrinks. Its fields
    keep their values.
    """

    header: HeaderExpression


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue at primitive ``target`` of this action. A jump back is a loop.

    ``source`` is where the jump comes from, as FILE:LINE of the P4 program; empty if unknown.
    """

    target: int
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JumpIfZero:
    """``Jump`` if ``condition`` is 0, else continue."""

    condition: DataExpression
    target: int
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NoOp:
    """Does nothing. It keeps the positions of other primitives, which jumps use."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The pipeline ends after this action. The action's remaining primitives still run."""


@dataclass(frozen=True, slots=True)
class Assert:
    """``assert`` and ``assume`` (``assume`` True): simple_switch ends the process on a failure; the
    engines drop the packet and count it in ``Statistics.failed_assertions``.
    """

    condition: BoolExpression
    assume: bool


@dataclass(frozen=True, slots=True)
class LogMessage:
    """``log_msg``: text with ``{}`` for each value. It has no effect on packets."""

    text: str
    values: tuple[DataExpression, ...]


@dataclass(frozen=True, slots=True)
class MarkToDrop:
    """egress_spec = ``Program.drop_port`` and, when the program has it, mcast_grp = 0."""

    egress_spec: FieldRef
    mcast_grp: FieldRef | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the packet to ``length`` bytes after deparsing; the least of several calls counts.

    Copies (replicas, clones, resubmitted and recirculated packets) are not truncated.
    """

    length: DataExpression


@dataclass(frozen=True, slots=True)
class Count:
    """Add one packet and the packet's ingress length in bytes to cell ``index``. Out of bounds:
    nothing happens.
    """

    counter: int
    index: DataExpression


@dataclass(frozen=True, slots=True)
class ExecuteMeter:
    """Write the color (0 green, 1 yellow, 2 red) of cell ``index``. Out of bounds: nothing."""

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
    """target = a uniform integer in low .. high, inclusive. low > high: nothing happens."""

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
    """A primitive that v1model does not have, such as a method of another extern. It is kept so
    that the error can name it. No engine runs it.
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

    ``negative``: an entry of the program has a negative argument. It keeps its sign. Arguments from
    the control plane are unsigned.
    """

    name: str
    width: int
    negative: bool = False

    @property
    def bits(self) -> int:
        """Bits that hold every argument."""
        return self.width + self.negative


@dataclass(frozen=True, slots=True)
class Action:
    """``primitives`` run in order. Jumps go to positions in it; its length is the end."""

    name: str
    parameters: tuple[Parameter, ...]
    primitives: tuple[Primitive, ...]
