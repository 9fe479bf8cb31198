"""harvest.p4 with several passes for each packet, in a few lines that can be explored.

Every pass is a step of its own: between two passes of a packet anything may happen, and a packet
may be lost inside of the switch as well as outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from support.exploring import Job, Result, Sent, WrongSumError

SWITCH = -1


class Cell(NamedTuple):
    """What the switch holds of one part of one copy of a slot.

    ``marks``: whose values, of which part, have made a sum that left int32, as far as is known.
    """

    sequence: int
    bits: int
    closed: bool
    total: int
    marks: int


EMPTY = Cell(0, 0, False, 0, 0)


class Forth(NamedTuple):
    """A packet whose values of parts before ``part`` are taken.

    ``result_bitmap``: the workers in the result.
    """

    worker: int
    chunk: int
    part: int = 0
    request: bool = False
    late: bool = False
    closer: bool = False
    result_bitmap: int = 0
    marks: int = 0


class Back(NamedTuple):
    """A result with the words of all parts behind ``part``, of which half are there if ``second``.

    ``right``: all words so far are those of a sum over the workers in ``result_bitmap``.
    """

    worker: int
    chunk: int
    part: int
    second: bool
    result_bitmap: int
    to_all: bool
    right: bool


Inside: TypeAlias = Forth | Back


class Nodes(NamedTuple):
    """The switch's cells by copy of a slot and part; what workers have received; restarts."""

    cells: tuple[tuple[Cell, ...], ...]
    received: tuple[tuple[tuple[int, int], ...], ...]
    restarts: int


@dataclass(frozen=True)
class HarvestModel(Job[Nodes]):
    """The protocol for some small numbers.

    Args:
        parts: of a packet, each of which takes a pass.
        looks: a packet on its way back gives up where it does not find who is in the result.
        decides: who may join is decided in the first part alone.
    """

    parts: int = 3
    looks: bool = True
    decides: bool = True

    def mark(self, worker: int, part: int) -> int:
        return 1 << worker * self.parts + part

    # ---------------------------------------------------------------- the switch, a pass at a time

    def step(self, cell: Cell, packet: Inside) -> tuple[Cell, Inside | Result | None]:
        """One pass: what is then held, and what becomes of the packet."""
        if isinstance(packet, Back):
            return cell, self.back(cell, packet)
        return self.forth(cell, packet)

    def forth(self, cell: Cell, packet: Forth) -> tuple[Cell, Forth | Back | None]:
        bit, sequence, first = 1 << packet.worker, packet.chunk + 1, packet.part == 0
        reads = packet.late
        if packet.late:
            if cell.sequence != sequence or cell.bits != packet.result_bitmap:
                return cell, None
        else:
            if sequence < cell.sequence:
                return cell, None
            if sequence > cell.sequence:
                cell = EMPTY._replace(sequence=sequence)
            was_closed, seen = cell.closed, bool(cell.bits & bit)
            reads = was_closed or seen
            if not reads:
                total = cell.total + self.total(packet.chunk, bit)
                own = self.mark(packet.worker, packet.part)
                cell = cell._replace(bits=cell.bits | bit, total=total, marks=cell.marks | own)
            if packet.request and (first or not self.decides):
                cell = cell._replace(closed=True)
            if first:
                partial = cell.closed and cell.bits != self.full_bitmap
                packet = packet._replace(
                    late=partial and was_closed and not seen,
                    closer=partial and not was_closed,
                    result_bitmap=cell.bits if partial else self.full_bitmap,
                )
        packet = packet._replace(marks=packet.marks | cell.marks)
        cell = cell._replace(marks=packet.marks)
        if packet.part < self.parts - 1:
            return cell, packet._replace(
                part=packet.part + 1, request=packet.request and not self.decides
            )
        if not packet.late and cell.bits != packet.result_bitmap:
            return cell, None
        self.check_marks(packet)
        return cell, Back(
            packet.worker,
            packet.chunk,
            packet.part,
            second=True,
            result_bitmap=packet.result_bitmap,
            to_all=not reads or packet.closer,
            right=cell.total == self.total(packet.chunk, packet.result_bitmap),
        )

    def back(self, cell: Cell, packet: Back) -> Back | Result | None:
        same = cell.sequence == packet.chunk + 1 and cell.bits == packet.result_bitmap
        if self.looks and not same:
            return None
        right = packet.right and cell.total == self.total(packet.chunk, packet.result_bitmap)
        if not packet.second:
            return packet._replace(second=True, right=right)
        if packet.part:
            return packet._replace(part=packet.part - 1, second=False, right=right)
        total = self.total(packet.chunk, packet.result_bitmap) if right else -1
        return Result(packet.chunk, packet.result_bitmap, total)

    def check_marks(self, packet: Forth) -> None:
        """Whatever left int32 in any part has to be told."""
        for worker in range(self.workers):
            for part in range(self.parts):
                if packet.result_bitmap >> worker & 1 and not packet.marks & self.mark(
                    worker, part
                ):
                    raise WrongSumError(f"{packet} does not tell of worker {worker}, part {part}")

    # ---------------------------------------------------------------- all that can happen

    def start(self) -> Nodes:
        cells = ((EMPTY,) * self.parts,) * (2 * self.window)
        return Nodes(cells, ((),) * self.workers, 0)

    def steps(self, nodes: Nodes, packets: frozenset[Sent]) -> Iterator[tuple[Nodes, list[Sent]]]:
        for worker in range(self.workers):
            for chunk in self.sent(nodes.received[worker]):
                for request in (False, True) if self.partial else (False,):
                    yield self.arrives(nodes, SWITCH, Forth(worker, chunk, request=request))
        for to, what in packets:
            if isinstance(to, tuple):
                after = self.takes(nodes, to[0], what)
                if after is not None:
                    yield after, []
            else:
                yield self.arrives(nodes, to, what)
        if nodes.restarts < self.restarts:
            yield self.start()._replace(received=nodes.received, restarts=nodes.restarts + 1), []

    def arrives(self, nodes: Nodes, to: Any, packet: Any) -> tuple[Nodes, list[Sent]]:
        """A pass of a packet; what is then held, and sent."""
        place = self.place(packet.chunk)
        copy = nodes.cells[place]
        cell, further = self.step(copy[packet.part], packet)
        if cell != copy[packet.part]:
            copy = (*copy[: packet.part], cell, *copy[packet.part + 1 :])
            cells = (*nodes.cells[:place], copy, *nodes.cells[place + 1 :])
            nodes = nodes._replace(cells=cells)
        if further is None:
            return nodes, []
        if isinstance(further, Result):
            every = range(self.workers) if packet.to_all else (packet.worker,)
            return nodes, [Sent((worker,), further) for worker in every]
        return nodes, [Sent(to, further)]

    def matter(self, nodes: Nodes, packets: frozenset[Sent]) -> frozenset[Sent]:
        """Not results that nobody waits for; nor, once no switch forgets and nobody goes on without
        others, packets inside of a chunk that all have, or that is older than what the part holds.
        """
        have = [dict(own) for own in nodes.received]
        lasting = nodes.restarts == self.restarts
        kept = []
        for sent in packets:
            what = sent.what
            if isinstance(what, Result):
                useless = what.chunk in have[sent.to[0]]
            else:
                cell = nodes.cells[self.place(what.chunk)][what.part]
                done = not self.partial and all(what.chunk in own for own in have)
                useless = lasting and (done or cell.sequence > what.chunk + 1)
            if not useless:
                kept.append(sent)
        return frozenset(kept)

    def finishes(self, nodes: Nodes) -> bool:
        moved = True
        while moved:
            before = nodes
            for worker in range(self.workers):
                for chunk in self.sent(nodes.received[worker]):
                    if chunk not in dict(nodes.received[worker]):
                        nodes = self.deliver(nodes, SWITCH, Forth(worker, chunk))
            moved = nodes != before
        return all(len(own) == self.chunks for own in nodes.received)
