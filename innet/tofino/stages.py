"""The stages of a pipe: memory blocks, dependencies, and where each piece is placed."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from innet.switch import ir
from innet.tofino.accesses import ControlFlow, Location, RegisterAccess, effects, reads
from innet.tofino.report import PIPE

_ENTRY_OVERHEAD = 16  # bits: the action, the next table, versions while entries change


def register_blocks(register: ir.RegisterArray) -> int:
    """SRAM blocks of a register array; cells are padded to 8, 16, 32 or 64 bits."""
    width = next((each for each in (8, 16, 32, 64) if register.width <= each), register.width)
    return max(1, -(-register.size * width // PIPE.sram_bits))


def counter_blocks(counter: ir.CounterArray) -> int:
    """SRAM blocks of a counter array: packets and bytes, 64 bits each."""
    return max(1, -(-counter.size * 128 // PIPE.sram_bits))


def table_blocks(program: ir.Program, table: ir.Table) -> tuple[int, int]:
    """(SRAM, TCAM) blocks of a table; (0, 0) for a table without a key."""
    if not table.keys:
        return 0, 0
    key = sum(each.width for each in table.keys)
    data = max(
        (sum(p.width for p in program.actions[action].parameters) for action in table.actions),
        default=0,
    )
    entries = len(table.entries) if table.immutable else table.max_size
    if table.match is ir.MatchKind.EXACT:
        return _sram(entries, key + data + _ENTRY_OVERHEAD), 0
    columns = -(-key // PIPE.tcam_bits)
    rows = max(1, -(-entries // PIPE.tcam_entries))
    return (_sram(entries, data + _ENTRY_OVERHEAD) if data else 0), columns * rows


def _sram(entries: int, bits: int) -> int:
    """SRAM blocks of entries. One or several entries fill complete words of 128 bits."""
    words = -(-bits // 128) * entries if bits > 128 else -(-entries // (128 // bits))
    return max(1, -(-words // 1024))


# ----------------------------------------------------------------------------
# The pieces to be placed in stages, and their dependencies.
#
# A piece is a register array with everything that its stateful ALU computes, or another statement
# of an action, or the match of a table. Dependencies are those of Jose et al. (NSDI 2015): inputs
# of a match or a computation must come from an earlier stage. A branch may be in the same stage as
# the pieces that depend on it.


@dataclass(slots=True)
class Piece:
    """A unit of placement.

    ``after``: for each piece that this one depends on, the least distance in stages.
    ``steps``: the steps of the flow whose tables this piece is a part of.
    """

    name: str
    register: int | None = None
    steps: set[int] = field(default_factory=set)
    sram: int = 0
    tcam: int = 0
    after: dict[int, int] = field(default_factory=dict)
    where: str = ""

    def wait(self, piece: int, stages: int) -> None:
        """Be placed at least ``stages`` stages after ``piece``."""
        self.after[piece] = max(stages, self.after.get(piece, 0))


@dataclass(frozen=True, slots=True)
class _Use:
    """One statement or match: its piece, the fields it reads from others, the fields it writes."""

    piece: int
    step: int
    before: frozenset[Location]
    after: frozenset[Location]


class Pieces:
    """All pieces of one pipeline. ``list[i]`` is piece i."""

    def __init__(
        self, program: ir.Program, flow: ControlFlow, found: Sequence[RegisterAccess]
    ) -> None:
        self.program = program
        self.flow = flow
        self.list: list[Piece] = []
        self._registers: dict[int, int] = {}
        self._counters: set[int] = set()
        self._uses: list[_Use] = []
        self._matches: list[int] = []
        owner = {
            (each.step, each.action, position): each.register
            for each in found
            for position in each.statements
        }
        for step in range(len(flow.nodes)):
            self._match(step)
            for action in flow.actions(step):
                self._action(step, action, owner)
        self._between()

    def _new(self, piece: Piece) -> int:
        self.list.append(piece)
        return len(self.list) - 1

    def _match(self, step: int) -> None:
        node, name = self.flow.nodes[step], self.flow.title(step)
        piece = Piece(name, steps={step})
        looked: frozenset[Location] = frozenset()
        if node.kind is ir.NodeKind.TABLE:
            table = self.program.tables[node.index]
            looked = reads(self.program, tuple(key.field for key in table.keys))
            piece.sram, piece.tcam = table_blocks(self.program, table)
            if table.counter is not None:
                piece.sram += counter_blocks(self.program.counters[table.counter])
        elif node.kind is ir.NodeKind.CONDITIONAL:
            condition = self.program.conditionals[node.index].condition
            looked = reads(self.program, condition)
            piece.steps = set()  # a gateway, no logical table
        number = self._new(piece)
        self._matches.append(number)
        self._uses.append(_Use(number, step, looked, frozenset()))
        for decider in self.flow.control_dependencies[step]:
            piece.wait(self._matches[decider], 0)

    def _action(self, step: int, action: int, owner: dict[tuple[int, int, int], int]) -> None:
        """Pieces of one action of one step, and the dependencies between them."""
        writer: dict[Location, int] = {}
        for position, statement in enumerate(self.program.actions[action].primitives):
            if isinstance(statement, ir.NoOp | ir.Exit | ir.Jump | ir.LogMessage | ir.Assert):
                continue
            number = self._piece(step, action, position, statement, owner)
            piece = self.list[number]
            piece.steps.add(step)
            if number != self._matches[step]:
                piece.wait(self._matches[step], 0)
            before, after = effects(self.program, statement)
            for location in before:
                if location in writer and writer[location] != number:
                    piece.wait(writer[location], 1)
            outside = frozenset(location for location in before if location not in writer)
            self._uses.append(_Use(number, step, outside, after))
            for location in after:
                writer[location] = number

    def _piece(
        self,
        step: int,
        action: int,
        position: int,
        statement: object,
        owner: dict[tuple[int, int, int], int],
    ) -> int:
        register = owner.get((step, action, position))
        if register is not None:
            if register not in self._registers:
                array = self.program.registers[register]
                blocks = register_blocks(array)
                self._registers[register] = self._new(Piece(array.name, register, sram=blocks))
            return self._registers[register]
        piece = Piece(self.flow.title(step))
        if isinstance(statement, ir.Count) and statement.counter not in self._counters:
            self._counters.add(statement.counter)
            piece.sram = counter_blocks(self.program.counters[statement.counter])
        return self._new(piece)

    def _between(self) -> None:
        """Dependencies between steps."""
        readers: dict[Location, list[_Use]] = defaultdict(list)
        writers: dict[Location, list[_Use]] = defaultdict(list)
        for use in self._uses:
            for location in use.before:
                readers[location].append(use)
            for location in use.after:
                writers[location].append(use)
        for location, writing in writers.items():
            for use in writing:
                later = self.flow.followers[use.step]
                for other in readers[location]:
                    if other.step in later:
                        self._order(other.piece, use.piece, 1)
                    elif use.step in self.flow.followers[other.step]:
                        self._order(use.piece, other.piece, 0)
                for other in writing:
                    if other.step in later:
                        self._order(other.piece, use.piece, 1)

    def _order(self, piece: int, before: int, stages: int) -> None:
        if piece != before:
            self.list[piece].wait(before, stages)


# ----------------------------------------------------------------------------
# Placement: each piece goes to the first stage that respects its dependencies and has room.

_Table = tuple[str, int]
"""A pipeline's name, and the step of the table."""


@dataclass(slots=True)
class StageUse:
    """What ingress and egress use of one stage, together."""

    registers: list[str] = field(default_factory=list)
    tables: dict[_Table, str] = field(default_factory=dict)
    sram: int = 0
    tcam: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """``stages``: those that the program needs; they may be more than the pipe has. ``depth``: how
    many it would need with unlimited room in each. ``chain``: the longest chain of dependencies.
    ``circular``: pieces that depend on each other.
    """

    stages: tuple[StageUse, ...]
    depth: int
    chain: tuple[Piece, ...]
    circular: tuple[Piece, ...]


def place(pipelines: Sequence[Pieces]) -> Placement:
    """Place ingress first, then egress, in the same stages.

    A piece that has too many blocks for one stage is spread over the next stages.
    """
    stages: list[StageUse] = []
    depth = 0
    chain: tuple[Piece, ...] = ()
    circular: tuple[Piece, ...] = ()
    for pieces in pipelines:
        order, stuck = _ordered(pieces.list)
        circular = circular or tuple(pieces.list[i] for i in stuck)
        found: dict[int, int] = {}
        for number in order:
            piece = pieces.list[number]
            earliest = max((found[i] + n for i, n in piece.after.items() if i in found), default=0)
            found[number] = _put(stages, piece, pieces.flow.name, earliest)
        levels, longest = _longest(pieces.list, order)
        if levels > depth:
            depth, chain = levels, longest
    return Placement(tuple(stages), depth, chain, circular)


def _ordered(pieces: Sequence[Piece]) -> tuple[list[int], list[int]]:
    """(order, pieces in a cycle). Pieces with the longest chain after them come first."""
    followers: list[list[tuple[int, int]]] = [[] for _ in pieces]
    waiting = [len(piece.after) for piece in pieces]
    for number, piece in enumerate(pieces):
        for before, stages in piece.after.items():
            followers[before].append((number, stages))
    topological, left = [i for i, count in enumerate(waiting) if not count], list(waiting)
    for number in topological:
        for each, _ in followers[number]:
            left[each] -= 1
            if not left[each]:
                topological.append(each)
    height = [0] * len(pieces)
    for number in reversed(topological):
        height[number] = max((height[i] + n for i, n in followers[number]), default=0)
    ready = [(-height[i], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)[1]
        order.append(number)
        for each, _ in followers[number]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, (-height[each], each))
    return order, sorted(set(range(len(pieces))) - set(order))


def _put(stages: list[StageUse], piece: Piece, pipeline: str, earliest: int) -> int:
    tables = {(pipeline, step): piece.name for step in piece.steps}
    number = earliest
    while True:
        stage = _stage(stages, number)
        if (
            (piece.register is None or len(stage.registers) < PIPE.stateful_alus)
            and _has_numbers(stage, tables)
            and _has_blocks(stage, piece)
        ):
            break
        number += 1
    if piece.register is not None:
        stage.registers.append(piece.name)
    return _fill(stages, number, piece, tables)


def _stage(stages: list[StageUse], number: int) -> StageUse:
    while len(stages) <= number:
        stages.append(StageUse())
    return stages[number]


def _has_numbers(stage: StageUse, tables: dict[_Table, str]) -> bool:
    """Whether the stage has enough logical tables. If an array alone needs more than a stage has,
    its tables get a stage to themselves. Another finding then says that they are too many.
    """
    return len(stage.tables.keys() | tables.keys()) <= max(PIPE.logical_tables, len(tables))


def _has_blocks(stage: StageUse, piece: Piece) -> bool:
    """Whether a piece fits, or fills an empty stage if its table is larger than a stage."""
    sram, tcam = min(piece.sram, PIPE.sram_blocks), min(piece.tcam, PIPE.tcam_blocks)
    return stage.sram + sram <= PIPE.sram_blocks and stage.tcam + tcam <= PIPE.tcam_blocks


def _fill(stages: list[StageUse], number: int, piece: Piece, tables: dict[_Table, str]) -> int:
    """Take blocks, also of the next stages, with a table in each; returns the last stage."""
    sram, tcam = piece.sram, piece.tcam
    while True:
        stage = _stage(stages, number)
        if _has_numbers(stage, tables):
            taken = (
                min(sram, PIPE.sram_blocks - stage.sram),
                min(tcam, PIPE.tcam_blocks - stage.tcam),
            )
            stage.sram, stage.tcam = stage.sram + taken[0], stage.tcam + taken[1]
            sram, tcam = sram - taken[0], tcam - taken[1]
            if any(taken) or not (piece.sram or piece.tcam):
                stage.tables = tables | stage.tables
            if not sram and not tcam:
                return number
        number += 1


def _longest(pieces: Sequence[Piece], order: Sequence[int]) -> tuple[int, tuple[Piece, ...]]:
    """(stages, pieces) of the longest chain of dependencies, with unlimited room."""
    level: dict[int, int] = {}
    cause: dict[int, int | None] = {}
    for number in order:
        level[number], cause[number] = 0, None
        for before, stages in pieces[number].after.items():
            if level[before] + stages > level[number]:
                level[number], cause[number] = level[before] + stages, before
    if not level:
        return 0, ()
    at: int | None = max(level, key=lambda i: level[i])
    chain = []
    while at is not None:
        chain.append(pieces[at])
        at = cause[at]
    return max(level.values()) + 1, tuple(reversed(chain))
