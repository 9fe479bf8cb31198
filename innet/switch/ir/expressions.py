"""What a program computes, and the places that it reads and writes."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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
