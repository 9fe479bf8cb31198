"""The traffic manager: the queues between ingress and egress, with time passed in.

Each port has ``priorities`` queues. A queue holds at most ``capacity`` packets; a packet that finds
its queue full is dropped. A queue may have a rate in packets per second. The rules are BMv2's
(``QueueingLogicPriRL`` of behavioral-model 1.15): a packet's departure is fixed when it is
enqueued, at the later of now and one interval after the departure before it. Of packets that are
due at the same time, the one of the highest priority leaves first, then the one that was enqueued
first. Ports do not wait for each other.

Time here is in nanoseconds, as in BMv2's queues. Programs see microseconds.

``admit`` and ``withdraw`` are all that happens to a queue. The interpreter calls them; the compiled
engine compiles the same functions into the program (``jit.runtime.queue``). Nothing here waits:
the engines keep the packets, and calls without times pass the queues by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError, InputError
from innet.core.numbers import require_int

#: BMv2's number of packets per queue, unless told otherwise.
DEFAULT_DEPTH = 64
#: BMv2's limit of priorities per port.
MAX_PRIORITIES = 32
#: Queues are made for these ports: egress ports are 9 bits wide.
PORTS = 512
NANOSECONDS = 1_000_000_000  # of a second
MICROSECOND = 1000  # nanoseconds

#: Words of a queue: packets that wait; how many may; nanoseconds between two departures; the last
#: departure, ``NEVER`` before the queue is used; packets dropped because the queue was full.
DEPTH, CAPACITY, INTERVAL, LAST_DEPARTURE, DROPS = range(5)
QUEUE_WORDS = 5
NEVER = -(1 << 62)
#: Later than everything.
FOREVER = 1 << 62


def admit(queues: Any, queue: int, now: int) -> int:
    """Enqueue a packet at time ``now``.

    Args:
        queues: int64, ``QUEUE_WORDS`` for each queue.
        queue: the number of the first of its words.
        now: nanoseconds.

    Returns:
        when the packet leaves, in nanoseconds; -1 if the queue is full and the packet is dropped.
    """
    # BMv2 makes all queues of a port when one is first used, as if a packet had just left each.
    if queues[queue + LAST_DEPARTURE] == NEVER:
        words = len(queues) // PORTS
        first = queue - queue % words
        for word in range(first + LAST_DEPARTURE, first + words, QUEUE_WORDS):
            queues[word] = now
    if queues[queue + DEPTH] >= queues[queue + CAPACITY]:
        queues[queue + DROPS] += 1
        return -1
    queues[queue + DEPTH] += 1
    departure: int = max(now, queues[queue + LAST_DEPARTURE] + queues[queue + INTERVAL])
    queues[queue + LAST_DEPARTURE] = departure
    return departure


def withdraw(queues: Any, queue: int) -> int:
    """Take a packet from its queue; returns how many still wait there."""
    queues[queue + DEPTH] -= 1
    left: int = queues[queue + DEPTH]
    return left


@dataclass(frozen=True, slots=True)
class QueueState:
    """One egress queue.

    Attributes:
        port, priority: which one; the highest priority is served first.
        depth: packets that wait.
        capacity: packets that may wait.
        rate: packets per second; 0 without a limit.
        dropped: packets that found it full.
    """

    port: int
    priority: int
    depth: int
    capacity: int
    rate: int
    dropped: int


class TrafficManager:
    """Capacities, rates and counters of all egress queues.

    Args:
        priorities: queues per port, as ``--priority-queues`` of simple_switch. A packet whose
            ``standard_metadata.priority`` is this or more is dropped.

    Attributes:
        queues: int64, flat: ``QUEUE_WORDS`` words for each queue, by port, then priority. Engines
            read and write it.
        now: nanoseconds: how far calls with times have come.

    Raises:
        InputError: priorities that are no whole number from 1 to ``MAX_PRIORITIES``.
    """

    def __init__(self, priorities: int = 1) -> None:
        self.priorities = require_int(priorities, "the number of priority queues per port")
        if not 1 <= self.priorities <= MAX_PRIORITIES:
            raise InputError(
                f"a switch has 1 to {MAX_PRIORITIES} priority queues per port, not "
                f"{self.priorities}"
            )
        self.queues: NDArray[np.int64] = np.zeros(PORTS * self.priorities * QUEUE_WORDS, np.int64)
        self._cells = self.queues.reshape(PORTS, self.priorities, QUEUE_WORDS)
        self._cells[..., CAPACITY] = DEFAULT_DEPTH
        self._cells[..., LAST_DEPARTURE] = NEVER
        self._rates = np.zeros((PORTS, self.priorities), np.int64)
        self.now = 0

    def set_depth(self, depth: int, port: int | None = None, priority: int | None = None) -> None:
        """Let queues hold ``depth`` packets; those that already wait stay.

        Args:
            depth: packets, 0 or more.
            port: whose queues; all ports without it.
            priority: which queue of the port; all of them without it.

        Raises:
            ControlError: there is no such port or priority, or the depth is negative.
        """
        depth = _number("the depth of a queue", depth)
        self._select(port, priority)[..., CAPACITY] = depth
        self._make(port)

    def set_rate(self, rate: int, port: int | None = None, priority: int | None = None) -> None:
        """Let ``rate`` packets per second leave queues; 0: no limit.

        Packets that already wait keep their departures.

        Raises:
            ControlError: there is no such port or priority, or the rate is negative.
        """
        rate = _number("the rate of a queue", rate)
        cells = self._select(port, priority)
        cells[..., INTERVAL] = int(NANOSECONDS * (1.0 / rate)) if rate else 0
        self._make(port)
        where = (
            slice(None) if port is None else port,
            slice(None) if priority is None else priority,
        )
        self._rates[where] = rate

    def set_interval(self, interval: int, port: int) -> None:
        """Let a packet leave each queue of ``port`` every ``interval`` units of time.

        For callers whose unit is not the nanosecond, and for intervals that no whole number of
        packets per second has.

        Raises:
            ControlError: there is no such port, or the interval is negative.
        """
        interval = _number("the interval of a queue", interval)
        self._select(port, None)[..., INTERVAL] = interval
        self._rates[port] = NANOSECONDS // interval if interval else 0

    def _make(self, port: int | None) -> None:
        """As ``admit`` does, which BMv2 does for commands that name a port, too."""
        if port is not None:
            made = self._cells[port, :, LAST_DEPARTURE]
            made[made == NEVER] = self.now

    def _select(self, port: int | None, priority: int | None) -> NDArray[np.int64]:
        if port is None:
            if priority is not None:
                raise ControlError("the priority of a queue needs a port before it")
            return self._cells
        if not 0 <= _number("a port", port) < PORTS:
            raise ControlError(f"an egress port is 0 to {PORTS - 1}, not {port}")
        if priority is None:
            of_port: NDArray[np.int64] = self._cells[port]
            return of_port
        if not 0 <= _number("a priority", priority) < self.priorities:
            queues = f"{self.priorities} queues" if self.priorities > 1 else "1 queue"
            raise ControlError(
                f"there is no priority {priority}: this switch has {queues} per port; "
                "--priority-queues says how many, and the lowest priority is 0"
            )
        cell: NDArray[np.int64] = self._cells[port, priority]
        return cell

    def first_word(self, port: int, priority: int) -> int:
        """Where in ``queues`` the words of a queue begin."""
        return (min(port, PORTS - 1) * self.priorities + priority) * QUEUE_WORDS

    def clear(self) -> None:
        """Nothing waits any more: whoever held the packets has dropped them."""
        self._cells[..., DEPTH] = 0

    def queue(self, port: int, priority: int = 0) -> QueueState:
        """What is to be known of one queue; ControlError when there is none."""
        cell = self._select(port, priority)
        return QueueState(
            port,
            priority,
            int(cell[DEPTH]),
            int(cell[CAPACITY]),
            int(self._rates[port, priority]),
            int(cell[DROPS]),
        )

    def used_queues(self) -> list[QueueState]:
        """The queues of ports that commands named or calls with times enqueued packets to."""
        used = self._cells[..., LAST_DEPARTURE] != NEVER
        return [self.queue(int(port), int(priority)) for port, priority in np.argwhere(used)]

    @property
    def dropped(self) -> int:
        """Packets dropped because their queue was full."""
        return int(self._cells[..., DROPS].sum())

    def reset_drops(self) -> None:
        """Count dropped packets from 0 again."""
        self._cells[..., DROPS] = 0


def _number(what: str, value: int) -> int:
    number = require_int(value, what, ControlError)
    if not 0 <= number < 1 << 63:
        raise ControlError(f"{what} is 0 to 2**63 - 1, not {number}")
    return number
