"""What has to be placed in stages, and which piece waits for which.

A piece is a register array with all that its stateful ALU does, or one other statement of an
action, or the match of a table. Dependencies are those of Jose et al. (NSDI 2015): what is matched
on or computed with has to come from an earlier stage; a branch may be in the stage of what it
decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from innet.budget import memory
from innet.budget.accesses import Access
from innet.budget.effects import Place, effects, reads
from innet.budget.flow import Flow
from innet.switch import ir


@dataclass(slots=True)
class Piece:
    """``after``: for each piece that this one waits for, how many stages later it is at least.

    ``steps`` are those of the flow whose tables this piece is a part of.
    """

    name: str
    register: int | None = None
    steps: set[int] = field(default_factory=set)
    sram: int = 0
    tcam: int = 0
    after: dict[int, int] = field(default_factory=dict)
    where: str = ""

    def wait(self, piece: int, stages: int) -> None:
        """Be at least ``stages`` after ``piece``."""
        self.after[piece] = max(stages, self.after.get(piece, 0))


@dataclass(frozen=True, slots=True)
class _Use:
    """One statement (or match): which piece it is in, what it reads of others, what it writes."""

    piece: int
    step: int
    before: frozenset[Place]
    after: frozenset[Place]


class Pieces:
    """All of one pipeline. ``list[i]`` is piece i."""

    def __init__(self, program: ir.Program, flow: Flow, found: Sequence[Access]) -> None:
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
        looked: frozenset[Place] = frozenset()
        if node.kind is ir.NodeKind.TABLE:
            table = self.program.tables[node.index]
            looked = reads(self.program, tuple(key.field for key in table.keys))
            piece.sram, piece.tcam = memory.table_blocks(self.program, table)
            if table.counter is not None:
                piece.sram += memory.counter_blocks(self.program.counters[table.counter])
        elif node.kind is ir.NodeKind.CONDITIONAL:
            condition = self.program.conditionals[node.index].condition
            looked = reads(self.program, condition)
            piece.steps = set()  # a gateway, no logical table
        number = self._new(piece)
        self._matches.append(number)
        self._uses.append(_Use(number, step, looked, frozenset()))
        for decider in self.flow.deciders[step]:
            piece.wait(self._matches[decider], 0)

    def _action(self, step: int, action: int, owner: dict[tuple[int, int, int], int]) -> None:
        """Pieces of one action of one step; what they hand to each other inside of it."""
        writer: dict[Place, int] = {}
        for position, statement in enumerate(self.program.actions[action].primitives):
            if isinstance(statement, ir.NoOp | ir.Exit | ir.Jump | ir.LogMessage | ir.Assert):
                continue
            number = self._piece(step, action, position, statement, owner)
            piece = self.list[number]
            piece.steps.add(step)
            if number != self._matches[step]:
                piece.wait(self._matches[step], 0)
            before, after = effects(self.program, statement)
            for place in before:
                if place in writer and writer[place] != number:
                    piece.wait(writer[place], 1)
            outside = frozenset(place for place in before if place not in writer)
            self._uses.append(_Use(number, step, outside, after))
            for place in after:
                writer[place] = number

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
                blocks = memory.register_blocks(array)
                self._registers[register] = self._new(Piece(array.name, register, sram=blocks))
            return self._registers[register]
        piece = Piece(self.flow.title(step))
        if isinstance(statement, ir.Count) and statement.counter not in self._counters:
            self._counters.add(statement.counter)
            piece.sram = memory.counter_blocks(self.program.counters[statement.counter])
        return self._new(piece)

    def _between(self) -> None:
        """What steps hand to later ones."""
        readers: dict[Place, list[_Use]] = defaultdict(list)
        writers: dict[Place, list[_Use]] = defaultdict(list)
        for use in self._uses:
            for place in use.before:
                readers[place].append(use)
            for place in use.after:
                writers[place].append(use)
        for place, writing in writers.items():
            for use in writing:
                later = self.flow.followers[use.step]
                for other in readers[place]:
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
