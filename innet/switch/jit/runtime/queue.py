"""The traffic manager, for emitted code: packets that wait in slots, and their order.

A packet that waits has a slot: a row of words in ``pool``, and ``span`` bytes of ``store``. The
first words of a row are named here; then comes every variable that egress needs, as ``emit.queue``
lays them out. Each copy that waits for egress is an entry of the heap ``waiting``; copies of one
packet share its slot. So is each packet that is on its way through the recirculation port. Slot 0
is never given out: its row is emitted code's own.

Nothing here allocates memory. Emitted code stops at a ``shortage``, and continues after its caller
has allocated memory.
"""

from __future__ import annotations

from typing import Any

from innet.switch import traffic_manager
from innet.switch.jit.runtime.core import bump, copy, get, inlined, load16, put, store16
from innet.switch.jit.traits import (
    ENTRY_WORDS,
    NEED_BYTES,
    NEED_DIGESTS,
    NEED_ENTRIES,
    NEED_RECORDS,
    NEED_ROWS,
    NEED_SLOTS,
    NO_SESSION,
    STATISTICS,
)
from innet.switch.traffic_manager import (
    BY_DSCP,
    IS_COARSE,
    MARKED,
    MICROSECOND,
    PORTS,
    PRECEDED,
    PRIORITIES,
    QUEUE_WORDS,
)

__all__ = [  # what emitted code may import
    "ARRIVED",
    "AT",
    "BEYOND",
    "CLONE",
    "DECIDE",
    "DEPARTURE",
    "DEPTH",
    "EGRESS",
    "ENQUEUED",
    "ENTRY_WORDS",
    "LENGTH",
    "LOOPS",
    "NEED_DIGESTS",
    "NEED_RECORDS",
    "NEXT",
    "NUMBER",
    "ORIGIN",
    "RECEIVED",
    "REENTERED",
    "REFERENCES",
    "SIZE",
    "SLOT",
    "SLOTS",
    "class_priority",
    "clear",
    "clock_of",
    "copy_made",
    "due",
    "enqueue",
    "enqueue_and_tell",
    "enter_later",
    "entry_port",
    "entry_priority",
    "entry_rid",
    "entry_word",
    "has_session",
    "mark_congestion",
    "pop_entry",
    "postpone",
    "queue_of",
    "recirculate",
    "release",
    "resize",
    "shortage",
    "stand_in",
    "start_row",
    "withdraw",
]

#: What the emitted function does next: a packet from outside, one that was resubmitted or
#: recirculated, the parser for a clone of what ingress received, what ingress decided, a packet
#: that waits for egress; or to look which of these is next.
RECEIVED, REENTERED, CLONE, DECIDE, EGRESS, NEXT = range(6)

#: First words of a row: how many entries and steps use the slot (of a free one: the next free
#: slot); the packet's bytes, and how many of them the parser took; the number of the packet that
#: was received, and its port; the origin, which counts what that packet caused; bytes by which the
#: packet is longer than what it carries.
REFERENCES, SIZE, AT, NUMBER, ARRIVED, ORIGIN, BEYOND = range(7)

#: Words of an origin: slots that come from it (of a free one: the next free one), and what was
#: cloned, resubmitted and recirculated.
SLOTS, LOOPS = range(2)

#: Words of an entry: when it leaves; its rank among those that leave then, by priority; its slot;
#: its port, and above it one more than its replication id (0: not replicated); when it was
#: enqueued; how many waited before it; twice its bytes, and 1 if it found the queue congested; the
#: word ``traffic_manager.PRECEDED`` of its queue when its departure was planned. Of a packet that
#: recirculates only the first three count, and its rank is behind those of all priorities.
DEPARTURE, RANK, SLOT, WAY, ENQUEUED, DEPTH, LENGTH, PLANNED = range(8)

_RANK_BITS = 56
_DROPPED_QUEUE = STATISTICS["dropped_queue"]
_DROPPED_INGRESS = STATISTICS["dropped_ingress"]

recirculate = inlined(traffic_manager.recirculate)
stand_in = inlined(traffic_manager.stand_in)
withdraw = inlined(traffic_manager.withdraw)
_admit = inlined(traffic_manager.admit)
_is_congested = inlined(traffic_manager.is_congested)
_postponement = inlined(traffic_manager.postponement)
_resize = inlined(traffic_manager.resize)


@inlined
def clear(rows: Any, first: int, last: int) -> None:
    """Zero the words ``first`` .. ``last - 1``."""
    for position in range(first, last):
        put(rows, position, 0)


@inlined
def has_session(sessions: Any, session: int) -> Any:
    """Whether the control plane made mirror session ``session``."""
    return 2 * session < len(sessions) and get(sessions, 2 * session) != NO_SESSION


# ── Slots ────────────────────────────────────────────────────────────────────────────────────────


@inlined
def start_row(  # noqa: PLR0917 - called by emitted code only
    pool: Any,
    row: int,
    size: int,
    number: int,
    arrived: int,
    beyond: int,
    origins: Any,
    origin: int,
) -> None:
    """Fill the first words of a slot that was just taken, for one step."""
    put(pool, row + REFERENCES, 1)
    put(pool, row + SIZE, size)
    put(pool, row + AT, 0)
    put(pool, row + NUMBER, number)
    put(pool, row + ARRIVED, arrived)
    put(pool, row + ORIGIN, origin)
    put(pool, row + BEYOND, beyond)
    put(origins, origin + SLOTS, get(origins, origin + SLOTS) + 1)


@inlined
def release(  # noqa: PLR0917 - called by emitted code only
    pool: Any, width: int, slot: int, free: int, spare: int, origins: Any, free_origin: int
) -> Any:
    """Release a reference to a slot; returns the first free slot, the number of free slots, and the
    first free origin.
    """
    row = slot * width
    left = get(pool, row + REFERENCES) - 1
    if left > 0:
        put(pool, row + REFERENCES, left)
        return free, spare, free_origin
    put(pool, row + REFERENCES, free)
    origin = get(pool, row + ORIGIN)
    slots = get(origins, origin + SLOTS) - 1
    put(origins, origin + SLOTS, slots)
    if slots == 0:
        put(origins, origin + SLOTS, free_origin)
        free_origin = origin
    return slot, spare + 1, free_origin


# ── Entries ──────────────────────────────────────────────────────────────────────────────────────


@inlined
def entry_word(waiting: Any, entry: int, word: int) -> Any:
    """A word of an entry."""
    return get(waiting, entry * ENTRY_WORDS + word)


@inlined
def queue_of(port: int, priorities: int, priority: int) -> int:
    """The first word of a queue."""
    return (min(port, PORTS - 1) * priorities + priority) * QUEUE_WORDS


@inlined
def entry_priority(waiting: Any, entry: int, priorities: int) -> Any:
    """The priority of an entry's queue; -1 for a packet that recirculates."""
    return priorities - 1 - (entry_word(waiting, entry, RANK) >> _RANK_BITS)


@inlined
def entry_port(waiting: Any, entry: int) -> Any:
    """The port of an entry."""
    return entry_word(waiting, entry, WAY) & 0xFFFFFFFF


@inlined
def entry_rid(waiting: Any, entry: int) -> Any:
    """The replication id of an entry; -1 if it is not replicated."""
    return (entry_word(waiting, entry, WAY) >> 32) - 1


@inlined
def _sink(waiting: Any, entry: int, count: int) -> None:
    """Put an entry in the place of the first of ``count`` entries, and let it sink.

    It stands behind them.
    """
    size = 8 * ENTRY_WORDS
    departure = get(waiting, entry * ENTRY_WORDS + DEPARTURE)
    rank = get(waiting, entry * ENTRY_WORDS + RANK)
    position = 0
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        below = get(waiting, child * ENTRY_WORDS + DEPARTURE)
        if child + 1 < count:
            other = get(waiting, (child + 1) * ENTRY_WORDS + DEPARTURE)
            if other < below or (
                other == below
                and get(waiting, (child + 1) * ENTRY_WORDS + RANK)
                < get(waiting, child * ENTRY_WORDS + RANK)
            ):
                child += 1
                below = other
        if departure < below or (
            departure == below and rank < get(waiting, child * ENTRY_WORDS + RANK)
        ):
            break
        copy(waiting, size * position, waiting, size * child, size)
        position = child
    copy(waiting, size * position, waiting, size * entry, size)


@inlined
def copy_made(waiting: Any, entry: int) -> Any:
    """How many copies were enqueued before that of an entry."""
    return entry_word(waiting, entry, RANK) & ((1 << _RANK_BITS) - 1)


@inlined
def due(waiting: Any, count: int, limit: int) -> Any:
    """Whether a packet leaves its queue at time ``limit`` or before, unless it is postponed."""
    return count > 0 and get(waiting, DEPARTURE) <= limit


@inlined
def postpone(waiting: Any, count: int, queues: Any, priorities: int) -> bool:
    """Let the first entry wait on if others of higher priorities go before it; returns whether."""
    priority = entry_priority(waiting, 0, priorities)
    if priority < 0:
        return False
    queue = queue_of(entry_port(waiting, 0), priorities, priority)
    later = _postponement(queues, queue, get(waiting, PLANNED))
    if later == 0:
        return False
    put(waiting, DEPARTURE, get(waiting, DEPARTURE) + later)
    put(waiting, PLANNED, get(waiting, PLANNED) + later)
    # It sinks from the top; entry ``count`` is space for the exchange.
    copy(waiting, 8 * ENTRY_WORDS * count, waiting, 0, 8 * ENTRY_WORDS)
    _sink(waiting, count, count)
    return True


@inlined
def resize(  # noqa: PLR0917 - called by emitted code only
    waiting: Any, count: int, queues: Any, priorities: int, queue: int, planned: int, length: int
) -> None:
    """Let the packet that was removed last take its line for ``length`` bytes, not ``planned``."""
    if length != planned and _resize(queues, queue, planned, length) < 0:
        move_up(waiting, count, queues, priorities, queue // (priorities * QUEUE_WORDS))


@inlined
def move_up(waiting: Any, count: int, queues: Any, priorities: int, port: int) -> None:
    """Let what waits at a port leave sooner, as far as its ``postponement`` is less than 0."""
    # What waits at its port moves up, in the order of the heap: above an entry all is in order.
    # Entry ``count`` is space for the exchange.
    size = 8 * ENTRY_WORDS
    for entry in range(count):
        priority = entry_priority(waiting, entry, priorities)
        if priority < 0 or min(entry_port(waiting, entry), PORTS - 1) != port:
            continue
        planned = entry_word(waiting, entry, PLANNED)
        at = (port * priorities + priority) * QUEUE_WORDS
        later = _postponement(queues, at, planned)
        if later >= 0:
            continue
        copy(waiting, size * count, waiting, size * entry, size)
        departure = entry_word(waiting, entry, DEPARTURE) + later
        place = _rise(waiting, entry, departure, entry_word(waiting, entry, RANK))
        copy(waiting, 8 * place, waiting, size * count, size)
        put(waiting, place + DEPARTURE, departure)
        put(waiting, place + PLANNED, planned + later)


@inlined
def clock_of(queues: Any, time: int) -> Any:
    """``traffic_manager.TrafficManager.clock``."""
    clock = time // MICROSECOND
    if get(queues, len(queues) - IS_COARSE) != 0:
        clock //= MICROSECOND
    return clock


@inlined
def class_priority(given: int, queues: Any, store: Any, start: int, size: int) -> Any:
    """The priority of a packet whose bytes begin at ``start``: the program's, or by its DSCP.

    See ``traffic_manager.TrafficManager.set_dscp_priorities``.
    """
    end = len(queues)
    if given != 0 or get(queues, end - BY_DSCP) == 0 or size < 16:
        return given
    if load16(store, start + 12) != 0x0800:
        return given
    found = (load16(store, start + 14) & 0xFF) >> 5
    return min(found, get(queues, end - PRIORITIES) - 1)


@inlined
def enqueue_and_tell(  # noqa: PLR0917 - called by emitted code only
    waiting: Any,
    count: int,
    made: int,
    queues: Any,
    priorities: int,
    timed: int,
    now: int,
    statistics: Any,
    pool: Any,
    width: int,
    slot: int,
    port: int,
    rid: int,
    priority: int,
    length: int,
) -> Any:
    """Enqueue a copy; returns the number of waiting copies, and of copies so far; how many waited
    before it in its queue, -1 if there is no such queue; and when it leaves, -1 if it does not.

    Without times the copy bypasses its queue and is due at once.
    """
    if priority >= priorities:
        statistics[_DROPPED_INGRESS] += 1
        return count, made, -1, -1
    depth = 0
    departure = now
    planned = 0
    congested = 0
    length = max(length, 0)
    if timed != 0:
        queue = queue_of(port, priorities, priority)
        depth = get(queues, queue)
        congested = 1 if _is_congested(queues, queue) else 0
        departure = _admit(queues, queue, now, length)
        if departure < 0:
            statistics[_DROPPED_QUEUE] += 1
            return count, made, depth, -1
        planned = get(queues, queue + PRECEDED)
    row = slot * width
    put(pool, row + REFERENCES, get(pool, row + REFERENCES) + 1)
    rank = ((priorities - 1 - priority) << _RANK_BITS) | made
    entry = _rise(waiting, count, departure, rank)
    put(waiting, entry + SLOT, slot)
    put(waiting, entry + WAY, (rid + 1) << 32 | port)
    put(waiting, entry + ENQUEUED, now)
    put(waiting, entry + DEPTH, depth)
    put(waiting, entry + LENGTH, 2 * length + congested)
    put(waiting, entry + PLANNED, planned)
    return count + 1, made + 1, depth, departure


@inlined
def enqueue(  # noqa: PLR0917 - called by emitted code only
    waiting: Any,
    count: int,
    made: int,
    queues: Any,
    priorities: int,
    timed: int,
    now: int,
    statistics: Any,
    pool: Any,
    width: int,
    slot: int,
    port: int,
    rid: int,
    priority: int,
    length: int,
) -> Any:
    """``enqueue_and_tell``; returns the number of waiting copies, and of copies so far."""
    count, made, _, _ = enqueue_and_tell(
        waiting,
        count,
        made,
        queues,
        priorities,
        timed,
        now,
        statistics,
        pool,
        width,
        slot,
        port,
        rid,
        priority,
        length,
    )
    return count, made


@inlined
def enter_later(  # noqa: PLR0917 - called by emitted code only
    waiting: Any, count: int, made: int, priorities: int, arrival: int, slot: int
) -> Any:
    """Let the packet of a slot enter ingress again at ``arrival``; returns as ``enqueue``."""
    entry = _rise(waiting, count, arrival, priorities << _RANK_BITS | made)
    put(waiting, entry + SLOT, slot)
    return count + 1, made + 1


@inlined
def _rise(waiting: Any, count: int, departure: int, rank: int) -> Any:
    """Make room in the heap for an entry, and write its departure and rank; returns where."""
    position = count
    while position > 0:
        parent = (position - 1) >> 1
        above = get(waiting, parent * ENTRY_WORDS + DEPARTURE)
        if above < departure or (
            above == departure and get(waiting, parent * ENTRY_WORDS + RANK) < rank
        ):
            break
        copy(
            waiting,
            8 * ENTRY_WORDS * position,
            waiting,
            8 * ENTRY_WORDS * parent,
            8 * ENTRY_WORDS,
        )
        position = parent
    entry = position * ENTRY_WORDS
    put(waiting, entry + DEPARTURE, departure)
    put(waiting, entry + RANK, rank)
    return entry


@inlined
def pop_entry(waiting: Any, count: int) -> int:
    """Remove the first entry; returns the number of remaining entries. The removed one is stored
    after them, until the next ``enqueue``.
    """
    last = count - 1
    if last == 0:
        return 0
    size = 8 * ENTRY_WORDS
    # The first entry takes the last one's position, and the last one sinks from the top. Entry
    # ``count`` is space for the exchange.
    copy(waiting, size * count, waiting, 0, size)
    _sink(waiting, last, last)
    copy(waiting, size * last, waiting, size * count, size)
    return last


@inlined
def mark_congestion(data: Any, start: int, size: int, queues: Any, queue: int) -> None:
    """``traffic_manager.mark_congestion`` for the frame that begins at ``start``, and count it."""
    at = start + 14
    if size >= 38 and load16(data, start + 12) == 0x8100:
        at += 4
    if start + size < at + 20 or load16(data, at - 2) != 0x0800:
        return
    word = load16(data, at)
    if word >> 12 != 4 or word & 3 == 0 or word & 3 == 3:
        return
    total = (load16(data, at + 10) ^ 0xFFFF) + (word ^ 0xFFFF) + (word | 3)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    store16(data, at, word | 3)
    store16(data, at + 10, total ^ 0xFFFF)
    bump(queues, queue + MARKED, 1)


@inlined
def shortage(  # noqa: PLR0917 - called by emitted code only
    spare: int, entries: int, room: int, rows: int, needed: int, span: int, stride: int
) -> int:
    """The memory that the next step may lack (``traits.NEED_...``); 0 for none.

    There are ``spare`` slots, ``entries`` words of entries, ``rows`` for what leaves.

    A step takes at most three slots: for the packet, its clone, and a resubmitted or recirculated
    packet.
    """
    if spare < 3:
        return NEED_SLOTS
    if entries < room:
        return NEED_ENTRIES
    if rows < 1:
        return NEED_ROWS
    if needed > span or needed > stride:
        return NEED_BYTES
    return 0
