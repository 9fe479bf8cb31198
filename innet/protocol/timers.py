"""When a chunk is sent again, asked for as it is, or given up: one timer per slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.protocol.settings import Timing

Slots = NDArray[np.int64]

# RFC 6298, section 2: the weights of a new measurement, and how many deviations to wait.
_ALPHA, _BETA, _K = 1 / 8, 1 / 4, 4

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


class SlotTimers:
    """The timers of a worker's slots. A slot whose timers do not run waits for nothing.

    Args:
        window: how many slots.
        timing: how patient they are.

    Attributes:
        round_trip: what the slots have measured.
        sends: shape (window,): how often the slot's chunk was sent.
    """

    def __init__(self, window: int, timing: Timing) -> None:
        self.round_trip = RoundTrip(timing)
        self.sends = np.zeros(window, np.int32)
        self._timing = timing
        self._first_sent = np.zeros(window)
        self._timeout = np.zeros(window)
        self._resend_at = np.full(window, np.inf)  # infinity where the timers do not run
        self._give_up_at = np.full(window, np.inf)

    def start(self, slots: Slots, now: float) -> None:
        """The chunks in ``slots`` are sent for the first time."""
        self.sends[slots] = 1
        self._first_sent[slots] = now
        self._timeout[slots] = self.round_trip.timeout
        self._give_up_at[slots] = now + self._timing.give_up
        self._resend_at[slots] = now + self._until_next(slots, now)

    def again(self, slots: Slots, now: float) -> None:
        """They are sent once more, and wait longer than before."""
        timing = self._timing
        self.sends[slots] += 1
        longer = np.minimum(self._timeout[slots] * timing.backoff, timing.max_timeout)
        self._timeout[slots] = longer
        self._resend_at[slots] = now + self._until_next(slots, now)

    def stop(self, slots: Slots, now: float) -> None:
        """Their results are there."""
        once = self.sends[slots] == 1
        if once.any():
            # One measurement for all that came together, the longest: their mean would hide it.
            self.round_trip.measured(now - float(self._first_sent[slots[once]].min()))
        self._resend_at[slots] = np.inf
        self._give_up_at[slots] = np.inf

    def due(self, now: float) -> Slots:
        """Slots whose chunk is to be sent again."""
        return np.flatnonzero(self._resend_at <= now)

    def impatience(self, slots: Slots, now: float) -> NDArray[np.uint8]:
        """How many levels of switches are to close ``slots`` without those who are late, 0 .. 4."""
        after = self._timing.partial_after
        if after is None:
            return np.zeros(len(slots), np.uint8)
        over = now - (self._first_sent[slots] + after)
        levels: NDArray[np.float64] = np.floor(over / (after / 2)) + 1
        return np.clip(levels, 0, MAX_IMPATIENCE).astype(np.uint8)

    def has_given_up(self, now: float) -> bool:
        """Whether a chunk has waited too long."""
        return bool(self._give_up_at.min() <= now)

    def next_deadline(self) -> float:
        """When ``due`` or ``has_given_up`` have something new to say; infinity for never."""
        return float(min(self._resend_at.min(), self._give_up_at.min()))

    def waited(self, slot: int, now: float) -> float:
        """Seconds since the slot's chunk was first sent."""
        return now - float(self._first_sent[slot])

    def _until_next(self, slots: Slots, now: float) -> NDArray[np.float64]:
        wait: NDArray[np.float64] = self._timeout[slots]
        after = self._timing.partial_after
        if after is None:
            return wait
        for level in range(MAX_IMPATIENCE):
            asking = self._first_sent[slots] + after * (1 + level / 2) - now
            wait = np.where(asking > 0, np.minimum(wait, asking), wait)
        return wait
