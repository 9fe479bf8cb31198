"""Ports with a bit rate under strict priority: the traffic manager, and a naive model beside it.

Both take ``Arrival``s in order of time, and tell which packets were taken and when they leave. The
model serves each line packet by packet, as a scheduler would: it plans nothing ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from innet.switch import traffic_manager
from innet.switch.traffic_manager import MARKED, PRECEDED, TrafficManager


class Arrival(NamedTuple):
    """A packet that comes; ``at_once``: with the one before, as copies of one packet do;
    ``becomes``: the bytes with which it leaves, if not ``length``.
    """

    time: int
    port: int
    priority: int
    length: int
    at_once: bool = False
    becomes: int | None = None


@dataclass(frozen=True)
class Buffers:
    """Limits of queues: packets, bytes, threshold of marks, shared buffer and its alpha."""

    packets: int = 1 << 30
    bytes: int = 1 << 40
    threshold: int = 1 << 40
    shared: int | None = None
    alpha: Fraction = Fraction(1)


class Outcome(NamedTuple):
    """What became of packets: by number the time at which each leaves, and which were marked."""

    left: dict[int, int]
    marked: set[int]


def managed(
    manager: TrafficManager, arrivals: Sequence[Arrival], compiled: Any = traffic_manager
) -> Outcome:
    """The traffic manager's answer; packets wait in a heap, as compiled callers let them wait.

    Args:
        compiled: has ``admit``, ``is_congested``, ``postponement``, ``withdraw`` and ``resize``.
    """
    queues, waiting, outcome = manager.queues, [], Outcome({}, set())

    def leave(limit: int) -> None:
        while waiting and waiting[0][0] <= limit:
            departure, rank, number, queue, length, planned = heappop(waiting)
            later = int(compiled.postponement(queues, queue, planned))
            if later:
                again = (departure + later, rank, number, queue, length, planned + later)
                heappush(waiting, again)
                continue
            compiled.withdraw(queues, queue, departure, length)
            outcome.left[number] = departure
            becomes = arrivals[number].becomes
            if becomes is not None and compiled.resize(queues, queue, length, becomes) < 0:
                waiting[:] = [moved_up(*each) for each in waiting]
                heapify(waiting)

    def moved_up(departure: int, rank: int, number: int, queue: int, length: int, planned: int):
        later = min(0, int(compiled.postponement(queues, queue, planned)))
        return departure + later, rank, number, queue, length, planned + later

    for number, each in enumerate(arrivals):
        if not each.at_once:
            leave(each.time)
        queue = manager.first_word(each.port, each.priority)
        congested = compiled.is_congested(queues, queue)
        departure = int(compiled.admit(queues, queue, each.time, each.length))
        if departure >= 0:
            if congested:
                queues[queue + MARKED] += 1
                outcome.marked.add(number)
            planned = int(queues[queue + PRECEDED])
            heappush(waiting, (departure, -each.priority, number, queue, each.length, planned))
    leave(1 << 61)
    return outcome


@dataclass
class _Line:
    free: int = 0
    queues: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))

    def bytes(self, priority: int) -> int:
        return sum(length for _, _, length in self.queues[priority])


def naive(
    rate: int, ticks: int, priorities: int, buffers: Buffers, arrivals: Sequence[Arrival]
) -> Outcome:
    """The same by a scheduler that looks at every queue each time that a line is free."""
    lines: dict[int, _Line] = defaultdict(_Line)
    outcome = Outcome({}, set())

    def serve(limit: int) -> None:
        for line in lines.values():
            while any(line.queues.values()):
                first = min(time for queue in line.queues.values() for _, time, _ in queue)
                begin = max(line.free, first)
                if begin > limit:
                    break
                chosen = max(
                    priority
                    for priority in range(priorities)
                    if line.queues[priority] and line.queues[priority][0][1] <= begin
                )
                number, _, length = line.queues[chosen].pop(0)
                outcome.left[number] = begin
                if arrivals[number].becomes is not None:
                    length = arrivals[number].becomes
                line.free = begin + ceil(Fraction(8 * ticks * (max(length, 60) + 24), rate))

    for number, each in enumerate(arrivals):
        if not each.at_once:
            serve(each.time)
        line = lines[each.port]
        held, packets = line.bytes(each.priority), len(line.queues[each.priority])
        room = buffers.bytes - held
        if buffers.shared is not None:
            used = sum(one.bytes(priority) for one in lines.values() for priority in one.queues)
            free = buffers.shared - used
            room = min(room, free, int(buffers.alpha * free) - held)
        if packets >= buffers.packets or each.length > room:
            continue
        if held > buffers.threshold:
            outcome.marked.add(number)
        line.queues[each.priority].append((number, each.time, each.length))
    serve(1 << 61)
    return outcome


def some_arrivals(rng: np.random.Generator, count: int, priorities: int) -> list[Arrival]:
    """Packets by chance, some of them at the same time, of three ports."""
    time, found = 0, []
    pace = int(10 ** rng.integers(3, 7))
    for number in range(count):
        at_once = number > 0 and rng.random() < 0.2
        if not at_once and rng.random() < 0.8:
            time += int(rng.integers(pace))
        length = int(rng.choice([0, 1, 59, 60, 61, 64, 330, 1500, 9000]))
        port, priority = int(rng.integers(3)), int(rng.integers(priorities))
        becomes = int(rng.choice([0, 61, 200, 1500, 9000])) if rng.random() < 0.4 else None
        found.append(Arrival(time, port, priority, length, at_once, becomes))
    return found
