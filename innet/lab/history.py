"""What the switch of the lab has got so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from innet.lab.packets import LabChunk

Frames = Mapping[int, Sequence[bytes]]
"""Frames by port."""


@dataclass
class History:
    """The packets that came to a switch.

    Attributes:
        workers: how many take part, at ports 1, 2, ...
        level: 1 to 3.
        before: the packets, in words.
        chunks: what they had; None: they were not of the lab.
        traces: their ways through the program.
        results: sums that are complete, by the chunk's number.
    """

    workers: int
    level: int
    before: list[str] = field(default_factory=list)
    chunks: list[LabChunk | None] = field(default_factory=list)
    traces: list[list[str]] = field(default_factory=list)
    results: dict[int, LabChunk] = field(default_factory=dict)

    def told_of(self, slot: int | None) -> tuple[str, ...]:
        """The packets of a slot, or all, in words."""
        return tuple(
            line
            for line, each in zip(self.before, self.chunks, strict=True)
            if slot is None or each is None or each.slot == slot
        )

    def packets_of(self, number: int) -> list[int]:
        """Which of the packets before had a chunk."""
        return [n for n, each in enumerate(self.chunks) if each and each.number == number]

    def workers_of(self, number: int) -> list[int]:
        """Whose they were, as often as they came."""
        return [each.worker for each in self.chunks if each and each.number == number]

    def repeated(self, number: int, worker: int | None = None) -> int | None:
        """The first packet before that repeated another one of a chunk, perhaps of one worker."""
        known: set[int] = set()
        for packet, each in zip(self.packets_of(number), self.workers_of(number), strict=True):
            if each in known and worker in (None, each):
                return packet
            known.add(each)
        return None

    def late(self, chunk: LabChunk) -> int | None:
        """The first packet before of an earlier chunk that came after this chunk had begun."""
        begun = self.packets_of(chunk.number)[:1]
        for number in range(begun[0], len(self.chunks)) if begun else ():
            each = self.chunks[number]
            if (
                each
                and each[1] < chunk.number
                and (each.slot, each.version) == (chunk.slot, chunk.version)
            ):
                return number
        return None


def listed(what: str, numbers: Sequence[int]) -> str:
    """A word and numbers."""
    numbers = sorted(numbers)
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


__all__ = ["Frames", "History", "listed"]
