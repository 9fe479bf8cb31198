"""The event loop in simulated time, compiled: windows, in which each node runs its own events.

Time passes in windows that are no longer than what any packet needs to its next node. So what a
node does within a window changes nothing that another one does in it, and each node runs its own
events of the window, in order of time, before the next node does (a conservative simulation with
synchronous windows; Lubachevsky, CACM 32(1), 1989).

Events of one node at the same time happen in the order: arrivals by the number of their link,
departures from its queues, a start, a flow's packet, a timer.

``run`` does all that needs neither memory nor a decision, and says what it returns for.
"""

from __future__ import annotations

from typing import Any

from innet.core.numba_cache import njit
from innet.sim.hosts import run_host
from innet.sim.links import next_arrival
from innet.sim.state import (
    DONE,
    IDLE,
    MANY,
    NEEDS_PYTHON,
    NOT_YET,
    REACHED,
    Ints,
    Records,
    groups_view,
    host_at,
    int_at,
    ints_view,
    switch_at,
    waiting_at,
)
from innet.sim.switches import next_departure, run_switch
from innet.switch.traffic_manager import FOREVER


@njit(cache=True, nogil=True)
def _plan(state: Any) -> int:
    """Find out when each node's next event is; returns the time of the first one."""
    nodes = ints_view(state.nodes, MANY)
    first = FOREVER
    for number in range(state.switch_count):
        due = next_departure(state, number)
        if switch_at(state, number).waiting > 0:
            due = min(due, waiting_at(state, number, 0).time)
        for at in range(int_at(state.first_into, number), int_at(state.first_into, number + 1)):
            due = min(due, next_arrival(state, int_at(state.into, at)))
        nodes[number] = due
        first = min(first, due)
    for number in range(state.host_count):
        here = host_at(state, number)
        due = min(here.start, here.flow, here.timer, next_arrival(state, here.down))
        nodes[state.switch_count + number] = due
        first = min(first, due)
    return first


@njit(cache=True, inner=True, nogil=True)
def _open_window(state: Any) -> int:
    """Begin the next window, unless one is open; why there is none, or 0."""
    if state.is_open:
        return 0
    if state.completed > 0:
        return DONE
    first = _plan(state)
    if first >= FOREVER:  # what is paused without end is later
        return IDLE
    if first >= state.limit:
        return REACHED
    state.begin = first
    state.end = min(first + state.lookahead, state.limit)
    state.is_open, state.is_closing = 1, 0
    nodes, reasons = ints_view(state.nodes, MANY), ints_view(state.reasons, MANY)
    for node in range(state.switch_count + state.host_count):
        reasons[node] = NOT_YET if nodes[node] < state.end else 0
    return 0


@njit(cache=True, inner=True, nogil=True)
def _run_share(state: Any, nodes: Ints, share: int) -> None:
    """Run the window of a thread's nodes, or the rest of it where a node has stopped.

    Threads may run different shares at the same time, if there are no traces, and no flows whose
    packets may come to several hosts.
    """
    reasons, subjects = ints_view(state.reasons, MANY), ints_view(state.subjects, MANY)
    for node in nodes:
        if reasons[node] == 0:
            continue
        if node < state.switch_count:
            why, which = run_switch(state, node, share)
        else:
            why, which = run_host(state, node - state.switch_count)
        reasons[node], subjects[node] = why, which


@njit(cache=True, inner=True, nogil=True)
def _end_window(state: Any) -> int:
    """End the window if all nodes have done it; NEEDS_PYTHON if not, or 0."""
    reasons = ints_view(state.reasons, MANY)
    for node in range(state.switch_count + state.host_count):
        if reasons[node] != 0:
            return NEEDS_PYTHON
    state.is_open = 0
    if state.is_closing:
        for number in range(state.host_count):
            here = host_at(state, number)
            if here.is_closing:
                here.is_closing = 0
                group = groups_view(state.groups, MANY)[here.group]
                group.open -= 1
                group.finished = max(group.finished, here.finished)
                if group.open == 0:
                    state.completed += 1
    return 0


@njit(cache=True, nogil=True)
def run(states: Records, nodes: Ints, most: int) -> int:
    """Let time pass until there is something for Python to do.

    Args:
        states: a STATE.
        nodes: all of them.
        most: windows of this call, after which it returns REACHED.

    Returns:
        why it returns. For NEEDS_PYTHON, ``reasons`` and ``subjects`` say what nodes need.
    """
    state = states[0]
    for _ in range(most):
        why = _open_window(state)
        if why != 0:
            return why
        _run_share(state, nodes, 0)
        if _end_window(state) != 0:
            return NEEDS_PYTHON
    return REACHED


@njit(cache=True, nogil=True)
def open_window(states: Records) -> int:
    """The first part of ``run``, for several threads: why there is no window to run, or 0."""
    return _open_window(states[0])


@njit(cache=True, nogil=True)
def run_share(states: Records, nodes: Ints, share: int) -> None:
    """The second part: each thread runs its share of the nodes."""
    _run_share(states[0], nodes, share)


@njit(cache=True, nogil=True)
def end_window(states: Records) -> int:
    """The third part, when all have done: NEEDS_PYTHON, or 0."""
    return _end_window(states[0])
