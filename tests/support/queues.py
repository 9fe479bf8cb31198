"""Egress queues, driven by lines: the traffic manager, and BMv2's rules written down naively.

    new PRIORITIES            start anew, at time 0
    push PORT PRIORITY        a packet (numbered from 0): 1 taken, 0 dropped; and how many waited
    until TIME                who leaves until then, and when: port:packet:time ...
    depth N PORT PRIORITY     of one queue; priority -1: of all of the port; port -1: of all
    rate N PORT PRIORITY      likewise, packets per second

Times are nanoseconds. What leaves is listed by port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from innet.switch.traffic_manager import (
    DEPTH,
    PORTS,
    QUEUE_WORDS,
    TrafficManager,
    admit,
    withdraw,
)

SendBatch = tuple[int, int, int]
"""(port, packet, time)"""


class Driven:
    """Runs lines of commands on egress queues; subclasses implement each command."""

    def run(self, lines: Iterable[str]) -> list[str]:
        """An answer for each line."""
        return [self._line(*line.split()) for line in lines]

    def _line(self, name: str, *words: str) -> str:
        numbers = [int(word) for word in words]
        if name == "new":
            self.start(*numbers)
        elif name == "push":
            return " ".join(str(int(each)) for each in self.push(*numbers))
        elif name == "until":
            left = sorted(self.until(*numbers), key=lambda each: each[0])
            return " ".join(f"{port}:{packet}:{time}" for port, packet, time in left)
        else:
            value, port, priority = numbers
            where = [each for each in (port, priority) if each >= 0]
            (self.set_depth if name == "depth" else self.set_rate)(value, *where)
        return ""

    def start(self, priorities: int) -> None:
        raise NotImplementedError

    def push(self, port: int, priority: int) -> tuple[bool, int]:
        raise NotImplementedError

    def until(self, time: int) -> list[SendBatch]:
        raise NotImplementedError

    def set_depth(self, depth: int, port: int | None = None, priority: int | None = None) -> None:
        raise NotImplementedError

    def set_rate(self, rate: int, port: int | None = None, priority: int | None = None) -> None:
        raise NotImplementedError


class ManagedQueues(Driven):
    """``TrafficManager``; packets wait in a heap, as an engine lets them wait."""

    def __init__(self, admit=admit, withdraw=withdraw) -> None:
        self.admit, self.withdraw = admit, withdraw

    def start(self, priorities: int) -> None:
        self.manager = TrafficManager(priorities)
        self.waiting: list[tuple[int, int, int, int]] = []
        self.packets = 0

    def push(self, port: int, priority: int) -> tuple[bool, int]:
        manager, packet = self.manager, self.packets
        self.packets += 1
        queue = (port * manager.priorities + priority) * QUEUE_WORDS
        depth = int(manager.queues[queue + DEPTH])
        departure = int(self.admit(manager.queues, queue, manager.now, 100))
        if departure < 0:
            return False, depth
        heappush(self.waiting, (departure, -priority, packet, port))
        return True, depth

    def until(self, time: int) -> list[SendBatch]:
        manager, left = self.manager, []
        while self.waiting and self.waiting[0][0] <= time:
            departure, priority, packet, port = heappop(self.waiting)
            queue = (port * manager.priorities - priority) * QUEUE_WORDS
            self.withdraw(manager.queues, queue, departure, 100)
            left.append((port, packet, departure))
        manager.now = time
        return left

    def set_depth(self, depth: int, port: int | None = None, priority: int | None = None) -> None:
        self.manager.set_depth(depth, port, priority)

    def set_rate(self, rate: int, port: int | None = None, priority: int | None = None) -> None:
        self.manager.set_rate(rate, port, priority)


@dataclass
class _Queue:
    capacity: int
    rate: int
    last: int
    waiting: list[tuple[int, int]]


class NaiveQueues(Driven):
    """BMv2's ``QueueingLogicPriRL``: queues of a port are made when the port is first named."""

    def start(self, priorities: int) -> None:
        self.priorities = priorities
        self.now, self.packets, self.capacity, self.rate = 0, 0, 64, 0
        self.ports: dict[int, list[_Queue]] = {}

    def _port(self, port: int) -> list[_Queue]:
        if port not in self.ports:
            self.ports[port] = [
                _Queue(self.capacity, self.rate, self.now, []) for _ in range(self.priorities)
            ]
        return self.ports[port]

    def _chosen(self, port: int | None, priority: int | None) -> list[_Queue]:
        if port is None:
            return [queue for queues in self.ports.values() for queue in queues]
        return self._port(port) if priority is None else [self._port(port)[priority]]

    def push(self, port: int, priority: int) -> tuple[bool, int]:
        queue, packet = self._port(port)[priority], self.packets
        self.packets += 1
        depth = len(queue.waiting)
        if depth >= queue.capacity:
            return False, depth
        queue.last = max(self.now, queue.last + (int(1e9 / queue.rate) if queue.rate else 0))
        queue.waiting.append((queue.last, packet))
        return True, depth

    def until(self, time: int) -> list[SendBatch]:
        left = []
        for port, queues in self.ports.items():
            for when in sorted({at for queue in queues for at, _ in queue.waiting if at <= time}):
                for queue in reversed(queues):
                    left += [(port, packet, at) for at, packet in queue.waiting if at == when]
                    queue.waiting = [each for each in queue.waiting if each[0] != when]
        self.now = time
        return left

    def set_depth(self, depth: int, port: int | None = None, priority: int | None = None) -> None:
        for queue in self._chosen(port, priority):
            queue.capacity = depth
        if port is None:
            self.capacity = depth

    def set_rate(self, rate: int, port: int | None = None, priority: int | None = None) -> None:
        for queue in self._chosen(port, priority):
            queue.rate = rate
        if port is None:
            self.rate = rate


# ── What is recorded ──

RATES = [0, 1, 2, 3, 7, 10, 49, 1000, 1023, 10_007, 10**6, 10**6 + 3, 10**9, 10**9 + 1, 2**63 - 1]
DEPTHS = [0, 1, 2, 3, 5, 64, 2**31 - 1]
_PORTS = [0, 1, 2, 5, PORTS - 2]


def some_lines(seed: int, count: int) -> Iterator[str]:
    """Lines by chance, beginning with ``new``."""
    rng = np.random.default_rng(seed)
    priorities = int(rng.choice([1, 2, 3, 8, 32]))
    yield f"new {priorities}"
    now, pace = 0, int(10 ** rng.integers(2, 10))
    for _ in range(count):
        port, priority = int(rng.choice(_PORTS)), int(rng.integers(priorities))
        kind = rng.random()
        if kind < 0.65:
            yield f"push {port} {priority}"
        elif kind < 0.85:
            now += int(rng.integers(pace))
            yield f"until {now}"
        else:
            port, priority = ((-1, -1), (port, -1), (port, priority))[int(rng.integers(3))]
            if kind < 0.9:
                yield f"depth {rng.choice(DEPTHS)} {port} {priority}"
            else:
                yield f"rate {rng.choice(RATES)} {port} {priority}"
    yield f"until {now + 10**12}"
