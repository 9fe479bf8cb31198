"""Hosts of simulated networks, in compiled code: clients, flows, messages, and those of Python.

A host works on one packet after the other, both ways.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.protocol.compiled import fill_frame, receive_frame
from innet.protocol.counters import Stats
from innet.protocol.timers import (
    PACE_REORDERING,
    PACE_WORDS,
    next_deadline,
    send_again,
    shortest_wait,
    start,
    take_due,
)
from innet.sim import messenger
from innet.sim.links import (
    AT_HOST,
    blocked_by,
    call_control,
    call_entry,
    draw,
    is_message,
    next_arrival,
    ring_room,
    transmit,
    wire_time,
    written,
)
from innet.sim.network import SECOND
from innet.sim.state import (
    CALLED,
    COMPILED,
    FLOW_STREAM,
    HOST_STREAM,
    MANY,
    MESSAGES,
    NEEDS_HOST,
    NEEDS_MESSAGES,
    NEEDS_RING,
    NONE,
    PYTHON,
    SCRIPTED,
    SHORTEST_FRAME,
    STAMP_BYTES,
    STAMP_MARK,
    Records,
    bools_view,
    bytes_view,
    calls_view,
    client_at,
    control_at,
    controls_view,
    copy_bytes,
    count_delay,
    data_at,
    floats_view,
    flow_at,
    frames_view,
    get_number,
    host_at,
    int_at,
    ints_view,
    link_at,
    messenger_at,
    pausing_at,
    put_number,
    rules_view,
    shorts_view,
    signed_view,
    singles_view,
    slot_at,
    states_view,
    value_rows_view,
    words_view,
)
from innet.switch.inline import call_at
from innet.switch.traffic_manager import FOREVER
from innet.wire import WITHOUT_VALUES, HeaderFlag

_QUEUED, _FLAGS, _BARE = int(Stats.QUEUED), int(Stats.FLAGS), int(Stats.BARE)
_NOTES = int(Stats.LENGTH)
_UNDER_WAY = 2  # innet.protocol.slot_client.SlotState.WAITING
_RESEND = int(HeaderFlag.RESEND)
_MEMBER_WORDS, _RULE_WORDS = 7, 7
_BURST = 8
"""Packets of messages that a host gives its link at once, at most."""
_COMES, _TIMER = 0, 1  # what happens to a host with messages
_BACKLOG = 4
"""Full segments that wait at a host's link, at most, before another one is given to it."""


@njit(cache=True, nogil=True)
def _set_timer(state: Any, host: int, time: int) -> None:
    """Let a host's timers be looked at, at ``time`` at the latest."""
    host_at(state, host).timer = min(host_at(state, host).timer, time)


@njit(cache=True, nogil=True)
def _busy(state: Any, host: int, per_packet: int, length: int, now: int) -> int:
    """Let a host work on a packet; returns when it has done."""
    here = host_at(state, host)
    took = per_packet + ((here.byte * length) >> 16)
    here.worked += took
    here.free = max(here.free, now) + took
    if here.jitter == 0:
        return int(here.free)
    late = int(here.jitter * draw(state.seed, host + HOST_STREAM, here.drawn))
    here.drawn += 1
    here.late = max(here.late, here.free + late)
    return int(here.late)


@njit(cache=True, nogil=True)
def _departure(state: Any, host: int, length: int, now: int) -> int:
    """Let a host work on a packet that it sends; returns when its first bit may leave.

    A paced host's packets leave no sooner after each other than their bits take at its pace.
    """
    here = host_at(state, host)
    leaves = _busy(state, host, here.sends, length, now)
    if here.pace > 0:
        leaves = max(leaves, here.paced)
        here.paced = leaves + wire_time(length, here.pace)
    return int(leaves)


# ------------------------------------------------------------------ hosts of Python


@njit(cache=True, nogil=True)
def send_frame(states: Records, host: int, frame: NDArray[np.uint8], length: int, now: int) -> int:
    """Python's host sends a frame as soon as it can; why it cannot at all, or 0.

    It takes the time of ``length`` bytes.
    """
    state = states[0]
    here = host_at(state, host)
    lacks = blocked_by(state, here.up)
    if lacks != 0:
        return int(lacks)
    carried = len(frame)
    leaves = _departure(state, host, length, now)
    row = transmit(state, here.up, length, carried, -1, leaves)
    copy_bytes(data_at(state, row, carried), frame, carried)
    written(state, here.up, row)
    return 0


@njit(cache=True, nogil=True)
def receive_packet(states: Records, host: int, length: int, now: int) -> int:
    """Python's host takes a packet; returns when it has done."""
    return _busy(states[0], host, host_at(states[0], host).receives, length, now)


@njit(cache=True, nogil=True)
def close_host(states: Records, host: int, now: int) -> None:
    """Python's host is done."""
    _close(states[0], host, now)


# ------------------------------------------------------------------ hosts of scripts


@njit(cache=True, nogil=True)
def take_frames(  # noqa: PLR0917 - by position
    states: Records,
    host: int,
    until: int,
    frames: NDArray[np.uint8],
    ends: NDArray[np.int64],
    times: NDArray[np.int64],
) -> int:
    """Take what comes to a SCRIPTED host before ``until``, as far as there is room.

    Packets of flows are counted, as at every host.

    Args:
        states: a STATE.
        host: its number.
        until: picoseconds, not after the end of the window that is open.
        frames: the bytes of the packets, one after the other.
        ends: (n,): where each one ends there.
        times: (n,): when its last bit came; the host has not worked on it yet.

    Returns:
        how many were taken. There may be more if there was no room for a packet.
    """
    state = states[0]
    here = host_at(state, host)
    wire = link_at(state, here.down)
    count = filled = 0
    while next_arrival(state, here.down) < until:
        row = wire.first + (wire.head & wire.mask)
        slot = slot_at(state, row)
        if slot.flow >= 0:
            _arrive(state, row, slot.time)
        elif slot.flow < -1:
            call_control(state, state.switch_count + host, AT_HOST, here.down, row, slot.time)
        else:
            carried = slot.carried
            if count == len(ends) or filled + carried > len(frames):
                break
            copy_bytes(frames[filled:], data_at(state, row, carried), carried)
            filled += carried
            ends[count], times[count] = filled, slot.time
            count += 1
            here.received += 1
            here.bytes += carried
        wire.head += 1
    return count


@njit(cache=True, nogil=True)
def put_frames(  # noqa: PLR0917 - by position
    states: Records,
    host: int,
    frames: NDArray[np.uint8],
    ends: NDArray[np.int64],
    times: NDArray[np.int64],
    first: int,
) -> tuple[int, int]:
    """Put a SCRIPTED host's packets onto its link, from number ``first`` on.

    Args:
        states: a STATE.
        host: its number.
        frames: the bytes of all packets, one after the other.
        ends: (n,): where each one ends there.
        times: (n,): when its first bit may leave; the host's work is over then.
        first: the first that is still to be put.

    Returns:
        which one is next, and why it cannot be put, or 0 if all were.
    """
    state = states[0]
    here = host_at(state, host)
    for at in range(first, len(ends)):
        lacks = blocked_by(state, here.up)
        if lacks != 0:
            return at, lacks
        begin = ends[at - 1] if at > 0 else 0
        carried = ends[at] - begin
        row = transmit(state, here.up, carried, carried, -1, times[at])
        copy_bytes(data_at(state, row, carried), frames[begin:], carried)
        written(state, here.up, row)
        here.sent += 1
    return len(ends), 0


@njit(cache=True, nogil=True)
def draw_late(states: Records, host: int) -> int:
    """By how much a host's next packet is late, picoseconds."""
    state = states[0]
    here = host_at(state, host)
    here.drawn += 1
    return int(here.jitter * draw(state.seed, host + HOST_STREAM, here.drawn - 1))


# ------------------------------------------------------------------ hosts with a function


@njit(cache=True, nogil=True)
def _call_host(state: Any, host: int, row: int, now: int) -> int:
    """Call a CALLED host's function for a packet in a slot, or for none if ``row`` is negative; why
    it cannot be called now, or 0. NEEDS_HOST: it asks for packets that do not exist.
    """
    here = host_at(state, host)
    call = calls_view(here.call, 1)[0]
    if _room(state, host) < call.rows:
        return NEEDS_RING
    call.frame = call.length = 0
    if row >= 0:
        slot = slot_at(state, row)
        call.frame, call.length = state.data + row * state.stride, slot.carried
        now = _busy(state, host, here.receives, slot.length, now)
        here.received += 1
        here.bytes += slot.carried
    call.time, call.sent, call.wake = now, 0, -1
    here.start = here.timer = FOREVER
    call_at(here.entry, here.call)
    lengths = ints_view(call.lengths, call.rows)
    if not 0 <= call.sent <= call.rows:
        return NEEDS_HOST
    for at in range(call.sent):
        if not SHORTEST_FRAME <= lengths[at] <= call.stride:
            return NEEDS_HOST
    for at in range(call.sent):
        length = lengths[at]
        leaves = _departure(state, host, length, now)
        kept = transmit(state, here.up, length, length, -1, leaves)
        copied = bytes_view(call.out + at * call.stride, length)
        copy_bytes(data_at(state, kept, length), copied, length)
        written(state, here.up, kept)
        here.sent += 1
    if call.wake >= 0:
        here.timer = max(call.wake, now + 1)
    elif call.wake == -2 and here.is_open:
        _close(state, host, now)
    return 0


# ------------------------------------------------------------------ clients


@njit(cache=True, nogil=True)
def _room(state: Any, host: int) -> int:
    """How many packets a host can send before memory is needed."""
    wire = link_at(state, host_at(state, host).up)
    room = ring_room(wire)
    if wire.is_traced:
        room = min(room, state.trace_room - state.traced_packets)
    return int(room)


@njit(cache=True, nogil=True)
def _send_chunk(state: Any, host: int, slot: int, flag: int, now: int) -> int:
    """Send the chunk of a slot; returns when it leaves. There must be room."""
    here, client = host_at(state, host), client_at(state, host)
    operation = bytes_view(client.operation, client.chunks)
    chunk, base = ints_view(client.chunk, client.window), int_at(client.member, 4)
    carried, length = here.carried, here.carried + here.extra
    if client.owner_count > 0 and operation[chunk[slot] - base] & WITHOUT_VALUES != 0:
        carried = length = client.head_bytes
        ints_view(client.stats, _NOTES)[_BARE] += 1
    leaves = _departure(state, host, length, now)
    row = transmit(state, here.up, length, carried, -1, leaves)
    fill_frame(
        data_at(state, row, here.carried),
        bytes_view(client.head, client.head_bytes),
        slot,
        flag,
        (chunk, base),
        (
            signed_view(client.words, client.word_count),
            operation,
            shorts_view(client.elements, client.chunks),
            shorts_view(client.owners, client.owner_count),
            singles_view(0, 0),
            floats_view(0, 0),
            signed_view(client.places, client.owner_count),
        ),
    )
    written(state, here.up, row)
    return int(leaves)


@njit(inline="always", nogil=True)
def _timers_of(client: Any) -> Any:
    """A client's ``TimerState``."""
    at, window = client.timers, client.window
    return (
        signed_view(at[0], window),
        floats_view(at[1], window),
        floats_view(at[2], window),
        floats_view(at[3], window),
        floats_view(at[4], window),
        floats_view(at[5], window),
        bools_view(at[6], window),
        floats_view(at[7], PACE_WORDS),
    )


@njit(cache=True, nogil=True)
def _send_queued(state: Any, host: int, now: int) -> None:
    """Send the chunks that a host may send. There must be room."""
    here, client = host_at(state, host), client_at(state, host)
    stats = ints_view(client.stats, _NOTES)
    queued = stats[_QUEUED]
    if queued == 0 or client.held or stats[_FLAGS] & client.halts != 0:
        return
    timers = _timers_of(client)
    chunk, queue = ints_view(client.chunk, client.window), ints_view(client.queue, client.window)
    doing = bytes_view(client.state, client.window)
    leaves = now
    for index in range(queued):
        doing[queue[index]] = _UNDER_WAY
        leaves = _send_chunk(state, host, queue[index], 0, now)
        start(timers, chunk, queue[index : index + 1], leaves / SECOND, client.last)
    stats[_QUEUED] = 0
    here.sent += queued
    here.waiting += queued
    _set_timer(state, host, leaves + int(shortest_wait(timers) * SECOND))


@njit(cache=True, nogil=True)
def _close(state: Any, host: int, now: int) -> None:
    """A host is done. Whether its group is, is found out at the end of the window."""
    here = host_at(state, host)
    here.is_open, here.finished = 0, now
    here.is_closing = state.is_closing = 1


@njit(cache=True, nogil=True)
def _receive(state: Any, host: int, row: int, now: int) -> None:
    """A client takes a packet, and sends what it may send then. There must be room."""
    here, client = host_at(state, host), client_at(state, host)
    carried, window = slot_at(state, row).carried, client.window
    taken = _busy(state, host, here.receives, slot_at(state, row).length, now)
    stats, clock = ints_view(client.stats, _NOTES), floats_view(client.clock, 5)
    clock[0], clock[2], clock[3], clock[4] = taken / SECOND, -1.0, -np.inf, -1.0
    timers = _timers_of(client)
    answers = receive_frame(
        data_at(state, row, carried),
        carried,
        (
            rules_view(client.rules, client.rule_count, _RULE_WORDS),
            ints_view(client.member, _MEMBER_WORDS),
        ),
        (
            (
                ints_view(client.chunk, window),
                bytes_view(client.state, window),
                ints_view(client.queue, window),
            ),
            timers,
        ),
        (
            bytes_view(client.operation, client.chunks),
            shorts_view(client.elements, client.chunks),
            value_rows_view(client.combined, client.chunks, client.values),
            words_view(client.who, client.chunks),
            singles_view(0, 0),
            floats_view(0, 0),
            signed_view(client.places, client.owner_count),
        ),
        (stats, clock),
    )
    here.received += 1
    here.bytes += carried
    here.answers += answers
    here.waiting -= answers
    if answers > 0:
        # A chunk that was overtaken waits less than others.
        soonest = min(shortest_wait(timers), timers[7][PACE_REORDERING])
        _set_timer(state, host, taken + int(soonest * SECOND))
        _send_queued(state, host, taken)
    if here.waiting == 0 and stats[_QUEUED] == 0 and here.is_open:
        _close(state, host, taken)


@njit(cache=True, nogil=True)
def _on_timer(state: Any, host: int, now: int) -> int:
    """A host's timers are looked at: chunks are sent again; why they cannot, or 0."""
    here, client = host_at(state, host), client_at(state, host)
    if not here.is_open:
        here.timer = FOREVER
        return 0
    timers = _timers_of(client)
    deadline = next_deadline(timers)
    seconds = np.nextafter(now / SECOND, np.inf)  # not before the deadline, as floats go
    if deadline <= seconds:
        give_up = np.inf
        for slot in range(client.window):
            give_up = min(give_up, timers[5][slot])
        if give_up <= seconds:
            return NEEDS_HOST
        if _room(state, host) < client.window:
            return NEEDS_RING
        due = take_due(timers, ints_view(client.chunk, client.window), seconds)
        send_again(timers, due, seconds)
        for slot in due:
            _send_chunk(state, host, slot, _RESEND, now)
        here.resent += len(due)
        deadline = next_deadline(timers)
    here.timer = FOREVER
    if deadline < np.inf:
        here.timer = max(now + 1, int(deadline * SECOND) + 1)
    return 0


# ------------------------------------------------------------------ flows


@njit(cache=True, nogil=True)
def _schedule_next(state: Any, number: int) -> None:
    """Set when the next packet of a flow is due, after one was sent."""
    flow = flow_at(state, number)
    flow.left -= 1
    flow.sent += 1
    if flow.left == 0:
        flow.next = FOREVER
    elif flow.at >= 0:
        flow.at += 1
        flow.next = int_at(state.times, flow.at)
    elif flow.is_random:
        wait = -np.log1p(-draw(state.seed, number + FLOW_STREAM, flow.sent)) * flow.interval
        flow.next += max(1, int(wait))
    else:
        flow.next += flow.interval


@njit(cache=True, nogil=True)
def _plan_flows(state: Any, host: int) -> None:
    """Set when the next packet of a host's flows is due."""
    soonest = FOREVER
    for at in range(int_at(state.first_flow, host), int_at(state.first_flow, host + 1)):
        soonest = min(soonest, flow_at(state, int_at(state.host_flows, at)).next)
    host_at(state, host).flow = soonest


@njit(cache=True, nogil=True)
def plan_host_flows(states: Records, host: int) -> None:
    """``_plan_flows`` for Python."""
    _plan_flows(states[0], host)


@njit(cache=True, nogil=True)
def _send_flows(state: Any, host: int, now: int) -> int:
    """Send the packets of flows that are due; why they cannot be sent, or 0."""
    here = host_at(state, host)
    for at in range(int_at(state.first_flow, host), int_at(state.first_flow, host + 1)):
        number = int_at(state.host_flows, at)
        flow = flow_at(state, number)
        if flow.next != now:
            continue
        lacks = blocked_by(state, here.up)
        if lacks != 0:
            return lacks
        if flow.frame >= 0:
            _send_bytes(state, host, number, now)
        else:
            leaves = _departure(state, host, flow.length, now)
            row = transmit(state, here.up, flow.length, 0, number, leaves)
            slot = slot_at(state, row)
            slot.sent, slot.number, slot.host, slot.marked = now, flow.sent, flow.target, 0
            written(state, here.up, row)
        _schedule_next(state, number)
    _plan_flows(state, host)
    return 0


@njit(cache=True, nogil=True)
def _send_bytes(state: Any, host: int, number: int, now: int) -> None:
    """Send the next packet of a flow whose packets run the program. There must be room."""
    here, flow = host_at(state, host), flow_at(state, number)
    which = flow.sent if flow.frames > 1 else 0
    frame = frames_view(state.frames, MANY)[flow.frame + which]
    carried = frame.length
    length = carried + flow.extra
    leaves = _departure(state, host, length, now)
    row = transmit(state, here.up, length, carried, -1, leaves)
    data = data_at(state, row, carried)
    copy_bytes(data, bytes_view(state.frame_data + frame.begin, carried), carried)
    if flow.is_stamped:
        at = carried - STAMP_BYTES
        put_number(data, at, STAMP_MARK, 2)
        put_number(data, at + 2, number, 2)
        put_number(data, at + 4, flow.sent, 4)
        put_number(data, at + 8, now, 8)
    written(state, here.up, row)


@njit(cache=True, nogil=True)
def _count_packet(state: Any, host: int, row: int, now: int) -> None:
    """A packet of the program reaches a host that only counts."""
    here, carried = host_at(state, host), slot_at(state, row).carried
    here.received += 1
    here.bytes += carried
    at = carried - STAMP_BYTES
    if at < 0:
        return
    data = data_at(state, row, carried)
    number, which = get_number(data, at + 2, 2), get_number(data, at + 4, 4)
    if get_number(data, at, 2) != STAMP_MARK or number >= state.flow_count:
        return
    flow, delay = flow_at(state, number), now - get_number(data, at + 8, 8)
    if flow.is_stamped and which < flow.packets and 0 <= delay <= now:
        count_delay(state, number, which, delay)


@njit(cache=True, nogil=True)
def _arrive(state: Any, row: int, now: int) -> None:
    """A packet of a flow reaches its host."""
    slot = slot_at(state, row)
    flow = flow_at(state, slot.flow)
    delay = now - slot.sent
    flow.received += 1
    flow.marked += slot.marked
    flow.delay += delay
    flow.longest = max(flow.longest, delay)
    if flow.log >= 0:
        ints_view(state.log, MANY)[flow.log + slot.number] = delay


# ------------------------------------------------------------------ messages


@njit(cache=True, nogil=True)
def _is_paused(state: Any, link: int) -> bool:
    """Whether priority flow control pauses messages on a link."""
    if state.control == 0:
        return False
    priority = flow_at(state, messenger_at(state).first_flow).priority
    return bool(pausing_at(state, link, priority).is_paused)


@njit(cache=True, nogil=True)
def _messages_blocked_by(state: Any, host: int) -> tuple[int, int]:
    """Why a host cannot handle an event of its messages now, and whom that is about."""
    if messenger.is_short(messenger_at(state), host):
        return NEEDS_MESSAGES, host
    if _room(state, host) < _BURST:
        return NEEDS_RING, host_at(state, host).up
    return 0, 0


@njit(cache=True, nogil=True)
def _receive_message(state: Any, host: int, row: int, now: int) -> tuple[int, int]:
    """A packet of a message comes; why it cannot be handled, and whom that is about."""
    why, which = _messages_blocked_by(state, host)
    if why == 0:
        slot, here = slot_at(state, row), host_at(state, host)
        taken = _busy(state, host, here.receives, slot.length, now)
        m = messenger_at(state)
        messenger.receive(m, host, slot.number, slot.sent, slot.marked != 0, taken)
        _send_messages(state, host, taken)
        if here.is_open and messenger.has_all(m, host):
            _close(state, host, taken)
    return why, which


@njit(cache=True, nogil=True)
def _on_message_timer(state: Any, host: int, now: int) -> tuple[int, int]:
    """A timer event of a host with messages; likewise."""
    why, which = _messages_blocked_by(state, host)
    if why == 0:
        m = messenger_at(state)
        other = messenger.wake(m, host, now)
        if other >= 0:
            there = host_at(state, other)
            there.timer = min(there.timer, messenger.next_event(m, other))
        _send_messages(state, host, now)
        if host_at(state, host).is_open and messenger.has_all(m, host):
            _close(state, host, now)
    return why, which


@njit(cache=True, nogil=True)
def _send_messages(state: Any, host: int, now: int) -> None:
    """Give a host's link what it takes, and set the host's timer. There must be room."""
    here, m = host_at(state, host), messenger_at(state)
    wire = link_at(state, here.up)
    full = wire_time(m.header_bytes + m.payload, wire.rate)
    is_paused = _is_paused(state, here.up)
    for _ in range(_BURST):
        has_room = max(wire.free, here.free, here.paced) <= now + _BACKLOG * full and not is_paused
        length, target, flow, number, sent = messenger.next_packet(m, host, now, has_room)
        if length < 0:
            break
        leaves = _departure(state, host, length, now)
        row = transmit(state, here.up, length, 0, flow, leaves)
        slot = slot_at(state, row)
        slot.sent, slot.number, slot.host, slot.marked = sent, number, target, 0
        written(state, here.up, row)
    here.timer = messenger.next_event(m, host)
    if messenger.may_send(m, host) and not is_paused:
        here.timer = min(here.timer, max(now + 1, max(wire.free, here.free, here.paced) - full))


@njit("i4(i8)", cache=True, nogil=True)
def on_message(address: int) -> int:
    """An event of a host with messages, as its CONTROL says: why it cannot be handled, or 0. Whom
    that is about is left in the place of the link.

    It is called by its address, so that a network without messages need not compile it.
    """
    control = controls_view(address, 1)[0]
    state, host, now = states_view(control.state, 1)[0], control.node, control.now
    if control.what == _COMES:
        why, which = _receive_message(state, host, control.row, now)
    else:
        why, which = _on_message_timer(state, host, now)
    control.link = which
    return int(why)


# ------------------------------------------------------------------ a host's window


@njit(inline="always", nogil=True)
def _on_packet(state: Any, host: int, now: int) -> tuple[int, int]:
    """The first packet of the host's link comes: why it cannot be taken, and whom that is about."""
    here, client = host_at(state, host), client_at(state, host)
    wire = link_at(state, here.down)
    row = wire.first + (wire.head & wire.mask)
    slot = slot_at(state, row)
    if is_message(state, slot):
        if here.kind == MESSAGES:  # otherwise its graph is over
            why = call_entry(
                state, state.on_message, state.switch_count + host, _COMES, 0, row, now
            )
            if why != 0:
                return why, control_at(state, state.switch_count + host).link
    elif slot.flow >= 0:
        _arrive(state, row, now)
    elif slot.flow < -1:
        call_control(state, state.switch_count + host, AT_HOST, here.down, row, now)
    elif here.kind == COMPILED:
        if _room(state, host) < int_at(client.stats, _QUEUED) + 1:
            return NEEDS_RING, here.up
        _receive(state, host, row, now)
    elif here.kind == CALLED:
        why = _call_host(state, host, row, now)
        if why != 0:
            return why, host if why == NEEDS_HOST else here.up
    elif here.kind != NONE:
        return NEEDS_HOST, host
    else:
        _count_packet(state, host, row, now)
    wire.head += 1
    return 0, 0


@njit(inline="always", nogil=True)
def _on_own_event(state: Any, host: int, now: int) -> tuple[int, int]:
    """A host's start or timer: why it stops, and whom that is about."""
    here = host_at(state, host)
    if here.kind == PYTHON or here.kind == SCRIPTED:  # noqa: PLR1714 - a set would be made
        return NEEDS_HOST, host
    if here.kind == CALLED:
        why = _call_host(state, host, -1, now)
        return why, host if why == NEEDS_HOST else here.up
    if here.kind == MESSAGES:
        node = state.switch_count + host
        why = call_entry(state, state.on_message, node, _TIMER, 0, 0, now)
        return why, control_at(state, node).link
    if here.start == now:
        if _room(state, host) < int_at(client_at(state, host).stats, _QUEUED):
            return NEEDS_RING, here.up
        here.start = FOREVER
        _send_queued(state, host, now)
        return 0, 0
    why = _on_timer(state, host, now)
    return why, host if why == NEEDS_HOST else here.up


@njit(cache=True, nogil=True)
def run_host(state: Any, host: int) -> tuple[int, int]:
    """A host's events of the window: why it stops, and which link or host that is about."""
    here, until = host_at(state, host), state.end
    while True:
        comes = next_arrival(state, here.down)
        own = min(here.start, here.flow, here.timer)
        now = min(comes, own)
        if now >= until:
            return 0, 0
        # At one time: what arrives, a start, a flow's packet, a timer.
        if comes <= own:
            why, which = _on_packet(state, host, now)
        elif here.flow == now and here.start != now:
            why, which = _send_flows(state, host, now), here.up
        else:
            why, which = _on_own_event(state, host, now)
        if why != 0:
            return why, which
