"""Links of simulated networks, in compiled code: packets are sent, lost, and meet faults.

A link sends one packet after the other. Draws depend on seed, link and number of the packet. So a
run is the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.sim.messenger import PATHS
from innet.sim.network import OVERHEAD, SECOND, SHORTEST
from innet.sim.state import (
    CONTROL,
    DAMAGED,
    FAULTY,
    FULL_TRACE,
    HELD,
    LOST,
    MANY,
    NEEDS_RING,
    OF_COPIES,
    OF_CORRUPTED,
    OF_DUPLICATED,
    OF_HELD,
    OF_LOST,
    OF_MARKED,
    OF_TRUNCATED,
    PAUSE_FRAME,
    SENT,
    bytes_view,
    control_at,
    copy_bytes,
    count_fault,
    count_of_flow,
    data_at,
    faults_view,
    get_number,
    link_at,
    messenger_at,
    outages_view,
    put_number,
    slot_at,
    traces_view,
)
from innet.switch.inline import call_at
from innet.switch.traffic_manager import FOREVER

STEP, AT_SWITCH, AT_HOST, PUT = range(4)
"""What priority flow control is called for: an event of a switch is over; a pause frame came to a
switch, or to a host; a host that it pauses has put a packet onto its link."""

_CONTROL_BYTES = CONTROL.itemsize
_FAULT_STREAM = 1 << 40  # of links' draws for faults, times the number of the draw
_LONGEST_BURST = 15  # bits, as ``innet.network.faults`` has it
_ETHERNET_AND_IPV4, _ETHERTYPE, _TOS, _CHECKSUM = 34, 12, 15, 24  # bytes, and where they begin
_CONGESTED = 3  # in the last two bits of the type of service (RFC 3168)


@njit(cache=True, nogil=True)
def wire_time(length: int, rate: int) -> int:
    """Picoseconds that a frame of ``length`` bytes takes on the wire, rounded up."""
    bits = 8 * (max(length, SHORTEST) + OVERHEAD)
    return int((bits * SECOND + rate - 1) // rate)


@njit(cache=True, nogil=True)
def draw(seed: int, stream: int, number: int) -> float:
    """A number in [0, 1) from seed, link or flow, and packet number (splitmix64's finalizer)."""
    word = (
        np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        + np.uint64(stream + 1) * np.uint64(0xD1B54A32D192ED03)
        + np.uint64(number + 1) * np.uint64(0x8CB92BA72F3D8DD7)
    )
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return float(word >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def ring_room(wire: Any) -> int:
    """How many packets a LINK can take before its ring is full."""
    room = wire.mask + 1 - (wire.tail - wire.head)
    # Of a faulty link, each packet may become two, and one more slot is used for sorting.
    # Likewise of one whose sender may be paused.
    return int((room - 1) // 2 if wire.is_faulty else room)


@njit(cache=True, nogil=True)
def _is_down(state: Any, link: int, time: int) -> bool:
    for at in range(link_at(state, link).outages, state.outage_count):
        outage = outages_view(state.outages, MANY)[at]
        if outage.link != link:
            break
        if outage.since <= time < outage.until:
            return True
    return False


@njit(cache=True, nogil=True)
def transmit(  # noqa: PLR0917 - compiled functions are called by position
    state: Any, link: int, length: int, carried: int, flow: int, now: int
) -> int:
    """Put a packet onto a link at ``now``, or as soon as the link is free.

    Its ring must have room. It takes the time of ``length`` bytes, of which it carries the first
    ``carried``.

    Returns:
        Its slot, for the packet's bytes and, with a flow, ``sent``, ``number`` and ``host``. They
        are overwritten by the next packet if this one is lost.
    """
    wire = link_at(state, link)
    if length != wire.length:
        wire.length, wire.takes = length, wire_time(length, wire.rate)
    took = wire.takes
    begun = max(now, wire.free)
    wire.free = begun + took
    number = wire.packets
    wire.packets = number + 1
    wire.bytes += max(length, SHORTEST) + OVERHEAD
    wire.busy += took
    row = wire.first + (wire.tail & wire.mask)
    slot = slot_at(state, row)
    slot.time, slot.begun = begun + took + wire.delay, begun
    slot.flow, slot.length, slot.carried = flow, length, carried
    fate = SENT
    if (wire.loss > 0 and draw(state.seed, link, number) < wire.loss) or (
        wire.outages >= 0 and _is_down(state, link, begun)
    ):
        wire.lost += 1
        fate = LOST
        if flow >= 0:
            count_of_flow(state, flow, OF_LOST)
    else:
        wire.tail += 1
    if wire.is_traced:
        traced = traces_view(state.trace, MANY)[state.traced_packets]
        traced.time, traced.link, traced.length = begun, link, length
        traced.carried, traced.flow, traced.number = carried, flow, -1
        traced.arrives, traced.again, traced.fate = slot.time, 0, fate
    return int(row)


@njit(cache=True, nogil=True)
def written(state: Any, link: int, row: int) -> None:
    """Note the bytes of a packet in the trace, if its link is traced; then let faults happen."""
    wire = link_at(state, link)
    if wire.is_traced:
        at = state.traced_packets
        length = slot_at(state, row).carried
        kept = bytes_view(state.traced + at * state.stride, length)
        copy_bytes(kept, data_at(state, row, length), length)
        if slot_at(state, row).flow >= 0:
            traces_view(state.trace, MANY)[at].number = slot_at(state, row).number
        state.traced_packets = at + 1
    if wire.is_faulty and row == wire.first + ((wire.tail - 1) & wire.mask):  # it is not lost
        if wire.is_faulty & FAULTY:
            _inject_faults(state, link, row)
        if wire.is_faulty & HELD:
            call_control(state, state.switch_count + host_of(state, link), PUT, link, row, 0)


@njit(cache=True, nogil=True)
def host_of(state: Any, link: int) -> int:
    """The host that sends by a link: that to which the other direction leads."""
    return int(link_at(state, link ^ 1).port)


@njit(cache=True, nogil=True)
def call_control(  # noqa: PLR0917 - compiled functions are called by position
    state: Any, node: int, what: int, link: int, row: int, now: int
) -> int:
    """Let priority flow control work (``innet.sim.flow_control``), which must be on.

    It is called by its address, so that a network without it need not compile it.

    Returns:
        why it cannot, or 0; the node's CONTROL says which link that is about.
    """
    return call_entry(state, state.control, node, what, link, row, now)


@njit(cache=True, nogil=True)
def call_entry(  # noqa: PLR0917 - likewise
    state: Any, entry: int, node: int, what: int, link: int, row: int, now: int
) -> int:
    """Call a function at an address with a node's CONTROL, where it also leaves more than a number;
    returns what it does.
    """
    control = control_at(state, node)
    control.what, control.link, control.row, control.now = what, link, row, now
    return int(call_at(entry, state.controls + node * _CONTROL_BYTES))


@njit(cache=True, nogil=True)
def put_pause_frame(state: Any, link: int, priority: int, pause: int, now: int) -> None:
    """Put a frame that pauses (1) or resumes (0) a priority onto a link, behind what is being sent.

    Its ring must have room. The frame is never lost, as real ones are repeated, and it reaches a
    switch without passing its pipeline.
    """
    wire = link_at(state, link)
    took = wire_time(SHORTEST, wire.rate)
    begun = max(now, wire.free)
    wire.free = begun + took
    wire.packets += 1
    wire.bytes += SHORTEST + OVERHEAD
    wire.busy += took
    slot = slot_at(state, wire.first + (wire.tail & wire.mask))
    slot.time, slot.begun = begun + took + wire.delay - wire.pipeline, begun
    slot.flow, slot.length, slot.carried = PAUSE_FRAME, SHORTEST, 0
    slot.sent, slot.number, slot.host, slot.marked = now, 2 * priority + pause, 0, 0
    wire.tail += 1
    reorder(state, link, wire.tail)


@njit(cache=True, nogil=True)
def blocked_by(state: Any, link: int) -> int:
    """Why a link cannot take a packet now: 0, NEEDS_RING or FULL_TRACE."""
    if ring_room(link_at(state, link)) < 1:
        return NEEDS_RING
    if link_at(state, link).is_traced and state.traced_packets >= state.trace_room:
        return FULL_TRACE
    return 0


@njit(cache=True, nogil=True)
def note(state: Any, link: int, fate: int, now: int, number: int) -> Any:
    """A new line of the trace, which must have room, for what is no packet on a link."""
    traced = traces_view(state.trace, MANY)[state.traced_packets]
    traced.time, traced.link, traced.fate, traced.number = now, link, fate, number
    traced.length, traced.carried, traced.flow = 0, 0, -1
    traced.arrives, traced.again = now, 0
    state.traced_packets += 1
    return traced


@njit(cache=True, nogil=True)
def is_message(state: Any, slot: Any) -> bool:
    """Whether a packet is one of a message, or an acknowledgement."""
    if state.messenger == 0:
        return False
    first = messenger_at(state).first_flow
    return bool(first <= slot.flow < first + PATHS)


@njit(cache=True, nogil=True)
def next_arrival(state: Any, link: int) -> int:
    """When the next packet of a link arrives; FOREVER if none is on it."""
    wire = link_at(state, link)
    if wire.head == wire.tail:
        return FOREVER
    return int(slot_at(state, wire.first + (wire.head & wire.mask)).time)


# ------------------------------------------------------------------ faults


@njit(cache=True, nogil=True)
def _inject_faults(state: Any, link: int, row: int) -> None:
    """Let faults happen to the packet that was put onto a link last. Its ring must have room."""
    wire, faults = link_at(state, link), faults_view(state.faults, 1)[0]
    number = wire.packets - 1
    twice = draw(state.seed, link + _FAULT_STREAM, number) < faults.duplicate
    if twice:
        count_fault(state, OF_COPIES)
        move(state, row, wire.first + (wire.tail & wire.mask))
        slot = slot_at(state, row)
        if slot.flow >= 0:
            count_of_flow(state, slot.flow, OF_DUPLICATED)
        # The copy waits beyond the ring's end while the first one finds its place.
        _apply_faults(state, link, row, number, 0)
        _trace_fault(state, link, row, 0)
        reorder(state, link, wire.tail + 1)
        wire.tail += 1
        row = wire.first + ((wire.tail - 1) & wire.mask)
        _apply_faults(state, link, row, number, 1)
        _trace_fault(state, link, row, 1)
        reorder(state, link, wire.tail)
    else:
        _apply_faults(state, link, row, number, 0)
        _trace_fault(state, link, row, 0)
        reorder(state, link, wire.tail)


@njit(cache=True, nogil=True)
def _trace_fault(state: Any, link: int, row: int, copy: int) -> None:
    """Note in the trace what faults have made of a copy of its last packet."""
    if not link_at(state, link).is_traced:
        return
    at = state.traced_packets - 1
    traced, slot = traces_view(state.trace, MANY)[at], slot_at(state, row)
    if copy == 0:
        traced.arrives = slot.time
    else:
        traced.again = slot.time
    if slot.carried != traced.carried:
        traced.fate = DAMAGED
        return
    kept = bytes_view(state.traced + at * state.stride, slot.carried)
    came = data_at(state, row, slot.carried)
    for byte in range(slot.carried):
        if kept[byte] != came[byte]:
            traced.fate = DAMAGED
            break


@njit(cache=True, nogil=True)
def move(state: Any, source: int, target: int) -> None:
    """Copy a packet from slot to slot."""
    came, kept = slot_at(state, source), slot_at(state, target)
    kept.time, kept.sent, kept.number, kept.flow = came.time, came.sent, came.number, came.flow
    kept.begun = came.begun
    kept.length, kept.carried, kept.host = came.length, came.carried, came.host
    kept.marked = came.marked
    carried = came.carried
    copy_bytes(data_at(state, target, carried), data_at(state, source, carried), carried)


@njit(cache=True, nogil=True)
def reorder(state: Any, link: int, spare: int) -> None:
    """Let the last packet of a link overtake those that arrive later; ``spare`` is a free place."""
    wire = link_at(state, link)
    first, mask, at = wire.first, wire.mask, wire.tail - 1
    time = slot_at(state, first + (at & mask)).time
    if at == wire.head or slot_at(state, first + ((at - 1) & mask)).time <= time:
        return
    move(state, first + (at & mask), first + (spare & mask))
    while at > wire.head and slot_at(state, first + ((at - 1) & mask)).time > time:
        move(state, first + ((at - 1) & mask), first + (at & mask))
        at -= 1
    move(state, first + (spare & mask), first + (at & mask))


@njit(cache=True, nogil=True)
def _apply_faults(state: Any, link: int, row: int, number: int, copy: int) -> None:
    """Delay, damage or mark a copy of a packet."""
    faults, slot = faults_view(state.faults, 1)[0], slot_at(state, row)
    seed, stream = state.seed, link + (2 + 16 * copy) * _FAULT_STREAM
    late = faults.jitter * draw(seed, stream, number)
    if draw(seed, stream + _FAULT_STREAM, number) < faults.reorder:
        count_fault(state, OF_HELD)
        late += faults.hold * draw(seed, stream + 2 * _FAULT_STREAM, number)
    slot.time += int(late)
    is_marked = draw(seed, stream + 3 * _FAULT_STREAM, number) < faults.mark
    if slot.flow >= 0:  # there are no bytes that could be wrong
        if is_marked:
            slot.marked = 1
            count_fault(state, OF_MARKED)
        return
    data = data_at(state, row, slot.carried)
    if is_marked and _mark(data, slot.carried):
        count_fault(state, OF_MARKED)
    if slot.carried > 0 and draw(seed, stream + 4 * _FAULT_STREAM, number) < faults.corrupt:
        count_fault(state, OF_CORRUPTED)
        bits = 8 * slot.carried
        size = 1 + int(min(_LONGEST_BURST, bits) * draw(seed, stream + 5 * _FAULT_STREAM, number))
        begin = int((bits - size + 1) * draw(seed, stream + 6 * _FAULT_STREAM, number))
        inside = int((1 << 13) * draw(seed, stream + 7 * _FAULT_STREAM, number))
        for bit in range(size):  # a burst begins and ends with a wrong bit
            if bit == 0 or bit == size - 1 or inside >> (bit - 1) & 1:
                at = begin + bit
                data[at >> 3] ^= np.uint8(0x80 >> (at & 7))
    if draw(seed, stream + 8 * _FAULT_STREAM, number) < faults.truncate:
        count_fault(state, OF_TRUNCATED)
        cut = slot.carried - int(slot.carried * draw(seed, stream + 9 * _FAULT_STREAM, number))
        slot.carried -= cut
        slot.length -= cut


@njit(cache=True, nogil=True)
def _mark(data: NDArray[np.uint8], length: int) -> bool:
    """Note congestion in an IPv4 packet that may carry it, as ``innet.network.faults.mark``."""
    if length < _ETHERNET_AND_IPV4 or get_number(data, _ETHERTYPE, 2) != 0x0800:
        return False
    before = int(data[_TOS])
    if before & _CONGESTED == 0:
        return False
    data[_TOS] = before | _CONGESTED
    total = (~get_number(data, _CHECKSUM, 2) & 0xFFFF) + (before | _CONGESTED) - before
    total = (total & 0xFFFF) + (total >> 16)
    put_number(data, _CHECKSUM, ~total & 0xFFFF, 2)
    return True
