"""hashed.p4 with one or two levels and its server, in a few lines that can be explored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from support.exploring import Job, Part, Result, Sent

SERVER = "server"


class Aggregator(NamedTuple):
    """What a switch holds at one place. ``chunk``: None if it is free."""

    chunk: int | None
    bits: int
    total: int


FREE = Aggregator(None, 0, 0)


class Copy(NamedTuple):
    """What the server holds for one copy of a slot."""

    sequence: int
    bits: int
    closed: bool
    total: int


class Nodes(NamedTuple):
    """Aggregators of the switches, the server, what each worker has: (chunk, who is in it)."""

    aggregators: tuple[tuple[Aggregator, ...], ...]
    server: tuple[Copy, ...]
    received: tuple[tuple[tuple[int, int], ...], ...]
    restarts: int


@dataclass(frozen=True)
class HashedModel(Job[Nodes]):
    """The protocol for some small numbers.

    Args:
        racks: the workers of each switch below the spine; a single one has no spine.
        places: aggregators of a switch; chunk c has the place c mod ``places``.
        looks: the server looks who is in a part before it adds it.
    """

    places: int = 1
    looks: bool = True
    met: set[tuple[int | str, Aggregator | Copy, Part | Result]] = field(
        default_factory=set, compare=False
    )

    @cached_property
    def top(self) -> int:
        """The switch before the server."""
        return len(self.racks) if len(self.racks) > 1 else 0

    def members(self, switch: int) -> int:
        if switch == self.top:
            return self.full_bitmap
        return sum(1 << worker for worker in self.racks[switch])

    def contribution(self, worker: int, chunk: int, again: bool, request: int) -> Part:
        bits = 1 << worker
        return Part(chunk, bits, self.total(chunk, bits), again, request)

    # ---------------------------------------------------------------- a switch and the server

    def add(self, switch: int, held: Aggregator, packet: Part) -> tuple[Aggregator, Part | None]:
        """A part reaches its place; what goes up."""
        matches = held.chunk == packet.chunk
        over = held.chunk is not None and packet.chunk - held.chunk >= 2 * self.window
        if not matches and (packet.again or not (held.chunk is None or over)):
            return held, packet
        if not matches:
            held = Aggregator(packet.chunk, 0, 0)
        reads = held.bits & packet.bits
        if not reads:
            held = held._replace(bits=held.bits | packet.bits, total=held.total + packet.total)
        if packet.again:
            return FREE, packet._replace(bits=held.bits, total=held.total)
        if reads or held.bits != self.members(switch):
            return held, None
        return held, packet._replace(bits=held.bits, total=held.total)

    def serve(self, held: Copy, packet: Part) -> tuple[Copy, Result | None]:
        """A part reaches the server; its answer."""
        if packet.chunk + 1 < held.sequence:
            return held, None
        if packet.chunk + 1 > held.sequence:
            held = Copy(packet.chunk + 1, 0, False, 0)
        known = not packet.bits & ~held.bits
        result = Result(packet.chunk, held.bits, held.total)
        if held.closed:
            return held, result if packet.again or not known else None
        if not held.bits & ~packet.bits and not known:
            held = held._replace(bits=packet.bits, total=packet.total)
        elif not held.bits & packet.bits or not (known or self.looks):
            held = held._replace(bits=held.bits | packet.bits, total=held.total + packet.total)
        if held.bits != self.full_bitmap and packet.request < 2:
            return held, None
        return held._replace(closed=True), Result(packet.chunk, held.bits, held.total)

    # ---------------------------------------------------------------- all that can happen

    def start(self) -> Nodes:
        switches = ((FREE,) * self.places,) * (self.top + 1)
        copies = (Copy(0, 0, False, 0),) * (2 * self.window)
        return Nodes(switches, copies, ((),) * self.workers, 0)

    def steps(self, nodes: Nodes, packets: frozenset[Sent]) -> Iterator[tuple[Nodes, list[Sent]]]:
        for switch, rack in enumerate(self.racks):
            for worker in rack:
                for chunk in self.sent(nodes.received[worker]):
                    for again, request in [(False, 0), (True, 0), (True, 2)][: 2 + self.partial]:
                        packet = self.contribution(worker, chunk, again, request)
                        yield self.arrives(nodes, switch, packet)
        for to, what in packets:
            if isinstance(to, tuple):
                after = self.takes(nodes, to[0], what)
                if after is not None:
                    yield after, []
            else:
                yield self.arrives(nodes, to, what)
        if nodes.restarts < self.restarts:
            for place in range(self.top + 1):
                switches = list(nodes.aggregators)
                switches[place] = self.start().aggregators[0]
                yield nodes._replace(aggregators=tuple(switches), restarts=nodes.restarts + 1), []

    def arrives(
        self, nodes: Nodes, to: int | str, packet: Part | Result
    ) -> tuple[Nodes, list[Sent]]:
        """A packet reaches a switch or the server; what is then held, and sent."""
        if to == SERVER:
            return self.at_server(nodes, packet)
        place = packet.chunk % self.places
        row = nodes.aggregators[to]
        self.met.add((to, row[place], packet))
        below: list[Sent] = []
        if isinstance(packet, Result):
            held = FREE if row[place].chunk == packet.chunk else row[place]
            down = range(len(self.racks)) if to == self.top != 0 else ()
            below = [Sent(switch, packet) for switch in down] or [
                Sent((worker,), packet) for worker in self.racks[to]
            ]
        else:
            held, up = self.add(to, row[place], packet)
            if up is not None:
                below = [Sent(SERVER if to == self.top else self.top, up)]
        if held != row[place]:
            switches = list(nodes.aggregators)
            switches[to] = (*row[:place], held, *row[place + 1 :])
            nodes = nodes._replace(aggregators=tuple(switches))
        return nodes, below

    def at_server(self, nodes: Nodes, packet: Part) -> tuple[Nodes, list[Sent]]:
        place = self.place(packet.chunk)
        self.met.add((SERVER, nodes.server[place], packet))
        held, answer = self.serve(nodes.server[place], packet)
        server = (*nodes.server[:place], held, *nodes.server[place + 1 :])
        # Whoever it is for: what one worker is told, all were, when the chunk was closed.
        sent = [] if answer is None else [Sent(self.top, answer)]
        return nodes._replace(server=server), sent

    def finishes(self, nodes: Nodes) -> bool:
        moved = True
        while moved:
            before = nodes
            for switch, rack in enumerate(self.racks):
                for worker in rack:
                    for chunk in self.sent(nodes.received[worker]):
                        if chunk not in dict(nodes.received[worker]):
                            packet = self.contribution(worker, chunk, True, 0)
                            nodes = self.deliver(nodes, switch, packet)
            moved = nodes != before
        return all(len(own) == self.chunks for own in nodes.received)
