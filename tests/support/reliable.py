"""Messages of the reliable transport over a bottleneck: an event loop in plain Python."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from innet.sim import transport as t
from innet.sim.network import SECOND


@dataclass
class Line:
    """One link for the segments of all messages, and a way back without a rate.

    Args:
        rate: bits per second. delay: seconds each way. queue: segments that wait, at most.
        mark: length of the queue from which on segments are marked.
        fate: of (is an acknowledgement, number): each copy's extra delay, in seconds.
    """

    settings: t.ReliableTransport
    rate: float = 10e9
    delay: float = 5e-6
    queue: int = 1 << 30
    mark: int = 1 << 30
    fate: Callable[[bool, int], list[float]] = lambda is_ack, number: [0.0]
    rows: int = 8
    now: int = 0
    done: dict[int, int] = field(default_factory=dict)
    complete: dict[int, int] = field(default_factory=dict)
    dropped: int = 0

    def __post_init__(self) -> None:
        self.rules = self.settings.rules
        self.rules = self.rules._replace(line_rate=round(self.rate))
        self.senders, self.receivers = t.make_rows(self.rules, self.rows)
        self._events: list[tuple] = []
        self._free = 0
        self._numbers = [0, 0]
        self._serial = 0
        self._waiting: list[int] = []  # when the segments in the queue will have left

    def begin(self, row: int, size: int, at: float = 0.0, resume=None) -> None:
        self._push(round(at * SECOND), "open", row, size, resume)

    def run(self, until: float = 1e4) -> None:
        """Until nothing happens any more; that must be before ``until``."""
        while self._events:
            self.now, _, kind, *subject = heapq.heappop(self._events)
            assert self.now < until * SECOND, "it hangs"
            getattr(self, "_" + kind)(*subject)

    def advance(self, until: float) -> None:
        """Until this time, with events left over."""
        while self._events and self._events[0][0] < until * SECOND:
            self.now, _, kind, *subject = heapq.heappop(self._events)
            getattr(self, "_" + kind)(*subject)

    def _push(self, time: int, *event) -> None:
        self._serial += 1
        heapq.heappush(self._events, (int(time), self._serial, *event))

    def _open(self, row, size, resume) -> None:
        t.open_sender(self.senders, self.rules, row, size, self.now)
        if resume is not None:
            t.resume(self.senders, row, resume, 0)
        self._send(row)

    def _send(self, row) -> None:
        flow = self.senders.state[row]
        while True:
            sequence, payload = t.segment_to_send(self.senders, self.rules, row, self.now)
            if sequence < 0:
                break
            assert 0 <= sequence < flow["segments"]
            self._line(
                row, int(flow["generation"]), int(flow["segments"]), sequence, payload, self.now
            )
        due = t.deadline(self.senders, self.rules, row)
        if due < t.FOREVER:
            self._push(max(due, self.now), "timer", row, int(flow["generation"]), due)

    def _line(self, *segment) -> None:
        self._waiting = [left for left in self._waiting if left > self.now]
        if len(self._waiting) >= self.queue:
            self.dropped += 1
            return
        marked = len(self._waiting) >= self.mark
        bits = 8 * (segment[4] + self.settings.header_bytes)
        self._free = max(self._free, self.now) + round(bits * SECOND / self.rate)
        self._waiting.append(self._free)
        for late in self._arrivals(is_ack=False):
            self._push(self._free + late, "segment", marked, *segment)

    def _arrivals(self, *, is_ack):
        number = self._numbers[is_ack]
        self._numbers[is_ack] += 1
        return [round((self.delay + each) * SECOND) for each in self.fate(is_ack, number)]

    def _segment(self, marked, row, generation, segments, sequence, payload, stamp) -> None:
        ack, flags = t.on_segment(
            self.receivers,
            self.rules,
            row,
            generation,
            segments,
            sequence,
            payload,
            marked,
            self.now,
        )
        if flags & t.COMPLETE:
            assert (row, generation) not in self.complete  # exactly once
            self.complete[row, generation] = self.now
            assert self.receivers.state[row]["bytes"] == self.senders.state[row]["size"]
        if ack >= 0:
            for late in self._arrivals(is_ack=True):
                self._push(self.now + late, "ack", row, generation, ack, sequence, flags, stamp)

    def _ack(self, row, generation, ack, sequence, flags, stamp) -> None:
        found = t.on_ack(
            self.senders, self.rules, row, generation, ack, sequence, flags, stamp, self.now
        )
        self._check(row)
        if found == t.DONE:
            assert (row, generation) in self.complete
            assert (row, generation) not in self.done
            self.done[row, generation] = self.now
        elif found == t.OPEN:
            self._send(row)

    def _timer(self, row, generation, due) -> None:
        if self.senders.state[row]["generation"] != generation:
            return
        if t.deadline(self.senders, self.rules, row) != due:
            return
        t.on_timeout(self.senders, self.rules, row, self.now)
        self._check(row)
        self._send(row)

    def _check(self, row) -> None:
        """Check that a sender's counters agree with its bitmap of acknowledged segments."""
        flow = self.senders.state[row]
        una, following = int(flow["una"]), int(flow["next"])
        capacity = 64 * self.senders.sacked.shape[1]
        bits = np.unpackbits(self.senders.sacked[row].view(np.uint8), bitorder="little")
        known = {s for s in range(una, following) if bits[s % capacity]}
        assert bits.sum() == len(known) == flow["sacked"]
        lost = [s for s in range(int(flow["resend"]), int(flow["lost_below"])) if s not in known]
        assert len(lost) == flow["lost"]
        if not self.rules.go_back_n:
            assert una <= flow["resend"] <= max(flow["lost_below"], una)
            assert flow["lost_below"] <= following
        assert following - una <= self.rules.window


def chance(seed, data=0.0, ack=0.0, duplicate=0.0, late=0.0):
    """Fates by chance: probabilities of loss, of a copy, and of up to 50 µs more."""
    rng = np.random.default_rng(seed)

    def fate(is_ack, number):
        if rng.random() < (ack if is_ack else data):
            return []
        copies = 2 if rng.random() < duplicate else 1
        return [rng.random() * 5e-5 if rng.random() < late else 0.0 for _ in range(copies)]

    return fate
