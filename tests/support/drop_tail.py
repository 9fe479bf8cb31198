"""A network of store-and-forward links with drop-tail queues, as plainly as it can be written.

Whole picoseconds, a heap of events, a list of packets for each queue. It says what ns-3 and innet
have to answer for flows of UDP packets, and which rule decides where they differ:

* A packet is sent, and is on the wire for its bits. Its last bit arrives ``delay`` later. Then the
  next node of its path sends it, at once.
* Before a link that is busy, ``queue`` packets may wait beside the one on the wire. One more is
  dropped.
* A packet leaves the queue when the last bit of the one before is on the wire.
* What happens at equal times is a rule of its own, see ``Ties``; so is how a packet's time on the
  wire is rounded to picoseconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from enum import Enum

from support.flow_scenarios import SECOND, Outcome, Scenario, wire_bytes


class Ties(Enum):
    """The order of events at the same picosecond."""

    AS_MADE = "as made"
    """In the order in which they were made, as in ns-3: a packet's first bit on the wire makes the
    event of its last bit on the wire, then that of its arrival at the other end."""
    ARRIVALS_FIRST = "arrivals first"
    """As innet: by link, then by number. What arrives finds the queue as it was before; and of what
    arrives at a link that is idle, the first is still in the queue when the next one comes."""
    DEPARTURES_FIRST = "departures first"
    """What arrives finds the queue as it is after; by link, then by number."""


class Rounding(Enum):
    """Of a packet's time on the wire to picoseconds."""

    NEAREST = "nearest"
    """As ns-3."""
    UP = "up"
    """As innet: never sooner than the link's rate allows."""


def wire_time(size: int, rate: int, rounding: Rounding) -> int:
    """Picoseconds on the wire of a UDP packet of ``size`` payload bytes."""
    bits = 8 * wire_bytes(size) * SECOND
    return -(-bits // rate) if rounding is Rounding.UP else (2 * bits + rate) // (2 * rate)


_SEND, _SENT, _ARRIVES = range(3)


def simulate(
    scenario: Scenario,
    *,
    ties: Ties = Ties.AS_MADE,
    rounding: Rounding = Rounding.NEAREST,
) -> list[Outcome]:
    """What becomes of each flow's packets."""
    links, flows = scenario.links, scenario.flows
    outcomes = [Outcome([None] * len(flow.times)) for flow in flows]
    waiting: list[deque[tuple[int, int, int]]] = [deque() for _ in links]
    busy = [False] * len(links)
    sent = [0] * len(links)
    events: list[tuple[int, tuple[int, ...], int, tuple[int, int, int]]] = []
    made = 0

    def make(time: int, kind: int, link: int, number: int, packet: tuple[int, int, int]) -> None:
        nonlocal made
        made += 1
        order: tuple[int, ...] = (made,)
        if ties is not Ties.AS_MADE:
            departs_late = ties is Ties.ARRIVALS_FIRST
            order = ((kind == _SENT) is departs_late, link, number, made)
        heapq.heappush(events, (time, order, kind, packet))

    def transmit(now: int, packet: tuple[int, int, int]) -> None:
        flow, _, hop = packet
        link = flows[flow].path[hop]
        took = wire_time(flows[flow].size, links[link].rate, rounding)
        busy[link] = True
        sent[link] += 1
        make(now + took, _SENT, link, sent[link], packet)
        make(now + took + links[link].delay, _ARRIVES, link, sent[link], packet)

    def queue(now: int, packet: tuple[int, int, int]) -> None:
        flow, number, hop = packet
        link = flows[flow].path[hop]
        if not busy[link] and ties is not Ties.ARRIVALS_FIRST:
            transmit(now, packet)
        elif len(waiting[link]) < links[link].queue:
            waiting[link].append(packet)
            if not busy[link]:
                busy[link] = True
                make(now, _SENT, link, sent[link], packet)
        else:
            outcomes[flow].dropped_at[number] = link

    for flow, given in enumerate(flows):
        make(given.times[0], _SEND, given.path[0], 0, (flow, 0, 0))
    while events:
        now, _, kind, packet = heapq.heappop(events)
        flow, number, hop = packet
        given = flows[flow]
        if kind == _SEND:
            queue(now, packet)
            if number + 1 < len(given.times):
                make(
                    given.times[number + 1], _SEND, given.path[0], number + 1, (flow, number + 1, 0)
                )
        elif kind == _SENT:
            link = given.path[hop]
            busy[link] = False
            if waiting[link]:
                transmit(now, waiting[link].popleft())
        elif hop + 1 < len(given.path):
            queue(now, (flow, number, hop + 1))
        else:
            outcomes[flow].delays[number] = now - given.times[number]
    return outcomes
