"""The event loop in simulated time, compiled: links, hosts, and switches that run their program.

Times are whole picoseconds. Events of the same time happen in the order in which they were made, so
a run is the same on every machine. An event is one of three:

* a packet reaches a switch: the program's ingress runs, and the traffic manager queues its copies;
* packets leave a switch's queues: the program's egress runs, and they go onto their links;
* a packet reaches a host: the worker's end takes it, and sends the chunks that it may send now.

A host's timers are the fourth. What they do when they expire is rare, and done in Python, as are
all other things that need memory or a decision. ``run`` says what it returns for.

The switch's egress queue is the queue of the link behind it: a packet leaves it when the one before
is on the wire, so its departure there is when its first bit is sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.typed import List
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.protocol.compiled import fill, receive
from innet.protocol.counters import Stats
from innet.protocol.slot_client import ClientState
from innet.protocol.timers import next_deadline, shortest_wait, start
from innet.sim.network import OVERHEAD, SECOND, SHORTEST
from innet.switch.jit.inline import InlineQueues, next_departure, run_queues
from innet.switch.traffic_manager import FOREVER

Ints = NDArray[np.int64]

TO_SWITCH, LEAVES, TO_HOST, TIMER = range(4)
"""Kinds of events. Their subject is a link, a switch, a link, and a host."""

DONE, IDLE, NEEDS_ROOM, NEEDS_SWITCH, EXPIRED, PAUSED, FAILED = range(7)
"""Why ``run`` returns. All hosts are done; no event is left; the heap or the pool is too full; a
switch needs memory; a host's timer has expired; so many events have passed; a switch's program
failed."""

LINK_PACKETS, LINK_BYTES, LINK_LOST, LINK_BUSY = range(4)
"""Columns of ``Links.counts``: packets and bytes on the wire, packets lost, picoseconds busy."""

HOST_SENT, HOST_RECEIVED, HOST_BYTES, HOST_ANSWERS, HOST_WAITING = range(5)
"""Columns of ``Hosts.counts``: what ``slot_client.Progress`` calls sent, received, bytes, answers
and waiting."""

TIME, SERIAL, PACKETS, DELIVERED, LOST, UNCONNECTED, OPEN, FINISHED = range(8)
"""Words of ``State.clock``: the time of the last event; how many events were made; packets that
were put onto links, that reached their end, and that were lost there; packets that left by ports
without a link; hosts that are not done; when the last host had taken its last result."""

TOO_LONG = -1
"""A switch's failure: its program makes packets longer than those of the job."""

_QUEUED, _FLAGS = int(Stats.QUEUED), int(Stats.FLAGS)
_UNDER_WAY = 2  # innet.protocol.slot_client.SlotState.WAITING


class Events(NamedTuple):
    """A heap of events by time, then by number.

    Attributes:
        time, serial: int64 (n,): when it happens, and its number.
        kind, subject, packet: int64 (n,): see above; packet is a row of the pool, or -1.
        size: shape (1,): how many there are.
    """

    time: Ints
    serial: Ints
    kind: Ints
    subject: Ints
    packet: Ints
    size: Ints


class Pool(NamedTuple):
    """Packets under way.

    Attributes:
        data: (n, stride) uint8. length: (n,) int32.
        free: (n,): rows that are free; as many as ``left[0]`` says.
        left: shape (1,).
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    free: Ints
    left: Ints


class Links(NamedTuple):
    """Directed links, (n,) each.

    Attributes:
        rate: bits per second. delay: picoseconds, with what the receiving switch's pipeline takes.
        switch: the switch at its end, or -1. port: of that switch, or the number of the host.
        free: when the last bit of what was sent is on the wire.
        loss: probability of the loss of a packet.
        counts: (n, 4), see ``LINK_PACKETS``.
    """

    rate: Ints
    delay: Ints
    switch: Ints
    port: Ints
    free: Ints
    loss: NDArray[np.float64]
    counts: Ints


class Hosts(NamedTuple):
    """Hosts, (n,) each.

    Attributes:
        link: to its switch.
        receives, sends: picoseconds that a packet takes of it.
        free: when it has done with what came before.
        timer: the time of its next timer event; FOREVER for none.
        is_done: it expects no more.
        counts: (n, 5), see ``HOST_SENT``.
    """

    link: Ints
    receives: Ints
    sends: Ints
    free: Ints
    timer: Ints
    is_done: NDArray[np.bool_]
    counts: Ints


class State(NamedTuple):
    """Everything but the programs and the hosts' ends.

    Attributes:
        events, pool, links, hosts: as above.
        ways: (switches, ports): the link behind a port, or -1.
        leaves: (switches,): the time of the next event LEAVES of a switch; FOREVER for none.
        resume: (switches,): 1 if a switch has taken the packet in its inbox and then lacked memory.
        clock: see ``TIME``.
        seed: of losses.
    """

    events: Events
    pool: Pool
    links: Links
    hosts: Hosts
    ways: Ints
    leaves: Ints
    resume: Ints
    clock: Ints
    seed: int


@njit(cache=True)
def listed(first: Any) -> Any:
    """A list for ``run`` with one item; ``add`` and ``put`` change it."""
    return List([first])


@njit(cache=True)
def add(items: Any, item: Any) -> None:
    """Append to a list that ``listed`` made."""
    items.append(item)


@njit(cache=True)
def put(items: Any, index: int, item: Any) -> None:
    """Replace an item of such a list."""
    items[index] = item


# ------------------------------------------------------------------ the heap


@njit(cache=True, nogil=True)
def push(state: State, time: int, kind: int, subject: int, packet: int) -> None:
    """Make an event. There must be room for it."""
    events = state.events
    serial = state.clock[SERIAL]
    state.clock[SERIAL] = serial + 1
    at = events.size[0]
    events.size[0] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if events.time[above] <= time:  # an earlier number, too
            break
        _move(events, above, at)
        at = above
    events.time[at], events.serial[at] = time, serial
    events.kind[at], events.subject[at], events.packet[at] = kind, subject, packet


@njit(cache=True, nogil=True)
def _move(events: Events, source: int, target: int) -> None:
    events.time[target], events.serial[target] = events.time[source], events.serial[source]
    events.kind[target], events.subject[target] = events.kind[source], events.subject[source]
    events.packet[target] = events.packet[source]


@njit(cache=True, nogil=True)
def _pop(events: Events) -> None:
    """Remove the first event."""
    last = events.size[0] - 1
    events.size[0] = last
    if last == 0:
        return
    time, serial = events.time[last], events.serial[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        other = below + 1
        if other < last and (
            events.time[other] < events.time[below]
            or (
                events.time[other] == events.time[below]
                and events.serial[other] < events.serial[below]
            )
        ):
            below = other
        if events.time[below] > time or (
            events.time[below] == time and events.serial[below] > serial
        ):
            break
        _move(events, below, at)
        at = below
    _move(events, last, at)


# ------------------------------------------------------------------ links


@njit(cache=True, nogil=True)
def wire_time(length: int, rate: int) -> int:
    """Picoseconds that a frame of ``length`` bytes takes on the wire, rounded up."""
    bits = 8 * (max(length, SHORTEST) + OVERHEAD)
    return int((bits * SECOND + rate - 1) // rate)


@njit(cache=True, nogil=True)
def _uniform(seed: int, link: int, number: int) -> float:
    """A number in [0, 1) from seed, link and packet number (splitmix64's finalizer)."""
    word = (
        np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        + np.uint64(link + 1) * np.uint64(0xD1B54A32D192ED03)
        + np.uint64(number + 1) * np.uint64(0x8CB92BA72F3D8DD7)
    )
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return float(word >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def _transmit(state: State, link: int, packet: int, now: int) -> None:
    """Put a packet onto a link at ``now``, or as soon as the link is free."""
    links, length = state.links, state.pool.length[packet]
    took = wire_time(length, links.rate[link])
    begun = max(now, links.free[link])
    links.free[link] = begun + took
    counts = links.counts[link]
    number = counts[LINK_PACKETS]
    counts[LINK_PACKETS] = number + 1
    counts[LINK_BYTES] += max(length, SHORTEST) + OVERHEAD
    counts[LINK_BUSY] += took
    state.clock[PACKETS] += 1
    if links.loss[link] > 0 and _uniform(state.seed, link, number) < links.loss[link]:
        counts[LINK_LOST] += 1
        state.clock[LOST] += 1
        _release(state.pool, packet)
        return
    kind = TO_HOST if links.switch[link] < 0 else TO_SWITCH
    push(state, begun + took + links.delay[link], kind, link, packet)


@njit(cache=True, nogil=True)
def _release(pool: Pool, packet: int) -> None:
    pool.free[pool.left[0]] = packet
    pool.left[0] += 1


@njit(cache=True, nogil=True)
def _keep(pool: Pool, data: NDArray[np.uint8], length: int) -> int:
    """Copy a packet into the pool; returns its row."""
    pool.left[0] -= 1
    row = pool.free[pool.left[0]]
    kept = pool.data[row]
    for byte in range(length):
        kept[byte] = data[byte]
    pool.length[row] = length
    return int(row)


# ------------------------------------------------------------------ switches


@njit(cache=True, nogil=True)
def _plan_departure(state: State, switch: int, program: InlineQueues) -> None:
    """Make an event for the next packet that leaves a queue, unless there is one."""
    due = next_departure(program)
    if due < state.leaves[switch]:
        state.leaves[switch] = due
        push(state, due, LEAVES, switch, -1)


@njit(cache=True, nogil=True)
def _sent(state: State, switch: int, program: InlineQueues, produced: int) -> int:
    """Put what has left a switch's queues onto the links; 0, or ``TOO_LONG``."""
    ways = state.ways[switch]
    for row in range(produced):
        if program.out_length[row] > state.pool.data.shape[1]:
            return TOO_LONG
        port = program.out_port[row]
        link = ways[port] if 0 <= port < len(ways) else -1
        if link < 0:
            state.clock[UNCONNECTED] += 1
            continue
        packet = _keep(state.pool, program.out[row], program.out_length[row])
        _transmit(state, link, packet, program.out_time[row])
    return 0


@njit(cache=True, nogil=True)
def _reaches_switch(  # noqa: PLR0917 - compiled functions are called by position
    state: State, programs: Any, inbox: Any, link: int, packet: int, now: int
) -> tuple[int, int, int]:
    """Ingress of a packet; see ``_leaves`` for what is returned."""
    switch = state.links.switch[link]
    program, (data, lengths, ports) = programs[switch], inbox[switch]
    length = state.pool.length[packet]
    came = state.pool.data[packet]
    row = data[0]
    for byte in range(length):
        row[byte] = came[byte]
    lengths[0], ports[0], program.times[0] = length, state.links.port[link], now
    first = state.resume[switch]
    following, produced, wanted, failed = run_queues(program, first, 1, now - 1)
    failed = failed if failed != 0 else _sent(state, switch, program, produced)
    state.resume[switch] = following if wanted != 0 else 0
    if wanted == 0 and failed == 0:
        state.clock[DELIVERED] += 1
        _release(state.pool, packet)
        _plan_departure(state, switch, program)
    return switch, wanted, failed


@njit(cache=True, nogil=True)
def _leaves(state: State, programs: Any, switch: int, now: int) -> tuple[int, int, int]:
    """Egress of what is due: the switch, what it lacks, whether it failed."""
    program = programs[switch]
    _, produced, wanted, failed = run_queues(program, 0, 0, now)
    failed = failed if failed != 0 else _sent(state, switch, program, produced)
    if wanted == 0 and failed == 0:
        state.leaves[switch] = FOREVER
        _plan_departure(state, switch, program)
    return switch, wanted, failed


# ------------------------------------------------------------------ hosts


@njit(cache=True, nogil=True)
def set_timer(state: State, host: int, time: int) -> None:
    """Let a host's timers be looked at, at ``time`` at the latest."""
    if time < state.hosts.timer[host]:
        state.hosts.timer[host] = time
        push(state, time, TIMER, host, -1)


@njit(cache=True, nogil=True)
def send_frame(state: State, host: int, frame: NDArray[np.uint8], now: int) -> None:
    """A host sends a frame as soon as it can."""
    hosts = state.hosts
    hosts.free[host] = max(hosts.free[host], now) + hosts.sends[host]
    packet = _keep(state.pool, frame, len(frame))
    _transmit(state, hosts.link[host], packet, hosts.free[host])


@njit(cache=True, nogil=True)
def send_queued(state: State, ends: Any, frames: NDArray[np.uint8], host: int, now: int) -> None:
    """Send the chunks that a host may send; ``frames`` has room for one frame."""
    end: ClientState = ends[host]
    stats = end.notes[0]
    queued = stats[_QUEUED]
    if queued == 0 or end.held or stats[_FLAGS] & end.halts != 0:
        return
    (chunk, doing, queue), timers = end.slots
    operation, elements, _, _ = end.chunks
    where, message = (chunk, end.terms[1][4]), (end.words, operation, elements)
    no_flags = np.zeros(1, np.uint8)
    for index in range(queued):
        slots = queue[index : index + 1]
        doing[slots[0]] = _UNDER_WAY
        leaving = max(state.hosts.free[host], now) + state.hosts.sends[host]
        start(timers, chunk, slots, leaving / SECOND, end.last)
        fill(frames, end.head, (slots, no_flags), where, message)
        send_frame(state, host, frames[0], now)
    stats[_QUEUED] = 0
    counts = state.hosts.counts[host]
    counts[HOST_SENT] += queued
    counts[HOST_WAITING] += queued
    set_timer(state, host, state.hosts.free[host] + int(shortest_wait(timers) * SECOND))


@njit(cache=True, nogil=True)
def _reaches_host(  # noqa: PLR0917 - likewise
    state: State, ends: Any, frames: NDArray[np.uint8], link: int, packet: int, now: int
) -> None:
    """A host takes a packet, and sends what it may send then."""
    host = state.links.port[link]
    hosts = state.hosts
    if ends[host].terms[1][2] != host:  # it takes no part, and ignores what others are told
        state.clock[DELIVERED] += 1
        _release(state.pool, packet)
        return
    hosts.free[host] = max(hosts.free[host], now) + hosts.receives[host]
    taken = hosts.free[host]
    end: ClientState = ends[host]
    stats, clock = end.notes
    clock[0], clock[2], clock[3], clock[4] = taken / SECOND, -1.0, -np.inf, -1.0
    length = state.pool.length[packet]
    packets = state.pool.data[packet : packet + 1], state.pool.length[packet : packet + 1]
    answers = receive(packets, end.terms, end.slots, end.chunks, end.notes)
    counts = hosts.counts[host]
    counts[HOST_RECEIVED] += 1
    counts[HOST_BYTES] += length
    counts[HOST_ANSWERS] += answers
    counts[HOST_WAITING] -= answers
    state.clock[DELIVERED] += 1
    _release(state.pool, packet)
    if answers > 0:
        timers = end.slots[1]
        pace = timers[7]
        soonest = min(shortest_wait(timers), pace[9])  # a chunk that was overtaken waits less
        set_timer(state, host, taken + int(soonest * SECOND))
        send_queued(state, ends, frames, host, taken)
    if counts[HOST_WAITING] == 0 and stats[_QUEUED] == 0 and not hosts.is_done[host]:
        hosts.is_done[host] = True
        state.clock[OPEN] -= 1
        state.clock[FINISHED] = max(state.clock[FINISHED], taken)


@njit(cache=True, nogil=True)
def _expires(state: State, ends: Any, host: int, now: int) -> bool:
    """Whether a timer of a host has expired; otherwise the next one is awaited."""
    state.hosts.timer[host] = FOREVER
    if state.hosts.is_done[host]:
        return False
    deadline = next_deadline(ends[host].slots[1])
    if deadline * SECOND <= now:
        return True
    if deadline < np.inf:
        set_timer(state, host, max(now + 1, int(deadline * SECOND) + 1))
    return False


@njit(cache=True, nogil=True)
def run(  # noqa: PLR0911, PLR0917 - likewise; each return is another reason
    state: State,
    programs: Any,
    inbox: Any,
    ends: Any,
    frames: NDArray[np.uint8],
    limits: tuple[int, int],
) -> tuple[int, int, int]:
    """Let events happen until there is something for Python to do.

    Args:
        state: the network.
        programs: an ``InlineQueues`` of each switch.
        inbox: of each switch, the memory of its received packets, one row.
        ends: a ``ClientState`` of each host.
        frames: (1, bytes of a frame), used for what hosts send.
        limits: most events of this call, and most packets that an event sends.

    Returns:
        why it returns; the switch or the host that this is about; what that switch lacks.
    """
    events, pool, clock = state.events, state.pool, state.clock
    most, copies = limits
    for _ in range(most):
        if clock[OPEN] == 0:
            return DONE, -1, 0
        if events.size[0] == 0:
            return IDLE, -1, 0
        if pool.left[0] < copies or len(events.time) - events.size[0] < 2 * copies + 2:
            return NEEDS_ROOM, -1, 0
        now, kind = events.time[0], events.kind[0]
        subject, packet = events.subject[0], events.packet[0]
        clock[TIME] = now
        if kind == TO_SWITCH:
            switch, wanted, failed = _reaches_switch(state, programs, inbox, subject, packet, now)
        elif kind == LEAVES:
            if state.leaves[subject] != now:
                _pop(events)
                continue
            switch, wanted, failed = _leaves(state, programs, subject, now)
        else:
            _pop(events)
            if kind == TO_HOST:
                _reaches_host(state, ends, frames, subject, packet, now)
            elif state.hosts.timer[subject] == now and _expires(state, ends, subject, now):
                return EXPIRED, int(subject), 0
            continue
        if failed != 0:
            return FAILED, int(switch), int(failed)
        if wanted != 0:
            return NEEDS_SWITCH, int(switch), int(wanted)
        _pop(events)  # it is still the first: those that it made have later numbers
    return PAUSED, -1, 0
