"""Message graphs, run on arrays in an order of chance, and over ideal links."""

from __future__ import annotations

import heapq

import numpy as np

from innet.sim.network import SECOND


def waiting_for(graph):
    """For each message, those that wait for it."""
    return [graph.dependents[graph.first[i] : graph.first[i + 1]] for i in range(len(graph))]


def run_on_arrays(graph, arrays, seed=0):
    """Let messages start and arrive in any order that the graph allows; changes the arrays.

    A message carries what its source has when it starts. Returns how many messages were delivered.
    """
    rng = np.random.default_rng(seed)
    missing = graph.dependencies.astype(int).copy()
    waiting = waiting_for(graph)
    ready, under_way, delivered = list(np.flatnonzero(missing == 0)), [], 0
    while ready or under_way:
        number = rng.integers(len(ready) + len(under_way))
        if number < len(ready):
            message = ready.pop(number)
            begin = graph.offset[message]
            part = slice(begin, begin + graph.elements[message])
            under_way.append((message, part, arrays[graph.source[message]][part].copy()))
            continue
        message, part, data = under_way.pop(number - len(ready))
        if graph.source[message] != graph.destination[message]:
            target = arrays[graph.destination[message]]
            target[part] = target[part] + data if graph.reduces[message] else data
        delivered += 1
        for later in waiting[message]:
            missing[later] -= 1
            if missing[later] == 0:
                ready.append(later)
    return delivered


def ideal_seconds(graph, rate, latency):
    """When the last message is delivered over links without headers.

    Each host has a link each way, to all others; a message has a link to itself until it is sent,
    in the order of starts, and the receiver's link takes its bits as they come, one message after
    the other.
    """
    missing = graph.dependencies.astype(int).copy()
    waiting = waiting_for(graph)
    hosts = graph.hosts
    out, into = np.zeros(hosts), np.zeros(hosts)
    events, last, done = [], 0.0, 0

    def release(message, now):
        begun = max(now, graph.earliest[message] / SECOND) + graph.delay[message] / SECOND
        heapq.heappush(events, (begun, 0, message))

    for message in np.flatnonzero(missing == 0):
        release(message, 0.0)

    def finished(message, now, at):
        for later in waiting[message]:
            if graph.source[later] == at:
                missing[later] -= 1
                if missing[later] == 0:
                    release(later, now)

    while events:
        now, kind, message = heapq.heappop(events)
        source, target = graph.source[message], graph.destination[message]
        if kind == 0 and source != target:
            first = max(now, out[source])
            out[source] = first + 8 * graph.bytes[message] / rate
            heapq.heappush(events, (first + latency, 1, message))
        elif kind == 1:  # its first bit is at the receiver
            into[target] = max(now, into[target]) + 8 * graph.bytes[message] / rate
            heapq.heappush(events, (into[target], 2, message))
        elif kind <= 2:
            last, done = max(last, now), done + 1
            finished(message, now, target)
            heapq.heappush(events, (now + latency, 3, message))
        elif source != target:
            finished(message, now, source)
    assert done == len(graph)
    return last
