"""Fast-forward: an all-reduce that repeats itself is simulated once, and its periods are added.

A job alone on a lossless network does the same again and again: chunk after chunk takes the same
way, shifted in time. ``FastForward`` looks at the whole state of a simulation a few times in a run.
Where it is the state of an earlier look, but for the time, the numbers of chunks and what only
counts, all that follows is what followed then. The state is moved on by as many periods as leave
the end to be simulated, and whoever goes on with the run sees no difference.

Of each word of the state this module says how it may differ between two looks (``_Change``). What
does not fit is no period. Workers' clocks are floats of seconds: those that stand for whole
picoseconds are compared and moved as such. Smoothed round trips are not compared, as they decide
only when a chunk is sent again. So nothing may have waited for as long as the shortest time-out
within a period, and many chunks are left to be simulated: each takes an eighth of what earlier ones
have left in a mean (RFC 6298, section 2), until no bit of it is left.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.protocol.counters import Stats
from innet.protocol.slot_client import ClientState, SlotClient, SlotState
from innet.protocol.timers import (
    PACE_BEGUN,
    PACE_GIVE_UP,
    PACE_HEARD,
    PACE_LEAST,
    PACE_LONGEST,
    PACE_OVERTAKEN,
    PACE_REORDERING,
    PACE_TIMEOUT,
)
from innet.sim.network import SECOND
from innet.sim.state import REACHED
from innet.switch import Switch
from innet.switch.engine import Statistics
from innet.switch.inline import TRAFFIC_ENTRIES, InlineQueues, InlineQueueSwitch
from innet.switch.jit.runtime.queue import (
    AT,
    DEPARTURE,
    ENQUEUED,
    ENTRY_WORDS,
    NUMBER,
    ORIGIN,
    RANK,
    SIZE,
)
from innet.switch.jit.runtime.queue import SLOT as SLOT_WORD
from innet.switch.traffic_manager import (
    BYTES_MAX,
    FOREVER,
    FREE,
    LAST_DEPARTURE,
    LOOP_FREE,
    MARKED,
    PRECEDED,
    QUEUE_WORDS,
    SWITCH_WORDS,
    TRAFFIC_WORDS,
)
from innet.wire import PacketLayout
from innet.wire.layout import HEADER, offset_of

_WINDOWS = 1 << 14  # of one call of compiled code
_SETTLED = 512  # chunks after which nothing is left of older ones in a mean: (7/8)**512 < 1e-29
_MARKS = 16  # in a round, at most
_WATCHED, _WATCHED_AGAIN = 7, 3  # rounds: the first ones, and those after 8, 16, 32, ...
_SERIALS = 1 << 32  # sequence numbers
_ONES = 0xFFFF  # sums of RFC 1071 are modulo this
_LATEST = 1 << 50  # picoseconds, up to which floats of seconds tell them apart
_ROUNDING = 1e-9  # of such floats
_FIRST_CHUNK = 4  # of innet.protocol.compiled.MemberWords
_PACKETS = 2  # among ``FastForward._words``: those on links
_STATISTICS = [field.name for field in fields(Statistics)]
_MOVED = (DEPARTURE, ENQUEUED, RANK, SLOT_WORD)  # words of entries that differ


class _Change(enum.Enum):
    """How a word may differ between two looks that are a period apart."""

    STILL = enum.auto()  # not at all
    TIME = enum.auto()  # by the period; or it was over at the first look, and has not changed
    COUNT = enum.auto()  # by anything, and by as much in each further period


class _WorkersLook(NamedTuple):
    """The workers' clients.

    Attributes:
        chunk, state, sends: (workers, window): of each slot.
        sent: (workers, window): when it was sent first, picoseconds.
        heard: (workers, 2): when the last result came, and the first one after a silence.
        stats: (workers, Stats.LENGTH).
    """

    chunk: NDArray[np.int64]
    state: NDArray[np.uint8]
    sends: NDArray[np.int32]
    sent: NDArray[np.int64]
    heard: NDArray[np.int64]
    stats: NDArray[np.int64]


class _LinkPackets(NamedTuple):
    """The packets on all links, by link, then in the order in which they arrive.

    Attributes:
        links: (n,): the link of each.
        slots: (n,) SLOT, and ``data``, (n, stride) uint8: what stands there.
    """

    links: NDArray[np.int64]
    slots: NDArray[Any]
    data: NDArray[np.uint8]


class _WaitingPackets(NamedTuple):
    """What waits in the queues of a switch's program, in the order in which it leaves.

    Attributes:
        order: (n,): places in the heap.
        entries: (n, ENTRY_WORDS) of the heap.
        rows: (n, words): the packets' rows in the pool.
        data: (n, bytes) uint8: the packets as they came.
    """

    order: NDArray[np.int64]
    entries: NDArray[np.int64]
    rows: NDArray[np.int64]
    data: NDArray[np.uint8]


class _SwitchLook(NamedTuple):
    """A switch.

    Attributes:
        now: when something happened last, picoseconds.
        counts: its ``Statistics``.
        cells: its registers, by name.
        waiting: what waits in its queues.
    """

    now: int
    counts: NDArray[np.int64]
    cells: dict[str, NDArray[Any]]
    waiting: _WaitingPackets


class _StateLook(NamedTuple):
    """The state at a moment, picoseconds; ``words`` are those of ``FastForward._words``."""

    now: int
    words: list[NDArray[np.int64]]
    workers: _WorkersLook
    switches: list[_SwitchLook]
    packets: _LinkPackets


class Forwarded(NamedTuple):
    """What was skipped.

    Attributes:
        periods: how many.
        packets: on links in them.
        why: why nothing was skipped; "" where something was.
    """

    periods: int = 0
    packets: int = 0
    why: str = ""


class FastForward:
    """Skips what repeats itself in a simulation in which nothing but one exchange happens.

    Args:
        memory: the arrays of the simulation.
        switches: all, which run programs.
        running: their programs.
        layout: of all packets.
        sequences: name of the register of the switches' program whose cells hold the sequence
            number of the chunk in a slot and version, in their low 32 bits. Its other registers of
            this size have a cell for each slot and version too, the version in the lowest bit.
        ends: the workers' clients, which have begun.
        states: what they have handed over.

    Attributes:
        is_due: it is time for ``look``.
    """

    def __init__(
        self,
        memory: Any,
        switches: Sequence[Switch],
        running: Sequence[InlineQueueSwitch],
        layout: PacketLayout,
        *,
        sequences: str,
        ends: Sequence[SlotClient],
        states: Sequence[ClientState],
    ) -> None:
        self._memory, self._switches, self._running = memory, switches, running
        self._sequences = sequences
        header = layout.values_offset - HEADER.itemsize
        self._at_sequence = header + offset_of("sequence")
        self._at_slot = header + offset_of("slot")
        self._at_version = header + offset_of("slot_version")
        self._at_checksum = header + offset_of("checksum")
        self._periods_skipped = self._packets_skipped = self._now = 0
        self._ends, self._states = ends, states
        self._slots = [each.slots[0] for each in states]
        self._timers = [each.slots[1] for each in states]
        self._window = len(self._slots[0][0])
        self._grain = max(1, self._window // _MARKS)
        # Chunks of one operation and size follow each other from one of the bounds to the next.
        operation, elements, *_ = states[0].chunks
        changes = (operation[1:] != operation[:-1]) | (elements[1:] != elements[:-1])
        self._base = int(states[0].terms[1][_FIRST_CHUNK])
        self._chunks = len(operation)
        bounds = np.array([0, *np.flatnonzero(changes) + 1, len(operation)])
        self._bounds = self._base + bounds
        self._why = ""  # a period was not skipped
        self._restart()

    def _restart(self) -> None:
        """Look for a period from now on."""
        self._begun_at = self._newest()
        self._moment, self._mark, self._target = 0, -1, -1
        self._signs: dict[int, int] = {}
        self._lag = self._least = self._grain
        self._tried_in = -1
        self._kept: _StateLook | None = None
        self._is_over = self.is_due = False

    def _newest(self) -> int:
        """The last chunk that the first worker has sent."""
        return int(self._slots[0][0].max())

    def added_to(self, earlier: Forwarded) -> Forwarded:
        """What was skipped earlier and now; why nothing was now."""
        found = self._periods_skipped
        return Forwarded(
            earlier.periods + found,
            earlier.packets + self._packets_skipped,
            "" if found else self._why or f"no state came again in {self._chunks} chunks",
        )

    # ------------------------------------------------------------------ when to look

    def advance(self, run: Callable[[int], int]) -> int:
        """Let time pass; returns why it does not go on, as ``windows.run``.

        States are compared at marks: a fixed time after the first worker has sent a chunk whose
        number is a multiple of ``_grain``. Where times of links and hosts at a mark are those of an
        earlier one, the whole state is looked at there and as many chunks later.

        Args:
            run: lets so many windows pass, or those up to the limit of the STATE.
        """
        if self._is_over:
            return run(_WINDOWS)
        if self._moment == 0:
            # A round takes two windows or more, as packets go to a switch and back.
            before = self._newest()
            left = self._rounds_left((before - self._begun_at) // self._window)
            why = run(max(1, 2 * left - 1))
            self._mark = self._mark_since(before) if why == REACHED and left == 0 else -1
            if self._mark < 0:
                return why
            # It is after the window that has passed, as the chunk was sent in that.
            sent = self._timers[0][1][self._mark % self._window :][:1]
            self._moment = int(_picoseconds(sent)[0]) + int(self._memory.state["lookahead"])
        self._memory.state["limit"] = self._moment
        why = run(_WINDOWS)
        if why == REACHED and int(self._memory.nodes.min()) >= self._moment:
            self.is_due = self._is_to_be_looked_at()
            self._now, self._moment = self._moment, 0
        return why

    def _rounds_left(self, passed: int) -> int:
        """In how many rounds marks count again: in the first ones, and in some after 8, 16, ..."""
        latest = 1 << max(0, passed.bit_length() - 1)
        is_watched = self._target >= 0 or passed < _WATCHED or passed - latest < _WATCHED_AGAIN
        return 0 if is_watched else 2 * latest - passed

    def _mark_since(self, before: int) -> int:
        """The mark among the chunks that were sent after ``before``; -1: there is none."""
        newest = self._newest()
        if self._target >= 0:
            if self._target <= before:  # a window was interrupted
                self._kept, self._target = None, -1
            return self._target if self._target <= newest else -1
        # Of several, one that is a multiple of more: it comes again for certain.
        step = 2 * self._window
        while newest // step * step <= before and step > self._grain:
            step //= 2
        mark = newest // step * step
        return mark if mark > before else -1

    def _is_to_be_looked_at(self) -> bool:
        """Whether the whole state is to be kept or compared now, at a mark."""
        if self._mark == self._target:
            return True
        sign = self._signs[self._mark] = self._sign()
        # Round trips of the first chunks are not measured. And a look takes time, so that there is
        # one period in a round at most, after each that was none a longer one.
        passed = (self._mark - self._begun_at) // self._window
        is_early = int(self._slots[0][0].min()) < self._base + self._window
        if is_early or self._tried_in == passed:
            return False
        lag = self._least
        while lag < 2 * self._window and self._signs.get(self._mark - lag) != sign:
            lag *= 2
        if self._signs.get(self._mark - lag) != sign:
            return False
        self._tried_in, self._lag = passed, lag
        return True

    def _sign(self) -> int:
        """A number that is the same wherever the state is, and cheaper than that."""
        links, hosts = self._memory.links, self._memory.hosts
        found = [np.maximum(each["free"] - self._moment, 0) for each in (links, hosts)]
        found.append(links["tail"] - links["head"])
        for switch in self._switches:  # each cell must have been used in this exchange
            serials = switch.registers[self._sequences].astype(np.uint32)
            found.append(np.count_nonzero(serials > self._base, keepdims=True))
        return hash(b"".join(each.tobytes() for each in found))

    def look(self, begun: Sequence[InlineQueues]) -> None:
        """Keep the state, or compare it with the one that was kept, and skip what repeats itself.

        Args:
            begun: what the switches' programs had begun, which has ended.
        """
        self.is_due = False
        here, kept = self._state(begun), self._kept
        if kept is None:
            self._kept = here
            if any(len(each.waiting.order) for each in here.switches):
                self._lag = 2 * self._window  # such packets keep slot and version
            self._target = self._mark + self._lag
            for timers in self._timers:
                timers[7][PACE_LONGEST] = timers[7][PACE_OVERTAKEN] = 0
            return
        self._kept, self._target = None, -1
        self._least = 2 * self._lag if self._lag < 2 * self._window else self._grain
        if not self._is_period(kept, here, begun):
            return
        if self._may_expire(kept, here):
            self._why = "chunks wait for nearly as long as their time-outs"
            return
        self._skip(kept, here, begun)

    # ------------------------------------------------------------------ the state

    def _words(self, begun: Sequence[InlineQueues]) -> Iterator[tuple[_Change, NDArray[np.int64]]]:
        """All words of links, hosts, queues and counters, as they stand in memory."""
        memory = self._memory
        for name in ("head", "tail", "packets", "bytes", "busy"):
            yield _Change.COUNT, memory.links[name]
        yield _Change.TIME, memory.links["free"]
        for name in ("lost", "full", "is_faulty", "is_traced"):
            yield _Change.STILL, memory.links[name]
        for name in ("worked", "sent", "received", "bytes", "answers"):
            yield _Change.COUNT, memory.hosts[name]
        for name in ("free", "late", "paced", "start", "flow"):
            yield _Change.TIME, memory.hosts[name]
        for name in ("kind", "group", "drawn", "is_open", "is_closing", "waiting", "resent"):
            yield _Change.STILL, memory.hosts[name]
        for name in ("batch", "waiting", "unconnected", "dropped", "is_recorded"):
            yield _Change.STILL, memory.switches[name]
        for switch, program in zip(self._switches, begun, strict=True):
            yield from _words_of(switch, program)

    def _state(self, begun: Sequence[InlineQueues]) -> _StateLook:
        memory = self._memory
        words = [each.copy() for _, each in self._words(begun)]
        pace = np.array([each[7] for each in self._timers])
        workers = _WorkersLook(
            np.array([each[0] for each in self._slots]),
            np.array([each[1] for each in self._slots]),
            np.array([each[0] for each in self._timers]),
            _picoseconds(np.array([each[1] for each in self._timers])),
            _picoseconds(pace[:, [PACE_HEARD, PACE_BEGUN]]),
            np.array([each.notes[0] for each in self._states]),
        )
        switches = []
        for switch, program, running in zip(self._switches, begun, self._running, strict=True):
            counts = np.array([getattr(switch.statistics, name) for name in _STATISTICS])
            cells = {name: each.copy() for name, each in switch.registers.items()}
            waiting = _waiting(program, running, memory.data.shape[1])
            switches.append(_SwitchLook(switch.traffic_manager.now, counts, cells, waiting))
        links, rows = self._rows()
        packets = _LinkPackets(links, memory.slots[rows], memory.data[rows])
        return _StateLook(self._now, words, workers, switches, packets)

    def _rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each packet on a link: the link, and its slot."""
        wires = self._memory.links
        under_way = wires["tail"] - wires["head"]
        links = np.repeat(np.arange(len(wires)), under_way)
        before = np.cumsum(under_way) - under_way
        place = np.arange(len(links)) + (wires["head"] - before)[links]
        return links, wires["first"][links] + (place & wires["mask"][links])

    # ------------------------------------------------------------------ is it the same?

    def _is_period(self, a: _StateLook, b: _StateLook, begun: Sequence[InlineQueues]) -> bool:
        """Whether the state is that of an earlier look, shifted."""
        ticks, chunks = b.now - a.now, self._lag
        # Of the first chunks some are not measured.
        if b.now > _LATEST or int(a.workers.chunk.min()) < self._base + self._window:
            return False
        return (
            self._are_words_alike(a, b, ticks, begun)
            and self._are_workers_alike(a, b, ticks, chunks)
            and all(
                self._is_switch_alike(here, there, ticks, chunks)
                for here, there in zip(a.switches, b.switches, strict=True)
            )
            and self._are_packets_alike(a.packets, b.packets, ticks, chunks)
        )

    def _are_words_alike(
        self, a: _StateLook, b: _StateLook, ticks: int, begun: Sequence[InlineQueues]
    ) -> bool:
        for (kind, _), before, after in zip(self._words(begun), a.words, b.words, strict=True):
            if kind is _Change.STILL and not np.array_equal(before, after):
                return False
            if kind is _Change.TIME and not _have_passed(before, after, a.now, ticks):
                return False
        return True

    def _are_workers_alike(self, a: _StateLook, b: _StateLook, ticks: int, chunks: int) -> bool:
        before, after = a.workers, b.workers
        changes = after.stats - before.stats
        newest = changes[:, Stats.MARKED]
        return bool(
            (after.chunk - np.roll(before.chunk, chunks, axis=1) == chunks).all()
            and (before.state == SlotState.WAITING).all()
            and (after.state == SlotState.WAITING).all()
            and (before.sends == 1).all()
            and (after.sends == 1).all()
            and _have_passed(before.heard, after.heard, a.now, ticks)
            and (changes[:, [Stats.FLAGS, Stats.QUEUED]] == 0).all()
            and ((newest == 0) | (newest == chunks)).all()
        )

    def _sent(self, a: _StateLook, b: _StateLook, chunk: NDArray[np.int64]) -> NDArray[np.int64]:
        """When workers send chunks, in picoseconds, if they go on as between two looks.

        The chunks have the shape (workers, window). From each to one that was sent between the
        looks are as many as in a period, or a multiple of it.
        """
        # Of the chunks of a period, each has another rest.
        rests = min(self._lag, self._window)
        is_new = a.workers.chunk != b.workers.chunk
        new = b.workers.chunk[is_new].reshape(-1, rests)
        sent = b.workers.sent[is_new].reshape(-1, rests)
        by_rest, sent_by_rest = np.empty_like(new), np.empty_like(sent)
        np.put_along_axis(by_rest, new % rests, new, axis=1)
        np.put_along_axis(sent_by_rest, new % rests, sent, axis=1)
        found: NDArray[np.int64] = np.take_along_axis(sent_by_rest, chunk % rests, axis=1)
        further = chunk - np.take_along_axis(by_rest, chunk % rests, axis=1)
        found += further // self._lag * (b.now - a.now)
        return found

    def _may_expire(self, a: _StateLook, b: _StateLook) -> bool:
        """Whether a worker's timer may expire if all go on as between two looks."""
        pace = np.array([each[7] for each in self._timers])
        least = np.minimum(pace[:, PACE_TIMEOUT], pace[:, PACE_LEAST])
        overtaken = np.where(pace[:, PACE_OVERTAKEN] > 0, pace[:, PACE_REORDERING], np.inf)
        shortest = np.minimum(np.minimum(least, overtaken), pace[:, PACE_GIVE_UP])
        longest = pace[:, PACE_LONGEST]
        chunk, sent = b.workers.chunk, b.workers.sent
        if self._lag <= self._window:
            # A result has come when the slot's next chunk is sent.
            longest = (self._sent(a, b, chunk + self._window) - sent).max(axis=1) / SECOND
        elif (sent - a.workers.sent != b.now - a.now).any():
            return True
        return bool((longest >= shortest * (1 - _ROUNDING)).any())

    def _is_switch_alike(self, a: _SwitchLook, b: _SwitchLook, ticks: int, chunks: int) -> bool:
        if b.now - a.now not in {0, ticks}:
            return False
        part = self._part_used(a, b)
        for name, cells in a.cells.items():
            before, after = cells, b.cells[name]
            if len(cells) == len(a.cells[self._sequences]):
                before = self._turned(cells, part, chunks)
            if name == self._sequences:
                if not self._are_cells_further(before, after, chunks):
                    return False
            elif not np.array_equal(before, after):
                return False
        waits = len(a.waiting.order) + len(b.waiting.order) > 0
        if waits and chunks % (2 * self._window) != 0:
            return False
        return _wait_alike(a.waiting, b.waiting, ticks, chunks) and self._are_bytes_alike(
            a.waiting.data, b.waiting.data, chunks
        )

    @staticmethod
    def _are_cells_further(before: NDArray[Any], after: NDArray[Any], chunks: int) -> bool:
        """Whether sequence numbers are further by so many chunks, or as they were."""
        low, high = before.astype(np.uint64), after.astype(np.uint64)
        grown = high - low
        return bool(((grown == 0) | (grown == chunks)).all() and (low >> 32 == high >> 32).all())

    def _part_used(self, a: _SwitchLook, b: _SwitchLook) -> slice:
        """The cells of the job's slots, as far as one was used since; empty if none was."""
        used = np.flatnonzero(a.cells[self._sequences] != b.cells[self._sequences])
        cells = 2 * self._window
        begin = int(used[0]) // cells * cells if len(used) else 0
        return slice(begin, begin + cells if len(used) else 0)

    def _turned(self, cells: NDArray[Any], part: slice, chunks: int) -> NDArray[Any]:
        """Cells with those in ``part`` in the places of chunks that come so much later.

        Slots are used one after the other, all in one version, then all in the other.
        """
        found = cells.copy()
        if part.stop > 0:
            turn = cells[part].reshape(-1, 2).T.reshape(-1)
            found[part] = np.roll(turn, chunks).reshape(2, -1).T.reshape(-1)
        return found

    def _are_packets_alike(self, a: _LinkPackets, b: _LinkPackets, ticks: int, chunks: int) -> bool:
        if not np.array_equal(a.links, b.links):
            return False
        for name in ("flow", "length", "carried"):
            if not np.array_equal(a.slots[name], b.slots[name]):
                return False
        for name in ("time", "begun"):
            if (b.slots[name] - a.slots[name] != ticks).any():
                return False
        if (a.slots["flow"] != -1).any() or (a.slots["carried"] != a.data.shape[1]).any():
            return False
        return self._are_bytes_alike(a.data, b.data, chunks)

    def _are_bytes_alike(self, a: NDArray[np.uint8], b: NDArray[np.uint8], chunks: int) -> bool:
        """Whether packets are the same, but of chunks that are further."""
        if (self._serials(b) - self._serials(a) != chunks).any():
            return False
        changes = a ^ b
        for data in (a, b):  # slot and version are those of the chunk
            if (self._chunk_words(self._serials(data)) != self._words_of_chunk(data)).any():
                return False
        changes[:, self._at_sequence : self._at_version + 1] = 0
        changes[:, self._at_checksum : self._at_checksum + 2] = 0
        return not changes.any()

    def _serials(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The sequence numbers of packets."""
        at = self._at_sequence
        found = np.ascontiguousarray(data[:, at : at + 4]).view(">u4")[:, 0]
        return found.astype(np.int64)

    def _words_of_chunk(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Slot and version that packets have: (n, 2)."""
        slots = _words_at(data, self._at_slot, 1)[:, 0]
        return np.stack([slots, data[:, self._at_version]], axis=1)

    def _chunk_words(self, serials: NDArray[np.int64]) -> NDArray[np.int64]:
        """Slot and version of chunks: (n, 2)."""
        chunks = serials - 1
        return np.stack([chunks % self._window, chunks // self._window & 1], axis=1)

    # ------------------------------------------------------------------ periods that are skipped

    def _periods(self, first: int, last: int, chunks: int) -> int:
        """How many periods may be skipped, so that none sees a chunk unlike the others.

        The one that was seen has chunks ``first`` to ``last``, and lets so many ``chunks`` follow.
        """
        end = int(self._bounds[np.searchsorted(self._bounds, first, "right")])
        if end >= _SERIALS - self._window:  # sequence numbers would begin again
            return 0
        settled = int(self._bounds[-1]) - max(1, _SETTLED - self._window)
        return max(0, (min(end, settled) - 1 - last) // chunks)

    def _skip(self, a: _StateLook, b: _StateLook, begun: Sequence[InlineQueues]) -> None:
        chunks, last = self._lag, int(b.workers.chunk.max())
        periods = self._periods(int(a.workers.chunk.min()), last, chunks)
        if periods * chunks < self._window:  # chunks sent before the period would still wait
            periods = 0
        if periods > 0:
            self._move(a, b, begun, periods)
        self._why = "" if periods else "a period is longer than what is left"
        # Behind chunks of another size or operation there may be others that are alike.
        self._restart()
        left = int(self._bounds[-1]) - last - periods * chunks
        self._is_over = left < 4 * self._window + _SETTLED

    def _move(
        self, a: _StateLook, b: _StateLook, begun: Sequence[InlineQueues], periods: int
    ) -> None:
        """Let the state be what it is so many periods later."""
        later, further = periods * (b.now - a.now), periods * self._lag
        memory = self._memory
        # Step 1: times and counts of links, hosts and queues.
        self._periods_skipped += periods
        self._packets_skipped += periods * int((memory.links["packets"] - a.words[_PACKETS]).sum())
        for (kind, word), before, after in zip(self._words(begun), a.words, b.words, strict=True):
            if kind is not _Change.STILL:
                np.add(word, periods * (after - before), out=word)
        timer = memory.hosts["timer"]
        timer[timer < FOREVER] = b.now + later  # hosts look at their timers anew
        for name in ("begin", "end"):
            memory.state[name] += later
        # Step 2: workers and switches.
        chunk = np.roll(b.workers.chunk + further, further, axis=1)
        sent = self._sent(a, b, chunk)
        for index, end in enumerate(self._ends):
            self._slots[index][0][:] = chunk[index]
            self._move_timers(index, a.workers, b.workers, periods, sent[index] / SECOND, later)
            first = int(b.workers.chunk[index].min()) - self._base
            end.note_skipped(first, first + further)
        for index in range(len(self._switches)):
            self._move_switch(index, a.switches[index], b.switches[index], begun[index], periods)
        # Step 3: packets on links, which have other places in their rings.
        _, rows = self._rows()
        slots, data = b.packets.slots, b.packets.data
        for name in ("time", "begun"):
            slots[name] += later
        self._renumber(data, further)
        memory.slots[rows], memory.data[rows] = slots, data

    def _move_timers(  # noqa: PLR0917 - one caller
        self,
        index: int,
        a: _WorkersLook,
        b: _WorkersLook,
        periods: int,
        sent: NDArray[np.float64],
        later: int,
    ) -> None:
        """Let a worker's timers be further: those that stand for whole picoseconds become what they
        would have been, and those that follow from them likewise.
        """
        _, first_sent, last_sent, timeout, resend_at, give_up_at, _, pace = self._timers[index]
        timeout[:] = np.roll(np.abs(timeout), periods * self._lag)
        first_sent[:] = last_sent[:] = sent
        resend_at[:] = sent + timeout
        give_up_at[:] = sent + pace[PACE_GIVE_UP]
        for at, before, after in zip(
            (PACE_HEARD, PACE_BEGUN), a.heard[index].tolist(), b.heard[index].tolist(), strict=True
        ):
            if after != before:
                pace[at] = (after + later) / SECOND
        stats = self._states[index].notes[0]
        stats += periods * (b.stats[index] - a.stats[index])

    def _move_switch(
        self,
        index: int,
        before: _SwitchLook,
        after: _SwitchLook,
        begun: InlineQueues,
        periods: int,
    ) -> None:
        switch, chunks, further = self._switches[index], self._lag, periods * self._lag
        manager = switch.traffic_manager
        manager.now += periods * (after.now - before.now)
        switch.state.clock = manager.clock(manager.now)
        grown = after.counts + periods * (after.counts - before.counts)
        for name, count in zip(_STATISTICS, grown.tolist(), strict=True):
            setattr(switch.statistics, name, count)
        # Step 1: registers.
        part = self._part_used(before, after)
        sequences = switch.registers[self._sequences]
        grows = sequences != self._turned(before.cells[self._sequences], part, chunks)
        sequences[grows] += sequences.dtype.type(further)
        for cells in switch.registers.values():
            if len(cells) == len(sequences):
                cells[:] = self._turned(cells, part, further)
        # Step 2: what waits.
        waiting = after.waiting
        if len(waiting.order) == 0:
            return
        entries = begun.waiting[: len(waiting.order) * ENTRY_WORDS].reshape(-1, ENTRY_WORDS)
        for word in (DEPARTURE, ENQUEUED, RANK):
            moved = waiting.entries[:, word] - before.waiting.entries[:, word]
            entries[waiting.order, word] += periods * moved
        pool, width = self._running[index].pool
        rows = pool.reshape(-1, width)
        moved = waiting.rows - before.waiting.rows
        moved[:, ORIGIN] = 0
        found = waiting.rows + periods * moved
        is_sum = (moved != 0) & (moved != chunks) & (np.arange(width) != NUMBER)
        found[is_sum] = (waiting.rows[is_sum] - further) % _ONES
        slots = waiting.entries[:, SLOT_WORD]
        rows[slots] = found
        self._renumber(waiting.data, further)
        self._running[index].store[slots, : waiting.data.shape[1]] = waiting.data

    def _renumber(self, data: NDArray[np.uint8], further: int) -> None:
        """Let packets be those of other chunks (RFC 1624, equation 3)."""
        begin, words = self._at_sequence, (self._at_version + 2 - self._at_sequence) // 2
        total = _ONES - _words_at(data, self._at_checksum, 1)[:, 0]
        total += (_ONES - _words_at(data, begin, words)).sum(axis=1)
        serials = self._serials(data) + further
        slots = self._chunk_words(serials)
        for at, numbers, size in (
            (begin, serials, ">u4"),
            (self._at_slot, slots[:, 0], ">u2"),
            (self._at_version, slots[:, 1], "u1"),
        ):
            found = numbers.astype(size).reshape(-1, 1).view(np.uint8)
            data[:, at : at + found.shape[1]] = found
        total += _words_at(data, begin, words).sum(axis=1)
        for _ in range(2):
            total = (total & _ONES) + (total >> 16)
        found = (_ONES - total).astype(">u2").reshape(-1, 1).view(np.uint8)
        data[:, self._at_checksum : self._at_checksum + 2] = found


def _words_of(switch: Switch, program: InlineQueues) -> Iterator[tuple[_Change, NDArray[np.int64]]]:
    """The words of a switch's queues and counters."""
    for at, word in enumerate(TRAFFIC_WORDS):
        if word in _TRAFFIC:
            yield _TRAFFIC[word], program.traffic[at : at + 1]
    yield _Change.COUNT, program.received
    words = switch.traffic_manager.queues
    queues = words[:-SWITCH_WORDS].reshape(-1, QUEUE_WORDS)
    for at in range(QUEUE_WORDS):
        if at != BYTES_MAX:  # it stays what it is
            yield _QUEUE.get(at, _Change.STILL), queues[:, at]
    for at in range(1, SWITCH_WORDS + 1):
        kind = _Change.TIME if at == LOOP_FREE else _Change.STILL
        yield kind, words[len(words) - at :][:1]
    for counter in switch.state.counters:
        yield _Change.COUNT, counter.view(np.int64)
    yield _Change.STILL, switch.state.random_state.view(np.int64)


_TRAFFIC = {"made": _Change.COUNT} | dict.fromkeys(
    ("entries", "digested", "pending"), _Change.STILL
)
_QUEUE = dict.fromkeys((LAST_DEPARTURE, FREE), _Change.TIME)
_QUEUE |= dict.fromkeys((MARKED, PRECEDED), _Change.COUNT)


def _picoseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Times in whole picoseconds; infinite ones are beyond all others."""
    ticks = np.clip(seconds * SECOND, -FOREVER, FOREVER)
    return np.rint(ticks).astype(np.int64)


def _have_passed(before: NDArray[np.int64], after: NDArray[np.int64], now: int, ticks: int) -> bool:
    """Whether times are later by the period, or were over ``now`` and are as before."""
    grown = after - before
    over = (grown == 0) & ((before <= now) | (before >= FOREVER))
    return bool(((grown == ticks) | over).all())


def _words_at(data: NDArray[np.uint8], at: int, count: int) -> NDArray[np.int64]:
    """So many words of 16 bits of each packet, from byte ``at`` on: (n, count)."""
    found = np.ascontiguousarray(data[:, at : at + 2 * count]).view(">u2")
    return found.astype(np.int64)


def _waiting(program: InlineQueues, running: InlineQueueSwitch, size: int) -> _WaitingPackets:
    """What waits in a switch; packets have ``size`` bytes."""
    pool, width = running.pool
    count = int(program.traffic[TRAFFIC_ENTRIES])
    entries = program.waiting[: count * ENTRY_WORDS].reshape(-1, ENTRY_WORDS)
    order = np.lexsort((entries[:, RANK], entries[:, DEPARTURE]))
    entries = entries[order]
    slots = entries[:, SLOT_WORD]
    return _WaitingPackets(
        order, entries, pool.reshape(-1, width)[slots], running.store[slots, :size]
    )


def _wait_alike(a: _WaitingPackets, b: _WaitingPackets, ticks: int, chunks: int) -> bool:
    """Whether the same packets wait, of chunks that are further."""
    if len(a.order) != len(b.order) or len(a.order) == 0:
        return len(a.order) == len(b.order)
    # Step 1: entries. Copies of one packet share its slot, whichever it is.
    grown = b.entries - a.entries
    slots = np.stack([a.entries[:, SLOT_WORD], b.entries[:, SLOT_WORD]])
    kinds = {len(np.unique(slots[0])), len(np.unique(slots[1])), len(np.unique(slots, axis=1).T)}
    others = [at for at in range(ENTRY_WORDS) if at not in _MOVED]
    if (
        len(kinds) != 1
        or (grown[:, RANK] != grown[0, RANK]).any()
        or (grown[:, [DEPARTURE, ENQUEUED]] != ticks).any()
        or (grown[:, others] != 0).any()
    ):
        return False
    # Step 2: packets, of which a program's headers are all. A word is as before, or a sequence
    # number, or the checksum with which the packet came, and from which that number is taken.
    if (a.rows[:, SIZE] != a.rows[:, AT]).any() or (b.rows[:, SIZE] != b.rows[:, AT]).any():
        return False
    moved = b.rows - a.rows
    moved[:, [NUMBER, ORIGIN]] = 0
    is_sum = ((moved + chunks) % _ONES == 0) & (np.maximum(a.rows, b.rows) <= _ONES)
    return bool(((moved == 0) | (moved == chunks) | is_sum).all())
