"""A job's network in simulated time: the plan's links, switches and workers, driven by ``core``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StalledError
from innet.core.packets import PacketBatch
from innet.protocol import SlotClient, Timing
from innet.protocol.slot_client import Progress
from innet.sim import core
from innet.sim.core import (
    DELIVERED,
    DONE,
    EXPIRED,
    FAILED,
    FINISHED,
    HOST_ANSWERS,
    HOST_BYTES,
    HOST_RECEIVED,
    HOST_SENT,
    HOST_WAITING,
    IDLE,
    LINK_BUSY,
    LINK_BYTES,
    LINK_LOST,
    LINK_PACKETS,
    LOST,
    NEEDS_ROOM,
    NEEDS_SWITCH,
    OPEN,
    PACKETS,
    TIME,
    UNCONNECTED,
    Events,
    Hosts,
    Links,
    Pool,
    State,
    wire_time,
)
from innet.sim.network import SECOND, Network
from innet.switch import Switch
from innet.switch.engine import InlineQueueSwitch
from innet.switch.traffic_manager import FOREVER, PORTS
from innet.wire import Layout

_EVENTS = 1 << 22  # of one call of compiled code, after which Python handles Ctrl-C
_FIRST = 1 << 12  # events and packets that there is room for at first


TIMING = Timing(timeout=1e-3, min_timeout=1e-3)
"""Default timeouts of workers: a millisecond, as SwitchML has it (NSDI 2021, section 4)."""


class Cable(NamedTuple):
    """A link between a switch's port and a host, or another switch's port.

    Attributes:
        switch, port: one end.
        host: number of the host at the other end; None for a switch.
        other, other_port: that switch and its port.
    """

    switch: str
    port: int
    host: int | None
    other: str = ""
    other_port: int = 0


class Counts(NamedTuple):
    """What has happened in a simulated network.

    Attributes:
        ticks: picoseconds.
        packets, bytes: put onto links, over all of them; bytes with ``core.OVERHEAD``.
        lost: packets that were lost on links.
        dropped: packets that found a queue full.
        unconnected: packets that left a switch by a port without a link.
        busy: of each class of links, picoseconds in which they were busy, and how many there are.
    """

    ticks: int
    packets: int
    bytes: int
    lost: int
    dropped: int
    unconnected: int
    busy: Mapping[str, tuple[int, int]]

    def since(self, earlier: Counts) -> Counts:
        """What has happened since ``earlier``."""
        return Counts(
            self.ticks - earlier.ticks,
            self.packets - earlier.packets,
            self.bytes - earlier.bytes,
            self.lost - earlier.lost,
            self.dropped - earlier.dropped,
            self.unconnected - earlier.unconnected,
            {
                name: (busy - earlier.busy[name][0], links)
                for name, (busy, links) in self.busy.items()
            },
        )


class Simulation:
    """Workers at switches, in simulated time.

    Args:
        network: rates, delays and queues.
        layout: of all packets.
        switches: by name, with their tables, which run compiled programs.
        cables: all links.
        workers: number of workers; they are the hosts 0, 1, ...
        seed: of losses.

    Attributes:
        now: seconds.

    Raises:
        InputError: an engine that does not run in compiled code.
    """

    def __init__(
        self,
        network: Network,
        layout: Layout,
        switches: Mapping[str, Switch],
        cables: Sequence[Cable],
        workers: int,
        *,
        seed: int = 0,
    ) -> None:
        self._switches = list(switches.values())
        number = {name: index for index, name in enumerate(switches)}
        links, ways = _links(network, number, cables)
        self._is_trunk = np.repeat([cable.host is None for cable in cables], 2)
        host_link = np.zeros(workers, np.int64)
        for index, cable in enumerate(cables):
            if cable.host is not None:
                host_link[cable.host] = 2 * index
        self._programs: Any = None
        self._clients: Any = None
        self._copies = PORTS
        self._running: list[InlineQueueSwitch] = []
        memories = []
        for switch, here in zip(self._switches, ways, strict=True):
            memory = PacketBatch(
                np.zeros((1, layout.frame_size), np.uint8),
                np.zeros(1, np.int32),
                np.zeros(1, np.int32),
            )
            running = switch.inline_queues(memory)
            if running is None:
                raise InputError(
                    "a network in simulated time runs compiled programs without ageing entries; "
                    "choose the engine jit."
                )
            memories.append((memory.data, memory.length, memory.port))
            self._running.append(running)
            for port in np.flatnonzero(here >= 0).tolist():
                interval = int(wire_time(layout.frame_size, int(links.rate[here[port]])))
                switch.traffic_manager.set_interval(interval, port)
                switch.traffic_manager.set_depth(network.queue_packets, port)
        self._inbox = _typed(memories)
        self._state = State(
            _events(_FIRST),
            _pool(_FIRST, layout.frame_size),
            links,
            Hosts(
                host_link,
                np.full(workers, _ticks(network.host_receive / network.host_cores), np.int64),
                np.full(workers, _ticks(network.host_send / network.host_cores), np.int64),
                np.zeros(workers, np.int64),
                np.full(workers, FOREVER, np.int64),
                np.ones(workers, np.bool_),
                np.zeros((workers, 5), np.int64),
            ),
            ways,
            np.full(len(switches), FOREVER, np.int64),
            np.zeros(len(switches), np.int64),
            np.zeros(8, np.int64),
            seed,
        )
        self._frames = np.zeros((1, layout.frame_size), np.uint8)
        self._ends: dict[int, SlotClient] = {}

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._tick / SECOND

    @property
    def _tick(self) -> int:
        """The same in picoseconds. Packets that nobody waits for any more may be under way."""
        return int(max(self._state.clock[TIME], self._state.clock[FINISHED]))

    def run(self, ends: Mapping[int, SlotClient]) -> None:
        """Let time pass until all workers have their results.

        Args:
            ends: the workers that take part, started at ``now``.

        Raises:
            StalledError: a worker gave up, or nothing will ever happen.
            InputError: a worker whose end does not run in compiled code.
        """
        for end in ends.values():
            if not end.runs_compiled:
                raise InputError(
                    "a network in simulated time has workers with a fixed window that wait for "
                    "all; leave partial_after and window_control out."
                )
        self._ends = dict(ends)
        begun = [each.begin() for each in self._running]
        self._programs = _typed(begun)
        self._copies = max(len(each.out) for each in begun)
        self._copies = max(self._copies, *(end.member.window for end in ends.values()), PORTS)
        self._make_room()
        try:
            self._begin()
            while (why := self._turn()) != DONE:
                if why == IDLE:
                    waiting = [worker for worker, end in self._ends.items() if not end.done]
                    raise StalledError(f"no packet is under way, but workers {waiting} wait.")
        finally:
            self._sync()
            for each in self._running:
                each.end()

    def _begin(self) -> None:
        """Let all workers send their first chunks."""
        state, hosts = self._state, self._state.hosts
        clients = []
        idle = next(iter(self._ends.values()))
        hosts.is_done[:] = True
        hosts.counts[:] = 0
        for worker in range(len(hosts.link)):
            end = self._ends.get(worker, idle)
            clients.append(end.compiled_state(self.now))
            if worker in self._ends:
                hosts.is_done[worker] = end.done
                hosts.counts[worker, HOST_WAITING] = clients[worker].waiting
        state.clock[OPEN] = int((~hosts.is_done).sum())
        self._clients = _typed(clients)
        now = self._tick
        for worker in self._ends:
            if not hosts.is_done[worker]:
                core.send_queued(self._state, self._clients, self._frames, worker, now)
                self._make_room()

    def _turn(self) -> int:
        state = self._state
        why, which, lacks = core.run(
            state,
            self._programs,
            self._inbox,
            self._clients,
            self._frames,
            (_EVENTS, self._copies),
        )
        if why == NEEDS_ROOM:
            self._make_room()
        elif why == NEEDS_SWITCH:
            program = self._running[which].make_room(lacks)
            core.put(self._programs, which, program)
            self._copies = max(self._copies, len(program.out))
            self._make_room()
        elif why == EXPIRED:
            self._retransmit(which)
        elif why == FAILED:
            raise InputError(
                "a switch's program makes packets longer than those of the job."
                if lacks == core.TOO_LONG
                else "a switch's program went round without end."
            )
        return int(why)

    def _retransmit(self, worker: int) -> None:
        """What a worker does when a timer has expired."""
        end, clock = self._ends[worker], int(self._state.clock[TIME])
        self._take_up(worker)
        now = math.nextafter(clock / SECOND, math.inf)  # not before the deadline, as floats go
        for frame in end.outgoing(now):
            core.send_frame(self._state, worker, frame, clock)
            self._make_room()
        self._hand_over(worker)
        deadline = end.next_deadline()
        if deadline is not None:
            core.set_timer(self._state, worker, max(clock, int(deadline * SECOND)) + 1)

    def _take_up(self, worker: int) -> None:
        """Update a worker's end after compiled code has used its state."""
        counts = self._state.hosts.counts[worker]
        self._ends[worker].take_up(
            Progress(
                answers=int(counts[HOST_ANSWERS]),
                received=int(counts[HOST_RECEIVED]),
                bytes=int(counts[HOST_BYTES]),
                sent=int(counts[HOST_SENT]),
                waiting=0,
                first=0,
                end=0,
                lost=0,
                error=0,
            )
        )
        counts[:HOST_WAITING] = 0

    def _hand_over(self, worker: int) -> None:
        client = self._ends[worker].compiled_state(self.now)
        self._state.hosts.counts[worker, HOST_WAITING] = client.waiting
        core.put(self._clients, worker, client)

    def _sync(self) -> None:
        for worker in self._ends:
            self._take_up(worker)

    def _make_room(self) -> None:
        """Make room for the packets and events of a few more steps."""
        state = self._state
        if state.pool.left[0] < 2 * self._copies:
            rows = len(state.pool.data)
            more = _pool(2 * rows + 4 * self._copies, state.pool.data.shape[1])
            more.data[:rows], more.length[:rows] = state.pool.data, state.pool.length
            left = int(state.pool.left[0])
            fresh = np.arange(rows, len(more.data))
            more.free[:left] = state.pool.free[:left]
            more.free[left : left + len(fresh)] = fresh
            more.left[0] = left + len(fresh)
            state = state._replace(pool=more)
        if len(state.events.time) - int(state.events.size[0]) < 4 * self._copies + 2:
            more_events = _events(2 * len(state.events.time) + 8 * self._copies)
            for old, new in zip(state.events, more_events, strict=True):
                new[: len(old)] = old
            state = state._replace(events=more_events)
        self._state = state

    # ------------------------------------------------------------------ what there is to know

    def counts(self) -> Counts:
        """What has happened since the beginning."""
        state = self._state
        links = state.links.counts
        is_trunk = self._is_trunk
        to_host = state.links.switch < 0
        classes = {
            "host_to_switch": ~is_trunk & ~to_host,
            "switch_to_host": ~is_trunk & to_host,
            "trunk": is_trunk,
        }
        return Counts(
            ticks=self._tick,
            packets=int(links[:, LINK_PACKETS].sum()),
            bytes=int(links[:, LINK_BYTES].sum()),
            lost=int(links[:, LINK_LOST].sum()),
            dropped=sum(switch.traffic_manager.dropped for switch in self._switches),
            unconnected=int(state.clock[UNCONNECTED]),
            busy={
                name: (int(links[rows, LINK_BUSY].sum()), int(rows.sum()))
                for name, rows in classes.items()
                if rows.any()
            },
        )

    def under_way(self) -> int:
        """Packets on links: put onto one, and neither delivered nor lost."""
        clock = self._state.clock
        return int(clock[PACKETS] - clock[DELIVERED] - clock[LOST])


def _ticks(seconds: float) -> int:
    return round(seconds * SECOND)


def _typed(items: Sequence[Any]) -> Any:
    found = core.listed(items[0])
    for item in items[1:]:
        core.add(found, item)
    return found


def _links(
    network: Network, number: Mapping[str, int], cables: Sequence[Cable]
) -> tuple[Links, NDArray[np.int64]]:
    """Two links for each cable, the one to its first end first; and ``State.ways``."""
    count = 2 * len(cables)
    rate, delay, switch, port = (np.zeros(count, np.int64) for _ in range(4))
    ways = np.full((len(number), PORTS), -1, np.int64)
    pipeline = _ticks(network.switch_latency)
    for index, cable in enumerate(cables):
        here, to, back = number[cable.switch], 2 * index, 2 * index + 1
        rate[to] = rate[back] = round(network.rate if cable.host is not None else network.of_trunks)
        delay[to] = delay[back] = _ticks(network.delay)
        switch[to], port[to] = here, cable.port
        delay[to] += pipeline
        ways[here, cable.port] = back
        if cable.host is not None:
            switch[back], port[back] = -1, cable.host
        else:
            there = number[cable.other]
            switch[back], port[back] = there, cable.other_port
            delay[back] += pipeline
            ways[there, cable.other_port] = to
    free, loss = np.zeros(count, np.int64), np.full(count, network.loss)
    counts = np.zeros((count, 4), np.int64)
    return Links(rate, delay, switch, port, free, loss, counts), ways


def _events(size: int) -> Events:
    time, serial, kind, subject, packet = (np.zeros(size, np.int64) for _ in range(5))
    return Events(time, serial, kind, subject, packet, np.zeros(1, np.int64))


def _pool(size: int, stride: int) -> Pool:
    return Pool(
        np.zeros((size, stride), np.uint8),
        np.zeros(size, np.int32),
        np.arange(size, dtype=np.int64),
        np.array([size], np.int64),
    )
