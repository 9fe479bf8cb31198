"""The JIT's intermediate form, between a program's IR and emitted source: structured statements.

``lower/`` makes it from ``innet.switch.ir``: jumps and pipeline nodes become ``If`` and
``Dispatch``, action parameters become ``Argument``, operations on headers become operations on
fields. ``lower/vectorize.py`` rolls runs of like statements into ``Loop``. ``analysis.py`` asks
which fields matter. ``emit/`` writes it as Python.

Expressions are those of ``innet.switch.ir`` without ``Local`` and without anything that is found at
run time, and with the few below. All nodes are immutable and compare by structure, which is what
recognizing a run rests on.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch import ir

#: Stands for the position of a header's first byte where a field's number is expected.
START = -2
#: Stands for the present width of a header's varbit field, in bits.
WIDTH = -3
#: No position in ``data`` and no width of a varbit field is greater, in bits.
LAST_BIT = 1 << 48

# ── Expressions beyond those of the program ──────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Argument:
    """The words from column ``column`` on of the action data of the row that ``table`` matched.

    ``low`` .. ``high`` is its range.
    """

    table: int
    column: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class IntVariable:
    """A variable of the emitted function that is no field; ``low`` .. ``high`` is its range."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Lane:
    """In a ``Loop``: field ``first + stride * k`` of a header, k being the loop's variable."""

    header: int
    first: int
    stride: int

    def fields(self, count: int) -> list[ir.FieldRef]:
        """The field of each of ``count`` repetitions."""
        return [ir.FieldRef(self.header, self.first + self.stride * k) for k in range(count)]


@dataclass(frozen=True, slots=True)
class Affine:
    """In a ``Loop``: the number ``first + step * k``; ``last`` bounds its range."""

    first: int
    step: int
    last: int


@dataclass(frozen=True, slots=True)
class Peek:
    """``width`` bits that begin ``offset`` bits after the parser's position; bits past the end of
    the packet read as 0.
    """

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class VarbitOffset:
    """Where in ``data`` varbit field ``field`` of ``header`` begins, in bits; -1: it is all 0."""

    header: int
    field: int


@dataclass(frozen=True, slots=True)
class VarbitWidth:
    """How many bits the varbit field of ``header`` has now."""

    header: int


@dataclass(frozen=True, slots=True)
class HashValue:
    """The 64-bit result of a calculation over the fields as they are now."""

    calculation: int


@dataclass(frozen=True, slots=True)
class Hit:
    """The last look-up in ``table`` found an entry (a boolean)."""

    table: int


@dataclass(frozen=True, slots=True)
class EntryIndex:
    """``RuntimeEntry.index`` of the entry that the last look-up in ``table`` hit."""

    table: int


@dataclass(frozen=True, slots=True)
class ActionIs:
    """The matched row of ``table`` names the ``position``-th of its actions (a boolean)."""

    table: int
    position: int


@dataclass(frozen=True, slots=True)
class InValueSet:
    """A member of a parser value set equals the key in ``words`` where ``masks`` have ones (a
    boolean). Words have 64 bits, the lowest comes first.
    """

    value_set: int
    words: tuple[Expression, ...]
    masks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoolVariable:
    """A boolean variable of the emitted function."""

    name: str


Expression = (
    ir.DataExpression
    | ir.BoolExpression
    | Argument
    | IntVariable
    | Lane
    | Affine
    | Peek
    | VarbitOffset
    | VarbitWidth
    | HashValue
    | Hit
    | EntryIndex
    | ActionIs
    | InValueSet
    | BoolVariable
)
Target = ir.FieldRef | Lane | IntVariable | VarbitOffset | VarbitWidth


# ── Statements ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SetInteger:
    """Write an integer to a field (with its wrapping or clamping) or to a variable."""

    target: Target
    value: Expression


@dataclass(frozen=True, slots=True)
class SetValid:
    """Set the validity of a header, and nothing else; ``value`` is a boolean expression."""

    header: int
    value: Expression


@dataclass(frozen=True, slots=True)
class SetBool:
    """Write a boolean variable."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class LoadCell:
    """``register`` advances by ``stride`` for each k in a ``Loop`` (0: it stays)."""

    target: Target
    register: int
    stride: int
    index: Expression


@dataclass(frozen=True, slots=True)
class StoreCell:
    """As ``LoadCell``."""

    register: int
    stride: int
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class CountPacket:
    """One packet and its ingress length to a cell of an indexed counter."""

    counter: int
    index: Expression


@dataclass(frozen=True, slots=True)
class DrawRandom:
    """A random number of ``low`` .. ``high``, both below 2**64 and in this order, to a variable."""

    target: IntVariable
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class MeterPacket:
    """The color of a cell for this packet; out of bounds nothing happens."""

    target: Target
    meter: int
    index: Expression


@dataclass(frozen=True, slots=True)
class If:
    """``condition`` is a boolean expression."""

    condition: Expression
    then: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for k = 0 .. count-1."""

    count: int
    body: Body


@dataclass(frozen=True, slots=True)
class While:
    """``body`` again and again, until ``Leave``."""

    body: Body


@dataclass(frozen=True, slots=True)
class Leave:
    """End the ``While`` around it. Nothing follows in its body."""


@dataclass(frozen=True, slots=True)
class JumpBack:
    """Count a jump back of an action; one too many ends the call with an error.

    ``site`` is its number in ``engine.backward_jumps``.
    """

    site: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """Find the row of ``table`` for the present fields, and count it in the direct counter."""

    table: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run the body of the action that the matched row of ``table`` names.

    ``bodies[i]`` belongs to the i-th of the table's actions.
    """

    table: int
    bodies: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class ExtractHeader:
    """Take a header of fixed size from the packet, or stop the region with PacketTooShort.

    ``checked``: a ``RequireBytes`` before it made sure of the bytes.
    """

    header: int
    checked: bool = False


@dataclass(frozen=True, slots=True)
class ExtractVarbit:
    """Take a header whose varbit field has ``bits`` bits; errors as ``ir.Extract`` says."""

    header: int
    bits: Expression


@dataclass(frozen=True, slots=True)
class RequireBytes:
    """Stop the region with PacketTooShort unless ``bytes`` are left in the packet."""

    bytes: Expression


@dataclass(frozen=True, slots=True)
class SkipBytes:
    """Move the parser's position."""

    bytes: Expression


@dataclass(frozen=True, slots=True)
class ParserError:
    """Stop the region with a parser error."""

    code: Expression


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the region: the parser or the pipeline."""


@dataclass(frozen=True, slots=True)
class Goto:
    """In ``Blocks``: which block runs next (-1: none)."""

    block: int


@dataclass(frozen=True, slots=True)
class Note:
    """In a recording build: a record (``records``) of a kind at a site of the program.

    ``words`` has the number of words of each value; without them each value describes itself.
    """

    kind: int
    site: Expression
    values: tuple[Expression, ...]
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Control flow that nested ``If`` cannot express: blocks that each end in ``Goto``."""

    first: int
    blocks: tuple[tuple[int, Body], ...]


Statement = (
    SetInteger
    | SetValid
    | SetBool
    | LoadCell
    | StoreCell
    | CountPacket
    | DrawRandom
    | MeterPacket
    | If
    | Loop
    | While
    | Leave
    | JumpBack
    | Lookup
    | Dispatch
    | ExtractHeader
    | ExtractVarbit
    | RequireBytes
    | SkipBytes
    | ParserError
    | Stop
    | Goto
    | Blocks
    | Note
)
Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Regions:
    """A whole program: what happens to a packet, in order.

    ``parser`` and ``verify`` run once for a packet, ``ingress`` too; ``egress`` and ``update`` once
    for each copy that leaves.
    """

    parser: Body
    verify: Body
    ingress: Body
    egress: Body
    update: Body

    @property
    def bodies(self) -> tuple[Body, Body, Body, Body, Body]:
        """All of it, in the order of the fields."""
        return (self.parser, self.verify, self.ingress, self.egress, self.update)
