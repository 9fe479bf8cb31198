"""The traffic manager: the queues between ingress and egress, with time passed in.

Each port has ``priorities`` queues. A queue holds at most ``capacity`` packets; a packet that finds
its queue full is dropped. A queue may have a rate in packets per second. The rules are BMv2's
(``QueueingLogicPriRL`` of behavioral-model 1.15): a packet's departure is fixed when it is
enqueued, at the later of now and one interval after the departure before it. Of packets that are
due at the same time, the one of the highest priority leaves first, then the one that was enqueued
first. Ports do not wait for each other.

Time here is in nanoseconds, as in BMv2's queues. Programs see microseconds.

Simulated networks set what BMv2 does not have, and count time in ticks of their own: lines with a
bit rate under strict priority, limits in bytes, a shared buffer with dynamic thresholds, marks of
congestion, and recirculation that takes time. Without these settings the rules are BMv2's.

``admit``, ``postponement``, ``withdraw`` and ``resize`` are all that happens to a queue. The
interpreter calls them; the compiled engine compiles the same functions into the program
(``jit.runtime.queue``), and other compiled code may do so, too (``inline``). Nothing here waits:
the engines keep the packets, and calls without times pass the queues by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError, InputError
from innet.core.numbers import is_real, require_int

#: BMv2's number of packets per queue, by default.
DEFAULT_DEPTH = 64
#: BMv2's limit of priorities per port.
MAX_PRIORITIES = 32
#: Queues are made for these ports: egress ports are 9 bits wide.
PORTS = 512
NANOSECONDS = 1_000_000_000  # of a second
MICROSECOND = 1000  # nanoseconds

#: Words of a queue: packets that wait; how many may; nanoseconds between two departures; the last
#: departure, ``NEVER`` before the queue is used; packets dropped because the queue was full.
DEPTH, CAPACITY, INTERVAL, LAST_DEPARTURE, DROPS = range(5)
#: Then: its priority; bytes that wait, how many may, and the most that ever did; the line's bits
#: per second, 0 without one, and eight times the ticks of a second; when the line has sent all that
#: waits in this queue and those of higher priorities; ticks that packets of higher priorities took
#: of the line so far; bytes above which packets are marked; packets that were.
PRIORITY, BYTES, CAPACITY_BYTES, BYTES_MAX, BIT_RATE, TICK_BITS, FREE, PRECEDED = range(5, 13)
ECN_THRESHOLD, MARKED = 13, 14
#: The state of the draws for marks by RED.
RED_STATE = 15
QUEUE_WORDS = 16
#: Words of the whole switch, behind those of all queues, counted from the end: priorities per
#: port; bytes of the shared buffer (0 without one), those in use, and 65,536 times alpha; 1 if
#: recirculation takes time, then its line as above, and its latency.
PRIORITIES, BUFFER, BUFFER_USED, ALPHA = 1, 2, 3, 4
RECIRCULATES, LOOP_RATE, LOOP_TICK_BITS, LOOP_FREE, LOOP_LATENCY = range(5, 10)
#: 1 if packets wait in queues by their DSCP, where the program sets no priority.
BY_DSCP = 10
#: 1 if a tick of the clock that programs see is 1,000,000 ticks of the queues' time, not 1,000.
IS_COARSE = 11
#: See ``set_stand_in``: bytes that such a packet carries, 0 for none, and by how many it is longer.
STAND_IN, STAND_IN_EXTRA = 12, 13
#: See ``set_red``: bytes above the threshold over which the probability grows, 0: none, and
#: 65,536 times what it grows to.
RED_SPAN, RED_MOST = 14, 15
SWITCH_WORDS = 16  # less than PORTS, so that len(queues) // PORTS are the words of a port
ALPHA_ONE = 1 << 16
#: Of alpha: a queue may hold nearly all of the buffer (1,024 times what is free).
UNLIMITED = ALPHA_ONE << 10

#: Words of ``traffic``, what a compiled program carries from one call to the next: nanoseconds;
#: copies enqueued so far, and those that wait; the first free slot and how many are free; the first
#: free origin; words of digests; the slot of the packet that comes again next, 0 for none.
TRAFFIC_WORDS = ("now", "made", "entries", "free", "spare", "free_origin", "digested", "pending")

NEVER = -(1 << 62)
#: Later than everything, and more than everything.
FOREVER = 1 << 62

#: A frame of fewer bytes is padded to these; its check sequence is not among them (IEEE 802.3).
SHORTEST_FRAME = 60
#: Bytes on the wire beside a frame: preamble, check sequence, and the gap between frames.
FRAME_OVERHEAD = 24
#: The most ``extra`` bytes of a packet, so that wire times fit 64 bits.
MOST_EXTRA_BYTES = 1 << 19
_MOST_BYTES = 1 << 36  # of a buffer, so that its products with alpha fit 64 bits
_MOST_ALPHA = 128
_MOST_RATE = 10**15  # bits per second
_MOST_TICKS = 10**12  # per second


def admit(queues: Any, queue: int, now: int, length: int) -> int:
    """Enqueue a packet at time ``now``. What is due by then must have been withdrawn.

    A packet on a line with a bit rate may leave later than it says: see ``postponement``.

    Args:
        queues: int64, ``QUEUE_WORDS`` for each queue, then ``SWITCH_WORDS``.
        queue: the number of the first of its words.
        now: nanoseconds, or ticks of ``set_bit_rate``.
        length: bytes, without what ``FRAME_OVERHEAD`` counts.

    Returns:
        when the packet leaves, in the same unit; -1 if there is no room, and it is dropped.
    """
    # BMv2 makes all queues of a port when one is first used, as if a packet had just left each.
    if queues[queue + LAST_DEPARTURE] == NEVER:
        words = len(queues) // PORTS
        first = queue - queue % words
        for word in range(first + LAST_DEPARTURE, first + words, QUEUE_WORDS):
            queues[word] = now
    end = len(queues)
    held = queues[queue + BYTES] + length
    room = queues[queue + CAPACITY_BYTES]
    if queues[end - BUFFER] != 0:
        # Dynamic thresholds: a queue may hold alpha times what is free.
        free = queues[end - BUFFER] - queues[end - BUFFER_USED]
        room = min(room, free * queues[end - ALPHA] // ALPHA_ONE, queues[queue + BYTES] + free)
    if queues[queue + DEPTH] >= queues[queue + CAPACITY] or held > room:
        queues[queue + DROPS] += 1
        return -1
    queues[queue + DEPTH] += 1
    queues[queue + BYTES] = held
    queues[queue + BYTES_MAX] = max(held, queues[queue + BYTES_MAX])
    queues[end - BUFFER_USED] += length
    rate = queues[queue + BIT_RATE]
    if rate == 0:
        departure: int = max(now, queues[queue + LAST_DEPARTURE] + queues[queue + INTERVAL])
    else:
        bits = (max(length, SHORTEST_FRAME) + FRAME_OVERHEAD) * queues[queue + TICK_BITS]
        took = (bits + rate - 1) // rate
        departure = max(now, queues[queue + FREE])
        queues[queue + FREE] = departure + took
        # Packets of lower priorities wait for this one.
        for lower in range(queues[queue + PRIORITY]):
            other = queue - (lower + 1) * QUEUE_WORDS
            queues[other + FREE] = max(now, queues[other + FREE]) + took
            queues[other + PRECEDED] += took
    queues[queue + LAST_DEPARTURE] = departure
    return departure


def is_congested(queues: Any, queue: int) -> bool:
    """Whether a packet that comes now finds more bytes than the threshold, and so is marked.

    To be asked once for each packet, before ``admit``. Whoever marks the packet counts it in the
    word ``MARKED``.
    """
    over = queues[queue + BYTES] - queues[queue + ECN_THRESHOLD]
    found: bool = over > 0
    span = queues[len(queues) - RED_SPAN] if found else 0
    if 0 < over < span:
        # A linear congruential generator of 31 bits (ANSI C's); the upper 16 of them are drawn.
        drawn = (queues[queue + RED_STATE] * 1103515245 + 12345) & 0x7FFFFFFF
        queues[queue + RED_STATE] = drawn
        found = drawn >> 15 < over * queues[len(queues) - RED_MOST] // span
    return found


def postponement(queues: Any, queue: int, preceded: int) -> int:
    """How much later than planned a packet leaves, since others of higher priorities came, or one
    before it left with another length (``resize``).

    To be asked when its departure has come: if it is not 0 the packet waits for so much longer,
    and is asked again.

    Args:
        queues: as for ``admit``.
        queue: the number of the first of its words.
        preceded: the word ``PRECEDED`` of its queue after ``admit``, or when it was last asked.
    """
    later: int = queues[queue + PRECEDED] - preceded
    return later


def withdraw(queues: Any, queue: int, now: int, length: int) -> int:
    """Take a packet of ``length`` bytes from its queue as it leaves, at ``now``.

    Returns:
        how many packets still wait there.
    """
    end = len(queues)
    queues[queue + DEPTH] -= 1
    queues[queue + BYTES] -= length
    queues[end - BUFFER_USED] -= length
    above = queues[end - PRIORITIES] - 1 - queues[queue + PRIORITY]
    rate = queues[queue + BIT_RATE]
    if above > 0 and rate != 0:
        # Packets of higher priorities that come now wait until this one is sent.
        bits = (max(length, SHORTEST_FRAME) + FRAME_OVERHEAD) * queues[queue + TICK_BITS]
        sent = now + (bits + rate - 1) // rate
        for higher in range(above):
            other = queue + (higher + 1) * QUEUE_WORDS
            queues[other + FREE] = max(sent, queues[other + FREE])
    left: int = queues[queue + DEPTH]
    return left


def resize(queues: Any, queue: int, planned: int, length: int) -> int:
    """Let a packet that leaves its queue take its line for what it has become in egress.

    To be called after ``withdraw``, if the lengths differ, before other packets leave. All that
    wait at its port are behind it: their ``postponement`` changes.

    Args:
        queues: as for ``admit``.
        queue: the number of the first of its words.
        planned: bytes with which it was enqueued.
        length: bytes with which it leaves.

    Returns:
        how much later they leave, if any wait; if less than 0, the caller moves up at once those
        whose ``postponement`` is less than 0, since nobody asks for it in time.
    """
    end = len(queues)
    rate = queues[queue + BIT_RATE]
    if rate == 0:
        return 0
    bits = (max(length, SHORTEST_FRAME) + FRAME_OVERHEAD) * queues[queue + TICK_BITS]
    before = (max(planned, SHORTEST_FRAME) + FRAME_OVERHEAD) * queues[queue + TICK_BITS]
    later: int = (bits + rate - 1) // rate - (before + rate - 1) // rate
    waiting = 0
    first = queue - queues[queue + PRIORITY] * QUEUE_WORDS
    for priority in range(queues[end - PRIORITIES]):
        each = first + priority * QUEUE_WORDS
        queues[each + FREE] += later
        queues[each + PRECEDED] += later
        waiting += queues[each + DEPTH]
    return later if waiting > 0 else 0


def stand_in(queues: Any, before: int, carried: int, extra: int) -> int:
    """Bytes by which a packet is longer than the ``carried`` ones that it carries now.

    Args:
        queues: as for ``admit``.
        before: bytes that it carried when it came.
        carried: bytes that it carries now; what a program has changed is told by their number.
        extra: bytes by which it was longer when it came.
    """
    whole = queues[len(queues) - STAND_IN]
    if whole == 0 or carried == before:
        return extra
    longer: int = queues[len(queues) - STAND_IN_EXTRA] if carried >= whole else 0
    return longer


def recirculate(queues: Any, now: int, length: int) -> int:
    """Send a packet of ``length`` bytes through the recirculation port at ``now``.

    Returns:
        when its ingress runs, in ticks; -1: at once, since recirculation takes no time.
    """
    end = len(queues)
    if queues[end - RECIRCULATES] == 0:
        return -1
    sent = max(now, queues[end - LOOP_FREE])
    rate = queues[end - LOOP_RATE]
    if rate != 0:
        bits = (max(length, SHORTEST_FRAME) + FRAME_OVERHEAD) * queues[end - LOOP_TICK_BITS]
        sent += (bits + rate - 1) // rate
    queues[end - LOOP_FREE] = sent
    arrival: int = sent + queues[end - LOOP_LATENCY]
    return arrival


def mark_congestion(frame: bytes) -> bytes:
    """An Ethernet frame with "congestion experienced" and the checksum to it.

    Unless it is IPv4 with ECT(0) or ECT(1), behind one VLAN tag at most, it is returned itself.
    """
    at = 14
    if frame[12:14] == b"\x81\x00":
        at += 4
    word = int.from_bytes(frame[at : at + 2], "big")
    if len(frame) < at + 20 or frame[at - 2 : at] != b"\x08\x00" or word >> 12 != 4:
        return frame
    if word & 3 in {0, 3}:
        return frame
    # The checksum changes as RFC 1624 has it.
    checksum = int.from_bytes(frame[at + 10 : at + 12], "big")
    total = (checksum ^ 0xFFFF) + (word ^ 0xFFFF) + (word | 3)
    total = (total & 0xFFFF) + (total >> 16)
    total = ((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF
    marked = bytearray(frame)
    marked[at + 1] |= 3
    marked[at + 10 : at + 12] = total.to_bytes(2, "big")
    return bytes(marked)


@dataclass(frozen=True, slots=True)
class QueueState:
    """One egress queue.

    Attributes:
        port, priority: which one; the highest priority is served first.
        depth: packets that wait.
        capacity: packets that may wait.
        rate: packets per second; 0 without a limit.
        dropped: packets that found it full.
        bytes, bytes_max: bytes that wait, and the most that ever did.
        capacity_bytes: bytes that may wait; None without a limit.
        bit_rate: bits per second of its port's line; 0 without a limit.
        marked: packets that it marked with "congestion experienced".
    """

    port: int
    priority: int
    depth: int
    capacity: int
    rate: int
    dropped: int
    bytes: int = 0
    bytes_max: int = 0
    capacity_bytes: int | None = None
    bit_rate: int = 0
    marked: int = 0


class TrafficManager:
    """Capacities, rates and counters of all egress queues, and what recirculation takes.

    Args:
        priorities: queues per port, as ``--priority-queues`` of simple_switch. A packet whose
            ``standard_metadata.priority`` is this or more is dropped.

    Attributes:
        queues: int64, flat: ``QUEUE_WORDS`` words for each queue, by port, then priority, and
            ``SWITCH_WORDS`` for all. Engines read and write it.
        now: nanoseconds, or ticks of ``set_bit_rate``: how far calls with times have come.

    Raises:
        InputError: priorities that are no whole number from 1 to ``MAX_PRIORITIES``.
    """

    def __init__(self, priorities: int = 1) -> None:
        self.priorities = require_int(priorities, "the number of priority queues per port")
        if not 1 <= self.priorities <= MAX_PRIORITIES:
            raise InputError(
                f"a switch has 1 to {MAX_PRIORITIES} priority queues per port, not "
                f"{self.priorities}"
            )
        words = PORTS * self.priorities * QUEUE_WORDS
        self.queues: NDArray[np.int64] = np.zeros(words + SWITCH_WORDS, np.int64)
        self.queues[-PRIORITIES] = self.priorities
        self._cells = self.queues[:words].reshape(PORTS, self.priorities, QUEUE_WORDS)
        self._cells[..., CAPACITY] = DEFAULT_DEPTH
        self._cells[..., LAST_DEPARTURE] = NEVER
        self._cells[..., PRIORITY] = np.arange(self.priorities)
        self._cells[..., [CAPACITY_BYTES, ECN_THRESHOLD]] = FOREVER
        self._rates = np.zeros((PORTS, self.priorities), np.int64)
        self.now = 0

    def set_depth(self, depth: int, port: int | None = None, priority: int | None = None) -> None:
        """Let queues hold ``depth`` packets; those that already wait stay.

        Args:
            depth: packets, 0 or more.
            port: whose queues; all ports without it.
            priority: which queue of the port; all of them without it.

        Raises:
            ControlError: there is no such port or priority, or the depth is negative.
        """
        depth = _number("the depth of a queue", depth)
        self._select(port, priority)[..., CAPACITY] = depth
        self._make(port)

    def set_rate(self, rate: int, port: int | None = None, priority: int | None = None) -> None:
        """Let ``rate`` packets per second leave queues; 0: no limit.

        Packets that already wait keep their departures.

        Raises:
            ControlError: there is no such port or priority, or the rate is negative.
        """
        rate = _number("the rate of a queue", rate)
        cells = self._select(port, priority)
        cells[..., INTERVAL] = int(NANOSECONDS * (1.0 / rate)) if rate else 0
        self._make(port)
        where = (
            slice(None) if port is None else port,
            slice(None) if priority is None else priority,
        )
        self._rates[where] = rate

    def set_clock_ticks(self, ticks: int) -> None:
        """Let timestamps of programs and meters count this number of ticks of the queues' time.

        Args:
            ticks: 1,000, as of microseconds where the caller counts nanoseconds, or 1,000,000, as
                of microseconds where it counts picoseconds.

        Raises:
            ControlError: another number.
        """
        if ticks not in {MICROSECOND, MICROSECOND**2}:
            raise ControlError(f"the clock counts 1,000 or 1,000,000 ticks at once, not {ticks!r}")
        self.queues[-IS_COARSE] = ticks == MICROSECOND**2

    def clock(self, time: int) -> int:
        """What programs see of a time of the queues."""
        return time // (MICROSECOND**2 if self.queues[-IS_COARSE] else MICROSECOND)

    def set_dscp_priorities(self, used: bool) -> None:
        """Let packets choose queues by the class selector in their IPv4 header's DSCP (RFC 2474).

        The class, 0 to 7, of a packet as it came is its priority, or the highest one that there
        is, where the program leaves ``standard_metadata.priority`` 0. Packets other than IPv4 over
        Ethernet have priority 0.
        """
        self.queues[-BY_DSCP] = used

    def set_bit_rate(
        self, rate: int, port: int | None = None, ticks_per_second: int = NANOSECONDS
    ) -> None:
        """Give ports a line that sends ``rate`` bits per second; 0: none, as BMv2.

        All queues of a port share its line. When it is free, the packet that was enqueued first in
        the queue of the highest priority leaves, and takes the line for its time on the wire: at
        least ``SHORTEST_FRAME`` bytes, and ``FRAME_OVERHEAD``, rounded up to a tick. Rates and
        intervals in packets do not count then. Packets that already wait keep their departures.

        Args:
            rate: bits per second.
            port: all ports without it.
            ticks_per_second: of the times that the caller passes in.

        Raises:
            ControlError: there is no such port, or a number out of range.
        """
        rate = _number("the bit rate of a port", rate, _MOST_RATE)
        ticks = _number("the ticks of a second", ticks_per_second, _MOST_TICKS, least=1)
        cells = self._select(port, None)
        cells[..., BIT_RATE] = rate
        cells[..., TICK_BITS] = 8 * ticks
        # The line is busy until the last of those that wait has left.
        waiting = np.where(cells[..., DEPTH] > 0, cells[..., LAST_DEPARTURE], 0)
        cells[..., FREE] = np.maximum(cells[..., FREE], waiting.max(-1)[..., np.newaxis])
        self._make(port)

    def set_depth_bytes(
        self, depth: int | None, port: int | None = None, priority: int | None = None
    ) -> None:
        """Let queues hold ``depth`` bytes, beside the limit in packets; None: any number.

        Raises:
            ControlError: there is no such port or priority, or the depth is negative.
        """
        limit = (
            FOREVER if depth is None else _number("the depth of a queue in bytes", depth, FOREVER)
        )
        self._select(port, priority)[..., CAPACITY_BYTES] = limit
        self._make(port)

    def set_ecn_threshold(
        self, threshold: int | None, port: int | None = None, priority: int | None = None
    ) -> None:
        """Let queues mark packets that find more than ``threshold`` bytes; None: no queue marks.

        Of those that are taken, IPv4 packets with an ECN-capable codepoint, ECT(0) or ECT(1), leave
        with CE and the header checksum to it (RFC 3168). The bytes are those that wait when a
        packet comes, as DCTCP's threshold counts them.

        Raises:
            ControlError: there is no such port or priority, or the threshold is negative.
        """
        limit = FOREVER if threshold is None else threshold
        limit = _number("the ECN threshold of a queue", limit, FOREVER)
        self._select(port, priority)[..., ECN_THRESHOLD] = limit
        self._make(port)

    def set_red(self, span: int | None, most: float, seed: int = 0) -> None:
        """Let queues mark by chance between two thresholds, as RED does (Floyd and Jacobson, 1993).

        The probability grows in proportion from 0 at the threshold of ``set_ecn_threshold``. It is
        1 from ``span`` bytes above that on. The queue's length is not averaged, as in DCQCN.

        Args:
            span: bytes; None: every packet above the threshold is marked.
            most: the probability that it grows to, just below ``span`` bytes.
            seed: of the draws.

        Raises:
            ControlError: a number out of range.
        """
        if not is_real(most) or not 0 <= most <= 1:
            raise ControlError(f"a probability of marks is 0 to 1, not {most!r}")
        bound = 0 if span is None else _number("the span of marks", span, _MOST_BYTES, 1)
        self.queues[-RED_SPAN], self.queues[-RED_MOST] = bound, round(most * ALPHA_ONE)
        numbers = np.arange(self._cells[..., 0].size, dtype=np.int64).reshape(PORTS, -1)
        self._cells[..., RED_STATE] = (numbers * 2654435761 + seed * 40503 + 1) & 0x7FFFFFFF

    def set_shared_buffer(self, size: int | None, alpha: float = 1.0) -> None:
        """Let all queues draw on one buffer of ``size`` bytes; None: each has its own limits only.

        A queue may hold at most ``alpha`` times the bytes that are free when a packet comes, the
        dynamic threshold of Choudhury & Hahne (1998). Limits of single queues hold beside it.

        Args:
            size: bytes.
            alpha: from 1/128 to 128, rounded to 1/65,536.

        Raises:
            ControlError: a number out of range.
        """
        bound = 0 if size is None else _number("the size of the buffer", size, _MOST_BYTES, 1)
        if not is_real(alpha) or not 1 / _MOST_ALPHA <= alpha <= _MOST_ALPHA:
            raise ControlError(
                f"alpha of the shared buffer is 1/{_MOST_ALPHA} to {_MOST_ALPHA}, not {alpha!r}"
            )
        self.queues[-BUFFER], self.queues[-ALPHA] = bound, round(alpha * ALPHA_ONE)

    def set_stand_in(self, carried: int, extra: int) -> None:
        """Let packets that carry ``carried`` bytes stand for ones that are longer by ``extra``.

        That is for packets whose length the program changes. Such a packet is longer by these
        bytes if it leaves with ``carried`` bytes or more, and by none otherwise, whatever it was
        when it came. Packets that keep their length keep their own ``PacketBatch.extra``.

        Args:
            carried: bytes; 0 (BMv2): no packet stands for another.
            extra: bytes.

        Raises:
            ControlError: a number out of range.
        """
        self.queues[-STAND_IN] = _number("the length of a packet", carried, MOST_EXTRA_BYTES)
        self.queues[-STAND_IN_EXTRA] = _number("the extra bytes", extra, MOST_EXTRA_BYTES)

    def set_recirculation(
        self, rate: int | None, latency: int = 0, ticks_per_second: int = NANOSECONDS
    ) -> None:
        """Let recirculated and resubmitted packets pass a separate port; None (BMv2): no port.

        The port sends one packet after the other, as the line of ``set_bit_rate`` does. A packet's
        ingress runs ``latency`` after it is sent. Packets that are on their way keep their times.
        Clones do not take this way.

        Args:
            rate: bits per second; 0 without a limit.
            latency: ticks.
            ticks_per_second: of the times that the caller passes in.

        Raises:
            ControlError: a number out of range.
        """
        bits = 0 if rate is None else _number("the rate of recirculation", rate, _MOST_RATE)
        ticks = _number("the ticks of a second", ticks_per_second, _MOST_TICKS, least=1)
        latency = _number("the latency of recirculation", latency, _MOST_TICKS)
        self.queues[-RECIRCULATES] = rate is not None
        self.queues[-LOOP_RATE], self.queues[-LOOP_TICK_BITS] = bits, 8 * ticks
        self.queues[-LOOP_LATENCY] = latency

    def _make(self, port: int | None) -> None:
        """As ``admit`` does, which BMv2 does for commands that name a port, too."""
        if port is not None:
            made = self._cells[port, :, LAST_DEPARTURE]
            made[made == NEVER] = self.now

    def _select(self, port: int | None, priority: int | None) -> NDArray[np.int64]:
        if port is None:
            if priority is not None:
                raise ControlError("the priority of a queue needs a port before it")
            return self._cells
        if not 0 <= _number("a port", port) < PORTS:
            raise ControlError(f"an egress port is 0 to {PORTS - 1}, not {port}")
        if priority is None:
            of_port: NDArray[np.int64] = self._cells[port]
            return of_port
        if not 0 <= _number("a priority", priority) < self.priorities:
            queues = f"{self.priorities} queues" if self.priorities > 1 else "1 queue"
            raise ControlError(
                f"there is no priority {priority}: this switch has {queues} per port; "
                "--priority-queues says how many, and the lowest priority is 0"
            )
        cell: NDArray[np.int64] = self._cells[port, priority]
        return cell

    def first_word(self, port: int, priority: int) -> int:
        """Where in ``queues`` the words of a queue begin."""
        return (min(port, PORTS - 1) * self.priorities + priority) * QUEUE_WORDS

    def take_settings(self, other: TrafficManager) -> None:
        """Take over the time, settings and counters of another, in which nothing waits.

        Raises:
            ControlError: it has another number of priorities.
        """
        if other.priorities != self.priorities:
            raise ControlError(f"{other.priorities} priorities are not {self.priorities}")
        self.queues[:] = other.queues
        self._rates[:] = other._rates
        self.now = other.now

    def clear(self) -> None:
        """Nothing waits any more: the holder of the packets has dropped them."""
        self._cells[..., [DEPTH, BYTES, FREE]] = 0
        self.queues[[-BUFFER_USED, -LOOP_FREE]] = 0

    def queue(self, port: int, priority: int = 0) -> QueueState:
        """What is to be known of one queue; ControlError when there is none."""
        cell = self._select(port, priority)
        return QueueState(
            port,
            priority,
            int(cell[DEPTH]),
            int(cell[CAPACITY]),
            int(self._rates[port, priority]),
            int(cell[DROPS]),
            int(cell[BYTES]),
            int(cell[BYTES_MAX]),
            None if cell[CAPACITY_BYTES] == FOREVER else int(cell[CAPACITY_BYTES]),
            int(cell[BIT_RATE]),
            int(cell[MARKED]),
        )

    def used_queues(self) -> list[QueueState]:
        """The queues of ports that commands named or calls with times enqueued packets to."""
        used = self._cells[..., LAST_DEPARTURE] != NEVER
        return [self.queue(int(port), int(priority)) for port, priority in np.argwhere(used)]

    def waiting_bytes(self, port: int) -> int:
        """Bytes that wait in all queues of a port."""
        return int(self._cells[min(port, PORTS - 1), :, BYTES].sum())

    @property
    def has_limits(self) -> bool:
        """Whether a packet may have to wait, or be dropped, in a queue that is otherwise empty."""
        slow = self._cells[..., [INTERVAL, BIT_RATE]].any()
        return bool(slow or (self._cells[..., [CAPACITY, CAPACITY_BYTES]] == 0).any())

    @property
    def dropped(self) -> int:
        """Packets dropped because their queue was full."""
        return int(self._cells[..., DROPS].sum())

    def reset_bytes_max(self) -> None:
        """Forget the most bytes that ever waited in each queue."""
        self._cells[..., BYTES_MAX] = self._cells[..., BYTES]

    def reset_drops(self) -> None:
        """Count dropped packets from 0 again."""
        self._cells[..., DROPS] = 0

    @property
    def marked(self) -> int:
        """Packets that queues marked with "congestion experienced"."""
        return int(self._cells[..., MARKED].sum())


def _number(what: str, value: int, most: int = (1 << 63) - 1, least: int = 0) -> int:
    number = require_int(value, what, ControlError)
    if not least <= number <= most:
        shown = "2**63 - 1" if most == (1 << 63) - 1 else f"{most:,}"
        raise ControlError(f"{what} is {least} to {shown}, not {number}")
    return number
