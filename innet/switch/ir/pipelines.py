"""Ingress and egress: tables, conditionals, and what comes after what."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from innet.switch.ir.calculations import Calculation
from innet.switch.ir.expressions import BoolExpression, FieldRef


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
