"""Priority flow control (PFC, IEEE 802.1Qbb) of simulated networks: no packet finds a buffer full.

A switch counts, for each link to it and each priority, the bytes in its queues that came by that
link. When they exceed a part of what is free in its buffer (``pfc_alpha``), it sends a pause frame
back. The sender then begins no packet of that priority until a frame resumes it. What comes in
between finds room in the headroom. A pause has no end of its own: senders of real pause frames
repeat them before their time (65,535 quanta) is over.

A paused queue's packets leave ``FOREVER`` later than planned, which the traffic manager's word
``PRECEDED`` tells them (``traffic_manager.postponement``), and sooner again when it is resumed.
What a paused host has put onto its link, and not begun to send, likewise stays in the link's ring,
behind all packets of other priorities.

All of this is one compiled function, which others call by its address (``links.call_control``): a
network without flow control does not compile it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StalledError
from innet.core.numba_cache import entry_of, njit
from innet.sim.links import (
    AT_HOST,
    AT_SWITCH,
    PUT,
    move,
    put_pause_frame,
    ring_room,
    wire_time,
)
from innet.sim.network import OVERHEAD, SECOND, Network
from innet.sim.state import (
    HELD,
    MANY,
    MESSAGES,
    NEEDS_RING,
    PAUSABLE,
    PAUSE_FRAME,
    PAUSING,
    control_at,
    controls_view,
    data_at,
    flow_at,
    get_number,
    host_at,
    int_at,
    ints_view,
    link_at,
    pausing_at,
    program_at,
    slot_at,
    states_view,
    switch_at,
    waiting_at,
)
from innet.sim.switches import move_up
from innet.switch.inline import TRAFFIC_ENTRIES
from innet.switch.jit.runtime import queue as entries
from innet.switch.traffic_manager import (
    ALPHA_ONE,
    BUFFER_USED,
    FOREVER,
    FREE,
    PORTS,
    PRECEDED,
    QUEUE_WORDS,
)

_IPV4, _DSCP_BYTES = 0x0800, 16


# ------------------------------------------------------------------ queues of switches


@njit(cache=True, nogil=True)
def _priorities(switch: Any) -> int:
    """Queues of each port of a switch."""
    return int(switch.queues // QUEUE_WORDS)


@njit(cache=True, nogil=True)
def _waits(state: Any, number: int, queue: int, rate: int) -> int:
    """Picoseconds that the packets in a queue of a switch take on its link."""
    switch, program = switch_at(state, number), program_at(state, number)
    took = 0
    for at in range(switch.waiting):
        kept = waiting_at(state, number, at)
        if kept.queue == queue:
            took += wire_time(kept.length, rate)
    if switch.runs:
        waiting, most = ints_view(program.waiting, program.waiting_words), _priorities(switch)
        for entry in range(int_at(program.traffic, TRAFFIC_ENTRIES)):
            priority = entries.entry_priority(waiting, entry, most)
            port = entries.entry_port(waiting, entry)
            if priority >= 0 and entries.queue_of(port, most, priority) == queue:
                length = entries.entry_word(waiting, entry, entries.LENGTH) >> 1
                took += wire_time(length, rate)
    return int(took)


@njit(cache=True, nogil=True)
def _replan(state: Any, number: int, link: int, now: int) -> None:
    """Plan anew when packets that wait for a switch's link leave.

    Those of paused priorities leave ``FOREVER`` later, and the others do not wait for them.
    """
    switch, program = switch_at(state, number), program_at(state, number)
    port, most = link_at(state, link ^ 1).port, _priorities(switch)
    queues = ints_view(program.queues, program.queue_words)
    line = max(now, link_at(state, link).free)
    for below in range(most):
        priority = most - 1 - below
        queue = port * switch.queues + priority * QUEUE_WORDS
        took = _waits(state, number, queue, link_at(state, link).rate)
        begin = FOREVER if pausing_at(state, link, priority).is_paused else line
        if took > 0:
            queues[queue + PRECEDED] += begin + took - queues[queue + FREE]
        queues[queue + FREE] = begin + took
        if begin < FOREVER:
            line += took
    move_up(state, number)
    if switch.runs:
        waiting = ints_view(program.waiting, program.waiting_words)
        count = int_at(program.traffic, TRAFFIC_ENTRIES)
        entries.move_up(waiting, count, queues, most, port)


@njit(cache=True, nogil=True)
def _count_program(state: Any, number: int) -> None:
    """Count the bytes of the program's packets in a switch's queues, by the link that they came by.

    A packet that waits in several queues counts once.
    """
    program = program_at(state, number)
    for at in range(int_at(state.first_into, number), int_at(state.first_into, number + 1)):
        for priority in range(state.classes):
            pausing_at(state, int_at(state.into, at), priority).held_of_program = 0
    if not switch_at(state, number).runs:
        return
    waiting = ints_view(program.waiting, program.waiting_words)
    pool = ints_view(program.pool, MANY)
    ways = ints_view(state.ways, MANY)
    most = _priorities(switch_at(state, number))
    for entry in range(int_at(program.traffic, TRAFFIC_ENTRIES)):
        priority = entries.entry_priority(waiting, entry, most)
        if priority < 0:  # it recirculates
            continue
        row = entries.entry_word(waiting, entry, entries.SLOT) * program.row_words
        port = pool[row + entries.ARRIVED]
        back = ways[number * PORTS + port] if 0 <= port < PORTS else -1
        if back >= 0:
            length = entries.entry_word(waiting, entry, entries.LENGTH) >> 1
            held = length // max(1, pool[row + entries.REFERENCES])
            pausing_at(state, back ^ 1, priority).held_of_program += held


@njit(cache=True, nogil=True)
def _step(state: Any, number: int, now: int) -> int:
    """After an event of a switch: pause senders, and resume them; why it cannot, or 0."""
    control, program = control_at(state, number), program_at(state, number)
    queues = ints_view(program.queues, program.queue_words)
    used = queues[len(queues) - BUFFER_USED]
    limit = max(0, control.shared - used) * state.pause_alpha // ALPHA_ONE
    if control.stopped > 0 or used > limit:  # otherwise nobody has that much
        _count_program(state, number)
        for at in range(int_at(state.first_into, number), int_at(state.first_into, number + 1)):
            link = int_at(state.into, at)
            for priority in range(state.classes):
                pausing = pausing_at(state, link, priority)
                held = pausing.held + pausing.held_of_program
                if pausing.is_stopped:
                    changes = held == 0 or held + state.resume_offset <= limit
                else:
                    changes = held > limit
                if not changes:
                    continue
                if ring_room(link_at(state, link ^ 1)) < 1:
                    control.link = link ^ 1
                    return NEEDS_RING
                pausing.is_stopped = 1 - pausing.is_stopped
                control.stopped += 2 * pausing.is_stopped - 1
                pausing.stopped = now
                put_pause_frame(state, link ^ 1, priority, pausing.is_stopped, now)
                _replan(state, number, link ^ 1, now)
    if state.classes > 1 and control.paused > 0:
        # Packets of a paused priority that have come do not keep those of lower ones waiting.
        for at in range(int_at(state.first_into, number), int_at(state.first_into, number + 1)):
            link = int_at(state.into, at) ^ 1
            for priority in range(state.classes):
                if pausing_at(state, link, priority).is_paused:
                    _replan(state, number, link, now)
                    break
    return 0


@njit(cache=True, nogil=True)
def _note_pause(state: Any, link: int, priority: int, pause: int, now: int) -> bool:
    """Note that a link is paused or resumed; whether that changes something."""
    pausing = pausing_at(state, link, priority)
    if pausing.is_paused == pause:
        return False
    pausing.is_paused = pause
    if pause:
        pausing.pauses += 1
        pausing.since = now
    else:
        pausing.paused += now - pausing.since
    return True


@njit(cache=True, nogil=True)
def _pause_switch(state: Any, number: int, link: int, frame: int, now: int) -> None:
    """A pause frame about a link of a switch has come."""
    if _note_pause(state, link, frame >> 1, frame & 1, now):
        control_at(state, number).paused += 2 * (frame & 1) - 1
        _replan(state, number, link, now)


# ------------------------------------------------------------------ links of hosts


@njit(cache=True, nogil=True)
def _priority(state: Any, row: int) -> int:
    """The priority of a packet on a host's link, as switches tell it."""
    slot = slot_at(state, row)
    if slot.flow >= 0:
        return int(flow_at(state, slot.flow).priority)
    if slot.carried < _DSCP_BYTES or state.classes == 1:
        return 0
    data = data_at(state, row, slot.carried)
    if get_number(data, 12, 2) != _IPV4:
        return 0
    return int(min(np.int64(data[15]) >> 5, state.classes - 1))


@njit(cache=True, nogil=True)
def _sort(state: Any, link: int, begin: int) -> None:
    """Sort the packets on a link from place ``begin`` on by when they arrive."""
    wire = link_at(state, link)
    first, mask, spare = wire.first, wire.mask, wire.first + (wire.tail & wire.mask)
    for last in range(begin + 1, wire.tail):
        at = last
        time = slot_at(state, first + (at & mask)).time
        if slot_at(state, first + ((at - 1) & mask)).time <= time:
            continue
        move(state, first + (at & mask), spare)
        while at > wire.head and slot_at(state, first + ((at - 1) & mask)).time > time:
            move(state, first + ((at - 1) & mask), first + (at & mask))
            at -= 1
        move(state, spare, first + (at & mask))


@njit(cache=True, nogil=True)
def _hold(state: Any, link: int) -> None:
    """Let packets of paused priorities that a host has not begun to send wait behind all others."""
    wire = link_at(state, link)
    begin, since, free = wire.tail, FOREVER, 0
    for priority in range(state.classes):
        pausing = pausing_at(state, link, priority)
        if pausing.is_paused:
            since = min(since, pausing.since)
    for back in range(wire.tail - wire.head):
        at = wire.tail - 1 - back
        row = wire.first + (at & wire.mask)
        slot = slot_at(state, row)
        if slot.time >= FOREVER:
            continue
        if slot.time < since:
            break
        pausing = pausing_at(state, link, _priority(state, row))
        if slot.flow != PAUSE_FRAME and pausing.is_paused and slot.begun >= pausing.since:
            slot.time += FOREVER
            slot.begun += FOREVER
            begin = at
        else:
            free = max(free, slot.begun + wire_time(slot.length, wire.rate))
    wire.free = max(free, since)
    _sort(state, link, begin)


@njit(cache=True, nogil=True)
def _release(state: Any, link: int, priority: int, now: int) -> None:
    """Let packets of a host's priority go on, one after the other."""
    wire = link_at(state, link)
    begin = wire.tail
    for at in range(wire.head, wire.tail):
        row = wire.first + (at & wire.mask)
        slot = slot_at(state, row)
        if slot.time < FOREVER or _priority(state, row) != priority:
            continue
        begun = max(slot.begun - FOREVER, wire.free, now)
        slot.time += begun - slot.begun
        slot.begun = begun
        wire.free = begun + wire_time(slot.length, wire.rate)
        begin = min(begin, at)
    while begin > wire.head and begin < wire.tail:  # others that wait may stand before them
        if slot_at(state, wire.first + ((begin - 1) & wire.mask)).time < FOREVER:
            break
        begin -= 1
    _sort(state, link, begin)


@njit(cache=True, nogil=True)
def _pause_host(state: Any, host: int, frame: int, now: int) -> None:
    """A pause frame has come to a host."""
    here = host_at(state, host)
    wire = link_at(state, here.up)
    if not _note_pause(state, here.up, frame >> 1, frame & 1, now):
        return
    if frame & 1:
        wire.is_faulty |= HELD
        _hold(state, here.up)
        return
    _release(state, here.up, frame >> 1, now)
    is_held = 0
    for priority in range(state.classes):
        is_held |= pausing_at(state, here.up, priority).is_paused
    if not is_held:
        wire.is_faulty &= ~HELD
    if here.kind == MESSAGES:  # it has given its link nothing meanwhile
        here.timer = min(here.timer, now + 1)


# ------------------------------------------------------------------ what others call


@njit("i4(i8)", cache=True, nogil=True)
def control_flow(address: int) -> int:
    """Do what a CONTROL says; why it cannot, or 0."""
    control = controls_view(address, 1)[0]
    state = states_view(control.state, 1)[0]
    if control.what == AT_SWITCH:
        frame = slot_at(state, control.row).number
        _pause_switch(state, control.node, control.link ^ 1, frame, control.now)
    elif control.what == AT_HOST:
        _pause_host(state, control.node, slot_at(state, control.row).number, control.now)
    elif control.what == PUT:
        _hold(state, control.link)
    else:
        return int(_step(state, control.node, control.now))
    return 0


@njit(cache=True, nogil=True)
def send_pause(states: Any, link: int, priority: int, pause: int, now: int) -> int:
    """A host's network card pauses its link, for Python; why it cannot, or 0."""
    state = states[0]
    if ring_room(link_at(state, link)) < 1:
        return NEEDS_RING
    put_pause_frame(state, link, priority, pause, now)
    return 0


# ------------------------------------------------------------------ for Python


_LONGEST_FRAME = 9216
"""Bytes of the longest packet that headroom is for by default: jumbo frames."""
_SPARE = 1024  # a part of the buffer that a queue cannot use: 1 of this many
_LOOK = SECOND // 1000  # how often links that wait for each other are looked for
_PATIENCE = 10 * _LOOK
"""How long all links of a cycle have been paused before that is an error."""

Key = tuple[int, int]
"""A link and a priority."""


class PauseCounts(NamedTuple):
    """How often packets of a priority were paused on a link.

    Attributes:
        source, target: names of its ends.
        priority: of the packets.
        pauses: how often the source was paused.
        paused: seconds in which it was.
    """

    source: str
    target: str
    priority: int
    pauses: int
    paused: float


class FlowControl:
    """What a network with priority flow control has beside others.

    Args:
        network: with ``pfc``.
        memory: the network's arrays; those of flow control are added.
        classes: priorities of packets.
        longest: bytes of the longest packet of the program.
        name: of a link, by number.

    Attributes:
        buffer: bytes of each switch.

    Raises:
        InputError: a buffer that is too small for the headroom.
    """

    def __init__(
        self,
        network: Network,
        memory: Any,
        classes: int,
        longest: int,
        name: Callable[[int], str],
    ) -> None:
        self._memory, self._name = memory, name
        self._watchdog = round(network.pfc_watchdog * SECOND)
        self._next = _LOOK
        self.buffer = network.shared_buffer
        links, state = memory.links, memory.state
        links["is_faulty"] |= PAUSABLE
        frame = max(longest, _LONGEST_FRAME) + OVERHEAD
        for switch in range(len(memory.switches)):
            into = links[links["switch"] == switch]
            headroom = sum(_headroom(network, frame, wire) for wire in into) * classes
            shared = self.buffer - headroom - self.buffer // _SPARE
            if shared < frame:
                raise InputError(
                    f"buffer_bytes is {self.buffer}, of which {len(into)} links to a switch take "
                    f"{headroom} as headroom for pauses; give more, or set pfc_headroom."
                )
            memory.controls["shared"][switch] = shared
        memory.keep("pausing", np.zeros(len(links) * classes, PAUSING))
        state["classes"] = classes
        state["pause_alpha"] = round(network.pfc_alpha * ALPHA_ONE)
        state["resume_offset"] = 2 * frame if network.pfc_xon is None else network.pfc_xon
        # Pause frames reach a switch without its pipeline.
        shortest = [wire_time(0, rate) for rate in links["rate"].tolist()]
        soonest = int((links["delay"] - links["pipeline"] + shortest).min())
        state["lookahead"] = min(int(state["lookahead"]), soonest)
        state["control"] = entry_of(control_flow)

    @property
    def next_look(self) -> int:
        """Picoseconds at which ``look`` is to be called."""
        return self._next

    def _keys(self, rows: NDArray[Any]) -> list[Key]:
        """The links and priorities of PAUSING in these places."""
        classes = int(self._memory.state["classes"])
        return [divmod(row, classes) for row in np.flatnonzero(rows).tolist()]

    def counts(self, now: int) -> list[PauseCounts]:
        """Of all links and priorities that were ever paused, up to ``now``."""
        pausing = self._memory.pausing
        found = []
        for link, priority in self._keys(pausing["pauses"] > 0):
            source, target = self._name(link).split(" to ")
            here = pausing[link * int(self._memory.state["classes"]) + priority]
            paused = int(here["paused"]) + (now - int(here["since"])) * int(here["is_paused"])
            pauses = int(here["pauses"])
            found.append(PauseCounts(source, target, priority, pauses, paused / SECOND))
        return found

    def totals(self, now: int) -> tuple[int, tuple[int, ...]]:
        """Pauses of all links, and picoseconds in which each link and priority was paused."""
        pausing = self._memory.pausing
        lasting = np.where(pausing["is_paused"] == 1, np.maximum(0, now - pausing["since"]), 0)
        return int(pausing["pauses"].sum()), tuple((pausing["paused"] + lasting).tolist())

    def look(self, now: int, waiting: Callable[[int], Iterator[tuple[int, int]]]) -> None:
        """Look for links that will never be resumed.

        Args:
            now: picoseconds; ``FOREVER``: nothing else will ever happen.
            waiting: of a switch: for each of its packets that waits, the place in ``pausing`` of
                its queue, and of the link and priority by which it came.

        Raises:
            StalledError: links wait for each other in a cycle, or a host's for the watchdog's time.
        """
        self._next = now + _LOOK
        pausing = self._memory.pausing
        if not pausing["is_paused"].any():
            return
        # Step 1: which queues hold packets that came by a paused link.
        ahead: dict[int, set[int]] = {}
        for switch in range(len(self._memory.switches)):
            for queue, came in waiting(switch):
                ahead.setdefault(came, set()).add(queue)
        # Step 2: a link is blocked if all that it waits for is, and has been for long.
        since = np.maximum(pausing["since"], pausing["stopped"]) if now < FOREVER else 0
        is_old = (pausing["is_stopped"] == 1) & (pausing["is_paused"] == 1)
        is_old &= since <= now - _PATIENCE
        blocked = {row for row in np.flatnonzero(is_old).tolist() if row in ahead}
        while free := {row for row in blocked if not ahead[row] <= blocked}:
            blocked -= free
        if blocked:
            cycle = [min(blocked)]
            while (following := min(ahead[cycle[-1]])) not in cycle:
                cycle.append(following)
            self._tell_cycle(cycle[cycle.index(following) :])
        # Step 3: a host that pauses its link for too long.
        classes = int(self._memory.state["classes"])
        for link, priority in self._keys(pausing["is_paused"] == 1):
            row = link * classes + priority
            lasted = now - int(pausing["since"][row])
            if self._memory.links["switch"][link] < 0 and lasted >= self._watchdog:
                others = int((pausing["is_paused"] == 1).sum()) - 1
                began = int(pausing["since"][row]) / SECOND
                raise StalledError(
                    f"pause storm: the link {self._name(link)} has been paused since {began:.6f} s "
                    f"(priority {priority}), and {others} others with it; what pauses it is "
                    f"host {int(self._memory.links['port'][link])}. pfc_watchdog says how long a "
                    "host may."
                )

    def _tell_cycle(self, cycle: Sequence[int]) -> None:
        """Say which links wait for each other, by places in ``pausing``."""
        classes = int(self._memory.state["classes"])
        names = "; ".join(self._name(row // classes) for row in cycle)
        raise StalledError(
            f"deadlock by priority flow control (priority {cycle[0] % classes}): each of these "
            f"links is paused until the next one is resumed, in a cycle: {names}. Give routes "
            "without a cycle, a larger buffer_bytes, or pfc=false."
        )


def _headroom(network: Network, frame: int, wire: Any) -> int:
    """Bytes that come by a link until its sender is paused, and one packet each way is over."""
    if network.pfc_headroom is not None:
        return network.pfc_headroom
    flying = 2 * int(wire["delay"]) - int(wire["pipeline"])
    return flying * int(wire["rate"]) // (8 * SECOND) + 2 * frame
