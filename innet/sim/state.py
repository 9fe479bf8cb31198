"""What a network in simulated time consists of: records in arrays, and views of them.

Times are whole picoseconds. A STATE has the addresses of all arrays, so that compiled functions
hand over one record (``innet.core.views``). ``link_at`` and the functions beside it return a record
by its number; what they return is the record itself, to be read and written.

Packets lie in the ring of the link that they are on, from the moment they are put onto it until the
node at its end takes them. A packet's length on the wire is its own: who sends it says it, and it
may be more than what the packet carries.

A packet is one of two kinds. The program's packets carry their bytes, or the first of them. Packets
of flows (``flow >= 0``) carry a number only; switches forward them by themselves, through the same
queues. Flows may also send packets of the program, with bytes of the user's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.views import copy_few, viewer
from innet.sim.atomic import add, raise_to
from innet.sim.messenger import MESSENGER

Ints = NDArray[np.int64]
Records = NDArray[Any]

DONE, IDLE, REACHED, NEEDS_PYTHON, TRACED = range(1, 6)
"""Why ``run`` returns. A group is done; nothing will ever happen; the limit; nodes have stopped;
the traces are long enough to be taken."""

NOT_YET = -1
FAILED, FULL_TRACE, NEEDS_WAITING, NEEDS_MESSAGES = range(1, 5)
NEEDS_RING, NEEDS_SWITCH, NEEDS_HOST, NEEDS_LEARNING = range(5, 9)
"""Why a node stops. Its program failed; the trace is full; there is no room for packets of flows in
a switch's queues; hosts that send messages need memory; a link's ring is full; a switch needs
memory; a host has something for Python to do; a switch has sent a digest. NOT_YET: it has not begun
the window."""

TOO_LONG = -1
"""A switch's failure: its program makes packets longer than those of the job."""

WITH_RECORDS = 2
"""Of a switch that is recorded: its program is a recording build."""

LINK = np.dtype(
    [
        ("rate", "i8"),  # bits per second
        ("delay", "i8"),  # picoseconds, with what the pipeline of the switch at its end takes:
        ("pipeline", "i8"),  # the latter, which pause frames do not pass
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
        ("is_faulty", "i8"),  # FAULTY: the network's FAULTS are its own; PAUSABLE; HELD
        ("packets", "i8"),  # put onto it, lost ones included
        ("bytes", "i8"),  # of them, with preamble, frame check sequence and gap
        ("lost", "i8"),
        ("busy", "i8"),  # picoseconds
        ("full", "i8"),  # packets that found its queue full, as far as they were noted
        ("trimmed", "i8"),  # packets that did, and whose header waits for it
        ("length", "i8"),  # of the last frame, and what it takes: most are as long as the last
        ("takes", "i8"),
    ],
    align=True,
)
"""A directed link."""

FAULTY, PAUSABLE, HELD = 1, 2, 4
"""Bits of ``is_faulty``, of links whose packets may change places: by faults; as priority flow
control may pause their sender; which does so now, and the sender is a host."""

SLOT = np.dtype(
    [
        ("time", "i8"),  # when its last bit has come, and the pipeline of a switch has taken it
        ("begun", "i8"),  # when its first bit was put onto the link
        ("sent", "i8"),  # packets of flows: when the host sent it
        ("number", "i8"),  # packets of flows: which one
        ("flow", "i4"),  # -1: a packet of the program; PAUSE_FRAME
        ("length", "i4"),  # bytes of the frame, without check sequence
        ("carried", "i4"),  # its first ones, which stand in ``data``; 0: a packet of a flow
        ("host", "i4"),  # packets of flows: where it goes
        ("marked", "i4"),  # packets of flows: whether it met congestion
    ],
    align=True,
)
"""A packet on a link."""

PAUSE_FRAME = -2
"""In the place of a flow's number: a frame of priority flow control (IEEE 802.1Qbb). Its ``number``
is twice the priority that it is about, and 1 to pause or 0 to resume."""

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
        ("extra", "i8"),  # bytes by which they are longer on the wire
        ("free", "i8"),  # when it has done with what came before
        ("worked", "i8"),  # picoseconds that packets took of it
        ("entry", "i8"),  # of a CALLED one: the address of its function,
        ("call", "i8"),  # and that of the words that it is called with
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

NONE, COMPILED, PYTHON, MESSAGES, SCRIPTED, CALLED = range(6)
"""Kinds of hosts: one that counts packets of the program, a client that runs here, one whose
events Python handles, one that sends messages (``innet.sim.messenger``), one whose events of a
window Python handles all at once, and one whose events a compiled function of the user's handles.
"""

CALL = np.dtype(
    [
        ("time", "i8"),  # picoseconds
        ("frame", "i8"),  # the address of the packet that came, and its bytes; 0: none came
        ("length", "i8"),
        ("memory", "i8"),  # the host's own words: address, how many
        ("words", "i8"),
        ("out", "i8"),  # where packets to send go: address, how many there may be, bytes of each
        ("rows", "i8"),
        ("stride", "i8"),
        ("lengths", "i8"),  # address of their lengths
        ("sent", "i8"),  # what the function returns: how many packets,
        ("wake", "i8"),  # and when it is to be called if nothing comes
    ],
    align=True,
)
"""What a CALLED host's function is called with."""

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
        ("learns", "i8"),  # somebody waits for its digests: Python takes each at its time
        ("resizes", "i8"),  # its program may change the length of packets in egress
        ("is_recorded", "i8"),  # 1, or WITH_RECORDS: the trace says what becomes of each packet
        ("cause", "i8"),  # then: the number of the packet received last; -1: others left since
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
        ("marked", "i8"),  # 1 if it met congestion, and twice the link by which it came
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
        ("packets", "i8"),  # of it, in all
        ("left", "i8"),  # those to be sent
        ("at", "i8"),  # the next of its listed times; -1: it has none
        ("sent", "i8"),
        ("received", "i8"),
        ("dropped", "i8"),  # by full queues
        ("lost", "i8"),  # on links
        ("marked", "i8"),  # of the received ones: those that met congestion
        ("delay", "i8"),  # of received packets: sum
        ("longest", "i8"),
        ("log", "i8"),  # where the delays of its packets are noted; -1: they are not
        ("path", "i8"),  # which of several shortest paths; below 0: one of ``network.BALANCING``
        ("priority", "i8"),  # of the queues that its packets without bytes take in switches
        ("frame", "i8"),  # the first FRAME of packets of the program; -1: packets without bytes
        ("frames", "i8"),  # how many there are: one for all packets, or one for each
        ("extra", "i8"),  # bytes by which each is longer on the wire
        ("is_stamped", "i8"),  # they end in a stamp, so that their delays are known
        ("duplicated", "i8"),  # on links
    ],
    align=True,
)
"""A flow of packets from one host to another."""

FRAME = np.dtype([("begin", "i8"), ("length", "i8")], align=True)
"""Where the bytes of a flow's packet lie, and how many they are."""

SHORTEST_FRAME = 14
"""Bytes of the shortest packet with bytes: Ethernet's header."""
STAMP_BYTES = 16
"""Bytes of a stamp, at the end of a packet: ``STAMP_MARK`` (2), its flow (2), number (4), and when
it was due to be sent (8), in picoseconds; in network byte order."""
STAMP_MARK = 0x696E
STAMPED_FLOWS, STAMPED_PACKETS = 1 << 16, 1 << 32  # that a stamp can tell apart

TRACE = np.dtype(
    [
        ("time", "i8"),
        ("number", "i8"),  # of a flow: which packet; of a recorded switch's program: its origin
        ("arrives", "i8"),  # as ``SLOT`` has its time
        ("again", "i8"),  # when its duplicate arrives; 0: it has none
        ("link", "i4"),
        ("length", "i4"),
        ("carried", "i4"),
        ("flow", "i4"),
        ("fate", "i4"),
    ],
    align=True,
)
"""A packet whose first bit was put onto a traced link at a time. Its origin is the number of the
packet, of those of programs that the switch had received, that caused it; -1: none of a recorded
switch. With recorded switches there are lines for what else happens, see ``FULL``."""

SENT, LOST, DAMAGED = range(3)
"""Fates of packets that were put onto a link; DAMAGED ones arrive with other bytes."""
FULL, UNCONNECTED, CHANGED = range(3, 6)
"""Fates at recorded switches. The packet found the queue to its link full; it left by a port
without a link: its link is -1 minus the switch; watch -1 minus its link has the value ``number``
now."""

WATCH = np.dtype([("switch", "i8"), ("address", "i8"), ("size", "i8"), ("value", "i8")], align=True)
"""A register's cell of ``size`` bytes at an address, and the value that was noted last."""

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
        ("owners", "i8"),
        ("owner_count", "i8"),
        ("places", "i8"),
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
        ("out_extra", "i8"),
        ("times", "i8"),
        ("extra", "i8"),
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
        # Slots of packets that wait, and words of each; where there is priority flow control.
        ("pool", "i8"),
        ("row_words", "i8"),
    ],
    align=True,
)
"""A switch's program and queues, by addresses."""

CONTROL = np.dtype(
    [
        ("state", "i8"),  # address of the STATE
        ("node", "i8"),  # among switches, or among hosts
        ("what", "i8"),  # see ``links.call_control``
        ("link", "i8"),  # that this is about; that the function lacks room on, when it returns
        ("row", "i8"),  # the slot that this is about
        ("now", "i8"),
        ("shared", "i8"),  # bytes of a switch's buffer without headroom
        ("stopped", "i8"),  # senders to the switch, by priorities, that it has paused
        ("paused", "i8"),  # queues of the switch that are paused
    ],
    align=True,
)
"""What functions are called with that not all networks have, for each node, and what that of
priority flow control (``innet.sim.flow_control``) knows of it."""

PAUSING = np.dtype(
    [
        # At the sender.
        ("is_paused", "i8"),
        ("since", "i8"),  # when that began
        ("pauses", "i8"),  # how often it did
        ("paused", "i8"),  # picoseconds of those that are over
        # At the switch that receives.
        ("is_stopped", "i8"),  # it has sent a pause frame, and none to resume
        ("stopped", "i8"),  # when
        ("held", "i8"),  # bytes of packets of flows in its queues that came by this link,
        ("held_of_program", "i8"),  # and of packets of its program
    ],
    align=True,
)
"""A link's packets of a priority, under priority flow control."""

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
        ("flowlets", "i8"),  # (switches, FLOWLETS, 2): when a packet came last, and its path
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
        ("heap_times", "i8"),  # for the merging of links
        ("heap_links", "i8"),
        ("reasons", "i8"),  # why a node stops; 0: it has done the window
        ("subjects", "i8"),  # the link, switch or host that this is about, or what failed
        ("messenger", "i8"),  # the MESSENGER, if hosts send messages
        ("watches", "i8"),  # WATCH of recorded switches
        ("controls", "i8"),  # CONTROL of each node: switches, then hosts
        ("control", "i8"),  # the function of priority flow control; 0: there is none
        ("on_message", "i8"),  # that of hosts with messages, if there are any
        ("pausing", "i8"),  # PAUSING of each link and priority
        ("order", "i8"),  # nodes, by part
        ("first_node", "i8"),  # where those of a part begin
        ("states", "i8"),  # a STATE of each part
        ("team", "i8"),  # words that threads share (``innet.sim.team``)
        # How much there is.
        ("switch_count", "i8"),
        ("host_count", "i8"),
        ("stride", "i8"),
        ("waiting_room", "i8"),
        ("outage_count", "i8"),
        ("watch_count", "i8"),
        ("heap_room", "i8"),  # of each part
        ("trace_limit", "i8"),  # packets of all traces after which Python takes them
        ("seed", "i8"),
        ("flow_count", "i8"),
        ("flowlet_gap", "i8"),  # picoseconds
        ("classes", "i8"),  # priorities of each link in ``pausing``
        ("pause_alpha", "i8"),  # 1/65,536 of the free buffer above which a sender is paused
        ("resume_offset", "i8"),  # bytes below that at which it is resumed
        # What changes.
        ("begin", "i8"),  # the window
        ("end", "i8"),
        ("is_open", "i8"),  # whether it is being run
        ("is_closing", "i8"),  # whether a host was done in it; each part says it
        ("lookahead", "i8"),  # its longest length
        ("limit", "i8"),  # until when to run
        ("completed", "i8"),  # groups that are done
        # What each part has its own of.
        ("trace", "i8"),  # TRACE: its address, and how many lines it has room for
        ("trace_room", "i8"),
        ("traced", "i8"),  # uint8 (trace_room, stride): bytes of the packets in the trace
        ("traced_packets", "i8"),
    ],
    align=True,
)
"""Everything, by addresses. There is one for each part of the nodes; all but the trace is as the
first one has it."""

SHARED_WORDS = len(STATE.names or ()) - 4
"""Words of a STATE before those that each part has its own of."""

BATCH = 1 << 10
"""Packets that a switch takes at once, at most."""
FLOW_STREAM, HOST_STREAM = 1 << 32, 1 << 33
"""Streams of draws, by flows and hosts; those below are links'."""
FLOWLETS = 1 << 12
"""Entries of a switch's table of flowlets; flows whose hashes are equal share one."""
BYTE_ONE = 1 << 16
"""Of ``HOST``'s ``byte``: a picosecond."""
_FEW = 128  # bytes, from which on a loop over them takes no longer than a call
MANY = 1 << 40  # what has its length elsewhere: nothing here asks for it

bytes_view, shorts_view, bools_view = viewer("u1"), viewer("u2"), viewer("?")
ints_view, words_view, signed_view = viewer("i8"), viewer("u4"), viewer("i4")
floats_view, singles_view = viewer("f8"), viewer("f4")
byte_rows_view, rules_view, value_rows_view = viewer("u1", 2), viewer("i8", 2), viewer("i4", 2)
links_view, hosts_view, switches_view = viewer(LINK), viewer(HOST), viewer(SWITCH)
flows_view, clients_view, programs_view = viewer(FLOW), viewer(CLIENT), viewer(PROGRAM)
slots_view = viewer(SLOT)
waiting_view, groups_view, outages_view = viewer(WAITING), viewer(GROUP), viewer(OUTAGE)
faults_view, traces_view, frames_view = viewer(FAULTS), viewer(TRACE), viewer(FRAME)
watches_view, states_view = viewer(WATCH), viewer(STATE)
controls_view, pausing_view = viewer(CONTROL), viewer(PAUSING)
messengers_view, calls_view = viewer(MESSENGER), viewer(CALL)


# ------------------------------------------------------------------ where things are


@njit(cache=True, nogil=True)
def link_at(state: Any, link: int) -> Any:
    """A LINK, by number; the functions below are alike."""
    return links_view(state.links, MANY)[link]


@njit(cache=True, nogil=True)
def host_at(state: Any, host: int) -> Any:
    """A HOST."""
    return hosts_view(state.hosts, MANY)[host]


@njit(cache=True, nogil=True)
def switch_at(state: Any, switch: int) -> Any:
    """A SWITCH."""
    return switches_view(state.switches, MANY)[switch]


@njit(cache=True, nogil=True)
def flow_at(state: Any, flow: int) -> Any:
    """A FLOW."""
    return flows_view(state.flows, MANY)[flow]


def _offset(record: np.dtype[Any], name: str) -> int:
    """Where a field of a record begins."""
    assert record.fields is not None, "a record has fields"
    return record.fields[name][1]


_FLOW_BYTES, _FLOW_COUNTS = FLOW.itemsize, _offset(FLOW, "dropped")
_RECEIVED, _DELAY, _LONGEST = (_offset(FLOW, name) for name in ("received", "delay", "longest"))
_FAULT_COUNTS = _offset(FAULTS, "duplicated")
OF_DROPPED, OF_LOST, OF_DUPLICATED = (
    _offset(FLOW, name) - _FLOW_COUNTS for name in ("dropped", "lost", "duplicated")
)
"""Counts of a flow, for ``count_of_flow``."""
OF_COPIES, OF_HELD, OF_CORRUPTED, OF_TRUNCATED, OF_MARKED = (
    _offset(FAULTS, name) - _FAULT_COUNTS
    for name in ("duplicated", "held", "corrupted", "truncated", "marked")
)
"""Counts of faults, for ``count_fault``."""


@njit(cache=True, nogil=True)
def count_of_flow(state: Any, flow: int, what: int) -> None:
    """One packet more of a flow that was dropped, lost or duplicated, on any link or switch."""
    add(state.flows + flow * _FLOW_BYTES + _FLOW_COUNTS + what, 1)


@njit(cache=True, nogil=True)
def count_delay(state: Any, flow: int, which: int, delay: int) -> None:
    """A packet of a flow has come to any host; of copies the one that took longest is noted."""
    begin = state.flows + flow * _FLOW_BYTES
    add(begin + _RECEIVED, 1)
    add(begin + _DELAY, delay)
    raise_to(begin + _LONGEST, delay)
    log = flow_at(state, flow).log
    if log >= 0:
        raise_to(state.log + 8 * (log + which), delay)


@njit(cache=True, nogil=True)
def count_fault(state: Any, what: int) -> None:
    """One fault more, on any link."""
    add(state.faults + _FAULT_COUNTS + what, 1)


@njit(cache=True, nogil=True)
def client_at(state: Any, host: int) -> Any:
    """A host's CLIENT."""
    return clients_view(state.clients, MANY)[host]


@njit(cache=True, nogil=True)
def program_at(state: Any, switch: int) -> Any:
    """A switch's PROGRAM."""
    return programs_view(state.programs, MANY)[switch]


@njit(cache=True, nogil=True)
def slot_at(state: Any, row: int) -> Any:
    """A SLOT."""
    return slots_view(state.slots, MANY)[row]


@njit(cache=True, nogil=True)
def waiting_at(state: Any, switch: int, at: int) -> Any:
    """A WAITING of a switch, by its place in the heap."""
    return waiting_view(state.waiting, MANY)[switch * state.waiting_room + at]


@njit(cache=True, nogil=True)
def control_at(state: Any, node: int) -> Any:
    """A node's CONTROL."""
    return controls_view(state.controls, MANY)[node]


@njit(cache=True, nogil=True)
def pausing_at(state: Any, link: int, priority: int) -> Any:
    """A link's PAUSING of a priority."""
    return pausing_view(state.pausing, MANY)[link * state.classes + priority]


@njit(cache=True, nogil=True)
def int_at(address: int, at: int) -> int:
    """A number of an array of int64."""
    return int(ints_view(address, MANY)[at])


@njit(cache=True, nogil=True)
def data_at(state: Any, row: int, length: int) -> Any:
    """The bytes of a slot."""
    return bytes_view(state.data + row * state.stride, length)


@njit(cache=True, nogil=True)
def copy_bytes(target: NDArray[np.uint8], source: NDArray[np.uint8], length: int) -> None:
    """Copy the first ``length`` bytes; the arrays do not overlap."""
    if length < _FEW:
        copy_few(target, source, length)
        return
    for byte in range(length):
        target[byte] = source[byte]


@njit(cache=True, nogil=True)
def put_number(data: NDArray[np.uint8], at: int, number: int, size: int) -> None:
    """Write a number in network byte order."""
    for byte in range(size):
        data[at + byte] = (number >> (8 * (size - 1 - byte))) & 0xFF


@njit(cache=True, nogil=True)
def get_number(data: NDArray[np.uint8], at: int, size: int) -> int:
    """Read a number in network byte order."""
    number = 0
    for byte in range(size):
        number = int((number << 8) | np.int64(data[at + byte]))
    return number


@njit(cache=True, nogil=True)
def messenger_at(state: Any) -> Any:
    """The MESSENGER."""
    return messengers_view(state.messenger, 1)[0]
