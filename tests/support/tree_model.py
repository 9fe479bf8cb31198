"""tree.p4 with two levels, in a few lines that can be explored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from support.exploring import Job, Part, Result, Sent

ROOT = -1  # the leaves are 0, 1, ...


class Slot(NamedTuple):
    """What a switch holds for one copy of a slot.

    ``mode``: 1 nothing is added any more, 2 it is the result, 4 that lacks workers.
    """

    sequence: int
    bits: int
    mode: int
    total: int


EMPTY = Slot(0, 0, 0, 0)


class Nodes(NamedTuple):
    """Slots of the leaves and the root; what each worker has: (chunk, who is in it); restarts."""

    slots: tuple[tuple[Slot, ...], ...]
    received: tuple[tuple[tuple[int, int], ...], ...]
    restarts: int


Answer: TypeAlias = Part | tuple[Result, bool] | None
"""A sum to the switch above; or a result, and whether it is for all below; or nothing."""


@dataclass(frozen=True)
class TreeModel(Job[Nodes]):
    """The protocol for some small numbers.

    Args:
        racks: the workers of each leaf.
        shuts: a root that was asked for what is there adds nothing more.
    """

    shuts: bool = True
    met: set[tuple[int, Slot, Part | Result]] = field(default_factory=set, compare=False)

    def members(self, switch: int) -> int:
        if switch == ROOT:
            return self.full_bitmap
        return sum(1 << worker for worker in self.racks[switch])

    def contribution(self, worker: int, chunk: int, request: int = 0) -> Part:
        return Part(chunk, 1 << worker, self.total(chunk, 1 << worker), request=request)

    # ---------------------------------------------------------------- a switch

    def arrive(self, switch: int, slot: Slot, packet: Part | Result) -> tuple[Slot, Answer]:
        """A packet reaches the slot that its chunk belongs to."""
        if packet.chunk + 1 < slot.sequence:
            return slot, None
        if isinstance(packet, Result):
            mode = 3 if packet.bits == self.full_bitmap else 7
            return Slot(packet.chunk + 1, packet.bits, mode, packet.total), (packet, True)
        if packet.chunk + 1 > slot.sequence:
            slot = EMPTY._replace(sequence=packet.chunk + 1)
        shut = slot.mode & 1
        reads = shut or slot.bits & packet.bits
        if not reads:
            slot = slot._replace(bits=slot.bits | packet.bits, total=slot.total + packet.total)
        if packet.request > (switch == ROOT) and (self.shuts or switch != ROOT):
            slot = slot._replace(mode=slot.mode | 1)
        missing = slot.bits & self.members(switch) != self.members(switch)
        asked = packet.request == 2 and not self.shuts
        if missing and not slot.mode & 1 and not asked:
            return slot, None
        if switch != ROOT and not slot.mode & 2:
            return slot, Part(slot.sequence - 1, slot.bits, slot.total, request=packet.request)
        first = not reads or (switch == ROOT and missing and not shut)
        return slot, (Result(slot.sequence - 1, slot.bits, slot.total), first)

    # ---------------------------------------------------------------- all that can happen

    def start(self) -> Nodes:
        slots = (EMPTY,) * (2 * self.window)
        return Nodes((slots,) * (len(self.racks) + 1), ((),) * self.workers, 0)

    def steps(self, nodes: Nodes, packets: frozenset[Sent]) -> Iterator[tuple[Nodes, list[Sent]]]:
        for leaf, rack in enumerate(self.racks):
            for worker in rack:
                for chunk in self.sent(nodes.received[worker]):
                    for request in (0, 1, 2) if self.partial else (0,):
                        packet = self.contribution(worker, chunk, request)
                        yield self.arrives(nodes, leaf, packet)
        for to, what in packets:
            if isinstance(to, tuple):
                after = self.takes(nodes, to[0], what)
                if after is not None:
                    yield after, []
            else:
                yield self.arrives(nodes, to, what)
        if nodes.restarts < self.restarts:
            for place in range(len(nodes.slots)):
                slots = list(nodes.slots)
                slots[place] = self.start().slots[0]
                yield nodes._replace(slots=tuple(slots), restarts=nodes.restarts + 1), []

    def arrives(self, nodes: Nodes, switch: int, packet: Part | Result) -> tuple[Nodes, list[Sent]]:
        """A packet arrives; what is then held, and sent."""
        place = self.place(packet.chunk)
        held = nodes.slots[switch]
        self.met.add((switch, held[place], packet))
        slot, answer = self.arrive(switch, held[place], packet)
        if slot != held[place]:
            slots = list(nodes.slots)
            slots[switch] = (*held[:place], slot, *held[place + 1 :])
            nodes = nodes._replace(slots=tuple(slots))
        if answer is None:
            return nodes, []
        if isinstance(answer, Part):
            # A request that no switch above grants is none.
            return nodes, [Sent(ROOT, answer._replace(request=2 * (answer.request == 2)))]
        result, _ = answer
        if switch == ROOT:
            # Whoever it is for: what one of the leaves is told, all were, when it was made.
            return nodes, [Sent(leaf, result) for leaf in range(len(self.racks))]
        return nodes, [Sent((worker,), result) for worker in self.racks[switch]]

    def finishes(self, nodes: Nodes) -> bool:
        moved = True
        while moved:
            before = nodes
            for leaf, rack in enumerate(self.racks):
                for worker in rack:
                    for chunk in self.sent(nodes.received[worker]):
                        if chunk not in dict(nodes.received[worker]):
                            nodes = self.deliver(nodes, leaf, self.contribution(worker, chunk))
            moved = nodes != before
        return all(len(own) == self.chunks for own in nodes.received)
