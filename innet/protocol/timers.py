"""When a chunk is sent again, requested as a partial result, or given up: one timer per slot.

The timers are compiled functions over arrays. ``SlotClient`` calls them through ``SlotTimers``; the
compiled loop over a socket (``innet.transport.socket_loop``) calls them directly, on the same
arrays. They are compiled at import, so that no packet waits for it. Import this module only where a
worker is made, since importing Numba takes longer than most commands.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.protocol.settings import Timing

Slots: TypeAlias = NDArray[np.int64]
Pace: TypeAlias = NDArray[np.float64]
"""The state shared by all slots: first the variables, then the constants from ``Timing``; then the
longest round trip that was measured, and whether a chunk was overtaken, both since 0 was written
there."""
_TIMEOUT, _PROBE, _MEAN, _DEVIATION, _HEARD, _BEGUN, _HELD = range(7)
_GIVE_UP, _PARTIAL, _REORDERING, _ADAPTIVE, _LEAST, _MOST, _BACKOFF, _TAIL = range(7, 15)
_LONGEST, _OVERTAKEN = 15, 16

PACE_WORDS = 17
PACE_REORDERING, PACE_GIVE_UP, PACE_HEARD, PACE_BEGUN = _REORDERING, _GIVE_UP, _HEARD, _BEGUN
PACE_TIMEOUT, PACE_LEAST, PACE_LONGEST, PACE_OVERTAKEN = _TIMEOUT, _LEAST, _LONGEST, _OVERTAKEN

TimerState: TypeAlias = tuple[NDArray[Any], ...]
"""Arrays (window,), one item per slot: int32 transmissions of its chunk; float64 time of the first
transmission, time of the last one, timeout (negative once a later chunk has overtaken it), time of
the next transmission, and time at which it is given up (infinity if no chunk waits); bool whether
it is held back until a result arrives. And a ``Pace``."""

# RFC 6298, section 2: the weights of a new measurement, and how many deviations to wait.
_ALPHA, _BETA, _K = 1 / 8, 1 / 4, 4

PROBES = 8
"""Most chunks that are sent again while no result arrives."""

MAX_IMPATIENCE = 4  # limited by two bits of the header: the leaves and three levels above

TIMERS = "Tuple((i4[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], b1[::1], f8[::1]))"
"""Numba's type of a ``TimerState``."""
SLOTS = "Tuple((i8[::1], u1[::1], i8[::1]))"
"""Numba's type of (window,): chunk, state and queue, see ``innet.protocol.compiled.take``."""
_WAITING = 2  # innet.protocol.slot_client.SlotState


# ------------------------------------------------------------------ round trips


@njit("void(f8[::1], f8)", cache=True, nogil=True)
def measure(pace: Pace, seconds: float) -> None:
    """Smooth a measured round trip, and adapt the timeouts to it (RFC 6298, section 2)."""
    if pace[_ADAPTIVE] == 0:
        return
    if pace[_MEAN] < 0:
        pace[_MEAN], pace[_DEVIATION] = seconds, seconds / 2
    else:
        error = abs(pace[_MEAN] - seconds)
        pace[_DEVIATION] = (1 - _BETA) * pace[_DEVIATION] + _BETA * error
        pace[_MEAN] = (1 - _ALPHA) * pace[_MEAN] + _ALPHA * seconds
    timeout = max(pace[_MEAN] + _K * pace[_DEVIATION], pace[_LEAST])
    pace[_TIMEOUT] = min(timeout, pace[_MOST])
    pace[_PROBE] = min(max(pace[_TAIL], 2 * pace[_MEAN]), pace[_TIMEOUT])


class RoundTrip:
    """The time from a chunk to its result, smoothed (RFC 6298, section 2).

    It includes the wait for the slowest worker, since a result comes once all have contributed.
    """

    def __init__(self, timing: Timing, *, in_order: bool = True) -> None:
        reordering = timing.reordering if in_order else None
        tail = timing.tail_probe
        self.pace: Pace = np.zeros(PACE_WORDS)
        self.pace[_TIMEOUT] = self.pace[_PROBE] = timing.timeout
        # On a long path every last chunk would be sent twice, and then none is measured (Karn). So
        # adaptive timers wait for the first measurement.
        if tail is not None and not timing.adaptive:
            self.pace[_PROBE] = min(tail, timing.timeout)
        self.pace[_MEAN] = -1.0
        self.pace[_HEARD] = self.pace[_BEGUN] = -math.inf
        self.pace[_GIVE_UP] = timing.give_up
        self.pace[_PARTIAL] = _or_never(timing.partial_after)
        self.pace[_REORDERING] = _or_never(reordering)
        self.pace[_ADAPTIVE] = timing.adaptive
        self.pace[_LEAST] = min(timing.min_timeout, timing.timeout)
        self.pace[_MOST] = timing.max_timeout
        self.pace[_BACKOFF] = timing.backoff
        self.pace[_TAIL] = _or_never(tail)

    def measured(self, seconds: float) -> None:
        """Use the measurement of a chunk that was sent only once (Karn's algorithm)."""
        measure(self.pace, seconds)

    @property
    def mean(self) -> float | None:
        """SRTT, seconds; None before the first measurement."""
        mean = float(self.pace[_MEAN])
        return None if mean < 0 else mean

    @property
    def deviation(self) -> float:
        """RTTVAR, seconds."""
        return float(self.pace[_DEVIATION])

    @property
    def timeout(self) -> float:
        """RTO: how long a chunk waits after its first transmission."""
        return float(self.pace[_TIMEOUT])

    @property
    def probe(self) -> float:
        """How long the last chunk of an all-reduce waits before it is sent again."""
        return float(self.pace[_PROBE])


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


# ------------------------------------------------------------------ when the next step is due


@njit("f8(f8, i8, f8)", cache=True, nogil=True)
def _asking(first_sent: float, level: int, after: float) -> float:
    """When a chunk asks one level of switches more than ``level``.

    All callers use this one formula. Another one could round differently, and a worker that wakes
    for a level would then not ask it.
    """
    return first_sent + after * (1 + level / 2)


@njit("f8(f8, f8, f8)", cache=True, nogil=True)
def _next_asking(first_sent: float, now: float, after: float) -> float:
    """When a chunk asks the next level of switches; infinity for never."""
    for level in range(MAX_IMPATIENCE):
        moment = _asking(first_sent, level, after)
        if moment > now:
            return float(moment)
    return np.inf


@njit(f"f8({TIMERS}, i8, f8)", cache=True, nogil=True, inline="always")
def _until_next(timers: TimerState, slot: int, now: float) -> float:
    """Seconds until the slot's chunk is sent again."""
    _, first_sent, _, timeout, _, _, _, pace = timers
    wait = timeout[slot]
    if pace[_PARTIAL] == np.inf:
        return float(wait)
    return float(min(wait, _next_asking(first_sent[slot], now, pace[_PARTIAL]) - now))


@njit(f"f8({TIMERS})", cache=True, nogil=True, allocates=False)
def next_deadline(timers: TimerState) -> float:
    """When the next chunk is to be sent again or given up; infinity for never."""
    _, _, _, _, resend_at, give_up_at, _, _ = timers
    earliest = np.inf
    for slot in range(len(resend_at)):
        earliest = min(earliest, resend_at[slot], give_up_at[slot])
    return earliest


@njit(f"f8({TIMERS})", cache=True, nogil=True, inline="always")
def shortest_wait(timers: TimerState) -> float:
    """The shortest wait of a chunk after its first transmission."""
    pace = timers[7]
    return float(min(pace[_TIMEOUT], pace[_PROBE], pace[_GIVE_UP]))


# ------------------------------------------------------------------ events that set the timers


@njit(f"void({TIMERS}, i8[::1], i8[::1], f8, i8)", cache=True, nogil=True, inline="always")
def start(timers: TimerState, chunk: Slots, slots: Slots, now: float, last: int) -> None:
    """Set the timers of chunks that are sent for the first time.

    Args:
        timers: changed.
        chunk: (window,): the chunk of each slot.
        slots: slots of the chunks that are sent.
        now: the time.
        last: the all-reduce's last chunk, which is sent again early; -1 for none.
    """
    sends, first_sent, last_sent, timeout, resend_at, give_up_at, _, pace = timers
    for slot in slots:
        sends[slot] = 1
        first_sent[slot] = last_sent[slot] = now
        timeout[slot] = pace[_PROBE] if chunk[slot] == last else pace[_TIMEOUT]
        resend_at[slot] = now + _until_next(timers, slot, now)
        give_up_at[slot] = now + pace[_GIVE_UP]


@njit(f"void({TIMERS}, i8[::1], f8)", cache=True, nogil=True, allocates=False)
def send_again(timers: TimerState, slots: Slots, now: float) -> None:
    """Set the timers of chunks that are sent again; they wait longer (RFC 6298, section 5.5)."""
    sends, _, last_sent, timeout, resend_at, _, _, pace = timers
    for slot in slots:
        sends[slot] += 1
        last_sent[slot] = now
        if timeout[slot] < 0:
            # The loss of one packet does not mean that the round trip is longer. Near the end of an
            # all-reduce no later chunk would show that it was lost again.
            timeout[slot] = pace[_PROBE]
        else:
            longer = min(timeout[slot] * pace[_BACKOFF], pace[_MOST])
            if pace[_TAIL] < np.inf and sends[slot] == 2:  # if others are late, one copy is enough
                longer = max(longer, pace[_TIMEOUT])
            timeout[slot] = longer
        resend_at[slot] = now + _until_next(timers, slot, now)


@njit(f"b1({SLOTS}, {TIMERS}, f8[::1])", cache=True, nogil=True, allocates=False)
def overtake(slots: tuple[NDArray[Any], ...], timers: TimerState, clock: Pace) -> bool:
    """Shorten the wait of chunks that were sent before one that was answered.

    They wait no longer than ``Timing.reordering`` (RFC 8985, section 6.2, step 5). Workers send
    their chunks in the same order, so a network without reordering has lost them, or another
    worker's, or their results.

    Args:
        slots: as for ``take``.
        timers: changed.
        clock: the floats of ``notes``, which ``take`` filled in.

    Returns:
        Whether a chunk was newly overtaken.
    """
    chunk, state, _ = slots
    _, _, last_sent, timeout, resend_at, _, _, pace = timers
    if pace[_REORDERING] == np.inf:
        return False
    reordering = min(pace[_REORDERING], pace[_TIMEOUT])
    found = False
    for slot in range(len(chunk)):
        if state[slot] != _WAITING or timeout[slot] < 0:
            continue
        sent = last_sent[slot]
        if sent < clock[3] or (sent == clock[3] and chunk[slot] < clock[4]):
            timeout[slot] = -reordering
            resend_at[slot] = min(resend_at[slot], clock[0] + reordering)
            found = True
    if found:
        pace[_OVERTAKEN] = 1
    return found


@njit(f"b1({TIMERS}, f8, f8)", cache=True, nogil=True, inline="always")
def hear(timers: TimerState, now: float, waited: float) -> bool:
    """Note that results have arrived: measure, and release the chunks that were held back.

    Args:
        timers: changed.
        now: the time.
        waited: the longest wait among those that were sent only once (Karn's algorithm); their mean
            would hide it. Negative if there is none.

    Returns:
        Whether any were held back.
    """
    _, _, _, timeout, resend_at, give_up_at, held, pace = timers
    if now >= pace[_HEARD] + pace[_TIMEOUT]:
        pace[_BEGUN] = now
    pace[_HEARD] = now
    if waited >= 0:
        pace[_LONGEST] = max(pace[_LONGEST], waited)
        measure(pace, waited)
    if pace[_HELD] == 0:
        return False
    for slot in range(len(held)):
        if held[slot] and give_up_at[slot] < np.inf and timeout[slot] >= 0:
            resend_at[slot] = now + _until_next(timers, slot, now)
        held[slot] = False
    pace[_HELD] = 0
    return True


@njit(f"u1[::1]({TIMERS}, i8[::1], f8)", cache=True, nogil=True)
def impatience(timers: TimerState, slots: Slots, now: float) -> NDArray[np.uint8]:
    """How many levels of switches are asked to close ``slots`` without late workers, 0 .. 4."""
    first_sent, pace = timers[1], timers[7]
    asked = np.zeros(len(slots), np.uint8)
    for row in range(len(slots)):
        for level in range(MAX_IMPATIENCE):
            if _asking(first_sent[slots[row]], level, pace[_PARTIAL]) <= now:
                asked[row] += 1
    return asked


@njit(f"i8[::1]({TIMERS}, i8[::1], f8)", cache=True, nogil=True)
def take_due(timers: TimerState, chunk: Slots, now: float) -> Slots:
    """Slots whose chunk is to be sent again. Slots that are due but held back are postponed.

    Args:
        timers: changed.
        chunk: (window,): the chunk of each slot.
        now: the time.
    """
    _, first_sent, _, timeout, resend_at, _, held, pace = timers
    count = 0
    for slot in range(len(resend_at)):
        count += resend_at[slot] <= now
    due = np.empty(count, np.int64)
    taken = 0
    for slot in range(len(resend_at)):
        if resend_at[slot] <= now:
            due[taken] = slot
            taken += 1
    silent = now >= pace[_HEARD] + pace[_TIMEOUT]
    if count <= PROBES or not (silent or now < pace[_BEGUN] + pace[_TIMEOUT]):
        return due
    # Slots that request partial results, or were overtaken, are always sent.
    taken = 0
    for row in range(count):
        slot = due[row]
        if timeout[slot] < 0 or _asking(first_sent[slot], 0, pace[_PARTIAL]) <= now:
            due[row], due[taken] = due[taken], slot
            taken += 1
    # Then the oldest chunks of the others.
    probes = min(taken + PROBES, count)
    for position in range(taken, probes):
        oldest = position + np.argmin(chunk[due[position:]])
        due[position], due[oldest] = due[oldest], due[position]
    # The rest wait for a result, or until results have arrived for one timeout.
    for slot in due[probes:]:
        if silent:
            resend_at[slot] = _next_asking(first_sent[slot], now, pace[_PARTIAL])
            if not held[slot]:
                held[slot] = True
                pace[_HELD] += 1
        else:
            resend_at[slot] = pace[_BEGUN] + pace[_TIMEOUT]
    return due[:probes]


# ------------------------------------------------------------------ for callers in Python


class SlotTimers:
    """The timers of a worker's slots. The timers of a slot that waits for nothing are stopped.

    While no results arrive, only the ``PROBES`` oldest chunks are sent again: the peers may not
    have begun yet. The others wait for the first result, and one timeout longer. So do chunks that
    are due when results have only begun to arrive. Chunks overtaken by later ones
    (``Timing.reordering``) are always sent again, since results do arrive.

    Args:
        window: how many slots.
        timing: the timeouts.
        in_order: results arrive in the order in which chunks were sent.

    Attributes:
        round_trip: the measured round trip.
        state: the arrays, for compiled code.
        sends, first_sent, timeout, resend_at, give_up_at: some of them.
    """

    def __init__(self, window: int, timing: Timing, *, in_order: bool = True) -> None:
        self.round_trip = RoundTrip(timing, in_order=in_order)
        self.sends = np.zeros(window, np.int32)
        self.first_sent = np.zeros(window)
        self.timeout = np.zeros(window)
        self.resend_at = np.full(window, np.inf)
        self.give_up_at = np.full(window, np.inf)
        self.state: TimerState = (
            self.sends,
            self.first_sent,
            np.zeros(window),
            self.timeout,
            self.resend_at,
            self.give_up_at,
            np.zeros(window, np.bool_),
            self.round_trip.pace,
        )

    def start(self, chunk: Slots, slots: Slots, now: float, last: int) -> None:
        """As ``start``."""
        start(self.state, chunk, slots, now, last)

    def again(self, slots: Slots, now: float) -> None:
        """As ``send_again``."""
        if len(slots):
            send_again(self.state, slots, now)

    def heard(self, now: float, waited: float) -> None:
        """As ``hear``."""
        hear(self.state, now, waited)

    def due(self, chunk: Slots, now: float) -> Slots:
        """As ``take_due``."""
        found: Slots = take_due(self.state, chunk, now)
        return found

    def impatience(self, slots: Slots, now: float) -> NDArray[np.uint8]:
        """As ``impatience``."""
        levels: NDArray[np.uint8] = impatience(self.state, slots, now)
        return levels

    def has_given_up(self, now: float) -> bool:
        """Whether a chunk has waited too long."""
        return bool(self.give_up_at.min() <= now)

    def next_deadline(self) -> float:
        """When the results of ``due`` or ``has_given_up`` next change; infinity for never."""
        return float(next_deadline(self.state))

    def silence(self, now: float) -> float | None:
        """Seconds since the last result; None if there was none."""
        heard = float(self.round_trip.pace[_HEARD])
        return None if heard == -math.inf else now - heard

    def waited(self, slot: int, now: float) -> float:
        """Seconds since the slot's chunk was first sent."""
        return now - float(self.first_sent[slot])
