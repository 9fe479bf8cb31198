"""The event loop in simulated time, compiled: links, hosts, and switches that run their program.

Times are whole picoseconds. Time passes in windows that are no longer than what any packet needs to
its next node. So what a node does within a window changes nothing that another one does in it, and
each node runs its own events of the window, in order of time, before the next node does (a
conservative simulation with synchronous windows; Lubachevsky, CACM 32(1), 1989). A switch can then
take all packets of a window in one call of its compiled program.

Events of one node at the same time happen in the order: arrivals by the number of their link,
departures from its queues, a start, a flow's packet, a timer. Draws depend on seed, link and number
of the packet. So a run is the same on every machine.

Packets lie in the ring of the link that they are on, from the moment they are put onto it until the
node at its end takes them. A packet is one of two kinds. The program's packets carry their bytes.
Packets of flows (``flow >= 0``) carry a number only; switches forward them by themselves, through
the same queues. Flows may also send packets of the program, with bytes of the user's.

``run`` does all that needs neither memory nor a decision, and says what it returns for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.views import viewer
from innet.protocol.compiled import fill_frame, receive_frame
from innet.protocol.counters import Stats
from innet.protocol.timers import (
    PACE_REORDERING,
    next_deadline,
    send_again,
    shortest_wait,
    start,
    take_due,
)
from innet.sim import messenger
from innet.sim.heap import push, replace_first
from innet.sim.messenger import MESSENGER
from innet.sim.network import OVERHEAD, SECOND, SHORTEST
from innet.switch.inline import (
    TRAFFIC_ENTRIES,
    InlineQueues,
    admit,
    is_congested,
    postponement,
    run_queues,
    withdraw,
)
from innet.switch.traffic_manager import FOREVER, MARKED, PORTS, PRECEDED, QUEUE_WORDS
from innet.wire import HeaderFlag

Ints = NDArray[np.int64]
Records = NDArray[Any]

DONE, IDLE, REACHED, NEEDS_PYTHON = range(1, 5)
"""Why ``run`` returns. A group is done; nothing will ever happen; the limit; nodes have stopped."""

NOT_YET = -1
FAILED, FULL_TRACE, NEEDS_WAITING, NEEDS_MESSAGES = range(1, 5)
NEEDS_RING, NEEDS_SWITCH, NEEDS_HOST = range(5, 8)
"""Why a node stops. Its program failed; the trace is full; there is no room for packets of flows in
a switch's queues; hosts that send messages need memory; a link's ring is full; a switch needs
memory; a host has something for Python to do. NOT_YET: it has not begun the window."""

TOO_LONG = -1
"""A switch's failure: its program makes packets longer than those of the job."""

LINK = np.dtype(
    [
        ("rate", "i8"),  # bits per second
        ("delay", "i8"),  # picoseconds, with what the pipeline of the switch at its end takes
        ("switch", "i8"),  # at its end; -1: a host
        ("port", "i8"),  # of that switch; or the number of the host
        ("free", "i8"),  # when the last bit of what was sent is on the wire
        ("loss", "f8"),  # probability of the loss of a packet
        ("first", "i8"),  # its ring: slots first .. first + mask
        ("mask", "i8"),
        ("head", "i8"),  # packets taken from the ring
        ("tail", "i8"),  # packets put into it
        ("outages", "i8"),  # the first of its outages; they end with another link's
        ("is_traced", "i8"),
        ("is_faulty", "i8"),  # the network's FAULTS are its own
        ("packets", "i8"),  # put onto it, lost ones included
        ("bytes", "i8"),  # of them, with preamble, frame check sequence and gap
        ("lost", "i8"),
        ("busy", "i8"),  # picoseconds
        ("length", "i8"),  # of the last frame, and what it takes: most are as long as the last
        ("takes", "i8"),
    ],
    align=True,
)
"""A directed link."""

SLOT = np.dtype(
    [
        ("time", "i8"),  # when its last bit has come, and the pipeline of a switch has taken it
        ("sent", "i8"),  # packets of flows: when the host sent it
        ("number", "i8"),  # packets of flows: which one
        ("flow", "i4"),  # -1: a packet of the program
        ("length", "i4"),  # bytes of the frame, without check sequence
        ("carried", "i4"),  # bytes that stand in ``data``
        ("host", "i4"),  # packets of flows: where it goes
        ("marked", "i4"),  # packets of flows: whether it met congestion
    ],
    align=True,
)
"""A packet on a link."""

HOST = np.dtype(
    [
        ("up", "i8"),  # the link to its switch
        ("down", "i8"),  # the link from it
        ("kind", "i8"),  # see COMPILED
        ("group", "i8"),  # whom it is done with
        ("receives", "i8"),  # picoseconds that a packet takes of it
        ("sends", "i8"),
        ("byte", "i8"),  # 1/65,536 picoseconds that a byte takes of it, both ways
        ("jitter", "i8"),  # picoseconds by which a packet is late, at most, at random
        ("drawn", "i8"),  # how often that was drawn
        ("late", "i8"),  # when the last packet was through; those behind it are not before it
        ("pace", "i8"),  # bits per second at which its packets leave; 0: as fast as it can
        ("paced", "i8"),  # when the next one may leave
        ("carried", "i8"),  # bytes of its frames of the program
        ("free", "i8"),  # when it has done with what came before
        ("worked", "i8"),  # picoseconds that packets took of it
        ("start", "i8"),  # when it begins; FOREVER: it has, or does not
        ("timer", "i8"),  # its next timer event; FOREVER for none
        ("flow", "i8"),  # when the next packet of its flows is due
        ("is_open", "i8"),  # it expects more
        ("finished", "i8"),  # when it was done last
        ("is_closing", "i8"),  # it was done in this window
        ("sent", "i8"),  # what ``slot_client.LoopProgress`` calls so
        ("received", "i8"),
        ("bytes", "i8"),
        ("answers", "i8"),
        ("waiting", "i8"),
        ("resent", "i8"),
    ],
    align=True,
)
"""A host: a worker, a server, or the end of flows."""

NONE, COMPILED, PYTHON, MESSAGES = range(4)
"""Kinds of hosts: one that counts packets of the program, a client that runs here, one whose
events Python handles, and one that sends messages (``innet.sim.messenger``)."""

SWITCH = np.dtype(
    [
        ("runs", "i8"),  # it has a program
        ("following", "i8"),  # the next packet of a batch that is being run
        ("batch", "i8"),  # packets of it
        ("until", "i8"),
        ("is_running", "i8"),
        ("wanted", "i8"),  # memory that its program lacks
        ("row", "i8"),  # the next row of ``out`` to be put onto a link
        ("rows", "i8"),
        ("waiting", "i8"),  # packets of flows in its queues
        ("serial", "i8"),  # how many have been
        ("unconnected", "i8"),  # packets that left by ports without a link
        ("dropped", "i8"),  # packets of the program at a switch without one
        ("queues", "i8"),  # words of a port in its traffic manager
    ],
    align=True,
)

WAITING = np.dtype(
    [
        ("time", "i8"),
        ("serial", "i8"),
        ("link", "i8"),
        ("sent", "i8"),
        ("number", "i8"),
        ("flow", "i4"),
        ("length", "i4"),
        ("host", "i4"),
        ("queue", "i4"),  # where its queue's words begin in the traffic manager
        ("marked", "i8"),
        ("preceded", "i8"),
    ],
    align=True,
)
"""A packet of a flow in a queue; per switch they are a heap by departure, then by number."""

FLOW = np.dtype(
    [
        ("source", "i8"),  # hosts
        ("target", "i8"),
        ("length", "i8"),  # bytes of a frame, without check sequence
        ("next", "i8"),  # when the next packet is due; FOREVER: none
        ("interval", "i8"),  # mean picoseconds between packets
        ("is_random", "i8"),  # Poisson: the intervals are drawn
        ("left", "i8"),  # packets to be sent
        ("at", "i8"),  # the next of its listed times; -1: it has none
        ("sent", "i8"),
        ("received", "i8"),
        ("dropped", "i8"),  # by full queues
        ("lost", "i8"),  # on links
        ("marked", "i8"),  # of the received ones: those that met congestion
        ("delay", "i8"),  # of received packets: sum
        ("longest", "i8"),
        ("log", "i8"),  # where the delays of its packets are noted; -1: they are not
        ("path", "i8"),  # which of several shortest paths; -1: by a hash
        ("priority", "i8"),  # of the queues that its packets without bytes take in switches
        ("frame", "i8"),  # the first FRAME of packets of the program; -1: packets without bytes
        ("frames", "i8"),  # how many there are: one for all packets, or one for each
        ("is_stamped", "i8"),  # they end in a stamp, so that their delays are known
        ("duplicated", "i8"),  # on links
    ],
    align=True,
)
"""A flow of packets from one host to another."""

FRAME = np.dtype([("begin", "i8"), ("length", "i8")], align=True)
"""Where the bytes of a flow's packet lie, and how many they are."""

STAMP_BYTES = 16
"""Bytes of a stamp, at the end of a packet: ``STAMP_MARK`` (2), its flow (2), number (4), and when
it was due to be sent (8), in picoseconds; in network byte order."""
STAMP_MARK = 0x696E
STAMPED_FLOWS, STAMPED_PACKETS = 1 << 16, 1 << 32  # that a stamp can tell apart

TRACE = np.dtype(
    [("time", "i8"), ("link", "i4"), ("length", "i4"), ("carried", "i4"), ("flow", "i4")],
    align=True,
)
"""A packet whose first bit was put onto a traced link at a time."""

CLIENT = np.dtype(
    [
        # Addresses, and how many there are of what lies there: see ``slot_client.ClientState``.
        ("rules", "i8"),
        ("rule_count", "i8"),
        ("member", "i8"),
        ("window", "i8"),
        ("chunk", "i8"),
        ("state", "i8"),
        ("queue", "i8"),
        ("timers", "i8", 8),
        ("chunks", "i8"),
        ("operation", "i8"),
        ("elements", "i8"),
        ("combined", "i8"),
        ("values", "i8"),
        ("who", "i8"),
        ("stats", "i8"),
        ("clock", "i8"),
        ("head", "i8"),
        ("head_bytes", "i8"),
        ("words", "i8"),
        ("word_count", "i8"),
        ("held", "i8"),
        ("halts", "i8"),
        ("last", "i8"),
    ],
    align=True,
)
"""A client's state, by addresses."""

PROGRAM = np.dtype(
    [
        # Addresses, and how many there are of what lies there: see ``inline.InlineQueues``.
        ("entry", "i8"),
        ("frame", "i8"),
        ("frame_words", "i8"),
        ("starts", "i8"),
        ("start_words", "i8"),
        ("out", "i8"),
        ("rows", "i8"),
        ("stride", "i8"),
        ("out_length", "i8"),
        ("out_port", "i8"),
        ("out_origin", "i8"),
        ("out_time", "i8"),
        ("times", "i8"),
        ("batch", "i8"),
        ("traffic", "i8"),
        ("traffic_words", "i8"),
        ("waiting", "i8"),
        ("waiting_words", "i8"),
        ("received", "i8"),
        # The memory of received packets, and the traffic manager's words.
        ("data", "i8"),
        ("lengths", "i8"),
        ("ports", "i8"),
        ("queues", "i8"),
        ("queue_words", "i8"),
    ],
    align=True,
)
"""A switch's program and queues, by addresses."""

GROUP = np.dtype([("open", "i8"), ("finished", "i8")], align=True)
"""Hosts that exchange something: how many of them are open, and when the last one was done."""

FAULTS = np.dtype(
    [
        ("duplicate", "f8"),  # probabilities, see ``innet.network.Faults``
        ("reorder", "f8"),
        ("corrupt", "f8"),
        ("truncate", "f8"),
        ("mark", "f8"),
        ("hold", "i8"),  # picoseconds
        ("jitter", "i8"),
        ("duplicated", "i8"),  # packets; the other counts are of copies
        ("held", "i8"),
        ("corrupted", "i8"),
        ("truncated", "i8"),
        ("marked", "i8"),
    ],
    align=True,
)
"""What happens to packets of faulty links beside their loss, and how often it has."""

OUTAGE = np.dtype([("link", "i8"), ("since", "i8"), ("until", "i8")], align=True)

STATE = np.dtype(
    [
        # Addresses of arrays.
        ("links", "i8"),  # LINK
        ("hosts", "i8"),  # HOST
        ("switches", "i8"),  # SWITCH
        ("flows", "i8"),  # FLOW
        ("clients", "i8"),  # CLIENT of each host
        ("programs", "i8"),  # PROGRAM of each switch
        ("slots", "i8"),  # SLOT: the rings of all links
        ("data", "i8"),  # uint8 (slots, stride): their bytes
        ("nodes", "i8"),  # when the next event of each node is: switches, then hosts
        ("ways", "i8"),  # (switches, PORTS): the link behind a port, or -1
        ("into", "i8"),  # the links into switches, by switch
        ("first_into", "i8"),  # where those of a switch begin
        ("routes", "i8"),  # ports by which packets of flows may go from a switch to a host
        ("first_route", "i8"),  # where those of ``switch * hosts + host`` begin
        ("host_flows", "i8"),  # the flows of hosts, by host
        ("first_flow", "i8"),  # where those of a host begin
        ("waiting", "i8"),  # (switches, waiting_room) WAITING
        ("groups", "i8"),  # GROUP
        ("outages", "i8"),  # OUTAGE, by link, then by time
        ("faults", "i8"),  # the FAULTS
        ("times", "i8"),  # flows' listed times
        ("log", "i8"),  # delays of flows' packets
        ("frames", "i8"),  # FRAME: packets of the program that flows send
        ("frame_data", "i8"),  # uint8: their bytes
        ("trace", "i8"),  # TRACE
        ("traced", "i8"),  # uint8 (trace_room, stride): bytes of the packets in the trace
        ("heap_times", "i8"),  # for the merging of links
        ("heap_links", "i8"),
        ("reasons", "i8"),  # why a node stops; 0: it has done the window
        ("subjects", "i8"),  # the link, switch or host that this is about, or what failed
        ("messenger", "i8"),  # the MESSENGER, if hosts send messages
        # How much there is.
        ("switch_count", "i8"),
        ("host_count", "i8"),
        ("stride", "i8"),
        ("waiting_room", "i8"),
        ("outage_count", "i8"),
        ("trace_room", "i8"),
        ("heap_room", "i8"),  # of each thread
        ("extra", "i8"),  # bytes by which the program's frames are longer than what they carry
        ("seed", "i8"),
        ("flow_count", "i8"),
        # What changes.
        ("begin", "i8"),  # the window
        ("end", "i8"),
        ("is_open", "i8"),  # whether it is being run
        ("is_closing", "i8"),  # whether a host was done in it
        ("lookahead", "i8"),  # its longest length
        ("limit", "i8"),  # until when to run
        ("completed", "i8"),  # groups that are done
        ("traced_packets", "i8"),
    ],
    align=True,
)
"""Everything, by addresses."""

_QUEUED, _FLAGS = int(Stats.QUEUED), int(Stats.FLAGS)
_NOTES = int(Stats.LENGTH)
_UNDER_WAY = 2  # innet.protocol.slot_client.SlotState.WAITING
_RESEND = int(HeaderFlag.RESEND)
_MEMBER_WORDS, _RULE_WORDS, _PACE_WORDS = 7, 7, 15
WAITING_BYTES = WAITING.itemsize
BATCH = 1 << 10
"""Packets that a switch takes at once, at most."""
_BURST = 8
"""Packets of messages that a host gives its link at once, at most."""
_BACKLOG = 4
"""Full segments that wait at a host's link, at most, before another one is given to it."""
FLOW_STREAM = 1 << 32  # of draws: those below are links'
_HOST_STREAM = 1 << 33  # of hosts' draws
BYTE_ONE = 1 << 16
"""Of ``HOST``'s ``byte``: a picosecond."""
_FAULT_STREAM = 1 << 40  # of links' draws for faults, times the number of the draw
_LONGEST_BURST = 15  # bits, as ``innet.network.faults`` has it
_ETHERNET_AND_IPV4, _ETHERTYPE, _TOS, _CHECKSUM = 34, 12, 15, 24  # bytes, and where they begin
_CONGESTED = 3  # in the last two bits of the type of service (RFC 3168)
_MANY = 1 << 40  # what has its length elsewhere: nothing here asks for it

_bytes, _shorts, _bools = viewer("u1"), viewer("u2"), viewer("?")
_ints, _words, _signed, _floats = viewer("i8"), viewer("u4"), viewer("i4"), viewer("f8")
_singles = viewer("f4")
_byte_rows, _rules, _value_rows = viewer("u1", 2), viewer("i8", 2), viewer("i4", 2)
_links, _hosts, _switches, _flows = viewer(LINK), viewer(HOST), viewer(SWITCH), viewer(FLOW)
_clients, _programs, _slots = viewer(CLIENT), viewer(PROGRAM), viewer(SLOT)
_waiting, _groups, _outages = viewer(WAITING), viewer(GROUP), viewer(OUTAGE)
_faults = viewer(FAULTS)
_traces, _frames, _messengers = viewer(TRACE), viewer(FRAME), viewer(MESSENGER)


# ------------------------------------------------------------------ where things are


@njit(cache=True, inner=True, nogil=True)
def link_at(state: Any, link: int) -> Any:
    """A LINK, by number; the functions below are alike."""
    return _links(state.links, _MANY)[link]


@njit(cache=True, inner=True, nogil=True)
def host_at(state: Any, host: int) -> Any:
    """A HOST."""
    return _hosts(state.hosts, _MANY)[host]


@njit(cache=True, inner=True, nogil=True)
def _switch_at(state: Any, switch: int) -> Any:
    return _switches(state.switches, _MANY)[switch]


@njit(cache=True, inner=True, nogil=True)
def _flow_at(state: Any, flow: int) -> Any:
    return _flows(state.flows, _MANY)[flow]


@njit(cache=True, inner=True, nogil=True)
def _client_at(state: Any, host: int) -> Any:
    return _clients(state.clients, _MANY)[host]


@njit(cache=True, inner=True, nogil=True)
def _program_at(state: Any, switch: int) -> Any:
    return _programs(state.programs, _MANY)[switch]


@njit(cache=True, inner=True, nogil=True)
def _slot_at(state: Any, row: int) -> Any:
    return _slots(state.slots, _MANY)[row]


@njit(cache=True, inner=True, nogil=True)
def _waiting_at(state: Any, switch: int, at: int) -> Any:
    return _waiting(state.waiting, _MANY)[switch * state.waiting_room + at]


@njit(cache=True, inner=True, nogil=True)
def _int_at(address: int, at: int) -> int:
    return int(_ints(address, _MANY)[at])


@njit(cache=True, inner=True, nogil=True)
def _data_at(state: Any, row: int, length: int) -> Any:
    """The bytes of a slot."""
    return _bytes(state.data + row * state.stride, length)


@njit(cache=True, nogil=True)
def _copy(target: NDArray[np.uint8], source: NDArray[np.uint8], length: int) -> None:
    for byte in range(length):
        target[byte] = source[byte]


@njit(cache=True, nogil=True)
def _put(data: NDArray[np.uint8], at: int, number: int, size: int) -> None:
    """Write a number in network byte order."""
    for byte in range(size):
        data[at + byte] = (number >> (8 * (size - 1 - byte))) & 0xFF


@njit(cache=True, nogil=True)
def _get(data: NDArray[np.uint8], at: int, size: int) -> int:
    number = 0
    for byte in range(size):
        number = int((number << 8) | np.int64(data[at + byte]))
    return number


# ------------------------------------------------------------------ links


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


@njit(cache=True, inner=True, nogil=True)
def _ring_room(wire: Any) -> int:
    """How many packets a link can take before its ring is full."""
    room = wire.mask + 1 - (wire.tail - wire.head)
    # Of a faulty link, each packet may become two, and one more slot is used for sorting.
    return int((room - 1) // 2 if wire.is_faulty else room)


@njit(cache=True, inner=True, nogil=True)
def is_full(state: Any, link: int) -> bool:
    """Whether a link's ring has no room for another packet."""
    return _ring_room(link_at(state, link)) < 1


@njit(cache=True, inner=True, nogil=True)
def _is_down(state: Any, link: int, time: int) -> bool:
    for at in range(link_at(state, link).outages, state.outage_count):
        outage = _outages(state.outages, _MANY)[at]
        if outage.link != link:
            break
        if outage.since <= time < outage.until:
            return True
    return False


@njit(cache=True, inner=True, nogil=True)
def transmit(  # noqa: PLR0917 - compiled functions are called by position
    state: Any, link: int, length: int, carried: int, flow: int, now: int
) -> int:
    """Put a packet onto a link at ``now``, or as soon as the link is free.

    Its ring must have room.

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
    slot = _slot_at(state, row)
    slot.time = begun + took + wire.delay
    slot.flow, slot.length, slot.carried = flow, length, carried
    if (wire.loss > 0 and draw(state.seed, link, number) < wire.loss) or (
        wire.outages >= 0 and _is_down(state, link, begun)
    ):
        wire.lost += 1
        if flow >= 0:
            _flow_at(state, flow).lost += 1
    else:
        wire.tail += 1
    if wire.is_traced:
        traced = _traces(state.trace, _MANY)[state.traced_packets]
        traced.time, traced.link, traced.length = begun, link, length
        traced.carried, traced.flow = carried, flow
    return int(row)


@njit(cache=True, nogil=True)
def written(state: Any, link: int, row: int) -> None:
    """Note the bytes of a packet in the trace, if its link is traced; then let faults happen."""
    wire = link_at(state, link)
    if wire.is_traced:
        at = state.traced_packets
        length = _slot_at(state, row).carried
        kept = _bytes(state.traced + at * state.stride, length)
        _copy(kept, _data_at(state, row, length), length)
        state.traced_packets = at + 1
    if wire.is_faulty and row == wire.first + ((wire.tail - 1) & wire.mask):  # it is not lost
        _disturb(state, link, row)


@njit(cache=True, inner=True, nogil=True)
def _lacks(state: Any, link: int) -> int:
    """Why a link cannot take a packet now: 0, NEEDS_RING or FULL_TRACE."""
    if is_full(state, link):
        return NEEDS_RING
    if link_at(state, link).is_traced and state.traced_packets >= state.trace_room:
        return FULL_TRACE
    return 0


# ------------------------------------------------------------------ faults


@njit(cache=True, inner=True, nogil=True)
def _disturb(state: Any, link: int, row: int) -> None:
    """Let faults happen to the packet that was put onto a link last. Its ring must have room."""
    wire, faults = link_at(state, link), _faults(state.faults, 1)[0]
    number = wire.packets - 1
    twice = draw(state.seed, link + _FAULT_STREAM, number) < faults.duplicate
    if twice:
        faults.duplicated += 1
        _move(state, row, wire.first + (wire.tail & wire.mask))
        slot = _slot_at(state, row)
        if slot.flow >= 0:
            _flow_at(state, slot.flow).duplicated += 1
        # The copy waits beyond the ring's end while the first one finds its place.
        _spoil(state, link, row, number, 0)
        _let_overtake(state, link, wire.tail + 1)
        wire.tail += 1
        row = wire.first + ((wire.tail - 1) & wire.mask)
        _spoil(state, link, row, number, 1)
        _let_overtake(state, link, wire.tail)
    else:
        _spoil(state, link, row, number, 0)
        _let_overtake(state, link, wire.tail)


@njit(cache=True, nogil=True)
def _move(state: Any, source: int, target: int) -> None:
    """Copy a packet from slot to slot."""
    came, kept = _slot_at(state, source), _slot_at(state, target)
    kept.time, kept.sent, kept.number, kept.flow = came.time, came.sent, came.number, came.flow
    kept.length, kept.carried, kept.host = came.length, came.carried, came.host
    kept.marked = came.marked
    carried = came.carried
    _copy(_data_at(state, target, carried), _data_at(state, source, carried), carried)


@njit(cache=True, inner=True, nogil=True)
def _let_overtake(state: Any, link: int, spare: int) -> None:
    """Let the last packet of a link overtake those that arrive later; ``spare`` is a free place."""
    wire = link_at(state, link)
    first, mask, at = wire.first, wire.mask, wire.tail - 1
    time = _slot_at(state, first + (at & mask)).time
    if at == wire.head or _slot_at(state, first + ((at - 1) & mask)).time <= time:
        return
    _move(state, first + (at & mask), first + (spare & mask))
    while at > wire.head and _slot_at(state, first + ((at - 1) & mask)).time > time:
        _move(state, first + ((at - 1) & mask), first + (at & mask))
        at -= 1
    _move(state, first + (spare & mask), first + (at & mask))


@njit(cache=True, inner=True, nogil=True)
def _spoil(state: Any, link: int, row: int, number: int, copy: int) -> None:
    """Delay, damage or mark a copy of a packet."""
    faults, slot = _faults(state.faults, 1)[0], _slot_at(state, row)
    seed, stream = state.seed, link + (2 + 16 * copy) * _FAULT_STREAM
    late = faults.jitter * draw(seed, stream, number)
    if draw(seed, stream + _FAULT_STREAM, number) < faults.reorder:
        faults.held += 1
        late += faults.hold * draw(seed, stream + 2 * _FAULT_STREAM, number)
    slot.time += int(late)
    is_marked = draw(seed, stream + 3 * _FAULT_STREAM, number) < faults.mark
    if slot.flow >= 0:  # there are no bytes that could be wrong
        if is_marked:
            slot.marked = 1
            faults.marked += 1
        return
    data = _data_at(state, row, slot.carried)
    if is_marked and _mark(data, slot.carried):
        faults.marked += 1
    if slot.carried > 0 and draw(seed, stream + 4 * _FAULT_STREAM, number) < faults.corrupt:
        faults.corrupted += 1
        bits = 8 * slot.carried
        size = 1 + int(min(_LONGEST_BURST, bits) * draw(seed, stream + 5 * _FAULT_STREAM, number))
        begin = int((bits - size + 1) * draw(seed, stream + 6 * _FAULT_STREAM, number))
        inside = int((1 << 13) * draw(seed, stream + 7 * _FAULT_STREAM, number))
        for bit in range(size):  # a burst begins and ends with a wrong bit
            if bit in {0, size - 1} or inside >> (bit - 1) & 1:
                at = begin + bit
                data[at >> 3] ^= np.uint8(0x80 >> (at & 7))
    if draw(seed, stream + 8 * _FAULT_STREAM, number) < faults.truncate:
        faults.truncated += 1
        slot.carried = int(slot.carried * draw(seed, stream + 9 * _FAULT_STREAM, number))
        slot.length = slot.carried + state.extra


@njit(cache=True, inner=True, nogil=True)
def _mark(data: NDArray[np.uint8], length: int) -> bool:
    """Note congestion in an IPv4 packet that may carry it, as ``innet.network.faults.mark``."""
    if length < _ETHERNET_AND_IPV4 or _get(data, _ETHERTYPE, 2) != 0x0800:
        return False
    before = int(data[_TOS])
    if before & _CONGESTED == 0:
        return False
    data[_TOS] = before | _CONGESTED
    total = (~_get(data, _CHECKSUM, 2) & 0xFFFF) + (before | _CONGESTED) - before
    total = (total & 0xFFFF) + (total >> 16)
    _put(data, _CHECKSUM, ~total & 0xFFFF, 2)
    return True


# ------------------------------------------------------------------ heaps


@njit(cache=True, inner=True, nogil=True)
def _is_before(a: Any, b: Any) -> bool:
    return bool(a.time < b.time or (a.time == b.time and a.serial < b.serial))


@njit(cache=True, nogil=True)
def _wait(heap: Records, size: int) -> None:
    """Let the packet in place ``size`` of a heap of WAITING rise to its place."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if _is_before(heap[above], heap[at]):
            break
        _swap(heap, above, at)
        at = above


@njit(cache=True, inner=True, nogil=True)
def _swap(heap: Records, a: int, b: int) -> None:
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
def _remove(heap: Records, size: int) -> None:
    """Remove the first packet of a heap of WAITING of ``size``."""
    last = size - 1
    _swap(heap, 0, last)
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and _is_before(heap[below + 1], heap[below]):
            below += 1
        if _is_before(heap[at], heap[below]):
            break
        _swap(heap, at, below)
        at = below


# ------------------------------------------------------------------ switches


@njit(cache=True, inner=True, nogil=True)
def _way(state: Any, number: int, port: int) -> int:
    """The link behind a port of a switch, or -1."""
    return _int_at(state.ways, number * PORTS + port) if 0 <= port < PORTS else -1


@njit(cache=True, nogil=True)
def _leave(state: Any, number: int) -> tuple[int, int]:
    """Put what has left a program onto the links: why it stops, and the link."""
    switch, program = _switch_at(state, number), _program_at(state, number)
    lengths, ports = _signed(program.out_length, _MANY), _signed(program.out_port, _MANY)
    times = _ints(program.out_time, _MANY)
    while switch.row < switch.rows:
        row = switch.row
        length = lengths[row]
        if length > state.stride:
            return FAILED, TOO_LONG
        link = _way(state, number, ports[row])
        if link < 0:
            switch.unconnected += 1
        else:
            lacks = _lacks(state, link)
            if lacks != 0:
                return lacks, link
            at = transmit(state, link, length + state.extra, length, -1, times[row])
            came = _bytes(program.out + row * program.stride, length)
            _copy(_data_at(state, at, length), came, length)
            written(state, link, at)
        switch.row += 1
    switch.row = switch.rows = 0
    return 0, 0


@njit(cache=True, inner=True, nogil=True)
def _route(state: Any, number: int, flow: int, host: int) -> int:
    """The port by which a switch sends packets of a flow; one of several by a hash of the flow."""
    pair = number * state.host_count + host
    first, end = _int_at(state.first_route, pair), _int_at(state.first_route, pair + 1)
    if end == first:
        return -1
    path = _flow_at(state, flow).path
    choice = int(draw(0, flow, number) * (end - first)) if path < 0 else path % (end - first)
    return _int_at(state.routes, first + choice)


@njit(cache=True, inner=True, nogil=True)
def _messenger_at(state: Any) -> Any:
    return _messengers(state.messenger, 1)[0]


@njit(cache=True, inner=True, nogil=True)
def _is_message(state: Any, slot: Any) -> bool:
    """Whether a packet is one of a message, or an acknowledgement."""
    if state.messenger == 0:
        return False
    first = _messenger_at(state).first_flow
    return bool(first <= slot.flow < first + messenger.PATHS)


@njit(cache=True, nogil=True)
def _forward(state: Any, number: int, slot: Any, now: int) -> int:
    """Put a packet of a flow into the queue of its port; why it cannot, or 0."""
    switch, program = _switch_at(state, number), _program_at(state, number)
    port = _route(state, number, slot.flow, slot.host)
    link = _way(state, number, port)
    if link < 0:
        switch.unconnected += 1
        return 0
    if switch.waiting == state.waiting_room:
        return NEEDS_WAITING
    queues = _ints(program.queues, program.queue_words)
    queue = port * switch.queues
    queue += _flow_at(state, slot.flow).priority * QUEUE_WORDS
    congested = is_congested(queues, queue)
    departure = admit(queues, queue, now, slot.length)
    if departure < 0:
        _flow_at(state, slot.flow).dropped += 1
        return 0
    if congested:
        queues[queue + MARKED] += 1
    first = state.waiting + number * state.waiting_room * WAITING_BYTES
    heap = _waiting(first, state.waiting_room)
    kept = heap[switch.waiting]
    kept.time, kept.serial, kept.link, kept.queue = departure, switch.serial, link, queue
    kept.sent, kept.number, kept.flow = slot.sent, slot.number, slot.flow
    kept.length, kept.host = slot.length, slot.host
    kept.preceded = queues[queue + PRECEDED]
    kept.marked = 1 if congested else slot.marked
    _wait(heap, switch.waiting)
    switch.waiting += 1
    switch.serial += 1
    return 0


@njit(cache=True, nogil=True)
def _depart(state: Any, number: int) -> tuple[int, int]:
    """Send the first packet of a flow that waits: why it cannot, and the link."""
    switch, program = _switch_at(state, number), _program_at(state, number)
    first = _waiting_at(state, number, 0)
    lacks = _lacks(state, first.link)
    if lacks != 0:
        return lacks, first.link
    queues, queue = _ints(program.queues, program.queue_words), first.queue
    start = state.waiting + number * state.waiting_room * WAITING_BYTES
    heap = _waiting(start, state.waiting_room)
    later = postponement(queues, queue, first.preceded)
    if later > 0:  # packets of higher priorities came: it waits for them
        last = switch.waiting - 1
        _remove(heap, switch.waiting)
        heap[last].time += later
        heap[last].preceded += later
        _wait(heap, last)
        return 0, 0
    withdraw(queues, queue, first.time, first.length)
    row = transmit(state, first.link, first.length, 0, first.flow, first.time)
    slot = _slot_at(state, row)
    slot.sent, slot.number, slot.host = first.sent, first.number, first.host
    slot.marked = first.marked
    written(state, first.link, row)
    _remove(heap, switch.waiting)
    switch.waiting -= 1
    return 0, 0


@njit(cache=True, inner=True, nogil=True)
def _merge(state: Any, number: int, times: Ints, links: Ints) -> int:
    """Prepare the merging of a switch's links: those with packets of the window, as a heap."""
    size = 0
    for at in range(_int_at(state.first_into, number), _int_at(state.first_into, number + 1)):
        link = _int_at(state.into, at)
        time = next_arrival(state, link)
        if time < state.end:
            push(times, links, size, time, link)
            size += 1
    return size


@njit(cache=True, inner=True, nogil=True)
def next_arrival(state: Any, link: int) -> int:
    """When the next packet of a link arrives; FOREVER if none is on it."""
    wire = link_at(state, link)
    if wire.head == wire.tail:
        return FOREVER
    return int(_slot_at(state, wire.first + (wire.head & wire.mask)).time)


@njit(cache=True, inner=True, nogil=True)
def _departure(state: Any, number: int) -> int:
    """When the next packet leaves a switch's program; FOREVER if none waits."""
    program = _program_at(state, number)
    if _switch_at(state, number).runs and _int_at(program.traffic, TRAFFIC_ENTRIES):
        return _int_at(program.waiting, 0)
    return FOREVER


@njit(cache=True, inner=True, nogil=True)
def _run_batch(state: Any, number: int) -> int:
    """Run a switch's batch, or the rest of it; returns what failed, or 0."""
    switch, program = _switch_at(state, number), _program_at(state, number)
    queues = InlineQueues(
        program.entry,
        _ints(program.frame, program.frame_words),
        _ints(program.starts, program.start_words),
        _byte_rows(program.out, program.rows, program.stride),
        _signed(program.out_length, program.rows),
        _signed(program.out_port, program.rows),
        _signed(program.out_origin, program.rows),
        _ints(program.out_time, program.rows),
        _ints(program.times, program.batch),
        _ints(program.traffic, program.traffic_words),
        _ints(program.waiting, program.waiting_words),
        _ints(program.received, 1),
    )
    following, produced, wanted, failed = run_queues(
        queues, switch.following, switch.batch, switch.until
    )
    switch.following, switch.row, switch.rows = following, 0, produced
    switch.wanted = wanted
    if wanted == 0:
        switch.is_running = switch.batch = switch.following = 0
    return int(failed)


@njit(cache=True, inner=True, nogil=True)
def _run_switch(  # noqa: PLR0912, PLR0915 - the order of events at a switch, in one place
    state: Any, number: int, share: int
) -> tuple[int, int]:
    """A switch's events of the window: why it stops, and which link or switch that is about."""
    switch, program, end = _switch_at(state, number), _program_at(state, number), state.end
    begin = 8 * share * state.heap_room
    heap_times = _ints(state.heap_times + begin, _MANY)
    heap_links = _ints(state.heap_links + begin, _MANY)
    lengths, ports = _signed(program.lengths, _MANY), _signed(program.ports, _MANY)
    times = _ints(program.times, _MANY)
    size = _merge(state, number, heap_times, heap_links)
    while True:
        if switch.row < switch.rows:
            why, link = _leave(state, number)
            if why != 0:
                return why, link
        if switch.wanted != 0:
            return NEEDS_SWITCH, number
        if switch.is_running:
            failed = _run_batch(state, number)
            if failed != 0:
                return FAILED, failed
            continue
        # Gather packets of the program, until something else comes in between.
        comes = heap_times[0] if size > 0 else FOREVER
        departs = _waiting_at(state, number, 0).time if switch.waiting > 0 else FOREVER
        now = min(comes, departs)
        if now >= end:
            if switch.batch == 0 and _departure(state, number) >= end:
                return 0, 0
            switch.is_running, switch.until = 1, end - 1
            continue
        link = heap_links[0]
        wire = link_at(state, link)
        row = wire.first + (wire.head & wire.mask)
        slot = _slot_at(state, row)
        is_flow = departs < comes or slot.flow >= 0
        if (is_flow and (switch.batch > 0 or _departure(state, number) < now)) or (
            switch.batch == BATCH
        ):
            switch.is_running, switch.until = 1, now - 1
            continue
        if departs < comes:
            why, link = _depart(state, number)
            if why != 0:
                return why, link
            continue
        if is_flow:
            why = _forward(state, number, slot, now)
            if why != 0:
                return why, number
        elif not switch.runs:
            switch.dropped += 1
        else:
            at = switch.batch
            kept = _bytes(program.data + at * state.stride, slot.carried)
            _copy(kept, _data_at(state, row, slot.carried), slot.carried)
            lengths[at], ports[at], times[at] = slot.carried, wire.port, now
            switch.batch = at + 1
        wire.head += 1
        following = next_arrival(state, link)
        if following < end:
            replace_first(heap_times, heap_links, size, following, link)
        else:
            size -= 1
            if size > 0:
                last = heap_times[size], heap_links[size]
                replace_first(heap_times, heap_links, size, last[0], last[1])


# ------------------------------------------------------------------ hosts


@njit(cache=True, inner=True, nogil=True)
def set_timer(state: Any, host: int, time: int) -> None:
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
    late = int(here.jitter * draw(state.seed, host + _HOST_STREAM, here.drawn))
    here.drawn += 1
    here.late = max(here.late, here.free + late)
    return int(here.late)


@njit(cache=True, nogil=True)
def _leaves(state: Any, host: int, length: int, now: int) -> int:
    """Let a host work on a packet that it sends; returns when its first bit may leave.

    A paced host's packets leave no sooner after each other than their bits take at its pace.
    """
    here = host_at(state, host)
    leaves = _busy(state, host, here.sends, length, now)
    if here.pace > 0:
        leaves = max(leaves, here.paced)
        here.paced = leaves + wire_time(length, here.pace)
    return int(leaves)


@njit(cache=True, nogil=True)
def send_frame(states: Records, host: int, frame: NDArray[np.uint8], now: int) -> int:
    """Python's host sends a frame as soon as it can; why it cannot at all, or 0."""
    state = states[0]
    here = host_at(state, host)
    lacks = _lacks(state, here.up)
    if lacks != 0:
        return int(lacks)
    carried = len(frame)
    length = carried + state.extra
    leaves = _leaves(state, host, length, now)
    row = transmit(state, here.up, length, carried, -1, leaves)
    _copy(_data_at(state, row, carried), frame, carried)
    written(state, here.up, row)
    return 0


@njit(cache=True, nogil=True)
def receive_packet(states: Records, host: int, length: int, now: int) -> int:
    """Python's host takes a packet; returns when it has done."""
    return _busy(states[0], host, host_at(states[0], host).receives, length, now)


@njit(cache=True, nogil=True)
def close_host(states: Records, host: int, now: int) -> None:
    """Python's host is done."""
    close(states[0], host, now)


@njit(cache=True, nogil=True)
def _room(state: Any, host: int) -> int:
    """How many packets a host can send before memory is needed."""
    wire = link_at(state, host_at(state, host).up)
    room = _ring_room(wire)
    if wire.is_traced:
        room = min(room, state.trace_room - state.traced_packets)
    return int(room)


@njit(cache=True, inner=True, nogil=True)
def _send_chunk(state: Any, host: int, slot: int, flag: int, now: int) -> int:
    """Send the chunk of a slot; returns when it leaves. There must be room."""
    here, client = host_at(state, host), _client_at(state, host)
    carried = here.carried
    length = carried + state.extra
    leaves = _leaves(state, host, length, now)
    row = transmit(state, here.up, length, carried, -1, leaves)
    fill_frame(
        _data_at(state, row, carried),
        _bytes(client.head, client.head_bytes),
        slot,
        flag,
        (_ints(client.chunk, client.window), _int_at(client.member, 4)),
        (
            _signed(client.words, client.word_count),
            _bytes(client.operation, client.chunks),
            _shorts(client.elements, client.chunks),
            _singles(0, 0),
            _floats(0, 0),
        ),
    )
    written(state, here.up, row)
    return int(leaves)


@njit(inline="always", nogil=True)
def _timers_of(client: Any) -> Any:
    """A client's ``TimerState``."""
    at, window = client.timers, client.window
    return (
        _signed(at[0], window),
        _floats(at[1], window),
        _floats(at[2], window),
        _floats(at[3], window),
        _floats(at[4], window),
        _floats(at[5], window),
        _bools(at[6], window),
        _floats(at[7], _PACE_WORDS),
    )


@njit(cache=True, inner=True, nogil=True)
def _send_queued(state: Any, host: int, now: int) -> None:
    """Send the chunks that a host may send. There must be room."""
    here, client = host_at(state, host), _client_at(state, host)
    stats = _ints(client.stats, _NOTES)
    queued = stats[_QUEUED]
    if queued == 0 or client.held or stats[_FLAGS] & client.halts != 0:
        return
    timers = _timers_of(client)
    chunk, queue = _ints(client.chunk, client.window), _ints(client.queue, client.window)
    doing = _bytes(client.state, client.window)
    leaves = now
    for index in range(queued):
        doing[queue[index]] = _UNDER_WAY
        leaves = _send_chunk(state, host, queue[index], 0, now)
        start(timers, chunk, queue[index : index + 1], leaves / SECOND, client.last)
    stats[_QUEUED] = 0
    here.sent += queued
    here.waiting += queued
    set_timer(state, host, leaves + int(shortest_wait(timers) * SECOND))


@njit(cache=True, nogil=True)
def close(state: Any, host: int, now: int) -> None:
    """A host is done. Whether its group is, is found out at the end of the window."""
    here = host_at(state, host)
    here.is_open, here.finished = 0, now
    here.is_closing = state.is_closing = 1


@njit(cache=True, nogil=True)
def _take(state: Any, host: int, row: int, now: int) -> None:
    """A client takes a packet, and sends what it may send then. There must be room."""
    here, client = host_at(state, host), _client_at(state, host)
    carried, window = _slot_at(state, row).carried, client.window
    taken = _busy(state, host, here.receives, _slot_at(state, row).length, now)
    stats, clock = _ints(client.stats, _NOTES), _floats(client.clock, 5)
    clock[0], clock[2], clock[3], clock[4] = taken / SECOND, -1.0, -np.inf, -1.0
    timers = _timers_of(client)
    answers = receive_frame(
        _data_at(state, row, carried),
        carried,
        (
            _rules(client.rules, client.rule_count, _RULE_WORDS),
            _ints(client.member, _MEMBER_WORDS),
        ),
        (
            (
                _ints(client.chunk, window),
                _bytes(client.state, window),
                _ints(client.queue, window),
            ),
            timers,
        ),
        (
            _bytes(client.operation, client.chunks),
            _shorts(client.elements, client.chunks),
            _value_rows(client.combined, client.chunks, client.values),
            _words(client.who, client.chunks),
            _singles(0, 0),
            _floats(0, 0),
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
        set_timer(state, host, taken + int(soonest * SECOND))
        _send_queued(state, host, taken)
    if here.waiting == 0 and stats[_QUEUED] == 0 and here.is_open:
        close(state, host, taken)


@njit(cache=True, inner=True, nogil=True)
def _expires(state: Any, host: int, now: int) -> int:
    """A host's timers are looked at: chunks are sent again; why they cannot, or 0."""
    here, client = host_at(state, host), _client_at(state, host)
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
        due = take_due(timers, _ints(client.chunk, client.window), seconds)
        send_again(timers, due, seconds)
        for slot in due:
            _send_chunk(state, host, slot, _RESEND, now)
        here.resent += len(due)
        deadline = next_deadline(timers)
    here.timer = FOREVER
    if deadline < np.inf:
        here.timer = max(now + 1, int(deadline * SECOND) + 1)
    return 0


@njit(cache=True, nogil=True)
def _follow(state: Any, number: int) -> None:
    """Set when the next packet of a flow is due, after one was sent."""
    flow = _flow_at(state, number)
    flow.left -= 1
    flow.sent += 1
    if flow.left == 0:
        flow.next = FOREVER
    elif flow.at >= 0:
        flow.at += 1
        flow.next = _int_at(state.times, flow.at)
    elif flow.is_random:
        wait = -np.log1p(-draw(state.seed, number + FLOW_STREAM, flow.sent)) * flow.interval
        flow.next += max(1, int(wait))
    else:
        flow.next += flow.interval


@njit(cache=True, inner=True, nogil=True)
def plan_flows(state: Any, host: int) -> None:
    """Set when the next packet of a host's flows is due."""
    soonest = FOREVER
    for at in range(_int_at(state.first_flow, host), _int_at(state.first_flow, host + 1)):
        soonest = min(soonest, _flow_at(state, _int_at(state.host_flows, at)).next)
    host_at(state, host).flow = soonest


@njit(cache=True, nogil=True)
def plan_host_flows(states: Records, host: int) -> None:
    """``plan_flows`` for Python."""
    plan_flows(states[0], host)


@njit(cache=True, inner=True, nogil=True)
def _send_flows(state: Any, host: int, now: int) -> int:
    """Send the packets of flows that are due; why they cannot be sent, or 0."""
    here = host_at(state, host)
    for at in range(_int_at(state.first_flow, host), _int_at(state.first_flow, host + 1)):
        number = _int_at(state.host_flows, at)
        flow = _flow_at(state, number)
        if flow.next != now:
            continue
        lacks = _lacks(state, here.up)
        if lacks != 0:
            return lacks
        if flow.frame >= 0:
            _send_bytes(state, host, number, now)
        else:
            leaves = _leaves(state, host, flow.length, now)
            row = transmit(state, here.up, flow.length, 0, number, leaves)
            slot = _slot_at(state, row)
            slot.sent, slot.number, slot.host, slot.marked = now, flow.sent, flow.target, 0
            written(state, here.up, row)
        _follow(state, number)
    plan_flows(state, host)
    return 0


@njit(cache=True, inner=True, nogil=True)
def _send_bytes(state: Any, host: int, number: int, now: int) -> None:
    """Send the next packet of a flow whose packets run the program. There must be room."""
    here, flow = host_at(state, host), _flow_at(state, number)
    which = flow.sent if flow.frames > 1 else 0
    frame = _frames(state.frames, _MANY)[flow.frame + which]
    carried = frame.length
    leaves = _leaves(state, host, carried, now)
    row = transmit(state, here.up, carried + state.extra, carried, -1, leaves)
    data = _data_at(state, row, carried)
    _copy(data, _bytes(state.frame_data + frame.begin, carried), carried)
    if flow.is_stamped:
        at = carried - STAMP_BYTES
        _put(data, at, STAMP_MARK, 2)
        _put(data, at + 2, number, 2)
        _put(data, at + 4, flow.sent, 4)
        _put(data, at + 8, now, 8)
    written(state, here.up, row)


@njit(cache=True, inner=True, nogil=True)
def count_packet(state: Any, host: int, row: int, now: int) -> None:
    """A packet of the program reaches a host that only counts."""
    here, carried = host_at(state, host), _slot_at(state, row).carried
    here.received += 1
    here.bytes += carried
    at = carried - STAMP_BYTES
    if at < 0:
        return
    data = _data_at(state, row, carried)
    number, which = _get(data, at + 2, 2), _get(data, at + 4, 4)
    if _get(data, at, 2) != STAMP_MARK or number >= state.flow_count:
        return
    flow, delay = _flow_at(state, number), now - _get(data, at + 8, 8)
    if flow.is_stamped and which < flow.sent and 0 <= delay <= now:
        flow.received += 1
        flow.delay += delay
        flow.longest = max(flow.longest, delay)
        if flow.log >= 0:
            _ints(state.log, _MANY)[flow.log + which] = delay


@njit(cache=True, nogil=True)
def arrive(state: Any, row: int, now: int) -> None:
    """A packet of a flow reaches its host."""
    slot = _slot_at(state, row)
    flow = _flow_at(state, slot.flow)
    delay = now - slot.sent
    flow.received += 1
    flow.marked += slot.marked
    flow.delay += delay
    flow.longest = max(flow.longest, delay)
    if flow.log >= 0:
        _ints(state.log, _MANY)[flow.log + slot.number] = delay


@njit(cache=True, inner=True, nogil=True)
def _lacks_for_messages(state: Any, host: int) -> tuple[int, int]:
    """Why a host cannot handle an event of its messages now, and whom that is about."""
    if messenger.is_short(_messenger_at(state), host):
        return NEEDS_MESSAGES, host
    if _room(state, host) < _BURST:
        return NEEDS_RING, host_at(state, host).up
    return 0, 0


@njit(cache=True, inner=True, nogil=True)
def _take_message(state: Any, host: int, row: int, now: int) -> tuple[int, int]:
    """A packet of a message comes; why it cannot be handled, and whom that is about."""
    why, which = _lacks_for_messages(state, host)
    if why == 0:
        slot, here = _slot_at(state, row), host_at(state, host)
        taken = _busy(state, host, here.receives, slot.length, now)
        m = _messenger_at(state)
        messenger.receive(m, host, slot.number, slot.sent, slot.marked != 0, taken)
        _send_messages(state, host, taken)
        if here.is_open and messenger.has_all(m, host):
            close(state, host, taken)
    return why, which


@njit(cache=True, inner=True, nogil=True)
def _wake_messages(state: Any, host: int, now: int) -> tuple[int, int]:
    """A timer event of a host with messages; likewise."""
    why, which = _lacks_for_messages(state, host)
    if why == 0:
        m = _messenger_at(state)
        messenger.wake(m, host, now)
        _send_messages(state, host, now)
        if host_at(state, host).is_open and messenger.has_all(m, host):
            close(state, host, now)
    return why, which


@njit(cache=True, inner=True, nogil=True)
def _send_messages(state: Any, host: int, now: int) -> None:
    """Give a host's link what it takes, and set the host's timer. There must be room."""
    here, m = host_at(state, host), _messenger_at(state)
    wire = link_at(state, here.up)
    full = wire_time(m.header_bytes + m.payload, wire.rate)
    for _ in range(_BURST):
        has_room = max(wire.free, here.free, here.paced) <= now + _BACKLOG * full
        length, target, flow, number, sent = messenger.next_packet(m, host, now, has_room)
        if length < 0:
            break
        leaves = _leaves(state, host, length, now)
        row = transmit(state, here.up, length, 0, flow, leaves)
        slot = _slot_at(state, row)
        slot.sent, slot.number, slot.host, slot.marked = sent, number, target, 0
        written(state, here.up, row)
    here.timer = messenger.next_event(m, host)
    if messenger.may_send(m, host):
        here.timer = min(here.timer, max(now + 1, max(wire.free, here.free, here.paced) - full))


@njit(cache=True, nogil=True)
def _run_host(  # noqa: PLR0911, PLR0912 - likewise
    state: Any, host: int
) -> tuple[int, int]:
    """A host's events of the window: why it stops, and which link or host that is about."""
    here, client = host_at(state, host), _client_at(state, host)
    wire, until = link_at(state, here.down), state.end
    while True:
        comes = next_arrival(state, here.down)
        own = min(here.start, here.flow, here.timer)
        now = min(comes, own)
        if now >= until:
            return 0, 0
        if comes <= own:
            row = wire.first + (wire.head & wire.mask)
            if here.kind == MESSAGES and _is_message(state, _slot_at(state, row)):
                why, which = _take_message(state, host, row, now)
                if why != 0:
                    return why, which
            elif _slot_at(state, row).flow >= 0:
                arrive(state, row, now)
            elif here.kind == PYTHON:
                return NEEDS_HOST, host
            elif here.kind == COMPILED:
                if _room(state, host) < _int_at(client.stats, _QUEUED) + 1:
                    return NEEDS_RING, here.up
                _take(state, host, row, now)
            else:
                count_packet(state, host, row, now)
            wire.head += 1
        elif here.flow == now and here.start != now:
            lacks = _send_flows(state, host, now)
            if lacks != 0:
                return lacks, here.up
        elif here.kind == PYTHON:
            return NEEDS_HOST, host
        elif here.kind == MESSAGES:
            why, which = _wake_messages(state, host, now)
            if why != 0:
                return why, which
        elif here.start == now:
            if _room(state, host) < _int_at(client.stats, _QUEUED):
                return NEEDS_RING, here.up
            here.start = FOREVER
            _send_queued(state, host, now)
        else:
            why = _expires(state, host, now)
            if why != 0:
                return why, host if why == NEEDS_HOST else here.up


# ------------------------------------------------------------------ windows


@njit(cache=True, nogil=True)
def _plan(state: Any) -> int:
    """Find out when each node's next event is; returns the time of the first one."""
    nodes = _ints(state.nodes, _MANY)
    first = FOREVER
    for number in range(state.switch_count):
        due = _departure(state, number)
        if _switch_at(state, number).waiting > 0:
            due = min(due, _waiting_at(state, number, 0).time)
        for at in range(_int_at(state.first_into, number), _int_at(state.first_into, number + 1)):
            due = min(due, next_arrival(state, _int_at(state.into, at)))
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
    if first == FOREVER:
        return IDLE
    if first >= state.limit:
        return REACHED
    state.begin = first
    state.end = min(first + state.lookahead, state.limit)
    state.is_open, state.is_closing = 1, 0
    nodes, reasons = _ints(state.nodes, _MANY), _ints(state.reasons, _MANY)
    for node in range(state.switch_count + state.host_count):
        reasons[node] = NOT_YET if nodes[node] < state.end else 0
    return 0


@njit(cache=True, inner=True, nogil=True)
def _run_share(state: Any, share: int, shares: int) -> None:
    """Run the window of every ``shares``-th node, or the rest of it where a node has stopped.

    Threads may run different shares at the same time, if there are no flows, messages or traces.
    """
    reasons, subjects = _ints(state.reasons, _MANY), _ints(state.subjects, _MANY)
    for node in range(share, state.switch_count + state.host_count, shares):
        if reasons[node] == 0:
            continue
        if node < state.switch_count:
            why, which = _run_switch(state, node, share)
        else:
            why, which = _run_host(state, node - state.switch_count)
        reasons[node], subjects[node] = why, which


@njit(cache=True, inner=True, nogil=True)
def _end_window(state: Any) -> int:
    """End the window if all nodes have done it; NEEDS_PYTHON if not, or 0."""
    reasons = _ints(state.reasons, _MANY)
    for node in range(state.switch_count + state.host_count):
        if reasons[node] != 0:
            return NEEDS_PYTHON
    state.is_open = 0
    if state.is_closing:
        for number in range(state.host_count):
            here = host_at(state, number)
            if here.is_closing:
                here.is_closing = 0
                group = _groups(state.groups, _MANY)[here.group]
                group.open -= 1
                group.finished = max(group.finished, here.finished)
                if group.open == 0:
                    state.completed += 1
    return 0


@njit(cache=True, nogil=True)
def run(states: Records, most: int) -> int:
    """Let time pass until there is something for Python to do.

    Args:
        states: a STATE.
        most: windows of this call, after which it returns REACHED.

    Returns:
        why it returns. For NEEDS_PYTHON, ``reasons`` and ``subjects`` say what nodes need.
    """
    state = states[0]
    for _ in range(most):
        why = _open_window(state)
        if why != 0:
            return why
        _run_share(state, 0, 1)
        if _end_window(state) != 0:
            return NEEDS_PYTHON
    return REACHED


@njit(cache=True, nogil=True)
def open_window(states: Records) -> int:
    """The first part of ``run``, for several threads: why there is no window to run, or 0."""
    return _open_window(states[0])


@njit(cache=True, nogil=True)
def run_share(states: Records, share: int, shares: int) -> None:
    """The second part: each thread runs its share."""
    _run_share(states[0], share, shares)


@njit(cache=True, nogil=True)
def end_window(states: Records) -> int:
    """The third part, when all have done: NEEDS_PYTHON, or 0."""
    return _end_window(states[0])
