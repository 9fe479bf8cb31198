"""A worker's end as compiled code sees it that moves packets over a socket by itself."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.protocol.settings import Timing


class Stream(NamedTuple):
    """Arrays of a worker's end, in one all-reduce; see ``answers.take`` and ``chunks.fill``.

    Attributes:
        terms, slots, chunks, notes: what ``take`` wants.
        head: of frames.
        words: of all chunks, see ``fill``.
        timeouts: (window,) float64, of each slot; and when its chunk was sent last.
        patience: the time-out of a chunk that is sent for the first time; after how long it is
            given up; the time from which results end a silence, of which Python is told; how long
            one waits that later ones have overtaken, infinity where that makes no difference; and
            how long the all-reduce's last one waits when it is sent for the first time.
        waiting: how many chunks wait for their results.
        held: no chunk may be sent for the first time.
        halts: flags of results after which Python is asked before more is sent.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    words: NDArray[np.int32]
    timeouts: tuple[NDArray[np.float64], NDArray[np.float64]]
    patience: tuple[float, float, float, float, float]
    waiting: int
    held: bool
    halts: int


class Moved(NamedTuple):
    """What compiled code did with a ``Stream``: counts, and then times, infinity for none.

    Attributes:
        answers: packets that were.
        received: all that came.
        bytes: theirs.
        sent: frames of chunks whose turn had come.
        waiting: chunks that wait for their results now.
        first, end: from this one of the frames that were filled last to the one before that one,
            the socket has not taken them.
        lost: frames that the interface's queue had no room for.
        error: the number of the error that stopped it, or 0.
        since: answers have come since then without a silence.
        until: when the last of them came.
        now: the time at the end.
        silent_from: answers from then on end a silence.
        bound: no timer runs out before.
    """

    answers: int
    received: int
    bytes: int
    sent: int
    waiting: int
    first: int
    end: int
    lost: int
    error: int
    since: float
    until: float
    now: float
    silent_from: float
    bound: float


COUNTS = 9
"""So many numbers of a ``Moved`` are counts; those after them are times."""


# ----------------------------------------------------------------------------
# When a chunk is sent again, asked for as it is, or given up: one timer per slot.

Slots = NDArray[np.int64]

# RFC 6298, section 2: the weights of a new measurement, and how many deviations to wait.
_ALPHA, _BETA, _K = 1 / 8, 1 / 4, 4

PROBES = 8
"""So many chunks are sent again into a silence, and no more."""

MAX_IMPATIENCE = 4  # what two bits of the header can ask for: the leaves and three levels above


class RoundTrip:
    """The time from a chunk to its result, smoothed (RFC 6298, section 2).

    It contains the wait for the slowest worker, since a result comes once all are in.

    Attributes:
        mean: SRTT, seconds; None before the first measurement.
        deviation: RTTVAR, seconds.
        timeout: RTO: what a chunk that is sent for the first time waits.
    """

    def __init__(self, timing: Timing) -> None:
        self.mean: float | None = None
        self.deviation = 0.0
        self.timeout = timing.timeout
        self._timing = timing

    def measured(self, seconds: float) -> None:
        """Take up a measurement, of a chunk that was sent once only (Karn's algorithm)."""
        timing = self._timing
        if not timing.adaptive:
            return
        if self.mean is None:
            self.mean, self.deviation = seconds, seconds / 2
        else:
            error = abs(self.mean - seconds)
            self.deviation = (1 - _BETA) * self.deviation + _BETA * error
            self.mean = (1 - _ALPHA) * self.mean + _ALPHA * seconds
        least = min(timing.min_timeout, timing.timeout)
        self.timeout = min(max(self.mean + _K * self.deviation, least), timing.max_timeout)

    @property
    def probe(self) -> float:
        """How long the last chunk of an all-reduce waits before it is sent again."""
        timing = self._timing
        # Of a long way every last chunk would be sent twice, and then none is measured (Karn).
        unknown = timing.adaptive and self.mean is None
        if timing.tail_probe is None or unknown:
            return self.timeout
        return min(max(timing.tail_probe, 2 * (self.mean or 0.0)), self.timeout)


class SlotTimers:
    """The timers of a worker's slots. A slot whose timers do not run waits for nothing.

    Of chunks whose time-outs have passed in silence only the ``PROBES`` oldest are sent again: the
    others, whose peers may not have begun yet, wait for the first result that comes, and a time-out
    longer. So do those that were due while results had only begun to come. Those that later ones
    have overtaken (``Timing.reordering``) wait for nobody: results do come.

    Args:
        window: how many slots.
        timing: how patient they are.

    Attributes:
        round_trip: what the slots have measured.
        sends: shape (window,), int32: how often the slot's chunk was sent.
        first_sent: shape (window,), seconds: when it was sent first.
        resend_at: shape (window,), seconds: when it is sent again; infinity where nothing waits.
        give_up_at: likewise, when it has waited too long.
    """

    def __init__(self, window: int, timing: Timing) -> None:
        self.round_trip = RoundTrip(timing)
        self.sends = np.zeros(window, np.int32)
        self.first_sent = np.zeros(window)
        self.resend_at = np.full(window, np.inf)
        self.give_up_at = np.full(window, np.inf)
        self._timing = timing
        self._timeout = np.zeros(window)
        self._last_sent = np.zeros(window)
        self._held = np.empty(0, np.int64)  # slots that wait for a sign of life
        self._heard = -np.inf  # when the last result came
        self._begun = -np.inf  # since when results have come without a silence

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What compiled code sees and stops: ``sends`` and the attributes after it."""
        return self.sends, self.first_sent, self.resend_at, self.give_up_at

    @property
    def timeouts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shapes (window,): how long the slot's chunk waits, negative where it is overtaken, and
        when it was sent last; for compiled code that starts it.
        """
        return self._timeout, self._last_sent

    def start(self, slots: Slots, now: float, last: Slots | None = None) -> None:
        """The chunks in ``slots`` are sent for the first time.

        Args:
            slots: all of them.
            now: the time.
            last: that of the all-reduce's last chunk, if it is among them and results come in the
                order of the chunks.
        """
        self.sends[slots] = 1
        self.first_sent[slots] = now
        self._last_sent[slots] = now
        self._timeout[slots] = self.round_trip.timeout
        if last is not None:
            self._timeout[last] = self.round_trip.probe
        self.give_up_at[slots] = now + self._timing.give_up
        self.resend_at[slots] = now + self._until_next(slots, now)

    def again(self, slots: Slots, now: float) -> None:
        """They are sent once more, and wait longer than before."""
        if not len(slots):
            return
        timing = self._timing
        self.sends[slots] += 1
        self._last_sent[slots] = now
        longer = np.minimum(self._timeout[slots] * timing.backoff, timing.max_timeout)
        if timing.tail_probe is not None:  # where others are late, one is enough
            probes = self.sends[slots] == 2
            longer[probes] = np.maximum(longer[probes], self.round_trip.timeout)
        # That one packet was lost does not say that the round trip takes longer. Towards the end of
        # an all-reduce nothing is sent after it that would show that it was lost again.
        overtaken = self._overtaken(slots)
        self._timeout[slots] = np.where(overtaken, self.round_trip.probe, longer)
        self.resend_at[slots] = now + self._until_next(slots, now)

    @property
    def silent_from(self) -> float:
        """The time from which results are the first after a silence, or are waited for as such."""
        return -math.inf if len(self._held) else float(self._heard + self.round_trip.timeout)

    def heard(self, now: float, waited: float, since: float | None = None) -> None:
        """Results have come.

        Args:
            now: the time.
            waited: the longest wait of those among them that were sent once only (Karn's
                algorithm), for their mean would hide it; below 0 if there is none.
            since: when the first of them came, if they came one after the other.
        """
        since = now if since is None else since
        if since >= self._heard + self.round_trip.timeout:
            self._begun = since
        self._heard = now
        if waited >= 0:
            self.round_trip.measured(waited)
        if len(self._held):
            waiting = self._held[np.isfinite(self.give_up_at[self._held])]
            waiting = waiting[~self._overtaken(waiting)]
            self.resend_at[waiting] = now + self._until_next(waiting, now)
            self._held = self._held[:0]

    def due(self, now: float, chunk: Slots) -> Slots:
        """Slots whose chunk is to be sent again; those that are due and held back are put off.

        Args:
            now: the time.
            chunk: (window,): the chunk of each slot.
        """
        due = np.flatnonzero(self.resend_at <= now)
        timeout = self.round_trip.timeout
        silent = now >= self._heard + timeout
        if len(due) <= PROBES or not (silent or now < self._begun + timeout):
            return due
        # Each slot must ask for itself.
        asks = (self.impatience(due, now) > 0) | self._overtaken(due)
        patient = due[~asks]
        patient = patient[np.argsort(chunk[patient])]
        later = patient[PROBES:]
        if silent:
            self.resend_at[later] = self._next_asking(later, now)
            self._held = np.concatenate([self._held, later])
        else:
            self.resend_at[later] = self._begun + timeout
        return np.concatenate([due[asks], patient[:PROBES]])

    def impatience(self, slots: Slots, now: float) -> NDArray[np.uint8]:
        """How many levels of switches are to close ``slots`` without those who are late, 0 .. 4."""
        asked = np.zeros(len(slots), np.uint8)
        after = self._timing.partial_after
        if after is not None:
            for level in range(MAX_IMPATIENCE):
                asked += self._asking(slots, level, after) <= now
        return asked

    def has_given_up(self, now: float) -> bool:
        """Whether a chunk has waited too long."""
        return bool(self.give_up_at.min() <= now)

    def next_deadline(self) -> float:
        """When ``due`` or ``has_given_up`` have something new to say; infinity for never."""
        return float(min(self.resend_at.min(), self.give_up_at.min()))

    def waited(self, slot: int, now: float) -> float:
        """Seconds since the slot's chunk was first sent."""
        return now - float(self.first_sent[slot])

    def _overtaken(self, slots: Slots) -> NDArray[np.bool_]:
        """Which of them have been, since they were sent."""
        overtaken: NDArray[np.bool_] = self._timeout[slots] < 0
        return overtaken

    def _until_next(self, slots: Slots, now: float) -> NDArray[np.float64]:
        wait: NDArray[np.float64] = self._timeout[slots]
        if self._timing.partial_after is None:
            return wait
        return np.minimum(wait, self._next_asking(slots, now) - now)

    def _next_asking(self, slots: Slots, now: float) -> NDArray[np.float64]:
        """When ``slots`` ask the next level of switches; infinity for never."""
        moment = np.full(len(slots), np.inf)
        after = self._timing.partial_after
        if after is not None:
            for level in reversed(range(MAX_IMPATIENCE)):
                asking = self._asking(slots, level, after)
                moment = np.where(asking > now, asking, moment)
        return moment

    def _asking(self, slots: Slots, level: int, after: float) -> NDArray[np.float64]:
        """When ``slots`` ask one level of switches more than ``level``. For all who want to know:
        another formula rounds otherwise, and whoever was woken for a level would not ask it.
        """
        moment: NDArray[np.float64] = self.first_sent[slots] + after * (1 + level / 2)
        return moment
