"""What the lab's switch should do, as a model in Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from innet.lab.packets import LabChunk, sum_of


@dataclass
class Cell:
    """One version of a slot.

    Attributes:
        number: of the chunk that is summed there, or was last.
        summed: each worker's values.
    """

    number: int = -1
    summed: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def total(self) -> tuple[int, ...]:
        """The sums, as int32 has them."""
        return sum_of(self.summed.values())


@dataclass(frozen=True)
class Due:
    """What should come of a packet.

    Attributes:
        why: "waits" for other workers, the "result" for all, an "answer" to one who has lost it,
            "again" (summed before, and others are missing), "late" (all have the result), or
            "foreign" (it is no chunk).
        workers: to whom the sum goes.
        chunk: the sum; None if nothing should come.
        optional: nothing may come as well.
    """

    why: str
    workers: tuple[int, ...] = ()
    chunk: LabChunk | None = None
    optional: bool = False


class ReferenceSwitch:
    """The switch of level 3, which is right at the others, too.

    Args:
        workers: how many take part.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.cells: dict[tuple[int, int], Cell] = {}

    def take(self, chunk: LabChunk | None) -> Due:
        """A packet comes; None: one that is not of the lab."""
        if chunk is None:
            return Due("foreign")
        cell = self.cells.setdefault((chunk.slot, chunk.version), Cell())
        if chunk.number < cell.number:
            return Due("late")
        if chunk.number > cell.number:
            cell.number, cell.summed = chunk.number, {}
        everyone = tuple(range(self.workers))
        if chunk.worker in cell.summed:
            if len(cell.summed) < self.workers:
                return Due("again")
            # Whoever has sent a later chunk has the result, and needs no answer.
            other = self.cells.get((chunk.slot, 1 - chunk.version), Cell())
            is_past = other.number > chunk.number and chunk.worker in other.summed
            sums = chunk._replace(values=cell.total())
            return Due("answer", (chunk.worker,), sums, optional=is_past)
        cell.summed[chunk.worker] = chunk.values
        if len(cell.summed) < self.workers:
            return Due("waits")
        return Due("result", everyone, chunk._replace(values=cell.total()))


__all__ = ["Cell", "Due", "ReferenceSwitch"]
