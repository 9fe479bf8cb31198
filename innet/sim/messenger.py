"""Hosts that run a message graph over the reliable transport, in compiled code.

``innet.sim.hosts`` gives a host its packets and the time, and asks it for packets; the host
starts messages, runs their transport (``innet.sim.transport``), and notes what was delivered. It
has no links. Everything lies in arrays, whose addresses a MESSENGER has.

Of a packet, links and switches carry 128 bits: ``number`` and ``sent``. The latter is the message's
generation and the stamp. Both are cut to what fits; what stands here restores them.

A host gives its link a few packets at a time, in turn from its messages that may send. So messages
share a link fairly, and what a window allows does not wait at the link before it is sent.

GPUs of a host (``innet.sim.gpu_hosts``) are ends of messages that share the host's network cards,
and a card is what is called a host here. A message between them takes their local links and no
packets. Its events are at the cards of its two ends in turn, each one at least a latency after the
one before, which no window of simulated time is longer than. Messages between GPUs of different
hosts have their turn on their connection, as those of a queue pair: local links may give a GPU many
at a time, and each has a window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numba_cache import njit
from innet.core.views import viewer
from innet.sim.gpu_hosts import GpuHosts
from innet.sim.heap import push, replace_first
from innet.sim.messages import MessageGraph
from innet.sim.transport import (
    COMPLETE,
    CONNECTION,
    DCQCN,
    DCTCP,
    DONE,
    DUPLICATE,
    ECHO,
    FOREVER,
    NACK,
    NEVER_LOST,
    NEWRENO,
    RECEIVER,
    SENDER,
    STALE,
    ReceiverRows,
    ReliableTransport,
    Rules,
    SenderRows,
    deadline,
    keep,
    make_rows,
    more_rows,
    on_ack,
    on_header,
    on_segment,
    on_timeout,
    open_sender,
    resume,
    segment_to_send,
)

PATHS = 64
"""Paths, of which each connection takes one, by its number: the flows that ECMP hashes."""

ROW = np.dtype(
    [
        ("message", "i8"),  # -1: the row is free
        ("connection", "i8"),
        ("source", "i8"),
        ("target", "i8"),
        ("armed", "i8"),  # the time of its event in its host's heap; FOREVER for none
        ("following", "i8"),  # the next row that may send, or that is free as this one is
        ("is_ready", "i8"),
    ],
    align=True,
)
"""A message under way. Rows are used again by messages of their connection alone."""

PORT = np.dtype(
    [
        ("first", "i8"),  # where its heap of events begins
        ("events", "i8"),  # in it
        ("timers", "i8"),  # of them, those of rows
        ("ready", "i8"),  # rows that may send, a list: the first, and the last
        ("last", "i8"),
        ("left", "i8"),  # messages to it that were not delivered
        ("ack_length", "i8"),  # an acknowledgement that is to be sent; 0 for none
        ("ack_row", "i8"),
        ("ack_number", "i8"),
        ("ack_sent", "i8"),
        ("spare", "i8"),  # the first of its rows that no message had yet, a list; -1: there is none
        # Counts, of messages that are acknowledged.
        ("segments", "i8"),
        ("resent", "i8"),
        ("timeouts", "i8"),
    ],
    align=True,
)
"""A host."""

QUEUE_PAIR = np.dtype(
    [("active", "i8"), ("bytes", "i8"), ("first", "i8"), ("last", "i8")], align=True
)
"""A connection between GPUs: messages under way, and those that wait for their turn, a list."""

LANE = np.dtype([("out", "i8"), ("into", "i8")], align=True)
"""A GPU's local link: when it is free, each way."""

MESSENGER = np.dtype(
    [
        # Addresses of arrays.
        *(
            (name, "i8")
            for name in (
                "senders",
                "sacked",
                "cut",
                "receivers",
                "arrived",
                "rows",
                "idle",
                "ports",
                "times",
                "what",
                "source",
                "destination",
                "sender",
                "receiver",
                "size",
                "dependencies",
                "first",
                "dependents",
                "delay",
                "earliest",
                "connection",
                "connections",
                "delivered",
                "local_ticks",
                "lanes",
                "pairs",
                "next_turn",
            )
        ),
        # How much there is.
        ("row_count", "i8"),
        ("words", "i8"),
        ("timer_room", "i8"),
        # Settings.
        *((name, "i8") for name in Rules._fields),
        ("header_bytes", "i8"),
        ("ack_bytes", "i8"),
        ("persistent", "i8"),
        ("first_flow", "i8"),
        ("base", "i8"),
        ("messages", "i8"),
        ("local_latency", "i8"),  # 0: there are no local links
        ("gpus", "i8"),
    ],
    align=True,
)

_MANY = 1 << 40  # what has its length elsewhere
_ROW_BITS, _ACK_BITS, _OFFSET_BITS, _STAMP_BITS = 20, 26, 13, 46
_ACK = 1 << 62
HEADER = 1 << 61
"""Of ``number``: a switch has cut off the payload. Acknowledgements have larger numbers."""
MOST_SEGMENTS = (1 << _ACK_BITS) - 1
MOST_WINDOW = (1 << _OFFSET_BITS) - 2
MOST_ROWS = 1 << _ROW_BITS
_FIRST_TIMERS = 256
_SLACK = 8  # timers that one event makes, at most
_TURNS = 2  # messages of a queue pair under way, or more that have less than a window together

_sender, _receiver, _row, _port = viewer(SENDER), viewer(RECEIVER), viewer(ROW), viewer(PORT)
_ints, _signed, _bits = viewer("i8"), viewer("i4"), viewer("u8", 2)
_connection, _lane, _pair = viewer(CONNECTION), viewer(LANE), viewer(QUEUE_PAIR)


@njit(inline="always", nogil=True)
def _rules(m: Any) -> Any:
    return Rules(
        m.payload,
        m.window,
        m.initial_window,
        m.congestion,
        m.go_back_n,
        m.timeout,
        m.min_timeout,
        m.max_timeout,
        m.tail_probe,
        m.interval,
        m.reordering,
        m.line_rate,
        m.overhead,
        m.alpha_timer,
        m.cnp_interval,
        m.rate_timer,
        m.byte_counter,
        m.additive,
        m.hyper,
        m.gain,
        m.recovery_steps,
        m.trims,
    )


@njit(inline="always", nogil=True)
def _senders(m: Any) -> Any:
    return SenderRows(
        _sender(m.senders, m.row_count),
        _bits(m.sacked, m.row_count, m.words),
        _bits(m.cut, m.row_count, m.words),
    )


@njit(inline="always", nogil=True)
def _receivers(m: Any) -> Any:
    return ReceiverRows(_receiver(m.receivers, m.row_count), _bits(m.arrived, m.row_count, m.words))


# ------------------------------------------------------------------ a host's events


@njit(cache=True, nogil=True)
def _push(m: Any, host: int, time: int, what: int) -> None:
    """Add an event: twice a message that starts, or twice a row and 1.

    Of a message between GPUs also twice its number and once, twice or three times that of all
    messages: see ``_pass_locally``.
    """
    port = _port(m.ports, _MANY)[host]
    times, kinds = _ints(m.times + 8 * port.first, _MANY), _ints(m.what + 8 * port.first, _MANY)
    push(times, kinds, port.events, time, what)
    port.events += 1


@njit(cache=True, nogil=True)
def _pop(m: Any, host: int) -> int:
    """Remove the first event; returns what it is."""
    port = _port(m.ports, _MANY)[host]
    times, kinds = _ints(m.times + 8 * port.first, _MANY), _ints(m.what + 8 * port.first, _MANY)
    first = kinds[0]
    last = port.events - 1
    port.events = last
    replace_first(times, kinds, last, times[last], kinds[last])
    return int(first)


@njit(cache=True, nogil=True)
def next_event(m: Any, host: int) -> int:
    """When ``wake`` is to be called; FOREVER for never."""
    port = _port(m.ports, _MANY)[host]
    return int(_ints(m.times, _MANY)[port.first]) if port.events > 0 else FOREVER


@njit(cache=True, nogil=True)
def is_short(m: Any, host: int) -> bool:
    """Whether memory is needed before the host's next event."""
    port = _port(m.ports, _MANY)[host]
    return bool(port.spare < 0 or port.timers + _SLACK > m.timer_room)


@njit(cache=True, nogil=True)
def has_all(m: Any, host: int) -> bool:
    """Whether all messages to the host were delivered."""
    return bool(_port(m.ports, _MANY)[host].left == 0)


@njit(cache=True, nogil=True)
def may_send(m: Any, host: int) -> bool:
    """Whether a message of the host perhaps has a segment to send."""
    return bool(_port(m.ports, _MANY)[host].ready >= 0)


# ------------------------------------------------------------------ messages


@njit(cache=True, nogil=True)
def begin(messengers: Any) -> None:
    """Let all messages start that wait for none."""
    m = messengers[0]
    missing, source = _signed(m.dependencies, _MANY), _signed(m.source, _MANY)
    for message in range(m.messages):
        if missing[message] == 0:
            _start_later(m, message, source[message], m.base)


@njit(cache=True, nogil=True)
def _start_later(m: Any, message: int, source: int, now: int) -> None:
    earliest = _ints(m.earliest, _MANY)[message] + m.base
    _push(m, source, max(now, earliest) + _ints(m.delay, _MANY)[message], 2 * message)


@njit(cache=True, nogil=True)
def _release(m: Any, message: int, end: int, host: int, now: int) -> None:
    """Of what waits for a message, let start what ``end``, a GPU of the host or the host itself,
    sends and has waited for it alone.
    """
    first, dependents = _ints(m.first, _MANY), _ints(m.dependents, _MANY)
    sender, missing = _signed(m.sender, _MANY), _signed(m.dependencies, _MANY)
    for at in range(first[message], first[message + 1]):
        later = dependents[at]
        if sender[later] == end:
            missing[later] -= 1
            if missing[later] == 0:
                _start_later(m, later, host, now)


@njit(cache=True, nogil=True)
def _deliver(m: Any, message: int, now: int) -> None:
    host = _signed(m.destination, _MANY)[message]
    _ints(m.delivered, _MANY)[message] = now
    _port(m.ports, _MANY)[host].left -= 1
    _release(m, message, _signed(m.receiver, _MANY)[message], host, now)


@njit(cache=True, nogil=True)
def _pass_locally(m: Any, event: int, now: int) -> int:
    """An event of a message between GPUs of a host, or a GPU and their switch.

    It starts, or waits for its sender's link; its first bit is at the receiver, whose link takes it
    after those before it; it is delivered; and the sender knows. A GPU's link takes the message's
    bits each way. A switch takes any number at a time, and is half of the way between two GPUs.

    Returns:
        the card at which its next event is, if that may be another one, or -1.
    """
    phase, message = event // m.messages, event % m.messages
    sender, receiver = _signed(m.sender, _MANY)[message], _signed(m.receiver, _MANY)[message]
    source, target = _signed(m.source, _MANY)[message], _signed(m.destination, _MANY)[message]
    lanes, ticks = _lane(m.lanes, _MANY), _ints(m.local_ticks, _MANY)[message]
    latency = m.local_latency
    if sender >= m.gpus or receiver >= m.gpus:
        latency >>= 1
    following = 2 * (message + (phase + 1) * m.messages)
    if phase == 0:
        begun = max(now, lanes[sender].out)
        if sender < m.gpus:
            lanes[sender].out = begun + ticks
        _push(m, target, begun + latency, following)
        return int(target)
    if phase == 1:
        ends = max(now, lanes[receiver].into) + ticks
        if receiver < m.gpus:
            lanes[receiver].into = ends
        _push(m, target, ends, following)
        return -1
    if phase == 2:
        _deliver(m, message, now)
        _push(m, source, now + latency, following)
        return int(source)
    _release(m, message, sender, source, now)
    return -1


@njit(cache=True, nogil=True)
def _open(m: Any, message: int, host: int, now: int) -> None:
    """A message starts."""
    target = _signed(m.destination, _MANY)[message]
    if target == host:
        _deliver(m, message, now)
    elif m.local_latency == 0 or _has_turn(m, message):
        _begin_message(m, message, host, now)


@njit(cache=True, nogil=True)
def _has_turn(m: Any, message: int) -> bool:
    """Whether a message may begin; otherwise it waits until others of its connection are done."""
    pair = _pair(m.pairs, _MANY)[_signed(m.connection, _MANY)[message]]
    if pair.first < 0 and (pair.active < _TURNS or pair.bytes < m.window * m.payload):
        pair.active += 1
        pair.bytes += _ints(m.size, _MANY)[message]
        return True
    following = _signed(m.next_turn, _MANY)
    following[message] = -1
    if pair.first < 0:
        pair.first = message
    else:
        following[pair.last] = message
    pair.last = message
    return False


@njit(cache=True, nogil=True)
def _give_turn(m: Any, message: int, host: int, now: int) -> None:
    """A message is acknowledged: the first that waits begins, if it may."""
    sizes = _ints(m.size, _MANY)
    pair = _pair(m.pairs, _MANY)[_signed(m.connection, _MANY)[message]]
    pair.active -= 1
    pair.bytes -= sizes[message]
    first = pair.first
    if first >= 0 and (pair.active < _TURNS or pair.bytes < m.window * m.payload):
        pair.first = _signed(m.next_turn, _MANY)[first]
        pair.active += 1
        pair.bytes += sizes[first]
        _begin_message(m, first, host, now)


@njit(cache=True, nogil=True)
def _begin_message(m: Any, message: int, host: int, now: int) -> None:
    """A message gets its row, and may send."""
    rows, port = _row(m.rows, _MANY), _port(m.ports, _MANY)[host]
    idle, connection = _signed(m.idle, _MANY), _signed(m.connection, _MANY)[message]
    row = int(idle[connection])
    if row >= 0:
        idle[connection] = rows[row].following
    else:
        row = int(port.spare)
        port.spare = rows[row].following
    here, target = rows[row], _signed(m.destination, _MANY)[message]
    here.message, here.connection, here.source, here.target = message, connection, host, target
    here.armed, here.is_ready = FOREVER, 0
    senders = _senders(m)
    open_sender(senders, _rules(m), row, _ints(m.size, _MANY)[message], now)
    if m.persistent:
        resume(senders, row, _connection(m.connections, _MANY), connection)
    _ready(m, row)


@njit(cache=True, nogil=True)
def _close(m: Any, row: int, now: int) -> None:
    """A message is acknowledged."""
    here, flow = _row(m.rows, _MANY)[row], _sender(m.senders, _MANY)[row]
    port = _port(m.ports, _MANY)[here.source]
    if m.persistent:
        keep(_senders(m), row, _connection(m.connections, _MANY), here.connection)
    port.segments += flow.sent
    port.resent += flow.resent
    port.timeouts += flow.timeouts
    sender = _signed(m.sender, _MANY)[here.message]
    _release(m, here.message, sender, here.source, now)
    message, here.message = here.message, -1
    if not here.is_ready:
        _free(m, row)
    if m.local_latency > 0:
        _give_turn(m, message, here.source, now)


@njit(cache=True, nogil=True)
def _free(m: Any, row: int) -> None:
    """Let the next message of the row's connection have it."""
    idle, here = _signed(m.idle, _MANY), _row(m.rows, _MANY)[row]
    here.following, idle[here.connection] = idle[here.connection], row


@njit(cache=True, nogil=True)
def _ready(m: Any, row: int) -> None:
    """Put a row at the end of its host's list of those that may send."""
    rows = _row(m.rows, _MANY)
    here = rows[row]
    if here.is_ready:
        return
    port = _port(m.ports, _MANY)[here.source]
    here.is_ready, here.following = 1, -1
    if port.ready < 0:
        port.ready = row
    else:
        rows[port.last].following = row
    port.last = row


@njit(cache=True, nogil=True)
def _arm(m: Any, row: int, now: int) -> None:
    """See to it that a row's deadline is looked at.

    A segment that may be sent by now waits for its link alone.
    """
    here = _row(m.rows, _MANY)[row]
    due = deadline(_senders(m), _rules(m), row)
    if due <= now and here.is_ready:
        due = _sender(m.senders, _MANY)[row].deadline
    if due < here.armed:
        here.armed = due
        _push(m, here.source, due, 2 * row + 1)
        _port(m.ports, _MANY)[here.source].timers += 1


@njit(cache=True, nogil=True)
def wake(m: Any, host: int, now: int) -> int:
    """An event of the host is due, if any is: a message starts, or a deadline has come.

    Returns:
        another host whose next event may have become an earlier one, or -1.
    """
    time = next_event(m, host)
    if time > now:
        return -1
    what = _pop(m, host)
    number = what >> 1
    if what & 1 == 0:
        if m.local_latency > 0 and _ints(m.local_ticks, _MANY)[number % m.messages] >= 0:
            return _pass_locally(m, number, now)
        _open(m, number, host, now)
        return -1
    _port(m.ports, _MANY)[host].timers -= 1
    here = _row(m.rows, _MANY)[number]
    if here.message >= 0 and here.source == host and here.armed == time:
        here.armed = FOREVER
        on_timeout(_senders(m), _rules(m), number, now)
        _ready(m, number)
        _arm(m, number, now)
    return -1


# ------------------------------------------------------------------ packets


@njit(cache=True, nogil=True)
def next_packet(m: Any, host: int, now: int, has_room: bool) -> tuple[int, int, int, int, int]:
    """What the host sends now.

    Args:
        m: a MESSENGER.
        host: which one.
        now: picoseconds.
        has_room: whether the link takes segments; acknowledgements are not held back.

    Returns:
        length of the frame, -1 for none; host; flow; ``number``; ``sent``.
    """
    port = _port(m.ports, _MANY)[host]
    if port.ack_length > 0:
        here = _row(m.rows, _MANY)[port.ack_row]
        length, port.ack_length = port.ack_length, 0
        return (
            int(length),
            int(here.source),
            _path(m, host, here.source),
            port.ack_number,
            (port.ack_sent),
        )
    rows = _row(m.rows, _MANY)
    while has_room and port.ready >= 0:
        row = port.ready
        here = rows[row]
        port.ready, here.is_ready = here.following, 0
        if here.message < 0:
            _free(m, row)
            continue
        sequence, payload = segment_to_send(_senders(m), _rules(m), row, now)
        _arm(m, row, now)
        if sequence < 0:
            continue
        _ready(m, row)
        generation = _sender(m.senders, _MANY)[row].generation & 0xFFFF
        sent = (generation << _STAMP_BITS) | (now & ((1 << _STAMP_BITS) - 1))
        length = m.header_bytes + payload
        return (
            int(length),
            int(here.target),
            _path(m, host, here.target),
            ((row << 32) | sequence),
            sent,
        )
    return -1, 0, 0, 0, 0


@njit(cache=True, nogil=True)
def _path(m: Any, source: int, target: int) -> int:
    """The flow by whose number switches choose a path for packets from a host to another."""
    mixed = (source * 0x9E3779B1 + target * 0x85EBCA77) & 0xFFFFFFFF
    return int(m.first_flow + (mixed ^ (mixed >> 15)) % PATHS)


@njit(cache=True, nogil=True)
def receive(  # noqa: PLR0917 - compiled functions are called by position
    m: Any, host: int, number: int, sent: int, marked: bool, now: int
) -> None:
    """A packet has come; ``marked`` by a queue, or not."""
    generation, stamp = sent >> _STAMP_BITS, now - ((now - sent) & ((1 << _STAMP_BITS) - 1))
    if number & _ACK:
        _take_ack(m, host, number, generation, stamp, now)
        return
    row, sequence = (number & (HEADER - 1)) >> 32, number & 0xFFFFFFFF
    if row >= m.row_count:  # of a graph that is over
        return
    flow, state = _sender(m.senders, _MANY)[row], _receiver(m.receivers, _MANY)[row]
    ahead = (generation - state.generation) & 0xFFFF
    whole = state.generation + (ahead if ahead < 0x8000 else ahead - 0x10000)
    if number & HEADER:
        ack, flags = on_header(_receivers(m), _rules(m), row, whole, sequence, now)
    else:
        payload = min(m.payload, flow.size - sequence * m.payload)
        ack, flags = on_segment(
            _receivers(m), _rules(m), row, whole, flow.segments, sequence, payload, marked, now
        )
    if flags & COMPLETE:
        _deliver(m, _row(m.rows, _MANY)[row].message, now)
    if ack >= 0:
        offset = max(0, sequence + 1 - ack)
        shown = flags & (ECHO | NACK | DUPLICATE)
        port = _port(m.ports, _MANY)[host]
        port.ack_length, port.ack_row, port.ack_sent = m.ack_bytes, row, sent
        port.ack_number = (
            _ACK
            | (row << (_ACK_BITS + _OFFSET_BITS + 3))
            | (shown << (_ACK_BITS + _OFFSET_BITS))
            | (offset << _ACK_BITS)
            | ack
        )


@njit(cache=True, nogil=True)
def _take_ack(  # noqa: PLR0917 - compiled functions are called by position
    m: Any, host: int, number: int, generation: int, stamp: int, now: int
) -> None:
    ack = number & ((1 << _ACK_BITS) - 1)
    offset = (number >> _ACK_BITS) & ((1 << _OFFSET_BITS) - 1)
    flags = (number >> (_ACK_BITS + _OFFSET_BITS)) & 7
    row = (number & (_ACK - 1)) >> (_ACK_BITS + _OFFSET_BITS + 3)
    if row >= m.row_count:
        return
    here, flow = _row(m.rows, _MANY)[row], _sender(m.senders, _MANY)[row]
    if here.message < 0 or here.source != host or flow.generation & 0xFFFF != generation:
        return
    found = on_ack(
        _senders(m), _rules(m), row, flow.generation, ack, ack + offset - 1, flags, stamp, now
    )
    if found == DONE:
        _close(m, row, now)
    elif found != STALE:
        _ready(m, row)
        _arm(m, row, now)


# ------------------------------------------------------------------ the arrays


class ConnectionCounts(NamedTuple):
    """Connections that take the network, (n,) each.

    Attributes:
        source, target: ends of messages, as the graph has them.
        received: bytes of payload that have come, each once.
        is_active: whether a message is under way; where none is, the next ones are 0.
        rate: bits per second on the wire at which DCQCN lets it send; 0 with others.
        window: segments that may be under way.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    received: NDArray[np.int64]
    is_active: NDArray[np.bool_]
    rate: NDArray[np.int64]
    window: NDArray[np.int64]


class Messenger:
    """The memory of a graph's run.

    Args:
        graph: what is sent.
        transport: how.
        hosts: how many there are, at least those of the graph.
        rate: of the hosts' links, bits per second.
        base: picoseconds at which it begins.
        first_flow: the number of the first of ``PATHS`` flows, by which links count its packets.
        generation: of messages that were sent before; higher than all of them.
        gpus: where the graph's ends are GPUs: how many a host has, and how they are joined.
        trims: whether switches cut packets that find a queue full to their headers.

    Attributes:
        record: (1,) of MESSENGER.
        delivered: int64 (n,), when each message was; -1 before.

    Raises:
        InputError: a message or a window that packets have no numbers for; with ``trims``, a
            transport that does not repeat what was cut.
    """

    def __init__(
        self,
        graph: MessageGraph,
        transport: ReliableTransport,
        hosts: int,
        *,
        rate: int,
        base: int = 0,
        first_flow: int = 0,
        generation: int = 0,
        gpus: GpuHosts | None = None,
        trims: bool = False,
    ) -> None:
        rules = transport.rules
        if transport.segments(int(graph.bytes.max(initial=0))) > MOST_SEGMENTS:
            raise InputError(
                f"a message has more than {MOST_SEGMENTS} segments; send it as several."
            )
        if rules.window > MOST_WINDOW:
            raise InputError(
                f"window_bytes of the transport is {transport.window_bytes}, more than "
                f"{MOST_WINDOW} segments; give less."
            )
        if trims:
            transport.check_trimming()
        self.record = np.zeros(1, MESSENGER)
        self.delivered = np.full(len(graph), -1, np.int64)
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, value in zip(Rules._fields, rules, strict=True):
            self.record[name] = value
        self.record["line_rate"] = min(rate, rules.line_rate or rate)
        if trims:  # a NACK says what is lost, and what is sent again comes after others
            self.record["trims"], self.record["reordering"] = 1, NEVER_LOST
        for name in ("header_bytes", "ack_bytes", "persistent"):
            self.record[name] = getattr(transport, name)
        self.record["base"], self.record["first_flow"] = base, first_flow
        connection, count = graph.connections()
        source, destination = graph.source, graph.destination
        local = np.zeros(0, np.int64)  # of hosts without GPUs nothing is local
        if gpus is not None:
            source, destination = gpus.nic(source), gpus.nic(destination)
            local = gpus.local_ticks(graph)
            self.record["local_latency"] = gpus.latency_ticks
            self.record["gpus"] = gpus.total
            self._keep("lanes", np.zeros(gpus.ends, LANE))
            pairs = np.zeros(max(count, 1), QUEUE_PAIR)
            pairs["first"] = -1
            self._keep("pairs", pairs)
            self._keep("next_turn", np.full(len(graph), -1, np.int32))
        self.record["messages"] = len(graph)
        arrays: dict[str, NDArray[Any]] = {
            "source": source,
            "destination": destination,
            "sender": graph.source,
            "receiver": graph.destination,
            "local_ticks": local,
            "size": graph.bytes,
            "dependencies": graph.dependencies.copy(),
            "first": graph.first,
            "dependents": graph.dependents,
            "delay": graph.delay,
            "earliest": graph.earliest,
            "connection": connection,
            "connections": np.zeros(max(count, 1), CONNECTION),
            "idle": np.full(max(count, 1), -1, np.int32),
            "delivered": self.delivered,
        }
        for name, array in arrays.items():
            self._keep(name, array)
        ports = np.zeros(hosts, PORT)
        ports["ready"] = ports["last"] = -1
        ports["left"] = np.bincount(destination, minlength=hosts)
        # Events at a time, beside those of rows: each message has one, at its source's heap, or
        # where it is local at that of its destination.
        self._starts = np.bincount(source, minlength=hosts)
        if gpus is not None:
            self._starts += np.bincount(destination[local >= 0], minlength=hosts)
        self._keep("ports", ports)
        self._keep("rows", np.zeros(0, ROW))
        self._generation = generation
        self._senders, self._receivers = make_rows(rules, 0)
        self.record["words"] = self._senders.sacked.shape[1]
        # A row for each connection of a host that takes the network, and one more.
        takes_network = (source != destination) & (local < 0 if len(local) else True)
        senders = np.full(count, -1, np.int64)
        senders[connection[takes_network]] = source[takes_network]
        self._more_rows(1 + np.bincount(senders[senders >= 0], minlength=hosts))
        self._more_timers(_FIRST_TIMERS)
        begin(self.record)

    def grow(self) -> None:
        """Make room where ``is_short`` found none.

        Raises:
            InputError: more messages at a time than packets have numbers for.
        """
        record, ports = self.record[0], self._arrays["ports"]
        if (ports["spare"] < 0).any():
            had = np.bincount(self._arrays["rows"]["source"], minlength=len(ports))
            self._more_rows(np.where(ports["spare"] < 0, had, 0))
        if ports["timers"].max() + _SLACK > record["timer_room"]:
            self._more_timers(2 * int(record["timer_room"]))

    def next_event(self, host: int) -> int:
        """Picoseconds at which something happens at a host by itself; FOREVER for never."""
        return int(next_event(self.record[0], host))

    @property
    def generation(self) -> int:
        """The highest that a message had."""
        return int(self._senders.state["generation"].max())

    def counts(self) -> tuple[int, int, int]:
        """Segments that were sent, those of them that were sent again, and time-outs."""
        rows, ports = self._arrays["rows"], self._arrays["ports"]
        open_rows = self._senders.state[rows["message"] >= 0]
        return (
            int(ports["segments"].sum() + open_rows["sent"].sum()),
            int(ports["resent"].sum() + open_rows["resent"].sum()),
            int(ports["timeouts"].sum() + open_rows["timeouts"].sum()),
        )

    def connection_counts(self) -> ConnectionCounts:
        """How far connections are, and what they may send now; of several messages of one, that
        which may send most.
        """
        arrays, senders, receivers = self._arrays, self._senders.state, self._receivers.state
        number, count = arrays["connection"], len(arrays["connections"])
        # Step 1: messages that are over, and what has come of others.
        over = self.delivered >= 0
        received = np.zeros(count, np.int64)
        np.add.at(received, number[over], arrays["size"][over])
        rows = np.flatnonzero(arrays["rows"]["message"] >= 0)
        message = arrays["rows"]["message"][rows]
        partly = receivers["generation"][rows] == senders["generation"][rows]
        partly &= ~over[message]
        np.add.at(received, number[message[partly]], receivers["bytes"][rows[partly]])
        # Step 2: what senders may do.
        rate, window = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.maximum.at(rate, number[message], senders["rate"][rows])
        np.maximum.at(window, number[message], senders["window"][rows])
        is_active = np.zeros(count, np.bool_)
        is_active[number[message]] = True
        # Step 3: their ends, of those whose ends are different hosts.
        ends = np.zeros((2, count), np.int32)
        ends[0, number], ends[1, number] = arrays["sender"], arrays["receiver"]
        is_away = np.zeros(count, np.bool_)
        is_away[number] = arrays["source"] != arrays["destination"]
        if len(arrays["local_ticks"]) > 0:  # the ends are GPUs
            is_away[number] = arrays["local_ticks"] < 0
        columns = (*ends, received, is_active, rate, window)
        return ConnectionCounts(*(each[is_away] for each in columns))

    @property
    def adapts(self) -> tuple[bool, bool]:
        """Whether rates, and whether windows, of messages change."""
        congestion, trims = int(self.record["congestion"][0]), bool(self.record["trims"][0])
        return congestion == DCQCN, trims or congestion in {NEWRENO, DCTCP}

    def _keep(self, name: str, array: NDArray[Any]) -> None:
        kept = np.ascontiguousarray(array)
        self._arrays[name] = kept
        self.record[name] = kept.ctypes.data

    def _more_rows(self, more: NDArray[np.int64]) -> None:
        """Give each host so many rows more; none to one that has spare ones."""
        had = len(self._arrays["rows"])
        count = had + int(more.sum())
        if count > MOST_ROWS:
            raise InputError(
                f"{MOST_ROWS} messages or connections are more than packets have numbers for; send "
                "fewer at once."
            )
        self._senders, self._receivers = more_rows(self._senders, self._receivers, count)
        self._senders.state["generation"][had:] = self._generation
        self._receivers.state["generation"][had:] = self._generation
        rows = np.zeros(count, ROW)
        rows[:had] = self._arrays["rows"]
        rows["message"][had:], rows["armed"][had:] = -1, FOREVER
        # The first rows of all hosts are neighbors, as hosts often use few of them at a time.
        hosts = np.repeat(np.arange(len(more)), more)
        place = np.arange(count - had) - np.repeat(np.cumsum(more) - more, more)
        order = np.lexsort((hosts, place))
        rows["source"][had:] = hosts[order]
        number = np.empty(count - had, np.int64)
        number[order] = np.arange(had, count)
        follows = np.append(place[1:] > 0, False)
        rows["following"][number] = np.where(follows, np.append(number[1:], -1), -1)
        ports = self._arrays["ports"]
        ports["spare"][hosts[place == 0]] = number[place == 0]
        self._keep("rows", rows)
        self._keep("senders", self._senders.state)
        self._keep("sacked", self._senders.sacked)
        self._keep("cut", self._senders.cut)
        self._keep("receivers", self._receivers.state)
        self._keep("arrived", self._receivers.arrived)
        self.record["row_count"] = count

    def _more_timers(self, room: int) -> None:
        ports = self._arrays["ports"]
        first = ports["first"].copy()
        sizes = self._starts + room
        ports["first"] = np.cumsum(sizes) - sizes
        for name in ("times", "what"):
            larger = np.zeros(int(sizes.sum()), np.int64)
            for host in np.flatnonzero(ports["events"]).tolist():
                old, new, size = (
                    int(first[host]),
                    int(ports["first"][host]),
                    int(ports["events"][host]),
                )
                larger[new : new + size] = self._arrays[name][old : old + size]
            self._keep(name, larger)
        self.record["timer_room"] = room
