"""Switches of simulated networks, in compiled code: they run their program, or forward flows.

A switch takes all packets of a window in one call of its compiled program. Packets of flows, which
have no bytes, share the queues of the program's: the traffic manager's functions say when each of
them leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from innet.core.numba_cache import njit
from innet.sim.heap import push, replace_first
from innet.sim.links import (
    AT_SWITCH,
    STEP,
    blocked_by,
    call_control,
    draw,
    is_message,
    next_arrival,
    note,
    transmit,
    written,
)
from innet.sim.messenger import HEADER
from innet.sim.network import BALANCING
from innet.sim.state import (
    BATCH,
    CHANGED,
    FAILED,
    FLOWLETS,
    FULL,
    FULL_TRACE,
    MANY,
    NEEDS_LEARNING,
    NEEDS_SWITCH,
    NEEDS_WAITING,
    OF_DROPPED,
    TOO_LONG,
    UNCONNECTED,
    WAITING,
    WITH_RECORDS,
    Ints,
    Records,
    byte_rows_view,
    bytes_view,
    control_at,
    copy_bytes,
    count_of_flow,
    data_at,
    flow_at,
    int_at,
    ints_view,
    link_at,
    messenger_at,
    pausing_at,
    program_at,
    shorts_view,
    signed_view,
    slot_at,
    switch_at,
    traces_view,
    waiting_at,
    waiting_view,
    watches_view,
    words_view,
)
from innet.switch.inline import (
    TRAFFIC_DIGESTED,
    TRAFFIC_ENTRIES,
    TRAFFIC_NOW,
    InlineQueues,
    admit,
    is_congested,
    keep_records,
    postponement,
    run_queues,
    withdraw,
)
from innet.switch.jit.records import HAND_OVER_WORDS
from innet.switch.jit.traits import NEED_RECORDS
from innet.switch.traffic_manager import (
    DROPS,
    FOREVER,
    FREE,
    MARKED,
    PORTS,
    PRECEDED,
    QUEUE_WORDS,
)

_ECMP, _ADAPTIVE, _FLOWLET = (BALANCING[name] for name in ("ecmp", "adaptive", "flowlet"))
_WAITING_BYTES = WAITING.itemsize


# ------------------------------------------------------------------ packets of flows that wait


@njit(cache=True, nogil=True)
def _is_before(a: Any, b: Any) -> bool:
    return bool(a.time < b.time or (a.time == b.time and a.serial < b.serial))


@njit(cache=True, nogil=True)
def _push_waiting(heap: Records, size: int) -> None:
    """Let the packet in place ``size`` of a heap of WAITING rise to its place."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if _is_before(heap[above], heap[at]):
            break
        _swap_waiting(heap, above, at)
        at = above


@njit(cache=True, nogil=True)
def _swap_waiting(heap: Records, a: int, b: int) -> None:
    x, y = heap[a], heap[b]
    x.time, y.time = y.time, x.time
    x.serial, y.serial = y.serial, x.serial
    x.link, y.link = y.link, x.link
    x.sent, y.sent = y.sent, x.sent
    x.number, y.number = y.number, x.number
    x.flow, y.flow = y.flow, x.flow
    x.length, y.length = y.length, x.length
    x.host, y.host = y.host, x.host
    x.queue, y.queue = y.queue, x.queue
    x.preceded, y.preceded = y.preceded, x.preceded
    x.marked, y.marked = y.marked, x.marked


@njit(cache=True, nogil=True)
def _pop_waiting(heap: Records, size: int) -> None:
    """Remove the first packet of a heap of WAITING of ``size``."""
    last = size - 1
    _swap_waiting(heap, 0, last)
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and _is_before(heap[below + 1], heap[below]):
            below += 1
        if _is_before(heap[at], heap[below]):
            break
        _swap_waiting(heap, at, below)
        at = below


# ------------------------------------------------------------------ switches


@njit(cache=True, nogil=True)
def _egress_link(state: Any, number: int, port: int) -> int:
    """The link behind a port of a switch, or -1."""
    return int_at(state.ways, number * PORTS + port) if 0 <= port < PORTS else -1


@njit(cache=True, nogil=True)
def _egress(state: Any, number: int) -> tuple[int, int]:
    """Put what has left a program onto the links: why it stops, and the link."""
    switch, program = switch_at(state, number), program_at(state, number)
    lengths, ports = signed_view(program.out_length, MANY), signed_view(program.out_port, MANY)
    times, extra = ints_view(program.out_time, MANY), signed_view(program.out_extra, MANY)
    origins = signed_view(program.out_origin, MANY)
    while switch.row < switch.rows:
        row = switch.row
        length = lengths[row]
        if length > state.stride:
            return FAILED, TOO_LONG
        link = _egress_link(state, number, ports[row])
        if link < 0:
            if switch.is_recorded:
                if state.traced_packets >= state.trace_room:
                    return FULL_TRACE, number
                note(state, -1 - number, UNCONNECTED, times[row], origins[row]).length = length
            switch.unconnected += 1
        else:
            lacks = blocked_by(state, link)
            if lacks != 0:
                return lacks, link
            at = transmit(state, link, length + extra[row], length, -1, times[row])
            if switch.is_recorded:
                traces_view(state.trace, MANY)[state.traced_packets].number = origins[row]
            came = bytes_view(program.out + row * program.stride, length)
            copy_bytes(data_at(state, at, length), came, length)
            written(state, link, at)
        switch.row += 1
    switch.row = switch.rows = 0
    return 0, 0


@njit(cache=True, nogil=True)
def _route(state: Any, number: int, slot: Any, now: int) -> int:
    """The port by which a switch sends a packet of a flow; of several by ``network.BALANCING``."""
    flow = slot.flow
    pair = number * state.host_count + slot.host
    first, end = int_at(state.first_route, pair), int_at(state.first_route, pair + 1)
    if end == first:
        return -1
    path = flow_at(state, flow).path
    if path >= 0:
        choice = path % (end - first)
    elif path == _ECMP:
        choice = int(draw(0, flow, number) * (end - first))
    else:
        choice = _balanced(state, number, slot, now, first, end - first)
    return int_at(state.routes, first + choice)


@njit(cache=True, nogil=True)
def _balanced(  # noqa: PLR0917 - by position
    state: Any, number: int, slot: Any, now: int, first: int, paths: int
) -> int:
    """Which of ``paths`` ports from route ``first`` on a packet takes, if not by its flow alone."""
    switch, program, flow = switch_at(state, number), program_at(state, number), slot.flow
    if paths == 1:
        return 0
    # At random: packets differ by their number, and by what the switch has forwarded before.
    choice = int(draw(state.seed ^ switch.serial, slot.number, number) * paths)
    how = flow_at(state, flow).path
    if how == _FLOWLET:
        hashed = (flow * 0x9E3779B1 + slot.host * 0x85EBCA77) & 0xFFFFFFFF
        entry = (number * FLOWLETS + (hashed ^ (hashed >> 15)) % FLOWLETS) * 2
        table = ints_view(state.flowlets, MANY)
        if now - table[entry] < state.flowlet_gap:
            choice = table[entry + 1] % paths
        table[entry], table[entry + 1] = now, choice
    elif how == _ADAPTIVE:
        queues = ints_view(program.queues, program.queue_words)
        begin, least = choice, FOREVER
        for each in range(paths):
            at = (begin + each) % paths
            queue = int_at(state.routes, first + at) * switch.queues
            queue += flow_at(state, flow).priority * QUEUE_WORDS
            free = max(now, queues[queue + FREE])
            if free < least:
                choice, least = at, free
    return choice


@njit(cache=True, nogil=True)
def _trims(state: Any, slot: Any) -> bool:
    """Whether switches cut a packet to its header where its queue is full."""
    return bool(is_message(state, slot) and messenger_at(state).trims)


@njit(cache=True, nogil=True)
def _forward(state: Any, number: int, slot: Any, came: int, now: int) -> int:
    """Put a packet of a flow, which came by a link, into the queue of its port.

    Returns:
        why it cannot, or 0.
    """
    switch, program = switch_at(state, number), program_at(state, number)
    port = _route(state, number, slot, now)
    link = _egress_link(state, number, port)
    if link < 0:
        switch.unconnected += 1
        return 0
    if switch.waiting == state.waiting_room:
        return NEEDS_WAITING
    if switch.is_recorded and state.traced_packets >= state.trace_room:
        return FULL_TRACE
    queues = ints_view(program.queues, program.queue_words)
    headers = (port + 1) * switch.queues - QUEUE_WORDS  # the queue of headers, where there is one
    queue = port * switch.queues
    queue += flow_at(state, slot.flow).priority * QUEUE_WORDS
    if slot.number >= HEADER and _trims(state, slot):
        queue = headers
    congested = is_congested(queues, queue)
    length, trimmed = slot.length, 0
    departure = admit(queues, queue, now, length)
    if departure < 0 and queue != headers and _trims(state, slot):
        queues[queue + DROPS] -= 1
        length, trimmed = messenger_at(state).header_bytes, HEADER
        queue, congested = headers, False
        departure = admit(queues, queue, now, length)
    if departure < 0:
        count_of_flow(state, slot.flow, OF_DROPPED)
        if switch.is_recorded:
            noted = note(state, link, FULL, now, slot.number)
            noted.length, noted.flow = slot.length, slot.flow
            link_at(state, link).full += 1
        return 0
    if congested:
        queues[queue + MARKED] += 1
    if trimmed > 0:
        link_at(state, link).trimmed += 1
    first = state.waiting + number * state.waiting_room * _WAITING_BYTES
    heap = waiting_view(first, state.waiting_room)
    kept = heap[switch.waiting]
    kept.time, kept.serial, kept.link, kept.queue = departure, switch.serial, link, queue
    kept.sent, kept.number, kept.flow = slot.sent, slot.number | trimmed, slot.flow
    kept.length, kept.host = length, slot.host
    kept.preceded = queues[queue + PRECEDED]
    kept.marked = 2 * came + (1 if congested else slot.marked)
    if state.control != 0:
        pausing_at(state, came, flow_at(state, slot.flow).priority).held += slot.length
    _push_waiting(heap, switch.waiting)
    switch.waiting += 1
    switch.serial += 1
    return 0


@njit(cache=True, nogil=True)
def _dequeue(state: Any, number: int) -> tuple[int, int]:
    """Send the first packet of a flow that waits: why it cannot, and the link."""
    switch, program = switch_at(state, number), program_at(state, number)
    first = waiting_at(state, number, 0)
    lacks = blocked_by(state, first.link)
    if lacks != 0:
        return lacks, first.link
    queues, queue = ints_view(program.queues, program.queue_words), first.queue
    start = state.waiting + number * state.waiting_room * _WAITING_BYTES
    heap = waiting_view(start, state.waiting_room)
    later = postponement(queues, queue, first.preceded)
    if later > 0:  # packets of higher priorities came: it waits for them
        last = switch.waiting - 1
        _pop_waiting(heap, switch.waiting)
        heap[last].time += later
        heap[last].preceded += later
        _push_waiting(heap, last)
        return 0, 0
    withdraw(queues, queue, first.time, first.length)
    if state.control != 0:
        came = first.marked >> 1
        pausing_at(state, came, flow_at(state, first.flow).priority).held -= first.length
    row = transmit(state, first.link, first.length, 0, first.flow, first.time)
    slot = slot_at(state, row)
    slot.sent, slot.number, slot.host = first.sent, first.number, first.host
    slot.marked = first.marked & 1
    written(state, first.link, row)
    _pop_waiting(heap, switch.waiting)
    switch.waiting -= 1
    return 0, 0


@njit(cache=True, nogil=True)
def move_up(state: Any, number: int) -> None:
    """Plan again when packets of flows leave, if a packet of the program that was before them has
    become shorter in egress.
    """
    switch, program = switch_at(state, number), program_at(state, number)
    queues = ints_view(program.queues, program.queue_words)
    first = state.waiting + number * state.waiting_room * _WAITING_BYTES
    heap = waiting_view(first, state.waiting_room)
    for at in range(switch.waiting):
        kept = heap[at]
        later = postponement(queues, kept.queue, kept.preceded)
        if later < 0:
            kept.time += later
            kept.preceded += later
            _push_waiting(heap, at)


@njit(cache=True, nogil=True)
def _merge(state: Any, number: int, times: Ints, links: Ints) -> int:
    """Prepare the merging of a switch's links: those with packets of the window, as a heap."""
    size = 0
    for at in range(int_at(state.first_into, number), int_at(state.first_into, number + 1)):
        link = int_at(state.into, at)
        time = next_arrival(state, link)
        if time < state.end:
            push(times, links, size, time, link)
            size += 1
    return size


@njit(cache=True, nogil=True)
def next_departure(state: Any, number: int) -> int:
    """When the next packet leaves a switch's program; FOREVER if none waits."""
    program = program_at(state, number)
    if switch_at(state, number).runs and int_at(program.traffic, TRAFFIC_ENTRIES):
        return int_at(program.waiting, 0)
    return FOREVER


@njit(cache=True, nogil=True)
def _run_batch(state: Any, number: int) -> int:
    """Run a switch's batch, or the rest of it; returns what failed, or 0."""
    switch, program = switch_at(state, number), program_at(state, number)
    queues = InlineQueues(
        program.entry,
        ints_view(program.frame, program.frame_words),
        ints_view(program.starts, program.start_words),
        byte_rows_view(program.out, program.rows, program.stride),
        signed_view(program.out_length, program.rows),
        signed_view(program.out_port, program.rows),
        signed_view(program.out_origin, program.rows),
        ints_view(program.out_time, program.rows),
        signed_view(program.out_extra, program.rows),
        ints_view(program.times, program.batch),
        signed_view(program.extra, program.batch),
        ints_view(program.traffic, program.traffic_words),
        ints_view(program.waiting, program.waiting_words),
        ints_view(program.received, 1),
    )
    count, until = switch.batch, switch.until
    numbered = queues.received[0]
    if switch.is_recorded:
        # One thing at a time: what leaves until a packet comes, its ingress, what leaves then.
        # ``out_origin`` counts from the first packet of all where none is received.
        if switch.following < count:
            switch.cause, comes = numbered, queues.times[switch.following]
            is_first = next_departure(state, number) <= comes
            count, until = (switch.following, comes) if is_first else (count, comes - 1)
        if switch.following == count:
            switch.cause, queues.received[0] = -1, switch.following
    following, produced, wanted, failed = run_queues(queues, switch.following, count, until)
    if switch.is_recorded and switch.following == count:
        queues.received[0] = numbered
    switch.following, switch.row, switch.rows = following, 0, produced
    switch.wanted = wanted
    if switch.resizes and switch.waiting > 0:
        move_up(state, number)
    if switch.is_recorded == WITH_RECORDS and failed == 0:
        room = keep_records(queues)
        if wanted == 0 and room < 2 * HAND_OVER_WORDS:
            switch.wanted = NEED_RECORDS
    if wanted == 0 and following == switch.batch:
        switch.is_running = switch.batch = switch.following = 0
    return int(failed)


@njit(cache=True, nogil=True)
def _note_changes(state: Any, number: int) -> int:
    """Note in the trace which packets have found a queue of a recorded switch full, and which
    watched cells have changed; returns why it cannot, or 0.
    """
    switch, program = switch_at(state, number), program_at(state, number)
    now = int_at(program.traffic, TRAFFIC_NOW)
    queues = ints_view(program.queues, program.queue_words)
    for port in range(PORTS):
        link = _egress_link(state, number, port)
        if link < 0:
            continue
        wire, drops = link_at(state, link), 0
        for queue in range(port * switch.queues, (port + 1) * switch.queues, QUEUE_WORDS):
            drops += queues[queue + DROPS]
        while wire.full < drops:
            if state.traced_packets >= state.trace_room:
                return FULL_TRACE
            noted = note(state, link, FULL, now, switch.cause)
            noted.length = signed_view(program.lengths, 1)[0]
            wire.full += 1
    for watch in range(state.watch_count):
        watched = watches_view(state.watches, MANY)[watch]
        if watched.switch != number:
            continue
        value = _cell(watched.address, watched.size)
        if value != watched.value:
            if state.traced_packets >= state.trace_room:
                return FULL_TRACE
            note(state, -1 - watch, CHANGED, now, value)
            watched.value = value
    return 0


@njit(cache=True, nogil=True)
def _cell(address: int, size: int) -> int:
    """The value of a register's cell of 1, 2, 4 or 8 bytes."""
    if size == 8:
        return int_at(address, 0)
    if size == 4:
        return int(words_view(address, 1)[0])
    return int(bytes_view(address, 1)[0]) if size == 1 else int(shorts_view(address, 1)[0])


class BatchViews(NamedTuple):
    """Of the packets that a switch gathers, shape (BATCH,) each: bytes that it carries, bytes that
    it is longer on the wire, port, and time (ps).
    """

    lengths: Ints
    extra: Ints
    ports: Ints
    times: Ints


@njit(inline="always", nogil=True)
def _finish_batch(state: Any, number: int) -> tuple[int, int]:
    """Run what a batch has begun, and send what leaves; why it stops, and which link or switch."""
    switch = switch_at(state, number)
    while True:
        if switch.is_recorded and switch.runs:
            why = _note_changes(state, number)
            if why != 0:
                return why, number
        if switch.row < switch.rows:
            why, link = _egress(state, number)
            if why != 0:
                return why, link
        if switch.wanted != 0:
            return NEEDS_SWITCH, number
        if switch.learns and int_at(program_at(state, number).traffic, TRAFFIC_DIGESTED):
            return NEEDS_LEARNING, number
        if not switch.is_running:
            return 0, 0
        failed = _run_batch(state, number)
        if failed != 0:
            return FAILED, failed


@njit(inline="always", nogil=True)
def _receive(  # noqa: PLR0917 - by position
    state: Any, number: int, batch: BatchViews, link: int, slot: Any, row: int, now: int
) -> int:
    """Take the first packet of a link: into a queue if it is a flow's, or into the batch.

    Returns:
        why it cannot, or 0.
    """
    switch, wire = switch_at(state, number), link_at(state, link)
    if slot.flow >= 0:
        why = _forward(state, number, slot, link, now)
        if why != 0:
            return int(why)
    elif slot.flow < -1:
        call_control(state, number, AT_SWITCH, link, row, now)
    elif not switch.runs:
        switch.dropped += 1
    else:
        program, at = program_at(state, number), switch.batch
        kept = bytes_view(program.data + at * state.stride, slot.carried)
        copy_bytes(kept, data_at(state, row, slot.carried), slot.carried)
        batch.lengths[at], batch.extra[at] = slot.carried, slot.length - slot.carried
        batch.ports[at], batch.times[at] = wire.port, now
        switch.batch = at + 1
    wire.head += 1
    return 0


@njit(inline="always", nogil=True)
def _next_of_link(state: Any, link: int, times: Ints, links: Ints, size: int) -> int:
    """Put the link that is first in the merge to its place again; returns how many there are."""
    following = next_arrival(state, link)
    if following < state.end:
        replace_first(times, links, size, following, link)
        return size
    last = size - 1
    if last > 0:
        replace_first(times, links, last, times[last], links[last])
    return last


@njit(cache=True, nogil=True)
def _takes_steps(state: Any, switch: Any) -> bool:
    """Whether one event of a switch is to happen after the other.

    If it learns, its digests have the times of their packets; likewise if it is recorded, and pause
    frames. Where packets of flows wait behind those of a program that changes lengths, any may move
    them up.
    """
    return bool(
        switch.learns
        or switch.is_recorded
        or (switch.resizes and switch.waiting > 0)
        or state.control != 0
    )


@njit(cache=True, nogil=True)
def _run_until(state: Any, number: int, batch: BatchViews, latest: int) -> int:
    """Up to when a switch may run now, in a step if it takes steps."""
    switch = switch_at(state, number)
    if not _takes_steps(state, switch):
        return latest
    return int(batch.times[0]) if switch.batch > 0 else next_departure(state, number)


@njit(cache=True, nogil=True)
def _control(state: Any, number: int) -> int:
    """Let priority flow control see what the last event of a switch has changed; why it cannot, or
    0.
    """
    now = control_at(state, number).now
    if switch_at(state, number).runs:
        now = max(now, int_at(program_at(state, number).traffic, TRAFFIC_NOW))
    return call_control(state, number, STEP, 0, 0, now)


@njit(cache=True, nogil=True)
def run_switch(state: Any, number: int, share: int) -> tuple[int, int]:
    """A switch's events of the window: why it stops, and which link or switch that is about.

    Its packets of the program are gathered in a batch, which is run when something else comes in
    between, when it is full, and at the end of the window.
    """
    switch, program, end = switch_at(state, number), program_at(state, number), state.end
    batch = BatchViews(
        signed_view(program.lengths, MANY),
        signed_view(program.extra, MANY),
        signed_view(program.ports, MANY),
        ints_view(program.times, MANY),
    )
    begin = 8 * share * state.heap_room
    times = ints_view(state.heap_times + begin, MANY)
    links = ints_view(state.heap_links + begin, MANY)
    size = _merge(state, number, times, links)
    has_control = state.control != 0
    while True:
        # Step 1: finish what was begun, perhaps before this switch stopped for memory.
        why, which = _finish_batch(state, number)
        if why != 0:
            return why, which
        if has_control:
            why = _control(state, number)
            if why != 0:
                return why, control_at(state, number).link
        # Step 2: what comes next, an arrival or the departure of a flow's packet?
        comes = times[0] if size > 0 else FOREVER
        departs = waiting_at(state, number, 0).time if switch.waiting > 0 else FOREVER
        now = min(comes, departs)
        if now >= end:
            if switch.batch == 0 and next_departure(state, number) >= end:
                return 0, 0
            switch.is_running, switch.until = 1, _run_until(state, number, batch, end - 1)
            continue
        # Step 3: flows share queues with the program, so that all before a packet of a flow has to
        # happen first.
        link = links[0]
        wire = link_at(state, link)
        row = wire.first + (wire.head & wire.mask)
        slot = slot_at(state, row)
        is_flow = departs < comes or slot.flow != -1
        if (
            (is_flow or _takes_steps(state, switch))
            and (switch.batch > 0 or next_departure(state, number) < now)
        ) or switch.batch == BATCH:
            switch.is_running, switch.until = 1, _run_until(state, number, batch, now - 1)
            continue
        # Step 4: let it happen.
        if has_control:
            control_at(state, number).now = now
        if departs < comes:
            why, which = _dequeue(state, number)
            if why != 0:
                return why, which
        else:
            why = _receive(state, number, batch, link, slot, row, now)
            if why != 0:
                return why, number
            size = _next_of_link(state, link, times, links, size)
