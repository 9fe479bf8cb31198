"""Places pieces in stages: the first stage that is late enough and has room."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from innet.budget.pieces import Piece, Pieces
from innet.budget.tofino import PIPE

_Table = tuple[str, int]
"""A pipeline's name, and the step that the table is."""


@dataclass(slots=True)
class Stage:
    """What is taken of one stage, by ingress and egress together."""

    registers: list[str] = field(default_factory=list)
    tables: dict[_Table, str] = field(default_factory=dict)
    sram: int = 0
    tcam: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """``stages`` may be more than there are: that is how many it takes. ``depth``: how many
    it would take if each had room without end; ``chain``: the pieces that make it so many.
    ``circular``: pieces that wait for each other.
    """

    stages: tuple[Stage, ...]
    depth: int
    chain: tuple[Piece, ...]
    circular: tuple[Piece, ...]


def place(pipelines: Sequence[Pieces]) -> Placement:
    """Ingress first, then egress, in the same stages.

    What does not fit into a stage on its own (too many blocks) is spread over the next ones.
    """
    stages: list[Stage] = []
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
    """(order, pieces that wait for each other): what most others wait for comes first."""
    followers: list[list[tuple[int, int]]] = [[] for _ in pieces]
    waiting = [len(piece.after) for piece in pieces]
    for number, piece in enumerate(pieces):
        for before, stages in piece.after.items():
            followers[before].append((number, stages))
    plain, left = [i for i, count in enumerate(waiting) if not count], list(waiting)
    for number in plain:
        for each, _ in followers[number]:
            left[each] -= 1
            if not left[each]:
                plain.append(each)
    height = [0] * len(pieces)
    for number in reversed(plain):
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


def _put(stages: list[Stage], piece: Piece, pipeline: str, earliest: int) -> int:
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


def _stage(stages: list[Stage], number: int) -> Stage:
    while len(stages) <= number:
        stages.append(Stage())
    return stages[number]


def _has_numbers(stage: Stage, tables: dict[_Table, str]) -> bool:
    """Each table takes one of the stage's. Those of one array, if they are more than a stage has,
    get one to themselves: that they are too many for its stateful ALU is told elsewhere.
    """
    return len(stage.tables.keys() | tables.keys()) <= max(PIPE.logical_tables, len(tables))


def _has_blocks(stage: Stage, piece: Piece) -> bool:
    """All of a piece has to fit, or as much as a whole stage has where a table is too great."""
    sram, tcam = min(piece.sram, PIPE.sram_blocks), min(piece.tcam, PIPE.tcam_blocks)
    return stage.sram + sram <= PIPE.sram_blocks and stage.tcam + tcam <= PIPE.tcam_blocks


def _fill(stages: list[Stage], number: int, piece: Piece, tables: dict[_Table, str]) -> int:
    """Takes the blocks, of the next stages too, with a table in each; the stage of the last."""
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
    """(stages, pieces) of the longest chain of dependencies, whatever room there is."""
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
