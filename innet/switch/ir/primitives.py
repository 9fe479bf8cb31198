"""What an action (or a parser state) does, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch.ir.expressions import (
    BoolExpression,
    DataExpression,
    FieldRef,
    HeaderExpression,
    HeaderField,
    LValue,
    UnionExpression,
)


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
