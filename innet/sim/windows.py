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
    SHARED_WORDS,
    STATE,
    TRACED,
    Records,
    groups_view,
    host_at,
    int_at,
    ints_view,
    switch_at,
    waiting_at,
)
from innet.sim.switches import next_departure, run_switch
from innet.sim.team import (
    STEALS,
    THREADS,
    begin_window,
    end_part,
    end_windows,
    next_window,
    takes_part,
    wait_for_parts,
)
from innet.switch.traffic_manager import FOREVER

_STATE_WORDS = STATE.itemsize // 8


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


@njit(cache=True, nogil=True)
def _open_window(state: Any, parts: int) -> int:
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
    shared = ints_view(state.states, MANY)
    for part in range(1, parts):
        for word in range(SHARED_WORDS):
            shared[part * _STATE_WORDS + word] = shared[word]
    return 0


@njit(cache=True, nogil=True)
def _run_parts(states: Records, window: int, thread: int) -> None:
    """Run the parts of a window that no thread has begun: one's own, then others', last first.

    Of each part all nodes run the window, or the rest of it where they have stopped.
    """
    team, parts = states[0].team, len(states)
    threads, turns = int_at(team, THREADS // 8), parts + parts * int_at(team, STEALS // 8)
    for turn in range(turns):
        part = turn if turn < parts else turns - 1 - turn
        is_own = part * threads // parts == thread
        if is_own != (turn < parts) or not takes_part(team, part, window):
            continue
        state = states[part]
        order, first = ints_view(state.order, MANY), ints_view(state.first_node, MANY)
        reasons, subjects = ints_view(state.reasons, MANY), ints_view(state.subjects, MANY)
        for at in range(first[part], first[part + 1]):
            node = order[at]
            if reasons[node] == 0:
                continue
            if node < state.switch_count:
                why, which = run_switch(state, node, part)
            else:
                why, which = run_host(state, node - state.switch_count)
            reasons[node], subjects[node] = why, which
        end_part(team)


@njit(cache=True, nogil=True)
def _end_window(states: Records) -> int:
    """End the window if all nodes have done it; NEEDS_PYTHON if not, TRACED if the traces are to be
    taken, or 0.
    """
    state = states[0]
    reasons = ints_view(state.reasons, MANY)
    for node in range(state.switch_count + state.host_count):
        if reasons[node] != 0:
            return NEEDS_PYTHON
    state.is_open = 0
    is_closing, traced = 0, 0
    for part in range(len(states)):
        is_closing |= states[part].is_closing
        traced += states[part].traced_packets
    if is_closing:
        for number in range(state.host_count):
            here = host_at(state, number)
            if here.is_closing:
                here.is_closing = 0
                group = groups_view(state.groups, MANY)[here.group]
                group.open -= 1
                group.finished = max(group.finished, here.finished)
                if group.open == 0:
                    state.completed += 1
    return TRACED if traced > state.trace_limit else 0


@njit(cache=True, nogil=True)
def run(states: Records, most: int, thread: int) -> int:
    """Let time pass until there is something for Python to do.

    Args:
        states: a STATE of each part of the nodes.
        most: windows of this call, after which it returns REACHED.
        thread: 0. Other threads of a team (``innet.sim.team``) have other numbers: they help until
            the first one returns.

    Returns:
        why it returns. For NEEDS_PYTHON, ``reasons`` and ``subjects`` say what nodes need.
    """
    state, parts = states[0], len(states)
    team, window, why, done = state.team, -1, REACHED, 0
    while True:
        # Step 1: a window that is open.
        if thread > 0:
            window = next_window(team, window)
            if window < 0:
                return 0
        else:
            why = _open_window(state, parts) if done < most else REACHED
            if why != 0:
                break
            done += 1
            window = begin_window(team)
        # Step 2: its parts, of which other threads run some.
        _run_parts(states, window, thread)
        # Step 3: its end, when all were run.
        if thread == 0:
            wait_for_parts(team, parts)
            why = _end_window(states)
            if why != 0:
                break
    end_windows(team)
    return why
