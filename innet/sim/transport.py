"""A reliable transport between hosts in simulated time: TCP's mechanisms, or those of RoCE.

The baselines send their messages with it (``innet.sim.messages``). It is a state machine in
compiled code, over arrays; it owns no clock, no links and no memory. One row of ``SenderRows`` is a
message at its source, the row of the same number of ``ReceiverRows`` is that message at its
destination. Rows are used again: a row's ``generation`` counts its messages, every segment and
every acknowledgement carries it, and those of an earlier message are ignored. A receiver takes up
its row by itself when the first segment of a later generation comes.

Segments are numbered from 0; each has the same payload, but for the last. Whoever drives it calls

* ``open_sender(senders, rules, row, size, now)``: a message of ``size`` bytes begins. ``resume``
  and ``keep`` carry window, round trip and rate from one message of a connection to the next.
* ``segment_to_send(senders, rules, row, now)`` returns ``(sequence, payload)``, and counts it as
  sent; sequence is -1 if nothing may be sent now. Call it until then: after opening, after each
  acknowledgement, and after each time-out. The segment carries the row, its generation, the number
  of segments, and ``now`` as its stamp.
* ``on_segment(receivers, rules, row, generation, segments, sequence, payload, marked, now)``
  returns ``(ack, flags)``: send an acknowledgement with both, the segment's sequence and its
  stamp; none if ack is -1. ``flags & COMPLETE`` is set once for a message, with its last missing
  segment.
  ``marked`` is the congestion mark of the segment (ECN CE).
* ``on_header(receivers, rules, row, generation, sequence, now)`` likewise, for a segment whose
  payload a switch has cut off.
* ``on_ack(senders, rules, row, generation, ack, sequence, flags, stamp, now)`` returns ``DONE``
  once everything was acknowledged (the row may then be opened again), ``OPEN``, or ``STALE``.
* ``deadline(senders, rules, row)`` is the time at which ``on_timeout(senders, rules, row, now)``
  wants to be called, ``FOREVER`` for never. It moves with nearly every call, mostly later: a driver
  may keep one event for a row, look at the deadline when it comes, and make it again.

Times are picoseconds.

What it does: the receiver acknowledges every segment (nothing is delayed), with the number that it
expects next and the number of the segment that came. The sender counts a segment as lost when one
that is ``reordering`` or more later was acknowledged (3, the threshold of RFC 5681, counted as FACK
does: Mathis and Mahdavi 1996), sends it again, and limits what is in flight to the window (RFC
6675).
Round trips are measured by stamps, and time-outs computed from them, as in RFC 7323 and RFC 6298.
After two round trips of silence it sends the first missing segment again (in the spirit of RFC
8985's tail loss probe; that sends the last one): what was sent before and is not acknowledged when
the answer comes is lost. With ``recovery="go_back_n"``, as RoCE network cards do it, the receiver
drops what is out of order and says so once (a NACK), and the sender starts again there.

Where switches cut packets that find a queue full to their headers (``Rules.trims``; after NDP,
Handley et al., SIGCOMM 2017), the receiver answers each header with a NACK, and selective recovery
sends just that segment again. So what overtakes others is no sign of loss. A NACK takes the
segment's place out of the window, which grows by a segment for each window that is acknowledged: a
segment is sent again when another has arrived, or at once if none else is under way. NDP's
receivers ask for each packet instead (pull). A header counts as marked.

Congestion control is NewReno (RFC 5681, RFC 6582), DCTCP (RFC 8257), DCQCN, or a fixed window.
NewReno halves its window for a congestion mark as for a loss, once in a round trip (RFC 3168).

DCQCN (Zhu et al., SIGCOMM 2015) has a rate beside a fixed window. It begins with the line's. The
receiver answers marks with a congestion notification at most every ``cnp_interval``, which is a
flag of an acknowledgement here (``ECHO``). The sender then notes its rate as the target and cuts it
by alpha / 2. A timer and a counter of bytes let it recover half of the way to the target each time,
five times, and then raise the target, too. Timers are looked at when a segment is to be sent or a
notification comes; between these the rate has no meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, UnknownNameError
from innet.core.numba_cache import njit
from innet.core.numbers import is_int, is_real
from innet.core.registry import split_name
from innet.sim.network import OVERHEAD, SECOND

FOREVER = 1 << 62

ECHO, NACK, DUPLICATE, COMPLETE = 1, 2, 4, 8
"""Flags of an acknowledgement: the segment was marked; the receiver dropped it, and expects an
earlier one, or it came without its payload; it had come before. And, for the receiver's caller: the
message is complete."""

STALE, OPEN, DONE = -1, 0, 1
"""What ``on_ack`` returns: of an earlier message; not all is acknowledged; all is."""

NOTHING, PROBE, TIMEOUT = 0, 1, 2
"""What ``on_timeout`` returns: no time-out has expired (perhaps a paced segment is due); a probe is
to be sent; what was not acknowledged is lost."""

FIXED, NEWRENO, DCTCP, DCQCN = range(4)
CONGESTION: Mapping[str, int] = MappingProxyType(
    {"fixed": FIXED, "newreno": NEWRENO, "dctcp": DCTCP, "dcqcn": DCQCN}
)
RECOVERY: Mapping[str, int] = MappingProxyType({"selective": 0, "go_back_n": 1})

_ALPHA = 1024  # DCTCP's alpha of 1
_GAIN = 4  # its weight of a new window, as a shift: 1/16, RFC 8257

_ONE = 1 << 20  # DCQCN's alpha of 1
_LEAST_RATE = 10_000_000  # bits per second below which DCQCN does not go (assumed)
NEVER_LOST = 1 << 40
"""For ``Rules.reordering``: no segment is lost as others overtake it."""
_MOST_STEPS = 1 << 12  # of timers that are made up for; after as many nothing is left to recover

CONNECTION = np.dtype(
    [
        (name, np.int64)
        for name in (
            "window",
            "threshold",
            "srtt",
            "deviation",
            "alpha",  # of DCTCP, or of DCQCN
            # DCQCN: the current and the target rate, bits per second (0: no message was sent yet);
            "rate",
            "target",
            "alpha_due",  # when alpha, and the rate, change next by a timer;
            "rate_due",
            "timer_steps",  # how often the timer and the bytes have raised the rate since a cut;
            "byte_steps",
            "counted",  # and bytes since the last of the latter.
        )
    ]
)
"""What lasts from one message of a connection to the next; zeros before the first."""

SENDER = np.dtype(
    [
        (name, np.int64)
        for name in (
            # Fields of CONNECTION: the congestion window and the slow-start threshold in segments,
            # the smoothed round trip and its deviation, and what DCTCP and DCQCN have.
            *(CONNECTION.names or ()),
            "generation",
            "size",
            "segments",
            "una",  # the first segment that is not acknowledged
            "next",  # the first that was not sent; with go-back-N, that is sent next
            "highest",  # the first that was never sent
            "sacked",  # later than una, and acknowledged
            "overtaken",  # one more than the last of these
            "lost_below",  # what is neither acknowledged nor from here on was lost,
            "resend",  # and was sent again if it is below this one
            "lost",  # lost, and not sent again yet
            "cut",  # of them, those that the receiver has headers of;
            "first_cut",  # none of these is before this one
            "credit",  # acknowledged since the window grew
            "recover",  # a window's reduction is over when this one is una
            "recovering",
            "force",  # the first segment that is sent again does not wait for the window
            "seen",  # for DCTCP, acknowledged since the window's beginning, with and
            "marked",  # without a mark,
            "window_end",  # which is over when this one is una
            "backoff",
            "since",  # when the last progress was made
            "deadline",
            "probing",  # a probe is to be sent (1), or was sent (2)
            "probe_time",
            "probe_next",  # next, then
            "repaired",  # the segment of the probe had been lost
            "paced",  # when the next segment may be sent
            "sent",
            "resent",
            "timeouts",
        )
    ]
)
"""A message at its source. ``sent`` and ``resent`` count segments, ``timeouts`` its time-outs."""

RECEIVER = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("generation", "expected", "bytes", "complete", "nacked", "duplicates"),
            "notified",  # when a congestion notification may be sent again
        )
    ]
)
"""A message at its destination; ``bytes`` counts payload, each segment's once."""


class Rules(NamedTuple):
    """``ReliableTransport`` in numbers that compiled code takes: segments, picoseconds."""

    payload: int
    window: int
    initial_window: int
    congestion: int
    go_back_n: int
    timeout: int
    min_timeout: int
    max_timeout: int
    tail_probe: int
    interval: int  # between full segments of a message, if paced
    reordering: int  # segments that overtake one before it is lost
    # DCQCN's: bits per second at which it begins; bytes of a frame beside its payload; picoseconds;
    # bytes; bits per second; a part of ``_ONE``; steps.
    line_rate: int
    overhead: int
    alpha_timer: int
    cnp_interval: int
    rate_timer: int
    byte_counter: int
    additive: int
    hyper: int
    gain: int
    recovery_steps: int
    trims: int  # whether switches cut packets to their headers, as the driver says


class SenderRows(NamedTuple):
    """Messages at their sources.

    Attributes:
        state: (n,) of ``SENDER``.
        sacked: (n, words) uint64, a bit for each segment of a window: acknowledged.
        cut: the same, of those that ``cut`` of the state counts.
    """

    state: Any
    sacked: NDArray[np.uint64]
    cut: NDArray[np.uint64]


class ReceiverRows(NamedTuple):
    """Messages at their destinations.

    Attributes:
        state: (n,) of ``RECEIVER``.
        arrived: (n, words) uint64, a bit for each segment of a window: there.
    """

    state: Any
    arrived: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliableTransport:
    """Settings of a reliable transport.

    Args:
        payload: bytes of a full segment. 1,448: a packet of 1,500 bytes less IPv4, TCP and its
            stamps.
        header_bytes: bytes of a frame beside the payload. 66: Ethernet, IPv4, TCP, stamps.
        ack_bytes: bytes of an acknowledgement's frame.
        window_bytes: most payload that is not acknowledged: the receiver's window, and with
            ``congestion="fixed"`` the window. 1 MiB (assumed).
        recovery: "selective" or "go_back_n".
        congestion: "newreno", "dctcp" or "fixed".
        initial_window: segments of the first window. 10, RFC 6928.
        timeout: seconds to wait for an acknowledgement before the first round trip was measured.
            10 ms (assumed; RFC 6298 has a second, for any path of the Internet).
        min_timeout: the least. A millisecond (assumed; RFC 6298 has a second, Linux 200 ms,
            and data centers tune it down).
        max_timeout: the most, after doubling. 1 s (assumed; RFC 6298 allows 60 or more).
        tail_probe: whether silence is probed before the time-out; with selective recovery.
        pacing: bits of payload per second of a message; None for as fast as windows allow.
        reordering: segments that overtake one before it counts as lost, with selective recovery. 3,
            RFC 5681; more where packets of a connection take several paths (RFC 4653).
        persistent: whether messages of a pair of hosts share a connection, and so begin with the
            window, the round trip and the rate of the one before.
        cnp_interval: of DCQCN, seconds between two congestion notifications of a receiver at least.
            50 µs; this and the next ones are those of Zhu et al. (figure 14).
        alpha_timer: seconds without a notification after which alpha becomes smaller. 55 µs.
        rate_timer: seconds after which the rate is raised. 55 µs.
        byte_counter: bytes after which it is raised as well. 10 MB.
        rate_increase: bits per second by which the target is raised then. 40 Mbit/s.
        hyper_increase: likewise, when both the timer and the bytes have raised it more than
            ``recovery_steps`` times. 400 Mbit/s (assumed, ten times as much).
        gain: of alpha. 1/256.
        recovery_steps: how often the rate recovers before the target is raised. 5.

    Raises:
        InputError: a number that no transport has, by the setting's name.
        UnknownNameError: no such recovery or congestion control.
    """

    payload: int = 1448
    header_bytes: int = 66
    ack_bytes: int = 66
    window_bytes: int = 1 << 20
    recovery: str = "selective"
    congestion: str = "newreno"
    initial_window: int = 10
    timeout: float = 1e-2
    min_timeout: float = 1e-3
    max_timeout: float = 1.0
    tail_probe: bool = True
    pacing: float | None = None
    reordering: int = 3
    persistent: bool = True
    cnp_interval: float = 50e-6
    alpha_timer: float = 55e-6
    rate_timer: float = 55e-6
    byte_counter: int = 10_000_000
    rate_increase: float = 40e6
    hyper_increase: float = 400e6
    gain: float = 1 / 256
    recovery_steps: int = 5

    def __post_init__(self) -> None:
        for name, least, most in (
            ("payload", 1, 65_000),
            ("header_bytes", 14, 500),
            ("ack_bytes", 14, 500),
            ("initial_window", 1, 1 << 20),
            ("reordering", 1, 1 << 20),
            ("window_bytes", self.payload, 1 << 32),
            ("byte_counter", 1, 1 << 40),
            ("recovery_steps", 1, 1000),
        ):
            number = getattr(self, name)
            if not is_int(number) or not least <= number <= most:
                raise InputError(f"{name} is {number!r}; give an integer from {least} to {most}.")
        timers = ("cnp_interval", "alpha_timer", "rate_timer")
        for name in ("timeout", "min_timeout", "max_timeout", *timers):
            seconds = getattr(self, name)
            if not is_real(seconds) or not math.isfinite(seconds) or not 1e-9 <= seconds <= 100:
                raise InputError(f"{name} is {seconds!r}; give seconds, from 1e-9 to 100.")
        if self.min_timeout > self.max_timeout:
            raise InputError(
                f"min_timeout is {self.min_timeout!r}, more than max_timeout, which is "
                f"{self.max_timeout!r}; give less."
            )
        if self.pacing is not None and not (is_real(self.pacing) and 1e3 <= self.pacing <= 1e13):
            raise InputError(
                f"pacing is {self.pacing!r}; give bits per second, from 1e3 to 1e13, or None."
            )
        for name in ("rate_increase", "hyper_increase"):
            rate = getattr(self, name)
            if not (is_real(rate) and 1e3 <= rate <= 1e13):
                raise InputError(f"{name} is {rate!r}; give bits per second, from 1e3 to 1e13.")
        if not (is_real(self.gain) and 1e-5 <= self.gain <= 1):
            raise InputError(f"gain is {self.gain!r}; give 1e-5 to 1.")
        for name, known in (("recovery", RECOVERY), ("congestion", CONGESTION)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, str(getattr(self, name)), known)

    @property
    def rules(self) -> Rules:
        """The settings as compiled code takes them."""
        window = self.window_bytes // self.payload
        interval = 0 if self.pacing is None else round(8 * self.payload * SECOND / self.pacing)
        return Rules(
            payload=self.payload,
            window=window,
            initial_window=min(self.initial_window, window),
            congestion=CONGESTION[self.congestion],
            go_back_n=RECOVERY[self.recovery],
            timeout=round(self.timeout * SECOND),
            min_timeout=round(self.min_timeout * SECOND),
            max_timeout=round(self.max_timeout * SECOND),
            tail_probe=int(self.tail_probe and self.recovery == "selective"),
            interval=interval,
            reordering=self.reordering,
            line_rate=0,  # the driver says it
            overhead=self.header_bytes + OVERHEAD,
            alpha_timer=round(self.alpha_timer * SECOND),
            cnp_interval=round(self.cnp_interval * SECOND),
            rate_timer=round(self.rate_timer * SECOND),
            byte_counter=self.byte_counter,
            additive=round(self.rate_increase),
            hyper=round(self.hyper_increase),
            gain=round(self.gain * _ONE),
            recovery_steps=self.recovery_steps,
            trims=0,  # likewise
        )

    def check_trimming(self) -> None:
        """Refuse a transport whose packets no switch may cut to their headers.

        Raises:
            InputError: names those that can be cut.
        """
        if self.recovery != "selective" or self.congestion not in {"fixed", "dcqcn"}:
            raise InputError(
                "with trim=true packets are of transports that repeat just what was cut, not with "
                f"recovery={self.recovery} and congestion={self.congestion}; choose "
                "roce:recovery=selective or dcqcn:recovery=selective, or leave trim out."
            )

    def segments(self, size: int) -> int:
        """How many segments a message of ``size`` bytes has; one without payload if it has none."""
        return max(1, -(-size // self.payload))


TRANSPORTS: Mapping[str, ReliableTransport] = MappingProxyType(
    {
        "tcp": ReliableTransport(),
        "dctcp": ReliableTransport(congestion="dctcp"),
        # Ethernet, IPv4, UDP, base transport header and invariant CRC; an acknowledgement has an
        # extended header beside them. Path MTU 4,096; the window is that of 64 packets (assumed).
        "roce": ReliableTransport(
            payload=4096,
            header_bytes=58,
            ack_bytes=62,
            window_bytes=64 * 4096,
            recovery="go_back_n",
            congestion="fixed",
        ),
        # The same with DCQCN. Its window is no limit but for the memory of what is not
        # acknowledged: that of 1,024 packets (assumed).
        "dcqcn": ReliableTransport(
            payload=4096,
            header_bytes=58,
            ack_bytes=62,
            window_bytes=1024 * 4096,
            recovery="go_back_n",
            congestion="dcqcn",
        ),
    }
)


def transport_of(given: str | ReliableTransport | Mapping[str, Any]) -> ReliableTransport:
    """A transport from what a user gives: settings, or a name such as "tcp:min_timeout=2e-4".

    Raises:
        UnknownNameError: no such transport or setting.
        InputError: a number that no transport has, or something that names none.
    """
    if isinstance(given, ReliableTransport):
        return given
    if isinstance(given, Mapping):
        base, settings = ReliableTransport(), dict(given)
    elif isinstance(given, str):
        name, settings = split_name(given)
        if name not in TRANSPORTS:
            raise UnknownNameError("transport", name, TRANSPORTS)
        base = TRANSPORTS[name]
    else:
        raise InputError(
            f"the transport is {given!r}; give a name such as 'tcp', a mapping of settings, or an "
            "innet.sim.transport.ReliableTransport."
        )
    known = [field.name for field in fields(ReliableTransport)]
    for name in settings:
        if name not in known:
            raise UnknownNameError("setting of a transport", name, known)
    return replace(base, **settings)


def make_rows(rules: Rules, rows: int) -> tuple[SenderRows, ReceiverRows]:
    """Memory for this number of messages at a time."""
    words = -(-rules.window // 64)

    def zeros() -> NDArray[np.uint64]:
        return np.zeros((rows, words), np.uint64)

    return (
        SenderRows(np.zeros(rows, SENDER), zeros(), zeros()),
        ReceiverRows(np.zeros(rows, RECEIVER), zeros()),
    )


def more_rows(
    senders: SenderRows, receivers: ReceiverRows, rows: int
) -> tuple[SenderRows, ReceiverRows]:
    """The same messages, with memory for this number."""

    def grown(array: Any) -> Any:
        larger = np.zeros((rows, *array.shape[1:]), array.dtype)
        larger[: len(array)] = array
        return larger

    return (
        SenderRows(*map(grown, senders)),
        ReceiverRows(*map(grown, receivers)),
    )


# ------------------------------------------------------------------ bits of a window


@njit(cache=True, nogil=True, allocates=False)
def _has(bits: NDArray[np.uint64], row: int, sequence: int) -> bool:
    """Whether the bit of a segment is set."""
    at = sequence % (64 * bits.shape[1])
    return bool((bits[row, at >> 6] >> np.uint64(at & 63)) & np.uint64(1))


@njit(cache=True, nogil=True, allocates=False)
def _flip(bits: NDArray[np.uint64], row: int, sequence: int) -> None:
    at = sequence % (64 * bits.shape[1])
    bits[row, at >> 6] ^= np.uint64(1) << np.uint64(at & 63)


# ------------------------------------------------------------------ DCQCN


@njit(cache=True, nogil=True, allocates=False)
def _has_window(rules: Rules) -> bool:
    """Whether the congestion window changes."""
    return bool(rules.congestion == NEWRENO or rules.congestion == DCTCP)  # noqa: PLR1714


@njit(cache=True, nogil=True, allocates=False)
def _begin_rate(flow: Any, rules: Rules, now: int) -> None:
    """A connection begins at the rate of its line."""
    flow.rate = flow.target = rules.line_rate
    flow.alpha = _ONE
    flow.alpha_due, flow.rate_due = now + rules.alpha_timer, now + rules.rate_timer
    flow.timer_steps, flow.byte_steps, flow.counted = 0, 0, 0


@njit(cache=True, nogil=True, allocates=False)
def _raise_rate(flow: Any, rules: Rules) -> None:
    """Half of the way to the target, which is raised after some steps."""
    more, fewer = max(flow.timer_steps, flow.byte_steps), min(flow.timer_steps, flow.byte_steps)
    if fewer > rules.recovery_steps:
        flow.target += (fewer - rules.recovery_steps) * rules.hyper
    elif more > rules.recovery_steps:
        flow.target += rules.additive
    flow.target = min(flow.target, rules.line_rate)
    flow.rate = (flow.rate + flow.target) // 2


@njit(cache=True, nogil=True, allocates=False)
def _pass_time(flow: Any, rules: Rules, now: int) -> None:
    """Let timers expire up to ``now``."""
    for _ in range(_MOST_STEPS):
        due = min(flow.alpha_due, flow.rate_due)
        if due > now:
            return
        if flow.alpha_due == due:
            flow.alpha -= flow.alpha * rules.gain // _ONE
            flow.alpha_due += rules.alpha_timer
        else:
            flow.timer_steps += 1
            flow.rate_due += rules.rate_timer
            _raise_rate(flow, rules)
    flow.alpha_due, flow.rate_due = now + rules.alpha_timer, now + rules.rate_timer


@njit(cache=True, nogil=True, allocates=False)
def _cut_rate(flow: Any, rules: Rules, now: int) -> None:
    """A congestion notification has come."""
    flow.target = flow.rate
    flow.rate = max(flow.rate - flow.rate * (flow.alpha // 2) // _ONE, _LEAST_RATE)
    flow.alpha += (_ONE - flow.alpha) * rules.gain // _ONE
    flow.alpha_due, flow.rate_due = now + rules.alpha_timer, now + rules.rate_timer
    flow.timer_steps, flow.byte_steps, flow.counted = 0, 0, 0


@njit(cache=True, nogil=True, allocates=False)
def _pace(flow: Any, rules: Rules, payload: int, now: int) -> None:
    """A segment is sent: when the next one may be, and what the counter of bytes does.

    A segment that is late by no more than its own time does not make the next one later.
    """
    bits = 8 * (payload + rules.overhead)
    took = (bits * SECOND + flow.rate - 1) // flow.rate
    flow.paced = max(flow.paced, now - took) + took
    flow.counted += payload
    if flow.counted >= rules.byte_counter:
        flow.counted -= rules.byte_counter
        flow.byte_steps += 1
        _raise_rate(flow, rules)


# ------------------------------------------------------------------ the sender


@njit(cache=True, nogil=True, allocates=False)
def open_sender(senders: SenderRows, rules: Rules, row: int, size: int, now: int) -> None:
    """Begin a message of ``size`` bytes, on a new connection."""
    flow = senders.state[row]
    segments = max(1, -(-size // rules.payload))
    flow.generation += 1
    flow.size, flow.segments = size, segments
    flow.una, flow.next, flow.highest = 0, 0, 0
    flow.sacked, flow.overtaken, flow.lost_below, flow.resend, flow.lost = 0, 0, 0, 0, 0
    flow.cut, flow.first_cut = 0, 0
    flow.credit, flow.recover, flow.recovering, flow.force = 0, 0, 0, 0
    flow.seen, flow.marked, flow.window_end = 0, 0, 0
    flow.backoff, flow.since, flow.deadline = 0, now, FOREVER
    flow.probing, flow.probe_time, flow.probe_next, flow.repaired = 0, 0, 0, 0
    flow.paced = now
    flow.sent, flow.resent, flow.timeouts = 0, 0, 0
    flow.srtt, flow.deviation, flow.alpha = 0, 0, _ALPHA
    flow.threshold = rules.window
    flow.window = rules.initial_window if _has_window(rules) else rules.window
    flow.rate = 0
    if rules.congestion == DCQCN:
        _begin_rate(flow, rules, now)
    senders.sacked[row, :] = np.uint64(0)


@njit(cache=True, nogil=True, allocates=False)
def resume(senders: SenderRows, row: int, connections: Any, connection: int) -> None:
    """Begin a message with its connection's window, round trip and rate; see ``keep``."""
    flow, kept = senders.state[row], connections[connection]
    if kept.rate > 0:  # of DCQCN
        flow.rate, flow.target = kept.rate, kept.target
        flow.alpha_due, flow.rate_due = kept.alpha_due, kept.rate_due
        flow.timer_steps, flow.byte_steps = kept.timer_steps, kept.byte_steps
        flow.counted = kept.counted
    if kept.window > 0:
        flow.window, flow.threshold = kept.window, kept.threshold
        flow.srtt, flow.deviation, flow.alpha = kept.srtt, kept.deviation, kept.alpha


@njit(cache=True, nogil=True, allocates=False)
def keep(senders: SenderRows, row: int, connections: Any, connection: int) -> None:
    """Keep what lasts, (n,) of ``CONNECTION``, when a message is done."""
    flow, kept = senders.state[row], connections[connection]
    kept.window, kept.threshold = flow.window, flow.threshold
    kept.srtt, kept.deviation, kept.alpha = flow.srtt, flow.deviation, flow.alpha
    kept.rate, kept.target = flow.rate, flow.target
    kept.alpha_due, kept.rate_due = flow.alpha_due, flow.rate_due
    kept.timer_steps, kept.byte_steps = flow.timer_steps, flow.byte_steps
    kept.counted = flow.counted


@njit(cache=True, nogil=True, allocates=False)
def in_flight(senders: SenderRows, row: int) -> int:
    """Segments that were sent, and neither acknowledged nor lost as far as is known."""
    flow = senders.state[row]
    return int(flow.next - flow.una - flow.sacked - flow.lost)


@njit(cache=True, nogil=True, allocates=False)
def _no_longer_cut(senders: SenderRows, row: int, sequence: int) -> bool:
    """A segment is sent again, or has arrived after all; whether the receiver has its header."""
    flow = senders.state[row]
    if flow.cut == 0 or not _has(senders.cut, row, sequence):
        return False
    _flip(senders.cut, row, sequence)
    flow.cut -= 1
    flow.lost -= 1
    return True


@njit(cache=True, nogil=True, allocates=False)
def _choose(senders: SenderRows, rules: Rules, row: int) -> int:
    """The segment to send, -1 for none; not counted yet."""
    flow = senders.state[row]
    if flow.probing == 1:
        return int(flow.una)
    fits = flow.next - flow.una - flow.sacked - flow.lost < min(flow.window, rules.window)
    if flow.lost > 0:
        if not (fits or flow.force):
            return -1
        if flow.cut > 0:
            sequence = max(flow.first_cut, flow.una)
            while not _has(senders.cut, row, sequence):
                sequence += 1
            flow.first_cut = sequence
            return int(sequence)
        sequence = flow.resend
        while _has(senders.sacked, row, sequence):
            sequence += 1
        return int(sequence)
    if fits and flow.next < flow.segments and flow.next - flow.una < rules.window:
        return int(flow.next)
    return -1


@njit(cache=True, nogil=True, allocates=False)
def segment_to_send(senders: SenderRows, rules: Rules, row: int, now: int) -> tuple[int, int]:
    """What may be sent now, counted as sent: its number, and bytes of payload; or (-1, 0)."""
    flow = senders.state[row]
    if now < flow.paced:
        return -1, 0
    if rules.congestion == DCQCN:
        _pass_time(flow, rules, now)
    sequence = _choose(senders, rules, row)
    if sequence < 0:
        return -1, 0
    if flow.probing == 1:
        flow.probing, flow.probe_time = 2, now
        _no_longer_cut(senders, row, sequence)
        if sequence >= flow.resend and sequence < flow.lost_below:
            flow.resend = sequence + 1  # it was the first of the lost ones
            flow.lost -= 1
    elif _no_longer_cut(senders, row, sequence):
        flow.force = 0
    elif flow.lost > 0:
        flow.resend = sequence + 1
        flow.lost -= 1
        flow.force = 0
    else:
        flow.next = sequence + 1
    if sequence < flow.highest:
        flow.resent += 1
    flow.highest = max(flow.highest, sequence + 1)
    flow.sent += 1
    payload = min(rules.payload, flow.size - sequence * rules.payload)
    if rules.interval > 0:
        flow.paced = now + rules.interval * payload // rules.payload
    elif rules.congestion == DCQCN:
        _pace(flow, rules, payload, now)
    if flow.deadline == FOREVER:
        _arm(flow, rules, now)
    return int(sequence), int(payload)


@njit(cache=True, nogil=True, allocates=False)
def _timeout(flow: Any, rules: Rules) -> int:
    """How long to wait for an acknowledgement, RFC 6298."""
    wait = rules.timeout
    if flow.srtt > 0:
        wait = flow.srtt + max(1, 4 * flow.deviation)
    wait = max(wait, rules.min_timeout)
    for _ in range(flow.backoff):
        wait = min(2 * wait, rules.max_timeout)
    return int(min(wait, rules.max_timeout))


@njit(cache=True, nogil=True, allocates=False)
def _arm(flow: Any, rules: Rules, now: int) -> None:
    """Wait from now on, for a probe first if there is one."""
    flow.since = now
    wait = _timeout(flow, rules)
    if rules.tail_probe and flow.srtt > 0 and flow.backoff == 0 and flow.probing == 0:
        wait = min(wait, max(2 * flow.srtt, flow.srtt + 4 * flow.deviation))
    flow.deadline = now + wait


@njit(cache=True, nogil=True, allocates=False)
def deadline(senders: SenderRows, rules: Rules, row: int) -> int:
    """When ``on_timeout`` is to be called, ``FOREVER`` for never."""
    flow = senders.state[row]
    due = flow.deadline
    is_paced = rules.interval > 0 or rules.congestion == DCQCN
    if is_paced and flow.paced < due and _choose(senders, rules, row) >= 0:
        due = flow.paced
    return int(due)


@njit(cache=True, nogil=True, allocates=False)
def on_timeout(senders: SenderRows, rules: Rules, row: int, now: int) -> int:
    """The deadline has come; returns ``NOTHING``, ``PROBE`` or ``TIMEOUT``."""
    flow = senders.state[row]
    if now < flow.deadline:
        return NOTHING
    patience = flow.since + _timeout(flow, rules)
    if rules.tail_probe and flow.probing == 0 and now < patience:
        flow.probing, flow.probe_next = 1, flow.next
        flow.deadline = patience
        return PROBE
    flow.timeouts += 1
    if _has_window(rules):
        if flow.backoff == 0:  # not for a segment that is lost again, RFC 5681
            flow.threshold = max(in_flight(senders, row) // 2, 2)
        flow.window = 1
        flow.credit = 0
    flow.recover, flow.recovering, flow.probing = flow.highest, 0, 0
    if rules.go_back_n:
        flow.next = flow.una
    else:
        _forget_cut(senders, row, flow.next)
        flow.resend, flow.lost_below = flow.una, flow.next
        flow.lost = flow.next - flow.una - flow.sacked
    flow.backoff += 1
    flow.since = now
    flow.deadline = now + _timeout(flow, rules)
    return TIMEOUT


@njit(cache=True, nogil=True, allocates=False)
def _measure(flow: Any, trip: int) -> None:
    """Smooth a round trip, RFC 6298, section 2."""
    if flow.srtt == 0:
        flow.srtt, flow.deviation = max(trip, 1), trip // 2
        return
    flow.deviation += (abs(flow.srtt - trip) - flow.deviation) >> 2
    flow.srtt = max(1, flow.srtt + ((trip - flow.srtt) >> 3))


@njit(cache=True, nogil=True, allocates=False)
def _reduce(flow: Any, rules: Rules, flight: int) -> None:
    """Halve the window, RFC 5681."""
    if _has_window(rules):
        flow.threshold = max(flight // 2, 2)
        flow.window = flow.threshold
        flow.credit = 0


@njit(cache=True, nogil=True, allocates=False)
def _acknowledged(senders: SenderRows, row: int, ack: int) -> int:
    """Everything before ``ack`` has arrived; returns how much of it was not known to have."""
    flow = senders.state[row]
    fresh = 0
    for sequence in range(flow.una, min(ack, flow.next)):
        if _has(senders.sacked, row, sequence):
            _flip(senders.sacked, row, sequence)
            flow.sacked -= 1
            continue
        fresh += 1
        _no_longer_cut(senders, row, sequence)
        if flow.resend <= sequence < flow.lost_below:
            flow.lost -= 1
    flow.una = ack
    flow.next = max(flow.next, ack)  # with go-back-N, an answer to what was sent before
    flow.resend = max(flow.resend, ack)
    flow.lost_below = max(flow.lost_below, ack)
    return fresh


@njit(cache=True, nogil=True, allocates=False)
def _forget_cut(senders: SenderRows, row: int, below: int) -> None:
    """What is before ``below`` is lost or not whatever the receiver has headers of."""
    flow = senders.state[row]
    if flow.cut > 0:
        for sequence in range(flow.una, below):
            _no_longer_cut(senders, row, sequence)


@njit(cache=True, nogil=True, allocates=False)
def _repeat(senders: SenderRows, row: int, sequence: int) -> None:
    """The receiver has the header of a segment: it is sent again, and not in its place."""
    flow = senders.state[row]
    is_known = sequence < flow.una or sequence >= flow.next
    is_known |= flow.resend <= sequence < flow.lost_below
    if is_known or _has(senders.sacked, row, sequence) or _has(senders.cut, row, sequence):
        return
    _flip(senders.cut, row, sequence)
    flow.first_cut = min(flow.first_cut, sequence) if flow.cut > 0 else sequence
    flow.cut += 1
    flow.lost += 1
    flow.window = flow.threshold = max(flow.window - 1, 1)


@njit(cache=True, nogil=True, allocates=False)
def _find_lost(senders: SenderRows, row: int, below: int) -> None:
    """What is before ``below`` and not acknowledged is lost."""
    flow = senders.state[row]
    for sequence in range(flow.lost_below, below):
        if not _has(senders.sacked, row, sequence):
            flow.lost += 1
    flow.lost_below = max(flow.lost_below, below)


@njit(cache=True, nogil=True, allocates=False)
def _answer_to_probe(senders: SenderRows, row: int) -> None:
    """What was sent before a probe that was answered, and is not acknowledged, is lost."""
    flow = senders.state[row]
    if flow.una < flow.probe_next:
        below = max(flow.lost_below, flow.probe_next)
        _forget_cut(senders, row, below)
        flow.resend = flow.lost_below = flow.una
        flow.lost = flow.cut
        _find_lost(senders, row, below)


@njit(cache=True, nogil=True, allocates=False)
def _selected(  # noqa: PLR0917 - by position
    senders: SenderRows, rules: Rules, row: int, sequence: int, flags: int, stamp: int
) -> int:
    """A segment has arrived, and by that others are lost; returns whether it is new."""
    flow = senders.state[row]
    fresh = 0
    if sequence >= flow.una and not _has(senders.sacked, row, sequence):
        _flip(senders.sacked, row, sequence)
        flow.sacked += 1
        fresh = 1
        _no_longer_cut(senders, row, sequence)
        if flow.resend <= sequence < flow.lost_below:
            flow.lost -= 1
        flow.overtaken = max(flow.overtaken, sequence + 1)
    _find_lost(senders, row, flow.overtaken - rules.reordering)
    if flow.probing == 2 and stamp >= flow.probe_time:
        flow.repaired = int(flags & DUPLICATE == 0)
        _answer_to_probe(senders, row)
        flow.probing = 0
    return fresh


@njit(cache=True, nogil=True, allocates=False)
def _grow(flow: Any, rules: Rules, fresh: int) -> None:
    """Slow start and congestion avoidance, RFC 5681; by segments, as RFC 3465 counts."""
    if flow.window < flow.threshold:
        flow.window = min(flow.window + fresh, rules.window)
        return
    flow.credit += fresh
    if flow.credit >= flow.window:
        flow.credit -= flow.window
        flow.window = min(flow.window + 1, rules.window)


@njit(cache=True, nogil=True, allocates=False)
def _marks(flow: Any, rules: Rules, fresh: int, echo: bool) -> None:
    """React to congestion marks once in a window: RFC 8257 for DCTCP, RFC 3168 for NewReno."""
    flow.seen += fresh
    if echo:
        flow.marked += max(fresh, 1)
        flow.threshold = min(flow.threshold, flow.window)
        if rules.congestion == NEWRENO and flow.una >= flow.window_end and not flow.recovering:
            _reduce(flow, rules, flow.window)
            flow.window_end = flow.next
    if rules.congestion == DCTCP and flow.una >= flow.window_end:
        part = _ALPHA * min(flow.marked, flow.seen) // max(flow.seen, 1)
        flow.alpha += (part - flow.alpha) >> _GAIN
        if flow.marked > 0 and not flow.recovering:
            flow.window = max(flow.window - flow.window * flow.alpha // (2 * _ALPHA), 2)
            flow.threshold = flow.window
            flow.credit = 0
        flow.seen, flow.marked, flow.window_end = 0, 0, flow.next


@njit(inline="always", nogil=True, allocates=False)
def _change_window(flow: Any, rules: Rules, fresh: int, flags: int, flight: int) -> None:
    """React to what has arrived. A window that was not used does not grow, RFC 7661."""
    if _has_window(rules):
        _marks(flow, rules, fresh, flags & ECHO != 0)
        if not flow.recovering and flags & ECHO == 0 and 2 * flight >= flow.window:
            _grow(flow, rules, fresh)
    elif rules.trims and 2 * flight >= flow.window:
        _grow(flow, rules, fresh)


@njit(inline="always", nogil=True, allocates=False)
def _recover_by_going_back(flow: Any, rules: Rules, ack: int, flags: int, flight: int) -> None:
    """Go-back-N: after a NACK, begin again with the segment that the receiver expects.

    The window is halved once for all segments that were on the way.
    """
    if flags & NACK and ack == flow.una:
        flow.next = flow.una
        if flow.una >= flow.recover:
            _reduce(flow, rules, flight)
            flow.recover = flow.highest


@njit(inline="always", nogil=True, allocates=False)
def _recover_by_selection(flow: Any, rules: Rules, flight: int) -> None:
    """Enter or leave recovery, RFC 6675, section 5: the window is halved once in it."""
    if flow.recovering and flow.una >= flow.recover:
        flow.recovering = 0
    is_lost = flow.lost > 0 or flow.repaired
    if is_lost and not flow.recovering and flow.una >= flow.recover:
        _reduce(flow, rules, flight)
        flow.recovering, flow.recover, flow.force = 1, flow.next, 1
    flow.repaired = 0


@njit(cache=True, nogil=True, allocates=False)
def on_ack(  # noqa: PLR0917 - compiled functions are called by position
    senders: SenderRows,
    rules: Rules,
    row: int,
    generation: int,
    ack: int,
    sequence: int,
    flags: int,
    stamp: int,
    now: int,
) -> int:
    """An acknowledgement has come; returns ``DONE``, ``OPEN`` or ``STALE``."""
    flow = senders.state[row]
    if generation != flow.generation or flow.una >= flow.segments:
        return STALE
    # Step 1: the round trip (RFC 7323), but not that of a header, which overtakes others; and what
    # was in flight before the answer.
    is_cut = rules.trims and flags & NACK
    if not is_cut:
        _measure(flow, now - stamp)
    flight = flow.next - flow.una - flow.sacked - flow.lost
    # Step 2: what has arrived, what is lost by that, and whether this is a new loss.
    fresh = _acknowledged(senders, row, ack) if ack > flow.una else 0
    if rules.go_back_n:
        _recover_by_going_back(flow, rules, ack, flags, flight)
    elif is_cut:
        _repeat(senders, row, sequence)
    else:
        fresh += _selected(senders, rules, row, sequence, flags, stamp)
        _recover_by_selection(flow, rules, flight)
    # Step 3: the rate reacts to a notification (DCQCN), or the window to marks (RFC 3168,
    # RFC 8257), or it grows (RFC 5681).
    if rules.congestion == DCQCN and flags & ECHO:
        _pass_time(flow, rules, now)
        _cut_rate(flow, rules, now)
    if fresh > 0:
        _change_window(flow, rules, fresh, flags, flight)
    # Step 4: the timer (RFC 6298, section 5): off if nothing is in flight, anew if there is more.
    if flow.una >= flow.segments:
        flow.deadline = FOREVER
        return DONE
    if fresh > 0 or is_cut:
        flow.backoff = 0
        if flow.probing == 1:
            flow.probing = 0
        if flow.una >= flow.highest:
            flow.deadline = FOREVER
        else:
            _arm(flow, rules, now)
    return OPEN


# ------------------------------------------------------------------ the receiver


@njit(cache=True, nogil=True, allocates=False)
def _notifies(flow: Any, rules: Rules, now: int) -> bool:
    """Whether a mark is told: with DCQCN not within ``cnp_interval`` of the last one that was.

    As far as nothing is out of order, every segment has an acknowledgement that tells it.
    """
    if rules.congestion != DCQCN:
        return True
    if now < flow.notified:
        return False
    flow.notified = now + rules.cnp_interval
    return True


@njit(cache=True, nogil=True, allocates=False)
def _takes(receivers: ReceiverRows, row: int, generation: int) -> bool:
    """Whether a segment is of the message of a row, or the first of a later one."""
    flow = receivers.state[row]
    if generation > flow.generation:
        flow.generation = generation
        flow.expected, flow.bytes, flow.complete, flow.nacked, flow.duplicates = 0, 0, 0, 0, 0
        receivers.arrived[row, :] = np.uint64(0)
    return bool(generation == flow.generation)


@njit(cache=True, nogil=True, allocates=False)
def on_header(  # noqa: PLR0917 - likewise
    receivers: ReceiverRows, rules: Rules, row: int, generation: int, sequence: int, now: int
) -> tuple[int, int]:
    """A segment has come without its payload; returns what ``on_segment`` does."""
    flow = receivers.state[row]
    if not _takes(receivers, row, generation):
        return -1, 0
    flags = ECHO if _notifies(flow, rules, now) else 0
    if sequence < flow.expected or _has(receivers.arrived, row, sequence):
        return int(flow.expected), flags | DUPLICATE
    return int(flow.expected), flags | NACK


@njit(cache=True, nogil=True, allocates=False)
def on_segment(  # noqa: PLR0917 - likewise
    receivers: ReceiverRows,
    rules: Rules,
    row: int,
    generation: int,
    segments: int,
    sequence: int,
    payload: int,
    marked: bool,
    now: int,
) -> tuple[int, int]:
    """A segment has come; returns the acknowledgement's number (-1 for none) and flags."""
    flow = receivers.state[row]
    if not _takes(receivers, row, generation):
        return -1, 0
    flags = ECHO if marked and _notifies(flow, rules, now) else 0
    if sequence < flow.expected:
        flow.duplicates += 1
        return int(flow.expected), flags | DUPLICATE
    if rules.go_back_n:
        if sequence > flow.expected:
            if flow.nacked:
                return -1, 0
            flow.nacked = 1
            return int(flow.expected), flags | NACK
        flow.nacked = 0
        flow.expected += 1
    else:
        if _has(receivers.arrived, row, sequence):
            flow.duplicates += 1
            return int(flow.expected), flags | DUPLICATE
        _flip(receivers.arrived, row, sequence)
        while flow.expected < segments and _has(receivers.arrived, row, flow.expected):
            _flip(receivers.arrived, row, flow.expected)
            flow.expected += 1
    flow.bytes += payload
    if flow.expected == segments and not flow.complete:
        flow.complete = 1
        flags |= COMPLETE
    return int(flow.expected), flags
